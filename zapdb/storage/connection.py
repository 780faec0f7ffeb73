"""A connection, and the statements that run on it.

The half dozen statements of the hot path run on the driver's cursor; all others go through
SQLAlchemy Core on the same connection.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import sqlalchemy
from sqlalchemy.engine.cursor import FullyBufferedCursorFetchStrategy

from zapdb.errors import StorageError, ZapdbError
from zapdb.storage.cells import check_rows
from zapdb.storage.driver_errors import DuplicateKey, Refusal, StatementRefused, connection_lost
from zapdb.storage.interruption import Refusing, raise_interrupted
from zapdb.storage.transaction_modes import TransactionMode

if TYPE_CHECKING:
    from zapdb.storage.open_transaction import OpenTransaction
    from zapdb.storage.own_writes import WritesToTell
    from zapdb.storage.pipeline import Statement
    from zapdb.storage.savepoints import WrittenAtCommit
    from zapdb.storage.sequences import DrawnInside
    from zapdb.storage.storage import Storage

Rows = sqlalchemy.CursorResult[*tuple[Any, ...]]
"""The result of a statement of SQLAlchemy Core."""

T = TypeVar("T")


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
        self.use(core)
        self.keeper: threading.Thread | None = threading.current_thread()
        """The thread that keeps it; None if it is lent to an open transaction."""
        self.dropped: weakref.finalize[..., Any] | None = None
        """Releases it when its open transaction is dropped without being left."""
        self.lent_to: weakref.ref[OpenTransaction] | None = None
        """The open transaction that it was lent to."""
        self.has_place = False
        """Whether it has one of the places of open transactions."""
        self.refusal: ZapdbError | None = None
        """Why its statement was cancelled."""
        self.is_interrupted = False
        """Whether statements on it were cancelled, and are refused: it is never used again."""
        self.is_abandoned = False
        """Whether its thread ended inside a transaction, which was rolled back."""
        self.is_rollback_only = False
        """Whether rolling back a savepoint failed, so that the whole transaction must be rolled
        back."""
        self.mode: TransactionMode | None = None
        self.is_refused = False
        """Whether a statement of the last pipeline failed, so that no later one was run."""
        self.uses = 0
        """The number of running statements of its thread; it must not be closed meanwhile."""
        self.is_closing = False
        """Whether no further statement may begin."""
        self.is_committing = False
        self.serial = 0
        """Identifies its transaction, or the last one, in this process."""
        self.holds_writer_lock = False
        """Whether it has the turn to write, if the engine has a queue of writers."""
        self.pending: WrittenAtCommit | None = None
        """The changes of the transaction for the change log."""
        self.to_tell: WritesToTell | None = None
        """What the transaction has written, to be told to iterations that are under way."""
        self.drawn: DrawnInside | None = None
        """The blocks of sequences that the transaction, or the last one, drew itself."""
        self.token: Any = None
        """The commit token that tells the outcome of its COMMIT, if one was requested."""
        self.checked: dict[object, int] = {}
        """The writers that have checked whether they may write in its transaction."""
        self.pinned: dict[object, Any] = {}
        """The tenant catalogs as of its snapshot, by the object that loaded them."""

    def use(self, core: sqlalchemy.Connection) -> None:
        """Run all later statements on a connection that has just left the pool."""
        self.core = core
        self.driver: Any = core.connection.dbapi_connection
        self.connected_after = self.storage.invalidation.connected_after(core)
        self._executor = self.storage.executor(self.driver)

    def interrupt(self) -> None:
        """Refuse all statements from now on: the connection's call was interrupted."""
        self.is_interrupted = True
        self._executor = Refusing(raise_interrupted)

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Keep the connection from being closed while the block runs statements on it."""
        self.uses += 1
        try:
            if self.is_closing:
                self.storage.require_open()
            yield
        finally:
            self.uses -= 1

    def close_for_statements(self) -> None:
        """Begin no further statement: the database is closed; `uses` counts the running ones."""
        self.is_closing = True
        self._executor = Refusing(self.storage.require_open)

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
        try:
            self.run(sql, parameters)
        except DuplicateKey:
            if refused is None:
                raise
            raise refused() from None

    def send_many(
        self, sql: str, rows: Iterable[Sequence[Any]], refused: Refusal | None = None
    ) -> None:
        """Send the statement for each row of parameters."""
        try:
            self.run_many(sql, rows)
        except DuplicateKey:
            if refused is None:
                raise
            raise refused() from None

    def require(self, condition: str, parameters: Sequence[Any], refused: Refusal) -> None:
        """Continue only if a condition in SQL is true; else the error that `refused` makes is
        raised, here or at the point that `send` describes."""
        if not self.fetch_one(f"SELECT {condition}", parameters)[0]:
            raise refused()

    def fetch_later(
        self, sql: str, parameters: Sequence[Any] = (), refused: Refusal | None = None
    ) -> PendingRows:
        """Ask a question whose answer is not needed before that of the next one: if the engine has
        pipelines, both are one round trip. It fails as `send` does; a division by zero in it is
        refused, too."""
        return PendingRows(self, self.fetch_all(sql, parameters))

    def flush(self) -> None:
        """Send the queued statements, and raise their error."""

    @property
    def is_unbegun(self) -> bool:
        """Whether the BEGIN of its transaction is still queued."""
        return False

    @contextmanager
    def before_beginning(self) -> Iterator[bool]:
        """Run the block's statements before the BEGIN of the transaction, each by itself, if that
        is still queued; gives whether it is."""
        yield False

    @property
    def is_unused(self) -> bool:
        """Whether no statement has run in its transaction, because its BEGIN is still queued."""
        return False

    @property
    def is_waiting(self) -> bool:
        """Whether statements are queued."""
        return False

    can_pipeline = False
    """Whether statements of writing transactions can be queued."""

    @property
    def is_pipelined(self) -> bool:
        """Whether statements are queued now."""
        return False

    def note_begun(self) -> None:
        """Note that the statements queued so far only begin the transaction."""

    # Savepoints. If a statement about one fails, it is unknown which savepoints exist and what the
    # next rollback would undo, so the transaction must not be committed.

    def take_unmade_savepoints(self) -> list[Statement]:
        """Return the open savepoints that the server never made, because the transaction failed to
        begin."""
        return []

    def make_savepoints(self, marks: list[Statement]) -> None:
        """Begin the savepoints again in the transaction that was begun again."""

    def begin_savepoint(self) -> object:
        """Begin a savepoint; returns the object that rolls it back."""
        self._run_or_abort("SAVEPOINT zapdb")
        return None

    def release_savepoint(self) -> None:
        self._run_or_abort("RELEASE SAVEPOINT zapdb")

    def undo_savepoint(self, mark: object) -> None:
        """Roll back to a savepoint, and end it."""
        if not self.is_rollback_only:
            self._run_or_abort("ROLLBACK TO SAVEPOINT zapdb")
            self._run_or_abort("RELEASE SAVEPOINT zapdb")
            if self.drawn is not None:
                self._draw_again(self.drawn)

    def _draw_again(self, drawn: DrawnInside) -> None:
        try:
            drawn.draw_again(self.driver, self.storage.placeholder)
        except BaseException:
            self.is_rollback_only = True
            raise

    def _run_or_abort(self, sql: str) -> None:
        try:
            self.run(sql)
        except BaseException:
            self.is_rollback_only = True
            raise

    def run_many(self, sql: str, rows: Iterable[Sequence[Any]]) -> None:
        try:
            with self.in_use():
                self.storage.execute_many(self.driver, sql, rows)
        except Exception as error:
            raise self.meaning(error) from error

    def copy(self, sql: str, data: Iterable[bytes], refused: Refusal | None = None) -> None:
        """Send rows to the server by a statement that takes them, after all queued ones; only where
        the engine has such statements."""
        try:
            self.flush()
            with self.in_use():
                self.storage.copy_in(self.driver, sql, data)
        except Exception as error:
            meaning = self.meaning(error)
            if refused is None or not isinstance(meaning, DuplicateKey):
                raise meaning from error
            raise refused() from None

    def core_execute(self, statement: sqlalchemy.Executable) -> Rows:
        """Execute a statement of SQLAlchemy Core, and fetch its rows."""
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
        is_over = self.mode is not None or self.is_interrupted
        if is_over or not self.storage.reconnect(self):
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
        if self.mode is None and self.storage.is_lost(self.driver):
            self.storage.discard_connection(self)
        if isinstance(error, ZapdbError | StatementRefused | DuplicateKey):  # not of the driver
            return error
        if isinstance(error, sqlalchemy.exc.DBAPIError):
            error = error.orig or error
        found = self.storage.translate(error)
        is_writing = self.mode is not None and not self.mode.only_reads
        # Nothing was committed, so it can be repeated; but a full disk stays full.
        if is_writing and type(found) is StorageError and self.storage.is_lost(self.driver):
            return connection_lost(self.storage.shown_url, str(error))
        return found
