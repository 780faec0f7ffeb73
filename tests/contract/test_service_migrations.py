"""Migrations over a service say and do the same as against the database, with files that travel."""

from __future__ import annotations

import asyncio
import os
import re
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import pytest

import zapdb
import zapdb.aio
from tests.cli.program import ADD_AGE, INDEX_AGE, PEOPLE, SPLIT_NAME, Result, run_here
from tests.contract.test_service_commands import run_well, settle
from tests.services import served, serving_process
from tests.support import PostgresServer, wait_until
from tests.unit.activation.test_sent_files import BOMB
from zapdb.activation.up import CHAIN_LEASE
from zapdb.catalog.cluster.leases import read_lease
from zapdb.control.migrations.applying import Applied, Up, UpBegun, UpEvent, up
from zapdb.control.migrations.comparing import check
from zapdb.control.migrations.planning import Plan
from zapdb.control.migrations.rolling_back import Rollback, RollbackPlan
from zapdb.errors import ActivationPending, ConcurrencyError, NotProven
from zapdb.migrations import SentDirectory, SentFile
from zapdb.service.methods import BY_FUNCTION, IDEMPOTENCY_KEY

LOSSY = SPLIT_NAME.replace(
    "      reversibility: lossy\n      because: a single-word name gains a blank\n", ""
)
NO_WAY_BACK = """\
zapdb: 1
summary: Less
changes:
  - drop_field: {table: people, field: fax}
rollback: inferred
"""
DROP_TABLE = """\
zapdb: 1
summary: None
changes:
  - drop_table: {table: people, records: archive}
rollback: inferred
"""
ALL = {
    "0001_people.yaml": PEOPLE,
    "0002_add_age.yaml": ADD_AGE,
    "0003_index_age.yaml": INDEX_AGE,
    "0004_split_name.yaml": SPLIT_NAME,
}
STORED = dict(list(ALL.items())[:2])
DIRECTORIES: dict[str, dict[str, str]] = {
    "pending": ALL,
    "stored": STORED,
    "first": dict(list(ALL.items())[:1]),
    "commented": STORED | {"0002_add_age.yaml": "# a comment\n" + ADD_AGE},
    "conflict": ALL | {"0002_add_age.yaml": ADD_AGE.replace("7", "8")},
    "renamed": ALL | {"0002_add_age.yaml": ADD_AGE.replace("name: age", "name: old")},
    "invalid": STORED | {"0003_x.yaml": "zapdb: 1\nchanges: []\nsummry: x\n"},
    "not exhaustive": STORED | {"0003_less.yaml": NO_WAY_BACK},
    "not proven": STORED | {"0003_split.yaml": LOSSY},
    "aliases": STORED | {"0003_bomb.yaml": BOMB},
    "a gap": STORED | {"0004_split_name.yaml": SPLIT_NAME},
    "a stranger": STORED | {"more.yaml": SPLIT_NAME},
    "empty": {},
}


@dataclass(frozen=True)
class Place:
    """A database with two migrations and two tenants, the service over it, and directories."""

    address: str
    service: str
    directories: Path

    def both(self, *command: str) -> tuple[Result, Result]:
        here = run_here([*command, "-d", self.address])
        return settle(here), settle(run_here([*command, "-d", self.service]))


@pytest.fixture(scope="module")
def places() -> Iterator[tuple[dict[object, Place], ExitStack]]:
    with ExitStack() as ended:
        yield {}, ended


@pytest.fixture
def place(
    engine: str,
    request: pytest.FixtureRequest,
    places: tuple[dict[object, Place], ExitStack],
    tmp_path_factory: pytest.TempPathFactory,
) -> Place:
    known, ended = places
    server: PostgresServer | None = None
    if engine == "postgresql":
        server = request.getfixturevalue("postgres")
    if server not in known:
        root = tmp_path_factory.mktemp("served")
        address = f"sqlite:///{root / 'test.db'}"
        if server is not None:
            address = ended.enter_context(server.fresh_database(server.prepared))
        for name, files in DIRECTORIES.items():
            write(root / name, files)
        write_rest(root / "pending", root / "rest")
        run_well("migrate", "up", "-d", address, "-m", str(root / "first"))
        run_well("tenant", "create", "behind", "-d", address)
        run_well("migrate", "up", "-d", address, "-m", str(root / "stored"))
        at, _ = ended.enter_context(serving_process(address))
        known[server] = Place(address, f"grpc://{at}", root)
    return known[server]


