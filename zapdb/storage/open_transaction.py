"""A transaction that stays open between calls: the API's handles refer to it (rule 15).

It has a connection of its own, from the pool, and may be used from any thread or task, by one at a
time. `with` blocks begin and end it: the outermost block is the transaction, the inner ones are
savepoints. A transaction whose block was never left is rolled back when its last reference is
dropped.
"""

from __future__ import annotations

import asyncio
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, TypeVar

from zapdb.errors import UsageError
from zapdb.storage.transaction_owners import Caller, current_owner, find_begun, has_ended

if TYPE_CHECKING:
    from zapdb.storage.connection import Connection
    from zapdb.storage.storage import Storage
    from zapdb.storage.transaction_modes import TransactionMode

ONE_AT_A_TIME_HINT: Final = (
    "one thread or task uses a handle at a time: wait for the other call, or begin a transaction "
    "for each"
)
HEIR_HINT: Final = (
    "to take part in it, use its handle: `with db.transaction() as tx`, tx.table(...); to work "
    "apart from it, start the task with context=contextvars.Context()"
)


T = TypeVar("T")


class OpenTransaction:
    """An open transaction or snapshot, and the caller that began it."""

    def __init__(
        self, storage: Storage, connection: Connection, mode: TransactionMode, caller: Caller
    ) -> None:
        self.storage = storage
        self.connection = connection
        self.mode = mode
        self.place = caller.place
        """Where it was begun, for errors and logs."""
        self.began = time.monotonic()
        self.loop = None if caller.loop is None else weakref.ref(caller.loop)
        self.blocks: list[object] = []
        """The open blocks, the outermost first."""
        self.handles: list[weakref.ref[Any]] = []
        """The handles that its blocks returned to the application."""
        self.is_ended = False
        self.is_interrupted = False
        """Whether it must be rolled back as soon as the thread that uses it has finished."""
        self._owner = weakref.ref(caller.owner)
        self._in_use = threading.Lock()

    @property
    def name(self) -> str:
        """Return the word for it in errors."""
        return "snapshot" if self.mode.only_reads else "transaction"

    def __str__(self) -> str:
        return f"the {self.name} that was begun at {self.place}"

    @property
    def is_mine(self) -> bool:
        """Whether the calling task, or thread, began it."""
        return self._owner() is current_owner()

    @property
    def is_orphaned(self) -> bool:
        """Whether the transaction can no longer be used or left: no handle was kept, and the task
        or thread that began it has ended."""
        if not self.handles or any(handle() is not None for handle in self.handles):
            return False
        match self._owner():
            case threading.Thread() as thread:
                return has_ended(thread)
            case asyncio.Future() as task:
                return task.done()
            case owner:
                return owner is None

    @property
    def is_here(self) -> bool:
        """Whether it was begun in this task or thread, and in this context."""
        return self.is_mine and find_begun(self.storage.pool) is self

    def is_of_loop(self, loop: asyncio.AbstractEventLoop) -> bool:
        """Whether it was begun on this event loop."""
        return self.loop is not None and self.loop() is loop

    @contextmanager
    def use(self) -> Iterator[Connection]:
        """Use the transaction in the block, from this thread.

        Raises `UsageError` if it has ended, or if another thread is using it.
        """
        local = self.storage.pool.local
        if local.active is self and not self.is_ended:
            yield self.connection
            return
        if not self._in_use.acquire(blocking=False):
            self.require_open()
            raise UsageError(
                f"another thread is using the {self.name}",
                begun_at=self.place,
                hint=ONE_AT_A_TIME_HINT,
            )
        previous, local.active = local.active, self
        try:
            self.require_open()
            with self.storage.engine.refusing_deadlock(self.connection):
                yield self.connection
        finally:
            local.active = previous
            self._in_use.release()
            if self.is_interrupted:
                self.storage.undo_open(self)

    def reading(self, read: Callable[..., T]) -> Callable[..., T]:
        """Return the function, to be run inside the transaction while that is open."""

        def within(*arguments: Any) -> T:
            if self.is_ended:
                return read(*arguments)
            with self.use():
                return read(*arguments)

        return within

    @contextmanager
    def waiting_for_call(self) -> Iterator[None]:
        """In the block, the caller works outside of the transaction, which waits for this work."""
        local = self.storage.pool.local
        previous, local.held_up = local.held_up, self
        try:
            yield
        finally:
            local.held_up = previous

    @property
    def is_in_use(self) -> bool:
        """Whether a thread is using or ending it now."""
        return self._in_use.locked()

    def take_to_end(self) -> bool:
        """Take it to end it; returns False if a call is using it."""
        return self._in_use.acquire(blocking=False)

    def require_open(self) -> None:
        """Raise `UsageError` if it has ended, or if its database was closed."""
        self.storage.require_open()
        if self.is_ended:
            raise UsageError(
                f"the {self.name} has ended",
                begun_at=self.place,
                hint="tables and queries of its handle end with it; read inside the "
                "block, or use the database again",
            )

    def require_owner(self) -> None:
        """Raise `UsageError` unless the calling task or thread began it."""
        if self.is_mine:
            return
        self.storage.require_open()
        raise UsageError(
            f"this task or thread inherited an open {self.name} that it did not begin",
            begun_at=self.place,
            hint=HEIR_HINT,
        )
