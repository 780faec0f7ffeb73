"""A database as zapdb uses it, with its transactions.

They are begun and ended by zapdb's own statements, because each kind begins differently (see
`transaction_modes`). Transactions that begin and end within one call run on the connection that the
thread keeps; transactions that stay open between calls have a connection of their own (see
`open_transaction`). If the outcome of a transaction is unknown, its connection is discarded.
"""

from __future__ import annotations

import itertools
import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property, partial
from threading import Thread
from typing import Final, NoReturn, TypeVar

from zapdb.errors import CommitUnknown, TransactionConflict, UsageError, ZapdbError
from zapdb.limits import CONNECTIONS_MAX, GATE_WAIT_LOGGED_SECONDS
from zapdb.logs import log_event
from zapdb.metrics import CONFLICTS, GATE_WAITS
from zapdb.storage.connection import Connection, TransactionState
from zapdb.storage.driver_errors import unknown_driver_error
from zapdb.storage.engine import StorageEngine
from zapdb.storage.interruption import current_call
from zapdb.storage.open_transaction import OpenTransaction
from zapdb.storage.own_writes import OwnWrites, own_writes_of
from zapdb.storage.pool import Pool
from zapdb.storage.savepoints import Savepoint
from zapdb.storage.sequences import DrawnInside
from zapdb.storage.transaction_modes import GATES, PIPELINED_MODES, TransactionMode
from zapdb.storage.transaction_owners import Caller, find_caller, in_no_transaction
from zapdb.values import Zones

logger = logging.getLogger("zapdb.storage")

T = TypeVar("T")
_NUMBERS: Final = itertools.count(1)
_CHANGES_CATALOG: Final = (TransactionMode.DDL, TransactionMode.CATALOG)


