"""A connection to PostgreSQL that queues statements and sends them together.

The statements of a writing transaction are queued until a result is needed: for a query, the end of
a savepoint, or COMMIT. They are then sent with it, in one pipeline (see `pipeline`). BEGIN and the
gate are queued, too. Each statement carries the error that its failure means, so it does not matter
when it fails. The queue is never longer than a pipeline can be.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import starmap
from typing import TYPE_CHECKING, Any, Final

import psycopg
import sqlalchemy

from zapdb.errors import StorageError, TransactionConflict
from zapdb.limits import PIPELINE_SIZE_BYTES_MAX, PIPELINE_STATEMENTS_MAX
from zapdb.storage.connection import Connection, PendingRows, Rows
from zapdb.storage.driver_errors import DuplicateKey, Refusal, connection_lost
from zapdb.storage.interruption import Refusing
from zapdb.storage.pipeline import Answer, Outcome, Pipeline, Statement, Value
from zapdb.storage.transaction_modes import TransactionMode

if TYPE_CHECKING:
    from zapdb.storage.storage import Storage

_PIPELINE: Final = "zapdb pipeline"
"""The key in the pool's data about a connection."""
COMMIT: Final = "COMMIT"
PIPELINED_MODES: Final = frozenset({TransactionMode.WRITE, TransactionMode.JOB})
"""Transactions whose statements are queued."""
SAVEPOINT: Final = "SAVEPOINT zapdb"


class _Cursor:
    """Runs one statement: on the driver's cursor, or in a pipeline while statements are queued."""

    def __init__(self, connection: PipelinedConnection, cursor: Any) -> None:
        self._connection = connection
        self._cursor = cursor
        self._answer = Answer("", [])

    def execute(self, sql: str, parameters: Sequence[Any]) -> Any:
        if not self._connection.waiting:
            return self._cursor.execute(sql, parameters)
        self._answer = self._connection.ask(Statement(sql, parameters))
        return self

    def fetchone(self) -> Any:
        return self._answer.rows[0] if self._answer.rows else None

    def fetchall(self) -> list[Any]:
        return list(self._answer.rows)

    @property
    def rowcount(self) -> int:
        count = self._answer.status.rpartition(" ")[2]
        return int(count) if count.isdigit() else -1


