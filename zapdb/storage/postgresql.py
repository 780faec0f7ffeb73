"""PostgreSQL: SERIALIZABLE for applications, READ COMMITTED for jobs.

The gate is a table lock on `zapdb_gate`, taken before the first query, so that the transaction's
snapshot is younger than every earlier schema change (rule 7, with the measurements). No triggers,
stored procedures or extensions are used.
"""

from __future__ import annotations

import logging
import os
import re
import select
import socket
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from functools import partial
from typing import Any, Final

import psycopg
import sqlalchemy
from psycopg import errors as driver_errors
from sqlalchemy.engine import URL

from zapdb.errors import (
    GateTimeout,
    StorageError,
    TransactionConflict,
    UnsupportedServer,
    UsageError,
    WritesRefused,
)
from zapdb.limits import (
    CANCEL_SECONDS,
    CATALOG_IDLE_SECONDS,
    CONNECT_SECONDS,
    EXCLUSIVE_LOCK_TIMEOUT_MS,
    GATE,
    GATE_LOCK_TIMEOUT_MS,
    POSTGRESQL_RELEASE_MIN,
    SERIAL_WAIT_SECONDS,
    WRITE_BACK_LOCK_TIMEOUT_MS,
)
from zapdb.storage.addresses import (
    attempt,
    check_options,
    hide_secrets,
    show_address,
    split_secrets,
)
from zapdb.storage.connection import Connection
from zapdb.storage.driver_errors import (
    DuplicateKey,
    MissingTable,
    connection_lost,
    disk_full,
    not_numbered,
    unknown_driver_error,
)
from zapdb.storage.engine import StorageEngine
from zapdb.storage.gate import END_SQL, SESSION_PREFIX, GateHolder, find_holders
from zapdb.storage.home_schema import SCHEMA, SCRATCH, HomeSchema, make_cursor_class, split_schema
from zapdb.storage.loop_deadlocks import find_blocking_transaction, refuse_waiting, watch_loop
from zapdb.storage.pipeline import draw_first_name
from zapdb.storage.pipelined import PipelineQueue
from zapdb.storage.postgresql_dialect import PostgreSQLDialect
from zapdb.storage.retries import retry
from zapdb.storage.sequences import DrawnInside
from zapdb.storage.transaction_modes import PIPELINED_MODES, TransactionMode

# The sessions of a PostgreSQL server: how they begin, and how it is found that they have ended.

PREPARED: Final = "prepared_statements"
"""An option of zapdb's in an address, `on` or `off`; libpq does not know it."""


def split_prepared(url: URL) -> tuple[URL, bool]:
    """Return the address for libpq, and whether statements may be prepared. They may not behind a
    pooler that gives each transaction another session. Raises `UsageError`."""
    said = url.query.get(PREPARED, "on")
    if said not in ("on", "off"):
        raise UsageError(
            "an option of the database address is neither on nor off",
            option=PREPARED,
            hint=f"write {PREPARED}=off for a pooler that shares sessions between transactions",
        )
    return url.difference_update_query([PREPARED]), said == "on"


def connecting(node_id: str, url: URL, secrets: Mapping[str, Any]) -> Callable[..., Any]:
    """Return what connects for an engine: names the session after its owner, so that the holder of
    the gate can be found in the server, and raises errors that show no secrets.

    It does not know the storage: SQLAlchemy's caches of queries keep dialects, which keep this.
    """

    def connect(dialect: Any, _record: object, given: Sequence[Any], options: Any) -> Any:
        options["application_name"] = f"{SESSION_PREFIX}{node_id}"
        # zapdb sends texts in UTF-8, whatever a database, a role or an environment says.
        options["client_encoding"] = "utf8"
        options.setdefault("connect_timeout", CONNECT_SECONDS)
        try:
            return dialect.connect(*given, **options)
        except (psycopg.Error, ValueError, TypeError, OverflowError) as error:
            kind = type(error) if isinstance(error, psycopg.Error) else psycopg.OperationalError
            refused = kind(hide_secrets(str(error), url, secrets))
        raise refused  # not chained: the first one's text and attributes may hold the password

    return connect


def end_session(driver: Any) -> None:
    """End a session from here: whichever thread waits for its server is woken."""
    with suppress(OSError, psycopg.Error), socket.socket(fileno=os.dup(driver.fileno())) as found:
        found.shutdown(socket.SHUT_RDWR)


