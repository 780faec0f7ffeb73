"""What a storage engine provides: connections, the kinds of transactions, and translated errors.

Connections come from SQLAlchemy's pool, in the driver's autocommit mode; transactions are begun and
ended by statements of our own, since each kind begins differently (rule 7):

    READ      one snapshot, read-only
    WRITE     an application's: takes the gate shared before its first query
    ASIDE     the same for what is not worth waiting for: gives up where it would wait (rule 16)
    TASK      a range task's: the gate shared, and each statement sees what is committed (rule 17)
    CHANGE    a change of state: takes the gate exclusively, briefly
    CATALOG   small writes to the catalog that concern no record, such as a heartbeat

Each thread holds one connection. The half dozen statements of the hot path run on its driver
cursor; all others go through SQLAlchemy Core on the same connection.
"""

from __future__ import annotations

import enum
import itertools
import logging
import os
import threading
import time
import uuid
import weakref
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, ClassVar, Final

import sqlalchemy
from sqlalchemy.engine import URL
from sqlalchemy.engine.cursor import FullyBufferedCursorFetchStrategy

from zapdb.errors import CommitUnknown, StorageError, TransactionConflict, UsageError, ZapdbError
from zapdb.limits import GATE_WAIT_LOGGED_SECONDS
from zapdb.logs import log_event
from zapdb.metrics import CONFLICTS, GATE_WAITS

if TYPE_CHECKING:
    from zapdb.storage.changes import PendingChanges

logger = logging.getLogger("zapdb.storage")

Rows = sqlalchemy.CursorResult[*tuple[Any, ...]]
"""What a statement of SQLAlchemy Core gives."""


class Mode(enum.Enum):
    """The kinds of transactions."""

    READ = "read"
    WRITE = "write"
    ASIDE = "aside"
    TASK = "task"
    CHANGE = "change"
    CATALOG = "catalog"


GATES: Final = {
    Mode.WRITE: "shared",
    Mode.ASIDE: "shared",
    Mode.TASK: "shared",
    Mode.CHANGE: "exclusive",
}
"""How the kinds of transactions take the gate; those that aren't here don't."""


class DuplicateKey(Exception):
    """A uniqueness constraint refused a row; callers raise what that means."""


class MissingTable(StorageError):
    """A statement named a table that is not there: the view that it came from is out of date."""


_NUMBERS: Final = itertools.count(1)


class Connection:
    """One thread's connection: SQLAlchemy's, and the driver's beneath it."""

    def __init__(self, storage: Storage, core: sqlalchemy.Connection) -> None:
        self.storage = storage
        self.core = core
        self.driver: Any = core.connection.dbapi_connection
        self.thread = threading.current_thread()
        self.is_abandoned = False
        """Whether its thread ended inside a transaction, which was undone."""
        self.is_doomed = False
        """Whether a part of its transaction could not be undone, so that all of it must be."""
        self._executor = storage.executor(self.driver)
        self.mode: Mode | None = None
        self.number = 0
        """Tells its transaction, or the last one, from all others of this process."""
        self.has_turn = False
        """Whether it is this one's turn to write, where the engine has a queue of writers."""
        self.pending: PendingChanges | None = None
        """What the transaction did, for the history log: written at its end."""

    def fetch_one(self, sql: str, parameters: Sequence[Any] = ()) -> Any:
        """The first row of a statement of the hot path, or None."""
        try:
            return self._executor.execute(sql, parameters).fetchone()
        except Exception as error:
            raise self._meaning(error) from error

    def fetch_all(self, sql: str, parameters: Sequence[Any] = ()) -> list[Any]:
        try:
            rows: list[Any] = self._executor.execute(sql, parameters).fetchall()
        except Exception as error:
            raise self._meaning(error) from error
        return rows

    def run(self, sql: str, parameters: Sequence[Any] = ()) -> int:
        """Execute; return how many rows it touched."""
        try:
            count: int = self._executor.execute(sql, parameters).rowcount
        except Exception as error:
            raise self._meaning(error) from error
        return count

    def run_many(self, sql: str, rows: Iterable[Sequence[Any]]) -> None:
        try:
            self.driver.cursor().executemany(sql, rows)
        except Exception as error:
            raise self._meaning(error) from error

    def core_execute(self, statement: sqlalchemy.Executable) -> Rows:
        """Execute a statement of SQLAlchemy Core; its rows are fetched already."""
        try:
            result = self.core.execute(statement)
            if result.returns_rows and result.cursor is not None:
                rows = result.cursor.fetchall()
                result.cursor_strategy = FullyBufferedCursorFetchStrategy(
                    result.cursor, initial_buffer=rows
                )
        except sqlalchemy.exc.DBAPIError as error:
            raise self._meaning(error.orig or error) from error
        except Exception as error:  # while fetching, or after a connection was lost
            raise self._meaning(error) from error
        assert isinstance(result, sqlalchemy.CursorResult)
        return result

    def _meaning(self, error: BaseException) -> Exception:
        # A connection that was lost is of no use to the next statement. Inside a transaction it
        # stays until that ends: what follows in it must not succeed on another connection.
        if self.mode is None and self.storage.is_lost(self.driver):
            self.storage.discard_connection(self)
        return self.storage.translate(error)