def write(directory: Path, files: dict[str, str]) -> Path:
    directory.mkdir(exist_ok=True)
    for name, text in files.items():
        (directory / name).write_text(text, encoding="utf-8")
    return directory


def write_rest(whole: Path, rest: Path) -> None:
    """The files after the second one, which the lock file names."""
    run_well("migrate", "check", "--write", "-m", str(whole))
    lines = (whole / "zapdb.lock").read_text(encoding="utf-8").splitlines(keepends=True)
    files = {name: text for name, text in ALL.items() if name > "0003"}
    write(rest, files | {"zapdb.lock": "".join(line for line in lines if "0001" not in line)})


COMMANDS = [
    ("check",),
    ("status",),
    ("status", "--all-tenants"),
    ("status", "--tenant", "behind"),
    ("diff",),
    ("plan",),
    ("plan", "--sample", "3", "--tenant", "behind"),
    ("rehearse", "--seed", "1"),
    ("rehearse", "--seed", "1", "--all", "--all-tenants"),
]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
@pytest.mark.parametrize("directory", [*DIRECTORIES, "rest", "missing"])
def test_the_same_is_said_of_the_same_files(
    place: Place, command: tuple[str, ...], directory: str
) -> None:
    for options in ((), ("--json",)):
        given = ("migrate", *command, "-m", str(place.directories / directory), *options)
        here, there = place.both(*given)
        assert there == here
        assert here.out or here.err


def make_odd(directory: Path, kind: str) -> None:
    """A stored migration, and something beside it that can't be read or has no right name."""
    write(directory, DIRECTORIES["stored"])
    match kind:
        case "bytes in a name":
            Path(os.fsdecode(os.fsencode(directory) + b"/0003_\xff.yaml")).write_text("")
        case "backslash":
            write(directory, {"0003_a\\b.yaml": "", "0004_c.yaml": ""})
        case "directory":
            (directory / "0003_next.yaml").mkdir()
        case "dangling link":
            (directory / "0003_next.yaml").symlink_to("nowhere")
        case "stored one":
            for path in directory.glob("0001*"):
                path.unlink()
                path.mkdir()
        case "lock":
            (directory / "zapdb.lock").mkdir()


@pytest.mark.parametrize(
    "kind", ["bytes in a name", "backslash", "directory", "dangling link", "stored one", "lock"]
)
def test_files_that_cannot_be_read_matter_to_those_who_read_them(place: Place, kind: str) -> None:
    directory = place.directories / f"odd {kind}"
    if not directory.exists():
        make_odd(directory, kind)
    for command in ("check", "status", "diff", "plan", "rehearse"):
        here, there = place.both("migrate", command, "-m", str(directory))
        assert there == here
        assert "Traceback" not in here.err
    statuses = {
        command: place.both("migrate", command, "-m", str(directory))[1].status
        for command in ("check", "status")
    }
    assert statuses["check"] == 1
    assert statuses["status"] == {"directory": 3, "dangling link": 3, "lock": 0}.get(kind, 1)


def test_a_directory_may_be_given_as_a_text(place: Place) -> None:
    directory = place.directories / "pending"
    with zapdb.connect(place.service) as client:
        found = client.migrations.status(directory)
        assert client.migrations.status(str(directory)) == found
        assert client.migrations.plan(str(directory)).migrations


# --- what changes something ----------------------------------------------------------------------

TIMES = re.compile(
    r'"(milliseconds|seconds|records_per_second|seq)": [0-9.]+|"id": "[^"]*"'
    r"|\b[0-9.]+ m?s\b|\([0-9,]+/s\)"
)


