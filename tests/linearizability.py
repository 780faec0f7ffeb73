"""A checker of histories: could these concurrent operations have been done one after another?

A history is linearizable if there is an order of its operations in which each has the result that a
sequential model gives it, and none comes before one that had ended when it began. The search is
that of Wing and Gong, with Lowe's memory of what was tried: a set of operations done, and a state.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

State = TypeVar("State", bound=Hashable)


@dataclass(frozen=True)
class Operation:
    """A call with its result, from `invoked` to `returned`, in seconds of one clock.

    One that never returned has `returned` infinite: it may have been done at any time, or never.
    """

    process: int
    name: str
    arguments: tuple[Any, ...]
    result: Any
    invoked: float
    returned: float = math.inf

    @property
    def is_open(self) -> bool:
        return self.returned == math.inf


Model = Callable[[State, Operation], State | None]
"""The state after an operation, or None if it can't have this result in this state."""


def find_order(
    history: Sequence[Operation], model: Model[State], start: State
) -> list[Operation] | None:
    """An order that explains the history, or None if there is none."""
    operations = sorted(history, key=lambda operation: operation.invoked)
    needed = sum(1 << at for at, operation in enumerate(operations) if not operation.is_open)
    tried: set[tuple[int, State]] = {(0, start)}
    # What was done (a bit for each), the state after it, and what may be tried next.
    path: list[tuple[int, State, list[int]]] = [(0, start, _may_be_next(operations, 0))]
    order: list[int] = []
    while path:
        done, state, candidates = path[-1]
        if done & needed == needed:
            return [operations[at] for at in order]
        if not candidates:
            path.pop()
            if order:
                order.pop()
            continue
        at = candidates.pop()
        after = model(state, operations[at])
        reached = done | 1 << at
        if after is None or (reached, after) in tried:
            continue
        tried.add((reached, after))
        path.append((reached, after, _may_be_next(operations, reached)))
        order.append(at)
    return None


def _may_be_next(operations: Sequence[Operation], done: int) -> list[int]:
    """Those that began before the first of what is left had ended.

    Only what is left is looked at, in the order in which it began, so a long history costs no more
    for each of its operations than a short one.
    """
    left = ~done & ((1 << len(operations)) - 1)
    found, first_end = list[int](), math.inf
    while left:
        lowest = left & -left
        at = lowest.bit_length() - 1
        if operations[at].invoked > first_end:
            break
        found.append(at)
        first_end = min(first_end, operations[at].returned)
        left ^= lowest
    return [at for at in reversed(found) if operations[at].invoked <= first_end]


def split(history: Sequence[Operation]) -> dict[Hashable, list[Operation]]:
    """The operations on each object, which is their first argument.

    A history is linearizable exactly if that of each object is (Herlihy and Wing, theorem 1), and
    those are looked through much faster.
    """
    parts: dict[Hashable, list[Operation]] = {}
    for operation in history:
        parts.setdefault(operation.arguments[0], []).append(operation)
    return parts
