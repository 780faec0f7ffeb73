"""The connections of a database: one for each thread, and those that open transactions borrow.

A thread keeps its connection as long as it lives. Single operations run on it, and so does zapdb's
own work (heartbeats, write-back, tokens), which never waits for the connections of open
transactions. A transaction or snapshot that stays open between calls borrows a connection until it
ends; their number has a limit. If its block was never left, the connection is taken back once the
transaction is dropped.

All connections come from SQLAlchemy's pool, in the driver's autocommit mode. A process that is
forked drops all of them without closing them, since they belong to the parent.
"""

from __future__ import annotations

import logging
import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

import sqlalchemy

from zapdb.errors import ConnectionsBusy, TransactionConflict, UsageError
from zapdb.limits import (
    BUSY_TIMEOUT_MS,
    CLOSE,
    CONNECTION_WAIT_SECONDS,
    LOOP_WAIT_SECONDS,
)
from zapdb.logs import log_event
from zapdb.storage.connection import Connection, Loan
from zapdb.storage.engine import StorageEngine
from zapdb.storage.fair_lock import FairSemaphore
from zapdb.storage.interruption import current_call, raise_interrupted
from zapdb.storage.loop_deadlocks import OPENED, find_stuck, refuse_waiting
from zapdb.storage.open_transaction import OpenTransaction
from zapdb.storage.retries import attempts
from zapdb.storage.transaction_modes import TransactionMode
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

    def is_older(self, connection: Connection) -> bool:
        """Return whether a connection is older than the last loss."""
        return connection.connected_after < self._count

    def note(self, connection: Connection) -> None:
        """Note the loss of a connection, and so of all connections of its age."""
        self._count = max(self._count, connection.connected_after + 1)

    def _mark(self, _driver: object, record: Any) -> None:
        record.info[_CONNECTED_AFTER] = self._count

    def _require_current(self, _driver: object, record: Any, _handed_out: object) -> None:
        if record.info[_CONNECTED_AFTER] < self._count:
            raise sqlalchemy.exc.DisconnectionError  # the pool makes another one


logger = logging.getLogger("zapdb.storage")

CHECK_OUTS_MAX: Final = 3
"""The number of attempts to get a connection that is newer than the last loss."""
_HOLDERS_SHOWN: Final = 10


class _Local(threading.local):
    """A thread's part of a database's state."""

    connection: Connection | None = None
    """The connection that the thread keeps."""
    active: OpenTransaction | None = None
    """The open transaction that the thread's present call uses."""
    held_up: OpenTransaction | None = None
    """The open transaction that can't continue before the present call returns."""
    has_turn = False
    """Whether the thread needs no turn to write: the task that it works for has waited for it, or
    it waits as other processes do."""
    only_builds = False
    """Whether the thread runs an event loop; a call that only builds a query must not block it."""


