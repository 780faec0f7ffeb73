"""An open database, and how it is opened.

Opening verifies every stored migration against itself and against the files, brings the tenant to
where the files end, and registers this process as a node. Whatever is wrong is refused before
anything is changed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Literal, TypeVar

from zapdb.catalog import DEFAULT_TENANT, View, ensure_rows, load_view
from zapdb.catalog.datasets import settle_datasets
from zapdb.catalog.history import Entry, read_entries
from zapdb.catalog.nodes import Heartbeat, Node, check_level, deregister, read_level, register
from zapdb.catalog.retirement import sweep
from zapdb.catalog.up import Applied, migrate_up, refuse_while_forgetting
from zapdb.catalog.verification import compare_files
from zapdb.catalog.zones import append_zones
from zapdb.database.session import Session
from zapdb.database.settings import read_setting, write_setting
from zapdb.database.table import Table
from zapdb.errors import PendingMigrations, ServedShapeUnavailable, ZapdbError
from zapdb.jobs import (
    JobReport,
    Runner,
    SweepReport,
    TableReport,
    plan_jobs,
    run_job,
    run_locally,
    sweep_blobs,
    verify,
)
from zapdb.jobs.job import JobKind
from zapdb.limits import SWEEP_AGE_SECONDS
from zapdb.migrations import list_files
from zapdb.records import decode_prefix
from zapdb.storage import Mode, Storage, connect, ensure_layout

Apply = Literal["never", "auto"]
T = TypeVar("T")


class Database:
    """An open database; a context manager; safe to share between threads.

    `zapdb.open` makes it. Closing it ends the process's registration as a node.
    """

    def __init__(
        self, storage: Storage, view: View, node: Node, applied: tuple[Applied, ...] = ()
    ) -> None:
        self.applied = applied
        """The migrations that opening this database put in force."""
        self._session = Session(storage, view, node)
        self._storage = storage
        self._node = node
        self._read_settings()
        self._heartbeat = Heartbeat(storage, node)

    def __enter__(self) -> Database:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<zapdb database {self._storage.shown_url} at migration {self.position}>"

    @property
    def storage(self) -> Storage:
        return self._storage

    @property
    def position(self) -> int:
        """The number of the newest migration in force."""
        return self._session.view.position

    @property
    def view(self) -> View:
        """What is in force, as far as this process knows."""
        return self._session.view

    def table(self, name: str) -> Table:
        """Raises `UnknownName`, naming the tables that there are."""
        return Table(self._session, name)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """A writing transaction of this thread; rolled back if the block raises.

        It can't be repeated by itself: when it meets another transaction, `TransactionConflict` is
        raised. `run` repeats.
        """
        with self._session.writing():
            yield

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """What this thread reads in the block, it reads as of one moment."""
        with self._session.snapshot():
            yield

    def run(self, function: Callable[[], T]) -> T:
        """Call `function` inside a transaction, again whenever it meets another transaction."""

        def attempt() -> T:
            with self._session.writing():
                return function()

        return self._session.run(attempt)

    def cluster_level(self) -> int:
        """The capability level of the cluster, as of now or of the snapshot."""
        return read_level(self._storage.connection())

    def setting(self, name: str) -> str:
        return read_setting(self._storage.connection(), name)

    def set_setting(self, name: str, value: str) -> None:
        with self._storage.transaction(Mode.CATALOG) as connection:
            write_setting(connection, name, value)
        self._read_settings()

    def _read_settings(self) -> None:
        self._session.writes_back = self.setting("on_read") == "write_back"

    def run_jobs(
        self,
        runner: Runner = run_locally,
        kinds: Collection[JobKind] = ("index", "convert", "validate"),
    ) -> list[JobReport]:
        """Build the indexes that are not built yet, convert all stale records, and look whether
        the records that are there keep to new checks and references."""
        reports = []
        for job in plan_jobs(self._storage, self.view.tenant, kinds):
            report = run_job(self._storage, job, runner)
            if report is not None:
                reports.append(report)
        return reports

    def count_by_revision(self, table: str) -> dict[int, int]:
        """How many records of a table have each schema index."""
        live = self._session.live(table)
        counts = live.records.count_by_prefix(self._storage.connection())
        return {decode_prefix(prefix, 0)[0]: count for prefix, count in counts}

    def history(self, table: str) -> list[Entry]:
        """The fingerprint history of a table, oldest first."""
        number = self._session.live(table).table.number
        with self._storage.transaction(Mode.READ) as connection:
            return list(read_entries(connection, self.view.tenant, number))

    def verify(self) -> list[TableReport]:
        """Check that every record decodes, and that indexes and blobs hold what they must."""
        return verify(self._storage, self.view.tenant)

    def sweep(
        self, *, older_than_seconds: float = SWEEP_AGE_SECONDS, dry_run: bool = False
    ) -> SweepReport:
        """Delete the large values that no record has any more; safe beside everything else.

        Changing and deleting records leaves theirs to it. With `dry_run` they are counted only.
        """
        return sweep_blobs(self._storage, older_than_seconds=older_than_seconds, dry_run=dry_run)

    def close(self) -> None:
        """End this process's registration and close its connections; safe to repeat."""
        if self._storage.is_closed:
            return
        self._heartbeat.stop()
        with suppress(ZapdbError):  # if the server is gone, the lease ends by itself
            deregister(self._storage, self._node)
        self._storage.close()


