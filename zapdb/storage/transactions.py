"""Transactions and savepoints.

They are begun and ended by zapdb's own statements, because each kind begins differently (see
`transaction_modes`). Transactions that begin and end within one call run on the connection that the
thread keeps; transactions that stay open between calls have a connection of their own (see
`open_transaction`). If the outcome of a transaction is unknown, its connection is discarded.
"""

from __future__ import annotations

import itertools
import logging
import time
from abc import abstractmethod
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cached_property
from typing import Final

from zapdb.errors import CommitUnknown, TransactionConflict, UsageError, ZapdbError
from zapdb.limits import GATE_WAIT_LOGGED_SECONDS
from zapdb.logs import log_event
from zapdb.metrics import CONFLICTS, GATE_WAITS
from zapdb.storage.connection import Connection
from zapdb.storage.driver_errors import unknown_driver_error
from zapdb.storage.fair_lock import FairSemaphore
from zapdb.storage.interruption import current_call
from zapdb.storage.lending import TransactionPool
from zapdb.storage.open_transaction import OpenTransaction
from zapdb.storage.own_writes import OwnWrites, own_writes_of
from zapdb.storage.savepoints import Savepoint
from zapdb.storage.transaction_modes import GATES, TransactionMode
from zapdb.storage.transaction_owners import Caller, find_caller

logger = logging.getLogger("zapdb.storage")

_NUMBERS: Final = itertools.count(1)
NO_WATCH: Final = nullcontext()


