"""`zapdb catalog revisions` and `prune`: the schema history of a table."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Annotated, Any, Final

import typer

from zapdb.catalog.schema_history import format_fingerprint
from zapdb.cli.connecting import KeyedTenantOptions, ServedTenantOptions
from zapdb.cli.differences import write_differences
from zapdb.cli.output import Confirmation, Output, Part, as_plain
from zapdb.control import Control, catalog
from zapdb.control.catalog import (
    FINGERPRINT,
    FingerprintHistoryEntry,
    HistoryBound,
    HistoryPruning,
    RevisionComparison,
    TableRevision,
)
from zapdb.control.durations import DURATION
from zapdb.errors import EXIT_ERROR, UnknownName, UsageError
from zapdb.limits import HISTORY_ENTRIES_MAX

UNKNOWN_TIME: Final = datetime(1970, 1, 1, tzinfo=UTC)
"""When a schema was changed that is older than its schema history."""

TableOption = Annotated[
    str | None, typer.Option("--table", help="The table's present or former name.")
]
TableNumberOption = Annotated[
    int | None,
    typer.Option(
        "--table-number", metavar="NUMBER", help="The table's number, instead of its name."
    ),
]


def catalog_revisions_command(
    options: ServedTenantOptions,
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
    with options.control() as control:
        if diff is not None:
            _write_difference(
                output, control.call(catalog.compare_revisions, *diff, table, table_number)
            )
            return
        entries = _list_since(control, table, table_number, since)
    if desc:
        entries.reverse()
    entries = entries[:limit]
    columns = ("revision", "fingerprint", "migrated_at", "migrated_by", "migration", "event")
    rows = [
        (
            str(entry.revision),
            entry.fingerprint,
            show_time(entry),
            entry.migrated_by,
            entry.migration or "-",
            entry.event
            if entry.rollback_from is None
            else (f"{entry.event} (back from revision {entry.rollback_from})", "yellow"),
        )
        for entry in entries
    ]
    output.table(columns, rows, right=("revision",), solid=("fingerprint", "migrated_at"))
    output.lines(_entry_to_json(entry, with_schema=with_schema) for entry in entries)


def _entry_to_json(entry: FingerprintHistoryEntry, *, with_schema: bool) -> dict[str, Any]:
    described: dict[str, Any] = as_plain(entry)
    if with_schema:
        described["schema"] = base64.b64encode(entry.schema).decode()
    return described


def _list_since(
    control: Control, table: str | None, table_number: int | None, since: str | None
) -> list[FingerprintHistoryEntry]:
    """The entries that `--since` selects, the oldest first; raises `UsageError` for a text that is
    none of its forms."""

    def read_from(generation: int, time: str | None = None) -> Iterator[FingerprintHistoryEntry]:
        """A request has an end: go on behind the last entry of each."""
        while True:
            found = list(
                control.call(
                    catalog.get_fingerprint_history,
                    table,
                    table_number,
                    generation,
                    HISTORY_ENTRIES_MAX,
                    since=time,
                )
            )
            yield from found
            if len(found) < HISTORY_ENTRIES_MAX:
                return
            generation = found[-1].revision + 1

    if since is None:
        return list(read_from(0))
    if FINGERPRINT.fullmatch(since):
        return _select_behind(list(read_from(0)), since)
    if DURATION.fullmatch(since):
        return list(read_from(0, since))
    if not (since.isascii() and since.isdigit()) or len(since) > 18:
        raise UsageError(
            "--since is neither a revision nor a duration nor a fingerprint",
            given=since,
            hint="give for example 7, or 7d, 12h or 30m, or 0x21501dafa07d755e",
        )
    (newest,) = control.call(
        catalog.get_fingerprint_history, table, table_number, limit=1, descending=True
    )
    if int(since) > newest.revision + 1:
        raise UsageError(
            "the table never had this revision",
            table=newest.table,
            since=since,
            newest=newest.revision,
        )
    return list(read_from(int(since)))


def _select_behind(
    entries: list[FingerprintHistoryEntry], fingerprint: str
) -> list[FingerprintHistoryEntry]:
    """Return the entries after the last one with a fingerprint; raises `UnknownName` if there is
    none."""
    wanted = format_fingerprint(int(fingerprint, 16))
    last = max((entry.revision for entry in entries if entry.fingerprint == wanted), default=None)
    if last is None:
        raise UnknownName(
            "the table's schema history has no such fingerprint",
            table=entries[-1].table,
            fingerprint=wanted,
            fingerprints=", ".join(dict.fromkeys(entry.fingerprint for entry in entries)),
        )
    return [entry for entry in entries if entry.revision > last]


def show_time(entry: TableRevision) -> str:
    """Return when an entry was written, in UTC; `-` if no change of the schema wrote it."""
    is_known = entry.migrated_at != UNKNOWN_TIME
    return f"{entry.migrated_at:%Y-%m-%d %H:%M:%S}" if is_known else "-"


def _write_difference(output: Output, found: RevisionComparison) -> None:
    output.write(
        (found.table, "bold"),
        f"  revision {found.from_.revision} ({found.from_.fingerprint}) → "
        f"revision {found.to.revision} ({found.to.fingerprint})",
    )
    write_differences(output, found.differences)
    output.document(found)


def catalog_prune_command(
    options: KeyedTenantOptions,
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
        typer.Option(
            metavar="DURATION|TIME",
            help="Delete the entries that are older (90d), or from before a time "
            "(2026-01-31T00:00Z).",
        ),
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

    With `--idempotency-key`, which needs `--yes`, what would be deleted is not shown before.
    """
    if options.key is not None and not dry_run:
        confirmation.require("--idempotency-key")
    asked = HistoryBound(keep_last, before, older_than), table, table_number
    with options.control() as control:
        found = control.call(
            catalog.prune_fingerprint_history, *asked, dry_run=dry_run or options.key is None
        )
        _write_plan(found, output)
        if found.done:
            output.write(("pruned ", "green"), _count(found.pruned))
        elif found.pruned and not dry_run:
            question = f"delete {_count(found.pruned)} for good?"
            if not found.in_use and not confirmation.is_given("pruning", question, output):
                return EXIT_ERROR
            found = control.call(catalog.prune_fingerprint_history, *asked)
            output.write(("pruned ", "green"), _count(found.pruned))
    output.document(found)
    return EXIT_ERROR if found.in_use else 0


def _count(entries: Sequence[int]) -> str:
    return "1 entry" if len(entries) == 1 else f"{len(entries):,} entries"


def _write_plan(found: HistoryPruning, output: Output) -> None:
    if not found.pruned:
        output.write("nothing to prune")
    required_by: dict[int, list[str]] = {}
    for use in found.in_use:
        required_by.setdefault(use.revision, []).append(use.by)
    rows: list[Sequence[Part]] = [
        (
            str(entry.revision),
            entry.fingerprint,
            show_time(entry),
            entry.event,
            (", ".join(required_by.get(entry.revision, ["-"])), "yellow"),
        )
        for entry in found.entries
    ]
    if rows:
        columns = ("revision", "fingerprint", "migrated_at", "event", "needed by")
        output.table(columns, rows, right=("revision",), solid=("fingerprint", "migrated_at"))
    for revision in found.kept_for_layout:
        output.write(f"revision {revision} stays: later ones have its layout")
