"""Iterations while their own process writes: every way of iterating, with every kind of write.

Outside of transactions, a record comes at most once, and each that matches throughout comes, in the
order of the beginning. In a transaction or a snapshot, exactly what matched at the beginning comes,
as it was then. Pages are made small, so that a few records have many.
"""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from itertools import islice
from random import Random
from typing import Any, NamedTuple

import pytest

import zapdb
import zapdb.aio
from tests.support import Workspace
from zapdb.errors import RecordExists, TransactionConflict
from zapdb.limits import ITERATION_TOLD_WRITES_MAX
from zapdb.storage import own_writes
from zapdb.storage.interruption import InterruptibleCall
from zapdb.tables import iteration as iterations
from zapdb.tables.queries import paging
from zapdb.tables.queries.query import Query
from zapdb.tables.table_reading import ReadableTable

GROUPS = """\
create_table: {table: groups, key: [id], fields: [
      {name: id, type: integer}, {name: name, type: string}]}"""
TASKS = """\
create_table: {table: tasks, key: [id], fields: [
      {name: id, type: integer},
      {name: due, type: integer, optional: true},
      {name: kind, type: integer},
      {name: code, type: string, optional: true},
      {name: text, type: string},
      {name: group, type: reference, to: groups}]}"""
INDEXES = (
    "create_index: {table: tasks, index: by_due, fields: [{field: due}]}",
    "create_index: {table: tasks, index: by_kind, fields: [{field: kind}, {field: due}]}",
    "create_index: {table: tasks, index: by_code, unique: true, fields: [{field: code}]}",
    "create_index: {table: tasks, index: by_text, fields: [{field: text, collation: {locale: und}}"
    "]}",
)
COUNT, KINDS, DUES, GROUP_COUNT = 30, 4, 40, 5
LONG = "x" * 1_100
"""Keys that begin with it are truncated."""


class Undo(Exception):
    """Ends a block that nothing is left of."""


Task = dict[str, Any]
Matches = Callable[[Task], bool]


class Way(NamedTuple):
    """A way to iterate, and which tasks it has."""

    read: Callable[[Any], Iterable[Any]]
    matches: Matches = lambda task: True
    covers: tuple[str, ...] = ()
    """Methods of tables and queries."""
    is_eager: bool = False
    """Whether all records are read before the first one comes."""


def by_arrow(found: Any) -> Iterator[Task]:
    for batch in found:
        yield from batch.to_pylist()


WAYS: dict[str, Way] = {
    "scan": Way(lambda t: t.scan(), covers=("scan",)),
    "iterate": Way(lambda t: iter(t)),
    "arrow": Way(lambda t: by_arrow(t.to_arrow()), covers=("to_arrow",)),
    "query as arrow": Way(lambda t: by_arrow(t.order_by("due").to_arrow()), covers=("to_arrow",)),
    "keys": Way(lambda t: t.where(t.f.id >= 3), lambda r: r["id"] >= 3, ("where",)),
    "keys down": Way(lambda t: t.order_by("-id"), covers=("order_by",)),
    "order": Way(lambda t: t.order_by("due"), covers=("order_by",)),
    "order down": Way(lambda t: t.order_by("-due")),
    "order reversed": Way(lambda t: t.order_by("due").reverse(), covers=("reverse",)),
    "order with the key": Way(lambda t: t.order_by("due", "id")),
    "order, nulls last": Way(lambda t: t.order_by(t.f.due.nulls_last())),
    "order of a collation": Way(lambda t: t.order_by(t.f.text.collated("und"))),
    "order and limit": Way(lambda t: t.order_by("due").limit(COUNT), covers=("limit",)),
    "order and filter": Way(
        lambda t: t.where(t.f.kind != 1).order_by("due"), lambda r: r["kind"] != 1
    ),
    "condition": Way(
        lambda t: t.where(t.f.due >= 5), lambda r: r["due"] is not None and r["due"] >= 5
    ),
    "equality": Way(lambda t: t.where(kind=1), lambda r: r["kind"] == 1),
    "several ranges": Way(lambda t: t.where(t.f.kind.in_([0, 2, 3])), lambda r: r["kind"] != 1),
    "using": Way(lambda t: t.using("by_due"), covers=("using",)),
    "using, reversed": Way(lambda t: t.using("by_kind").reverse()),
    "unique": Way(lambda t: t.using("by_code")),
    "sorted": Way(lambda t: t.order_by("group", "text"), is_eager=True),
    "raced": Way(
        lambda t: t.where(t.f.kind < 3).order_by("due").limit(COUNT),
        lambda r: r["kind"] < 3,
        is_eager=True,
    ),
    "alternatives": Way(
        lambda t: t.where((t.f.due < 12) | (t.f.kind == 2)),
        lambda r: (r["due"] is not None and r["due"] < 12) or r["kind"] == 2,
    ),
    "alternatives in order": Way(
        lambda t: t.where((t.f.kind == 0) | (t.f.kind == 2)).order_by("due"),
        lambda r: r["kind"] in (0, 2),
    ),
    "with groups": Way(lambda t: t.order_by("due").include("group"), covers=("include",)),
}
OF_ONE_CALL = {
    *("all", "first", "one", "exists", "count", "min", "max", "sum", "page", "explain"),
    *("to_pandas", "update", "delete", "get", "find", "get_many", "open"),
    *("readable_indexes",),
}
"""What has read everything when it returns."""