def plainly(result: Result) -> Result:
    return Result(result.status, TIMES.sub("…", result.out), TIMES.sub("…", result.err))


@dataclass
class Twins:
    """Two databases that are alike: one is changed by commands, the other through a service."""

    here: str
    there: str
    service: str
    root: Path

    def run(self, *command: str) -> Result:
        """What a command says of both; it says the same."""
        here, there = (
            plainly(settle(run_here([*command, "-d", given])))
            for given in (self.here, self.service)
        )
        assert there == here
        return here

    def directory(self, name: str) -> str:
        return str(write(self.root / name, DIRECTORIES[name]))

    def open(self, address: str, **options: Any) -> zapdb.Database:
        return zapdb.open(address, **options)


@pytest.fixture
def twins(engine: str, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Twins]:
    with ExitStack() as ended:
        addresses = [f"sqlite:///{tmp_path / name}.db" for name in ("here", "there")]
        if engine == "postgresql":
            server: PostgresServer = request.getfixturevalue("postgres")
            addresses = [
                ended.enter_context(server.fresh_database(server.prepared)) for _ in addresses
            ]
        first = write(tmp_path / "first", DIRECTORIES["first"])
        for address in addresses:
            run_well("migrate", "up", "-d", address, "-m", str(first))
            run_well("tenant", "create", "behind", "-d", address)
            with zapdb.open(address) as db:
                for number in range(20):
                    db.table("people").insert(id=number, name=f"Ada B{number}", fax="1")
        service = ended.enter_context(served(addresses[1]))
        yield Twins(addresses[0], addresses[1], f"grpc://{service.address}", tmp_path)


@pytest.mark.parametrize("options", [(), ("--json",)], ids=["text", "json"])
def test_going_up_and_back_says_and_does_the_same(twins: Twins, options: tuple[str, ...]) -> None:
    pending = ("-m", twins.directory("pending"), *options)
    assert twins.run("migrate", "up", "--to", "2", *pending).status == 0
    assert twins.run("migrate", "up", "--no-build", *pending).status == 0
    assert twins.run("migrate", "up", *pending).status == 0  # builds the index
    assert twins.run("migrate", "up", *pending).status == 0
    assert twins.run("migrate", "up", "--all-tenants", *pending).status == 0
    assert twins.run("migrate", "rollback", *options).status == 2  # nobody can be asked
    assert twins.run("migrate", "rollback", "--yes", *options).status == 0
    assert twins.run("migrate", "rollback", "--to", "1", "--yes", *options).status == 0
    assert twins.run("migrate", "rollback", "--to", "1", "--yes", *options).status == 0
    assert twins.run("migrate", "rollback", "--to", "7", "--yes", *options).status != 0
    assert twins.run("migrate", "status", "--all-tenants", *pending).status == 3
    assert twins.run("migrate", "up", *pending).status == 3  # it was rolled back
    twins.run("migrate", "up", "--again", *pending)
    for address in (twins.here, twins.there):
        with zapdb.open(address) as db:
            people = db.table("people")
            assert [(p.first, p.last, p.age) for p in people.limit(1)] == [("Ada", "B0", 7)]
            assert people.where(people.f.age == 7).count() == 20


@pytest.mark.parametrize("directory", [*DIRECTORIES, "missing"])
def test_what_is_refused_is_refused_alike(twins: Twins, directory: str) -> None:
    twins.run("migrate", "up", "-m", twins.directory("stored"))
    write(
        twins.root / directory, DIRECTORIES.get(directory, {})
    ) if directory != "missing" else None
    path = str(twins.root / directory)
    for options in ((), ("--json",)):
        twins.run("migrate", "up", "-m", path, *options)
        twins.run("migrate", "status", "-m", path, *options)


