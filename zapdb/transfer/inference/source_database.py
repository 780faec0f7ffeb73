"""The database that is read: opened so that nothing in it can change."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import sqlalchemy as sa
from sqlalchemy import event, exc

from zapdb.errors import StorageError, UsageError
from zapdb.limits import SOURCE_LOCK, SOURCE_LOCK_TIMEOUT_MS, SOURCE_LOST
from zapdb.storage.addresses import show_address
from zapdb.storage.retries import retry
from zapdb.transfer.inference.column_reading import TEXT_SETTINGS, decode_text

LOCK_NOT_AVAILABLE: Final = "55P03"
MYSQL: Final = ("mysql", "mariadb")
SQLITE_MAGIC: Final = b"SQLite format 3\0"
_DRIVERS: Final = {
    "postgres": "postgresql+psycopg",
    "postgresql": "postgresql+psycopg",
    "mysql": "mysql+pymysql",
    "mariadb": "mariadb+pymysql",
}


def is_sqlite_file(path: str) -> bool:
    try:
        with Path(path).open("rb") as file:
            return file.read(len(SQLITE_MAGIC)) == SQLITE_MAGIC
    except OSError:
        return False


class SourceBusy(StorageError):
    """Writers of the source hold its tables."""


class SourceLost(StorageError):
    """The source can't be reached, or has ended a session."""


@dataclass(frozen=True, slots=True)
class SourceDatabase:
    """A database of another program; `shown` is its address without a password."""

    engine: sa.Engine
    shown: str

    @classmethod
    @contextmanager
    def opened(cls, address: str) -> Iterator[SourceDatabase]:
        """Open the database at an address or the SQLite file at a path.

        Raises `UsageError` for an address that is none, and if a driver is missing.
        """
        made = cls._make(address)
        try:
            yield made
        except exc.DBAPIError as error:
            raise StorageError(
                "the source database reported an error",
                source=made.shown,
                problem=str(error.orig).strip(),
            ) from None
        finally:
            made.engine.dispose()

    @classmethod
    def _make(cls, address: str) -> SourceDatabase:
        url = _read_url(address)
        shown = show_address(url)
        if url.get_backend_name() in MYSQL and not url.database:
            raise UsageError(
                "the address names no database", source=shown, hint="give mysql://user@host/name"
            )
        try:
            engine = sa.create_engine(_read_only(url), connect_args=_options(url))
            if engine.dialect.name == "sqlite":
                event.listen(engine, "connect", _keep_undecoded)
        except exc.NoSuchModuleError:
            raise UsageError(
                "SQLAlchemy knows no such kind of database",
                source=shown,
                hint="give sqlite:///file.db, postgresql://user@host/name or mysql://user@host/name",
            ) from None
        except ImportError as error:
            raise UsageError(
                "the driver of the source database is not installed",
                source=shown,
                missing=error.name,
                hint=f"run: pip install {error.name}",
            ) from None
        return cls(engine, shown)

    @property
    def dialect(self) -> str:
        return self.engine.dialect.name

    @contextmanager
    def noticing_loss(self) -> Iterator[None]:
        """Raise `SourceLost` for an error that says that there is no connection, or none more."""
        try:
            yield
        except exc.DBAPIError as error:
            if not _is_lost(error):
                raise
            raise SourceLost(
                "the source database can't be reached",
                source=self.shown,
                problem=str(error.orig).strip(),
                hint="run the same command again, which goes on, when it can be",
            ) from error

    def wait_until_reached(self) -> None:
        """Raises `SourceLost` if it can't be reached for as long as the policy says."""
        retry(SOURCE_LOST, self._reach, on=SourceLost)

    def _reach(self) -> None:
        with self.noticing_loss(), self.engine.connect():
            pass

    @contextmanager
    def reading(self, locked: Sequence[sa.Table] = ()) -> Iterator[sa.Connection]:
        """A transaction that sees the source as of one moment, where the engine can; `locked`
        tables of PostgreSQL are not written by others meanwhile, and the moment is after the
        lock."""
        with self.engine.connect() as connection:
            if self.dialect == "postgresql":
                connection = connection.execution_options(
                    isolation_level="REPEATABLE READ", postgresql_readonly=True
                )
            if self.dialect in MYSQL:
                with connection.begin():
                    # Its timestamps are shown in the session's time zone.
                    connection.exec_driver_sql("SET SESSION time_zone = '+00:00'")
                    connection.exec_driver_sql("SET SESSION TRANSACTION READ ONLY")
            if locked:
                waiting = list(locked)
                retry(SOURCE_LOCK, partial(self._lock, connection, waiting), on=SourceBusy)
                with connection.get_transaction() or connection.begin():
                    self._prepare(connection)
                    yield connection
                return
            with connection.begin():
                self._prepare(connection)
                yield connection

    def _prepare(self, connection: sa.Connection) -> None:
        """Have texts of values written in one way, whatever the server is set to."""
        if self.dialect == "postgresql":
            for setting in TEXT_SETTINGS:
                connection.exec_driver_sql(setting)

    def _lock(self, connection: sa.Connection, tables: list[sa.Table]) -> None:
        """Try once; the transaction stays open. Raises `SourceBusy`, `StorageError`.

        Only the first table is waited for, while none is locked: so no transaction of the source's
        application is ended for a deadlock. A table that is busy is the first one of the next try.
        """
        quote = self.engine.dialect.identifier_preparer.format_table
        begun = connection.begin()
        connection.exec_driver_sql(f"SET LOCAL lock_timeout = {SOURCE_LOCK_TIMEOUT_MS}")
        for at, table in enumerate(tables):
            nowait = " NOWAIT" if at else ""
            try:
                connection.exec_driver_sql(f"LOCK TABLE {quote(table)} IN SHARE MODE{nowait}")
            except exc.DBAPIError as error:
                begun.rollback()
                tables.insert(0, tables.pop(at))
                is_busy = getattr(error.orig, "sqlstate", "") == LOCK_NOT_AVAILABLE
                raise (SourceBusy if is_busy else StorageError)(
                    "a table of the source could not be locked",
                    source=self.shown,
                    table=table.name,
                    problem=str(error.orig).strip().splitlines()[0],
                    hint="others write to it: end long transactions, and try again"
                    if is_busy
                    else "the role must be allowed to: GRANT UPDATE ON the tables lets it",
                ) from None


