"""Waiting for a place without a thread: in the same queue as the threads that wait."""

from __future__ import annotations

import asyncio

from zapdb.storage.fair_lock import FairSemaphore


async def acquire_place(places: FairSemaphore, timeout_seconds: float | None) -> bool:
    """Whether a place was had within the time; that of a task that is cancelled is given on."""
    waiting = _Waiting(places)
    if places.request(waiting.grant):
        return True
    try:
        async with asyncio.timeout(timeout_seconds):
            await waiting.arrival
    except TimeoutError:
        return waiting.leave(wants_place=True)
    except BaseException:  # cancelled, or thrown away with its event loop
        waiting.leave(wants_place=False)
        raise
    return True


class _Waiting:
    """One task in the queue. The place comes from any thread, and arrives on the event loop."""

    def __init__(self, places: FairSemaphore) -> None:
        self._places = places
        self._loop = asyncio.get_running_loop()
        self.arrival = self._loop.create_future()
        self._has_arrived = False
        self._has_left = False

    def grant(self) -> None:
        """Called by the thread that gave the place up."""
        try:
            self._loop.call_soon_threadsafe(self._arrive)
        except RuntimeError:  # the loop was closed, and its tasks with it
            self._places.release()

    def _arrive(self) -> None:
        if self._has_left:
            self._places.release()
            return
        self._has_arrived = True
        if not self.arrival.done():
            self.arrival.set_result(None)

    def leave(self, *, wants_place: bool) -> bool:
        """Stop waiting; return whether the task has the place, if it wants one."""
        if self._places.withdraw(self.grant):
            return False
        if self._has_arrived:
            if not wants_place:
                self._places.release()
            return wants_place
        self._has_left = True  # it is on its way, and is given on when it arrives
        if self._loop.is_closed():
            self._places.release()
        return False
