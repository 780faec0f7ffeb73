"""What an open database keeps up to date as the catalog changes: its tables, settings and jobs."""

from __future__ import annotations

import threading
from contextlib import suppress

from zapdb.catalog.cache import CatalogCache
from zapdb.catalog.row_kinds import Tenant
from zapdb.catalog.settings import Settings
from zapdb.catalog.stored_settings import read_settings
from zapdb.database.background import BackgroundJobs, BackgroundWork, run_all, run_urgent
from zapdb.database.catalog_watch import CatalogWatcher, ChangedRows, concerns, find_job_change
from zapdb.errors import ServedSchemaUnavailable, UnknownName
from zapdb.jobs.index_rebuilding import list_rebuilds
from zapdb.tables.session import Session


class TenantRefresher:
    """Watches the catalog for one tenant, from the opening of a database to its closing."""

    def __init__(self, watcher: CatalogWatcher, session: Session) -> None:
        self._watcher = watcher
        self._session = session
        self._tenant = session.catalog.tenant
        self._background: BackgroundJobs | None = None
        self._jobs_changed_at = 0
        self._is_over = False
        self._lock = threading.Lock()
        self._start_or_stop_jobs()
        watcher.add_listener(self)

    def _start_or_stop_jobs(self) -> None:
        """Begin or end the background's work as the settings and the indexes say."""
        with self._lock:
            work = self._find_work()
            if self._background is not None and self._background.work is not work:
                self._background.stop(wait=self._is_over)
                self._background = None
            if self._background is None and work is not None:
                self._background = BackgroundJobs(self._session.storage, self._tenant, work)

    def _find_work(self) -> BackgroundWork | None:
        if self._is_over or self._session.is_read_only:
            return None
        if self._session.settings.converts_in_background:
            return run_all
        return run_urgent if list_rebuilds(self._session.catalog) else None

    def use(self, settings: Settings) -> None:
        self._session.settings = settings
        self._start_or_stop_jobs()

    def stop(self) -> None:
        """End the background's work; safe to repeat."""
        self._watcher.remove_listener(self)
        self._is_over = True
        self._start_or_stop_jobs()

    def _end_work(self) -> None:
        with self._lock:
            self._is_over = True
            if self._background is not None:
                self._background.stop(wait=False)
                self._background = None

    def on_change(self, cache: CatalogCache, changed: ChangedRows) -> None:
        """Take in what changed, in the watcher's thread, before its cache is shown."""
        tenant = cache.get(Tenant, self._tenant)
        if tenant is None or tenant.removing:
            self._end_work()  # calls that use the tenant raise an error
            return
        if any(kind == "setting" for kind, _ in changed):
            self.use(read_settings(cache, self._tenant))
        if concerns(self._tenant, changed):
            # Calls that use the tenant raise it: it was removed just now, or restored.
            with suppress(ServedSchemaUnavailable, UnknownName):
                self._session.reload(cache)
            self._start_or_stop_jobs()
            self._wake_jobs()
        elif (changed_at := find_job_change(self._tenant, cache, changed)) > self._jobs_changed_at:
            self._jobs_changed_at = changed_at
            self._wake_jobs()

    def _wake_jobs(self) -> None:
        background = self._background
        if background is not None:
            background.wake()