def test_every_method_that_reads_is_among_the_ways() -> None:
    covered = {name for way in WAYS.values() for name in way.covers} | OF_ONE_CALL
    public = {
        name
        for kind in (Query, ReadableTable)
        for name, found in vars(kind).items()
        if not name.startswith("_") and callable(found)
    }
    assert public == covered


@pytest.fixture
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paging, "PAGE_RECORDS_FIRST", 4)
    monkeypatch.setattr(paging, "PAGE_RECORDS_MAX", 7)
    monkeypatch.setattr(iterations, "PAGE_RECORDS_MAX", 3)
    monkeypatch.setattr(own_writes, "ITERATION_TOLD_WRITES_MAX", 3)
    monkeypatch.setattr("zapdb.tables.arrow.PAGE_RECORDS_MAX", 5)
    monkeypatch.setattr("zapdb.tables.eager_loading.PAGE_RECORDS_FIRST", 4)
    monkeypatch.setattr("zapdb.tables.eager_loading.INCLUDE_RECORDS_MAX", 6)


def draw(random: Random, key: int) -> Task:
    return {
        "id": key,
        "due": random.choice([None, *range(DUES)]),
        "kind": random.randrange(KINDS),
        "code": random.choice([None, None, f"{LONG}{key}", f"c{key}"]),
        "text": random.choice(["", LONG, LONG]) + random.choice("aAbBäÄ"),
        "group": random.randrange(GROUP_COUNT),
    }