class Storage:
    """An open database; safe to share between threads."""

    incarnation: tuple[int, int] | None = None
    """On PostgreSQL, what this process last knew of the server's: see `storage.incarnations`."""
    zones: Zones | None = None
    """The numbers of time zones that were read from this database: see `catalog.zones`."""

    def __init__(self, engine: StorageEngine, *, connections_max: int = CONNECTIONS_MAX) -> None:
        self.engine = engine
        self.dialect = engine.dialect
        self.placeholder = engine.dialect.placeholder
        """The driver's placeholder of a bound parameter."""
        self.read_only = engine.read_only
        self.node_id = engine.node_id
        """Identifies this storage to other processes: the id of its registered node."""
        self.pool = pool = Pool(engine, partial(Connection, self), connections_max)
        # What everybody asks of the pool.
        self.connection = pool.connection
        self.own_connection = pool.own_connection
        self.release_connection = pool.release_connection
        self.require_open = pool.require_open

    @property
    def shown_url(self) -> str:
        """Return the address without its password and without other parts that may be secret."""
        return self.engine.shown_url

    @property
    def is_in_transaction(self) -> bool:
        """Whether the caller has a transaction or a snapshot open, or is in an operation."""
        return self.pool.is_in_transaction

    def now_us(self, connection: Connection) -> int:
        """Return the microseconds since 1970-01-01 UTC by the database's clock."""
        (now,) = connection.fetch_one(self.dialect.clock_sql)
        return int(now)

    def close(self) -> None:
        """Close all connections; open transactions are rolled back."""
        self.pool.close()
        self.engine.close()

    @cached_property
    def own_writes(self) -> OwnWrites:
        """What is told of the writes of this process."""
        return own_writes_of(self.engine.identity)

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
        if connection.transaction is not None:
            raise UsageError(
                "this thread or task is already in a transaction",
                hint="end it first; a schema change cannot run inside a transaction",
            )
        if self.read_only and not mode.only_reads:
            self.require_writable()
        try:
            with self.engine.refusing_deadlock(connection):
                self._begin(connection, mode, exclusive=exclusive)
                try:
                    yield connection
                except BaseException:
                    self._undo(connection)
                    raise
                self._finish(connection)
        except BaseException as error:
            self._leave_nothing(connection)
            count_conflict(error, mode)
            raise
        finally:
            self.pool.end_turn(connection)

    def read_in_own_transaction(self, read: Callable[[Connection], T]) -> T:
        """Call it in a READ transaction of its own, which sees the database as it is now; if the
        caller is in a transaction, in another thread, which has a connection of its own. Raises
        what it raises."""
        if not self.is_in_transaction:
            with self.transaction(TransactionMode.READ) as connection:
                return read(connection)
        made, failed = list[T](), list[BaseException]()

        def run() -> None:
            try:
                with self.transaction(TransactionMode.READ) as connection:
                    made.append(read(connection))
            except BaseException as error:
                failed.append(error)
            finally:
                self.release_connection()

        thread = Thread(target=in_no_transaction().run, args=(run,), name="zapdb-read", daemon=True)
        thread.start()
        thread.join()
        if failed:
            raise failed[0]
        return made[0]

    def read_now(self, read: Callable[[Connection], T]) -> T:
        """Call it in a transaction that sees what the caller's transaction may have written of the
        catalog: in that one, if it changes the schema, else in one of its own."""
        connection = self.pool.known_connection()
        if connection is not None and connection.mode in _CHANGES_CATALOG:
            return read(connection)
        return self.read_in_own_transaction(read)

    @contextmanager
    def writing_as_another_process(self) -> Iterator[None]:
        """Transactions of this thread that write wait as those of other processes do, and not in
        the queue of this process's writers, if the engine has one."""
        self.pool.local.has_turn = True
        try:
            yield
        finally:
            self.pool.local.has_turn = False

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

        `lent` is a connection that was lent already (see `Pool.lend_connection`); `exclusive` is as
        for `transaction`. Raises `ConnectionsBusy`.
        """
        if self.read_only and not mode.only_reads:
            self.require_writable()
        connection = self.pool.lend_connection(mode) if lent is None else lent
        try:
            begun = OpenTransaction(self, connection, mode, caller or find_caller())
            with self.engine.refusing_deadlock(connection):
                self._begin(connection, mode, exclusive=exclusive)
            self.pool.note_open(begun)
        except BaseException as error:
            connection.end_transaction()
            self.pool.end_turn(connection)
            self.pool.give_back(connection)
            count_conflict(error, mode)
            raise
        return begun

    def commit_open(self, begun: OpenTransaction) -> None:
        """Commit an open transaction that no call is using; raises the errors of `transaction`."""
        connection = begun.connection
        begun.is_ended = True
        try:
            with self.engine.refusing_deadlock(connection):
                self._finish(connection)
        except TransactionConflict as error:
            count_conflict(error, begun.mode)
            raise
        finally:
            self.pool.end_turn(connection)
            self.pool.give_back(connection)

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
            self.pool.end_turn(begun.connection)
            self.pool.give_back(begun.connection)

    def savepoint(self, connection: Connection) -> Savepoint:
        """Open a savepoint: rolled back on an exception, while the transaction may continue."""
        return Savepoint(self, connection)

    def require_writable(self) -> None:
        """Raise `UsageError` if the database was opened read-only."""
        if self.read_only:
            raise UsageError(
                "the database was opened read-only",
                database=self.shown_url,
                hint="open it without read_only=True; a preview is never written to",
            )

    # Beginning

    def _begin(self, connection: Connection, mode: TransactionMode, *, exclusive: bool) -> None:
        """Begin a transaction on a connection without one."""
        call = current_call()
        if call is not None:
            call.refuse_interrupted()
        gate = "exclusive" if exclusive else GATES.get(mode)
        started = time.monotonic()
        try:
            self._send_begin(connection, mode, exclusive=exclusive)
        finally:
            began = time.monotonic()
            # A queued statement takes the gate when it is sent.
            if gate is not None and (connection.queue is None or not connection.is_waiting):
                self.note_gate(began - started, mode, gate)
        queue = connection.queue if mode in PIPELINED_MODES else None
        connection.transaction = TransactionState(mode, next(_NUMBERS), began, queue)

    def _send_begin(
        self,
        connection: Connection,
        mode: TransactionMode,
        *,
        exclusive: bool,
        may_renew: bool = True,
    ) -> None:
        try:
            if self.pool.turn is not None and not (mode.only_reads or connection.has_turn):
                self.pool.take_turn(connection, mode)
            connection.uses += 1
            try:
                if connection.refused is not None:
                    connection.refused()
                if connection.queue is not None:
                    connection.queue.begin()  # one that goes alone, too, knows nothing of another
                self.engine.begin(connection, mode, exclusive=exclusive)
            finally:
                connection.uses -= 1
        except BaseException as error:
            is_drivers = isinstance(error, Exception) and not isinstance(error, ZapdbError)
            if is_drivers and may_renew and self.pool.reconnect(connection):
                self.pool.end_turn(connection)  # no statement has run in it
                self._send_begin(connection, mode, exclusive=exclusive, may_renew=False)
                return
            meaning = connection.meaning(error) if is_drivers else error
            self._roll_back(connection)
            if meaning is error:
                raise
            raise meaning from error

    def begin_again(self, connection: Connection) -> None:
        """Begin a transaction again in which no statement has run."""
        transaction, queue = connection.transaction, connection.queue
        assert transaction is not None
        unmade = () if queue is None else queue.unmade
        self._roll_back(connection)
        transaction.is_rollback_only = False
        self._send_begin(connection, transaction.mode, exclusive=False)
        if queue is not None:
            queue.make_savepoints(unmade)

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

    # Ending

    def _finish(self, connection: Connection) -> None:
        """Commit a transaction, or roll it back if the COMMIT fails."""
        transaction = connection.transaction
        assert transaction is not None
        mode, written = transaction.mode, transaction.to_tell
        try:
            self.require_open()
            if transaction.is_rollback_only:
                connection.require_committable()
            if transaction.pending is not None:
                transaction.pending.flush(connection)
                transaction.pending = None
            self.engine.before_commit(connection, mode, time.monotonic() - transaction.began)
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
            self._commit(connection, transaction)
            is_committed = True
        finally:
            try:
                if call is not None and (is_committed or not _is_refused(connection)):
                    call.leave_commit(is_committed=is_committed)
            finally:
                if written is not None:
                    self.own_writes.end_commit(written, is_committed=is_committed)
        if transaction.drawn is not None:
            transaction.drawn.confirm_or_discard(connection)

    def _commit(self, connection: Connection, transaction: TransactionState) -> None:
        connection.uses += 1
        try:
            if connection.refused is not None and not connection.is_interrupted:
                connection.refused()
            transaction.is_committing = connection.queue is None or not connection.is_waiting
            try:
                self.engine.commit(connection)
                if transaction.drawn is not None:
                    transaction.drawn.is_kept = True
            except Exception as error:
                self._raise_failed_commit(connection, transaction, error)
            except BaseException:
                self.pool.discard_connection(connection)
                raise
            finally:
                transaction.is_committing = False
                connection.end_transaction()
        finally:
            connection.uses -= 1

    def _raise_failed_commit(
        self, connection: Connection, transaction: TransactionState, error: Exception
    ) -> NoReturn:
        if _is_refused(connection):
            self._roll_back(connection)
            raise error
        translated = self.engine.translate(error)
        if isinstance(translated, TransactionConflict):
            self._roll_back(connection)
            raise translated from error
        if self.engine.is_refused_commit(connection, error):
            self._roll_back(connection)
            known = isinstance(translated, ZapdbError)
            raise (translated if known else unknown_driver_error(error)) from error
        self.pool.discard_connection(connection)
        if transaction.mode.only_reads:  # it had nothing to commit
            raise translated from error
        raise CommitUnknown(
            "COMMIT reported an error, and its outcome is unknown",
            database=self.shown_url,
            cause=error,
            hint="check whether the change is there before repeating it; with "
            "token=True, db.run and db.transaction find out themselves",
        ) from error

    def _undo(self, connection: Connection) -> None:
        transaction = connection.transaction
        drawn = None if transaction is None else transaction.drawn
        connection.end_transaction()
        if self.pool.is_inherited or connection.keeper is None:
            return
        self._roll_back(connection, drawn)
        if drawn is not None:
            drawn.confirm_or_discard(connection)

    def _roll_back(self, connection: Connection, drawn: DrawnInside | None = None) -> None:
        if drawn is None and connection.transaction is not None:
            drawn = connection.transaction.drawn
        try:
            with connection.in_use():
                self.engine.roll_back(connection, drawn)
        except Exception:  # the connection is lost, and the transaction with it
            self.pool.discard_connection(connection)

    def _leave_nothing(self, connection: Connection) -> None:
        """End a failed transaction for certain: Ctrl-C may have interrupted its rollback, and the
        connection's next statements must not belong to it."""
        connection.end_transaction()
        is_nobodys = self.pool.is_inherited or connection.keeper is None
        if not (is_nobodys or connection.core.closed or self.engine.is_idle(connection.driver)):
            self.pool.discard_connection(connection)


def _is_refused(connection: Connection) -> bool:
    """Whether a statement that was sent with COMMIT failed, so that COMMIT was not run."""
    return connection.queue is not None and connection.queue.is_refused


def count_conflict(error: BaseException, mode: TransactionMode) -> None:
    """Count a conflict of a transaction of this kind, for the metrics."""
    if isinstance(error, TransactionConflict):
        CONFLICTS.add(mode.value)
