"""The connections of a database that threads keep, one each.

A thread keeps its connection as long as it lives. Single operations run on it, and so does zapdb's
own work (heartbeats, write-back, tokens), which never waits for the connections of open
transactions (`lending`). All connections come from SQLAlchemy's pool, in the driver's autocommit
mode. A forked process drops all of them without closing them (`forks`), since they belong to the
parent.
"""

from __future__ import annotations

import logging
import os
import threading
import uuid
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Final

import sqlalchemy
from sqlalchemy.engine import URL

from zapdb.errors import UsageError
from zapdb.limits import CLOSE
from zapdb.storage.addresses import show_address
from zapdb.storage.connection import Connection
from zapdb.storage.open_transaction import OpenTransaction
from zapdb.storage.retries import attempts
from zapdb.storage.transaction_owners import find_begun, has_begun, has_ended

# Lost connections: after a loss, the pool hands out no connection that is older.
#
# When a server is restarted, all its connections are lost, and each thread notices it when it
# uses its own connection. The replacement must work, but a connection in the pool that is just as
# old is lost, too. So every connection stores how many losses came before it, and a connection
# that is older than the last loss is replaced when it leaves the pool. The server is never asked
# whether a connection is alive.

_CONNECTED_AFTER: Final = "zapdb connected after"
"""The key of the number of losses in the pool's notes on a connection."""


class PoolInvalidation:
    """The number of times that a pool lost connections; a restart of the server counts once."""

    def __init__(self, engine: sqlalchemy.Engine) -> None:
        self._count = 0
        sqlalchemy.event.listen(engine, "connect", self._mark)
        sqlalchemy.event.listen(engine, "checkout", self._require_current)

    def connected_after(self, core: sqlalchemy.Connection) -> int:
        """Return the number of losses before a connection was made that has just left the pool."""
        connected_after: int = core.info[_CONNECTED_AFTER]
        return connected_after

    def is_older(self, connected_after: int) -> bool:
        """Return whether a connection is older than the last loss, by the number of losses before
        it."""
        return connected_after < self._count

    def note(self, connected_after: int) -> None:
        """Note the loss of a connection, and so of all connections of its age, by the number of
        losses before it."""
        self._count = max(self._count, connected_after + 1)

    def _mark(self, _driver: object, record: Any) -> None:
        record.info[_CONNECTED_AFTER] = self._count

    def _require_current(self, _driver: object, record: Any, _handed_out: object) -> None:
        if record.info[_CONNECTED_AFTER] < self._count:
            raise sqlalchemy.exc.DisconnectionError  # the pool makes another one


logger = logging.getLogger("zapdb.storage")

CHECK_OUTS_MAX: Final = 3
"""The number of attempts to get a connection that is newer than the last loss."""


class _Local(threading.local):
    """A thread's part of a database's state."""

    connection: Connection | None = None
    """The connection that the thread keeps."""
    active: OpenTransaction | None = None
    """The open transaction that the thread's present call uses."""
    held_up: OpenTransaction | None = None
    """The open transaction that can't continue before the present call returns."""
    holds_writer_lock = False
    """Whether the task that the thread works for has waited for the turn to write; it has the turn
    until the work is done."""
    only_builds = False
    """Whether the thread runs an event loop; a call that only builds a query must not block it."""


