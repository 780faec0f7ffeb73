"""The catalog watch: one thread of an open database keeps the process's catalog cache new.

About once a second the thread checks whether the newest seq has changed, and if so updates the
cache (`catalog.cache`). Listeners are called before the new cache is shown, so that everything
derived from it (the active tables, the settings) is as new as the cache. The application's
callbacks are called afterwards."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

from zapdb.catalog import cache
from zapdb.catalog.cache import CatalogCache
from zapdb.catalog.cluster.level import check_level
from zapdb.catalog.feed import purge_if_long
from zapdb.catalog.row_kinds import KINDS, CatalogRow, Job
from zapdb.errors import CatalogBehind, UnknownName, UsageError, ZapdbError
from zapdb.limits import CATALOG_POLL_SECONDS, CATALOG_WAIT_SECONDS
from zapdb.storage import Storage, TransactionMode
from zapdb.tables.given_functions import require_no_coroutine

logger = logging.getLogger("zapdb.catalog_watch")

ChangedRows = set[tuple[str, str]]
"""The (kind, key) pairs of the rows that a step changed."""


class CatalogListener(Protocol):
    """Is called before a newer cache is shown, in the watcher's thread."""

    def on_change(self, cache: CatalogCache, changed: ChangedRows) -> None: ...

    def stop(self) -> None: ...


@dataclass(frozen=True, slots=True)
class CatalogChange:
    """A row of the catalog that changed, as this process has seen it before and after; several
    changes within a second may be one.

    `before` is None for a new row, and `after` for a deleted one. `seq` is that of the newest
    change. `tenant` is the number of the tenant that the row is about, None if it is about no
    single one.
    """

    seq: int
    kind: str
    key: str
    before: CatalogRow | None
    after: CatalogRow | None

    @property
    def tenant(self) -> int | None:
        row = self.before if self.after is None else self.after
        return None if row is None else row.of_tenant


Callback = Callable[[CatalogChange], object]


@dataclass(frozen=True, slots=True)
class _Subscription:
    """A callback, with what it wants to hear of: kinds of rows, and one tenant or all of them."""

    callback: Callback
    kinds: frozenset[str]
    tenant: int | None

    def wants(self, change: CatalogChange) -> bool:
        is_wanted = self.tenant is None or change.tenant in (None, self.tenant)
        return is_wanted and change.kind in self.kinds


