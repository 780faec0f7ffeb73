"""SQLite: one file, one writer at a time, readers that never wait.

The journal is write-ahead, with `synchronous=FULL`: a commit that returned survives a loss of
power. Every transaction that writes begins with `BEGIN IMMEDIATE`, which takes the single writer's
place before the snapshot. That place is the gate, shared and exclusive alike.

SQLite has no queue of writers: a waiting writer tries again after longer and longer pauses. Of two
threads that write without a pause, the second one succeeded once in two seconds. So the writers of
one process wait in a queue first.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

import sqlalchemy
from sqlalchemy.engine import URL

from zapdb.errors import (
    ConcurrencyError,
    DatabaseReplaced,
    GateTimeout,
    TransactionConflict,
)
from zapdb.limits import (
    BUSY_SLICE_MS,
    BUSY_TIMEOUT_MS,
    JOURNAL_MODE,
    LONG_TRANSACTION_SECONDS,
    WRITER,
)
from zapdb.storage.addresses import attempt, check_options
from zapdb.storage.connection import Connection
from zapdb.storage.database_file import DatabaseFile
from zapdb.storage.engine import StorageEngine
from zapdb.storage.fair_lock import FairLocks
from zapdb.storage.gate import LEASES_SQL, describe_process, find_writer, read_node_leases
from zapdb.storage.interruption import current_call
from zapdb.storage.private_file import PrivateFile, is_private
from zapdb.storage.retries import retry
from zapdb.storage.sequences import DrawnInside
from zapdb.storage.sqlite_dialect import SQLiteDialect
from zapdb.storage.sqlite_errors import is_busy, name_of, translate_sqlite_error
from zapdb.storage.transaction_modes import TransactionMode

# Nobody could renew a lease meanwhile, and nobody take one over: time stood still for leases.
EXTEND_LEASES_SQL = "UPDATE zapdb_leases SET expires_at = expires_at + ? WHERE expires_at > ?"

OPTIONS: Final = frozenset({"uri", "mode", "cache", "immutable", "nolock", "psow", "vfs"})
"""SQLite's own options, which a path that is a URI may have."""

BEGIN = {
    TransactionMode.READ: "BEGIN",
    TransactionMode.SERIAL: "BEGIN",  # each one is: there is one writer at a time
    TransactionMode.WRITE: "BEGIN IMMEDIATE",
    TransactionMode.NOWAIT: "BEGIN IMMEDIATE",
    TransactionMode.JOB: "BEGIN IMMEDIATE",
    TransactionMode.DDL: "BEGIN IMMEDIATE",
    TransactionMode.CATALOG: "BEGIN IMMEDIATE",
}


WRITERS: Final = FairLocks()
"""The queues of this process, one for each file; a file that is opened twice has one queue."""