def read_farewell(driver: Any) -> str | None:
    """Return the message of a server that ended the session; None if the session continues.

    A server sends nothing else to an idle client.
    """
    if driver.closed:
        return "the connection is closed"
    waiting = select.poll()
    waiting.register(driver.pgconn.socket, select.POLLIN)
    if not waiting.poll(0):
        return None
    farewell: list[str] = []

    def note(said: psycopg.errors.Diagnostic) -> None:  # it can be asked during the call only
        if said.severity_nonlocalized == "FATAL":
            farewell.append(said.message_primary or "")

    driver.add_notice_handler(note)
    try:
        driver.pgconn.consume_input()
        driver.pgconn.is_busy()  # a FATAL error that answers nothing is read as a notice
        driver.pgconn.consume_input()
    except psycopg.OperationalError as error:  # the end of the stream
        return str(error)
    finally:
        driver.remove_notice_handler(note)
    return farewell[0] if farewell else None


# SQLAlchemy's dialect, which asks a server nothing when it connects.
#
# SQLAlchemy asks the first connection of an engine five questions, one by one, with a transaction
# around the last: about as long as zapdb takes to open a database. The server has answered two of
# them when the session began, and zapdb needs no answer to the others.


def ask_nothing(engine: sqlalchemy.Engine) -> None:
    """Let an engine that has not connected yet use what the server says by itself."""
    dialect: Any = engine.dialect
    dialect._get_server_version_info = _find_version
    dialect._get_default_schema_name = _find_nothing
    dialect.get_default_isolation_level = _find_nothing  # zapdb begins transactions by itself
    dialect._set_backslash_escapes = _find_escapes


