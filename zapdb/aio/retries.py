"""Trying again on an event loop: the policies of `zapdb.storage.retries`, with awaited pauses."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from zapdb.errors import TransactionConflict
from zapdb.limits import RetryPolicy
from zapdb.storage.retries import note_tries, pauses

T = TypeVar("T")


async def retry(
    policy: RetryPolicy,
    action: Callable[[], Awaitable[T]],
    before_again: Callable[[int], object] = lambda made: None,
) -> T:
    """Await it, and again as long as it raises `TransactionConflict` and the policy gives it
    another try; raises what the last one raised. `before_again` is called before each further
    try, with the number of earlier ones."""
    made, left = 0, pauses(policy, time.monotonic())
    while True:
        try:
            return await action()
        except TransactionConflict as error:
            made, seconds = made + 1, next(left, None)
            if seconds is None:
                note_tries(error, made)
                raise
        await asyncio.sleep(seconds)
        before_again(made)
