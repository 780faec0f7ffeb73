"""Runs the follower of a store: to the end of the change log once, or until it is stopped."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from zapdb.catalog.cluster.leases import Owner
from zapdb.catalog.settings import CHANGE_LOG_RETENTION, HISTORY_RETENTION, Scope
from zapdb.catalog.stored_settings import read_settings
from zapdb.errors import (
    ConcurrencyError,
    LeaseHeld,
    LeaseLost,
    StorageError,
    UsageError,
    ZapdbError,
)
from zapdb.limits import (
    HISTORY_POLL_SECONDS,
    HISTORY_RETRY_SECONDS,
    HISTORY_UPKEEP_WAIT_SECONDS,
)
from zapdb.log.change_log_pruning import ChangeLogPruning
from zapdb.past.files.cleaning import delete_orphans, delete_retired
from zapdb.past.files.directories import writing_to
from zapdb.past.files.erased_files import finish_erasures
from zapdb.past.files.follower import FollowerStep, HistoryFollower
from zapdb.past.files.history_manifest import FOLLOWED, HistoryStore, read_store
from zapdb.past.files.purge import find_stored_before, purge_store
from zapdb.past.files.stores import START_HINT, hold_store, is_wanted, take_over_store
from zapdb.past.files.working_store import StoreWriter
from zapdb.storage import Storage, TransactionMode

CLEAN_SECONDS: Final = 600.0
"""How often files that nothing needs are looked for."""

RETENTION_SECONDS: Final = 24 * 3600.0
"""How often a follower purges and prunes."""

logger = logging.getLogger("zapdb.history")

Report = Callable[[FollowerStep], object]
Wait = Callable[[str], object]


def flush_store(
    storage: Storage, tenant: int, wait_seconds: float = HISTORY_UPKEEP_WAIT_SECONDS
) -> None:
    """Take all changes until now into files, and complete what is unfinished; a process that
    follows pauses meanwhile.

    Raises `LeaseHeld` if that does not come to the end of its step within `wait_seconds`,
    `UsageError` without a store and for a stopped one, and what is in the way:
    `HistoryUnreachable`, `DiskFull`, `ChangesPruned`.
    """
    with take_over_store(storage, tenant, wait_seconds) as working:
        store = _require_following(working)
        _go_to_end(working, HistoryFollower(working), lambda step: None)
        with writing_to(store.directory):
            pass  # it is there, also if there was nothing to be written


def run_store(
    storage: Storage,
    tenant: int,
    *,
    stop: threading.Event,
    report: Report = lambda step: None,
    wait: Wait = lambda reason: None,
) -> None:
    """Follow the change log until `stop` is set, or the store is stopped or broken.

    While another process follows, it waits to take its place; while the database can't be reached,
    it waits for that. `wait` is called with the reason why nothing can be done now. Raises
    `UsageError` without a store, and `ChangesPruned` when the log was pruned in front of it.
    """
    while not stop.is_set():
        try:
            if is_wanted(storage.connection(), tenant):
                wait("the store is flushed, purged, erased from, or moved")
                stop.wait(HISTORY_POLL_SECONDS)
                continue
            with hold_store(storage, tenant, Owner.here()) as working:
                _require_following(working)
                if _follow(working, stop, report, wait):
                    return
        except LeaseHeld as error:
            wait(str(error))
            stop.wait(HISTORY_RETRY_SECONDS)
        except LeaseLost as error:
            logger.warning("the history store is followed by another process: %s", error.message)
        except (StorageError, ConcurrencyError) as error:  # of the database, not of the store
            if storage.pool.is_closed:
                raise
            wait(str(error))
            stop.wait(HISTORY_RETRY_SECONDS)


def _require_following(working: StoreWriter) -> HistoryStore:
    store = read_store(working.storage.connection(), working.tenant)
    if store is None:
        raise UsageError("the tenant has no history store", hint=START_HINT)
    if store.state not in FOLLOWED:
        raise UsageError(
            f"the history store is {store.state}",
            directory=store.directory,
            hint="`zapdb history start` goes on with it"
            if store.state == "stopped"
            else "`zapdb history start` begins a new timeline, with a gap before it",
        )
    return store


def _follow(working: StoreWriter, stop: threading.Event, report: Report, wait: Wait) -> bool:
    """Follow until it is stopped; returns True then, False if somebody waits for the lease."""
    follower, cleaned_at, is_begun = HistoryFollower(working), 0.0, False
    retention = Retention(working)
    while not stop.is_set():
        if is_wanted(working.storage.connection(), working.tenant):
            return False
        try:
            if not is_begun:
                finish_erasures(working)
                is_begun = True
            step = follower.step()
            if step.is_any:
                report(step)
                continue
            if time.monotonic() - cleaned_at > CLEAN_SECONDS:
                cleaned_at = time.monotonic()
                retention.step()
                delete_retired(working)
                delete_orphans(working)
        except (StorageError, ConcurrencyError) as error:
            if isinstance(error, LeaseLost):
                raise
            _note_problem(working, error)
            wait(str(error))
            stop.wait(HISTORY_RETRY_SECONDS)
            continue
        store = read_store(working.storage.connection(), working.tenant)
        if store is None or store.state not in FOLLOWED:
            return True
        stop.wait(HISTORY_POLL_SECONDS)
    return True


def _go_to_end(working: StoreWriter, follower: HistoryFollower, report: Report) -> None:
    until: int | None = None
    while True:
        try:
            if until is None:
                finish_erasures(working)
                until = working.find_newest_stamp()
            step = follower.step(flush=True, until=until)
        except StorageError as error:
            _note_problem(working, error)
            raise
        if not step.is_any:
            return
        report(step)


def _note_problem(working: StoreWriter, error: ZapdbError) -> None:
    """Store what is in the way, for `zapdb history status`; it goes with the next batch. Nothing is
    in the way of a store that was stopped meanwhile."""
    try:
        with working.changing() as connection:
            store = read_store(connection, working.tenant)
            if store is None or store.state not in FOLLOWED:
                return
            if store.problem != error.message:
                working.update(connection, store, replace(store, problem=error.message))
    except ZapdbError as other:
        logger.warning("the history store waits: %s (not stored: %s)", error.message, other.message)


class Retention:
    """What a follower deletes by itself, once a day, for the first time when it begins: old moments
    of the store, and, behind the store, old changes of the log. Both are off until their settings
    say how old."""

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
