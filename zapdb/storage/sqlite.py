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
import urllib.parse
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import sqlalchemy
from sqlalchemy.engine import URL

from zapdb.errors import (
    CorruptCatalog,
    DatabaseReplaced,
    GateTimeout,
    NotZapdb,
    StorageError,
    TransactionConflict,
    UsageError,
    WritesRefused,
)
from zapdb.files import note_database
from zapdb.limits import (
    BUSY_TIMEOUT_MS,
    JOURNAL_MODE,
    LONG_TRANSACTION_SECONDS,
    WRITER,
)
from zapdb.storage.addresses import attempt, check_options, show_address
from zapdb.storage.connection import Connection
from zapdb.storage.driver_errors import DuplicateKey, MissingTable, disk_full, unknown_driver_error
from zapdb.storage.engine import StorageEngine
from zapdb.storage.fair_lock import FairLocks
from zapdb.storage.gate import LEASES_SQL, describe_process, find_writer, read_node_leases
from zapdb.storage.private_file import PrivateFile, is_private
from zapdb.storage.retries import retry
from zapdb.storage.sequences import DrawnInside
from zapdb.storage.sqlite_dialect import SQLiteDialect
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


WAITING: Final = f"PRAGMA busy_timeout = {BUSY_TIMEOUT_MS}"
WRITERS: Final = FairLocks()
"""The queues of this process, one for each file; a file that is opened twice has one queue."""


class _Busy(Exception):
    """Another process writes."""


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
        driver.execute(WAITING)
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
        else:
            # SQLite waits by sleeping, for 100 ms in the end while others come first, and its
            # interrupt does not end that. So it is asked again and again.
            driver.execute("PRAGMA busy_timeout = 0")
            try:
                driver.execute(BEGIN[mode])
            except sqlite3.OperationalError as error:
                if mode is TransactionMode.NOWAIT or not is_busy(error):
                    raise
                self._await_begin(connection, mode)
            finally:
                driver.execute(WAITING)

    def _await_begin(self, connection: Connection, mode: TransactionMode) -> None:
        """Begin when no other process writes."""

        def begin() -> None:
            try:
                connection.driver.execute(BEGIN[mode])
            except sqlite3.OperationalError as error:
                if is_busy(error):
                    raise _Busy from error
                raise

        try:
            retry(WRITER.within(BUSY_TIMEOUT_MS / 1000), begin, on=_Busy)
        except _Busy as busy:
            raise self.kept_out(connection, mode) from busy.__cause__

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


DRIVER_OPTIONS: Final = frozenset(
    ("uri", "timeout", "isolation_level", "detect_types", "check_same_thread", "cached_statements")
)
"""The options of an address for Python's driver; its other options are for SQLite."""


class DatabaseFile:
    """The file that a SQLite address names, and whether it is still the one that was opened; safe
    to share between threads.

    SQLite opens the file by its path, again for each connection. If the file was deleted in the
    meantime, SQLite would create an empty one. If it was replaced, some connections would write the
    old file and some the new one, and all would use the same -wal and -shm files, which belong to
    one of the two. So the file is created once, never by a connection, and each connection's file
    is compared with the first one by device and inode.

    Only SQLite opens the file: closing another descriptor of it would give up the process's locks.
    """

    def __init__(self, url: URL, *, read_only: bool) -> None:
        database = url.database or ""
        options = {key: str(value) for key, value in url.query.items()}
        if "uri" in options:
            database, given = _split(database)
            options = given | options
        if database in ("", ":memory:") or options.get("mode") == "memory":
            raise UsageError(
                "a database in memory takes no options",
                hint="give sqlite:///:memory:, or a file: sqlite:///path/to/file.db",
            )
        # Absolute: the process may change its working directory between two connections.
        self.path = os.path.abspath(database)  # noqa: PTH100 - Path.resolve would follow links
        mode = options.get("mode", "rwc")
        self._may_create = mode == "rwc" and not read_only
        self._options = {
            key: value for key, value in options.items() if key not in DRIVER_OPTIONS
        } | {"mode": "ro" if read_only or mode == "ro" else "rw"}
        self._shown_url = show_address(url)
        self._identity: tuple[int, int] | None = None
        note_database(self)

    @property
    def address(self) -> str:
        """Return the URI for a connection, which does not create the file.

        A connection that can't write still creates the -wal and -shm files, by which readers and
        writers coordinate.
        """
        return self._address(self._options)

    def _address(self, options: dict[str, str]) -> str:
        query = urllib.parse.urlencode(sorted(options.items()))
        return f"file:{urllib.parse.quote(self.path)}?{query}"

    @property
    def is_absent(self) -> bool:
        return not Path(self.path).exists()

    def create(self) -> None:
        """Create an empty file, unless it exists or existed."""
        if self._may_create and self._identity is None and self.is_absent:
            address = self._address(self._options | {"mode": "rwc"})
            sqlite3.connect(address, uri=True).close()

    def note(self) -> None:
        """Remember the file at the path as the opened one; later calls change nothing."""
        if self._identity is None:
            with suppress(OSError):
                found = os.stat(self.path)  # noqa: PTH116 - as `is_replaced`
                self._identity = found.st_dev, found.st_ino

    def is_replaced(self) -> bool:
        """Return whether the file at the path is another one than the opened file."""
        try:
            found = os.stat(self.path)  # noqa: PTH116 - each transaction does it; half the time
        except (FileNotFoundError, NotADirectoryError):
            return self._identity is not None
        except OSError:  # unknown: SQLite will raise the error
            return False
        return self._identity not in (None, (found.st_dev, found.st_ino))

    def replaced(self) -> DatabaseReplaced:
        """Return the error for a replaced file."""
        return DatabaseReplaced(
            "the file of the open database is not there any more"
            if self.is_absent
            else "another file was put in the place of the open database's",
            database=self._shown_url,
            file=self.path,
            hint="put the former file back; or close the database in all processes, "
            f"remove {self.path}-wal and {self.path}-shm, which belong to the former "
            "file, and open it again",
        )


