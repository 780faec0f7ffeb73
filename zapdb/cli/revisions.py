"""`zapdb catalog revisions` and `prune`: the schema history of a table."""

from __future__ import annotations

import base64
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final

import typer

from zapdb.activation.inspection import find_entry, read_labels, read_log, read_log_numbered
from zapdb.activation.schema_history_recovery import recover_schema_histories
from zapdb.catalog.schema_history import (
    RevisionEntry,
    find_revisions,
    find_rollbacks,
    format_fingerprint,
)
from zapdb.cli.configuration import DURATION, parse_duration
from zapdb.cli.connecting import TenantOptions
from zapdb.cli.differences import difference_to_json, write_differences
from zapdb.cli.output import Confirmation, Output, Part
from zapdb.errors import EXIT_ERROR, UnknownName, UsageError
from zapdb.past.schema_history_pruning import PruneBound, Pruning, plan_pruning, prune
from zapdb.schema import compare_tables
from zapdb.storage import Connection, TransactionMode
from zapdb.storage.cells import as_time

FINGERPRINT: Final = re.compile(r"0x[0-9a-fA-F]{1,16}")

TableOption = Annotated[
    str | None, typer.Option("--table", help="The table's present or former name.")
]
TableNumberOption = Annotated[
    int | None,
    typer.Option(
        "--table-number", metavar="NUMBER", help="The table's number, instead of its name."
    ),
]


@dataclass(frozen=True, slots=True)
class RevisionLine:
    """One entry as it is shown.

    `rolled_back` is the revision before, if the entry rolled it back; `returned_to` the newest
    earlier revision with the same fingerprint.
    """

    entry: RevisionEntry
    rolled_back: int | None
    returned_to: int | None


def catalog_revisions_command(
    options: TenantOptions,
    output: Output,
    table: TableOption = None,
    table_number: TableNumberOption = None,
    since: Annotated[
        str | None,
        typer.Option(
            metavar="REVISION|DURATION|FINGERPRINT",
            help="Entries from a revision on (7), of the last days, hours or minutes (7d), or "
            "after a fingerprint (0x…) was last active.",
        ),
    ] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Show at most this many.")] = None,
    desc: Annotated[bool, typer.Option("--desc", help="The newest first.")] = False,
    with_schema: Annotated[
        bool, typer.Option("--with-schema", help="With --json: add the schema's bytes, in base64.")
    ] = False,
    diff: Annotated[
        tuple[int, int] | None,
        typer.Option(metavar="A B", help="Show what differs between two revisions instead."),
    ] = None,
) -> None:
    """Show every schema that a table had, with one line for each change.

    `migration` is the newest migration that was active from then on. Times are UTC; `-` means that
    the table is older than its schema history. If the fingerprint is an earlier one again, the
    schema was rolled back: `back from revision N` names the revision before, which was active until
    then. Tables that were dropped are found by a former name, or by their number.

    With `--json`: one object per line, `{table, table_number, revision, fingerprint, migrated_at,
    migrated_by, migration, event, rollback_from, rollback_to, layout_revision}`. `migrated_at` is
    ISO 8601; `rollback_from` is the revision before, and `rollback_to` the newest earlier one with
    the same fingerprint; both are null if there was no rollback. `--with-schema` adds `schema`.

    With `--json --diff`: `{table, table_number, from: {revision, fingerprint}, to: {revision,
    fingerprint}, differences: [{part, number, name, change, before, after}]}`. Parts are matched by
    their numbers; for a changed part, `before` and `after` have only the differing attributes.
    """
    if with_schema and not output.as_json:
        raise UsageError("a table schema is binary, so it is shown in JSON only", hint="add --json")
    with options.opened_for() as (storage, number):
        recover_schema_histories(storage, number)
        with storage.transaction(TransactionMode.READ) as connection:
            log = find_log(connection, number, table, table_number)
            labels = read_labels(connection)
            now = storage.now_us(connection)
    if diff is not None:
        _write_difference(output, find_entry(log, diff[0]), find_entry(log, diff[1]))
        return
    lines = make_lines(log)
    if since is not None:
        lines = select_since(lines, since, now)
    if desc:
        lines.reverse()
    lines = lines[:limit]
    columns = ("revision", "fingerprint", "migrated_at", "migrated_by", "migration", "event")
    rows = [
        (
            str(line.entry.revision),
            format_fingerprint(line.entry.fingerprint),
            show_time(line.entry),
            line.entry.migrated_by,
            labels.get((line.entry.position, line.entry.digest), "-"),
            line.entry.event
            if line.rolled_back is None
            else (f"{line.entry.event} (back from revision {line.rolled_back})", "yellow"),
        )
        for line in lines
    ]
    output.table(columns, rows, right=("revision",), solid=("fingerprint", "migrated_at"))
    output.lines(_line_to_json(line, labels, with_schema=with_schema) for line in lines)