def _keep_undecoded(connection: Any, _: object) -> None:
    connection.text_factory = decode_text


def _is_lost(error: exc.DBAPIError) -> bool:
    state = getattr(error.orig, "sqlstate", None)
    is_session = str(state or "").startswith(("08", "57P"))  # ended, or not begun
    is_refused = state is None and isinstance(error, exc.OperationalError)
    return error.connection_invalidated or is_session or is_refused


def _read_url(address: str) -> sa.URL:
    if "://" not in address:
        return sa.URL.create("sqlite", database=address)
    try:
        url = sa.make_url(address)
    except (exc.ArgumentError, ValueError):
        raise UsageError(
            "this is not a database address",
            hint="give sqlite:///file.db or postgresql://user@host/name",
        ) from None
    return url.set(drivername=_DRIVERS.get(url.drivername, url.drivername))


def _options(url: sa.URL) -> dict[str, Any]:
    """A database of PostgreSQL without an encoding has UTF-8, as a rule."""
    is_meant = url.get_backend_name() == "postgresql" and "client_encoding" not in url.query
    return {"client_encoding": "utf8"} if is_meant else {}


def _read_only(url: sa.URL) -> sa.URL:
    if url.get_backend_name() != "sqlite":
        return url
    path = Path(url.database or "")
    if not path.is_file():
        raise UsageError(
            "there is no such file", source=str(path), hint="give the path of a SQLite database"
        )
    query: dict[str, Any] = {"mode": "ro", "uri": "true"}
    return sa.URL.create("sqlite", database=f"file:{quote(str(path.resolve()))}", query=query)
