"""The connections of a database: one for each thread that uses it, as long as the thread lives.

They come from SQLAlchemy's pool, in the driver's autocommit mode. A process that was forked lets go
of all of them without a word, since they are the parent's.
"""

from __future__ import annotations

import logging
import os
import threading
import uuid
import weakref
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Final

import sqlalchemy
from sqlalchemy.engine import URL

from zapdb.errors import UsageError
from zapdb.storage.addresses import show_address
from zapdb.storage.connection import Connection
from zapdb.storage.losses import Losses

logger = logging.getLogger("zapdb.storage")


class ConnectionPool(ABC):
    """Each thread's connection to a database; safe to share between threads."""

    def __init__(self, url: URL, engine: sqlalchemy.Engine, *, read_only: bool) -> None:
        self.url = url
        self.engine = engine
        self.read_only = read_only
        # SQLAlchemy would end transactions that it did not begin: on SQLite its commit and rollback
        # act even in autocommit mode. Beginning and ending is done here alone.
        engine.dialect.do_commit = _do_nothing  # type: ignore[assignment]  # no connection is looked at
        engine.dialect.do_rollback = _do_nothing  # type: ignore[assignment]  # the same
        self.losses = Losses(engine)
        self.session = uuid.uuid4().hex[:12]
        """Names what this storage does to others: it is the id of the node that is registered."""
        self._local = threading.local()
        self._connections: dict[threading.Thread, Connection] = {}
        self._lock = threading.Lock()
        self._closed = False
        self.is_gone = False
        """Whether the database that was opened is known to be there no more."""
        self._process = os.getpid()
        self._left_behind: Any = None
        OPENED.add(self)

    @property
    def shown_url(self) -> str:
        """The address without its password, and without what else may be secret."""
        return show_address(self.url)

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

    def connection(self) -> Connection:
        """This thread's connection."""
        known: Connection | None = getattr(self._local, "connection", None)
        if known is None or known.core.closed or self.is_gone:
            self.refuse_use()
        if known is None or known.core.closed:
            self.collect_connections()
            known = self._connect()
        return known

    def _connect(self, known: Connection | None = None) -> Connection:
        """A connection that is this thread's from now on; `known` is one to go on with."""
        try:
            core = self.engine.connect()
        except sqlalchemy.exc.DBAPIError as error:
            raise self.translate(error.orig or error) from error
        try:
            if known is None:
                known = self.make_connection(core)
            else:
                known.use(core)
        except Exception as error:
            core.invalidate()
            core.close()
            raise self.translate(error) from error
        self._local.connection = known
        with self._lock:
            self._connections[threading.current_thread()] = known
        return known

    def renew_connection(self, connection: Connection) -> bool:
        """Put a new connection in the place of one that was lost; no transaction is open in it.

        False where it was not lost, where the database was closed, and where it is not this
        thread's. Raises `StorageError` where the database can't be reached: the next one that is
        asked for is another attempt.
        """
        is_mine = getattr(self._local, "connection", None) is connection
        if self._closed or not is_mine or not self.is_lost(connection.driver):
            return False
        self.discard_connection(connection)
        self._connect(connection)
        logger.info("a connection was lost between two transactions; there is a new one")
        return True

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
        if not self._closed and self.is_lost(connection.driver):
            self.losses.note(connection.made_after)
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

    def leave_behind(self) -> None:
        """In a process that was just forked: let go of all connections, which are the parent's.

        They are kept and never touched: to close one here would end the session of the parent.
        """
        if self._left_behind is None:
            self._left_behind = (self._local, self._connections, self.engine)
        self._local, self._connections, self._lock = threading.local(), {}, threading.Lock()

    def close(self) -> None:
        """Close every thread's connection and the pool; what is in a transaction is undone."""
        self._closed = True
        if self.is_inherited:
            return
        with self._lock:
            connections, self._connections = [*self._connections.values()], {}
        for connection in connections:
            connection.core.close()
            self.ended(connection)
        self.engine.dispose()

    @abstractmethod
    def make_connection(self, core: sqlalchemy.Connection) -> Connection:
        """A connection of this database, on one of SQLAlchemy's."""

    def ended(self, connection: Connection) -> None:  # noqa: B027 - most engines have nothing to do
        """After a transaction that was to begin, whatever became of it; may be called again."""

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


OPENED: Final[weakref.WeakSet[ConnectionPool]] = weakref.WeakSet()
"""The databases that this process has open, for a fork of it."""


def _leave_behind() -> None:
    for pool in list(OPENED):
        pool.leave_behind()


if hasattr(os, "register_at_fork"):  # not on Windows, which can't fork
    os.register_at_fork(after_in_child=_leave_behind)


def _do_nothing(_driver: object) -> None:
    """In the place of SQLAlchemy's commit and rollback."""
