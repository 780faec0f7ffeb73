"""What is awaited, or entered at once: `db = await open(…)`, and `async with open(…) as db`."""

from __future__ import annotations

import functools
from collections.abc import Callable, Coroutine, Generator
from typing import Any, ParamSpec, Protocol, TypeVar


class Closed(Protocol):
    """What a block closes at its end."""

    async def __aenter__(self) -> Any: ...

    async def __aexit__(self, *_: object) -> None: ...


P = ParamSpec("P")
T = TypeVar("T", bound=Closed)
T_co = TypeVar("T_co", bound=Closed, covariant=True)


class OpeningBlock(Coroutine[Any, Any, T_co]):
    """Something that is being opened. Awaiting it gives what was opened; so does `async with`,
    which also closes that at its end. It is a coroutine, so tasks can be made of it.
    """

    def __init__(self, steps: Coroutine[Any, Any, T_co]) -> None:
        self._steps = steps

    def __await__(self) -> Generator[Any, Any, T_co]:
        return self._steps.__await__()

    async def __aenter__(self) -> T_co:
        self._opened = await self._steps
        await self._opened.__aenter__()
        return self._opened

    async def __aexit__(self, *error: Any) -> None:
        await self._opened.__aexit__(*error)

    def send(self, value: Any) -> Any:
        return self._steps.send(value)

    def throw(self, *error: Any) -> Any:
        return self._steps.throw(*error)

    def close(self) -> None:
        self._steps.close()


def opens(function: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, OpeningBlock[T]]:
    """A coroutine function whose result is also a block: `async with items.open(1, …) as file`."""

    @functools.wraps(function)
    def opened(*args: P.args, **named: P.kwargs) -> OpeningBlock[T]:
        return OpeningBlock(function(*args, **named))

    return opened