def open(url: str, *, migrations: str | Path, apply: Apply = "never") -> Database:
    """Open a database with the migrations of a directory.

    With `apply="auto"`, migrations that the database does not store yet are applied; with "never",
    they are refused, naming the command that applies them. Raises `MigrationConflict` where a file
    differs from what is stored, `InvalidMigration`, `CorruptCatalog`, `NotZapdb`, `NewerLayout` and
    `IncompatibleVersion`.
    """
    directory = Path(migrations)
    files = list_files(directory)
    storage = connect(url)
    applied: list[Applied] = []
    try:
        ensure_layout(storage, create=apply == "auto")
        ensure_rows(storage)
        append_zones(storage)
        while True:
            view = _load(storage)
            refuse_while_forgetting(view)
            comparison = compare_files(files, list(view.stored), view.chain)
            _refuse_shorter_files(view, comparison.files_end)
            if comparison.pending or view.position < view.chain.end:
                if comparison.pending and apply == "never":
                    raise _pending(comparison.pending[0].label, len(comparison.pending), storage)
                applied += migrate_up(storage, DEFAULT_TENANT, directory)
                continue
            node = register(storage, comparison.files_end)
            try:
                # Only now does a forget know of this process: one may have been faster.
                current = _load(storage, view)
                if (current.stored, current.forgetting) == (view.stored, None):
                    current = settle_datasets(storage, current, node)
                    sweep(storage)
                    return Database(storage, current, node, tuple(applied))
            except BaseException:
                with suppress(ZapdbError):
                    deregister(storage, node)
                raise
            deregister(storage, node)
    except BaseException:
        storage.close()
        raise


def _load(storage: Storage, known: View | None = None) -> View:
    with storage.transaction(Mode.READ) as connection:
        check_level(connection)
        return load_view(connection, DEFAULT_TENANT, known)


def _refuse_shorter_files(view: View, files_end: int) -> None:
    if files_end >= view.position:
        return
    raise ServedShapeUnavailable(
        "the database is ahead of the files, and this release can't serve an older shape yet",
        files_end=files_end,
        position=view.position,
        newest=view.chain.at(view.position).label,
        hint="bring the missing files into the directory, or take the newest migrations back with "
        "`zapdb migrate forget`",
    )


def _pending(first: str, count: int, storage: Storage) -> PendingMigrations:
    return PendingMigrations(
        "the files hold migrations that the database does not store yet",
        database=storage.shown_url,
        pending=count,
        first=first,
        hint="run `zapdb migrate up`, or open the database with apply='auto'",
    )


__all__ = ["Applied", "Apply", "Database", "open"]
