"""A thread that interrupts what cancelled tasks have under way, until it ends.

Again and again, since a statement may end just then and the next one begin; and in a thread of its
own, since telling a server to cancel a statement waits for the server.
"""

from __future__ import annotations

import threading

from zapdb.aio.workers import Worker
from zapdb.limits import STRIKE_SECONDS
from zapdb.storage import Storage
from zapdb.storage.interruption import InterruptibleCall
from zapdb.storage.transaction_owners import in_no_transaction


class Interrupter:
    """Of one open database; its thread lives as long as there is something to interrupt."""

    def __init__(self, storage: Storage, starter: Worker) -> None:
        self._storage = storage
        self._starter = starter
        self._lock = threading.Lock()
        self._calls = list[InterruptibleCall]()
        self._is_running = False

    def interrupt(self, call: InterruptibleCall) -> None:
        """End a call as soon as that can be; returns at once."""
        call.is_interrupted = True
        with self._lock:
            self._calls.append(call)
            if self._is_running:
                return
            self._is_running = True
        thread = threading.Thread(
            target=in_no_transaction().run,
            args=(self._run,),
            name="zapdb-aio-interrupter",
            daemon=True,
        )
        self._starter.submit(thread.start)

    def _run(self) -> None:
        while True:
            with self._lock:
                self._calls = [call for call in self._calls if not call.has_ended]
                calls = list(self._calls)
                if not calls:
                    self._is_running = False
                    return
            for call in calls:
                call.strike(self._storage.interrupt)
            calls[0].wait(STRIKE_SECONDS)
