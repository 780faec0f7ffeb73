"""Transactions and savepoints on a thread's connection.

They are begun and ended by statements of our own, since each kind begins differently (see `modes`).
Where it is not known what became of one, its connection is thrown away.
"""

from __future__ import annotations

import itertools
import logging
import threading
import time
from abc import abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

from zapdb.errors import CommitUnknown, TransactionConflict, UsageError, ZapdbError
from zapdb.limits import GATE_WAIT_LOGGED_SECONDS
from zapdb.logs import log_event
from zapdb.metrics import CONFLICTS, GATE_WAITS
from zapdb.storage.connection import Connection
from zapdb.storage.faults import unexpected
from zapdb.storage.modes import GATES, Mode
from zapdb.storage.pool import ConnectionPool

logger = logging.getLogger("zapdb.storage")

_NUMBERS: Final = itertools.count(1)


class Transactions(ConnectionPool):
    """A thread's transactions, one at a time."""

    @contextmanager
    def transaction(self, mode: Mode, *, alone: bool = False) -> Iterator[Connection]:
        """A transaction of this thread: committed at the end, rolled back on an exception.

        A WRITE that is `alone` has no other writer beside it; raises `TransactionConflict` where
        those that there are do not end soon.
        """
        connection = self.connection()
        if connection.mode is not None:
            raise UsageError(
                "this thread is in a transaction already",
                hint="finish it first; a change of state can't run inside a transaction",
            )
        if mode is not Mode.READ:
            self.refuse_write()
        try:
            try:
                self._begin_measured(connection, mode, alone=alone)
                yield from self._within(connection, mode)
            finally:
                self.ended(connection)
        except TransactionConflict:
            CONFLICTS.add(mode.value)
            raise

    def _within(self, connection: Connection, mode: Mode) -> Iterator[Connection]:
        """A transaction that was begun, to its end."""
        connection.mode, connection.is_doomed = mode, False
        connection.number = next(_NUMBERS)
        began = time.monotonic()
        try:
            yield connection
            self.refuse_use()
            self._refuse_other_thread(connection)
            self._refuse_doomed(connection)
            if connection.pending is not None:
                connection.pending.flush(connection)
                connection.pending = None
            self.before_commit(connection, time.monotonic() - began)
        except BaseException:
            connection.mode = connection.pending = None
            if not (self.is_inherited or connection.is_abandoned):
                self._roll_back(connection)
            raise
        connection.mode = None
        self._commit(connection, mode)

    @contextmanager
    def savepoint(self, connection: Connection) -> Iterator[None]:
        """Part of a transaction: undone on an exception, while the rest of it may go on."""
        self._refuse_doomed(connection)  # where the database ended it, this would begin another
        pending = connection.pending
        self._run_or_doom(connection, "SAVEPOINT zapdb")
        if pending is not None:
            pending.begin_savepoint()
        try:
            yield
            self.refuse_use()
        except BaseException:
            if pending is not None:
                pending.roll_back_savepoint()
            else:
                connection.pending = None  # all of it was done since
            if not self.is_inherited:
                with suppress(ZapdbError):  # what the block raised is what is told
                    self._run_or_doom(connection, "ROLLBACK TO SAVEPOINT zapdb")
                    self._run_or_doom(connection, "RELEASE SAVEPOINT zapdb")
            raise
        self._run_or_doom(connection, "RELEASE SAVEPOINT zapdb")
        if pending is not None:
            pending.release_savepoint(connection)

    def refuse_write(self) -> None:
        """Raises `UsageError` where the database was opened read-only."""
        if self.read_only:
            raise UsageError(
                "the database was opened read-only",
                database=self.shown_url,
                hint="open it without read_only",
            )

    def _begin_measured(self, connection: Connection, mode: Mode, *, alone: bool) -> None:
        gate = "exclusive" if alone else GATES.get(mode)
        if gate is None:
            self._begin(connection, mode, alone=alone)
            return
        started = time.monotonic()
        try:
            self._begin(connection, mode, alone=alone)
        finally:
            seconds = time.monotonic() - started
            GATE_WAITS.observe(seconds, gate)
            if seconds > GATE_WAIT_LOGGED_SECONDS:
                log_event(
                    logger,
                    "gate.waited",
                    "a transaction waited long for the gate",
                    level=logging.WARNING,
                    database=self.shown_url,
                    mode=mode.value,
                    seconds=round(seconds, 3),
                )

    def _begin(
        self, connection: Connection, mode: Mode, *, alone: bool, may_renew: bool = True
    ) -> None:
        try:
            self.begin(connection, mode, alone=alone)
        except ZapdbError:
            self._roll_back(connection)
            raise
        except Exception as error:
            if may_renew and self.renew_connection(connection):  # nothing was done in it yet
                self.ended(connection)
                self._begin(connection, mode, alone=alone, may_renew=False)
                return
            self._roll_back(connection)
            raise self.translate(error) from error
        except BaseException:
            self._roll_back(connection)
            raise

    def _roll_back(self, connection: Connection) -> None:
        try:
            self.roll_back(connection)
        except Exception:  # the connection is gone, and with it the transaction
            self.discard_connection(connection)

    def _commit(self, connection: Connection, mode: Mode) -> None:
        try:
            self.commit(connection)
        except Exception as error:
            translated = self.translate(error)
            if isinstance(translated, TransactionConflict):
                self._roll_back(connection)
                raise translated from error
            if self.is_refused_commit(connection, error):
                self._roll_back(connection)
                known = isinstance(translated, ZapdbError)
                raise (translated if known else unexpected(error)) from error
            self.discard_connection(connection)
            if mode is Mode.READ:  # nothing was to take effect
                raise translated from error
            raise CommitUnknown(
                "COMMIT reported an error, so it is not known whether it took effect",
                database=self.shown_url,
                cause=error,
                hint="look whether the change is there before you repeat it; with token=True, "
                "db.run and db.transaction find out by themselves",
            ) from error
        except BaseException:
            self.discard_connection(connection)
            raise

    def _run_or_doom(self, connection: Connection, sql: str) -> None:
        """Run a statement about a savepoint. Where it fails it is not known how many there are, and
        what the next one would undo: the transaction must not be committed."""
        try:
            connection.run(sql)
        except BaseException:
            connection.is_doomed = True
            raise

    def _refuse_doomed(self, connection: Connection) -> None:
        if connection.is_doomed:
            raise TransactionConflict(
                "a part of the transaction could not be undone, so all of it is",
                database=self.shown_url,
                hint="the database reported an error meanwhile; nothing was written; run it again",
            )

    def _refuse_other_thread(self, connection: Connection) -> None:
        if connection.thread is not threading.current_thread():
            raise UsageError(
                "a transaction is left by another thread than the one that began it",
                database=self.shown_url,
                hint="it was undone; enter and leave the with block in one thread, or give the "
                "work to db.run(function)",
            )

    @abstractmethod
    def begin(self, connection: Connection, mode: Mode, *, alone: bool) -> None: ...

    def before_commit(self, connection: Connection, seconds: float) -> None:
        """The end of a transaction that took so long, inside it."""

    def commit(self, connection: Connection) -> None:
        self.execute(connection.driver, "COMMIT", ())

    @abstractmethod
    def is_refused_commit(self, connection: Connection, error: BaseException) -> bool:
        """Whether COMMIT's error says that nothing was written, for certain; conflicts apart."""

    @abstractmethod
    def roll_back(self, connection: Connection) -> None: ...