def _split(uri: str) -> tuple[str, dict[str, str]]:
    """Return the path that a `file:` URI names, and its options."""
    parts = urllib.parse.urlsplit(uri)
    if parts.scheme != "file":
        return uri, {}
    return urllib.parse.unquote(parts.path), dict(urllib.parse.parse_qsl(parts.query))


READ_ONLY_HINT = (
    "the file must exist; in a read-only directory, its -wal and -shm files, too. If no process "
    "writes to the file, give sqlite:///file:PATH?immutable=1&uri=true"
)

FULL: Final = ("SQLITE_FULL", "SQLITE_IOERR_SHMSIZE")
"""Errors of a full disk: no room for the database or its log, or for the log's index in the -shm
file."""


def translate_sqlite_error(error: BaseException, shown_url: str, *, read_only: bool) -> Exception:
    """Return zapdb's error for an error of the driver; `shown_url` contains no secrets."""
    match error:
        case sqlite3.OperationalError() if "no such table" in str(error):
            return MissingTable(
                "a table does not exist",
                database=shown_url,
                detail=str(error),
                hint="a migration dropped it in the meantime; try again",
            )
        case sqlite3.IntegrityError():
            return DuplicateKey(str(error))
        case sqlite3.DatabaseError() if "not a database" in str(error):
            return NotZapdb(
                "the file is not a SQLite database",
                database=shown_url,
                hint="give the path of a zapdb database, or of a file that does not exist yet",
            )
        case sqlite3.OperationalError() if name_of(error) in FULL:
            return disk_full(error, shown_url)
        case sqlite3.OperationalError() if "Could not decode to UTF-8" in str(error):
            return CorruptCatalog(
                "a stored text is not UTF-8",
                database=shown_url,
                hint="another program wrote to the database; restore it from a backup",
            )
        case sqlite3.OperationalError() if is_busy(error):
            return TransactionConflict(
                "another process held the database too long",
                database=shown_url,
                waited_ms=BUSY_TIMEOUT_MS,
                hint="try again; a long transaction of one process keeps all other writers waiting",
            )
        case sqlite3.OperationalError():
            return _translate_access_error(error, shown_url, read_only=read_only)
    return unknown_driver_error(error)


def _translate_access_error(
    error: sqlite3.OperationalError, shown_url: str, *, read_only: bool
) -> Exception:
    """Return zapdb's error for a file that can't be opened, read or written."""
    if read_only and _is_closed_to_readers(error):
        return StorageError(
            "the database file cannot be opened",
            database=shown_url,
            detail=str(error),
            hint=READ_ONLY_HINT,
        )
    if "unable to open" in str(error):
        return StorageError(
            "the database file cannot be opened",
            database=shown_url,
            hint="its directory must exist and be writable",
        )
    if "readonly" in str(error):
        return WritesRefused(
            "the database is read-only",
            database=shown_url,
            hint="give this process write access to the file and its directory, "
            "or open it with read_only=True",
        )
    if name_of(error).startswith("SQLITE_IOERR"):
        return StorageError(
            "the operating system cannot read or write the database file",
            database=shown_url,
            detail=f"{error} ({name_of(error)})",
            hint="give the path of a file, not of a directory; if it is a file, check the disk",
        )
    return unknown_driver_error(error)


def is_busy(error: sqlite3.OperationalError) -> bool:
    return "locked" in str(error) or "busy" in str(error)


def name_of(error: BaseException) -> str:
    """Return SQLite's name of an error; Python's own errors have none."""
    return getattr(error, "sqlite_errorname", "")


def _is_closed_to_readers(error: sqlite3.OperationalError) -> bool:
    """Return whether the database file can't be opened, or its -wal and -shm files, which readers
    need."""
    return name_of(error) in (
        "SQLITE_CANTOPEN",
        "SQLITE_READONLY_CANTINIT",
        "SQLITE_READONLY_CANTLOCK",
        "SQLITE_READONLY_DIRECTORY",
        "SQLITE_READONLY_RECOVERY",
    )
