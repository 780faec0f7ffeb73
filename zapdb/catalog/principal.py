"""Who changes the catalog: a token's subject, the operating system's user, or zapdb itself.

A server sets the principal of each request; a thread without one acts for the user who runs the
process. Threads do not inherit the principal of the thread that started them.
"""

from __future__ import annotations

import getpass
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
from typing import Final, TypeVar

from zapdb.errors import UsageError
from zapdb.limits import PRINCIPAL_LENGTH_MAX

T = TypeVar("T")

SYSTEM: Final = "<system>"
"""The principal of internal work."""

_uid: Final = getattr(os, "getuid", int)
"""The number of the process's user; Windows has none."""

_acting: ContextVar[str | None] = ContextVar("zapdb_principal", default=None)


def current() -> str:
    """Return the principal of this thread or task: `user@host`, unless `acting_as` sets another."""
    return _acting.get() or _read_user(_uid())


def given() -> str | None:
    """Return the principal that `acting_as` has set for this thread or task, if it has."""
    return _acting.get()


def act_for_task(caller: str) -> None:
    """Do the rest of this task for a caller: a task has a context of its own, which ends with
    it."""
    _acting.set(caller)


def for_caller(work: Callable[[], T]) -> Callable[[], T]:
    """The function, which another thread will call for this one or this task: `given()` is the same
    in it."""
    caller = given()
    if caller is None:
        return work

    def act() -> T:
        token = _acting.set(caller)
        try:
            return work()
        finally:
            _acting.reset(token)

    return act


@contextmanager
def acting_as(principal: str) -> Iterator[None]:
    """Change the catalog as `principal` in the block; raises `UsageError` for an invalid name."""
    if not 0 < len(principal) <= PRINCIPAL_LENGTH_MAX or not principal.isprintable():
        raise UsageError(
            "this is not a valid name of a principal",
            length=len(principal),
            longest=PRINCIPAL_LENGTH_MAX,
            hint="give printable characters, at least one",
        )
    token = _acting.set(principal)
    try:
        yield
    finally:
        _acting.reset(token)


@lru_cache(maxsize=8)  # reading the system's users takes longer than planning a write
def _read_user(_uid: int) -> str:
    try:
        user = getpass.getuser()
    except (OSError, KeyError):
        user = "unknown"
    return f"{user}@{socket.gethostname()}"[:PRINCIPAL_LENGTH_MAX]
