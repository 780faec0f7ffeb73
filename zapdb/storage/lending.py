"""Lend connections to open transactions: one each, up to a limit.

A transaction or snapshot that stays open between calls borrows a connection until it ends. If its
block was never left, the connection is taken back once the transaction is dropped.
"""

from __future__ import annotations

import logging
import weakref
from abc import abstractmethod
from collections import deque
from contextlib import suppress
from typing import Final

import sqlalchemy
from sqlalchemy.engine import URL

from zapdb.errors import ConnectionsBusy
from zapdb.limits import CONNECTION_WAIT_SECONDS, CONNECTIONS_MAX
from zapdb.logs import log_event
from zapdb.storage.connection import Connection
from zapdb.storage.fair_lock import FairSemaphore
from zapdb.storage.forks import OPENED
from zapdb.storage.interruption import current_call
from zapdb.storage.loop_watch import find_stuck
from zapdb.storage.open_transaction import OpenTransaction
from zapdb.storage.pool import ConnectionPool

logger = logging.getLogger("zapdb.storage")

_HOLDERS_SHOWN: Final = 10


class TransactionPool(ConnectionPool):
    """The connections of threads, and the connections that open transactions borrow."""

    def __init__(
        self,
        url: URL,
        engine: sqlalchemy.Engine,
        *,
        read_only: bool,
        connections_max: int = CONNECTIONS_MAX,
    ) -> None:
        self.connections_max = connections_max
        """How many transactions and snapshots may be open at once."""
        self.places = FairSemaphore(connections_max)
        self._open: dict[Connection, weakref.ref[OpenTransaction]] = {}
        self._idle: deque[Connection] = deque()
        """Connections for open transactions that are free now; the one that was used last is
        first."""
        self._dropped: deque[tuple[Connection, str]] = deque()
        """Connections of transactions whose blocks were never left, and where these were begun."""
        super().__init__(url, engine, read_only=read_only)
        OPENED.add(self)

    def lend_connection(self) -> Connection:
        """Lend a connection to a transaction that stays open; the number of such connections is
        limited.

        Raises `ConnectionsBusy` if none is given back in time; the error names the callers that
        have them. A caller that waits when the database is closed learns it within
        `WAIT_CHECK_SECONDS`.
        """
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
            database=self.shown_url,
            max_connections=self.connections_max,
            waited_seconds=CONNECTION_WAIT_SECONDS,
            held_by="; ".join(sorted(one.place for one in self.list_open())[:_HOLDERS_SHOWN]),
            hint="leave blocks earlier, or open the database with a larger max_connections",
        )

    def connect_lent(self) -> Connection:
        """Return a connection for an acquired place; if connecting fails, the place is given up."""
        try:
            return self._connect_lent()
        except BaseException:
            self.places.release()
            raise

    def _connect_lent(self) -> Connection:
        self.require_open()
        connection = self._find_idle() or self._connect()
        if self._closed:
            self._refuse_late(connection)
        connection.keeper = None
        connection.has_place = True
        return connection

    def _find_idle(self) -> Connection | None:
        while self._idle:
            try:
                connection = self._idle.pop()
            except IndexError:  # another thread was faster
                return None
            if not (
                self.invalidation.is_older(connection.connected_after) or connection.core.closed
            ):
                return connection
            self._throw_away(connection)
        return None

    def note_open(self, begun: OpenTransaction) -> None:
        """Remember a transaction that was begun on a borrowed connection."""
        with self._lock:
            self._open[begun.connection] = begun.connection.lent_to = weakref.ref(begun)
        dropped = weakref.finalize(begun, self._dropped.append, (begun.connection, begun.place))
        dropped.atexit = False
        begun.connection.dropped = dropped

    def give_back(self, connection: Connection) -> None:
        """Give back the connection of a transaction that has ended.

        If Ctrl-C interrupted the end of the transaction, the connection may still be in it. It is
        discarded then, because the next transaction on it would commit the earlier one's writes.
        May be called again.
        """
        call = current_call()
        if call is not None:
            call.detach(connection)
        had_place, connection.has_place = connection.has_place, False
        try:
            with self._lock:
                self._open.pop(connection, None)
            if connection.dropped is not None:
                connection.dropped.detach()
            if self.is_inherited or not had_place:
                return
            connection.lent_to = connection.dropped = None
            if connection.is_interrupted or not self.is_idle(connection.driver):
                self._throw_away(connection)
            elif not connection.core.closed:
                self._idle.append(connection)
            if self._closed:  # in the meantime
                self._close_idle()
        finally:
            if had_place and self._abandoned is None:
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
        return find_stuck(OPENED) if held_up is None else [held_up]

    def list_open(self) -> list[OpenTransaction]:
        """Return the open transactions and snapshots."""
        with self._lock:
            known = [*self._open.values()]
        return [found for one in known if (found := one()) is not None]

    def reap_connections(self) -> None:
        """Give back the connections of threads that ended, and roll back dropped transactions."""
        super().reap_connections()
        for begun in self.list_open():
            if begun.is_orphaned:
                self._log_dropped(begun.place)
                self.undo_open(begun)
        while self._dropped:
            try:
                connection, place = self._dropped.popleft()
            except IndexError:  # another thread was faster
                return
            self._undo_dropped(connection, place)

    def _log_dropped(self, place: str) -> None:
        log_event(
            logger,
            "transaction.dropped",
            "a transaction was left by nobody: it was undone",
            level=logging.WARNING,
            database=self.shown_url,
            begun_at=place,
        )

    def _undo_dropped(self, connection: Connection, place: str) -> None:
        if self.is_inherited:
            return
        self._log_dropped(place)
        connection.mode = connection.pending = None
        self._throw_away(connection)
        self.after_transaction(connection)
        self.give_back(connection)

    def list_connections(self) -> list[Connection]:
        return [*super().list_connections(), *self._open]

    def abandon_after_fork(self) -> None:
        super().abandon_after_fork()
        self._abandoned = (self._abandoned, self._open, self._idle, self._dropped)
        self._open, self._idle, self._dropped = {}, deque(), deque()

    def close(self) -> None:
        super().close()
        if not self.is_inherited:
            self._close_idle()

    @abstractmethod
    def undo_open(self, begun: OpenTransaction) -> None:
        """Roll back an open transaction; if a thread is using it, as soon as that thread has
        finished."""
