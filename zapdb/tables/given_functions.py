"""Functions that applications give to be called: what is none is refused where it is given, and so
is an async one where nothing would await what it returns."""

from __future__ import annotations

import inspect
from typing import Any, Final

from zapdb.errors import UsageError

AWAITED_BY_AIO: Final = "give a plain function, or use zapdb.aio, which awaits async ones"


def require_function(function: Any, taker: str, example: str) -> None:
    """Raise `UsageError` for what can't be called; `taker` is what it is given to."""
    if not callable(function):
        raise UsageError(
            f"{taker} takes a function",
            got=type(function).__name__,
            hint=f"give the function, not its result: {example}",
        )


def require_plain_function(function: Any, taker: str, example: str) -> None:
    """Raise `UsageError` for that, and for an async function."""
    require_function(function, taker, example)
    if _is_async(function) or _is_async(type(function).__call__):
        raise _unawaited(function, taker)


def require_no_coroutine(made: Any, function: Any, taker: str) -> None:
    """Raise `UsageError` if a function has returned a coroutine, as a lambda may that calls an
    async one: nobody would await it."""
    if inspect.iscoroutine(made):
        made.close()
        raise _unawaited(function, taker)


def require_awaitable(made: Any, function: Any, taker: str) -> None:
    """Raise `UsageError` if a function that is to be awaited has returned what can't be."""
    if not inspect.isawaitable(made):
        raise UsageError(
            f"{taker} takes an async function, and what this one returned can't be awaited",
            function=_name_of(function),
            returned=type(made).__name__,
            hint="write it with `async def`",
        )


def _is_async(function: Any) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function)


def _unawaited(function: Any, taker: str) -> UsageError:
    return UsageError(
        f"{taker} would not await an async function",
        function=_name_of(function),
        hint=AWAITED_BY_AIO,
    )


def _name_of(function: Any) -> str:
    return str(getattr(function, "__qualname__", type(function).__name__))
