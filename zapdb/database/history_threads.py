"""Following history stores in threads of a process that has the database open anyway."""

from __future__ import annotations

import logging
import threading
from typing import Final

from zapdb.errors import ZapdbError
from zapdb.storage import Storage

logger = logging.getLogger("zapdb.history")

RETRY_SECONDS: Final = 5.0
"""The pause before a store is looked at again that is stopped or broken."""
ENDS_SECONDS: Final = 30.0
"""How long closing the database waits for a thread to come to the end of its step."""


class HistoryThreads:
    """A thread for each tenant whose store is followed here, until the database is closed: one that
    is stopped or broken meanwhile is followed when it is started again."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._threads: dict[int, tuple[threading.Thread, threading.Event]] = {}
        self._lock = threading.Lock()

    def start(self, tenant: int) -> None:
        """Follow a tenant's store, unless it is followed here already."""
        with self._lock:
            known = self._threads.get(tenant)
            if known is not None and known[0].is_alive():
                return
            stop = threading.Event()
            thread = threading.Thread(
                target=self._run, args=(tenant, stop), name="zapdb-history", daemon=True
            )
            self._threads[tenant] = (thread, stop)
            thread.start()

    def stop(self, tenant: int | None = None) -> None:
        """End the thread of a tenant, or all; each comes to the end of its step first."""
        with self._lock:
            ending = [
                self._threads.pop(number)
                for number in list(self._threads)
                if tenant in (None, number)
            ]
        for _, stop in ending:
            stop.set()
        for thread, _ in ending:
            thread.join(ENDS_SECONDS)

    def _run(self, tenant: int, stop: threading.Event) -> None:
        from zapdb.past.files.follower_run import run_store

        told = ""
        try:
            while not stop.is_set() and not self._storage.pool.is_closed:
                try:
                    run_store(self._storage, tenant, stop=stop)
                except ZapdbError as error:
                    if error.message != told and not stop.is_set():
                        logger.warning("the history store is not followed now: %s", error)
                    told = error.message
                stop.wait(RETRY_SECONDS)
        finally:
            self._storage.release_connection()