@pytest.mark.parametrize("options", [(), ("--json",)], ids=["text", "json"])
def test_files_that_begin_after_a_stored_migration_are_served_alike(
    twins: Twins, options: tuple[str, ...]
) -> None:
    """All commands, where the database lacks what is before them, has it, and has another one."""
    rest = twins.root / "rest"
    write_rest(Path(twins.directory("pending")), rest)
    files = ("-m", str(rest), *options)
    for command, status in (
        ("check", 1),
        ("status", 1),
        ("diff", 1),
        ("plan", 1),
        ("rehearse", 1),
        ("up", 1),
    ):
        assert twins.run("migrate", command, *files).status == status
    assert twins.run("migrate", "up", "-m", twins.directory("stored")).status == 0
    assert twins.run("migrate", "check", "--write", *files).status == 0
    for command, status in (("check", 0), ("status", 3), ("diff", 0), ("plan", 3)):
        assert twins.run("migrate", command, *files).status == status
    assert twins.run("migrate", "up", "--to", "3", *files).status == 0
    assert twins.run("migrate", "up", "--all-tenants", *files).status == 0
    assert twins.run("migrate", "rollback", "--yes", *options).status == 0
    assert twins.run("migrate", "rollback", "--to", "2", "--yes", *options).status == 0
    assert twins.run("migrate", "status", *files).status == 3
    lock = rest / "zapdb.lock"
    lock.write_text(lock.read_text(encoding="utf-8").replace("z1:", "z1:0", 1), encoding="utf-8")
    for command in ("check", "status", "diff", "plan", "rehearse", "up"):
        refused = twins.run("migrate", command, *files)
        assert refused.status == 1
        assert "begin after another migration" in refused.out + refused.err


def test_a_dry_run_changes_nothing(twins: Twins) -> None:
    directory = Path(twins.directory("pending"))
    with zapdb.connect(twins.service) as client:
        begun, plan = client.migrations.up(directory, dry_run=True)
        assert begun == UpBegun(("0002_add_age", "0003_index_age", "0004_split_name"))
        assert isinstance(plan, Plan)
        planned = client.migrations.plan(directory)
        assert plan.migrations == planned.migrations
        assert [t.converted for t in plan.tables] == [t.converted for t in planned.tables] == [20]
        (undone,) = client.migrations.rollback(dry_run=True)
        assert isinstance(undone, RollbackPlan)
        assert [step.label for step in undone.steps] == ["0001_people"]
        refused = client.migrations.up(Path(twins.directory("not proven")), dry_run=True)
        with pytest.raises(NotProven):
            list(refused)
        assert client.migrations.status(directory).pending == 3


def test_a_client_that_goes_away_leaves_nothing_half_done(twins: Twins) -> None:
    """It leaves while a migration waits for a process that lacks its file."""
    directory = twins.root / "drop"
    write(directory, DIRECTORIES["first"] | {"0002_none.yaml": DROP_TABLE})
    with (
        zapdb.open(twins.there, migrations=twins.root / "first"),
        zapdb.connect(twins.service) as client,
    ):
        events = client.migrations.up(directory, wait_seconds=600.0)
        assert next(events) == UpBegun(("0002_none",))
        stored = next(events)
        assert isinstance(stored, Applied)
        assert not stored.active
        events.close()
        left = client.migrations.status(directory)
        assert (left.position, left.pending) == (1, 1)
        with pytest.raises(ActivationPending):
            list(client.migrations.up(directory))
    with zapdb.connect(twins.service) as client:
        *_, done = client.migrations.up(directory)
        assert isinstance(done, Up)
        assert done.position == 2


def await_lease(twins: Twins) -> None:
    """Wait until the lease of the chain was given back: one that expires never is."""
    with zapdb.open(twins.there) as db:

        def is_free() -> bool:
            lease = read_lease(db._storage.connection(), CHAIN_LEASE)
            return lease is not None and lease.expires_at == 0

        wait_until(is_free, "the lease is given back")


