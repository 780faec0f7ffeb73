"""`zapdb mirror`: plain tables of the current state in another database."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

import typer

from zapdb.cli.connecting import TenantOptions
from zapdb.cli.exclusive_jobs import JobCounter, OnlyLocalOption, counted_job, refuse_spark
from zapdb.cli.output import Output, format_count, print_note
from zapdb.errors import EXIT_ERROR, EXIT_PENDING, UsageError
from zapdb.transfer.mirror.comparison import compare_mirror
from zapdb.transfer.mirror.mirror import Mirror
from zapdb.transfer.mirror.mirror_run import begin_mirror, run_mirror
from zapdb.transfer.mirror.mirror_status import MirrorStatus, MirrorTableStatus, read_mirror_status
from zapdb.transfer.mirror.target_opening import open_target

ToOption = Annotated[
    str,
    typer.Option(
        "--to",
        metavar="TARGET",
        help="schema:NAME in the same PostgreSQL database, "
        "postgresql://user@host/database?schema=NAME, sqlite:///FILE, or duckdb:FILE.",
    ),
]
PROBLEM_HINT = (
    "drop or rename what is in the way; the mirror then goes on with the table within seconds, "
    "and views can be made again"
)
COST_NOTE = (
    "the change log was off and is switched on for this tenant: each transaction writes a change "
    "for every record that it touches, which takes the space of the record before and after it "
    "until `zapdb changes prune`"
)


def mirror_run_command(
    to: ToOption,
    options: TenantOptions,
    output: Output,
    once: Annotated[
        bool,
        typer.Option(
            "--once", help="End when all changes until now are applied, for a nightly job."
        ),
    ] = False,
    foreign_keys: Annotated[
        bool | None,
        typer.Option(
            "--foreign-keys/--no-foreign-keys",
            help="Whether the tables have foreign keys; by default as before, at first with them.",
            show_default=False,
        ),
    ] = None,
    engine: OnlyLocalOption = "local",
) -> int:
    """Keep plain tables of a tenant's records in another database, until interrupted.

    Switches the change log on, also for later tables; tables for which it is set to off are left
    out. It copies the tables as of one moment, then applies each change once, within about a
    second. Schema changes alter the tables. Run an interrupted mirror again: it continues. It
    undoes what other programs write to its tables, so the target must be a schema or file of its
    own. NOT NULL and foreign keys are added when all changes are applied.

    The mirror is a job, which `zapdb jobs` shows, pauses, throttles and cancels.

    Exit status 1 with `--once` if something is in the way of a table, such as a view on a column
    that was dropped; the other tables are kept.

    With `--json`, which needs `--once`: `{target, changes, made: [TABLE], altered: [TABLE],
    dropped: [TABLE], broken: [TABLE], rows_repaired, lost: [TEXT], problems: {TABLE: TEXT}}`;
    `broken` names the tables that others had changed, `lost` what they had added to a table and
    could not be added to the one that was made in its place.
    """
    refuse_spark("mirror", engine)
    if output.as_json and not once:
        raise UsageError("--json reports at the end, and a mirror has none", hint="add --once")
    with options.open() as db:
        target = open_target(to, db._storage)
        mirror = Mirror(db, target, foreign_keys=foreign_keys)
        try:
            if begin_mirror(mirror, once=once):
                print_note(COST_NOTE)
            with counted_job(options, "mirror", target.shown) as counter:
                mirror.pace, counter.job.on_read = counter.job, counter.add
                reporter = _Reporter(output, counter)
                run_mirror(
                    mirror,
                    once=once,
                    report=reporter.show,
                    wait=reporter.wait,
                    keep_pace=lambda: counter.job.note(0),
                )
        finally:
            target.close()
    done = mirror.report
    output.document(
        {
            "target": target.shown,
            "changes": done.changes,
            "made": done.made,
            "altered": done.altered,
            "dropped": done.dropped,
            "broken": list(dict.fromkeys(done.broken)),
            "rows_repaired": done.repaired,
            "lost": done.lost,
            "problems": {name: text for name, text in done.problems.items() if text},
        }
    )
    return EXIT_ERROR if any(done.problems.values()) else 0


class _Reporter:
    """Tells what a mirror does: tables at once, changes at the end of a batch."""

    def __init__(self, output: Output, counter: JobCounter) -> None:
        self._counter = counter
        self._output = output
        self._told = 0, 0, 0, 0
        self._repaired = self._lost = 0
        self._problems: dict[str, str] = {}
        self._waits_for = ""

    def show(self, mirror: Mirror) -> None:
        self._counter.clear()
        self._waits_for = ""
        report = mirror.report
        broken, made, altered, dropped = self._told
        for name in dict.fromkeys(report.broken[broken:]):
            print_note(f"{name} was changed by others: it is put right")
        for text in report.lost[self._lost :]:
            print_note(f"{text} is gone, since the table was made again")
        self._lost = len(report.lost)
        for name in report.made[made:]:
            self._output.write(("made ", "green"), name)
        for name in report.altered[altered:]:
            self._output.write(("altered ", "green"), name)
        for name in report.dropped[dropped:]:
            self._output.write(("dropped ", "yellow"), name)
        lists = (report.broken, report.made, report.altered, report.dropped)
        self._told = (len(lists[0]), len(lists[1]), len(lists[2]), len(lists[3]))
        if report.repaired != self._repaired and not mirror.passes:
            count = format_count(report.repaired - self._repaired, "row")
            print_note(f"{count} that others had changed: put right")
            self._repaired = report.repaired
        for name, text in report.problems.items():
            if text and self._problems.get(name) != text:
                print_note(f"{name} is not kept: {text}\n  hint: {PROBLEM_HINT}")
        self._problems = dict(report.problems)
        report.tell(self._counter.job)

    def wait(self, reason: str) -> None:
        if reason != self._waits_for:
            self._counter.clear()
            print_note(f"waiting: {reason}")
            self._waits_for = reason


def mirror_status_command(to: ToOption, options: TenantOptions, output: Output) -> int:
    """Show the tables of a mirror, and how far it is behind; times are UTC.

    `changes behind` counts up to 100,000; `lag` is the age of the oldest change that is not
    applied. `compared` is when all rows were last compared with the records. Exit status 1 if a
    table was changed by others (the next `mirror run` puts it right), or is not kept because
    something is in the way; 3 if changes are not applied, or constraints not
    added yet.

    With `--json`: `{target, bookmark, updated_at, changes_behind, seconds_behind, tables: [{name,
    rows, broken, problem, filling: [COLUMN], lacking: [TEXT], compared_at}]}`; `broken` says
    whether others have changed the table's columns or the number of its rows, `lacking` which
    constraints it has not got yet.
    """
    with options.open(read_only=True) as db:
        target = open_target(to, db._storage)
        try:
            status = read_mirror_status(db, target)
        finally:
            target.close()
    output.table(
        ("table", "rows", "compared", "state"),
        [
            (table.name, f"{table.rows:,}", _show_time(table.checked_at), _state_of(table))
            for table in status.tables
        ],
        right=("rows",),
        empty="no tables",
    )
    output.write(f"applied up to {status.updated_at:%Y-%m-%d %H:%M:%S}; ", _lag_of(status))
    if any(table.problem for table in status.tables):
        print_note(f"hint: {PROBLEM_HINT}")
    output.document(_to_json(status))
    if any(table.is_broken or table.problem for table in status.tables):
        return EXIT_ERROR
    is_pending = status.lag.changes or any(table.lacking for table in status.tables)
    return EXIT_PENDING if is_pending else 0


def _show_time(moment: datetime | None) -> str:
    return "-" if moment is None else f"{moment:%Y-%m-%d %H:%M:%S}"


def _state_of(table: MirrorTableStatus) -> str | tuple[str, str]:
    if table.problem:
        return f"not kept: {table.problem}", "bold red"
    if table.is_broken:
        return "broken: `zapdb mirror run` puts it right", "bold red"
    if table.is_stale:
        return "is read again", "yellow"
    if table.filling:
        return f"fills {', '.join(table.filling)}", "yellow"
    if table.lacking:
        return f"lacks {'; '.join(table.lacking)}", "yellow"
    return "ok"


def _lag_of(status: MirrorStatus) -> str:
    if not status.lag.changes:
        missing = sum(bool(table.problem) or table.is_stale for table in status.tables)
        return f"{format_count(missing, 'table')} behind" if missing else "nothing is behind"
    return f"{format_count(status.lag.changes, 'change')} behind, lag {status.lag.seconds:.1f} s"


def _to_json(status: MirrorStatus) -> dict[str, Any]:
    return {
        "target": status.target,
        "bookmark": str(status.bookmark),
        "updated_at": status.updated_at,
        "changes_behind": status.lag.changes,
        "seconds_behind": round(status.lag.seconds, 3),
        "tables": [
            {
                "name": table.name,
                "rows": table.rows,
                "broken": table.is_broken,
                "problem": table.problem,
                "filling": table.filling,
                "lacking": table.lacking,
                "compared_at": table.checked_at,
            }
            for table in status.tables
        ],
    }


def mirror_check_command(
    to: ToOption,
    options: TenantOptions,
    output: Output,
    repair: Annotated[bool, typer.Option("--repair", help="Correct the rows that differ.")] = False,
) -> int:
    """Compare all rows of a mirror with the records, beside a mirror that runs and beside writers.

    `missing or changed` are rows that the table lacks or has with other values, `foreign` rows of
    no record. Exit status 1 if any are left. A running mirror does the same by itself, when it sees
    that others have written, and once a day. Tables whose columns others have changed are made
    again by `mirror run`.

    With `--json`: `{target, tables: [{name, compared, damaged, foreign, problem}], repaired}`.
    """
    with options.open() as db:
        target = open_target(to, db._storage)
        try:
            found = compare_mirror(db, target, repair=repair)
        finally:
            target.close()
    output.table(
        ("table", "compared", "missing or changed", "foreign", "state"),
        [
            (one.name, f"{one.compared:,}", f"{one.damaged:,}", f"{one.foreign:,}", one.problem)
            for one in found
        ],
        right=("compared", "missing or changed", "foreign"),
        empty="no tables",
    )
    left = [one for one in found if one.problem or (one.found and not repair)]
    if repair and any(one.found for one in found):
        output.write(("repaired", "green"))
    output.document(
        {
            "target": target.shown,
            "tables": found,
            "repaired": repair,
        }
    )
    return EXIT_ERROR if left else 0