def _find_version(core: sqlalchemy.Connection) -> tuple[int, ...]:
    version = _driver(core).info.server_version
    return (version // 10_000, version % 10_000)


def _find_nothing(_connection: object) -> None:
    """In the way in which a dialect of SQLAlchemy says that it does not know."""
    raise NotImplementedError


def _find_escapes(core: sqlalchemy.Connection) -> None:
    found = _driver(core).info.parameter_status("standard_conforming_strings")
    dialect: Any = core.dialect
    dialect._backslash_escapes = found == "off"


def _driver(core: sqlalchemy.Connection) -> Any:
    return core.connection.dbapi_connection


logger = logging.getLogger("zapdb.gate")

BEGIN = {
    TransactionMode.READ: "BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY",
    TransactionMode.SERIAL: "BEGIN ISOLATION LEVEL SERIALIZABLE, READ ONLY, DEFERRABLE",
    TransactionMode.WRITE: "BEGIN ISOLATION LEVEL SERIALIZABLE",
    TransactionMode.NOWAIT: "BEGIN ISOLATION LEVEL READ COMMITTED",
    TransactionMode.JOB: "BEGIN ISOLATION LEVEL READ COMMITTED",
    TransactionMode.DDL: "BEGIN ISOLATION LEVEL READ COMMITTED",
    TransactionMode.CATALOG: "BEGIN ISOLATION LEVEL READ COMMITTED",
}
PLANNING = (
    "SET enable_bitmapscan = off",
    "SET enable_hashjoin = off",
    "SET enable_mergejoin = off",
    "SET jit = off",
)
"""Many records are read as a range of a primary key, in its order, page by page. If the statistics
are out of date, such as after loading a table, the planner expects only a few rows in the rest of a
range. It would then fetch all of them by a bitmap and sort them, once for each page. Joins look up
primary keys; for a batch or a page of rows, the planner would scan and hash the whole table."""
PLANNING_LOCAL = [setting.replace("SET", "SET LOCAL") for setting in PLANNING]
EXPORTED_SNAPSHOT = re.compile(r"[0-9A-F]+-[0-9A-F]+-[0-9]+")
READ_ONLY = ("SET default_transaction_read_only = on",)
GATE_SHARED = "LOCK TABLE zapdb_gate IN ROW SHARE MODE"
GATE_EXCLUSIVE = "LOCK TABLE zapdb_gate IN EXCLUSIVE MODE"
CAPABILITIES = {
    "LOCK TABLE": "LOCK TABLE {scratch} IN ROW SHARE MODE",
    "SKIP LOCKED": "SELECT * FROM {scratch} FOR UPDATE SKIP LOCKED",
    "pg_current_xact_id": "SELECT pg_current_xact_id()",
    "pg_terminate_backend": "SELECT pg_terminate_backend(0) WHERE false",
    "pg_locks": "SELECT 1 FROM pg_locks l JOIN pg_stat_activity a ON a.pid = l.pid LIMIT 1",
}
"""The server's features that zapdb uses (rule 33), each with a statement that fails without it."""
# What can be told without trying: the functions. LOCK TABLE and SKIP LOCKED are older than these.
_FUNCTIONS = ("pg_current_xact_id", "pg_terminate_backend")
FUNCTIONS_SQL = "SELECT " + ", ".join(f"to_regproc('pg_catalog.{name}')" for name in _FUNCTIONS)


class PostgreSQL(StorageEngine):
    def __init__(self, url: URL, *, read_only: bool = False) -> None:
        url, self.has_pipelines = split_prepared(url)
        url, given = split_schema(url)
        self.home = HomeSchema(given)
        known = {known.keyword.decode() for known in psycopg.pq.Conninfo.get_defaults()}
        check_options(url, known | {PREPARED, SCHEMA})
        url, self.secret_options = split_secrets(url)
        core = attempt(
            url,
            lambda: sqlalchemy.create_engine(
                url,
                isolation_level="AUTOCOMMIT",
                poolclass=sqlalchemy.QueuePool,
                pool_size=0,  # no limit: each thread keeps one, and open transactions are counted
                use_native_hstore=False,
                # The hot statements are few and always the same: prepare each at its second use.
                connect_args={
                    "prepare_threshold": 1 if self.has_pipelines else None,
                    "cursor_factory": make_cursor_class(self.home),
                    **self.secret_options,
                },
            ),
        )
        ask_nothing(core)
        super().__init__(url, core, PostgreSQLDialect(self.home), read_only=read_only)
        self._imported_snapshot: str | None = None
        self._is_prepared = self.has_pipelines
        self.has_pipelines = self.has_pipelines and psycopg.Pipeline.is_supported()
        connect = connecting(self.node_id, self.url, self.secret_options)
        sqlalchemy.event.listen(core, "do_connect", connect)
        sqlalchemy.event.listen(core, "connect", self._set_up)

    def full_address(self) -> str:
        options = dict(self.secret_options)
        if not self._is_prepared:
            options[PREPARED] = "off"
        if self.home.name is not None:
            options[SCHEMA] = self.home.name
        return self.url.update_query_dict(options).render_as_string(hide_password=False)

    @property
    def identity(self) -> str:
        """The database and its schema: the same for all users and all other options."""
        place = {name: self.url.query[name] for name in ("host", "port") if name in self.url.query}
        url = self.url.set(username=None, password=None, query=place)
        return f"{url.render_as_string()} {self.home.name}"

    @property
    def shown_url(self) -> str:
        """Also says in which schema it is, if that is not `public`."""
        if self.home.name in (None, "public"):
            return super().shown_url
        return show_address(self.url.update_query_dict({SCHEMA: self.home.name}))

    def export_snapshot(self, connection: Connection) -> str | None:
        (name,) = connection.fetch_one("SELECT pg_export_snapshot()")
        return str(name)

    def import_snapshot(self, name: str) -> None:
        if not EXPORTED_SNAPSHOT.fullmatch(name):
            raise UsageError("this is not the name of an exported snapshot", name=name)
        self._imported_snapshot = name

    def _set_up(self, driver: Any, _record: object) -> None:
        driver._prepared._prepared_idx = draw_first_name()  # psycopg has no setting for it
        if self._is_prepared:  # else a pooler gives the session to others next
            read_only = READ_ONLY if self.read_only else ()
            driver.execute("; ".join((*PLANNING, *read_only)))

    def prepare(self, connect: Callable[[], Connection]) -> None:
        found = connect().fetch_one(FUNCTIONS_SQL)
        for name, function in zip(_FUNCTIONS, found, strict=True):
            if function is None:
                raise self._lacking(name, "there is no such function")

    def check_capabilities(self, connection: Connection) -> None:
        """Try each feature, inside a transaction that has done nothing yet."""
        connection.run(f"CREATE TABLE {SCRATCH} (unused integer)")
        for name, sql in CAPABILITIES.items():
            try:
                connection.run(sql.format(scratch=SCRATCH))
            except StorageError as error:
                raise self._lacking(name, str(error.context.get("detail", error))) from error
        connection.run(f"DROP TABLE {SCRATCH}")

    def _lacking(self, name: str, detail: str) -> UnsupportedServer:
        return UnsupportedServer(
            "the server lacks a feature that zapdb needs",
            database=self.shown_url,
            feature=name,
            detail=detail,
            hint=f"use PostgreSQL {POSTGRESQL_RELEASE_MIN} or later, not a compatible server",
        )

    def begin(self, connection: Connection, mode: TransactionMode, *, exclusive: bool) -> None:
        driver = connection.driver
        if mode in PIPELINED_MODES and not exclusive and connection.queue is not None:
            self._begin_waiting(connection, connection.queue, mode)
            return
        if mode is TransactionMode.DDL:
            # Short attempts: while one waits, new writers wait behind it.
            retry(GATE, partial(self._take_gate_exclusively, connection), on=GateTimeout)
            return
        if mode is TransactionMode.SERIAL:
            self._begin_serial(driver)
            return
        statements = [BEGIN[mode]]
        if not self._is_prepared:
            statements += PLANNING_LOCAL
        if mode is TransactionMode.READ and self._imported_snapshot is not None:
            statements.append(f"SET TRANSACTION SNAPSHOT '{self._imported_snapshot}'")
        if mode is TransactionMode.NOWAIT:
            statements.append(f"SET LOCAL lock_timeout = {WRITE_BACK_LOCK_TIMEOUT_MS}")
        if mode is TransactionMode.CATALOG or exclusive:  # it keeps others from going on
            idle_ms = int(CATALOG_IDLE_SECONDS * 1000)
            statements.append(f"SET LOCAL idle_in_transaction_session_timeout = {idle_ms}")
        if exclusive:
            statements += [
                f"SET LOCAL lock_timeout = {EXCLUSIVE_LOCK_TIMEOUT_MS}",
                GATE_EXCLUSIVE,
                "SET LOCAL lock_timeout = 0",
            ]
        elif mode in (TransactionMode.WRITE, TransactionMode.NOWAIT, TransactionMode.JOB):
            statements.append(GATE_SHARED)
        driver.execute("; ".join(statements))  # one round trip to the server

    def _begin_serial(self, driver: Any) -> None:
        """Begin a transaction whose first query takes the snapshot, once that is safe."""
        limit = f"SET LOCAL statement_timeout = '{SERIAL_WAIT_SECONDS}s'"
        try:
            driver.execute(f"{BEGIN[TransactionMode.SERIAL]}; {limit}")
            driver.execute("SELECT 1")
            driver.execute("SET LOCAL statement_timeout TO DEFAULT")
        except driver_errors.QueryCanceled as error:
            raise TransactionConflict(
                "concurrent writers left no safe moment for a serializable snapshot",
                database=self.shown_url,
                waited_seconds=SERIAL_WAIT_SECONDS,
                hint="try again when long transactions have ended, or leave out serializable=True",
            ) from error

    def _take_gate_exclusively(self, connection: Connection) -> None:
        """Try once to take the gate. Raises `GateTimeout`, which names the holders; sessions of
        dead holders are ended."""
        driver = connection.driver
        statements = (
            BEGIN[TransactionMode.DDL],
            f"SET LOCAL lock_timeout = {GATE_LOCK_TIMEOUT_MS}",
            GATE_EXCLUSIVE,
            "SET LOCAL lock_timeout = 0",
        )
        try:
            driver.execute("; ".join(statements))
        except driver_errors.LockNotAvailable:
            driver.execute("ROLLBACK")
            holders = find_holders(connection)
            self._refuse_waiting_for_itself(connection, holders)
            denied = self._end_holders(connection.driver, holders)  # it may be a new one
            raise self._gate_timeout(holders, denied) from None

    def _refuse_waiting_for_itself(
        self, connection: Connection, holders: Sequence[GateHolder]
    ) -> None:
        """Raise `UsageError` if the gate's holder is a transaction that waits for this call."""
        backends = {holder.backend for holder in holders}
        stuck = connection.storage.pool.find_stuck()
        blocker = find_blocking_transaction(stuck, connection, backends)
        if blocker is not None:
            raise refuse_waiting(blocker)

    def refusing_deadlock(self, connection: Connection) -> AbstractContextManager[object]:
        return watch_loop(connection)

    def end_dead_holders(self, connection: Connection) -> None:
        holders = find_holders(connection)
        try:
            self._end_holders(connection.driver, holders)
        except psycopg.Error as error:
            raise self.translate(error) from error

    def _end_holders(self, driver: Any, holders: Sequence[GateHolder]) -> list[GateHolder]:
        """End the sessions of dead clients; returns the sessions that this role may not end."""
        denied = [holder for holder in holders if holder.idle_seconds is None]
        for holder in holders:
            if not holder.may_be_ended:
                continue
            logger.warning(
                "ending a session that holds the gate, because its process has ended: %s", holder
            )
            try:
                driver.execute(END_SQL, holder.identity)
            except driver_errors.InsufficientPrivilege:
                denied.append(holder)
        return denied

    def _gate_timeout(
        self, holders: Sequence[GateHolder], denied: Sequence[GateHolder]
    ) -> GateTimeout:
        hint = (
            "a transaction has been open for long: let its process go on or end it, and try again; "
            "pg_stat_activity shows it, application_name LIKE 'zapdb%'"
        )
        context: dict[str, Any] = {"held_by": "; ".join(map(str, holders))} if holders else {}
        if denied:
            context["permission_missing"] = "to look at or end the sessions of " + ", ".join(
                sorted({holder.user for holder in denied})
            )
            hint += "; GRANT pg_signal_backend, pg_read_all_stats to this role lets zapdb end it"
        return GateTimeout(
            "the schema change could not get the gate: writers held it too long",
            database=self.shown_url,
            waited_seconds=GATE.seconds,
            **context,
            hint=hint,
        )

    def roll_back(self, connection: Connection, drawn: DrawnInside | None) -> None:
        if connection.queue is not None:
            connection.queue.roll_back(drawn)
            return
        if connection.driver.info.transaction_status != psycopg.pq.TransactionStatus.IDLE:
            connection.driver.execute("ROLLBACK")
            if drawn is not None:
                # Another process may have drawn the same numbers in between, so none is kept in
                # hand; and where the row can't be moved on, they are drawn another time.
                with suppress(psycopg.Error):
                    drawn.draw_again(connection.driver, self.dialect.placeholder)

    def is_lost(self, driver: Any) -> bool:
        return bool(driver.closed)

    def cancel_statement(self, driver: Any) -> None:
        try:
            driver.cancel_safe(timeout=CANCEL_SECONDS)
        except driver_errors.CancellationTimeout:  # the network carries nothing more
            end_session(driver)
        except psycopg.Error:  # the session has ended, or is about to
            pass

    def is_idle(self, driver: Any) -> bool:
        return bool(driver.pgconn.transaction_status == psycopg.pq.TransactionStatus.IDLE)

    def make_queue(self, connection: Connection) -> PipelineQueue | None:
        return PipelineQueue(connection, self.home.qualify) if self.has_pipelines else None

    def executor(self, driver: Any) -> Any:
        return driver.cursor(binary=True)  # making one costs as much as a short statement

    def execute_many(self, driver: Any, sql: str, rows: Iterable[Sequence[Any]]) -> None:
        """Use a pipeline that is ended here. If the connection is lost, psycopg's own pipeline
        raises the first error, and also prints the failure of its end on standard error."""
        if not psycopg.Pipeline.is_supported():
            super().execute_many(driver, sql, rows)
            return
        failure: Exception | None = None
        try:
            with driver.pipeline():
                try:
                    driver.cursor().executemany(sql, rows)
                except Exception as error:
                    failure = error
        except psycopg.Error as error:
            failure = failure or error  # the first says what went wrong, and the other follows
        finally:
            if driver.pgconn.pipeline_status:  # it was interrupted where a pipeline begins or ends
                driver.close()
        try:
            if failure is not None:
                raise failure
        finally:
            del failure  # its traceback refers to this frame

    def copy_in(self, driver: Any, sql: str, data: Iterable[bytes]) -> None:
        with driver.cursor().copy(sql) as copy:
            for part in data:
                copy.write(part)

    def commit(self, connection: Connection) -> None:
        self._require_alive(connection.driver)
        transaction = connection.transaction
        if transaction is not None and transaction.queue is not None:
            transaction.queue.commit()
            return
        # A transaction that failed answers COMMIT with a rollback and no error.
        cursor = connection.driver.execute("COMMIT")
        if cursor.statusmessage != "COMMIT":
            raise TransactionConflict(
                "the transaction had already failed",
                hint="an error inside it was caught and not raised again; run it again",
            )

    def is_refused_commit(self, connection: Connection, error: BaseException) -> bool:
        # An ERROR rolls the transaction back, and the session stays usable. A failure after the
        # commit is written ends the session or the server: FATAL, PANIC, or silence.
        is_error = isinstance(error, psycopg.Error) and error.diag.severity_nonlocalized == "ERROR"
        return is_error and (
            connection.driver.info.transaction_status == psycopg.pq.TransactionStatus.IDLE
        )

    def _require_alive(self, driver: Any) -> None:
        """Check the session before COMMIT is sent: if it has ended, certainly nothing was
        written."""
        farewell = read_farewell(driver)
        if farewell is not None:
            raise connection_lost(self.shown_url, farewell)

    def _begin_waiting(
        self, connection: Connection, queue: PipelineQueue, mode: TransactionMode
    ) -> None:
        """Begin with the first statement; an ended session is noticed without a round trip."""
        driver = connection.driver
        farewell = read_farewell(driver)
        if farewell is not None:
            driver.close()
            raise psycopg.OperationalError(farewell)
        queue.begin(BEGIN[mode], GATE_SHARED)

    def translate(self, error: BaseException) -> Exception:
        return translate_postgresql_error(error, self.shown_url)


NUMBERED: Final = ("zapdb_transactions", "zapdb_changes")
"""Tables that have nulls only in the place of a number that there is not."""

_OTHER_STATEMENTS: Final = (
    "the server has other prepared statements than this connection",
    "behind a pooler that gives each transaction another session, write prepared_statements=off in "
    "the address, or have the pooler keep them",
)
MEANINGS: Final[dict[type[psycopg.Error], tuple[str, str]]] = {
    driver_errors.InsufficientPrivilege: (
        "the database role lacks a privilege",
        "grant it; read_only=True needs SELECT on all tables of the schema, including those of "
        "later migrations (ALTER DEFAULT PRIVILEGES)",
    ),
    driver_errors.InvalidSqlStatementName: _OTHER_STATEMENTS,
    driver_errors.DuplicatePreparedStatement: _OTHER_STATEMENTS,
    driver_errors.ReadOnlySqlTransaction: (
        "the database takes no writes",
        "open it with read_only=True; the server is a standby, or default_transaction_read_only is "
        "on for the database or the role",
    ),
    driver_errors.QueryCanceled: (
        "the server cancelled a statement",
        "if it is the statement_timeout of the database or the role, raise that",
    ),
}
"""The messages and hints for errors that mean nothing but what they say."""


WRITES_REFUSED: Final = (
    driver_errors.InsufficientPrivilege,
    driver_errors.ReadOnlySqlTransaction,
)


def _find_meaning(error: psycopg.Error) -> tuple[str, str] | None:
    return next((said for kind, said in MEANINGS.items() if isinstance(error, kind)), None)


def translate_postgresql_error(error: BaseException, shown_url: str) -> Exception:
    """The error that an error of the driver means to zapdb; `shown_url` is without secrets."""
    match error:
        case TransactionConflict():
            return error
        case driver_errors.UndefinedTable():
            return MissingTable(
                "a table does not exist",
                database=shown_url,
                detail=str(error).splitlines()[0],
                hint="a migration dropped it in the meantime; try again",
            )
        case driver_errors.UniqueViolation():
            return DuplicateKey(str(error))
        case driver_errors.NotNullViolation() if error.diag.table_name in NUMBERED:
            return not_numbered(shown_url)
        case (
            driver_errors.SerializationFailure()
            | driver_errors.DeadlockDetected()
            | driver_errors.LockNotAvailable()
        ):
            return TransactionConflict(
                "the transaction conflicted with a concurrent one",
                database=shown_url,
                cause=type(error).__name__,
                hint="run it again, or use db.run(function), which repeats it",
            )
        case driver_errors.DiskFull():
            return disk_full(error, shown_url)
        case psycopg.Error() if (known := _find_meaning(error)) is not None:
            message, hint = known
            detail = str(error).splitlines()[0]
            kind_of = WritesRefused if isinstance(error, WRITES_REFUSED) else StorageError
            return kind_of(message, database=shown_url, detail=detail, hint=hint)
        case psycopg.OperationalError():
            lines = str(error).strip().splitlines()
            return StorageError(
                "the database server cannot be reached, or closed the connection",
                database=shown_url,
                detail=lines[0] if lines else "",
                hint="check the address, the user, and that the server runs; then try again",
            )
    return unknown_driver_error(error)
