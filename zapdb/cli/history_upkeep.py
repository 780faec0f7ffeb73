"""`zapdb history verify`, `rebuild-manifest`, `move`, `purge` and `erase`: keeping a store."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from zapdb.cli.each_tenant import StoreOptions
from zapdb.cli.history import MOMENT_HELP, note_doubts
from zapdb.cli.output import Confirmation, Output, as_plain, format_count, print_note
from zapdb.control.history import read_named_moment
from zapdb.database import Database
from zapdb.errors import EXIT_ERROR, UsageError
from zapdb.log.change_log import Bookmark
from zapdb.past.files.erasing import HistoryErasure, find_erasure_target
from zapdb.past.files.manifest_files import list_manifests
from zapdb.past.files.purge import HistoryPurge
from zapdb.past.files.repairing import HistoryRepair, show_repair
from zapdb.past.reading.moment import parse_moment
from zapdb.past.reading.verification import HistoryVerification
from zapdb.records.cell_format import read_key
from zapdb.schema import TableSchema
from zapdb.storage import TransactionMode

LOG_NOTE: Final = (
    "what is still in the change log can be rewound to: `zapdb changes prune` deletes it there"
)


def history_purge_command(
    before: Annotated[str, typer.Option("--before", metavar="MOMENT", help=MOMENT_HELP)],
    options: StoreOptions,
    confirmation: Confirmation,
    output: Output,
    exact: Annotated[
        bool, typer.Option("--exact", help="Cut the eras that have the moment, too.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be deleted, and delete nothing.")
    ] = False,
) -> int:
    """Delete the oldest part of the history store: earlier moments are refused from then on.

    Whole eras go, so nothing is written anew: the files of the era that has the moment stay. With
    `--exact`, they are written anew without what ended before it. Files are deleted after the grace
    (`history_grace_seconds`). The setting `history_retention_seconds` purges by itself. The change
    log is not pruned.

    With `--json`, which needs `--yes` or `--dry-run`: `{kept_from, eras, files, size_bytes, done}`;
    `kept_from` is the number of the first moment that is kept. With `--all-tenants`, which needs a
    time: `{tenants: [{tenant, …}]}`.
    """
    _require_time(before, options)

    def work(db: Database) -> tuple[dict[str, Any], int]:
        purge = partial(db.history.purge, exact=exact)
        return _purge(purge, output, read_named_moment(db, before), confirmation, dry_run=dry_run)

    return options.run(output, work)


def _require_time(text: str, options: StoreOptions) -> None:
    """Raise `UsageError` for what names a moment of one tenant alone."""
    if options.all_tenants and isinstance(parse_moment(text), int | Bookmark):
        raise UsageError(
            "moments are numbered for each tenant apart",
            given=text,
            hint="give a time with its UTC offset (2026-01-31T12:00Z), or how long ago (2h)",
        )


def _purge(
    purge: Callable[..., HistoryPurge],
    output: Output,
    moment: datetime | int | Bookmark,
    confirmation: Confirmation,
    *,
    dry_run: bool,
) -> tuple[dict[str, Any], int]:
    planned, status, done = purge(moment, dry_run=True), 0, False
    size = f"{planned.size_bytes / 1e6:,.1f} MB"
    what = f"{format_count(planned.eras, 'era')} in {format_count(planned.files, 'file')}, {size}"
    if dry_run:
        output.write(f"would keep moments from #{planned.kept_from} on, and delete {what}")
    elif confirmation.is_given(
        "purging",
        f"refuse moments before #{planned.kept_from}, and delete {what}, for good?",
        output,
    ):
        planned, done = purge(planned.kept_from), True
        kept = f"moments are kept from #{planned.kept_from} on"
        output.write(("purged ", "green"), f"{what}; {kept}")
        print_note(LOG_NOTE)
    else:
        status = EXIT_ERROR
    return as_plain(planned) | {"done": done}, status


def history_move_command(
    to: Annotated[Path, typer.Option("--to", metavar="DIRECTORY", help="Where the files go.")],
    options: StoreOptions,
    output: Output,
    before: Annotated[
        str | None,
        typer.Option("--before", metavar="MOMENT", help=f"{MOMENT_HELP} Else the whole store."),
    ] = None,
) -> int:
    """Move the files of eras that ended before a moment to another directory, and read them there.

    A file is compared with its digest on the way; its former place is emptied after the grace
    (`history_grace_seconds`). If the directory is not there, only these moments can't be read.
    Interrupted, the next call goes on.

    Without `--before`, the whole store goes on in the directory, which has to be new, and the
    former files stay. A copy of a database gets files of its own in this way: the former ones are
    the original's. What only the original has put into files since is left out.

    With `--json`: `{directory, files, size_bytes}`. With `--all-tenants`, which needs a time:
    `{tenants: [{tenant, …}]}`.
    """
    if before is not None:
        _require_time(before, options)

    def work(db: Database) -> tuple[dict[str, Any], int]:
        former = db.history.status().directory
        moment = None if before is None else read_named_moment(db, before)
        done = db.history.move(moment, to)
        size = f"{done.size_bytes / 1e6:,.1f} MB"
        files = format_count(done.files, "file")
        output.write(("moved ", "green"), f"{files}, {size}, to {done.directory}")
        if moment is None:
            print_note(f"{former} stays as it is: delete it unless another database uses it")
        return as_plain(done), 0

    return options.run(output, work)


def history_verify_command(
    options: StoreOptions,
    confirmation: Confirmation,
    output: Output,
    sample: Annotated[
        int,
        typer.Option("--sample", min=0, help="At how many moments tables are compared."),
    ] = 5,
    repair: Annotated[
        bool,
        typer.Option("--repair", help="First make files anew, where that is possible."),
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be repaired, and change nothing.")
    ] = False,
) -> int:
    """Read all files of the history store, and compare them with their digests and the manifest.

    Tables at some moments are compared with those that the change log leads back to. Exit status 1
    if something is wrong.

    With `--repair`, files that are missing or damaged are made anew before: from a copy that was
    moved, or from the change log, as far as it leads back. What can't be is left as it is.

    With `--json`: `{files, tables, doubts: {TABLE: REASON}, problems: [TEXT], repaired: [{path,
    problem, way}], left: [TEXT]}`; `tables` is how many were compared, `doubts` says of which
    tables values may differ from those of then at some moments, and why. `way` is `copy`, `log`,
    `era` or `row`. `--repair` needs `--yes` or `--dry-run` then. With `--all-tenants`: `{tenants:
    [{tenant, …}]}`.
    """

    def work(db: Database) -> tuple[dict[str, Any], int]:
        repaired = HistoryRepair((), ())
        if repair or dry_run:
            planned = _repair(db, output, confirmation, dry_run=dry_run)
            if planned is None:
                return {}, EXIT_ERROR
            repaired = planned
        return _verify(output, db.history.verify(sample=sample), repaired)

    return options.run(output, work)


def _verify(
    output: Output, found: HistoryVerification, repaired: HistoryRepair
) -> tuple[dict[str, Any], int]:
    for problem in found.problems:
        output.write((problem, "red"))
    files, tables = format_count(found.files, "file"), format_count(found.tables, "table")
    color = "red" if found.problems else "green"
    told = (format_count(len(found.problems), "problem"), color)
    output.write(f"{files} read, {tables} compared with the change log: ", told)
    note_doubts(found.doubts)
    document = {
        "files": found.files,
        "tables": found.tables,
        "doubts": found.doubts,
        "problems": found.problems,
        "repaired": repaired.repaired,
        "left": repaired.left,
    }
    return document, EXIT_ERROR if found.problems else 0


def _repair(
    db: Database, output: Output, confirmation: Confirmation, *, dry_run: bool
) -> HistoryRepair | None:
    """Show what can be repaired, and do it; None if it is not wanted."""
    planned = db.history.repair(dry_run=True)
    for line in show_repair(planned.repaired):
        output.write(line)
    for text in planned.left:
        output.write((f"left: {text}", "red"))
    if dry_run or not planned.repaired:
        return planned
    question = f"make {format_count(len(planned.repaired), 'file')} anew?"
    if not confirmation.is_given("repairing", question, output):
        return None
    done = db.history.repair()
    output.write(("repaired ", "green"), format_count(len(done.repaired), "file"))
    return done


def history_erase_command(
    table: Annotated[
        str, typer.Argument(help="The table that has this name, or had it before it was dropped.")
    ],
    options: StoreOptions,
    confirmation: Confirmation,
    output: Output,
    key: Annotated[
        list[str] | None, typer.Argument(help="The values of the key's fields, in order.")
    ] = None,
    fields: Annotated[
        list[str] | None,
        typer.Option(
            "--field", metavar="FIELD", help="Erase past values of this field; may be repeated."
        ),
    ] = None,
    all_records: Annotated[
        bool, typer.Option("--all-records", help="Erase the fields of all records.")
    ] = False,
    now: Annotated[
        bool, typer.Option("--now", help="Don't wait for readers that use the files.")
    ] = False,
    sweep: Annotated[
        bool,
        typer.Option("--sweep/--no-sweep", help="Also delete large values that nothing owns."),
    ] = True,
) -> int:
    """Erase a deleted record from the past for good, or the past values of fields, and print the
    proof.

    It goes from the change log, from archived values, and from all files of the history store:
    those that have it are written anew without it. A process that follows the store pauses
    meanwhile. If this command is interrupted, the next process that follows the
    store goes on.

    Large values of changes that were pruned from the change log have no owner any more. So all that
    nothing owns are swept in the end, which reads all records with large values: to erase many,
    leave that to the last one, with `--no-sweep` for the others. With `--all-tenants`, `zapdb
    sweep` has to do it.

    With `--field`, the record stays with what it has now, and so does its past, but for the values
    of the field. These read as null, or, if the field was ever required, as the neutral value of
    its type, such as 0 or an empty text.

    With `--json`, which needs `--yes`: `{table, fields: [FIELD], id, key_sha256, records, changes,
    archived_values, large_values, large_values_swept, files_searched, files_rewritten, rows,
    files_deleted, examples, not_reached: [TEXT]}`. `key_sha256` is that of `id` and the record's
    key as it was stored; null with `--all-records`. With `--all-tenants`: `{tenants: [{tenant,
    …}]}`; those without a history store are left out.
    """
    _require_one_way(key or [], fields or [], all_records=all_records)

    def work(db: Database) -> tuple[dict[str, Any], int]:
        schema = _find_schema(db, table)
        values = read_key(schema, key) if key else ()
        question = f"erase {_name_erased(key, fields)} of {schema.name} from the past for good?"
        if not confirmation.is_given("erasing", question, output):
            return {}, EXIT_ERROR
        sweeps = sweep and not options.all_tenants  # each would read all tenants' records
        if all_records:
            done = db.history.erase_fields(table, *(fields or ()), now=now, sweep=sweeps)
        else:
            done = db.history.erase(table, *values, fields=fields or (), now=now, sweep=sweeps)
        _write_proof(output, done)
        return _to_json(done), 0

    return options.run(output, work)


def _require_one_way(key: list[str], fields: list[str], *, all_records: bool) -> None:
    if all_records and key:
        raise UsageError("--all-records and a key contradict each other", hint="give one of them")
    if all_records and not fields:
        raise UsageError(
            "--all-records needs fields",
            hint="name them with --field; whole records are erased one by one, by their keys",
        )
    if not key and not all_records:
        raise UsageError(
            "no record is named",
            hint="give the values of its key, or `--field FIELD --all-records`",
        )


def _name_erased(key: list[str] | None, fields: list[str] | None) -> str:
    """Return what is erased of a table, for people."""
    which = ", ".join(key) if key else "all records"
    return f"the past values of {', '.join(fields)} of {which}" if fields else which


def _find_schema(db: Database, name: str) -> TableSchema:
    with db._storage.transaction(TransactionMode.READ) as connection:
        return find_erasure_target(connection, db._catalog, name).schema


def _write_proof(output: Output, done: HistoryErasure) -> None:
    what = f"past values of {', '.join(done.fields)} " if done.fields else ""
    output.write(("erased ", "green"), f"{what}from {done.table}, erasure {done.id}")
    changes = format_count(done.changes, "change")
    if done.fields:
        records = format_count(done.records, "record")
        output.write(f"change log: {changes} of {records} without these values")
    else:
        output.write(f"change log: {changes} deleted")
    archived = format_count(done.archived_values, "archived value")
    large = format_count(done.large_values, "large value")
    swept = (
        f"; {done.large_values_swept:,} more swept, without an owner"
        if done.large_values_swept
        else ""
    )
    output.write(f"database: {archived}, {large} deleted{swept}")
    if done.examples:
        output.write(f"jobs: {format_count(done.examples, 'example')} of findings deleted")
    what = "without values of" if done.fields else "without"
    output.write(
        f"files: {done.files_searched} searched, {done.files_rewritten} written anew {what}"
        f" {format_count(done.rows, 'row')}, {done.files_deleted} deleted"
    )
    if done.key_sha256 is not None:
        output.write(f"key: SHA-256 {done.key_sha256}")
    if not (done.changes or done.archived_values or done.large_values or done.rows):
        print_note("nothing of it was found: look whether this is the key that was meant")
    for place in done.not_reached:
        output.write(f"not reached: {place}")


def _to_json(done: HistoryErasure) -> dict[str, Any]:
    return {
        "table": done.table,
        "fields": done.fields,
        "id": done.id,
        "key_sha256": done.key_sha256,
        "records": done.records,
        "changes": done.changes,
        "archived_values": done.archived_values,
        "large_values": done.large_values,
        "large_values_swept": done.large_values_swept,
        "files_searched": done.files_searched,
        "files_rewritten": done.files_rewritten,
        "rows": done.rows,
        "files_deleted": done.files_deleted,
        "examples": done.examples,
        "not_reached": done.not_reached,
    }


def history_rebuild_command(
    directory: Annotated[Path, typer.Argument(help="The directory of the history store.")],
    options: StoreOptions,
    confirmation: Confirmation,
    output: Output,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be made anew, and change nothing.")
    ] = False,
) -> int:
    """Make the database's rows of a history store anew, from the manifest in its directory.

    For a database that has lost them, or was restored from a backup that is older than the files.
    If the files have moments that the change log does not have, or has otherwise, they are written
    anew up to the last one that both have, and the store goes on from there. All files are read and
    compared with their digests before.

    With `--json`, which needs `--yes` or `--dry-run`: `{directory, timelines: [{timeline, begins,
    ends, eras, files, size_bytes, cut_from}], unnamed, done}`; `cut_from` is null where the change
    log agrees, `unnamed` how many files there are that count no more. With `--all-tenants`, which
    leaves out tenants without a store in the directory: `{tenants: [{tenant, …}]}`.
    """

    def work(db: Database) -> tuple[dict[str, Any], int]:
        planned = db.history.rebuild_manifest(directory, dry_run=True)
        for one in planned.timelines:
            size = f"{one.size_bytes / 1e6:,.1f} MB"
            what = f"{format_count(one.eras, 'era')} in {format_count(one.files, 'file')}, {size}"
            output.write(f"moments #{one.begins} to #{one.ends}: {what}")
            if one.cut_from is not None:
                print_note(f"the change log does not have #{one.cut_from} as the files have it")
        if dry_run:
            return as_plain(planned) | {"done": False}, 0
        question = f"make the rows of {format_count(len(planned.timelines), 'timeline')} anew?"
        if not confirmation.is_given("rebuilding", question, output):
            return as_plain(planned) | {"done": False}, EXIT_ERROR
        done = db.history.rebuild_manifest(directory)
        output.write(("rebuilt ", "green"), f"the manifest of {done.directory}")
        return as_plain(done) | {"done": True}, 0

    def has_store(db: Database) -> bool:
        """By the directory, or by the rows that the database has."""
        with suppress(UsageError):
            if db.history.status().directory == str(directory.resolve()):
                return True
        return any(list_manifests(directory, db._catalog.tenant))

    return options.run(output, work, has_store)
