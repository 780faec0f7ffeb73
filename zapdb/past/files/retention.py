"""What the follower of a store deletes by itself: old moments of the store, and, behind the store,
old changes of the log. Both are off until their settings say how old."""

from __future__ import annotations

import time
from typing import Final

from zapdb.catalog.settings import CHANGE_LOG_RETENTION, HISTORY_RETENTION, Scope
from zapdb.catalog.stored_settings import read_settings
from zapdb.log.change_log_pruning import ChangeLogPruning
from zapdb.past.files.history_manifest import read_store
from zapdb.past.files.purge import find_stored_before, purge_store
from zapdb.past.files.working_store import StoreWriter
from zapdb.storage import TransactionMode

RETENTION_SECONDS: Final = 24 * 3600.0
"""How often a follower purges and prunes."""


class Retention:
    """Purges and prunes once a day; for the first time when the follower begins."""

    def __init__(self, working: StoreWriter) -> None:
        self._working = working
        self._next = 0.0

    def step(self) -> None:
        """Do it if it is time to. Raises what `purge_store` raises."""
        now = time.monotonic()
        if now < self._next:
            return
        self._next = now + RETENTION_SECONDS
        working = self._working
        connection = working.storage.connection()
        settings, scope = read_settings(connection, working.tenant), Scope(working.tenant)
        present = working.storage.now_us(connection)
        history = int(settings.find(HISTORY_RETENTION, scope)[0])
        if history:
            self._purge(present - history * 1_000_000)
        log = int(settings.find(CHANGE_LOG_RETENTION, scope)[0])
        if log:
            self._prune(present - log * 1_000_000)

    def _purge(self, time_us: int) -> None:
        kept_from = find_stored_before(self._working, time_us)
        store = read_store(self._working.storage.connection(), self._working.tenant)
        if kept_from is not None and store is not None and kept_from > store.purged_before:
            purge_store(self._working, kept_from)

    def _prune(self, time_us: int) -> None:
        """Prune changes that are in files, that all followers have read, and that are old."""
        working = self._working
        storage, pruning = working.storage, ChangeLogPruning(working.log)
        with storage.transaction(TransactionMode.READ) as connection:
            store = read_store(connection, working.tenant)
            if store is None or store.state != "follows":
                return
            old = pruning.find_last_made_before(connection, time_us)
            place = min(old, pruning.find_last_up_to(connection, store.ends_bookmark))
            if place <= working.log.read_beginning(connection.fetch_all):
                return
        with working.changing(TransactionMode.WRITE) as connection:
            if pruning.list_behind(connection, place):
                return
            pruning.write_beginning(connection, place)
        after, is_last = 0, False
        while not is_last:
            began = time.monotonic()
            with working.changing(TransactionMode.JOB) as connection:
                batch = pruning.delete_some(connection, after)
            after, is_last = batch.after, batch.is_last
            time.sleep(time.monotonic() - began)  # a place for other writers of a SQLite file