class Program:
    """Random writes to the tasks of a table, and what these are by now."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.tasks = {key: draw(random, key) for key in range(COUNT)}
        self.groups = dict.fromkeys(range(GROUP_COUNT), "new")
        self.next_key = COUNT
        self.deleted = set[int]()

    def fill(self, db: Any) -> None:
        db.table("tasks").where().delete()
        for key, name in self.groups.items():
            db.table("groups").upsert(id=key, name=name)
        db.table("tasks").insert_many(self.tasks.values())

    def write(self, db: Any, last: Task) -> None:
        """Write something, often about the task that came last."""
        random, t = self.random, db.table("tasks")
        there = [last["id"], *random.sample(sorted(self.tasks), min(2, len(self.tasks)))]
        key = random.choice([key for key in there if key in self.tasks] or [None])
        kind = random.choice(["move"] * 4 + ["insert", "delete", "again", "all", "name"])
        if kind == "insert":
            new = draw(random, self.next_key if random.random() < 0.8 else -self.next_key)
            self.next_key += 1
            t.insert(**new)
            self.tasks[new["id"]] = new
        elif kind == "all":
            most = random.randrange(DUES)
            t.where(t.f.due < most).update(due=DUES + most)
            for task in self.tasks.values():
                if task["due"] is not None and task["due"] < most:
                    task["due"] = DUES + most
        elif kind == "name":
            group = random.randrange(GROUP_COUNT)
            self.groups[group] += "!"
            db.table("groups").update(group, name=self.groups[group])
        elif key is None:
            pass
        elif kind == "move":
            drawn = draw(random, key)
            names = random.sample(sorted(drawn.keys() - {"id"}), random.randrange(1, 4))
            changes = {name: drawn[name] for name in names}
            if "due" in changes and self.tasks[key]["due"] is not None:
                changes["due"] = self.tasks[key]["due"] + random.choice([-9, 1, 9])
            t.update(key, **changes)
            self.tasks[key] |= changes
        elif kind == "delete":
            t.delete(key)
            self.deleted.add(key)
            del self.tasks[key]
        else:
            t.delete(key)
            self.deleted.add(key)
            self.tasks[key] = draw(random, key)
            t.insert(**self.tasks[key])


def plain(record: Any) -> Task:
    return dict(record) if isinstance(record, dict) else zapdb.asdict(record)


def run_beside(
    name: str,
    program: Program,
    db: Any,
    write: Callable[[Task], object],
    *,
    is_of_one_moment: bool,
) -> None:
    """Iterate once, and write after some of the records."""
    way, random = WAYS[name], program.random
    start = [dict(task) for task in program.tasks.values() if way.matches(task)]
    throughout, groups = {task["id"] for task in start}, dict(program.groups)
    expected = [plain(record) for record in way.read(db.table("tasks"))]
    found: list[Task] = []
    program.deleted.clear()
    for record in islice(way.read(db.table("tasks")), 10 * COUNT):
        found.append(plain(record))
        if is_of_one_moment and name == "with groups":
            assert record.follow("group").name == groups[record.group]
        for _ in range(random.choice([0, 0, 1, 1, 2])):
            write(found[-1])
            throughout &= {key for key, task in program.tasks.items() if way.matches(task)}
    throughout -= program.deleted
    assert sorted(map(repr, expected)) == sorted(map(repr, start))
    if is_of_one_moment:
        assert found == expected
        return
    keys = [task["id"] for task in found]
    assert len(set(keys)) == len(keys), "a record came twice"
    began = [task["id"] for task in expected]
    assert set(keys) <= set(began), "a record came that had not been there"
    if not way.is_eager:
        assert [key for key in keys if key in throughout] == [k for k in began if k in throughout]
    else:
        assert throughout <= set(keys)


def start(workspace: Workspace, **options: Any) -> Any:
    workspace.write(1, GROUPS, TASKS, *INDEXES)
    return workspace.open(**options)


ROUNDS = [pytest.param(1, id="short"), pytest.param(60, id="long", marks=pytest.mark.long)]


@pytest.mark.usefixtures("small_pages")
@pytest.mark.parametrize("rounds", ROUNDS)
def test_each_record_comes_once_outside_of_transactions(workspace: Workspace, rounds: int) -> None:
    db = start(workspace)
    other = workspace.open()  # of the same process
    for seed in range(rounds):
        for at, name in enumerate(WAYS):
            program = Program(Random(f"{seed} {name} outside"))
            program.fill(db)
            write = partial(program.write, db if (seed + at) % 2 == 0 else other)
            run_beside(name, program, db, write, is_of_one_moment=False)


@pytest.mark.usefixtures("small_pages")
@pytest.mark.parametrize("rounds", ROUNDS)
def test_a_transaction_iterates_as_of_the_beginning(workspace: Workspace, rounds: int) -> None:
    db = start(workspace)
    for seed in range(rounds):
        for at, name in enumerate(WAYS):
            program = Program(Random(f"{seed} {name} inside"))
            program.fill(db)
            with db.transaction() as tx:
                handle = tx if (seed + at) % 2 else db
                write = partial(program.write, handle)
                write({"id": 1})
                run_beside(name, program, handle, write, is_of_one_moment=True)


@pytest.mark.usefixtures("small_pages")
@pytest.mark.parametrize("name", ["alternatives", "alternatives in order"])
def test_what_came_of_an_alternative_that_has_ended_does_not_come_again(
    workspace: Workspace, name: str
) -> None:
    """All of the first alternative has come when its records are moved to the end of the second."""
    db = start(workspace)
    first = [draw(Random(key), key) | {"kind": 0, "due": key} for key in range(5)]
    second = [draw(Random(key), key) | {"kind": 2, "due": 10 + key} for key in range(5, 20)]
    db.table("groups").insert_many({"id": key, "name": "new"} for key in range(GROUP_COUNT))
    db.table("tasks").insert_many(first + second)
    for handle in (db, None):
        with db.transaction() as tx:
            tasks = (handle or tx).table("tasks")
            keys = []
            for record in WAYS[name].read(tasks):
                keys.append(record.id)
                if record.id == 6:
                    tasks.where(kind=0).update(kind=2, due=90)
            assert keys == list(range(20))
            tx.table("tasks").where(due=90).update(kind=0)
            for task in first:
                tx.table("tasks").update(task["id"], due=task["due"])


@pytest.mark.usefixtures("small_pages")
def test_a_snapshot_iterates_as_of_its_beginning(workspace: Workspace) -> None:
    db = start(workspace)
    with ThreadPoolExecutor(1) as pool:  # which is not inside the snapshot
        for name in WAYS:
            program = Program(Random(f"{name} snapshot"))
            program.fill(db)
            with db.snapshot():

                def write(last: Task, program: Program = program) -> None:
                    pool.submit(program.write, db, last).result()

                run_beside(name, program, db, write, is_of_one_moment=True)


@pytest.mark.usefixtures("small_pages")
def test_tenants_and_pasts_iterate_by_themselves(workspace: Workspace) -> None:
    db = start(workspace)
    db.admin.create_tenant("acme")
    db.admin.set_setting("change_log", "on")
    acme = db.for_tenant("acme")
    for name in ("scan", "order", "alternatives in order", "with groups"):
        mine, theirs = Program(Random(f"{name} 1")), Program(Random(f"{name} 2"))
        mine.fill(db)
        theirs.fill(acme)
        run_beside(name, mine, db, partial(mine.write, db), is_of_one_moment=False)
        run_beside(name, theirs, acme, partial(mine.write, db), is_of_one_moment=True)
        with db.transaction() as tx:
            other = tx.for_tenant("acme")
            run_beside(name, theirs, other, partial(theirs.write, other), is_of_one_moment=True)
        theirs.tasks = {task.id: plain(task) for task in acme.table("tasks")}
        theirs.groups = {group.id: group.name for group in acme.table("groups")}
        past = acme.at(acme.change_log.end())
        run_beside(name, theirs, past, partial(theirs.write, acme), is_of_one_moment=True)


@pytest.mark.usefixtures("small_pages")
def test_tasks_of_asyncio_iterate_so_too(workspace: Workspace) -> None:
    start(workspace)

    async def run() -> None:
        opening = zapdb.aio.open(workspace.address, migrations=workspace.directory)
        async with opening as db:
            groups, tasks = db.table("groups"), db.table("tasks")
            await groups.insert(id=0, name="a")
            program = Program(Random("asyncio"))
            for key in program.tasks:
                task = program.tasks[key] | {"due": key, "group": 0}
                await tasks.insert(**task)
            found = []
            async for task in tasks.order_by("due"):
                found.append(task.id)
                await tasks.update(task.id, due=task.due + 10)
            assert found == list(range(COUNT))
            async with db.transaction() as tx:
                found = []
                async for task in tx.table("tasks").order_by("-due"):
                    found.append((task.id, task.due))
                    await tx.table("tasks").where(tasks.f.due < task.due).update(due=1_000)
            assert found == [(key, key + 10) for key in reversed(range(COUNT))]

    asyncio.run(run())


@pytest.mark.usefixtures("small_pages")
def test_what_was_archived_is_read_as_of_the_beginning(workspace: Workspace) -> None:
    workspace.write(1, GROUPS, TASKS, *INDEXES)
    old = workspace.open()
    program = Program(Random("archived"))
    program.fill(old)
    kinds = {key: task["kind"] for key, task in program.tasks.items()}
    workspace.write(
        2,
        "drop_index: {table: tasks, index: by_kind}",
        "drop_field: {table: tasks, field: kind, restore: {archive: true, otherwise: {value: 9}}}",
    )
    workspace.open()
    tasks = old.table("tasks")
    for key in range(0, COUNT, 2):
        tasks.update(key, kind=kinds[key])
    for read in (tasks.scan, partial(tasks.order_by, "due"), lambda: by_arrow(tasks.to_arrow())):
        with old.transaction():
            found = {}
            for task in read():
                found[plain(task)["id"]] = plain(task)["kind"]
                for key in range(COUNT):
                    tasks.update(key, kind=77 + len(found))
            assert found == kinds
            assert {task.kind for task in tasks} == {77 + COUNT}
            for key, kind in kinds.items():
                tasks.update(key, kind=kind)


@pytest.mark.usefixtures("small_pages")
def test_what_is_refused_or_undone_hides_no_record(workspace: Workspace) -> None:
    db = start(workspace)
    program = Program(Random("refused"))
    program.fill(db)
    tasks = db.table("tasks")
    for read in (tasks.scan, partial(tasks.order_by, "due")):
        expected = [plain(task) for task in read()]
        with db.transaction() as tx:
            found = []
            for task in read():
                found.append(plain(task))
                with suppress(RecordExists):
                    tasks.insert(**expected[-1])
                with suppress(Undo), tx.savepoint():
                    tasks.where().update(due=0, text="undone")
                    tasks.delete(expected[-2]["id"])
                    raise Undo
            assert found == expected
        found = []
        for task in read():
            found.append(plain(task))
            with suppress(RecordExists):
                tasks.insert(**expected[-1])
            with suppress(Undo), db.transaction():
                tasks.where().update(due=DUES + len(found))
                raise Undo
        assert found == expected


@pytest.mark.usefixtures("small_pages")
@pytest.mark.parametrize("name", ["order", "order down", "condition", "scan"])
def test_a_transaction_that_commits_meanwhile_counts(
    workspace: Workspace, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It wrote before the iteration began."""
    monkeypatch.setattr(own_writes, "ITERATION_TOLD_WRITES_MAX", ITERATION_TOLD_WRITES_MAX)
    db = start(workspace)
    program = Program(Random(name))
    for key, task in program.tasks.items():
        task["due"] = key + 5
    program.fill(db)
    tasks = db.table("tasks")
    expected = sorted(program.tasks)
    with ThreadPoolExecutor(1) as pool:
        block = db.transaction()
        tx = pool.submit(block.__enter__).result()
        for key, due in ((0, 900), (9, 950), (10, 6), (19, 960), (20, 7)):
            pool.submit(tx.table("tasks").update, key, due=due).result()
        pool.submit(tx.table("tasks").insert, **draw(Random(1), 1_000) | {"due": 999}).result()
        found = []
        for task in WAYS[name].read(tasks):
            found.append(task.id)
            if len(found) == 2:
                pool.submit(block.__exit__, None, None, None).result()
        assert sorted(found) == expected


