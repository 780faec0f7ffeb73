"""A connection to PostgreSQL that queues statements and sends them together.

The statements of a writing transaction are queued until a result is needed: for a query, the end of
a savepoint, or COMMIT. They are then sent with it, in one pipeline (see `pipeline`). BEGIN and the
gate are queued, too. Each statement carries the error that its failure means, so it does not matter
when it fails. The queue is never longer than a pipeline can be.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

import psycopg
import sqlalchemy

from zapdb.errors import StorageError, TransactionConflict
from zapdb.limits import PIPELINE_SIZE_BYTES_MAX, PIPELINE_STATEMENTS_MAX
from zapdb.storage.driver_errors import DuplicateKey, Refusal, connection_lost
from zapdb.storage.pipeline import Answer, Outcome, Pipeline, Statement, Value

if TYPE_CHECKING:
    from zapdb.storage.connection import Connection, PendingRows
    from zapdb.storage.sequences import DrawnInside

_PIPELINE: Final = "zapdb pipeline"
"""The key in the pool's data about a connection."""
COMMIT: Final = "COMMIT"
SAVEPOINT: Final = "SAVEPOINT zapdb"


class _Cursor:
    """Runs one statement: on the driver's cursor, or in a pipeline while statements are queued."""

    def __init__(self, queue: PipelineQueue, cursor: Any) -> None:
        self._queue = queue
        self._cursor = cursor
        self._answer = Answer("", [])

    def execute(self, sql: str, parameters: Sequence[Any]) -> Any:
        if not self._queue.is_waiting:
            return self._cursor.execute(sql, parameters)
        self._answer = self._queue.ask(Statement(sql, parameters))
        return self

    def fetchone(self) -> Any:
        return self._answer.rows[0] if self._answer.rows else None

    def fetchall(self) -> list[Any]:
        return list(self._answer.rows)

    @property
    def rowcount(self) -> int:
        count = self._answer.status.rpartition(" ")[2]
        return int(count) if count.isdigit() else -1


