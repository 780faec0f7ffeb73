"""`zapdb mirror`: plain tables of the current state in another database."""

from __future__ import annotations

from typing import Annotated, Any

import typer

import zapdb
from zapdb.cli.configuration import (
    DatabaseOption,
    JsonOption,
    TenantOption,
    find_database,
    find_tenant_name,
)
from zapdb.cli.output import Output, format_count, print_note
from zapdb.errors import EXIT_ERROR, EXIT_PENDING, UsageError
from zapdb.mirror.addresses import open_target
from zapdb.mirror.mirror import Mirror
from zapdb.mirror.run import run_mirror
from zapdb.mirror.status import MirrorStatus, read_mirror_status

ToOption = Annotated[
    str,
    typer.Option(
        "--to",
        metavar="TARGET",
        help="schema:NAME in the same PostgreSQL database, "
        "postgresql://user@host/database?schema=NAME, sqlite:///FILE, or duckdb:FILE.",
    ),
]
COST_NOTE = (
    "the change log was off and is switched on for this tenant: each transaction writes a change "
    "for every record that it touches, which takes the space of the record before and after it "
    "until `zapdb changes prune`"
)


def mirror_run_command(
    to: ToOption,
    once: Annotated[
        bool, typer.Option("--once", help="End when all changes until now are applied.")
    ] = False,
    database: DatabaseOption = None,
    tenant: TenantOption = None,
    as_json: JsonOption = False,
) -> int:
    """Keep plain tables of a tenant's records in another database, until interrupted.

    Switches the change log on, for tables that are made later, too; tables for which it is set to
    off are left out. Then the tables are made as of one moment, and each change is applied once,
    within about a second, with changes of schemas. A mirror that was interrupted goes on where it
    was. A table that others have changed is made again. The target must be a schema or a file of
    its own.

    With `--json`, which needs `--once`: `{target, changes, made: [TABLE], dropped: [TABLE], broken:
    [TABLE]}`; `broken` names the tables that others had changed.
    """
    if as_json and not once:
        raise UsageError("--json reports at the end, and a mirror has none", hint="add --once")
    output = Output(as_json)
    with zapdb.open(find_database(database), tenant=find_tenant_name(tenant)) as db:
        target = open_target(to, db._storage)
        mirror = Mirror(db, target)
        if mirror.switch_on():
            print_note(COST_NOTE)
        reporter = _Reporter(output)
        try:
            run_mirror(mirror, once=once, report=reporter.show, wait=reporter.wait)
        finally:
            target.close()
    done = mirror.report
    output.document(
        {
            "target": target.shown,
            "changes": done.changes,
            "made": done.made,
            "dropped": done.dropped,
            "broken": done.broken,
        }
    )
    return 0


class _Reporter:
    """Tells what a mirror does: tables at once, changes at the end of a batch."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self._told = 0, 0, 0
        self._waits_for = ""

    def show(self, mirror: Mirror) -> None:
        self._waits_for = ""
        report = mirror.report
        broken, made, dropped = self._told
        for name in report.broken[broken:]:
            print_note(f"{name} was changed by others: it is made again")
        for name in report.made[made:]:
            self._output.write(("made ", "green"), name)
        for name in report.dropped[dropped:]:
            self._output.write(("dropped ", "yellow"), name)
        self._told = len(report.broken), len(report.made), len(report.dropped)

    def wait(self, reason: str) -> None:
        if reason != self._waits_for:
            print_note(f"waiting: {reason}")
            self._waits_for = reason


def mirror_status_command(
    to: ToOption,
    database: DatabaseOption = None,
    tenant: TenantOption = None,
    as_json: JsonOption = False,
) -> int:
    """Show the tables of a mirror, and how far it is behind; times are UTC.

    `changes behind` counts up to 100,000; `lag` is the age of the oldest change that is not
    applied. Exit status 1 if a table was changed by others (the next `mirror run` makes it again),
    3 if changes are not applied yet.

    With `--json`: `{target, bookmark, updated_at, changes_behind, seconds_behind, tables: [{name,
    rows, broken}]}`; `broken` says whether others have changed the table's columns or the number of
    its rows.
    """
    output = Output(as_json)
    with zapdb.open(find_database(database), tenant=find_tenant_name(tenant), read_only=True) as db:
        target = open_target(to, db._storage)
        try:
            status = read_mirror_status(db, target)
        finally:
            target.close()
    output.table(
        ("table", "rows", "state"),
        [
            (table.name, f"{table.rows:,}", ("broken", "bold red") if table.is_broken else "ok")
            for table in status.tables
        ],
        right=("rows",),
        empty="no tables",
    )
    output.write(f"applied up to {status.updated_at:%Y-%m-%d %H:%M:%S}; ", _lag_of(status))
    output.document(_to_json(status))
    if any(table.is_broken for table in status.tables):
        return EXIT_ERROR
    return EXIT_PENDING if status.lag.changes else 0


def _lag_of(status: MirrorStatus) -> str:
    if not status.lag.changes:
        return "nothing is behind"
    return f"{format_count(status.lag.changes, 'change')} behind, lag {status.lag.seconds:.1f} s"


def _to_json(status: MirrorStatus) -> dict[str, Any]:
    return {
        "target": status.target,
        "bookmark": str(status.bookmark),
        "updated_at": status.updated_at.isoformat(),
        "changes_behind": status.lag.changes,
        "seconds_behind": round(status.lag.seconds, 3),
        "tables": [
            {"name": table.name, "rows": table.rows, "broken": table.is_broken}
            for table in status.tables
        ],
    }
