"""The places of calls that may take minutes: about migration files, rolling back, measuring.

They have workers of their own (`zapdb.aio`), so look-ups, streams, job control and heartbeats wait
for none of them. A call has its place before its files are received: so it is bounded, too, how
many files are in memory. One principal has a part of the places, and is refused beyond it; those of
several principals wait for each other, in their order.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from zapdb.errors import ServiceBusy
from zapdb.limits import ASYNC_LONG_CALLS, LONG_CALLS_OF_ONE_MAX


class LongCalls:
    """Of one server, on its event loop."""

    def __init__(self) -> None:
        self._places = asyncio.Semaphore(ASYNC_LONG_CALLS)
        self._under_way = Counter[str]()
        """How many calls each principal has, those that wait for a place included."""

    @asynccontextmanager
    async def place(self, principal: str) -> AsyncIterator[None]:
        """Have a place in the block; raises `ServiceBusy`."""
        if self._under_way[principal] >= LONG_CALLS_OF_ONE_MAX:
            raise ServiceBusy(
                "the principal has too many long calls under way",
                principal=principal,
                most=LONG_CALLS_OF_ONE_MAX,
                hint="ask again when one of them has ended",
            )
        self._under_way[principal] += 1
        try:
            async with self._places:
                yield
        finally:
            self._under_way[principal] -= 1
            if not self._under_way[principal]:
                del self._under_way[principal]
