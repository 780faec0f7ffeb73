"""How far a job is while it runs: a progress bar on a terminal, and everywhere why it waits.

The bar has the rate, the time left, the records by revision, and below it what the job waits for.
Without a terminal, what it waits for is a line on standard error, whenever that changes.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeVar

from zapdb.cli.output import Output, format_duration, print_note
from zapdb.control.job_runs import POLL_SECONDS, JobLook, JobWatcher, Waits
from zapdb.errors import ZapdbError
from zapdb.jobs import Job
from zapdb.jobs.waiting import SeenBy
from zapdb.printing import printable
from zapdb.storage import Storage

A = TypeVar("A")

BAR_WIDTH_MIN: Final = 50
TITLE_WIDTH_MIN: Final = 90
"""The widths of terminals that leave room for a bar beside the numbers, and a title beside both."""


@contextmanager
def showing_progress(
    storage: Storage, job: Job, title: str, output: Output, seen_by: SeenBy
) -> Iterator[Waits]:
    """Show how far a job is, for the time of a block; yields all that it has waited for so far."""
    watcher, stop = JobWatcher(storage, job, title, seen_by), threading.Event()

    def follow() -> None:
        try:
            while not stop.wait(POLL_SECONDS):
                seen = watcher.look()
                if seen is not None:
                    show(seen)
        except ZapdbError:
            return  # what is wrong shows itself in the job
        finally:
            storage.release_connection()

    with showing_looks(title, output) as show:
        thread = threading.Thread(target=follow, name="zapdb-bar", daemon=True)
        thread.start()
        try:
            yield watcher.waits
        finally:
            stop.set()
            thread.join()


@contextmanager
def closing_answers(answers: Iterator[A]) -> Iterator[Iterator[A]]:
    """Answers as they come; the work that makes them ends with the block, whatever ends that."""
    try:
        yield answers
    finally:
        close = getattr(answers, "close", None)  # a generator's, or a stream's of a client
        if close is not None:
            close()


@contextmanager
def showing_looks(title: str, output: Output) -> Iterator[Callable[[JobLook], None]]:
    """Show what is seen of a job: a bar on a terminal, else lines of what it waits for."""
    if not output.is_terminal or output.console.is_dumb_terminal:
        yield _Notes(title).show
        return
    with make_bar(output, "{task.fields[rate]}", "{task.fields[left]}") as bar:
        task = bar.add_task(printable(title), total=None, rate="", left="")

        def show(shown: JobLook) -> None:
            rate, left = shown.records_per_second, shown.seconds_left
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

    def show(self, shown: JobLook) -> None:
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
