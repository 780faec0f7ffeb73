"""A connection, the transaction that it is in, and the statements that run on it.

The half dozen statements of the hot path run on the driver's cursor; all others go through
SQLAlchemy Core on the same connection.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

import sqlalchemy
from sqlalchemy.engine.cursor import FullyBufferedCursorFetchStrategy

from zapdb.errors import StorageError, TransactionConflict, ZapdbError
from zapdb.storage.cells import check_rows
from zapdb.storage.driver_errors import DuplicateKey, Refusal, StatementRefused, connection_lost
from zapdb.storage.interruption import Refusing, raise_interrupted
from zapdb.storage.transaction_modes import TransactionMode

if TYPE_CHECKING:
    from zapdb.storage.open_transaction import OpenTransaction
    from zapdb.storage.own_writes import WritesToTell
    from zapdb.storage.pipelined import PipelineQueue
    from zapdb.storage.savepoints import WrittenAtCommit
    from zapdb.storage.sequences import DrawnInside
    from zapdb.storage.storage import Storage

Rows = sqlalchemy.CursorResult[*tuple[Any, ...]]
"""The result of a statement of SQLAlchemy Core."""

T = TypeVar("T")


@dataclass(slots=True, eq=False)
class TransactionState:
    """A transaction that a connection is in, from the end of its BEGIN, or from when that is
    queued."""

    mode: TransactionMode
    serial: int
    """Identifies it in this process."""
    began: float
    """When, by the monotonic clock."""
    queue: PipelineQueue | None = None
    """What queues its statements, if they are queued."""
    pending: WrittenAtCommit | None = None
    """Its changes for the change log."""
    to_tell: WritesToTell | None = None
    """What it has written, to be told to iterations that are under way."""
    drawn: DrawnInside | None = None
    """The blocks of sequences that it drew itself."""
    token: Any = None
    """The commit token that tells the outcome of its COMMIT, if one was requested."""
    checked: dict[object, int] = field(default_factory=dict)
    """The writers that have checked whether they may write in it."""
    pinned: dict[object, Any] = field(default_factory=dict)
    """The tenant catalogs as of its snapshot, by the object that loaded them."""
    is_rollback_only: bool = False
    """Whether rolling back a savepoint failed, so that all of it must be rolled back."""
    is_committing: bool = False


@dataclass(slots=True, eq=False)
class Loan:
    """One of the places of open transactions, which a connection has."""

    of: weakref.ref[OpenTransaction] | None = None
    """The transaction, once it has begun."""
    dropped: weakref.finalize[..., Any] | None = None
    """Gives the connection back when the transaction is dropped without being left."""


class PendingRows:
    """The answer to a question that was sent with `Connection.fetch_later`."""

    def __init__(self, connection: Connection, rows: list[Any] | None = None) -> None:
        self._connection = connection
        self.answered = rows
        """The rows, if they have come."""

    @property
    def rows(self) -> list[Any]:
        """The rows; the question is sent now if it is still queued."""
        if self.answered is None:
            self._connection.flush()
        assert self.answered is not None
        return self.answered


class Connection:
    """The connection of a thread or of an open transaction: SQLAlchemy's, with the driver's in it.

    If the database ended them between two transactions, both are replaced. Outside a transaction,
    methods that fetch rows run only reading statements, which are repeated on a new connection if
    the old one was lost.
    """

    def __init__(self, storage: Storage, core: sqlalchemy.Connection) -> None:
        self.storage = storage
        self.transaction: TransactionState | None = None
        """The transaction that it is in."""
        self.keeper: threading.Thread | Loan | None = threading.current_thread()
        """The thread that keeps it, or the place that it has; None while it lies idle."""
        self.refused: Callable[[], object] | None = None
        """Raises why no further statement may begin: its call was interrupted, or the database is
        closed."""
        self.refusal: ZapdbError | None = None
        """Why its present statement was cancelled."""
        self.uses = 0
        """The number of running statements of its thread; it must not be closed meanwhile."""
        self.has_turn = False
        """Whether it has the turn to write, if the engine has a queue of writers."""
        self.queue: PipelineQueue | None = storage.engine.make_queue(self)
        """Queues the statements of writing transactions, if the engine can send several at once."""
        self.use(core)

    def use(self, core: sqlalchemy.Connection) -> None:
        """Run all later statements on a connection that has just left the pool."""
        self.core = core
        self.driver: Any = core.connection.dbapi_connection
        self.connected_after = self.storage.pool.invalidation.connected_after(core)
        executor = self.storage.engine.executor(self.driver)
        self._executor = executor if self.queue is None else self.queue.use(core, executor)

    @property
    def mode(self) -> TransactionMode | None:
        """The kind of its transaction; None outside of one."""
        return None if self.transaction is None else self.transaction.mode

    @property
    def is_interrupted(self) -> bool:
        """Whether statements on it were cancelled: it is never used again."""
        return self.refused is raise_interrupted

    def refuse(self, refused: Callable[[], object]) -> None:
        """Refuse all statements from now on, by a function that raises the error; `uses` counts
        those that are running."""
        self.refused = refused
        self._executor = Refusing(refused)

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Keep the connection from being closed while the block runs statements on it."""
        self.uses += 1
        try:
            if self.refused is not None and not self.is_interrupted:
                self.refused()
            yield
        finally:
            self.uses -= 1

    def fetch_one(self, sql: str, parameters: Sequence[Any] = ()) -> Any:
        """Return the first row of a statement of the hot path, or None."""
        self.uses += 1  # before the executor is read
        try:
            return self._executor.execute(sql, parameters).fetchone()
        except Exception as error:
            return self._retry_on_new_connection(
                error, lambda: self._executor.execute(sql, parameters).fetchone()
            )
        finally:
            self.uses -= 1

    def fetch_all(self, sql: str, parameters: Sequence[Any] = ()) -> list[Any]:
        self.uses += 1
        try:
            rows: list[Any] = self._executor.execute(sql, parameters).fetchall()
        except Exception as error:
            return self._retry_on_new_connection(
                error, lambda: self._executor.execute(sql, parameters).fetchall()
            )
        finally:
            self.uses -= 1
        return rows

    def run(self, sql: str, parameters: Sequence[Any] = ()) -> int:
        """Execute a statement; return the number of rows that it changed."""
        self.uses += 1
        try:
            count: int = self._executor.execute(sql, parameters).rowcount
        except Exception as error:
            raise self.meaning(error) from error
        finally:
            self.uses -= 1
        return count

    def send(
        self, sql: str, parameters: Sequence[Any] = (), refused: Refusal | None = None
    ) -> None:
        """Execute a statement that has no result; it only must not fail.

        If the engine has pipelines, the statement is queued. Its error is raised by the first call
        that needs an answer: a query, `flush`, or COMMIT. `refused` makes the error for an existing
        key; without it, `DuplicateKey` is raised.
        """
        transaction = self.transaction
        if transaction is not None and transaction.queue is not None:
            transaction.queue.wait(sql, parameters, refused)
            return
        self.uses += 1
        try:
            self._executor.execute(sql, parameters)
        except Exception as error:
            meaning = self.meaning(error)
            if refused is None or not isinstance(meaning, DuplicateKey):
                raise meaning from error
            raise refused() from None
        finally:
            self.uses -= 1

    def send_many(
        self, sql: str, rows: Iterable[Sequence[Any]], refused: Refusal | None = None
    ) -> None:
        """Send the statement for each row of parameters."""
        transaction = self.transaction
        if transaction is not None and transaction.queue is not None:
            for row in rows:
                transaction.queue.wait(sql, row, refused)
            return
        try:
            self.run_many(sql, rows)
        except DuplicateKey:
            if refused is None:
                raise
            raise refused() from None

    def require(self, condition: str, parameters: Sequence[Any], refused: Refusal) -> None:
        """Continue only if a condition in SQL is true; else the error that `refused` makes is
        raised, here or at the point that `send` describes."""
        transaction = self.transaction
        if transaction is not None and transaction.queue is not None:
            sql = f"SELECT 1 / (CASE WHEN {condition} THEN 1 ELSE 0 END)"
            transaction.queue.wait(sql, parameters, refused)
        elif not self.fetch_one(f"SELECT {condition}", parameters)[0]:
            raise refused()

    def fetch_later(
        self, sql: str, parameters: Sequence[Any] = (), refused: Refusal | None = None
    ) -> PendingRows:
        """Ask a question whose answer is not needed before that of the next one: if the engine has
        pipelines, both are one round trip. It fails as `send` does; a division by zero in it is
        refused, too."""
        transaction = self.transaction
        if transaction is None or transaction.queue is None:
            return PendingRows(self, self.fetch_all(sql, parameters))
        later = PendingRows(self)
        transaction.queue.wait(sql, parameters, refused, later=later)
        return later

    def flush(self) -> None:
        """Send the queued statements, and raise their error."""
        if self.queue is not None:
            self.queue.flush()

    @property
    def is_unbegun(self) -> bool:
        """Whether the BEGIN of its transaction is still queued."""
        return self.queue is not None and self.queue.is_unbegun

    @contextmanager
    def before_beginning(self) -> Iterator[bool]:
        """Run the block's statements before the BEGIN of the transaction, each by itself, if that
        is still queued; gives whether it is."""
        if self.queue is None or not self.queue.is_unbegun:
            yield False
            return
        queue_again = self.queue.put_aside()
        try:
            yield True
        finally:
            queue_again()

    @property
    def is_unused(self) -> bool:
        """Whether no statement has run in its transaction, because its BEGIN is still queued."""
        return self.queue is not None and self.queue.is_unused

    @property
    def is_waiting(self) -> bool:
        """Whether statements are queued."""
        return self.queue is not None and self.queue.is_waiting

    @property
    def is_pipelined(self) -> bool:
        """Whether statements are queued now."""
        return self.transaction is not None and self.transaction.queue is not None

    def note_begun(self) -> None:
        """Note that the statements queued so far only begin the transaction."""
        if self.queue is not None:
            self.queue.note_begun()

    def end_transaction(self) -> None:
        """Note that its transaction has ended, or is not to be continued."""
        transaction, self.transaction = self.transaction, None
        if transaction is not None and transaction.drawn is not None:
            transaction.drawn.is_open = False

    def require_committable(self) -> None:
        """Raise `TransactionConflict` if a savepoint could not be rolled back."""
        if self.transaction is not None and self.transaction.is_rollback_only:
            raise TransactionConflict(
                "rolling back a savepoint failed, so the whole transaction was rolled back",
                database=self.storage.shown_url,
                hint="nothing was written; run it again",
            )

    # Savepoints. If a statement about one fails, it is unknown which savepoints exist and what the
    # next rollback would undo, so the transaction must not be committed.

    def begin_savepoint(self) -> object:
        """Begin a savepoint; returns the object that rolls it back."""
        transaction = self.transaction
        if transaction is not None and transaction.queue is not None:
            return transaction.queue.begin_savepoint()
        with self._or_abort():
            self.run("SAVEPOINT zapdb")
        return None

    def release_savepoint(self) -> None:
        transaction = self.transaction
        if transaction is not None and transaction.queue is not None:
            transaction.queue.release_savepoint()
            return
        with self._or_abort():
            self.run("RELEASE SAVEPOINT zapdb")

    def undo_savepoint(self, mark: object) -> None:
        """Roll back to a savepoint, and end it."""
        transaction = self.transaction
        if transaction is None:
            return
        if transaction.queue is not None:
            transaction.queue.undo_savepoint(mark)
            return
        if transaction.is_rollback_only:
            return
        with self._or_abort():
            self.run("ROLLBACK TO SAVEPOINT zapdb")
            self.run("RELEASE SAVEPOINT zapdb")
            if transaction.drawn is not None:
                transaction.drawn.draw_again(self.driver, self.storage.placeholder)

    @contextmanager
    def _or_abort(self) -> Iterator[None]:
        transaction = self.transaction
        try:
            yield
        except BaseException:
            if transaction is not None:
                transaction.is_rollback_only = True
            raise

    def run_many(self, sql: str, rows: Iterable[Sequence[Any]]) -> None:
        self.flush()
        try:
            with self.in_use():
                self.storage.engine.execute_many(self.driver, sql, rows)
        except Exception as error:
            raise self.meaning(error) from error

    def copy(self, sql: str, data: Iterable[bytes], refused: Refusal | None = None) -> None:
        """Send rows to the server by a statement that takes them, after all queued ones; only where
        the engine has such statements."""
        self.flush()
        try:
            with self.in_use():
                self.storage.engine.copy_in(self.driver, sql, data)
        except Exception as error:
            meaning = self.meaning(error)
            if refused is None or not isinstance(meaning, DuplicateKey):
                raise meaning from error
            raise refused() from None

    def core_execute(self, statement: sqlalchemy.Executable) -> Rows:
        """Execute a statement of SQLAlchemy Core, and fetch its rows."""
        if self.queue is not None:
            self.queue.flush()
        try:
            return self._core_execute(statement)
        except Exception as error:  # of the driver, too: while fetching, or after it was lost
            if not statement.is_select:
                raise self.meaning(error) from error
            return self._retry_on_new_connection(error, lambda: self._core_execute(statement))

    def _core_execute(self, statement: sqlalchemy.Executable) -> Rows:
        with self.in_use():
            return self._execute_in_use(statement)

    def _execute_in_use(self, statement: sqlalchemy.Executable) -> Rows:
        result = self.core.execute(statement)
        if result.returns_rows and result.cursor is not None:
            rows = result.cursor.fetchall()
            check_rows(statement, rows)
            result.cursor_strategy = FullyBufferedCursorFetchStrategy(
                result.cursor, initial_buffer=rows
            )
        assert isinstance(result, sqlalchemy.CursorResult)
        return result

    def _retry_on_new_connection(self, error: Exception, question: Callable[[], T]) -> T:
        """Repeat a statement on a new connection, if the old one was lost outside a transaction;
        else raise the meaning of `error`."""
        is_over = self.transaction is not None or self.is_interrupted
        if is_over or not self.storage.pool.reconnect(self):
            raise self.meaning(error) from error
        try:
            return question()
        except Exception as again:
            raise self.meaning(again) from again

    def meaning(self, error: BaseException) -> Exception:
        """Return zapdb's error for an error of the driver."""
        if self.refusal is not None:
            refusal, self.refusal = self.refusal, None
            return refusal
        # A lost connection is replaced, but not inside a transaction: the transaction's later
        # statements must not succeed on another connection.
        engine, transaction = self.storage.engine, self.transaction
        if transaction is None and engine.is_lost(self.driver):
            self.storage.pool.discard_connection(self)
        if isinstance(error, ZapdbError | StatementRefused | DuplicateKey):  # not of the driver
            return error
        if isinstance(error, sqlalchemy.exc.DBAPIError):
            error = error.orig or error
        found = engine.translate(error)
        if type(found) is StorageError and self.refused and not self.is_interrupted:
            try:  # the database was closed, which cancels its statements
                self.refused()
            except ZapdbError as refusal:
                return refusal
        is_writing = transaction is not None and not transaction.mode.only_reads
        # Nothing was committed, so it can be repeated; but a full disk stays full.
        if is_writing and type(found) is StorageError and engine.is_lost(self.driver):
            return connection_lost(self.storage.shown_url, str(error))
        return found