def find_log(
    connection: Connection, tenant: int, table: str | None, number: int | None
) -> list[RevisionEntry]:
    """The log of the table that the options name; raises `UnknownName` and `UsageError`."""
    if (table is None) == (number is None):
        raise UsageError(
            "give exactly one of the table's name and its number",
            hint="give either --table NAME or --table-number NUMBER",
        )
    if number is not None:
        return read_log_numbered(connection, tenant, number)
    assert table is not None
    return read_log(connection, tenant, table)


def make_lines(log: Sequence[RevisionEntry]) -> list[RevisionLine]:
    lines = []
    last: dict[int, int] = {}
    for entry, rolled_back in zip(log, find_rollbacks(log), strict=True):
        returned_to = None if rolled_back is None else last[entry.fingerprint]
        lines.append(RevisionLine(entry, rolled_back, returned_to))
        last[entry.fingerprint] = entry.revision
    return lines


def select_since(lines: list[RevisionLine], since: str, now_us: int) -> list[RevisionLine]:
    """Return the lines that `--since` selects; raises `UsageError` for any other text."""
    newest = lines[-1].entry
    if FINGERPRINT.fullmatch(since):
        return _select_after(lines, int(since, 16))
    if DURATION.fullmatch(since):
        first = now_us - parse_duration(since)
        return [line for line in lines if line.entry.migrated_at >= first]
    if not (since.isascii() and since.isdigit()) or len(since) > 18:
        raise UsageError(
            "--since is neither a revision nor a duration nor a fingerprint",
            given=since,
            hint="give for example 7, or 7d, 12h or 30m, or 0x21501dafa07d755e",
        )
    if int(since) > newest.revision + 1:
        raise UsageError(
            "the table never had this revision",
            table=newest.schema.name,
            since=since,
            newest=newest.revision,
        )
    return [line for line in lines if line.entry.revision >= int(since)]


def _select_after(lines: list[RevisionLine], fingerprint: int) -> list[RevisionLine]:
    """Return the lines after the last entry with a fingerprint; raises `UnknownName` if there is
    none."""
    log = [line.entry for line in lines]
    found = find_revisions(log, fingerprint)
    if not found:
        known = dict.fromkeys(format_fingerprint(entry.fingerprint) for entry in log)
        raise UnknownName(
            "the table's schema history has no such fingerprint",
            table=log[-1].schema.name,
            fingerprint=format_fingerprint(fingerprint),
            fingerprints=", ".join(known),
        )
    return [line for line in lines if line.entry.revision > found[-1]]


def show_time(entry: RevisionEntry) -> str:
    """Return when an entry was written, in UTC; `-` if no change of the schema wrote it."""
    return f"{as_time(entry.migrated_at):%Y-%m-%d %H:%M:%S}" if entry.migrated_at else "-"


def _line_to_json(
    line: RevisionLine, labels: dict[tuple[int, str], str], *, with_schema: bool
) -> dict[str, Any]:
    described = entry_to_json(line.entry, labels) | {
        "rollback_from": line.rolled_back,
        "rollback_to": line.returned_to,
        "layout_revision": line.entry.layout_revision,
    }
    if with_schema:
        described["schema"] = base64.b64encode(line.entry.schema_bytes).decode()
    return described


def entry_to_json(entry: RevisionEntry, labels: dict[tuple[int, str], str]) -> dict[str, Any]:
    return {
        "table": entry.schema.name,
        "table_number": entry.table_number,
        "revision": entry.revision,
        "fingerprint": format_fingerprint(entry.fingerprint),
        "migrated_at": as_time(entry.migrated_at).isoformat(),
        "migrated_by": entry.migrated_by,
        "migration": labels.get((entry.position, entry.digest)),
        "event": entry.event,
    }