def test_a_rollback_whose_client_left_is_finished_by_the_next_one(
    twins: Twins, monkeypatch: pytest.MonkeyPatch
) -> None:
    with zapdb.connect(twins.service) as client:
        list(client.migrations.up(Path(twins.directory("pending"))))
        events: Any = client.migrations.rollback()
        assert isinstance(next(events), RollbackPlan)
        events.close()
        await_lease(twins)
        *_, done = client.migrations.rollback(to=3)
        assert isinstance(done, Rollback)
        assert done.position == 3
    await_lease(twins)


def test_an_up_whose_client_left_is_taken_up_at_once(twins: Twins) -> None:
    """It leaves while a migration is stored, or while it waits for a process."""
    directory = twins.root / "drop"
    write(directory, DIRECTORIES["first"] | {"0002_none.yaml": DROP_TABLE})
    with (
        zapdb.open(twins.there, migrations=twins.root / "first"),
        zapdb.connect(twins.service) as client,
    ):
        for seconds in (0.0, 0.005, 0.02, 0.1, 0.3):
            events: Any = client.migrations.up(directory, wait_seconds=50.0)
            assert isinstance(next(events), UpBegun)
            time.sleep(seconds)
            events.close()
        await_lease(twins)
        with pytest.raises(ActivationPending):
            list(client.migrations.up(directory))


def test_a_client_sees_at_once_what_its_stream_has_changed(twins: Twins) -> None:
    """A look-up is answered from a cache of the catalog, which may be a second old."""
    with zapdb.connect(twins.service) as client:
        client.catalog.list_tables()
        list(client.migrations.up(Path(twins.directory("stored"))))
        assert client.catalog.list_tables().migration == "0002_add_age"
        list(client.migrations.rollback())
        assert client.catalog.list_tables().migration == "0001_people"


def test_tasks_have_the_same(twins: Twins) -> None:
    async def go_up() -> list[UpEvent]:
        async with zapdb.aio.connect(twins.service) as client:
            directory = Path(twins.directory("stored"))
            assert (await client.migrations.status(directory)).pending == 1
            events = [event async for event in client.migrations.up(directory)]
            assert (await client.catalog.list_tables()).migration == "0002_add_age"
            return events

    begun, *_, done = asyncio.run(go_up())
    assert begun == UpBegun(("0002_add_age",))
    assert isinstance(done, Up)


def test_two_that_go_up_at_once_do_it_once(twins: Twins) -> None:
    directory = Path(twins.directory("pending"))

    def go_up(number: int) -> Up:
        with zapdb.connect(twins.service) as client:
            *_, done = client.migrations.up(directory)
        assert isinstance(done, Up)
        return done

    with ThreadPoolExecutor(3) as pool:
        done = list(pool.map(go_up, range(3)))
    assert {one.position for one in done} == {4}
    assert sorted(len(one.applied) for one in done) == [0, 0, 3]


@pytest.mark.parametrize("options", [(), ("--json",)], ids=["text", "json"])
def test_a_rollback_is_rehearsed_alike(twins: Twins, options: tuple[str, ...]) -> None:
    for given in ((), ("--to", "0"), ("--to", "9"), ("--all-tenants",)):
        twins.run("migrate", "rehearse", "--rollback", *given, *options)
    twins.run("migrate", "up", "-m", twins.directory("stored"))
    assert twins.run("migrate", "rehearse", "--rollback", "--to", "0", *options).status == 1


def test_a_rollback_is_of_what_was_confirmed(twins: Twins) -> None:
    with zapdb.connect(twins.service) as client:
        list(client.migrations.up(Path(twins.directory("pending"))))
        with pytest.raises(ConcurrencyError, match="in the meantime"):
            list(client.migrations.rollback(digests=["z1:00"]))
        plan = next(iter(client.migrations.rollback(to=2, dry_run=True)))
        assert isinstance(plan, RollbackPlan)
        *_, done = client.migrations.rollback(to=2, digests=[plan.steps[0].digest])
        assert isinstance(done, Rollback)
        assert [step.label for step in done.rolled_back] == ["0004_split_name"]


