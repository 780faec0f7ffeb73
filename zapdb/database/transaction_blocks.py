"""Transactions and snapshots as applications use them: blocks, and their handles.

    with db.transaction() as tx:
        tx.table("items").insert(title="Milk")

The handle is the transaction: operations through it, from any thread or task, are part of it, and
no others. The block begins and ends it. The block has only a weak reference to the handle, so when
the block ends it can tell whether the application has kept the handle. A block that was entered
without `as` belongs to the task or thread that entered it, through `db` (rule 15), and the same one
must leave it.
"""

from __future__ import annotations

import inspect
import logging
import weakref
from collections.abc import Callable
from contextlib import AbstractContextManager
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, NoReturn, Self, TypeVar

from zapdb.database.table_access import Access
from zapdb.errors import TransactionConflict, UnknownAttribute, UsageError, ZapdbError
from zapdb.logs import log_event
from zapdb.storage import Connection, TransactionMode
from zapdb.storage.open_transaction import OpenTransaction
from zapdb.storage.retries import Beaten
from zapdb.storage.storage import count_conflict
from zapdb.storage.transaction_owners import Caller, note_begun
from zapdb.tables.session import Session

logger = logging.getLogger("zapdb.transactions")

BLOCK_HINT: Final = (
    "nothing was written; a with block can't be run again by itself: run it again, or put what it "
    "does into a function and call db.run(function)"
)
ELSEWHERE_NOTE: Final = "what was written through `db` in between was committed singly"
ELSEWHERE_HINT: Final = (
    "keep the handle and work through it: `with db.transaction() as tx: yield tx`, then "
    "tx.table(...), or give the work to db.run(function)"
)
SNAPSHOT_ELSEWHERE_NOTE: Final = (
    "what was read through `db` in between was not read as of one moment"
)
SNAPSHOT_ELSEWHERE_HINT: Final = (
    "keep the handle and read through it: `with db.snapshot() as snap: yield snap`, then "
    "snap.table(...)"
)

Raised = tuple[type[BaseException] | None, BaseException | None, TracebackType | None]
"""The exception that a block is left with, or Nones."""

ForTenant = Callable[[str], Session]
"""A function that returns the session of another tenant, by its name."""


class Handle(Access):
    """An open transaction or snapshot, usable from any thread or task by one at a time.

    Its tables, queries and iterators belong to it: they raise `UsageError` after it has ended.
    """

    def __init__(self, session: Session, for_tenant: ForTenant) -> None:
        assert session.open is not None
        self._bound = session
        self._open: OpenTransaction = session.open
        self._for_tenant = for_tenant

    @property
    def _session(self) -> Session:  # type: ignore[override]  # it goes with the transaction
        self._open.require_open()
        return self._bound

    def __repr__(self) -> str:
        state = "ended" if self._open.is_ended else "open"
        return f"<zapdb {self._open.name}, {state}, begun at {self._open.place}>"

    def for_tenant(self, name: str) -> Self:
        """The same transaction or snapshot, as another tenant sees it.

        Raises `UnknownName`, and `ActivationPending` for a tenant that is behind what is stored:
        open it by `db.for_tenant` before.
        """
        self._open.require_open()
        with self._open.waiting_for_call():
            session = self._for_tenant(name).bind(self._open)
        if self._open.mode.only_reads:
            with self._open.use() as connection:
                session.prepare(connection)
        return type(self)(session, self._for_tenant)


class Transaction(Handle):
    """An open transaction: `with db.transaction() as tx`."""

    def savepoint(self) -> Block[Transaction]:
        """A block of the transaction that is rolled back alone if it raises.

        with tx.savepoint():
            tx.table("items").insert(title="Milk")
        """
        return Block(self._session, Transaction, TransactionMode.WRITE, self._for_tenant)


class Snapshot(Handle):
    """An open snapshot: `with db.snapshot() as snap`. What is read in it is as of one moment."""


H = TypeVar("H", bound=Handle)


class Leaver(NamedTuple):
    """The task or thread that leaves a block."""

    is_kept: bool
    """Whether the application has the handle, so that any task or thread may leave the block."""
    is_here: bool
    """Whether it is the task or thread, and the context, that entered it."""