class CatalogWatcher:
    """One per process and database; safe to share between threads."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._cache: CatalogCache | None = None
        self._error: ZapdbError | None = None
        self._begun = self._ended = 0  # how many steps
        self._listeners: list[CatalogListener] = []
        self._subscriptions: list[_Subscription] = []
        self._changed = threading.Condition()
        self._wake = threading.Event()
        self._stopped = False
        self._thread = threading.Thread(target=self._run, name="zapdb-watch", daemon=True)
        self._thread.start()

    @property
    def known(self) -> CatalogCache | None:
        """The cache as it is; None as long as none was loaded."""
        return self._cache

    @property
    def error(self) -> ZapdbError | None:
        """Why the newest look at the catalog failed, if it did."""
        return self._error

    def cache(self, timeout_seconds: float) -> CatalogCache:
        """The cache as it is, which may be about a second old; loaded now if it was not yet."""
        return self._cache or self.wait(0, timeout_seconds)

    def wait(self, seq: int, timeout_seconds: float) -> CatalogCache:
        """The cache, once it has the change with this seq; raises `CatalogBehind`.

        What keeps the cache from being loaded is raised as it is, if a step that begins from now
        on meets it: one under way may have read what has been repaired since.
        """
        deadline = time.monotonic() + timeout_seconds
        with self._changed:
            begun = self._begun
            while self._cache is None or self._cache.seq < seq:
                if self._stopped:
                    raise UsageError("the database is closed", hint="open it again")
                if self._error is not None and self._ended > begun:
                    raise self._error
                left = deadline - time.monotonic()
                if left <= 0:
                    raise CatalogBehind(
                        "this process has not seen a change of the catalog in time",
                        seq=seq,
                        seen="nothing" if self._cache is None else self._cache.seq,
                        waited_seconds=timeout_seconds,
                        hint="wait longer, or check that the seq belongs to this database",
                    )
                self._wake.set()
                self._changed.wait(min(left, CATALOG_POLL_SECONDS))
            return self._cache

    def wake(self) -> None:
        """Look for changes now."""
        self._wake.set()

    def add_listener(self, listener: CatalogListener) -> None:
        self._listeners.append(listener)

    def remove_listener(self, listener: CatalogListener) -> None:
        with suppress(ValueError):
            self._listeners.remove(listener)

    def subscribe(
        self, callback: Callback, kinds: Collection[str] | None, tenant: int | None
    ) -> Callable[[], None]:
        """Call back after each change of rows of these kinds, None for all, and of a tenant, None
        for all of them; returns what ends it, safe to repeat. Raises `UnknownName` for a kind."""
        wanted = frozenset(KINDS if kinds is None else kinds)
        for kind in wanted:
            if kind not in KINDS:
                raise UnknownName(
                    "rows of the catalog have no such kind", kind=kind, kinds=", ".join(KINDS)
                )
        self.cache(CATALOG_WAIT_SECONDS)  # only changes after this cache are reported
        subscription = _Subscription(callback, wanted, tenant)
        self._subscriptions.append(subscription)

        def unsubscribe() -> None:
            with suppress(ValueError):
                self._subscriptions.remove(subscription)

        return unsubscribe

    def stop(self) -> None:
        with self._changed:
            self._stopped = True
            self._changed.notify_all()
        self._wake.set()
        for listener in list(self._listeners):
            listener.stop()
        if threading.current_thread() is not self._thread:
            self._thread.join(timeout=5)

    def _run(self) -> None:
        try:
            self._watch()
        finally:
            self._storage.release_connection()

    def _watch(self) -> None:
        while not self._stopped:
            self._wake.wait(CATALOG_POLL_SECONDS)
            self._wake.clear()
            if self._stopped:
                return
            self._storage.pool.reap_connections()  # what ended threads left open keeps others out
            with self._changed:
                self._begun += 1
            error: ZapdbError | None = None
            step: _Step | None = None
            try:
                step = self._step()
            except ZapdbError as problem:
                error = problem
                if self._error is None and not self._stopped:
                    logger.warning("the catalog could not be followed: %s", error)
            with self._changed:
                self._error, self._ended = error, self._begun
                self._changed.notify_all()
            if step is not None and self._subscriptions:
                self._call_back(step)

    def _step(self) -> _Step | None:
        before = self._cache
        with self._storage.transaction(TransactionMode.READ) as connection:
            if self._storage.read_only:  # no heartbeat checks it
                check_level(connection)
            now = (
                cache.load_cache(connection)
                if before is None
                else cache.refresh_cache(connection, before)
            )
        if before is not None and now is before:
            return None
        changed = now.changed_since(before or cache.NOTHING_CACHED)
        for listener in list(self._listeners):
            listener.on_change(now, changed)
        with self._changed:
            self._cache = now
            self._changed.notify_all()
        if not self._storage.read_only:
            purge_if_long(self._storage)
        return None if before is None else (before, now, changed)

    def _call_back(self, step: _Step) -> None:
        subscriptions = list(self._subscriptions)
        kinds = frozenset[str]().union(*(one.kinds for one in subscriptions))
        try:
            changes = list_changes(step, kinds)
        except ZapdbError:
            logger.exception("what changed in the catalog can't be told to callbacks")
            return
        for change in changes:
            for one in subscriptions:
                if one in self._subscriptions and one.wants(change):
                    try:
                        made = one.callback(change)
                        require_no_coroutine(made, one.callback, "on_catalog_change")
                    except BaseException:  # one that exits must not end the watch
                        logger.exception("a callback of on_catalog_change failed")


_Step = tuple[CatalogCache, CatalogCache, ChangedRows]
"""What was cached before and is now, and the rows that differ."""


def list_changes(step: _Step, kinds: frozenset[str]) -> list[CatalogChange]:
    """Return the changes of rows of some kinds between two caches, in the order of their seqs."""
    before, now, changed = step
    found = [
        CatalogChange(
            now.seqs.get((kind, key), now.seq),
            kind,
            key,
            before.get(KINDS[kind], key),
            now.get(KINDS[kind], key),
        )
        for kind, key in changed
        if kind in kinds
    ]
    return sorted(found, key=lambda change: (change.seq, change.kind, change.key))


def concerns(tenant: int, changed: ChangedRows) -> bool:
    """Return whether rows changed that define a tenant's catalog, or that block its changes."""
    return any(
        kind == "chain"
        or (kind in ("tenant", "index", "constraint") and key.partition("/")[0] == str(tenant))
        for kind, key in changed
    )


def find_job_change(tenant: int, cache: CatalogCache, changed: ChangedRows) -> int:
    """Return when an operator last changed one of a tenant's planned jobs, among the rows that
    changed, in microseconds since 1970 UTC; 0 if none did."""
    jobs = [cache.get(Job, key) for kind, key in changed if kind == Job.KIND]
    return max(
        (job.changed_at for job in jobs if job and job.tenant == tenant and job.state == "planned"),
        default=0,
    )