def test_a_repeated_request_is_answered_as_before(twins: Twins) -> None:
    method = BY_FUNCTION[up]
    files = [SentFile(name, text.encode()) for name, text in DIRECTORIES["pending"].items()]
    arguments = {"directory": SentDirectory("m", tuple(files)), "to": None, "wait_seconds": 0.0}
    arguments |= dict.fromkeys(("all_tenants", "no_build", "dry_run", "again"), False)
    request = method.request.write(arguments)
    with grpc.insecure_channel(twins.service.removeprefix("grpc://")) as channel:
        call: Any = channel.stream_stream(
            method.path,
            request_serializer=method.request_class.SerializeToString,
            response_deserializer=method.answer_class.FromString,
        )
        key = ((IDEMPOTENCY_KEY, "once"),)
        *events, done = call(iter([request]), metadata=key)
        assert events
        run_well("migrate", "rollback", "--yes", "-d", twins.service)
        assert list(call(iter([request]), metadata=key)) == [done]
        request.to = 2
        with pytest.raises(grpc.RpcError) as caught:
            list(call(iter([request]), metadata=key))
        assert caught.value.code() == grpc.StatusCode.ALREADY_EXISTS


FILE = SentFile("0001_people.yaml", PEOPLE.encode())


@pytest.mark.parametrize(
    ("files", "status"),
    [
        ([[FILE], [FILE]], "INVALID_ARGUMENT"),
        ([[SentFile("../0001_people.yaml", b"")]], "INVALID_ARGUMENT"),
        ([[SentFile("/0001_people.yaml", b"")]], "INVALID_ARGUMENT"),
        ([[SentFile("a\\0001_people.yaml", b"")]], "INVALID_ARGUMENT"),
        ([[SentFile("0001_people.yaml\0.yaml", b"")]], "INVALID_ARGUMENT"),
        ([[SentFile("notes.txt", b"")]], "INVALID_ARGUMENT"),
        ([[SentFile(".hidden.yaml", b"")]], "INVALID_ARGUMENT"),
        ([[SentFile(f"{n:04d}_a.yaml", b"#" * 2**20)] for n in range(1, 70)], "RESOURCE_EXHAUSTED"),
    ],
    ids=[
        *("twice", "above", "absolute", "backslash", "a null", "no migration", "hidden"),
        "too much",
    ],
)
def test_files_that_no_directory_has_are_refused(
    place: Place, files: list[list[SentFile]], status: str
) -> None:
    method = BY_FUNCTION[check]
    with grpc.insecure_channel(place.service.removeprefix("grpc://")) as channel:
        call: Any = channel.stream_unary(
            method.path, request_serializer=method.request_class.SerializeToString
        )
        requests = [
            method.request.write({"directory": SentDirectory("m", tuple(part)), "with_lock": False})
            for part in files
        ]
        for request in requests[1:]:
            request.directory.path = ""
        with pytest.raises(grpc.RpcError) as caught:
            call(iter(requests))
        assert caught.value.code().name == status


def test_the_messages_after_the_first_have_files_alone(place: Place) -> None:
    method = BY_FUNCTION[check]
    with grpc.insecure_channel(place.service.removeprefix("grpc://")) as channel:
        call: Any = channel.stream_unary(
            method.path,
            request_serializer=method.request_class.SerializeToString,
            response_deserializer=method.answer_class.FromString,
        )
        first = method.request.write({"directory": SentDirectory("m", (FILE,)), "with_lock": False})
        more: Any = method.request_class(
            directory={"files": [{"name": "zapdb.lock", "content": b""}]}
        )
        (found,) = call(iter([first, more])).migrations
        assert (found.number, found.name) == (1, "people")
        for wrong in ({"tenant": "behind"}, {"with_lock": True}, {"min_seq": 1}):
            with pytest.raises(grpc.RpcError) as caught:
                call(iter([first, method.request_class(**wrong)]))
            assert caught.value.code() == grpc.StatusCode.INVALID_ARGUMENT
