"""`zapdb history moments`, `audit`, `query`, `table`, `row` and `diff`: reading the past."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from itertools import islice
from typing import Annotated, Any, Final

import typer

from zapdb.cli.configuration import (
    DURATION,
    CursorOption,
    LimitOption,
    OrderByOption,
    parse_duration,
)
from zapdb.cli.connecting import TenantOptions
from zapdb.cli.output import Output, Part, print_note
from zapdb.cli.record_changes import (
    archived_to_json,
    note_waiting,
    record_to_json,
    show_archived,
    show_change,
)
from zapdb.cli.record_commands import make_query, read_key, write_page, write_record
from zapdb.cli.sql import ShowOption, print_result
from zapdb.database import Database
from zapdb.database.opening import open_to_read
from zapdb.errors import RecordNotFound, UsageError
from zapdb.limits import SQL_ROWS_SHOWN
from zapdb.log.change_log import Bookmark
from zapdb.past.files.history_manifest import Doubt
from zapdb.past.reading.audit import AuditEntry
from zapdb.past.reading.difference import RecordDifference
from zapdb.past.reading.listing import MomentSummary
from zapdb.past.reading.moment import parse_moment
from zapdb.past.reading.past_table import explaining_names
from zapdb.past.reading.versions import Version, list_named_versions
from zapdb.records import Record
from zapdb.records.cell_format import record_to_plain, to_cell, to_plain
from zapdb.schema import TableSchema
from zapdb.storage.cells import as_time

LIST_MOMENTS: Final = 20
MOMENT_HELP: Final = (
    "A time with its UTC offset, how long ago (2h), a moment's number (#12), or a bookmark."
)

AtOption = Annotated[str, typer.Option("--at", metavar="MOMENT", help=MOMENT_HELP)]
MomentArgument = Annotated[str, typer.Argument(metavar="MOMENT", help=MOMENT_HELP)]
PastTableArgument = Annotated[str, typer.Argument(help="The table's name at that moment.")]


@contextmanager
def opened_to_read(options: TenantOptions) -> Iterator[Database]:
    """Open for a command that reads the change log, and say at its end of when the answer is."""
    with open_to_read(options.address, options.tenant_name) as db:
        yield db
        note_waiting(db)


def read_moment_argument(db: Database, text: str) -> datetime | int | Bookmark:
    """Read what names a moment; raises `UsageError`."""
    if DURATION.fullmatch(text.removeprefix("-")):
        now = db._storage.now_us(db._storage.connection())
        return as_time(now - parse_duration(text.removeprefix("-")))
    moment = parse_moment(text)
    if moment is None and (time := _read_time(text)) is not None:
        raise UsageError(
            "a time that names a moment needs its UTC offset",
            given=text,
            hint=f"if it is UTC, give {time.isoformat()}Z",
        )
    if moment is None:
        raise UsageError(
            "this names no moment",
            given=text,
            hint="give a time with its UTC offset (2026-01-31T12:00Z), how long ago (2h), a number "
            "that `zapdb history moments` shows (#12), or a bookmark",
        )
    return moment


def _read_time(text: str) -> datetime | None:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return None


# Moments


SinceOption = Annotated[
    str | None, typer.Option("--since", metavar="MOMENT", help="Only what was after this moment.")
]
UntilOption = Annotated[
    str | None, typer.Option("--until", metavar="MOMENT", help="Nothing after this moment.")
]


def history_moments_command(
    options: TenantOptions,
    output: Output,
    since: SinceOption = None,
    until: UntilOption = None,
    principal: Annotated[
        str | None, typer.Option(help="Only transactions of this user or principal.")
    ] = None,
    table: Annotated[
        str | None, typer.Option(help="Only transactions that changed this table.")
    ] = None,
    limit: LimitOption = LIST_MOMENTS,
) -> None:
    """Show who changed how many records of which tables, and when, newest first; times are UTC.

    A moment is the state after one transaction of the change log.

    With `--json`: one object per line, `{moment, visible_at, made_at, principal, bookmark, changes:
    [{table, inserted, updated, deleted, events}]}`.
    """
    with opened_to_read(options) as db:
        found = db.moments(
            since=None if since is None else read_moment_argument(db, since),
            until=None if until is None else read_moment_argument(db, until),
            principal=principal,
            table=table,
        )
        listed = list(islice(found, limit))
        if output.as_json:
            output.lines(_moment_to_json(made) for made in listed)
        else:
            output.table(
                ("moment", "made at", "principal", "changes"),
                [_moment_to_row(made) for made in listed],
                solid=("moment", "made at"),
                empty="no moments",
            )
        if listed and next(found, None) is not None:
            print_note(f"there are earlier moments: --until '#{listed[-1].number - 1}'")


def _moment_to_row(made: MomentSummary) -> tuple[Part, ...]:
    what = []
    for one in made.changes:
        counts = [f"+{one.inserted}", f"~{one.updated}", f"-{one.deleted}"]
        told = " ".join(text for text in counts if text[1:] != "0")
        if one.events:
            told = f"{told} schema".strip()
        what.append(f"{one.table} {told}".strip())
    return (f"#{made.number}", f"{made.made_at:%Y-%m-%d %H:%M:%S}", made.principal, ", ".join(what))


def _moment_to_json(made: MomentSummary) -> dict[str, Any]:
    return {
        "moment": made.number,
        "visible_at": made.visible_at,
        "made_at": made.made_at,
        "principal": made.principal,
        "bookmark": str(made.bookmark),
        "changes": made.changes,
    }


# Reading a past


def history_query_command(
    statement: Annotated[str, typer.Argument(help="One SELECT over the tables of that moment.")],
    at: AtOption,
    options: TenantOptions,
    output: Output,
    show_rows: ShowOption = SQL_ROWS_SHOWN,
) -> None:
    """Run one SQL SELECT over the tables as they were, with the columns that they had.

    With `--json`: as `zapdb sql`.
    """
    with opened_to_read(options) as db:
        past = db.at(read_moment_argument(db, at))
        print_result(past.sql(statement), show_rows, output)
        note_doubts(past.doubts)


def history_table_command(
    table: PastTableArgument,
    at: AtOption,
    options: TenantOptions,
    output: Output,
    where: Annotated[
        str | None,
        typer.Option("--where", "-w", metavar="CONDITION", help="Only records that fulfil this."),
    ] = None,
    order_by: OrderByOption = None,
    limit: LimitOption = LIST_MOMENTS,
    cursor: CursorOption = None,
) -> None:
    """Show a page of the records that a table had. The cursor of the next page goes to standard
    error.

    With `--json`: `{moment, records: [RECORD], cursor}`; the cursor is null on the last page.
    """
    with opened_to_read(options) as db:
        past = db.at(read_moment_argument(db, at))
        schema = past.schema(table)
        query = make_query(past.table(table), schema, where)
        if order_by:
            with explaining_names(past._session):
                query = query.order_by(*(name.strip() for name in order_by.split(",")))
        page = query.page(limit, cursor)
        if output.as_json:
            records = [record_to_plain(schema, record) for record in page]
            output.document(
                {"moment": past.moment.number, "records": records, "cursor": page.cursor}
            )
        else:
            write_page(schema, page, output)
        note_doubts(past.doubts)


def history_row_command(
    table: Annotated[str, typer.Argument(help="The table's name.")],
    key: Annotated[list[str], typer.Argument(help="The values of the key's fields, in order.")],
    options: TenantOptions,
    output: Output,
    at: Annotated[
        str | None,
        typer.Option("--at", metavar="MOMENT", help=f"Show the record as it was. {MOMENT_HELP}"),
    ] = None,
) -> None:
    """Show what each transaction changed in a record, oldest first; with --at, the record of then.

    Also in dropped tables that had the name.

    With `--json`: one object per line, `{operation, moment, made_at, principal, fields, record}`,
    with `fields` the names of the changed fields; with `--at` the record as an object of its
    fields.
    """
    with opened_to_read(options) as db:
        if at is None:
            versions = _read_versions(db, table, key)
            if output.as_json:
                output.lines(map(_version_to_json, versions))
                return
            output.table(
                ("moment", "made at", "principal", "operation", "change"),
                list(_list_rows(versions)),
                solid=("moment", "made at"),
                empty="no changes since the change log was switched on",
            )
            return
        past = db.at(read_moment_argument(db, at))
        schema = past.schema(table)
        record = past.table(table).find(*read_key(schema, key))
        if record is None:
            raise _no_record(
                f"there was no record with this key at moment #{past.moment.number}", table, key
            )
        if output.as_json:
            output.document(record_to_plain(schema, record))
        else:
            write_record(schema, record, output)
        note_doubts(past.doubts)


WHY: Final[Mapping[Doubt, str]] = {
    Doubt.ARCHIVE_PRUNING: "archived values were restored while `zapdb migrate prune-archive` was "
    "deleting them, which was interrupted: it is not known which were left"
}


def note_doubts(doubts: Mapping[str, Doubt]) -> None:
    """Say which tables may have other values than then, and why."""
    for table, doubt in doubts.items():
        print_note(f"not exact: {table}: {WHY[doubt]}")


def _read_versions(db: Database, table: str, key: list[str]) -> list[Version]:
    """Return the versions of a record that there are; none of one that has not changed since the
    change log was switched on."""
    versions = list_named_versions(db._session, table, lambda schema: read_key(schema, key))
    descriptor = db._catalog.tables.get(table)
    if versions or (
        descriptor is not None and db.table(table).exists(*read_key(descriptor.schema, key))
    ):
        return versions
    raise _no_record("the change log has no record with this key", table, key)


def _no_record(what: str, table: str, key: list[str]) -> RecordNotFound:
    return RecordNotFound(
        what,
        table=table,
        key=", ".join(key),
        hint=f"run `zapdb history moments --table {table}` to see what changed when",
    )


def _list_rows(versions: Sequence[Version]) -> Iterator[Sequence[Part]]:
    schema: TableSchema | None = None
    record: Record | None = None
    for version in versions:
        if schema and version.schema and schema.number != version.schema.number:
            schema = record = None
        moment = "" if version.since is None else f"#{version.since.number}"
        made = "" if version.made_at is None else f"{version.made_at:%Y-%m-%d %H:%M:%S}"
        told = show_change(schema, record, version.schema, version.record)
        yield (moment, made, version.principal or "", (version.operation, "bold"), told)
        schema, record = version.schema, version.record


def _version_to_json(version: Version) -> dict[str, Any]:
    return {
        "operation": version.operation,
        "moment": None if version.since is None else version.since.number,
        "made_at": version.made_at,
        "principal": version.principal,
        "fields": version.fields,
        "record": record_to_json(version.schema, version.record),
    }


# Differences


def history_diff_command(
    first: MomentArgument,
    second: MomentArgument,
    options: TenantOptions,
    output: Output,
    table: Annotated[
        list[str] | None, typer.Option("--table", help="Only this table; can be repeated.")
    ] = None,
) -> None:
    """Show how schemas, and how each record differs between two moments: the net change, not step
    by step.

    With `--json`: one object per line, `{table, schema}` for a table whose schema differs, with the
    differences in words, and `{table, key, before, after, fields}` for a record; `before` and
    `after` are objects of the fields, or null where there is no record.
    """
    with opened_to_read(options) as db:
        moments = [read_moment_argument(db, text) for text in (first, second)]
        schemas = [
            one
            for one in db.diff_schemas(*moments)
            if table is None or {one.table, one.before and one.before.name} & set(table)
        ]
        found = db.diff(*moments, tables=table)
        if output.as_json:
            output.lines({"table": one.table, "schema": one.changes} for one in schemas)
            output.lines(map(_difference_to_json, found))
            return
        for one in schemas:
            output.write(f"{one.table}: {'; '.join(one.changes)}")
        output.table(
            ("table", "key", "operation", "change"),
            list(map(_difference_to_row, found)),
            empty="no differences",
        )


def _difference_to_row(one: RecordDifference) -> tuple[Part, ...]:
    told = show_change(one.schema_before, one.before, one.schema_after, one.after)
    operation = "insert" if one.before is None else "delete" if one.after is None else "update"
    return (one.table, ", ".join(_key_texts(one)), (operation, "bold"), told)


def _key_texts(one: RecordDifference) -> list[str]:
    schema = one.schema_after or one.schema_before
    return [] if schema is None else list(map(to_cell, schema.key_fields, one.key))


def _difference_to_json(one: RecordDifference) -> dict[str, Any]:
    schema = one.schema_after or one.schema_before
    return {
        "table": one.table,
        "key": [] if schema is None else list(map(to_plain, schema.key_fields, one.key)),
        "before": record_to_json(one.schema_before, one.before),
        "after": record_to_json(one.schema_after, one.after),
        "fields": one.fields,
    }


def history_audit_command(
    options: TenantOptions,
    output: Output,
    since: SinceOption = None,
    until: UntilOption = None,
    principal: Annotated[
        str | None, typer.Option(help="Only changes by this user or principal.")
    ] = None,
    table: Annotated[str | None, typer.Option(help="Only changes of this table.")] = None,
    field: Annotated[
        str | None, typer.Option(help="Only changes of a field with this name, or that had it.")
    ] = None,
    limit: LimitOption = LIST_MOMENTS,
) -> None:
    """Show who changed what: each change of a record, and of a schema, newest first; times are UTC.

    The same in SQL: `zapdb sql "SELECT * FROM zapdb_audit"`.

    With `--json`: one object per line, `{moment, made_at, principal, table, key, operation, fields,
    before, after, archived_before, archived_after}`; `before` and `after` are objects of the
    fields, or null where there is no record, and the others of the archived values of dropped
    fields, or null if none of them was changed.
    """
    with opened_to_read(options) as db:
        found = db.audit(
            since=None if since is None else read_moment_argument(db, since),
            until=None if until is None else read_moment_argument(db, until),
            principal=principal,
            table=table,
            field=field,
        )
        listed = list(islice(found, limit))
        if output.as_json:
            output.lines(map(_entry_to_json, listed))
        else:
            output.table(
                ("moment", "made at", "principal", "table", "key", "operation", "change"),
                list(map(_entry_to_row, listed)),
                solid=("moment", "made at"),
                empty="no changes",
            )
        if listed and next(found, None) is not None:
            print_note("there are earlier changes: --limit shows more, --until earlier ones")


def _entry_to_row(one: AuditEntry) -> tuple[Part, ...]:
    told = ", ".join(one.fields)
    if one.before is not None or one.after is not None:
        told = show_change(one.schema_before, one.before, one.schema_after, one.after)
        told = ", ".join(filter(None, (told, show_archived(one))))
    made = f"{one.made_at:%Y-%m-%d %H:%M:%S}"
    key = ", ".join(_list_keys(one, to_cell))
    operation = (one.operation, "bold")
    return (f"#{one.moment.number}", made, one.principal, one.table or "", key, operation, told)


def _list_keys(one: AuditEntry, show: Any) -> list[Any]:
    schema = one.schema_after or one.schema_before
    return [] if schema is None else list(map(show, schema.key_fields, one.key))


def _entry_to_json(one: AuditEntry) -> dict[str, Any]:
    return {
        "moment": one.moment.number,
        "made_at": one.made_at,
        "principal": one.principal,
        "table": one.table,
        "key": _list_keys(one, to_plain),
        "operation": one.operation,
        "fields": one.fields,
        "before": record_to_json(one.schema_before, one.before),
        "after": record_to_json(one.schema_after, one.after),
        **archived_to_json(one),
    }
