"""How far a job is while it runs: a progress bar on a terminal, and everywhere why it waits.

The bar has the rate, the time left, the records by revision, and below it what the job waits for.
Without a terminal, what it waits for is a line on standard error, whenever that changes.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from zapdb.activation import TenantCatalog, load_tenant_catalog
from zapdb.cli.output import Output, format_duration, print_note
from zapdb.cli.progress_counter import RateMeter
from zapdb.errors import ConcurrencyError, StorageError, ZapdbError
from zapdb.jobs import Job, read_progress
from zapdb.jobs.job import read_job
from zapdb.jobs.job_status import count_by_revision, count_reads
from zapdb.jobs.job_types import type_of
from zapdb.jobs.waiting import SeenBy, find_waits
from zapdb.printing import printable
from zapdb.storage import Connection, Storage, TransactionMode

POLL_SECONDS: Final = 0.2
LOOK_SECONDS: Final = 1.0
"""How often it is asked what the job waits for."""
BAR_WIDTH_MIN: Final = 50
TITLE_WIDTH_MIN: Final = 90
"""The widths of terminals that leave room for a bar beside the numbers, and a title beside both."""
COUNT_SECONDS: Final = 1.0
COUNT_SHARE: Final = 0.05
"""Records are counted by revision at most so often, and for no more than this part of the time."""

Waits = dict[str, str]
"""What a job waited for, by what comes before the colon: numbers behind it change all the time."""


@contextmanager
def showing_progress(
    storage: Storage, job: Job, title: str, output: Output, seen_by: SeenBy
) -> Iterator[Waits]:
    """Show how far a job is, for the time of a block; yields all that it has waited for so far."""
    waits = Waits()
    with _shown(title, output) as show:
        follower = _Follower(storage, job, seen_by, waits, show)
        thread = threading.Thread(target=follower.run, name="zapdb-bar", daemon=True)
        thread.start()
        try:
            yield waits
        finally:
            follower.stop.set()
            thread.join()


@dataclass(slots=True)
class _Shown:
    """What is known of the job at one moment."""

    read: int = 0
    total: int | None = None
    rate: float | None = None
    revisions: str = ""
    waits: tuple[str, ...] = ()

    @property
    def seconds_left(self) -> float | None:
        if not self.rate or self.total is None:
            return None
        return max(0, self.total - self.read) / self.rate


class _Follower:
    """A thread that looks at a job from beside it."""

    def __init__(
        self,
        storage: Storage,
        job: Job,
        seen_by: SeenBy,
        waits: Waits,
        show: Callable[[_Shown], None],
    ) -> None:
        self.stop = threading.Event()
        self._storage = storage
        self._job = job
        self._seen_by = seen_by
        self._waits = waits
        self._show = show
        self._shown = _Shown()
        self._meter = RateMeter()
        self._look_at = time.monotonic() + LOOK_SECONDS
        self._count_at = 0.0

    def run(self) -> None:
        try:
            while not self.stop.wait(POLL_SECONDS):
                try:
                    self._step()
                except (StorageError, ConcurrencyError):  # the next look has another connection
                    self._storage.release_connection()
        except ZapdbError:
            return  # what is wrong shows itself in the job
        finally:
            self._storage.release_connection()

    def _step(self) -> None:
        shown, now = self._shown, time.monotonic()
        with self._storage.transaction(TransactionMode.READ) as connection:
            progress = read_progress(connection, self._job.id)
            if now >= min(self._look_at, self._count_at):
                catalog = load_tenant_catalog(connection, self._job.tenant)
                if now >= self._count_at:
                    total = count_reads(connection, catalog, self._job, progress)
                    shown.total = max(total, progress.read)
                    shown.revisions = _show_revisions(connection, catalog, self._job)
                    spent = time.monotonic() - now
                    self._count_at = now + max(COUNT_SECONDS, spent / COUNT_SHARE)
                if now >= self._look_at:
                    job = read_job(connection, self._job.id)
                    shown.waits = find_waits(connection, catalog, job, self._seen_by)
                    self._look_at = now + LOOK_SECONDS
        self._waits |= {reason.partition(":")[0]: reason for reason in shown.waits}
        shown.read, shown.rate = progress.read, self._meter.measure(now, progress.read)
        self._show(shown)


def _show_revisions(connection: Connection, catalog: TenantCatalog, job: Job) -> str:
    if not type_of(job).rewrites_records:
        return ""
    counts = count_by_revision(connection, catalog, job.table)
    return ", ".join(f"revision {number}: {count:,}" for number, count in counts.items())


@contextmanager
def _shown(title: str, output: Output) -> Iterator[Callable[[_Shown], None]]:
    if not output.is_terminal or output.console.is_dumb_terminal:
        yield _Notes(title).show
        return
    with make_bar(output, "{task.fields[rate]}", "{task.fields[left]}") as bar:
        task = bar.add_task(printable(title), total=None, rate="", left="")

        def show(shown: _Shown) -> None:
            rate, left = shown.rate, shown.seconds_left
            bar.update(
                task,
                completed=shown.read,
                total=shown.total,
                rate="" if rate is None else f"{rate:,.0f}/s",
                left="" if left is None else f"ETA {format_duration(left)}",
            )
            lines = [shown.revisions] if shown.revisions else []
            bar.notes = (*lines, *(f"waits: {reason}" for reason in shown.waits))

        yield show


class _Notes:
    """Lines on standard error, where there is no terminal."""

    def __init__(self, title: str) -> None:
        self._title = title
        self._told = set[str]()

    def show(self, shown: _Shown) -> None:
        found = {reason.partition(":")[0]: reason for reason in shown.waits}
        for name in found.keys() - self._told:
            print_note(f"waiting: {self._title}: {found[name]}")
        self._told = set(found)


@contextmanager
def progress_bar(output: Output, title: str, total: int) -> Iterator[Callable[[], None]]:
    """Show a bar that advances with each call of the yielded function; nothing without a
    terminal."""
    if not output.is_terminal or output.console.is_dumb_terminal:
        yield lambda: None
        return
    with make_bar(output) as bar:
        task = bar.add_task(title, total=total)
        yield lambda: bar.advance(task)


def make_bar(output: Output, *texts: str) -> Any:
    """A bar with columns of texts, or with the time left, and `notes`: lines below it.

    On a narrow terminal the title has a line of its own, so that no number is cut.
    """
    from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar
    from rich.text import Text

    width = output.console.width

    class Counts(TextColumn):
        def render(self, task: Any) -> Text:
            total = "?" if task.total is None else f"{task.total:,.0f}"
            return Text(f"{task.completed:,.0f}/{total}", "progress.download")

    class BarWithNotes(Bar):
        notes: tuple[str, ...] = ()

        def get_renderables(self) -> Iterator[Any]:
            if width < TITLE_WIDTH_MIN:
                yield from (Text(task.description) for task in self.tasks)
            yield self.make_tasks_table(self.tasks)
            for note in self.notes:
                yield Text(printable(note), "dim")

    columns: list[Any] = [TaskProgressColumn(), Counts("")]
    columns += [TextColumn(text) for text in texts] or [TimeRemainingColumn()]
    if width >= BAR_WIDTH_MIN:
        columns.insert(0, BarColumn(bar_width=None))
    if width >= TITLE_WIDTH_MIN:
        columns.insert(0, TextColumn("{task.description}", markup=False))
    return BarWithNotes(
        *columns, console=output.console, transient=True, expand=width >= BAR_WIDTH_MIN
    )
