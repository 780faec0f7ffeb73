"""Which open transaction a call belongs to that names none (rule 15).

It is the one that the same asyncio task began, or the same thread where no event loop runs. A
`ContextVar` leads to it. Such a variable is copied to tasks (`create_task`, `gather`), to threads
(`asyncio.to_thread`, the sync endpoints of web frameworks), and leaks from generators: so it says
as well who began the transaction, and a caller that has merely inherited it is refused. It refers
weakly, so that what was dropped does not live on in a context; what has ended counts as nothing.
"""

from __future__ import annotations

import asyncio
import contextvars
import sys
import threading
import weakref
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from zapdb.storage.open_transaction import OpenTransaction
    from zapdb.storage.pool import ConnectionPool

_BEGUN: Final[ContextVar[tuple[weakref.ref[OpenTransaction], ...]]] = ContextVar(
    "zapdb transactions", default=()
)
_PACKAGE: Final = f"{__name__.partition('.')[0]}."
_NOBODYS: Final = ("contextlib", "contextvars")
"""Modules that enter blocks for others."""


def running_loop() -> asyncio.AbstractEventLoop | None:
    """The event loop that runs in this thread."""
    return asyncio._get_running_loop()


def current_owner() -> object:
    """The asyncio task that is running, the event loop in a callback of it, or else the thread."""
    loop = running_loop()
    if loop is None:
        return threading.current_thread()
    return asyncio.current_task(loop) or loop


class Caller(NamedTuple):
    """Who begins a transaction, and where: found in the task or thread that asks for it, which may
    not be the thread that does it."""

    owner: object
    loop: asyncio.AbstractEventLoop | None
    place: str


def find_caller() -> Caller:
    return Caller(current_owner(), running_loop(), find_place())


def note_begun(begun: OpenTransaction) -> None:
    """From here on, calls of this context that name no transaction belong to this one."""
    alive = [known for known in _BEGUN.get() if (one := known()) is not None and not one.is_ended]
    _BEGUN.set((*alive, weakref.ref(begun)))


def has_begun() -> bool:
    """Whether this context knows of any transaction at all; one that has ended may count."""
    return bool(_BEGUN.get())


def find_begun(pool: ConnectionPool) -> OpenTransaction | None:
    """The open transaction of a database that this context knows of, whoever began it."""
    known = _BEGUN.get()
    if not known:
        return None
    is_open = False
    for one in known:
        found = one()
        if found is not None and not found.is_ended:
            if found.storage is pool:
                return found
            is_open = True
    if not is_open:
        _BEGUN.set(())
    return None


def in_no_transaction() -> contextvars.Context:
    """A context that knows of no transaction: for threads of zapdb's own, which belong to none."""
    return contextvars.Context()


def find_place() -> str:
    """Where the application's code is that called: `orders.py:12 in create_order`."""
    frame: Any = sys._getframe(1)
    while frame is not None:
        module = frame.f_globals.get("__name__", "")
        if not (f"{module}.".startswith(_PACKAGE) or module in _NOBODYS):
            code = frame.f_code
            return f"{code.co_filename}:{frame.f_lineno} in {code.co_name}"
        frame = frame.f_back
    return "(unknown)"
