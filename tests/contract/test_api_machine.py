"""Random programs on the application's API beside a plain model of what it has to answer.

Several processes have one database open, each with files of its own age and for two tenants. They
read and write; one may be in a transaction with savepoints, and one in a snapshot, while the others
go on. Migrations, jobs and forgets come in between. (test_machine.py draws the migrations
themselves at random; here they come from a list, and lose nothing.)
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass, field
from random import Random
from typing import Any, NamedTuple
from uuid import UUID

import pytest
from hypothesis import HealthCheck, event, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)

import zapdb
from tests import forms
from tests.contract.api_model import (
    SCHEMA,
    Asked,
    World,
    draw_key,
    draw_value,
    list_migrations,
    names_of,
)
from tests.contract.model import Key, Model, Row
from tests.documents import document
from tests.support import PostgresServer, make_place
from zapdb import etag
from zapdb.activation.rollback import roll_back
from zapdb.activation.up import MigrationChoice, migrate_up
from zapdb.catalog import DEFAULT_TENANT
from zapdb.database import Database
from zapdb.errors import (
    CheckViolation,
    RecordExists,
    RecordNotFound,
    ReferenceViolation,
    SeveralRecords,
    UniqueViolation,
    UpdateConflict,
)
from zapdb.records import held
from zapdb.schema import TableSchema
from zapdb.storage import connect

REFUSALS = (
    CheckViolation,
    RecordExists,
    RecordNotFound,
    ReferenceViolation,
    SeveralRecords,
    UpdateConflict,
    UniqueViolation,
)
TENANTS = ("default", "acme")
PROCESSES_MAX = 3
WINDOW = 3
"""So many migrations a process is behind at most."""

Wrong = set[type[Exception]]
RANDOM = st.integers(0, 2**32 - 1).map(Random)
"""A seed for each step: what a step draws would be too much for hypothesis to keep."""
COUNT = st.integers(1, 8)
"""So many operations of a step."""


class Undo(Exception):
    """Ends a block that nothing is left of."""


@dataclass(eq=False)
class Process:
    """An open database; without files it has the shapes in force, else those of position `at`."""

    db: Database
    at: int | None
    files_end: int
    tenants: dict[str, Database]
    is_deaf: bool = False
    """Whether it hears of changes by what it asks alone, and does nothing in the background."""
    tables: dict[tuple[str, int], Any] = field(default_factory=dict)
    """By tenant and number: kept for as long as the process lives, whatever becomes of them."""


class Place(NamedTuple):
    """A table of a tenant as a process has it, and what that must be now."""

    process: Process
    world: World
    tenant: str
    table: TableSchema
    api: Any

    @property
    def at(self) -> int:
        return shape_of(self.process, self.world, self.tenant)

    @property
    def rows(self) -> dict[Key, Row]:
        return self.world.rows(self.tenant, self.table.number, self.at)


def shape_of(process: Process, world: World, tenant: str) -> int:
    return world.positions[tenant] if process.at is None else process.at


@dataclass(frozen=True)
class Pages:
    """A query that was read up to a place in its order."""

    tenant: str
    asked: Asked
    cursor: str
    place: Any
    made_at: int


class Program(RuleBasedStateMachine):
    """One database; `server` is None for SQLite."""

    def __init__(self, server: PostgresServer | None) -> None:
        super().__init__()
        self.resources = ExitStack()
        self.address, self.migrations = make_place(self.resources, server, "program")
        self.processes: list[Process] = []
        self.opened = 0
        self.writer: Process | None = None
        """Who is in a transaction, with its blocks and what each goes back to."""
        self.blocks: list[tuple[Any, World]] = []
        self.reader: Process | None = None
        """Who is in a snapshot, and what that shows."""
        self.snapshot: tuple[Any, World] | None = None
        self.pages: list[Pages] = []

    @initialize(random_=RANDOM)
    def begin(self, random_: Random) -> None:
        (self.migrations / "0001_begin.yaml").write_text(document(*SCHEMA))
        process = self._open(apply="auto")
        process.db.admin.create_tenant("acme")
        chain = process.db._catalog.chain
        self.world = World(chain, {"default": 1, "acme": 0}, {t: Model() for t in TENANTS})
        self.world.models["default"].migrate(chain)
        self.join(process, "acme")
        self.join(self._open(), "acme")
        for tenant in TENANTS:
            for name in ("people", "items", "notes"):
                for _ in range(3):
                    self._insert(random_, self._place(process, tenant, name))

    def teardown(self) -> None:
        try:
            while self.blocks:
                self._leave_block(commit=False)
            if self.snapshot is not None:
                self._leave_snapshot()
            if sys.exc_info()[0] is None and self.processes:
                self.look_at_all()
        finally:
            for process in self.processes:
                process.db.close()
            self.resources.close()

    # Processes

    def _open(self, **options: Any) -> Process:
        db = zapdb.open(self.address, migrations=self.migrations, **options)
        end = max(db._catalog.chain.end, 1)
        process = Process(db, options.get("serve_as", end), end, {"default": db})
        self.opened += 1
        process.is_deaf = self.opened % 2 == 1
        if process.is_deaf:
            db._refresher.stop()
        self.processes.append(process)
        return process

    def _close(self, process: Process) -> None:
        process.db.close()
        self.processes.remove(process)

    @rule(random_=RANDOM)
    @precondition(lambda self: not self.blocks)
    def open(self, random_: Random) -> None:
        """One more process, in the place of one if there are enough; or a tenant."""
        if random_.random() < 0.4:
            self.open_tenant(random_)
            return
        idle = [p for p in self.processes if p is not self.reader]
        if len(self.processes) == PROCESSES_MAX and idle:
            self._close(random_.choice(idle))
        end = self.world.chain.end
        kind = random_.choice(["current", "older", "tool"])
        if kind == "tool":
            db = zapdb.open(self.address)
            process = Process(db, None, 0, {"default": db})
            self.processes.append(process)
        elif kind == "older":
            process = self._open(serve_as=random_.randint(max(1, end - WINDOW), end))
        else:
            process = self._open()
        self._settle("default")
        if random_.random() < 0.5:
            self.join(process, "acme")

    def open_tenant(self, random_: Random) -> None:
        found = [p for p in self.processes if "acme" not in p.tenants and p is not self.reader]
        if found:
            self.join(random_.choice(found), "acme")

    def join(self, process: Process, tenant: str) -> None:
        process.tenants[tenant] = process.db.for_tenant(tenant)
        if process.is_deaf:
            process.tenants[tenant]._refresher.stop()
        self._settle(tenant)

    def _settle(self, tenant: str) -> None:
        """Opening a tenant brings it to what is stored."""
        world = self.world
        if world.positions[tenant] < world.chain.end:
            world.positions[tenant] = world.chain.end
            world.models[tenant].migrate(world.chain)

    # Places

    def _world(self, process: Process) -> World:
        """What a process has to see."""
        if self.snapshot is not None and process is self.reader:
            return self.snapshot[1]
        if self.blocks and process is not self.writer:
            return self.blocks[0][1]
        return self.world

    def _place(self, process: Process, tenant: str, name: str) -> Place:
        world = self._world(process)
        chain, at = world.chain_of(tenant), shape_of(process, world, tenant)
        table = chain.schema_at(at).table_named(name)
        assert table is not None
        db, known = process.tenants[tenant], (tenant, table.number)
        if known not in process.tables:
            process.tables[known] = db.table(name)
        if process.at is None:
            process.tables[known].count()  # it learns the names of fields by asking
        return Place(process, world, tenant, table, process.tables[known])

    def _choose(self, random_: Random, *, writes: bool, name: str | None = None) -> Place | None:
        found = self.processes
        if writes:
            found = [p for p in found if p is not self.reader and self.writer in (None, p)]
            if not found:
                return None
        process = random_.choice(found)
        tenant = random_.choice(sorted(process.tenants))
        return self._place(
            process, tenant, name or random_.choice(["items", "items", "people", "notes"])
        )

    # Writing

    def _attempt(
        self,
        place: Place,
        act: Callable[[], Any],
        apply: Callable[[World, Any], tuple[Any, Wrong]],
        *,
        is_final: bool = True,
    ) -> Any:
        """Do what the model does; a refusal must have a reason, and changes nothing.

        `apply` is given what was found, and returns what has to be found and what is wrong.
        """
        found, error = None, None
        try:
            found = act()
        except REFUSALS as refused:
            error = refused
        trial = self.world.copy()
        wanted, wrong = apply(trial, found)
        if not (is_final and wrong):
            wrong = wrong | trial.violations(place.tenant)
        if error is not None:
            assert type(error) in wrong, (error, wrong)
            event(type(error).__name__)
            return None
        assert not wrong, (place.table.name, wrong, found)
        assert found == wanted, (place.table.name, found, wanted)
        self.world = trial
        return found

    def _values(self, random_: Random, place: Place, *, may_leave_out: bool) -> Row:
        values = {}
        for of in place.table.value_fields:
            can_miss = of.optional or of.has_default
            if may_leave_out and can_miss and random_.random() < 0.4:
                continue
            values[of.name] = draw_value(random_, of)
            if values[of.name] is not None and of.name in ("item", "owner", "boss"):
                target = "items" if of.name == "item" else "people"
                keys = list(self._place(place.process, place.tenant, target).rows)
                if keys and random_.random() < 0.8:
                    key = random_.choice(keys)
                    values[of.name] = key if len(key) > 1 else key[0]
        return values

    def _new(self, random_: Random, place: Place) -> Row:
        """Values for a new record; a generated key may be missing."""
        values = self._values(random_, place, may_leave_out=True)
        if place.table.name != "notes" or random_.random() < 0.6:
            key = draw_key(random_, place.table)
            values |= dict(zip(key_names(place.table), key, strict=True))
        return values

    def _change(self, random_: Random, place: Place) -> Row:
        values = self._values(random_, place, may_leave_out=False)
        names = random_.sample(sorted(values), random_.randint(0, min(2, len(values))))
        return {name: values[name] for name in names}

    def _insert(self, random_: Random, place: Place) -> Any:
        values = self._new(random_, place)

        def apply(world: World, found: Any) -> tuple[Any, Wrong]:
            row = completed(place.table, values, found)
            is_new = world.insert(place.tenant, place.table.number, row, place.at)
            return row, set() if is_new else {RecordExists}

        return self._attempt(place, lambda: held(place.api.insert(**values)), apply, is_final=False)

    @rule(random_=RANDOM, count=COUNT)
    def write(self, random_: Random, count: int) -> None:
        for _ in range(count):
            random_.choice(
                (
                    self.insert,
                    self.insert_many,
                    self.update,
                    self.update_if_unchanged,
                    self.upsert,
                    self.delete,
                    self.delete_many,
                    self.delete_where,
                )
            )(random_)

    def insert(self, random_: Random) -> None:
        if place := self._choose(random_, writes=True):
            self._insert(random_, place)

    def insert_many(self, random_: Random) -> None:
        """Batches of two: those before one that is refused stay."""
        place = self._choose(random_, writes=True)
        if place is None:
            return
        rows = [self._new(random_, place) for _ in range(random_.randint(0, 5))]
        rows = [r for r in rows if set(key_names(place.table)) <= r.keys()]
        counts: list[int] = []
        error = None
        try:
            count = place.api.insert_many(rows, batch_records=2, progress=counts.append)
            assert count == len(rows)
        except REFUSALS as refused:
            error = refused
        for start in range(0, len(rows), 2):
            trial, wrong, met = self.world.copy(), set(), set()
            for row in rows[start : start + 2]:
                whole = completed(place.table, row, None)
                if not trial.insert(place.tenant, place.table.number, whole, place.at):
                    wrong.add(RecordExists)
                met |= trial.violations(place.tenant)  # the next one may take its key
            wrong |= trial.violations(place.tenant)
            if wrong:
                assert type(error) in wrong | met, (error, wrong)
                assert counts == list(range(2, start + 1, 2))
                return
            self.world = trial
        assert error is None

    def _key(self, random_: Random, place: Place) -> Key:
        """That of a record, mostly."""
        keys = list(place.rows)
        is_there = keys and random_.random() < 0.8
        return random_.choice(keys) if is_there else draw_key(random_, place.table)

    def update(self, random_: Random) -> None:
        if place := self._choose(random_, writes=True):
            self._update(random_, place, self._key(random_, place))

    def _update(self, random_: Random, place: Place, key: Key) -> Any:
        changes = self._change(random_, place)
        return self._attempt(
            place,
            lambda: held(place.api.update(*key, **changes)),
            lambda world, _: self._apply_update(world, place, key, changes),
        )

    def _apply_update(
        self, world: World, place: Place, key: Key, changes: Row
    ) -> tuple[Any, Wrong]:
        if key not in place.rows:
            return None, {RecordNotFound}
        world.update(place.tenant, place.table.number, key, changes, place.at)
        return world.rows(place.tenant, place.table.number, place.at)[key], set()

    def update_if_unchanged(self, random_: Random) -> None:
        """With what was seen before, or its etag."""
        place = self._choose(random_, writes=True)
        if place is None or not place.rows:
            return
        key = random_.choice(list(place.rows))
        seen = place.api.get(*key)
        if random_.random() < 0.6:
            self._update(random_, place, key)
        place = place._replace(world=self._world(place.process))
        changes, is_same = self._change(random_, place), held(seen) == place.rows[key]

        def apply(world: World, _: Any) -> tuple[Any, Wrong]:
            done, wrong = self._apply_update(world, place, key, changes)
            if not is_same:  # what else is wrong with the new values may be found first
                return None, {UpdateConflict} | wrong
            return done, wrong

        was = etag(seen) if random_.random() < 0.5 else seen
        self._attempt(
            place,
            lambda: held(place.api.update(*key, if_unchanged=was, **changes)),
            apply,
            is_final=is_same,
        )

    def upsert(self, random_: Random) -> None:
        place = self._choose(random_, writes=True)
        if place is None:
            return
        values = self._new(random_, place)
        if place.rows and random_.random() < 0.6:
            key = random_.choice(list(place.rows))
            values |= dict(zip(key_names(place.table), key, strict=True))
        missing = {f.name for f in place.table.fields if not (f.optional or f.has_default)}
        assert missing <= values.keys() | {"id"}

        def apply(world: World, found: Any) -> tuple[Any, Wrong]:
            row = completed(place.table, values, found)
            key = tuple(row[name] for name in key_names(place.table))
            if key in place.rows:
                changes = {n: v for n, v in values.items() if n not in key_names(place.table)}
                return self._apply_update(world, place, key, changes)
            world.insert(place.tenant, place.table.number, row, place.at)
            return row, set()

        self._attempt(place, lambda: held(place.api.upsert(**values)), apply)

    def delete(self, random_: Random) -> None:
        place = self._choose(random_, writes=True)
        if place is None:
            return
        key = self._key(random_, place)

        def apply(world: World, _: Any) -> tuple[Any, Wrong]:
            if key not in place.rows:
                return None, {RecordNotFound}
            is_free = world.delete(place.tenant, place.table.number, [key])
            return None, set() if is_free else {ReferenceViolation}

        self._attempt(place, lambda: place.api.delete(*key), apply)

    def delete_many(self, random_: Random) -> None:
        place = self._choose(random_, writes=True)
        if place is None:
            return
        keys = [self._key(random_, place) for _ in range(random_.randint(0, 3))]
        given = [key if len(key) > 1 else key[0] for key in keys]
        self._attempt(
            place,
            lambda: place.api.delete_many(given),
            lambda world, _: delete_all(world, place, keys),
        )

    def delete_where(self, random_: Random) -> None:
        place = self._choose(random_, writes=True)
        if place is None:
            return
        asked = Asked.draw(random_, place.table)
        query, meant = asked.make(place.api, place.table), asked.answer(place.table, place.rows)
        if asked.order is not None or random_.random() < 0.3:
            size = random_.randint(0, 2) if asked.order is not None else 100
            query, meant = query.limit(size), meant[:size]
        keys = [tuple(row[name] for name in key_names(place.table)) for row in meant]
        self._attempt(place, query.delete, lambda world, _: delete_all(world, place, keys))

    # Transactions and snapshots

    @rule(random_=RANDOM, way=st.sampled_from(["begin", "begin", "commit", "undo"]))
    def turn(self, random_: Random, way: str) -> None:
        """Into a transaction or a savepoint, or out of it."""
        if way == "begin" or not self.blocks:
            self.begin_block(random_)
        else:
            self._leave_block(commit=way == "commit")

    def begin_block(self, random_: Random) -> None:
        """A transaction, or a savepoint in it, left later."""
        free = [p for p in self.processes if p is not self.reader]
        if len(self.blocks) == 3 or not free:
            return
        process = self.writer or random_.choice(free)
        token = not self.blocks and random_.random() < 0.2
        block = process.tenants[random_.choice(sorted(process.tenants))].transaction(token=token)
        block.__enter__()
        self.writer = process
        self.blocks.append((block, self.world.copy()))

    def _leave_block(self, *, commit: bool) -> None:
        block, before = self.blocks.pop()
        error = None if commit else Undo()
        assert not block.__exit__(type(error) if error else None, error, None)
        if error is not None:
            self.world = before
        process = self.writer
        if not self.blocks:
            self.writer = None
        if process is not None:
            self._look(process)

    @rule(random_=RANDOM, count=COUNT, ends_well=st.booleans())
    def run(self, random_: Random, count: int, ends_well: bool) -> None:
        """A function in a transaction, or as a part of one."""
        place = self._choose(random_, writes=True)
        if place is None:
            return
        before, writer = self.world.copy(), self.writer

        def work() -> int:
            self.write(random_, count)
            if not ends_well:
                raise Undo
            return 7

        if writer is None:
            self.blocks.append((None, before))
        self.writer = place.process
        try:
            assert place.process.tenants[place.tenant].run(work) == 7
        except Undo:
            self.world = before
        finally:
            if writer is None:
                self.blocks.pop()
            self.writer = writer

    @rule(random_=RANDOM)
    def take_snapshot(self, random_: Random) -> None:
        """Or end the one that there is, which sees nothing of what others wrote."""
        if self.snapshot is not None:
            self.write(random_, 3)
            self._leave_snapshot()
            return
        free = [p for p in self.processes if p is not self.writer]
        if not free:
            return
        self.reader = random_.choice(free)
        world = self._world(self.reader).copy()
        tenant = random_.choice(sorted(self.reader.tenants))
        snapshot = self.reader.tenants[tenant].snapshot()
        snapshot.__enter__()
        self.snapshot = (snapshot, world)

    def _leave_snapshot(self) -> None:
        assert self.snapshot is not None
        assert self.reader is not None
        self._look(self.reader)
        self.snapshot[0].__exit__(None, None, None)
        reader, self.snapshot, self.reader = self.reader, None, None
        self._look(reader)

    # Reading

    @rule(random_=RANDOM, count=COUNT)
    def read(self, random_: Random, count: int) -> None:
        acts = (self.get, self.ask, self.ask, self.include, self.begin_pages, self.next_page)
        for _ in range(2 * count):
            random_.choice(acts)(random_)

    def get(self, random_: Random) -> None:
        place = self._choose(random_, writes=False)
        assert place is not None
        rows = place.rows
        keys = [self._key(random_, place) for _ in range(3)]
        found = place.api.get_many([key if len(key) > 1 else key[0] for key in keys])
        assert [record and held(record) for record in found] == [rows.get(key) for key in keys]
        for key in keys:
            record = place.api.find(*key)
            assert (record and held(record)) == rows.get(key), (key, place.at)
            assert place.api.exists(*key) == (key in rows)
            if key in rows:
                assert place.api.get(*key) == record
            else:
                with pytest.raises(RecordNotFound):
                    place.api.get(*key)

    def ask(self, random_: Random) -> None:
        place = self._choose(random_, writes=False)
        assert place is not None
        asked = Asked.draw(random_, place.table)
        query, meant = asked.make(place.api, place.table), asked.answer(place.table, place.rows)
        found = [held(record) for record in query]
        if asked.order is None:
            meant = reordered(meant, found)
        assert found == meant, (query, str(query.explain()))
        assert query.count() == len(meant), query
        assert query.exists() == bool(meant)
        limit = random_.randint(0, 4)
        limited, cut = query.limit(limit), meant[:limit]
        assert [held(record) for record in limited] == cut
        first = query.first()
        assert (first and held(first)) == (meant[0] if meant else None)
        one = {0: RecordNotFound, 1: None}.get(len(meant), SeveralRecords)
        if one is None:
            assert held(query.one()) == meant[0]
        else:
            with pytest.raises(one):
                query.one()
        for of in place.table.fields:
            if of.name not in ("item", "owner", "boss", "done"):
                check_ends(
                    limited if asked.order else query, of.name, cut if asked.order else meant
                )
        paged, cursor = list[Row](), None
        while True:
            page = query.page(2, cursor)
            paged += map(held, page)
            if (cursor := page.cursor) is None:
                break
        assert reordered(meant, paged) == paged if asked.order is None else meant == paged

    def include(self, random_: Random) -> None:
        name = random_.choice(["items", "notes", "people"])
        place = self._choose(random_, writes=False, name=name)
        assert place is not None
        paths = {"items": "owner.boss", "notes": "item.owner", "people": "boss.boss"}[name]
        first, second = paths.split(".")
        middle = self._place(place.process, place.tenant, "items" if name == "notes" else "people")
        last = self._place(place.process, place.tenant, "people")
        for record in place.api.where().include(paths):
            for path, value, among in (
                (first, getattr(record, first), middle),
                (paths, getattr(record.follow(first), second, None), last),
            ):
                found = record.follow(path)
                key = value if isinstance(value, tuple) else (value,)
                assert (found and held(found)) == among.rows.get(key), path

    def begin_pages(self, random_: Random) -> None:
        """The first page of a query that is gone on with later, in whatever process."""
        place = self._choose(random_, writes=False)
        assert place is not None
        asked = Asked.draw(random_, place.table)
        if asked.order is not None:
            self._read_page(random_, place, asked, None)

    def next_page(self, random_: Random) -> None:
        if not self.pages:
            return
        pages = self.pages.pop(random_.randrange(len(self.pages)))
        for process in random_.sample(self.processes, len(self.processes)):
            if pages.tenant not in process.tenants:
                continue
            world = self._world(process)
            schema = world.chain_of(pages.tenant).schema_at(shape_of(process, world, pages.tenant))
            table = schema.table_numbered(pages.asked.table)
            if table is not None and pages.asked.fields() <= names_of(table).keys():
                place = self._place(process, pages.tenant, table.name)
                self._read_page(random_, place, pages.asked, pages)
                return

    def _read_page(self, random_: Random, place: Place, asked: Asked, before: Pages | None) -> None:
        size = random_.randint(1, 3)
        places = asked.places(place.table, place.rows)
        if before is not None:
            places = [found for found in places if before.place < found[0]]
        query = asked.make(place.api, place.table)
        page = query.page(size, None if before is None else before.cursor)
        assert [held(record) for record in page] == [row for _, row in places[:size]], query
        assert (page.cursor is None) == (len(places) <= size)
        if page.cursor is not None:
            made = self.world.chain.end
            self.pages.append(Pages(place.tenant, asked, page.cursor, places[size - 1][0], made))

    @rule(random_=RANDOM)
    def look(self, random_: Random) -> None:
        self._look(random_.choice(self.processes))

    def _look(self, process: Process) -> None:
        """All that a process sees, by keys and by an index."""
        for tenant in process.tenants:
            for name in ("people", "items", "notes"):
                place = self._place(process, tenant, name)
                rows = [row for _, row in sorted(place.rows.items())]
                found = [held(record) for record in place.api.scan()]
                assert found == rows, (tenant, name, place.at, found, rows)
                assert place.api.count() == len(rows)
                if name == "items":
                    by_owner = [r.owner for r in place.api.order_by("owner")]
                    assert by_owner == sorted((r["owner"] for r in rows), key=none_first)

    def look_at_all(self) -> None:
        for process in self.processes:
            self._look(process)
            for db in process.tenants.values():
                for report in db.admin.verify():
                    assert report.problems == ()

    # Changes of the schema, and jobs

    @rule(random_=RANDOM)
    @precondition(lambda self: not self.blocks)
    def change(self, random_: Random) -> None:
        way = random_.choice(["migrate", "migrate", "rollback", "jobs", "jobs"])
        if way == "jobs":
            self.run_jobs(random_)
        elif way == "forget" and self.world.chain.end > 1:
            self.forget()
        else:
            self.migrate(random_)

    def migrate(self, random_: Random) -> None:
        world = self.world
        number = world.chain.end + 1
        schema = world.chain.schema_at(world.chain.end)
        items, people = schema.table_named("items"), schema.table_named("people")
        assert items is not None
        assert people is not None
        operation = random_.choice(list_migrations(items, people))
        for process in list(self.processes):
            if process.at is not None and number - process.at > WINDOW:
                if process is self.reader:
                    self._leave_snapshot()
                self._close(process)
        (self.migrations / f"{number:04d}_drawn.yaml").write_text(document(operation))
        storage = connect(self.address)
        try:
            migrate_up(storage, DEFAULT_TENANT, self.migrations, MigrationChoice(again=True))
        finally:
            storage.close()
        event(operation.partition(":")[0])
        if len(self.processes) == PROCESSES_MAX:
            idle = [p for p in self.processes if p is not self.reader]
            self._close(random_.choice(idle))
        process = self._open()
        world.change_chain(process.db._catalog.chain)
        assert world.chain.end == number
        self._settle("default")
        if random_.random() < 0.5:
            self.join(process, "acme")

    def forget(self) -> None:
        world = self.world
        end = world.chain.end
        for process in list(self.processes):
            if process.files_end == end:
                if process is self.reader:
                    self._leave_snapshot()
                self._close(process)  # its files contain the migration
        storage = connect(self.address)
        try:
            assert roll_back(storage).migrations[0].number == end
        finally:
            storage.close()
        for path in self.migrations.glob(f"{end:04d}_*"):
            path.unlink()
        for tenant in TENANTS:
            if world.positions[tenant] == end:
                world.models[tenant].forget(world.chain)
                world.positions[tenant] = end - 1
        world.change_chain(world.chain.up_to(end - 1))
        self.pages = [pages for pages in self.pages if pages.made_at < end]
        self._open()

    def run_jobs(self, random_: Random) -> None:
        found = [p for p in self.processes if p is not self.reader]
        if not found:
            return
        process = random_.choice(found)
        tenant = random_.choice(sorted(process.tenants))
        process.tenants[tenant].admin.run_jobs()
        self.world.models[tenant].convert(self.world.chain_of(tenant))


def key_names(table: TableSchema) -> list[str]:
    return [f.name for f in table.key_fields]


def completed(table: TableSchema, values: Row, found: Row | None) -> Row:
    """A whole record: a key that was generated, or would have been, and the defaults."""
    row = {}
    for of in table.fields:
        if of.name in values:
            row[of.name] = values[of.name]
        elif of.generated:
            row[of.name] = UUID(int=1) if found is None else found[of.name]
        else:
            row[of.name] = of.default if of.has_constant else None
    return row


def delete_all(world: World, place: Place, keys: Iterable[Key]) -> tuple[int, Wrong]:
    there = [key for key in dict.fromkeys(keys) if key in place.rows]
    is_free = world.delete(place.tenant, place.table.number, there)
    return len(there), set() if is_free else {ReferenceViolation}


def reordered(meant: list[Row], found: list[Row]) -> list[Row]:
    """The same records in the order in which they were found, where none is promised."""

    def values(row: Row) -> str:  # a model's row may have its fields in another order
        return repr(sorted(row.items()))

    places = {values(row): at for at, row in enumerate(found)}
    return sorted(meant, key=lambda row: places.get(values(row), -1))


def none_first(value: Any) -> tuple[bool, Any]:
    return value is not None, value


def check_ends(query: Any, name: str, rows: list[Row]) -> None:
    values = [row[name] for row in rows if row[name] is not None]
    assert query.min(name) == min(values, default=None), (query, name)
    assert query.max(name) == max(values, default=None), (query, name)
    if name in ("size", "extent", "number"):
        assert query.sum(name) == sum(values)


PROGRAMS = {"sqlite": 6, "postgresql": 3}
PROGRAMS_LONG = {"sqlite": 200, "postgresql": 60}
STEPS, STEPS_LONG = 25, 40


def test_every_program_finds_what_the_model_says(
    engine: str, request: pytest.FixtureRequest
) -> None:
    server = request.getfixturevalue("postgres") if engine == "postgresql" else None
    programs = PROGRAMS_LONG if forms.is_long else PROGRAMS
    run_state_machine_as_test(
        lambda: Program(server),
        settings=settings(
            max_examples=programs[engine],
            stateful_step_count=STEPS_LONG if forms.is_long else STEPS,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