def test_threads_that_write_hide_and_repeat_no_record(
    workspace: Workspace, small_pages: None
) -> None:
    db = start(workspace)
    program = Program(Random("threads"))
    program.fill(db)
    tasks, is_over = db.table("tasks"), threading.Event()

    def move(seed: int) -> None:
        random = Random(seed)
        while not is_over.is_set():
            key = random.randrange(COUNT)
            with suppress(TransactionConflict):
                tasks.update(key, due=random.randrange(DUES), kind=random.randrange(KINDS))

    with ThreadPoolExecutor(2) as pool:
        writers = [pool.submit(move, seed) for seed in range(2)]
        try:
            for _ in range(15):
                for name in ("order", "order down", "using, reversed", "sorted"):
                    found = [task.id for task in WAYS[name].read(tasks)]
                    assert sorted(found) == list(range(COUNT)), name
                either = (tasks.f.kind < 2) | (tasks.f.kind >= 2)
                found = [task.id for task in tasks.where(either)]
                assert sorted(found) == list(range(COUNT))
        finally:
            is_over.set()
        for writer in writers:
            writer.result()


@pytest.mark.parametrize("part", ["leave_commit", "enter_commit and undo"])
def test_a_commit_ends_whatever_fails_behind_it(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    """Or each later iteration would be told of its writes for as long as the process lives."""
    db = start(workspace)

    def fail(*_: object, **named: object) -> None:
        raise MemoryError

    async def write() -> None:
        async with zapdb.aio.open(workspace.address) as here:
            storage = here._sync._storage
            with monkeypatch.context() as patched:
                if part == "leave_commit":
                    patched.setattr(InterruptibleCall, "leave_commit", fail)
                else:
                    patched.setattr(InterruptibleCall, "enter_commit", fail)
                    patched.setattr(type(storage), "_undo", fail)
                with pytest.raises(MemoryError):
                    await here.table("groups").insert(id=-1, name="a")
            assert not storage.own_writes._committing

    db.close()
    asyncio.run(write())


def test_an_iteration_ends_with_what_reads_it(workspace: Workspace) -> None:
    """At once, and not when garbage is collected: each write after it would be told to it."""
    db = start(workspace)
    Program(Random("ended")).fill(db)
    tasks, told = db.table("tasks"), db._storage.own_writes
    calls: dict[str, Callable[[], object]] = {
        "first": lambda: tasks.where(tasks.f.kind < 3).order_by("due").first(),
        "exists": lambda: tasks.where(tasks.f.text != "x").exists(),
        "page": lambda: tasks.order_by("due").page(5),
        "count": lambda: tasks.where(tasks.f.text != "x").count(),
        "update": lambda: tasks.where(tasks.f.kind == 1).update(kind=1),
    }
    for name, way in WAYS.items():
        calls[name] = lambda way=way: list(way.read(tasks))
        calls[f"{name}, broken off"] = lambda way=way: next(iter(way.read(tasks)))
    gc.disable()
    try:
        for name, call in calls.items():
            call()
            assert len(told._iterations) == 0, name
    finally:
        gc.enable()