class PipelinedConnection(Connection):
    """A connection on which statements may be queued."""

    can_pipeline = True

    def __init__(self, storage: Storage, core: sqlalchemy.Connection) -> None:
        self.waiting: list[Statement] = []
        """The queued statements, in order."""
        self._size_bytes = 0
        self._has_failed_to_begin = False
        """Whether the last pipeline failed before anything was done in its transaction."""
        self._unmade: list[Statement] = []
        """The savepoints after the statement that failed then."""
        super().__init__(storage, core)

    def use(self, core: sqlalchemy.Connection) -> None:
        super().use(core)
        self._forget()
        self._executor = _Cursor(self, self._executor)
        pipeline = core.info.get(_PIPELINE)
        if pipeline is None:
            pipeline = core.info[_PIPELINE] = Pipeline(self.driver, self.storage.qualify)
        self._pipeline: Pipeline = pipeline

    @property
    def is_pipelined(self) -> bool:
        return self.mode in PIPELINED_MODES

    @property
    def is_unbegun(self) -> bool:
        return bool(self.waiting) and self.waiting[0].begins

    @property
    def is_unused(self) -> bool:
        return bool(self.waiting) and all(statement.begins for statement in self.waiting)

    @property
    def is_waiting(self) -> bool:
        return bool(self.waiting)

    # Sending

    def begin(self, *statements: str) -> None:
        """Begin a transaction with the first statement that is sent."""
        self._forget()
        self.is_refused = self._has_failed_to_begin = False
        self._unmade = []
        self.waiting = [Statement(sql, begins=True) for sql in statements]

    @contextmanager
    def before_beginning(self) -> Iterator[bool]:
        if not self.is_unbegun:
            yield False
            return
        waiting, size_bytes = self.waiting, self._size_bytes
        self._forget()
        try:
            yield True
        finally:
            self.waiting, self._size_bytes = waiting, size_bytes

    def note_begun(self) -> None:
        for statement in self.waiting:
            statement.begins = True

    def send(
        self, sql: str, parameters: Sequence[Any] = (), refused: Refusal | None = None
    ) -> None:
        if not self.is_pipelined:
            super().send(sql, parameters, refused)
            return
        self._wait(Statement(sql, parameters, refused))

    def send_many(
        self, sql: str, rows: Iterable[Sequence[Any]], refused: Refusal | None = None
    ) -> None:
        if not self.is_pipelined:
            super().send_many(sql, rows, refused)
            return
        for row in rows:
            self._wait(Statement(sql, row, refused))

    def require(self, condition: str, parameters: Sequence[Any], refused: Refusal) -> None:
        if not self.is_pipelined:
            super().require(condition, parameters, refused)
            return
        sql = f"SELECT 1 / (CASE WHEN {condition} THEN 1 ELSE 0 END)"
        self._wait(Statement(sql, parameters, refused))

    def fetch_later(
        self, sql: str, parameters: Sequence[Any] = (), refused: Refusal | None = None
    ) -> PendingRows:
        if not self.is_pipelined:
            return super().fetch_later(sql, parameters, refused)
        later = PendingRows(self)
        self._wait(Statement(sql, parameters, refused, later=later))
        return later

    def flush(self) -> None:
        if self.waiting:
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

    def roll_back(self) -> None:
        """Roll back the transaction, if it was begun."""
        self._forget()
        if self.driver.info.transaction_status != psycopg.pq.TransactionStatus.IDLE:
            again = [] if self.drawn is None else self.drawn.again(self.storage.placeholder)
            # psycopg would drop all prepared statements, also zapdb's.
            # Another process may have drawn the same numbers in between, so none is kept in hand.
            self._pipeline.run([Statement("ROLLBACK"), *starmap(Statement, again)])

    def _forget(self) -> None:
        self.waiting, self._size_bytes = [], 0

    # Savepoints

    def take_unmade_savepoints(self) -> list[Statement]:
        return self._unmade

    def make_savepoints(self, marks: list[Statement]) -> None:
        for mark in marks:
            self._wait(mark)

    def begin_savepoint(self) -> object:
        if not self.is_pipelined:
            return super().begin_savepoint()
        mark = Statement(SAVEPOINT, dooms=True)
        self._wait(mark)
        return mark

    def release_savepoint(self) -> None:
        if not self.is_pipelined:
            super().release_savepoint()
            return
        self._wait(Statement("RELEASE SAVEPOINT zapdb", dooms=True))
        self.flush()

    def undo_savepoint(self, mark: object) -> None:
        if not self.is_pipelined:
            super().undo_savepoint(mark)
            return
        for at, statement in enumerate(self.waiting):
            if statement is mark:
                del self.waiting[at:]
                return
        self._forget()
        self._unmade = [unmade for unmade in self._unmade if unmade is not mark]
        if self.is_rollback_only or self._has_failed_to_begin:
            return
        self._wait(Statement("ROLLBACK TO SAVEPOINT zapdb", dooms=True))
        self._wait(Statement("RELEASE SAVEPOINT zapdb", dooms=True))
        if self.drawn is not None:
            for sql, parameters in self.drawn.again(self.storage.placeholder):
                self._wait(Statement(sql, parameters, dooms=True))
        self.flush()

    # How

    def run_many(self, sql: str, rows: Iterable[Sequence[Any]]) -> None:
        self.flush()
        super().run_many(sql, rows)

    def core_execute(self, statement: sqlalchemy.Executable) -> Rows:
        self.flush()
        return super().core_execute(statement)

    def _wait(self, statement: Statement) -> None:
        size_bytes = sum(map(_size_bytes, statement.parameters))
        is_full = len(self.waiting) >= PIPELINE_STATEMENTS_MAX - 1
        if is_full or self._size_bytes + size_bytes > PIPELINE_SIZE_BYTES_MAX:
            self.flush()
        self.waiting.append(statement)
        self._size_bytes += size_bytes

    def _translating(self, question: Statement | None) -> Outcome:
        try:
            return self._exchange(question)
        except psycopg.Error as error:
            meaning = self.meaning(error)
            if self._has_failed_to_begin and type(meaning) is StorageError:
                raise connection_lost(self.storage.shown_url, str(error)) from error
            raise meaning from error

    def _exchange(self, last: Statement | None) -> Outcome:
        """Send all queued statements and one more; raises the error of the one that failed, and the
        driver's error if the connection is lost."""
        if isinstance(self._executor, Refusing):
            self.is_refused = True
            self._executor.execute()
        statements, began = self.waiting, time.monotonic()
        if last is not None:
            statements.append(last)
        self._forget()
        self.is_refused = False
        self.uses += 1
        try:
            outcome = self._pipeline.run(statements)
        except BaseException as error:
            self._has_failed_to_begin = statements[0].begins
            # After an error in a savepoint's statement, its state is unknown; after Ctrl-C, the
            # state of every statement is.
            is_known = isinstance(error, Exception) and not any(s.dooms for s in statements)
            self.is_rollback_only = self.is_rollback_only or not is_known
            raise
        finally:
            self.uses -= 1
        for statement, answer in zip(statements, outcome.answers, strict=False):
            if statement.later is not None:
                statement.later.answered = answer.rows
        if statements[0].begins:
            self.storage.note_gate(time.monotonic() - began, self.mode)
        if outcome.error is not None:
            failed = len(outcome.answers)
            if statements[failed].begins:
                self._unmade = [one for one in statements[failed:] if one.sql == SAVEPOINT]
            raise self._refusal_of(statements[failed], outcome.error)
        return outcome

    def _refusal_of(self, statement: Statement, error: psycopg.Error) -> Exception:
        self._has_failed_to_begin = statement.begins
        if error.diag.severity_nonlocalized != "ERROR":
            return error  # the session has ended, and maybe the server
        self.is_refused = True
        meaning = self.meaning(error)
        is_refusal = isinstance(meaning, DuplicateKey) or isinstance(
            error, psycopg.errors.DivisionByZero
        )
        self.is_rollback_only = (
            self.is_rollback_only or statement.dooms or (statement.begins and not is_refusal)
        )
        if statement.refused is not None and is_refusal:
            return statement.refused()
        meaning.__cause__ = error
        return meaning


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