class PipelineQueue:
    """The queue of a connection."""

    def __init__(self, connection: Connection, qualify: Callable[[str, Any], str]) -> None:
        """`qualify` gives a statement with the schema of its tables: see `home_schema`."""
        self._connection = connection
        self._qualify = qualify
        self._waiting: list[Statement] = []
        """The queued statements, in order."""
        self._size_bytes = 0
        self._has_failed_to_begin = False
        """Whether the last pipeline failed before anything was done in its transaction."""
        self.unmade: Sequence[Statement] = ()
        """The open savepoints that the server never made, because the transaction failed to
        begin."""
        self.is_refused = False
        """Whether a statement of the last pipeline failed, so that no later one was run."""

    def use(self, core: sqlalchemy.Connection, executor: Any) -> Any:
        """Send to a connection that has just left the pool; returns what runs statements on it from
        now on, instead of the executor."""
        self._forget()
        pipeline = core.info.get(_PIPELINE)
        if pipeline is None:
            driver = core.connection.dbapi_connection
            pipeline = core.info[_PIPELINE] = Pipeline(driver, self._qualify)
        self._pipeline: Pipeline = pipeline
        return _Cursor(self, executor)

    @property
    def is_waiting(self) -> bool:
        """Whether statements are queued."""
        return bool(self._waiting)

    @property
    def is_unbegun(self) -> bool:
        """Whether the BEGIN of the transaction is still queued."""
        return bool(self._waiting) and self._waiting[0].begins

    @property
    def is_unused(self) -> bool:
        """Whether nothing but the BEGIN of the transaction is queued, and nothing was sent."""
        return bool(self._waiting) and all(statement.begins for statement in self._waiting)

    def begin(self, *statements: str) -> None:
        """Begin a transaction with the first statement that is sent."""
        self._forget()
        self.is_refused = self._has_failed_to_begin = False
        self.unmade = ()
        self._waiting = [Statement(sql, begins=True) for sql in statements]

    def note_begun(self) -> None:
        """Note that the statements queued so far only begin the transaction."""
        for statement in self._waiting:
            statement.begins = True

    def put_aside(self) -> Callable[[], None]:
        """Queue nothing until the function is called that is returned."""
        waiting, size_bytes = self._waiting, self._size_bytes
        self._forget()

        def queue_again() -> None:
            self._waiting, self._size_bytes = waiting, size_bytes

        return queue_again

    def wait(
        self,
        sql: str,
        parameters: Sequence[Any] = (),
        refused: Refusal | None = None,
        *,
        later: PendingRows | None = None,
    ) -> None:
        """Queue a statement: see `Connection.send`."""
        self._wait(Statement(sql, parameters, refused, later=later))

    def flush(self) -> None:
        """Send the queued statements, and raise their error."""
        if self._waiting:
            self._translating(None)

    def ask(self, question: Statement) -> Answer:
        """Send a statement after all queued ones, and return its answer; raises as `fetch_one`."""
        return self._translating(question).answers[-1]

    def commit(self) -> None:
        """Send COMMIT after all queued statements; raises the driver's error if the outcome is
        unknown. A transaction without statements is not begun."""
        if self.is_unused:
            self._forget()
            return
        outcome = self._exchange(Statement(COMMIT))
        if outcome.answers[-1].status != COMMIT:
            # The server answers the COMMIT of a failed transaction with ROLLBACK, without an error.
            raise TransactionConflict(
                "the transaction had already failed",
                hint="an error inside it was caught and not raised again; run it again",
            )

    def roll_back(self, drawn: DrawnInside | None) -> None:
        """Roll back the transaction, if it was begun; the blocks that it drew stay drawn."""
        self._forget()
        driver = self._connection.driver
        if driver.info.transaction_status != psycopg.pq.TransactionStatus.IDLE:
            again = self._again(drawn)
            # psycopg would drop all prepared statements, also zapdb's.
            # Another process may have drawn the same numbers in between, so none is kept in hand.
            self._pipeline.run([Statement("ROLLBACK"), *again])

    def _again(self, drawn: DrawnInside | None, *, dooms: bool = False) -> list[Statement]:
        """The statements that draw blocks again after a rollback."""
        if drawn is None:
            return []
        again = drawn.again(self._connection.storage.placeholder)
        return [Statement(sql, parameters, dooms=dooms) for sql, parameters in again]

    def _forget(self) -> None:
        self._waiting, self._size_bytes = [], 0

    # Savepoints

    def make_savepoints(self, marks: Sequence[Statement]) -> None:
        """Begin savepoints that were not made in a transaction that has begun again."""
        for mark in marks:
            self._wait(mark)

    def begin_savepoint(self) -> object:
        mark = Statement(SAVEPOINT, dooms=True)
        self._wait(mark)
        return mark

    def release_savepoint(self) -> None:
        self._wait(Statement("RELEASE SAVEPOINT zapdb", dooms=True))
        self.flush()

    def undo_savepoint(self, mark: object) -> None:
        for at, statement in enumerate(self._waiting):
            if statement is mark:
                del self._waiting[at:]
                return
        self._forget()
        self.unmade = [unmade for unmade in self.unmade if unmade is not mark]
        transaction = self._connection.transaction
        if transaction is None or transaction.is_rollback_only or self._has_failed_to_begin:
            return
        self._wait(Statement("ROLLBACK TO SAVEPOINT zapdb", dooms=True))
        self._wait(Statement("RELEASE SAVEPOINT zapdb", dooms=True))
        for statement in self._again(transaction.drawn, dooms=True):
            self._wait(statement)
        self.flush()

    # How

    def _wait(self, statement: Statement) -> None:
        size_bytes = sum(map(_size_bytes, statement.parameters))
        is_full = len(self._waiting) >= PIPELINE_STATEMENTS_MAX - 1
        if is_full or self._size_bytes + size_bytes > PIPELINE_SIZE_BYTES_MAX:
            self.flush()
        self._waiting.append(statement)
        self._size_bytes += size_bytes

    def _translating(self, question: Statement | None) -> Outcome:
        try:
            return self._exchange(question)
        except psycopg.Error as error:
            meaning = self._connection.meaning(error)
            if self._has_failed_to_begin and type(meaning) is StorageError:
                raise connection_lost(self._connection.storage.shown_url, str(error)) from error
            raise meaning from error

    def _exchange(self, last: Statement | None) -> Outcome:
        """Send all queued statements and one more; raises the error of the one that failed, and the
        driver's error if the connection is lost."""
        connection = self._connection
        if connection.refused is not None:
            self.is_refused = True
            connection.refused()
        statements, began = self._waiting, time.monotonic()
        if last is not None:
            statements.append(last)
        self._forget()
        self.is_refused = False
        connection.uses += 1
        try:
            outcome = self._pipeline.run(statements)
        except BaseException as error:
            self._has_failed_to_begin = statements[0].begins
            # After an error in a savepoint's statement, its state is unknown; after Ctrl-C, the
            # state of every statement is.
            is_known = isinstance(error, Exception) and not any(s.dooms for s in statements)
            if not is_known:
                self._doom()
            raise
        finally:
            connection.uses -= 1
        for statement, answer in zip(statements, outcome.answers, strict=False):
            if statement.later is not None:
                statement.later.answered = answer.rows
        if statements[0].begins:
            connection.storage.note_gate(time.monotonic() - began, connection.mode)
        if outcome.error is not None:
            failed = len(outcome.answers)
            if statements[failed].begins:
                self.unmade = [one for one in statements[failed:] if one.sql == SAVEPOINT]
            raise self._refusal_of(statements[failed], outcome.error)
        return outcome

    def _refusal_of(self, statement: Statement, error: psycopg.Error) -> Exception:
        self._has_failed_to_begin = statement.begins
        if error.diag.severity_nonlocalized != "ERROR":
            return error  # the session has ended, and maybe the server
        self.is_refused = True
        meaning = self._connection.meaning(error)
        is_refusal = isinstance(meaning, DuplicateKey) or isinstance(
            error, psycopg.errors.DivisionByZero
        )
        if statement.dooms or (statement.begins and not is_refusal):
            self._doom()
        if statement.refused is not None and is_refusal:
            return statement.refused()
        meaning.__cause__ = error
        return meaning

    def _doom(self) -> None:
        """Note that the transaction must not be committed."""
        if self._connection.transaction is not None:
            self._connection.transaction.is_rollback_only = True


def _size_bytes(given: Any) -> int:
    """Return the approximate size of a parameter in a message."""
    if isinstance(given, bytes):
        return len(given)
    if isinstance(given, Value):
        return len(given.raw or b"")
    if isinstance(given, list):
        is_of_bytes = bool(given) and type(given[0]) is bytes
        return sum(map(len, given)) if is_of_bytes else 8 * len(given)
    return 8