def _write_difference(output: Output, old: RevisionEntry, new: RevisionEntry) -> None:
    differences = compare_tables(old.schema, new.schema)
    output.write(
        (new.schema.name, "bold"),
        f"  revision {old.revision} ({format_fingerprint(old.fingerprint)}) → "
        f"revision {new.revision} ({format_fingerprint(new.fingerprint)})",
    )
    write_differences(output, differences)
    output.document(
        {
            "table": new.schema.name,
            "table_number": new.table_number,
            "from": _stamp_to_json(old),
            "to": _stamp_to_json(new),
            "differences": list(map(difference_to_json, differences)),
        }
    )


def _stamp_to_json(entry: RevisionEntry) -> dict[str, Any]:
    return {"revision": entry.revision, "fingerprint": format_fingerprint(entry.fingerprint)}


def catalog_prune_command(
    options: TenantOptions,
    confirmation: Confirmation,
    output: Output,
    table: TableOption = None,
    table_number: TableNumberOption = None,
    keep_last: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Keep the newest N entries.")
    ] = None,
    before: Annotated[
        int | None,
        typer.Option(min=1, metavar="REVISION", help="Delete the entries below a revision."),
    ] = None,
    older_than: Annotated[
        str | None,
        typer.Option(metavar="DURATION", help="Delete the entries that are older, such as 90d."),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be deleted, and delete nothing.")
    ] = False,
) -> int:
    """Delete old entries of a table's schema history for good.

    The newest entry always stays, so that no revision is ever used again; so does an entry whose
    layout a later entry has. If records or archived values have the revision of an entry that would
    be deleted, nothing is deleted, and they are reported.

    With `--json`, which needs `--yes` or `--dry-run`: `{table, table_number, pruned: [revision],
    kept_for_layout: [revision], in_use: [{revision, by}], newest, done}`. With `--dry-run`, the
    exit status is 1 if an entry is in use.
    """
    with options.opened_for() as (storage, number):
        with storage.transaction(TransactionMode.READ) as connection:
            log = find_log(connection, number, table, table_number)
            now = storage.now_us(connection)
            oldest = None if older_than is None else now - parse_duration(older_than)
            pruning = plan_pruning(connection, log, PruneBound(keep_last, before, oldest))
        _write_plan(pruning, output)
        done = False
        if pruning.pruned and not dry_run:
            question = f"delete {_count(pruning.pruned)} for good?"
            if not pruning.required_by and not confirmation.is_given("pruning", question, output):
                return EXIT_ERROR
            prune(storage, pruning)
            done = True
            output.write(("pruned ", "green"), _count(pruning.pruned))
    output.document(_plan_to_json(pruning, done=done))
    return EXIT_ERROR if pruning.required_by else 0


def _count(entries: Sequence[RevisionEntry]) -> str:
    return "1 entry" if len(entries) == 1 else f"{len(entries):,} entries"


def _write_plan(pruning: Pruning, output: Output) -> None:
    if not pruning.pruned:
        output.write("nothing to prune")
    required_by: dict[int, list[str]] = {}
    for requirement in pruning.required_by:
        required_by.setdefault(requirement.revision, []).append(requirement.what)
    rows: list[Sequence[Part]] = [
        (
            str(entry.revision),
            format_fingerprint(entry.fingerprint),
            show_time(entry),
            entry.event,
            (", ".join(required_by.get(entry.revision, ["-"])), "yellow"),
        )
        for entry in pruning.pruned
    ]
    if rows:
        columns = ("revision", "fingerprint", "migrated_at", "event", "needed by")
        output.table(columns, rows, right=("revision",), solid=("fingerprint", "migrated_at"))
    for entry in pruning.layouts:
        output.write(f"revision {entry.revision} stays: later ones have its layout")


def _plan_to_json(pruning: Pruning, *, done: bool) -> dict[str, Any]:
    newest = pruning.log[-1]
    return {
        "table": newest.schema.name,
        "table_number": newest.table_number,
        "pruned": [entry.revision for entry in pruning.pruned],
        "kept_for_layout": [entry.revision for entry in pruning.layouts],
        "in_use": [
            {"revision": requirement.revision, "by": requirement.what}
            for requirement in pruning.required_by
        ],
        "newest": newest.revision,
        "done": done,
    }
