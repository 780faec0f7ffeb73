"""Retries: the only loop that repeats an operation until it succeeds or its time is over.

A policy in `limits` bounds the number of tries, their time and the pauses. Pauses are random (full
jitter), so that transactions that conflicted do not conflict again. After the last try, its error
is raised with the number of tries: each wait ends, and its error names the cause.
"""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from zapdb.errors import TransactionConflict, ZapdbError
from zapdb.limits import EXCLUSIVE_AFTER_CONFLICTS, EXCLUSIVE_SECONDS_MAX, RetryPolicy
from zapdb.metrics import RETRIES, RETRIES_EXHAUSTED
from zapdb.storage.interruption import current_call

T = TypeVar("T")


class Again(Exception):
    """An operation has found out that it is to be done again at once: nothing is waited for, and it
    is no further try of a policy."""

    def prepare(self) -> None:
        """What is to be done before. An exception from it is that of the operation, and a conflict
        is one more try of the policy. Raises itself where it can't be done."""


def pauses(policy: RetryPolicy, began: float) -> Iterator[float]:
    """Yield the seconds to wait before each further try, until no try is left. `began` is the
    monotonic time of the first try."""
    deadline = began + policy.seconds
    for made in itertools.count(1):
        left = deadline - time.monotonic()
        if made == policy.tries or left <= 0:
            break
        longest = min(policy.pause_seconds * 2 ** min(made - 1, 16), policy.pause_seconds_max)
        RETRIES.add(policy.name)
        yield min(random.uniform(0, longest), left)  # noqa: S311 - no secret
    RETRIES_EXHAUSTED.add(policy.name)


def attempts(policy: RetryPolicy) -> Iterator[int]:
    """Yield the tries of a policy, counted from 0, each after its pause.

    Raises `CallInterrupted` if the task that waits for the call was cancelled.
    """
    left = pauses(policy, time.monotonic())
    yield 0
    for made, seconds in enumerate(left, start=1):
        _sleep(seconds)
        yield made


def retry(
    policy: RetryPolicy,
    action: Callable[[], T],
    *,
    on: type[Exception] | tuple[type[Exception], ...] = TransactionConflict,
    before_again: Callable[[int], object] = lambda made: None,
) -> T:
    """Call `action`, and again while it raises `on` and the policy allows another try; or `Again`.

    `before_again` is called before each further try, with the number of earlier ones; its errors
    end all. What an `Again` says comes before it is part of the try. Raises the error of the last
    try.
    """
    began, made, left = time.monotonic(), 0, None
    prepare: Callable[[], object] | None = None
    try:
        while True:
            try:
                if prepare is not None:
                    prepare()
                    prepare = None
                return action()
            except Again as again:
                if prepare == again.prepare:  # it can't come before a try here
                    raise
                prepare = again.prepare
                continue
            except on as error:  # what nearly always succeeds makes no generator
                made, left = made + 1, left or pauses(policy, began)
                seconds = next(left, None)
                if seconds is None:
                    note_tries(error, made)
                    raise
                prepare = None
            _sleep(seconds)
            before_again(made)  # what it raises is no error of a try
    finally:
        prepare = None  # it refers to what was raised, and that to this frame


class Beaten:
    """What became of the tries of one operation or function, and whether the next one goes alone,
    with the gate held exclusively (decision 17)."""

    def __init__(self) -> None:
        self.is_exclusive = False
        """Whether the next try goes alone."""
        self._longest_seconds = 0.0

    @contextmanager
    def measured(self) -> Iterator[None]:
        """Measure a try of a function: how long that takes is known to nobody else."""
        began = time.monotonic()
        try:
            yield
        finally:
            self._longest_seconds = max(self._longest_seconds, time.monotonic() - began)

    def before_again(self, made: int) -> None:
        """Decide about the next try, after so many."""
        self.is_exclusive = goes_alone(made) and self._longest_seconds < EXCLUSIVE_SECONDS_MAX


def goes_alone(made: int) -> bool:
    """Whether the next try is beaten enough to go alone, after so many. Only every second one does:
    the gate can't be taken while another writer's block is open."""
    return made >= EXCLUSIVE_AFTER_CONFLICTS and made % 2 == 0


def note_tries(error: Exception, made: int) -> None:
    """Add the number of tries to an error that is raised now."""
    if made > 1 and isinstance(error, ZapdbError):
        error.context.setdefault("tries", made)


def _sleep(seconds: float) -> None:
    time.sleep(seconds)
    call = current_call()
    if call is not None:
        call.refuse_interrupted()
