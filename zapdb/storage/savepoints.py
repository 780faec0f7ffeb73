"""Savepoints: parts of a transaction that can be rolled back while the rest continues.

They are not generators. The garbage collector would end an abandoned generator in any thread, and
so roll back on a connection that another thread uses, or that has begun another transaction.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, suppress
from types import TracebackType
from typing import TYPE_CHECKING, Protocol

from zapdb.errors import ZapdbError

if TYPE_CHECKING:
    from zapdb.storage.connection import Connection
    from zapdb.storage.storage import Storage


class WrittenAtCommit(Protocol):
    """What a transaction writes at its end, such as its changes for the change log."""

    def begin_savepoint(self) -> None:
        """Note what there is, for `roll_back_savepoint`."""

    def release_savepoint(self, connection: Connection) -> None:
        """Keep what came since the newest savepoint."""

    def roll_back_savepoint(self) -> None:
        """Forget what came since the newest savepoint."""

    def flush(self, connection: Connection) -> None:
        """Write it; nothing is added after this."""


class Savepoint(AbstractContextManager[None]):
    """A savepoint, rolled back on an exception; if its block is never left, no statement runs."""

    def __init__(self, storage: Storage, connection: Connection) -> None:
        self._storage = storage
        self._connection = connection
        self._pending: WrittenAtCommit | None = None
        self._mark: object = None
        self._serial = 0
        """Up to which writes are not undone with it."""

    def __enter__(self) -> None:
        connection = self._connection
        # If the database ended the transaction, this would begin another.
        connection.require_committable()
        transaction = connection.transaction
        if transaction is not None:
            self._pending = transaction.pending
            self._serial = 0 if transaction.to_tell is None else transaction.to_tell.serial
        self._mark = connection.begin_savepoint()
        if self._pending is not None:
            self._pending.begin_savepoint()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is not None:
            self._undo()
            return
        try:
            self._storage.require_open()
            self._connection.release_savepoint()
        except BaseException:
            self._undo()
            raise
        if self._pending is not None:
            self._pending.release_savepoint(self._connection)

    def _undo(self) -> None:
        transaction = self._connection.transaction
        if transaction is not None and transaction.to_tell is not None:
            transaction.to_tell.roll_back(self._serial)
        if self._pending is not None:
            self._pending.roll_back_savepoint()
        elif transaction is not None:
            transaction.pending = None  # all changes were made since
        if not self._storage.pool.is_inherited:
            with suppress(ZapdbError):  # the error of the block is raised
                self._connection.undo_savepoint(self._mark)