class SQLite(StorageEngine):
    must_be_unused = True

    def __init__(
        self, url: URL, *, read_only: bool = False, private: PrivateFile | None = None
    ) -> None:
        check_options(url, OPTIONS if url.query.get("uri") == "true" else ())
        self._file = DatabaseFile(url, read_only=read_only)
        self._private = private
        """The file to remove when the storage is closed, if the database is private."""
        core = attempt(
            url,
            lambda: sqlalchemy.create_engine(
                url,
                isolation_level="AUTOCOMMIT",
                poolclass=sqlalchemy.QueuePool,
                pool_size=0,  # no limit: each thread keeps one, and open transactions are counted
                connect_args={"check_same_thread": False, "timeout": BUSY_TIMEOUT_MS / 1000},
            ),
        )
        sqlalchemy.event.listen(core, "do_connect", self._open_file)
        sqlalchemy.event.listen(core, "connect", self._configure)
        super().__init__(url, core, SQLiteDialect(), read_only=read_only)
        self.turn = WRITERS.find(self.identity)

    @property
    def identity(self) -> str:
        return os.path.realpath(self._file.path)

    @property
    def file_mode(self) -> int:
        try:
            found = os.stat(self._file.path)  # noqa: PTH116 - of a text
        except OSError:
            return 0o600
        return found.st_mode & 0o666

    def _open_file(self, dialect: Any, _record: Any, _given: Any, options: dict[str, Any]) -> Any:
        """Return a connection to the file that was opened first; raises `DatabaseReplaced` for
        another.

        The file is checked before and after connecting. A connection to another file must not read
        it, because it would use the first file's -wal file.
        """
        self.require_there()
        driver = dialect.connect(self._file.address, **options | {"uri": True})
        self._file.note()
        try:
            self.require_there()
        except DatabaseReplaced:
            driver.close()
            raise
        return driver

    def _configure(self, driver: sqlite3.Connection, _record: object) -> None:
        driver.isolation_level = None  # transactions are begun by statements of ours, DDL included
        driver.execute(f"PRAGMA busy_timeout = {BUSY_TIMEOUT_MS}")
        is_lasting = not is_private(self._file.path)
        driver.execute(f"PRAGMA synchronous = {'FULL' if is_lasting else 'OFF'}")

    def close(self) -> None:
        if self._private is not None:
            self._private.remove()

    def require_there(self) -> None:
        self.is_gone = self._file.is_replaced()
        if self.is_gone:
            raise self._file.replaced()

    def is_absent(self) -> bool:
        return self._file.is_absent

    def prepare(self, connect: Callable[[], Connection]) -> None:
        # Kept in the file, so never done to one that is somebody else's. SQLite's own waiting does
        # not cover this statement: of processes that do it at one moment, all but one are refused.
        if self.read_only:
            return
        try:
            self._file.create()
        except sqlite3.Error as error:
            raise self.translate(error) from error
        retry(JOURNAL_MODE, lambda: self._switch_journal_mode(connect()))

    def _switch_journal_mode(self, connection: Connection) -> None:
        """Switch the journal mode; raises `TransactionConflict` while another process does so."""
        if connection.fetch_one("PRAGMA journal_mode")[0] == "wal":
            return
        if connection.fetch_one("PRAGMA journal_mode = WAL")[0] != "wal":
            raise TransactionConflict(
                "the database file cannot be switched to write-ahead logging",
                database=self.shown_url,
                hint="put it on a local file system; network file systems lack shared memory",
            )

    def begin(self, connection: Connection, mode: TransactionMode, *, exclusive: bool) -> None:
        if self._file.is_replaced():  # costs a hundredth of the cheapest COMMIT
            self.require_there()
        driver = connection.driver
        if mode.only_reads:
            driver.execute(BEGIN[mode])
        elif mode is TransactionMode.NOWAIT:
            driver.execute("PRAGMA busy_timeout = 0")
            try:
                driver.execute(BEGIN[mode])
            finally:
                driver.execute(f"PRAGMA busy_timeout = {BUSY_TIMEOUT_MS}")
        elif current_call() is not None:
            self._begin_in_slices(connection, mode)
        else:
            try:
                driver.execute(BEGIN[mode])
            except sqlite3.OperationalError as error:
                if is_busy(error):
                    raise self.kept_out(connection, mode) from error
                raise

    def _begin_in_slices(self, connection: Connection, mode: TransactionMode) -> None:
        """Begin to write for a call that may be interrupted. SQLite waits for another process by
        sleeping, and its interrupt does not end the sleep, so it waits in short steps."""

        def begin() -> None:
            try:
                connection.driver.execute(BEGIN[mode])
            except sqlite3.OperationalError as error:
                if is_busy(error):
                    raise self.kept_out(connection, mode) from error
                raise

        connection.driver.execute(f"PRAGMA busy_timeout = {BUSY_SLICE_MS}")
        try:
            retry(WRITER.within(BUSY_TIMEOUT_MS / 1000), begin, on=ConcurrencyError)
        finally:
            connection.driver.execute(f"PRAGMA busy_timeout = {BUSY_TIMEOUT_MS}")

    def kept_out(
        self, connection: Connection, mode: TransactionMode
    ) -> GateTimeout | TransactionConflict:
        """Return the error for a transaction that another process keeps from writing; it names that
        process if it is known."""
        writer = find_writer(os.path.realpath(self._file.path))
        try:
            known = read_node_leases(connection.driver.execute(LEASES_SQL).fetchall())
        except sqlite3.Error:  # there are no such tables yet
            known = {}
        nodes = [node for node in known.values() if writer is None or node.is_process(writer)]
        context: dict[str, Any] = {"database": self.shown_url}
        if writer is not None:
            context["held_by"] = describe_process(writer)
        if nodes:
            context["nodes"] = "; ".join(map(str, nodes))
        if mode is TransactionMode.DDL:
            return GateTimeout(
                "the schema change could not get the gate: writers held it too long",
                **context,
                waited_seconds=BUSY_TIMEOUT_MS / 1000,
                hint="a process has a long open transaction; wait for it or end it, and try again",
            )
        return TransactionConflict(
            "another process held the database too long",
            **context,
            waited_ms=BUSY_TIMEOUT_MS,
            hint="try again; a long transaction of one process keeps all other writers waiting",
        )

    def before_commit(self, connection: Connection, mode: TransactionMode, seconds: float) -> None:
        if mode is not TransactionMode.READ and self._file.is_replaced():
            self.require_there()
        if seconds > LONG_TRANSACTION_SECONDS and mode in (
            TransactionMode.WRITE,
            TransactionMode.JOB,
            TransactionMode.DDL,
        ):
            passed, now_us = int(seconds * 1e6), connection.storage.now_us(connection)
            connection.run(EXTEND_LEASES_SQL, (passed, now_us - passed))

    def commit(self, connection: Connection) -> None:
        connection.driver.execute("COMMIT")

    def is_refused_commit(self, connection: Connection, error: BaseException) -> bool:
        # SQLite reports it where a page of the log could not be written, the one that commits at
        # the latest: what was written has no commit and never will. Copying the log into the
        # database comes after COMMIT, which does not report what fails then. All else may come
        # after the log holds the commit, when it takes effect if this process dies: docs/decisions.
        return name_of(error) == "SQLITE_FULL"

    def roll_back(self, connection: Connection, drawn: DrawnInside | None) -> None:
        if connection.driver.in_transaction:
            connection.driver.execute("ROLLBACK")

    def is_lost(self, driver: Any) -> bool:
        try:
            _ = driver.total_changes
        except sqlite3.ProgrammingError:  # it is closed
            return True
        return False

    def cancel_statement(self, driver: Any) -> None:
        with suppress(sqlite3.ProgrammingError):  # it was closed meanwhile
            driver.interrupt()

    def is_idle(self, driver: Any) -> bool:
        try:
            return not driver.in_transaction
        except sqlite3.ProgrammingError:  # it is closed
            return False

    def executor(self, driver: Any) -> Any:
        # A cursor of its own for each statement: one that is kept holds its last statement open,
        # and with it a snapshot that the write-ahead log can't be cut behind.
        return driver

    def translate(self, error: BaseException) -> Exception:
        return translate_sqlite_error(error, self.shown_url, read_only=self.read_only)