class Block(AbstractContextManager[H]):
    """What begins a transaction or a snapshot, or inside a transaction a savepoint, and ends it."""

    def __repr__(self) -> str:
        name = "savepoint" if self._is_of_handle else self._make.__name__.lower()
        state = "not begun: use it in a with statement" if self._open is None else "begun"
        return f"<block of a {name}, {state}>"

    def __init__(
        self,
        session: Session,
        handle: type[H],
        mode: TransactionMode,
        for_tenant: ForTenant,
        *,
        token: bool = False,
        beaten: Beaten | None = None,
    ) -> None:
        self._session = session
        self._is_of_handle = session.open is not None
        """Whether it is a part of a transaction that the application names."""
        self._beaten = beaten
        """What became of earlier tries, if the block is repeated after a conflict."""
        self._make = handle
        self._mode = mode
        self._for_tenant = for_tenant
        self._token = token
        self._mark = object()
        """What the transaction knows the block by: it must not keep a block that was dropped."""
        self._open: OpenTransaction | None = None
        self._handle: weakref.ref[H] | None = None
        self._savepoint: AbstractContextManager[None] | None = None

    if not TYPE_CHECKING:  # to a type checker, a class with `__getattr__` has every attribute

        def __getattr__(self, name: str) -> NoReturn:
            if name.startswith("_"):
                raise AttributeError(name)
            raise UnknownAttribute(
                "the transaction or snapshot has not begun",
                of=repr(self),
                attribute=name,
                hint=f"begin it: `with db.transaction() as tx:`, and in the block tx.{name}",
            )

    def __enter__(self) -> H:
        outer = self.find_outer()
        return self.entered(self.begin() if outer is None else self.begin_inside(outer))

    # The parts of entering and leaving: what waits for the database may be another thread's work.

    @property
    def session(self) -> Session:
        return self._session

    @property
    def mode(self) -> TransactionMode:
        return self._mode

    @property
    def begun(self) -> OpenTransaction | None:
        """The open transaction that the block has begun, or of which it is a savepoint."""
        return self._open

    def find_outer(self) -> OpenTransaction | None:
        """The open transaction of the task or thread that enters the block."""
        if self._open is not None:
            raise UsageError(
                "this block was already entered", hint="call db.transaction() again for each block"
            )
        return self._session.open_here()

    def begin(
        self, lent: Connection | None = None, caller: Caller | None = None
    ) -> OpenTransaction:
        """Begin the transaction or snapshot; any thread may do it for the one that enters."""
        return self._session.begin(
            self._mode,
            token=self._token,
            exclusive=self._beaten is not None and self._beaten.is_exclusive,
            lent=lent,
            caller=caller,
        )

    def entered(self, begun: OpenTransaction) -> H:
        """The handle, for the task or thread that enters the block."""
        if self._savepoint is None:  # else the context knows it, or the caller has its handle
            note_begun(begun)
        begun.blocks.append(self._mark)
        self._open = begun
        handle = self._make(self._session.bind(begun), self._for_tenant)
        self._handle = weakref.ref(handle)
        begun.handles.append(self._handle)
        return handle

    def begin_inside(self, begun: OpenTransaction) -> OpenTransaction:
        """Begin a savepoint in the transaction; any thread may do it for the one that enters."""
        begun.require_open()
        if self._mode.only_reads or begun.mode.only_reads:
            raise UsageError(
                f"a {begun.name} is already open here",
                begun_at=begun.place,
                hint="a transaction also reads as of one moment; to write, leave the "
                "snapshot first",
            )
        self._session.require_outermost_token(self._token)
        with self._session.bind(begun).using(), begun.use() as connection:
            savepoint = self._session.storage.savepoint(connection)
            savepoint.__enter__()
        self._savepoint = savepoint
        return begun

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.leave(self.look(), error)

    def look(self) -> Leaver:
        """What is known of the task or thread that leaves the block."""
        if self._open is None:
            raise UsageError("this block was not entered", hint="use it in a with statement")
        is_kept = self._is_of_handle or (self._handle is not None and self._handle() is not None)
        return Leaver(is_kept, self._open.is_here)

    def leave(self, leaver: Leaver, error: BaseException | None) -> None:
        """Commit, or undo because of an error; any thread may do it for the one that leaves."""
        begun = self._open
        assert begun is not None
        is_kept, is_here = leaver
        if not (is_kept or is_here or begun.is_ended):
            self._refuse_elsewhere(begun, error)
            return
        if begun.is_ended or begun.is_interrupted:
            self._refuse_over(begun, error)
            return
        if begun.blocks[-1] is not self._mark:
            self._session.storage.undo_open(begun)
            self._refuse(begun, error, "the blocks of a transaction were left out of order")
            return
        if self._savepoint is not None:
            raised = (None if error is None else type(error), error, _traceback_of(error))
            self._leave_savepoint(begun, self._savepoint, raised)
        elif error is not None:
            self._session.storage.undo_open(begun)
            count_conflict(error, begun.mode)
            self._explain(error)
        else:
            self._commit(begun, is_here=is_here)

    def _leave_savepoint(
        self, begun: OpenTransaction, savepoint: AbstractContextManager[None], raised: Raised
    ) -> None:
        """Where it can't be left, as while another thread uses the transaction, all is undone: the
        outer blocks must not commit what this one was to undo."""
        try:
            with begun.use():
                begun.blocks.pop()
                savepoint.__exit__(*raised)
        finally:
            if self._mark in begun.blocks:
                self._session.storage.undo_open(begun)

    def _commit(self, begun: OpenTransaction, *, is_here: bool) -> None:
        try:
            self._session.before_commit(begun)
        except BaseException:
            self._session.storage.undo_open(begun)
            raise
        if not begun.take_to_end():
            self._session.storage.undo_open(begun)
            raise UsageError(
                f"the block was left while another thread was using the {begun.name}",
                begun_at=begun.place,
                hint="it was rolled back; wait for the other thread before leaving the block",
            )
        if begun.is_interrupted:  # another thread has left the rollback to this one
            self._session.storage.undo_taken(begun)
            self._refuse_over(begun, None)
        try:
            self._session.commit(begun)
        except ZapdbError as failure:
            self._explain(failure)
            if not is_here:  # a framework left it, which may have answered by now
                log_event(
                    logger,
                    "transaction.lost",
                    f"a transaction could not be committed: {failure.message}",
                    level=logging.ERROR,
                    database=self._session.storage.shown_url,
                    begun_at=begun.place,
                )
            raise

    def _explain(self, error: BaseException) -> None:
        if isinstance(error, TransactionConflict) and self._beaten is None:
            error.hint = BLOCK_HINT

    def _refuse_elsewhere(self, begun: OpenTransaction, error: BaseException | None) -> None:
        self._session.storage.undo_open(begun)
        self._refuse(
            begun,
            error,
            f"a {begun.name} was left by another thread, task or context than began it",
            note=SNAPSHOT_ELSEWHERE_NOTE if begun.mode.only_reads else ELSEWHERE_NOTE,
            hint=SNAPSHOT_ELSEWHERE_HINT if begun.mode.only_reads else ELSEWHERE_HINT,
        )

    def _refuse_over(self, begun: OpenTransaction, error: BaseException | None) -> None:
        """It was undone by another block, or its database was closed."""
        if error is None:
            self._session.storage.require_open()
            self._refuse(begun, error, f"the {begun.name} was undone before its block was left")

    def _refuse(
        self,
        begun: OpenTransaction,
        error: BaseException | None,
        message: str,
        hint: str = "use blocks in with statements; all of it was undone",
        **context: Any,
    ) -> None:
        """Raise what is wrong with how the block was left; log it where that would hide that a task
        is cancelled, or a generator closed."""
        refusal = UsageError(message, begun_at=begun.place, **context, hint=hint)
        if error is None or isinstance(error, Exception):
            raise refusal
        log_event(
            logger,
            "transaction.dropped",
            message,
            level=logging.WARNING,
            database=self._session.storage.shown_url,
            begun_at=begun.place,
        )


def _traceback_of(error: BaseException | None) -> TracebackType | None:
    return None if error is None else error.__traceback__


def takes_argument(function: Callable[..., Any]) -> bool:
    """Whether a function has a positional parameter that must be given."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # one that is built in, and does not say
        return False
    return any(
        one.default is one.empty and one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)
        for one in parameters
    )
