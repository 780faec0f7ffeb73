"""The open transaction of a call that names none (rule 15).

It is the one that the same asyncio task began, or the same thread if no event loop runs. A
`ContextVar` refers to it. Python copies such a variable to tasks (`create_task`, `gather`) and
threads (`asyncio.to_thread`, the sync endpoints of web frameworks), and it leaks from generators.
So it also has the caller that began the transaction, and calls of others that inherited it are
refused. The reference is weak, so a context keeps no dropped transaction alive; one that has ended
is ignored.
"""

from __future__ import annotations

import asyncio
import contextvars
import sys
import threading
import weakref
from collections.abc import Callable
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from zapdb.storage.open_transaction import OpenTransaction
    from zapdb.storage.pool import Pool

_BEGUN: Final[ContextVar[tuple[weakref.ref[OpenTransaction], ...]]] = ContextVar(
    "zapdb transactions", default=()
)
has_begun: Final[Callable[[], object]] = _BEGUN.get
"""Whether this context has a transaction, maybe one that has ended: nothing else is asked as often,
so Python makes no frame for it."""
_PACKAGE: Final = f"{__name__.partition('.')[0]}."
_NOBODYS: Final = ("contextlib", "contextvars")
"""Modules that enter blocks for other code."""


def running_loop() -> asyncio.AbstractEventLoop | None:
    """Return the event loop that runs in this thread."""
    return asyncio._get_running_loop()


def current_owner() -> object:
    """Return the running asyncio task, else the event loop whose callback runs, else the thread."""
    loop = running_loop()
    if loop is None:
        return threading.current_thread()
    return asyncio.current_task(loop) or loop


def has_ended(thread: threading.Thread) -> bool:
    """Return whether a thread does nothing any more. Python calls the main thread ended as soon as
    the program is, but functions that it was told to call at exit run in it then."""
    return thread is not threading.main_thread() and not thread.is_alive()


class Caller(NamedTuple):
    """The task or thread that begins a transaction, and the place in its code. Another thread may
    do the work."""

    owner: object
    loop: asyncio.AbstractEventLoop | None
    place: str


def find_caller() -> Caller:
    loop = running_loop()
    owner = threading.current_thread() if loop is None else asyncio.current_task(loop) or loop
    return Caller(owner, loop, find_place())


def note_begun(begun: OpenTransaction) -> None:
    """Make later calls of this context without a handle use the transaction."""
    alive = [known for known in _BEGUN.get() if (one := known()) is not None and not one.is_ended]
    _BEGUN.set((*alive, weakref.ref(begun)))


def find_begun(pool: Pool) -> OpenTransaction | None:
    """Return this context's open transaction of a database, even if another caller began it."""
    known = _BEGUN.get()
    if not known:
        return None
    is_open = False
    for one in known:
        found = one()
        if found is not None and not found.is_ended:
            if found.storage.pool is pool:
                return found
            is_open = True
    if not is_open:
        _BEGUN.set(())
    return None


def in_no_transaction() -> contextvars.Context:
    """Return a context without a transaction, for zapdb's own threads."""
    return contextvars.Context()


def find_place() -> str:
    """Return the place of the application's call: `orders.py:12 in create_order`."""
    frame: Any = sys._getframe(1)
    while frame is not None:
        module = frame.f_globals.get("__name__", "")
        if not (f"{module}.".startswith(_PACKAGE) or module in _NOBODYS):
            code = frame.f_code
            return f"{code.co_filename}:{frame.f_lineno} in {code.co_name}"
        frame = frame.f_back
    return "(unknown)"