class Storage(ABC):
    """A database as zapdb uses it; safe to share between threads."""

    dialect: ClassVar[str]
    mark: ClassVar[str]
    """The driver's placeholder of a bound parameter."""

    def __init__(self, url: URL, engine: sqlalchemy.Engine, *, read_only: bool) -> None:
        self.url = url
        self.engine = engine
        self.read_only = read_only
        # SQLAlchemy would end transactions that it did not begin: on SQLite its commit and rollback
        # act even in autocommit mode. Beginning and ending is done here alone.
        engine.dialect.do_commit = _do_nothing  # type: ignore[assignment]  # no connection is looked at
        engine.dialect.do_rollback = _do_nothing  # type: ignore[assignment]  # the same
        self.session = uuid.uuid4().hex[:12]
        """Names what this storage does to others: it is the id of the node that is registered."""
        self._local = threading.local()
        self._connections: dict[threading.Thread, Connection] = {}
        self._lock = threading.Lock()
        self._closed = False
        self._process = os.getpid()
        self._left_behind: Any = None
        OPENED.add(self)

    @property
    def shown_url(self) -> str:
        """The address without its password."""
        return self.url.render_as_string(hide_password=True)

    @property
    def is_closed(self) -> bool:
        return self._closed

    @property
    def is_in_transaction(self) -> bool:
        """Whether this thread has a transaction or a snapshot open."""
        known: Connection | None = getattr(self._local, "connection", None)
        return known is not None and known.mode is not None

    @property
    def is_inherited(self) -> bool:
        """Whether this process was forked from the one that opened the database."""
        return self._left_behind is not None

    def refuse_use(self) -> None:
        """Raises `UsageError` where the database is closed, or another process opened it."""
        if self.is_inherited:
            raise UsageError(
                "the database was opened by the process that this one was forked from",
                database=self.shown_url,
                opened_by=self._process,
                process=os.getpid(),
                hint="open it again in this process, since connections can't be shared; servers "
                "that fork have a hook for it, and multiprocessing can start with 'spawn'",
            )
        if self._closed:
            raise UsageError(
                "the database is closed", database=self.shown_url, hint="open it again"
            )

    def refuse_write(self) -> None:
        """Raises `UsageError` where the database was opened read-only."""
        if self.read_only:
            raise UsageError(
                "the database was opened read-only",
                database=self.shown_url,
                hint="open it without read_only",
            )

    def leave_behind(self) -> None:
        """In a process that was just forked: let go of all connections, which are the parent's.

        They are kept and never touched: to close one here would end the session of the parent.
        """
        if self._left_behind is None:
            self._left_behind = (self._local, self._connections, self.engine)
        self._local, self._connections, self._lock = threading.local(), {}, threading.Lock()

    def connection(self) -> Connection:
        """This thread's connection."""
        known: Connection | None = getattr(self._local, "connection", None)
        if known is None or known.core.closed:
            self.refuse_use()
            self.collect_connections()
            known = self._connect()
            self._local.connection = known
            with self._lock:
                self._connections[threading.current_thread()] = known
        return known

    def _connect(self) -> Connection:
        try:
            core = self.engine.connect()
        except sqlalchemy.exc.DBAPIError as error:
            raise self.translate(error.orig or error) from error
        try:
            return Connection(self, core)
        except Exception as error:
            core.invalidate()
            core.close()
            raise self.translate(error) from error

    def collect_connections(self) -> None:
        """Give the connections of threads that ended back to the pool; undo what they left open."""
        with self._lock:
            ended = [thread for thread in self._connections if not thread.is_alive()]
            connections = [self._connections.pop(thread) for thread in ended]
        for connection in connections:
            if connection.mode is None:
                connection.core.close()
                continue
            connection.mode, connection.is_abandoned = None, True
            self._throw_away(connection)
            self.ended(connection)

    def discard_connection(self, connection: Connection) -> None:
        """Throw a connection away, transaction and all."""
        if getattr(self._local, "connection", None) is connection:
            self._forget_connection()
        self._throw_away(connection)

    def _throw_away(self, connection: Connection) -> None:
        if not connection.core.closed:
            connection.core.invalidate()
            connection.core.close()

    def release_connection(self) -> None:
        """Give this thread's connection back to the pool; a thread that ends calls it."""
        known: Connection | None = getattr(self._local, "connection", None)
        if known is not None and known.mode is None:
            self._forget_connection()
            known.core.close()

    def _forget_connection(self) -> Connection | None:
        known: Connection | None = self._local.__dict__.pop("connection", None)
        with self._lock:
            self._connections.pop(threading.current_thread(), None)
        return known

    def close(self) -> None:
        """Close every thread's connection and the pool; what is in a transaction is undone."""
        self._closed = True
        if self.is_inherited:
            return
        with self._lock:
            connections, self._connections = [*self._connections.values()], {}
        for connection in connections:
            connection.core.close()
        self.engine.dispose()

    @contextmanager
    def transaction(self, mode: Mode, *, alone: bool = False) -> Iterator[Connection]:
        """A transaction of this thread: committed at the end, rolled back on an exception.

        A WRITE that is `alone` has no other writer beside it; raises `TransactionConflict` where
        those that there are do not end soon.
        """
        connection = self.connection()
        if connection.mode is not None:
            raise UsageError(
                "this thread is in a transaction already",
                hint="finish it first; a change of state can't run inside a transaction",
            )
        if mode is not Mode.READ:
            self.refuse_write()
        try:
            try:
                self._begin_measured(connection, mode, alone=alone)
                yield from self._within(connection, mode)
            finally:
                self.ended(connection)
        except TransactionConflict:
            CONFLICTS.add(mode.value)
            raise

    def _within(self, connection: Connection, mode: Mode) -> Iterator[Connection]:
        """A transaction that was begun, to its end."""
        connection.mode, connection.is_doomed = mode, False
        connection.number = next(_NUMBERS)
        began = time.monotonic()
        try:
            yield connection
            self.refuse_use()
            self._refuse_other_thread(connection)
            self._refuse_doomed(connection)
            if connection.pending is not None:
                connection.pending.flush(connection)
                connection.pending = None
            self.before_commit(connection, time.monotonic() - began)
        except BaseException:
            connection.mode = connection.pending = None
            if not (self.is_inherited or connection.is_abandoned):
                self._roll_back(connection)
            raise
        connection.mode = None
        self._commit(connection)

    def _refuse_other_thread(self, connection: Connection) -> None:
        if connection.thread is not threading.current_thread():
            raise UsageError(
                "a transaction is left by another thread than the one that began it",
                database=self.shown_url,
                hint="it was undone; enter and leave the with block in one thread, or give the "
                "work to db.run(function)",
            )

    @contextmanager
    def savepoint(self, connection: Connection) -> Iterator[None]:
        """Part of a transaction: undone on an exception, while the rest of it may go on."""
        pending = connection.pending
        self._run_or_doom(connection, "SAVEPOINT zapdb")
        if pending is not None:
            pending.begin_savepoint()
        try:
            yield
            self.refuse_use()
        except BaseException:
            if pending is not None:
                pending.roll_back_savepoint()
            else:
                connection.pending = None  # all of it was done since
            if not self.is_inherited:
                with suppress(ZapdbError):  # what the block raised is what is told
                    self._run_or_doom(connection, "ROLLBACK TO SAVEPOINT zapdb")
                    self._run_or_doom(connection, "RELEASE SAVEPOINT zapdb")
            raise
        self._run_or_doom(connection, "RELEASE SAVEPOINT zapdb")
        if pending is not None:
            pending.release_savepoint(connection)

    def _run_or_doom(self, connection: Connection, sql: str) -> None:
        """Run a statement about a savepoint. Where it fails it is not known how many there are, and
        what the next one would undo: the transaction must not be committed."""
        try:
            connection.run(sql)
        except BaseException:
            connection.is_doomed = True
            raise

    def _refuse_doomed(self, connection: Connection) -> None:
        if connection.is_doomed:
            raise TransactionConflict(
                "a part of the transaction could not be undone, so all of it is",
                database=self.shown_url,
                hint="the database reported an error meanwhile; nothing was written; run it again",
            )

    def _begin_measured(self, connection: Connection, mode: Mode, *, alone: bool) -> None:
        gate = "exclusive" if alone else GATES.get(mode)
        if gate is None:
            self._begin(connection, mode, alone=alone)
            return
        started = time.monotonic()
        try:
            self._begin(connection, mode, alone=alone)
        finally:
            seconds = time.monotonic() - started
            GATE_WAITS.observe(seconds, gate)
            if seconds > GATE_WAIT_LOGGED_SECONDS:
                log_event(
                    logger,
                    "gate.waited",
                    "a transaction waited long for the gate",
                    level=logging.WARNING,
                    database=self.shown_url,
                    mode=mode.value,
                    seconds=round(seconds, 3),
                )

    def _begin(self, connection: Connection, mode: Mode, *, alone: bool) -> None:
        try:
            self.begin(connection, mode, alone=alone)
        except ZapdbError:
            self._roll_back(connection)
            raise
        except Exception as error:
            self._roll_back(connection)
            raise self.translate(error) from error
        except BaseException:
            self._roll_back(connection)
            raise

    def _roll_back(self, connection: Connection) -> None:
        try:
            self.roll_back(connection)
        except Exception:  # the connection is gone, and with it the transaction
            self.discard_connection(connection)

    def _commit(self, connection: Connection) -> None:
        try:
            self.commit(connection)
        except Exception as error:
            translated = self.translate(error)
            if isinstance(translated, TransactionConflict):
                self._roll_back(connection)
                raise translated from error
            self.discard_connection(connection)
            raise CommitUnknown(
                "COMMIT reported an error, so it is not known whether it took effect",
                database=self.shown_url,
                cause=error,
                hint="look whether the change is there before you repeat it; with token=True, "
                "db.run and db.transaction find out by themselves",
            ) from error
        except BaseException:
            self.discard_connection(connection)
            raise

    def now_us(self, connection: Connection) -> int:
        """Microseconds since 1970-01-01 UTC by the database's clock."""
        (now,) = connection.fetch_one(self.clock_sql)
        return int(now)

    clock_sql: ClassVar[str]

    @abstractmethod
    def begin(self, connection: Connection, mode: Mode, *, alone: bool) -> None: ...

    def ended(self, connection: Connection) -> None:  # noqa: B027 - see prepare
        """After a transaction that was to begin, whatever became of it; may be called again."""

    def before_commit(self, connection: Connection, seconds: float) -> None:  # noqa: B027 - see prepare
        """The end of a transaction that took so long, inside it."""

    def commit(self, connection: Connection) -> None:
        self.execute(connection.driver, "COMMIT", ())

    @abstractmethod
    def roll_back(self, connection: Connection) -> None: ...

    @abstractmethod
    def is_lost(self, driver: Any) -> bool:
        """Whether the driver's connection can't be used any more."""

    @abstractmethod
    def executor(self, driver: Any) -> Any:
        """What runs the statements of the hot path on the driver's connection, again and again.

        Its `execute` returns a cursor, whose rows are fetched before the next statement.
        """

    def execute(self, driver: Any, sql: str, parameters: Sequence[Any]) -> Any:
        """Run a single statement on the driver's connection; returns its cursor."""
        return self.executor(driver).execute(sql, parameters)

    @abstractmethod
    def translate(self, error: BaseException) -> Exception:
        """The error that a driver's error means to zapdb."""

    def is_absent(self) -> bool:
        """Whether there is no database yet, and connecting would make one."""
        return False

    def prepare(self) -> None:  # noqa: B027 - most engines have nothing to prepare
        """Outside of transactions: settings that stay with a database that is zapdb's."""

    def check_capabilities(self, connection: Connection) -> None:  # noqa: B027 - the same
        """Before the layout is created: whether the server has what is in use (rule 33)."""

    def free_gate(self) -> None:  # noqa: B027 - the same
        """End the sessions of others that hold the gate and are gone (rule 7)."""

    @abstractmethod
    def table_names(self, connection: Connection) -> list[str]:
        """The tables and views of the schema in use."""

    @abstractmethod
    def lock_layout(self, connection: Connection) -> None:
        """Inside a CATALOG transaction: keep others from creating the layout meanwhile."""

    # Statements that differ between the engines

    @abstractmethod
    def create_record_table_sql(self, table: str) -> str: ...

    @abstractmethod
    def create_index_table_sql(self, table: str, *, unique: bool) -> str:
        """Where `unique`, no two entries have one key: the database sees to it (rule 25)."""

    @abstractmethod
    def insert_rows(
        self, connection: Connection, table: str, columns: str, tenant: int, rows: Sequence[Any]
    ) -> None:
        """Insert pairs of bytes into the two `columns`; raises `DuplicateKey`."""

    @abstractmethod
    def insert_entries_if_absent(
        self, connection: Connection, table: str, tenant: int, rows: Sequence[Any]
    ) -> int:
        """Insert (key, record) pairs into an index table where they are not; return how many.

        Of a unique index: where the keys are not, whatever records they are of.
        """

    @abstractmethod
    def lock_records(
        self,
        connection: Connection,
        table: str,
        condition: str,
        parameters: Sequence[Any],
        limit: int,
        *,
        skip_locked: bool,
    ) -> list[Any]:
        """(key, value) rows in key order, locked until the end of the transaction."""

    @abstractmethod
    def set_values(
        self, connection: Connection, table: str, tenant: int, rows: Sequence[Any]
    ) -> int:
        """Set the values of records that this transaction has locked, by (key, value) rows; return
        how many there were."""

    @abstractmethod
    def key_slice_sql(self, table: str) -> str:
        """Every n-th key of a tenant, for (tenant, n): the bounds of ranges."""


OPENED: Final[weakref.WeakSet[Storage]] = weakref.WeakSet()
"""The storages of this process, for a fork of it."""


def _leave_behind() -> None:
    for storage in list(OPENED):
        storage.leave_behind()


if hasattr(os, "register_at_fork"):  # not on Windows, which can't fork
    os.register_at_fork(after_in_child=_leave_behind)


def index_columns(*, unique: bool) -> str:
    """The columns by which the entries of an index are told apart."""
    return "tenant, key" if unique else "tenant, key, record"


def _do_nothing(_driver: object) -> None:
    """In the place of SQLAlchemy's commit and rollback."""


def unexpected(error: BaseException) -> StorageError:
    """A driver's error that zapdb gives no meaning of its own."""
    detail = str(error).strip().splitlines()
    return StorageError(
        "the database reported an error",
        error=type(error).__name__,
        detail=detail[0] if detail else "",
    )