class ConnectionPool(ABC):
    """The connections to a database; safe to share between threads."""

    def __init__(
        self,
        url: URL,
        engine: sqlalchemy.Engine,
        *,
        read_only: bool,
    ) -> None:
        self.url = url
        self.engine = engine
        self.read_only = read_only
        # SQLAlchemy would end transactions that it did not begin: on SQLite its commit and rollback
        # act even in autocommit mode. Beginning and ending is done here alone.
        engine.dialect.do_commit = _do_nothing  # type: ignore[assignment]  # no connection is looked at
        engine.dialect.do_rollback = _do_nothing  # type: ignore[assignment]  # no connection is looked at
        self.invalidation = PoolInvalidation(engine)
        self.node_id = uuid.uuid4().hex[:12]
        """Identifies this storage to other processes: the id of its registered node."""
        self.local = _Local()
        self._connections: dict[threading.Thread, Connection] = {}
        # The garbage collector may end a generator, and with it a transaction, during a call of
        # this very thread, which must not wait for itself then.
        self._lock = threading.RLock()
        self._closed = False
        self.is_gone = False
        """Whether the opened database is known not to exist any longer."""
        self._process = os.getpid()
        self._abandoned: Any = None

    @property
    def shown_url(self) -> str:
        """Return the address without its password and without other parts that may be secret."""
        return show_address(self.url)

    @property
    def is_closed(self) -> bool:
        return self._closed

    @property
    def is_in_transaction(self) -> bool:
        """Whether the caller has a transaction or a snapshot open, or is in an operation."""
        if self.open_here() is not None:
            return True
        known = self.local.connection
        return known is not None and known.mode is not None

    @property
    def is_inherited(self) -> bool:
        """Whether this process was forked from the one that opened the database."""
        return self._abandoned is not None

    def require_open(self) -> None:
        """Raise `UsageError` if the database is closed, or if another process opened it."""
        if self.is_inherited:
            raise UsageError(
                "the database was opened before this process was forked",
                database=self.shown_url,
                opened_by=self._process,
                process=os.getpid(),
                hint="open it again in this process, because connections cannot be "
                "shared; forking servers have a hook for it, and multiprocessing "
                "can use 'spawn'",
            )
        if self._closed:
            raise UsageError(
                "the database is closed", database=self.shown_url, hint="open it again"
            )

    def open_here(self) -> OpenTransaction | None:
        """Return the open transaction that calls belong to here: the one that this thread is using,
        else the one that the calling task or thread began.

        Raises `UsageError` if the caller only inherited the transaction.
        """
        active = self.local.active
        if active is not None and active.is_ended:  # Ctrl-C came as it was about to stop using it
            active = self.local.active = None
        if active is not None or not has_begun():
            return active
        found = find_begun(self)
        if found is not None:
            self.require_open()
            found.require_owner()
        return found

    def connection(self) -> Connection:
        """Return the connection for a call: its open transaction's, else the thread's."""
        found = self.open_here()
        return self.own_connection() if found is None else found.connection

    def known_connection(self) -> Connection | None:
        """Return the same connection if it exists already; never refused."""
        local = self.local
        found = local.active
        if found is None and has_begun():
            found = find_begun(self)
        if found is None or self.is_inherited:
            return local.connection
        return found.connection if found.is_mine or local.active else None

    def own_connection(self) -> Connection:
        """Return the connection that this thread keeps."""
        known = self.local.connection
        if known is None:
            # A thread that Python did not begin, such as one of DuckDB's, loses what is local to it
            # with each call; what it left is the connection of the same thread.
            known = self.local.connection = self._connections.get(threading.current_thread())
        is_closed = known is None or known.core.closed
        if is_closed or self.is_gone:
            self.require_open()
        if known is None or is_closed:
            self.reap_connections()
            known = self._connect()
            with self._lock:
                is_seen = not self._closed  # by a call that closes the database later
                if is_seen:
                    self._connections[threading.current_thread()] = known
            if not is_seen:
                self._refuse_late(known)
            self.local.connection = known
        return known

    def _connect(self, known: Connection | None = None) -> Connection:
        """Return a new connection, or `known` with a new driver's connection."""
        core = self._check_out()
        try:
            if known is None:
                known = self.make_connection(core)
            else:
                known.use(core)
        except Exception as error:
            core.invalidate()
            core.close()
            raise self.translate(error) from error
        return known

    def _refuse_late(self, connection: Connection) -> None:
        """Discard a connection that was made while another thread closed the database."""
        self._throw_away(connection)
        self.require_open()

    def _check_out(self) -> sqlalchemy.Connection:
        """Check a connection out of the pool. The pool gives up if all connections that it tries
        are lost, since others may be lost meanwhile. Each attempt leaves fewer lost ones."""
        for left in reversed(range(CHECK_OUTS_MAX)):
            try:
                return self.engine.connect()
            except sqlalchemy.exc.DBAPIError as error:
                raise self.translate(error.orig or error) from error
            except sqlalchemy.exc.InvalidRequestError as error:
                # Not kept for later: its traceback has this frame and all callers, which would live
                # until the next collection, and transactions that they dropped with them.
                if not left:
                    raise self.translate(error) from error
        raise AssertionError("unreachable")

    def reconnect(self, connection: Connection) -> bool:
        """Replace a lost connection by a new one; no transaction is open in it.

        Returns False if the connection was not lost, if the database was closed, or if the
        connection is another thread's. Raises `StorageError` if the database can't be reached; the
        next request for a connection tries again.
        """
        is_mine = connection is self.local.connection
        if self._closed or not self.is_lost(connection.driver):
            return False
        if not is_mine and connection.keeper is not None:
            return False
        self._throw_away(connection)
        self._connect(connection)
        if self._closed:  # in the meantime
            self._refuse_late(connection)
        logger.info("a connection was lost between two transactions; there is a new one")
        return True

    def reap_connections(self) -> None:
        """Give back the connections of threads that ended, and roll back dropped transactions."""
        with self._lock:
            ended = [thread for thread in list(self._connections) if has_ended(thread)]
            connections = [self._connections.pop(thread) for thread in ended]
        for connection in connections:
            if connection.mode is None:
                self._return(connection)
                continue
            connection.mode, connection.is_abandoned = None, True
            self._throw_away(connection)
            self.after_transaction(connection)

    def discard_connection(self, connection: Connection) -> None:
        """Discard a connection together with its transaction."""
        if self.local.connection is connection:
            self._forget_connection()
        self._throw_away(connection)

    def _throw_away(self, connection: Connection) -> None:
        if not self._closed and self.is_lost(connection.driver):
            self.invalidation.note(connection.connected_after)
        if not connection.core.closed:
            connection.core.invalidate()
            connection.core.close()

    def interrupt(self, thread: threading.Thread, connection: Connection | None) -> None:
        """Cancel the statements that a thread now runs on its own connection and on another one,
        and refuse later ones. The users of both connections discard them (see
        `InterruptibleCall`)."""
        with self._lock:
            own = self._connections.get(thread)
        for found in (own, connection):
            if found is not None and not found.core.closed:
                found.interrupt()
                self.cancel_statement(found.driver)

    def drop_interrupted(self) -> None:
        """Discard this thread's connection if an interrupted call used it."""
        known = self.local.connection
        if known is not None and known.is_interrupted:
            self.discard_connection(known)

    def release_connection(self) -> None:
        """Give this thread's connection back to the pool; a thread that ends calls it."""
        known = self.local.connection
        if known is not None and known.mode is None:
            self._forget_connection()
            self._return(known)

    def _return(self, connection: Connection) -> None:
        """Return a connection to SQLAlchemy's pool; close it if the database was closed meanwhile,
        because nobody else would."""
        connection.core.close()
        if self._closed:
            self.engine.pool.dispose()

    def _forget_connection(self) -> None:
        self.local.connection = None
        with self._lock:
            self._connections.pop(threading.current_thread(), None)

    def abandon_after_fork(self) -> None:
        """In a process that was just forked: drop all connections, because they are the parent's.

        They are kept and never used: closing one here would end the parent's session.
        """
        if self._abandoned is None:
            self._abandoned = (self.local, self._connections, self.engine)
        self.local, self._connections, self._lock = _Local(), {}, threading.RLock()

    def close(self) -> None:
        """Close every thread's connection and the pool; open transactions are rolled back."""
        self._closed = True
        if self.is_inherited:
            return
        with self._lock:
            connections = self.list_connections()
            self._connections = {}
        for connection in connections:
            connection.close_for_statements()
        for connection in connections:
            if self._wait_until_unused(connection):
                connection.core.close()
            self.after_transaction(connection)
        # Not the engine's method, which makes a new pool: what comes back late is in this one.
        self.engine.pool.dispose()

    def list_connections(self) -> list[Connection]:
        """Return the connections that are in use or kept by a thread."""
        return [*self._connections.values()]

    def _wait_until_unused(self, connection: Connection) -> bool:
        """Wait until no thread runs a statement on the connection, and return whether that
        succeeded. A running statement is cancelled unless it is a COMMIT.

        Closing a SQLite connection that another thread is using would crash the process. If its
        statement does not end, the connection stays open, and its thread closes it.
        """
        active = self.local.active
        mine = (self.local.connection, None if active is None else active.connection)
        if not self.must_be_unused or connection in mine:
            return True
        for _ in attempts(CLOSE):
            if not connection.uses:
                return True
            if not connection.is_committing:
                self.cancel_statement(connection.driver)
        return False

    must_be_unused = False
    """Whether a connection must not be closed while another thread uses it."""

    @abstractmethod
    def make_connection(self, core: sqlalchemy.Connection) -> Connection:
        """Return a connection of this database on one of SQLAlchemy's connections."""

    def after_transaction(self, connection: Connection) -> None:  # noqa: B027 - most engines have nothing to do
        """Clean up after a transaction, even if its BEGIN failed; may be called again."""

    @abstractmethod
    def is_lost(self, driver: Any) -> bool:
        """Whether the driver's connection can't be used any more."""

    @abstractmethod
    def cancel_statement(self, driver: Any) -> None:
        """Cancel the statement that another thread runs on the driver's connection, if any."""

    @abstractmethod
    def is_idle(self, driver: Any) -> bool:
        """Whether the driver's connection is in no transaction, and can be used."""

    @abstractmethod
    def executor(self, driver: Any) -> Any:
        """Return the object that runs the statements of the hot path on the driver's connection.

        Its `execute` returns a cursor, whose rows are fetched before the next statement.
        """

    def execute(self, driver: Any, sql: str, parameters: Sequence[Any]) -> Any:
        """Run a single statement on the driver's connection; returns its cursor."""
        return self.executor(driver).execute(sql, parameters)

    @abstractmethod
    def translate(self, error: BaseException) -> Exception:
        """Return zapdb's error for a driver's error."""


def _do_nothing(_driver: object) -> None:
    """Replace SQLAlchemy's commit and rollback."""