class Transactions(TransactionPool):
    """The transactions of a database."""

    @cached_property
    def own_writes(self) -> OwnWrites:
        """What is told of the writes of this process."""
        return own_writes_of(self.identity)

    @property
    def identity(self) -> str:
        """The same text for all that have opened the database in this process."""
        return self.url.render_as_string()

    @contextmanager
    def transaction(
        self,
        mode: TransactionMode,
        connection: Connection | None = None,
        *,
        exclusive: bool = False,
    ) -> Iterator[Connection]:
        """A transaction of one call: committed at the end, rolled back on an exception.

        `connection` is that of the caller, if it is known. An `exclusive` WRITE is the only writer;
        raises `TransactionConflict` if the other writers do not end soon.
        """
        connection = connection or self.connection()
        if connection.mode is not None:
            raise UsageError(
                "this thread or task is already in a transaction",
                hint="end it first; a schema change cannot run inside a transaction",
            )
        if not mode.only_reads:
            self.require_writable()
        try:
            with self.refusing_deadlock(connection):
                self._begin_measured(connection, mode, exclusive=exclusive)
                began = time.monotonic()
                try:
                    yield connection
                except BaseException:
                    self._undo(connection)
                    raise
                self._finish(connection, mode, began)
        except BaseException as error:
            self._leave_nothing(connection)
            count_conflict(error, mode)
            raise
        finally:
            self.after_transaction(connection)

    @contextmanager
    def writing_as_another_process(self) -> Iterator[None]:
        """Transactions of this thread that write wait as those of other processes do, and not in
        the queue of this process's writers, if the engine has one."""
        self.local.holds_writer_lock = True
        try:
            yield
        finally:
            self.local.holds_writer_lock = False

    # Transactions that stay open

    def begin_open(
        self,
        mode: TransactionMode,
        lent: Connection | None = None,
        caller: Caller | None = None,
        *,
        exclusive: bool = False,
    ) -> OpenTransaction:
        """Begin a transaction that stays open between calls; its owner is the calling task or
        thread, or `caller`.

        `lent` is a connection that was lent already (see `lend_connection`); `exclusive` is as for
        `transaction`. Raises `ConnectionsBusy`.
        """
        if not mode.only_reads:
            self.require_writable()
        connection = self._lend_for(mode) if lent is None else lent
        try:
            begun = OpenTransaction(self, connection, mode, caller or find_caller())
            with self.refusing_deadlock(connection):
                self._begin_measured(connection, mode, exclusive=exclusive)
            self.note_open(begun)
        except BaseException as error:
            self._close_books(connection)
            self.after_transaction(connection)
            self.give_back(connection)
            count_conflict(error, mode)
            raise
        return begun

    @property
    def turn(self) -> FairSemaphore | None:
        """The queue of this process's writers, if the engine has one writer at a time. A caller
        that waited in it calls `take_turn`."""
        return None

    def take_turn(self, connection: Connection) -> None:
        """Give the connection the turn to write, until its transaction ends."""

    def late_for_turn(self, mode: TransactionMode) -> ZapdbError:
        """Return the error for a turn that did not come in time; it names the writer."""
        raise NotImplementedError  # where there are no turns

    def _lend_for(self, mode: TransactionMode) -> Connection:
        """Return a connection on which a transaction of this kind can begin."""
        return self.lend_connection()

    def commit_open(self, begun: OpenTransaction) -> None:
        """Commit an open transaction that no call is using; raises the errors of `transaction`."""
        connection = begun.connection
        begun.is_ended = True
        try:
            with self.refusing_deadlock(connection):
                self._finish(connection, begun.mode, begun.began)
        except TransactionConflict as error:
            count_conflict(error, begun.mode)
            raise
        finally:
            self.after_transaction(connection)
            self.give_back(connection)

    def undo_open(self, begun: OpenTransaction) -> None:
        """Roll back a transaction, as soon as no thread is using it."""
        begun.is_interrupted = True
        if not begun.is_ended and begun.take_to_end():
            self.undo_taken(begun)

    def undo_taken(self, begun: OpenTransaction) -> None:
        """Roll back a transaction that the caller has taken (`OpenTransaction.take_to_end`)."""
        begun.is_ended = True
        try:
            self._undo(begun.connection)
        finally:
            self.after_transaction(begun.connection)
            self.give_back(begun.connection)

    def _finish(self, connection: Connection, mode: TransactionMode, began: float) -> None:
        """Commit a transaction, or roll it back if the COMMIT fails."""
        written = connection.to_tell
        try:
            self.require_open()
            self.require_committable(connection)
            if connection.pending is not None:
                connection.pending.flush(connection)
                connection.pending = None
            self.before_commit(connection, time.monotonic() - began)
            if written is not None and self.own_writes.begin_commit(written):
                connection.flush()
                self.own_writes.tell(written)
            call = None if mode.only_reads else current_call()
            # A queued statement may be cancelled together with COMMIT; the server tells which was.
            if call is not None and not connection.is_waiting:
                call.enter_commit()
        except BaseException:
            try:
                self._undo(connection)
            finally:
                if written is not None:
                    self.own_writes.end_commit(written, is_committed=False)
            raise
        is_committed = False
        try:
            self._commit(connection, mode)
            is_committed = True
        finally:
            try:
                if call is not None and (is_committed or not connection.is_refused):
                    call.leave_commit(is_committed=is_committed)
            finally:
                if written is not None:
                    self.own_writes.end_commit(written, is_committed=is_committed)
        self._settle_drawn(connection)

    def _settle_drawn(self, connection: Connection) -> None:
        if connection.drawn is not None:
            connection.drawn.settle(connection)

    def _undo(self, connection: Connection) -> None:
        self._close_books(connection)
        if not (self.is_inherited or connection.is_abandoned):
            self._roll_back(connection)
            self._settle_drawn(connection)

    def _leave_nothing(self, connection: Connection) -> None:
        """End a failed transaction for certain: Ctrl-C may have interrupted its rollback, and the
        connection's next statements must not belong to it."""
        self._close_books(connection)
        is_settled = self.is_inherited or connection.is_abandoned or connection.core.closed
        if not (is_settled or self.is_idle(connection.driver)):
            self.discard_connection(connection)

    def _close_books(self, connection: Connection) -> None:
        connection.mode = connection.pending = connection.token = connection.to_tell = None
        if connection.drawn is not None:
            connection.drawn.is_open = False
        if connection.pinned:
            connection.pinned = {}

    def savepoint(self, connection: Connection) -> Savepoint:
        """Open a savepoint: rolled back on an exception, while the transaction may continue."""
        return Savepoint(self, connection)

    def require_writable(self) -> None:
        """Raise `UsageError` if the database was opened read-only."""
        if self.read_only:
            raise UsageError(
                "the database was opened read-only",
                database=self.shown_url,
                hint="open it without read_only=True",
            )

    def _begin_measured(
        self, connection: Connection, mode: TransactionMode, *, exclusive: bool
    ) -> None:
        """Begin a transaction on a connection without one."""
        call = current_call()
        if call is not None:
            call.refuse_interrupted()
        gate = "exclusive" if exclusive else GATES.get(mode)
        started = time.monotonic()
        try:
            self._begin(connection, mode, exclusive=exclusive)
        finally:
            # A queued statement takes the gate when it is sent.
            if gate is not None and not connection.is_waiting:
                self.note_gate(time.monotonic() - started, mode, gate)
        connection.mode, connection.is_rollback_only = mode, False
        connection.drawn = None
        connection.serial = next(_NUMBERS)
        if connection.checked:
            connection.checked = {}

    def note_gate(self, seconds: float, mode: TransactionMode | None, gate: str = "shared") -> None:
        """Count how long a transaction of this kind waited for the gate."""
        GATE_WAITS.observe(seconds, gate)
        if seconds > GATE_WAIT_LOGGED_SECONDS:
            log_event(
                logger,
                "gate.waited",
                "a transaction waited long for the gate",
                level=logging.WARNING,
                database=self.shown_url,
                mode="" if mode is None else mode.value,
                seconds=round(seconds, 3),
            )

    def begin_again(self, connection: Connection) -> None:
        """Begin a transaction again in which no statement has run."""
        assert connection.mode is not None
        savepoints = connection.take_unmade_savepoints()
        self._roll_back(connection)
        connection.is_rollback_only = False
        self._begin(connection, connection.mode, exclusive=False)
        connection.make_savepoints(savepoints)

    def _begin(
        self,
        connection: Connection,
        mode: TransactionMode,
        *,
        exclusive: bool,
        may_renew: bool = True,
    ) -> None:
        try:
            self.begin(connection, mode, exclusive=exclusive)
        except ZapdbError:
            self._roll_back(connection)
            raise
        except Exception as error:
            if may_renew and self.reconnect(connection):  # no statement has run in it
                self.after_transaction(connection)
                self._begin(connection, mode, exclusive=exclusive, may_renew=False)
                return
            meaning = connection.meaning(error)
            self._roll_back(connection)
            raise meaning from error
        except BaseException:
            self._roll_back(connection)
            raise

    def _roll_back(self, connection: Connection) -> None:
        try:
            with connection.in_use():
                self.roll_back(connection)
        except Exception:  # the connection is lost, and the transaction with it
            self.discard_connection(connection)

    def _commit(self, connection: Connection, mode: TransactionMode) -> None:
        with connection.in_use():
            connection.is_committing = not connection.is_waiting
            try:
                self.commit(connection)
                if connection.drawn is not None:
                    connection.drawn.is_kept = True
            except Exception as error:
                if connection.is_refused:
                    self._roll_back(connection)
                    raise
                translated = self.translate(error)
                if isinstance(translated, TransactionConflict):
                    self._roll_back(connection)
                    raise translated from error
                if self.is_refused_commit(connection, error):
                    self._roll_back(connection)
                    known = isinstance(translated, ZapdbError)
                    raise (translated if known else unknown_driver_error(error)) from error
                self.discard_connection(connection)
                if mode.only_reads:  # it had nothing to commit
                    raise translated from error
                raise CommitUnknown(
                    "COMMIT reported an error, and its outcome is unknown",
                    database=self.shown_url,
                    cause=error,
                    hint="check whether the change is there before repeating it; with "
                    "token=True, db.run and db.transaction find out themselves",
                ) from error
            except BaseException:
                self.discard_connection(connection)
                raise
            finally:
                connection.is_committing = False
                self._close_books(connection)

    def require_committable(self, connection: Connection) -> None:
        """Raise `TransactionConflict` if a savepoint could not be rolled back."""
        if connection.is_rollback_only:
            raise TransactionConflict(
                "rolling back a savepoint failed, so the whole transaction was rolled back",
                database=self.shown_url,
                hint="nothing was written; run it again",
            )

    def refusing_deadlock(self, connection: Connection) -> AbstractContextManager[object]:
        """Watch the block, which may wait for an open transaction that only this thread's event
        loop could end; raises `UsageError` within a second then."""
        return NO_WATCH

    @abstractmethod
    def begin(self, connection: Connection, mode: TransactionMode, *, exclusive: bool) -> None: ...

    def before_commit(self, connection: Connection, seconds: float) -> None:
        """The end of a transaction that took so long, inside it."""

    def commit(self, connection: Connection) -> None:
        self.execute(connection.driver, "COMMIT", ())

    @abstractmethod
    def is_refused_commit(self, connection: Connection, error: BaseException) -> bool:
        """Return whether COMMIT's error, other than a conflict, proves that nothing was written."""

    @abstractmethod
    def roll_back(self, connection: Connection) -> None: ...


def count_conflict(error: BaseException, mode: TransactionMode) -> None:
    """Count a conflict of a transaction of this kind, for the metrics."""
    if isinstance(error, TransactionConflict):
        CONFLICTS.add(mode.value)