class Pool:
    """The connections to a database; safe to share between threads."""

    def __init__(
        self,
        engine: StorageEngine,
        make_connection: Callable[[sqlalchemy.Connection], Connection],
        connections_max: int,
    ) -> None:
        self._engine = engine
        self._make_connection = make_connection
        self.connections_max = connections_max
        """How many transactions and snapshots may be open at once."""
        self.places = FairSemaphore(connections_max)
        self.turn = engine.turn
        """The queue of this process's writers, if the engine has one writer at a time. A caller
        that waited in it calls `give_turn`."""
        self.invalidation = PoolInvalidation(engine.core)
        self.local = _Local()
        self._kept: dict[threading.Thread, Connection] = {}
        self._open: dict[Connection, weakref.ref[OpenTransaction]] = {}
        self._idle: deque[Connection] = deque()
        """Connections for open transactions that are free now; the one that was used last is
        first."""
        self._dropped: deque[tuple[Connection, str]] = deque()
        """Connections of transactions whose blocks were never left, and where these were begun."""
        # The garbage collector may end a generator, and with it a transaction, during a call of
        # this very thread, which must not wait for itself then.
        self._lock = threading.RLock()
        self._closed = False
        self._process = os.getpid()
        self._abandoned: Any = None
        OPENED.add(self)

    @property
    def is_closed(self) -> bool:
        return self._closed

    @property
    def is_in_transaction(self) -> bool:
        """Whether the caller has a transaction or a snapshot open, or is in an operation."""
        if self.open_here() is not None:
            return True
        known = self.local.connection
        return known is not None and known.transaction is not None

    @property
    def is_inherited(self) -> bool:
        """Whether this process was forked from the one that opened the database."""
        return self._abandoned is not None

    def require_open(self) -> None:
        """Raise `UsageError` if the database is closed, or if another process opened it."""
        if self._closed or self._abandoned is not None or self._engine.is_gone:
            self._refuse_call()

    def _refuse_call(self) -> None:
        if self.is_inherited:
            raise UsageError(
                "the database was opened before this process was forked",
                database=self._engine.shown_url,
                opened_by=self._process,
                process=os.getpid(),
                hint="open it again in this process, because connections cannot be "
                "shared; forking servers have a hook for it, and multiprocessing "
                "can use 'spawn'",
            )
        if self._closed:
            raise UsageError(
                "the database is closed", database=self._engine.shown_url, hint="open it again"
            )
        self._engine.require_there()  # it was gone as of the last time that somebody looked

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
        if self.local.active is None and not has_begun():
            return self.own_connection()
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
            known = self.local.connection = self._kept.get(threading.current_thread())
        is_closed = known is None or known.core.closed
        if is_closed or self._engine.is_gone:
            self.require_open()
        if known is None or is_closed:
            self.reap_connections()
            known = self._connect()
            with self._lock:
                is_seen = not self._closed  # by a call that closes the database later
                if is_seen:
                    self._kept[threading.current_thread()] = known
            if not is_seen:
                self._refuse_late(known)
            self.local.connection = known
        return known

    def _connect(self, known: Connection | None = None) -> Connection:
        """Return a new connection, or `known` with a new driver's connection."""
        core = self._check_out()
        try:
            if known is None:
                known = self._make_connection(core)
            else:
                known.use(core)
        except Exception as error:
            core.invalidate()
            core.close()
            raise self._engine.translate(error) from error
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
                return self._engine.core.connect()
            except sqlalchemy.exc.DBAPIError as error:
                raise self._engine.translate(error.orig or error) from error
            except sqlalchemy.exc.InvalidRequestError as error:
                # Not kept for later: its traceback has this frame and all callers, which would live
                # until the next collection, and transactions that they dropped with them.
                if not left:
                    raise self._engine.translate(error) from error
        raise AssertionError("unreachable")

    def reconnect(self, connection: Connection) -> bool:
        """Replace a lost connection by a new one; no transaction is open in it.

        Returns False if the connection was not lost, if the database was closed, or if the
        connection is another thread's. Raises `StorageError` if the database can't be reached; the
        next request for a connection tries again.
        """
        is_mine = connection is self.local.connection
        if self._closed or not self._engine.is_lost(connection.driver):
            return False
        if not is_mine and isinstance(connection.keeper, threading.Thread):
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
            ended = list(filter(has_ended, list(self._kept)))
            connections = list(map(self._kept.pop, ended))
            begun = [*self._open.values()]
        for connection in connections:
            if connection.transaction is None:
                self._return(connection)
                continue
            connection.keeper = None  # its thread does not roll it back
            connection.end_transaction()
            self._throw_away(connection)
            self.end_turn(connection)
        for one in begun:
            if (found := one()) is not None and found.is_orphaned:
                self._log_dropped(found.place)
                found.storage.undo_open(found)
        while self._dropped:
            try:
                connection, place = self._dropped.popleft()
            except IndexError:  # another thread was faster
                return
            self._undo_dropped(connection, place)

    def discard_connection(self, connection: Connection) -> None:
        """Discard a connection together with its transaction."""
        if self.local.connection is connection:
            self._forget_connection()
        self._throw_away(connection)

    def _throw_away(self, connection: Connection) -> None:
        if not self._closed and self._engine.is_lost(connection.driver):
            self.invalidation.note(connection)
        if not connection.core.closed:
            connection.core.invalidate()
            connection.core.close()

    def interrupt(self, thread: threading.Thread, connection: Connection | None) -> None:
        """Cancel the statements that a thread now runs on its own connection and on another one,
        and refuse later ones. The users of both connections discard them (see
        `InterruptibleCall`)."""
        with self._lock:
            own = self._kept.get(thread)
        for found in (own, connection):
            if found is not None and not found.core.closed:
                if found.refused is None:  # a database that is closed stays closed
                    found.refuse(raise_interrupted)
                self._engine.cancel_statement(found.driver)

    def drop_interrupted(self) -> None:
        """Discard this thread's connection if an interrupted call used it."""
        known = self.local.connection
        if known is not None and known.is_interrupted:
            self.discard_connection(known)

    def release_connection(self) -> None:
        """Give this thread's connection back to the pool; a thread that ends calls it."""
        known = self.local.connection
        if known is not None and known.transaction is None:
            self._forget_connection()
            self._return(known)

    def _return(self, connection: Connection) -> None:
        """Return a connection to SQLAlchemy's pool; close it if the database was closed meanwhile,
        because nobody else would."""
        connection.core.close()
        if self._closed:
            self._engine.core.pool.dispose()

    def _forget_connection(self) -> None:
        self.local.connection = None
        with self._lock:
            self._kept.pop(threading.current_thread(), None)

    # Connections of open transactions

    def lend_connection(self, mode: TransactionMode) -> Connection:
        """Lend a connection to a transaction that stays open; the number of such connections is
        limited.

        Raises `ConnectionsBusy` if none is given back in time; the error names the callers that
        have them. A caller that waits when the database is closed learns it within
        `WAIT_CHECK_SECONDS`. One that is to write waits for its turn first, so that waiting writers
        take no connections from readers.
        """
        if self.turn is None or mode.only_reads:
            return self._lend()
        if not self.turn.acquire(0):
            self._await_turn(self.turn, mode)
        connection = None
        try:
            connection = self._lend()
            self.give_turn(connection)
        except BaseException:
            self.turn.release()
            if connection is not None:
                connection.has_turn = False
                self.give_back(connection)
            raise
        return connection

    def _lend(self) -> Connection:
        self._look_for_places()
        if not self.places.acquire(CONNECTION_WAIT_SECONDS, self._look_for_places):
            raise self.connections_busy()
        try:
            return self._connect_lent()
        except BaseException:
            self.places.release()
            raise

    def _look_for_places(self) -> None:
        self.require_open()
        self.reap_connections()

    def connections_busy(self) -> ConnectionsBusy:
        """Return the error if no place was given up in time."""
        return ConnectionsBusy(
            "all connections for transactions are in use",
            database=self._engine.shown_url,
            max_connections=self.connections_max,
            waited_seconds=CONNECTION_WAIT_SECONDS,
            held_by="; ".join(sorted(one.place for one in self.list_open())[:_HOLDERS_SHOWN]),
            hint="leave blocks earlier, or open the database with a larger max_connections",
        )

    def connect_lent(self) -> Connection:
        """Return a connection for an acquired place; if connecting fails, the place is given up."""
        try:
            self.require_open()
            return self._connect_lent()
        except BaseException:
            self.places.release()
            raise

    def _connect_lent(self) -> Connection:
        connection = self._find_idle() or self._connect()
        if self._closed:
            self._refuse_late(connection)
        connection.keeper = Loan()
        return connection

    def _find_idle(self) -> Connection | None:
        while self._idle:
            try:
                connection = self._idle.pop()
            except IndexError:  # another thread was faster
                return None
            if not (connection.core.closed or self.invalidation.is_older(connection)):
                return connection
            self._throw_away(connection)
        return None

    def note_open(self, begun: OpenTransaction) -> None:
        """Remember a transaction that was begun on a borrowed connection."""
        connection = begun.connection
        with self._lock:
            self._open[connection] = known = weakref.ref(begun)
        dropped = weakref.finalize(begun, self._dropped.append, (connection, begun.place))
        dropped.atexit = False
        connection.keeper = Loan(known, dropped)

    def give_back(self, connection: Connection) -> None:
        """Give back the connection of a transaction that has ended.

        If Ctrl-C interrupted the end of the transaction, the connection may still be in it. It is
        discarded then, because the next transaction on it would commit the earlier one's writes.
        May be called again.
        """
        call = current_call()
        if call is not None:
            call.detach(connection)
        loan = connection.keeper if isinstance(connection.keeper, Loan) else None
        if loan is not None:
            connection.keeper = None
        try:
            with self._lock:
                self._open.pop(connection, None)
            if loan is None:
                return
            if loan.dropped is not None:
                loan.dropped.detach()
            if self._abandoned is not None:
                return
            if connection.refused is raise_interrupted or not self._engine.is_idle(
                connection.driver
            ):
                self._throw_away(connection)
            elif not connection.core.closed:
                self._idle.append(connection)
            if self._closed:  # in the meantime
                self._close_idle()
        finally:
            if loan is not None and self._abandoned is None:
                with self.places.guard:  # in no function: Ctrl-C may come as one begins
                    self.places.free += 1
                self.places.hand_out()

    def _close_idle(self) -> None:
        while self._idle:
            with suppress(IndexError):
                self._throw_away(self._idle.pop())  # its pool may be closed already

    def find_stuck(self) -> list[OpenTransaction]:
        """Return the open transactions, of any database of this process, that can't continue before
        this thread's call returns."""
        held_up = self.local.held_up
        return find_stuck() if held_up is None else [held_up]

    def list_open(self) -> list[OpenTransaction]:
        """Return the open transactions and snapshots."""
        with self._lock:
            known = [*self._open.values()]
        return [found for one in known if (found := one()) is not None]

    def _log_dropped(self, place: str) -> None:
        log_event(
            logger,
            "transaction.dropped",
            "a transaction was left by nobody: it was undone",
            level=logging.WARNING,
            database=self._engine.shown_url,
            begun_at=place,
        )

    def _undo_dropped(self, connection: Connection, place: str) -> None:
        if self.is_inherited:
            return
        self._log_dropped(place)
        connection.end_transaction()
        self._throw_away(connection)
        self.end_turn(connection)
        self.give_back(connection)

    # Turns to write, where the engine has one writer at a time

    def take_turn(self, connection: Connection, mode: TransactionMode) -> None:
        """Wait until no other transaction of this process writes; the connection then has the turn
        until `end_turn`. A NOWAIT transaction does not wait.

        Raises `TransactionConflict` or `GateTimeout` if the turn does not come in time.
        """
        if self.turn is None or connection.has_turn or self.local.has_turn:
            return
        if not self.turn.acquire(0):
            if mode is TransactionMode.NOWAIT:
                raise TransactionConflict(
                    "another thread is writing", database=self._engine.shown_url
                )
            self._await_turn(self.turn, mode)
        connection.has_turn = True  # at once: Ctrl-C may come with any call
        self.turn.holder = weakref.ref(connection)

    def give_turn(self, connection: Connection) -> None:
        """Give a connection the turn that its caller has waited for."""
        assert self.turn is not None
        connection.has_turn = True
        self.turn.holder = weakref.ref(connection)

    def end_turn(self, connection: Connection) -> None:
        """Take the turn from a connection that has it; may be called again."""
        if self.turn is not None and connection.has_turn:
            self.turn.release(connection)

    def _await_turn(self, turn: FairSemaphore, mode: TransactionMode) -> None:
        began, call = time.monotonic(), current_call()

        def refuse_waiting_for_itself() -> None:
            if call is not None:
                call.refuse_interrupted()
            holder = turn.holder and turn.holder()
            if holder is None or time.monotonic() - began < LOOP_WAIT_SECONDS:
                return
            self.reap_connections()
            for stuck in self.find_stuck():
                if stuck.connection is holder:
                    raise refuse_waiting(stuck)

        if not turn.acquire(BUSY_TIMEOUT_MS / 1000, refuse_waiting_for_itself):
            raise self.late_for_turn(mode)

    def late_for_turn(self, mode: TransactionMode) -> Exception:
        """Return the error for a turn that did not come in time; it names the writer."""
        here = None if mode is TransactionMode.DDL else self._kept_out_here()
        return here or self._engine.kept_out(self.own_connection(), mode)

    def _kept_out_here(self) -> TransactionConflict | None:
        """Return the error if an open transaction of this process has the turn."""
        holder = None if self.turn is None or self.turn.holder is None else self.turn.holder()
        loan = None if holder is None else holder.keeper
        begun = loan.of() if isinstance(loan, Loan) and loan.of is not None else None
        if begun is None:
            return None
        return TransactionConflict(
            "a transaction of this process held the database too long",
            database=self._engine.shown_url,
            begun_at=begun.place,
            waited_ms=BUSY_TIMEOUT_MS,
            hint="leave its block earlier; if this call is part of it, use its handle: "
            "`with db.transaction() as tx`, tx.table(...)",
        )

    # Ends

    def abandon_after_fork(self) -> None:
        """In a process that was just forked: drop all connections, because they are the parent's.

        They are kept and never used: closing one here would end the parent's session.
        """
        kept = (self.local, self._kept, self._open, self._idle, self._dropped, self._engine.core)
        self._abandoned = (self._abandoned, kept)
        self.local, self._lock = _Local(), threading.RLock()
        self._kept, self._open, self._idle, self._dropped = {}, {}, deque(), deque()
        if self.turn is not None:
            self.turn = FairSemaphore()

    def close(self) -> None:
        """Close every thread's connection and the pool; open transactions are rolled back."""
        self._closed = True
        if self.is_inherited:
            return
        with self._lock:
            connections = [*self._kept.values(), *self._open]
            self._kept = {}
        for connection in connections:
            connection.refuse(self.require_open)
        for connection in connections:
            if self._wait_until_unused(connection):
                connection.core.close()
            self.end_turn(connection)
        # Not the engine's method, which makes a new pool: what comes back late is in this one.
        self._engine.core.pool.dispose()
        self._close_idle()

    def _wait_until_unused(self, connection: Connection) -> bool:
        """Wait until no thread runs a statement on the connection, and return whether that
        succeeded. A running statement is cancelled unless it is a COMMIT.

        Closing a SQLite connection that another thread is using would crash the process. If its
        statement does not end, the connection stays open, and its thread closes it.
        """
        active = self.local.active
        mine = (self.local.connection, None if active is None else active.connection)
        if not self._engine.must_be_unused or connection in mine:
            return True
        for _ in attempts(CLOSE):
            if not connection.uses:
                return True
            transaction = connection.transaction
            if transaction is None or not transaction.is_committing:
                self._engine.cancel_statement(connection.driver)
        return False
