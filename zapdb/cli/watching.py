"""`zapdb catalog watch` and `zapdb jobs watch`: what changes, told as it does."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Final

import typer

from zapdb.cli.connecting import ServedTenantOptions
from zapdb.cli.job_bar import closing_answers, showing_looks
from zapdb.cli.jobs import JobArgument, show_state
from zapdb.cli.output import Output, format_duration, print_note
from zapdb.control.catalog import ChangedRow, watch_catalog
from zapdb.control.job_runs import JobLook
from zapdb.control.jobs.showing import JobProgress, get_job, watch_job
from zapdb.errors import EXIT_ERROR

REACHED: Final = ("done", "superseded")
"""The states of a job that nobody has to look after."""
KIND_WIDTH: Final = 16


def catalog_watch_command(
    options: ServedTenantOptions,
    output: Output,
    since: Annotated[
        int,
        typer.Option(
            "--since",
            min=0,
            metavar="SEQ",
            help="Only changes after this seq; else all rows first.",
        ),
    ] = 0,
    kinds: Annotated[
        list[str] | None,
        typer.Option("--kind", metavar="KIND", help="Only rows of this kind; may be repeated."),
    ] = None,
    all_tenants: Annotated[
        bool,
        typer.Option("--all-tenants", help="Also rows about other tenants, and about processes."),
    ] = False,
) -> None:
    """Show which rows of the catalog change, about once a second, until Ctrl-C: schemas, settings,
    jobs.

    Standard error then has the seq from which `--since` goes on. A row that changes several times
    within a second is shown once; what it says, other commands show.

    With `--json`, an object a line, when something has changed: `{seq, rows: [{seq, kind, key,
    is_deleted}]}`.
    """
    with options.control() as control, _noting_place() as place:
        asked = control.call(watch_catalog, since, tuple(kinds or ()), all_tenants)
        with closing_answers(asked) as answers:
            for found in answers:
                for row in found.rows:
                    _write_row(row, output)
                if found.rows:
                    output.lines([found])
                place[:] = [found.seq]


@contextmanager
def _noting_place() -> Iterator[list[int]]:
    """A block that takes the seq up to which everything was shown, and at its end says how to go
    on from there."""
    place = list[int]()
    try:
        yield place
    finally:
        for seq in place:
            print_note(f"--since {seq} goes on from here")


def _write_row(row: ChangedRow, output: Output) -> None:
    told = (f"{row.seq}  ", (f"{row.kind:<{KIND_WIDTH}}", "bold"), f"  {row.key}")
    output.write(*told, *([("  deleted", "yellow")] if row.is_deleted else []))


def jobs_watch_command(job: JobArgument, options: ServedTenantOptions, output: Output) -> int:
    """Show how far a job is, until it comes no further by itself, or Ctrl-C.

    Ctrl-C ends the command, and not the job. Exit status 1 if the job is blocked by records, or
    was cancelled: `zapdb jobs show` says more.

    With `--json`, an object a line, about once a second: `{id, state, is_running, reads, ranges,
    ranges_done, read, written, conflicts, quarantined, records_per_second, seconds_left, waits}`.
    `reads` is how many records it will have read at its end; the rate and the time left are null
    while nobody works on it.
    """
    with options.control() as control:
        found, state, told = control.call(get_job, job, 0.0), "", ""
        asked = control.call(watch_job, found.id)
        with showing_looks(found.doing, output) as look, closing_answers(asked) as answers:
            for seen in answers:
                state = seen.state
                output.lines([seen])
                if output.is_terminal:
                    look(_as_look(seen, found.doing))
                elif (now := _describe(seen)) != told:
                    told = now
                    output.write((f"{found.doing}: ", "bold"), now)
        if output.is_terminal:
            output.write((f"{found.doing}: ", "bold"), show_state(state, is_running=False))
    return 0 if state in REACHED else EXIT_ERROR


def _as_look(seen: JobProgress, doing: str) -> JobLook:
    rate = seen.records_per_second
    return JobLook(seen.id, doing, seen.read, seen.reads, rate, waits=seen.waits)


def _describe(seen: JobProgress) -> str:
    """The state, how far it is, and what it waits for, in a line."""
    state, _ = show_state(seen.state, is_running=seen.is_running)
    parts = [state, f"{seen.read:,} of {seen.reads:,} records"]
    if seen.seconds_left is not None:
        parts.append(f"{format_duration(seen.seconds_left)} left")
    return ", ".join(parts) + "".join(f"; waits: {reason}" for reason in seen.waits)
