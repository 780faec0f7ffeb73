"""`zapdb history moments`, `audit`, `query`, `table`, `row` and `diff`: reading the past."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any, Final

import typer

from zapdb.cli.configuration import CursorOption, LimitOption, OrderByOption
from zapdb.cli.connecting import ServedTenantOptions, TenantOptions
from zapdb.cli.output import Output, Part, print_note
from zapdb.cli.record_changes import (
    note_waiting,
    show_archived,
    show_change,
    show_difference,
    show_key_values,
)
from zapdb.cli.record_commands import write_page, write_record
from zapdb.cli.sql import ShowOption, print_result
from zapdb.control.changes import get_status, look_at_log
from zapdb.control.history import (
    AuditedChange,
    ChangedRecord,
    ChangedSchema,
    MomentMade,
    RecordVersion,
    audit,
    diff_moments,
    fetch_row,
    get_moments,
    get_versions,
    list_records,
    read_named_moment,
)
from zapdb.control.records import RecordShape
from zapdb.database.opening import open_to_read
from zapdb.limits import SQL_ROWS_SHOWN
from zapdb.past.files.history_manifest import Doubt

LIST_MOMENTS: Final = 20
MOMENT_HELP: Final = (
    "A time with its UTC offset, how long ago (2h), a moment's number (#12), or a bookmark."
)

AtOption = Annotated[str, typer.Option("--at", metavar="MOMENT", help=MOMENT_HELP)]
MomentArgument = Annotated[str, typer.Argument(metavar="MOMENT", help=MOMENT_HELP)]
PastTableArgument = Annotated[str, typer.Argument(help="The table's name at that moment.")]


# Moments


SinceOption = Annotated[
    str | None, typer.Option("--since", metavar="MOMENT", help="Only what was after this moment.")
]
UntilOption = Annotated[
    str | None, typer.Option("--until", metavar="MOMENT", help="Nothing after this moment.")
]


def history_moments_command(
    options: ServedTenantOptions,
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
    with options.control() as control:
        listed = list(
            control.call(
                get_moments,
                since=since,
                until=until,
                principal=principal,
                table=table,
                limit=limit + 1,
            )
        )
        status = control.call(get_status)
    shown = listed[:limit]
    output.lines(shown)
    output.table(
        ("moment", "made at", "principal", "changes"),
        list(map(_moment_to_row, shown)),
        solid=("moment", "made at"),
        empty="no moments",
    )
    if len(listed) > limit:
        print_note(f"there are earlier moments: --until '#{shown[-1].moment - 1}'")
    note_waiting(status)


def _moment_to_row(made: MomentMade) -> tuple[Part, ...]:
    what = []
    for one in made.changes:
        counts = [f"+{one.inserted}", f"~{one.updated}", f"-{one.deleted}"]
        told = " ".join(text for text in counts if text[1:] != "0")
        if one.events:
            told = f"{told} schema".strip()
        what.append(f"{one.table} {told}".strip())
    return (f"#{made.moment}", f"{made.made_at:%Y-%m-%d %H:%M:%S}", made.principal, ", ".join(what))


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
    with open_to_read(options.address, options.tenant_name) as db:
        past = db.at(read_named_moment(db, at))
        print_result(past.sql(statement), show_rows, output)
        note_doubts(past.doubts)
        note_waiting(look_at_log(db))


def history_table_command(
    table: PastTableArgument,
    at: AtOption,
    options: ServedTenantOptions,
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
    with options.control() as control:
        page = control.call(
            list_records,
            table,
            at,
            where=where,
            order_by=tuple(name.strip() for name in order_by.split(",")) if order_by else (),
            limit=limit,
            cursor=cursor,
            for_text=not output.as_json,
        )
        status = control.call(get_status)
    output.document(page)
    if page.shape is not None:
        sizes = (one.sizes for one in page.large)
        write_page(page.shape, list(zip(page.records, sizes, strict=True)), page.cursor, output)
    note_doubts(page.doubts)
    note_waiting(status)


def history_row_command(
    table: Annotated[str, typer.Argument(help="The table's name.")],
    key: Annotated[list[str], typer.Argument(help="The values of the key's fields, in order.")],
    options: ServedTenantOptions,
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
    for_text = not output.as_json
    with options.control() as control:
        if at is None:
            versions = control.call(get_versions, table, tuple(key), for_text=for_text)
            if output.as_json:
                output.lines(versions)
            else:
                output.table(
                    ("moment", "made at", "principal", "operation", "change"),
                    list(_list_rows(versions)),
                    solid=("moment", "made at"),
                    empty="no changes since the change log was switched on",
                )
        else:
            found = control.call(fetch_row, table, tuple(key), at, for_text=for_text)
            output.document(found.record)
            if found.shape is not None:
                write_record(found.shape, found.record, output)
            note_doubts(found.doubts)
        note_waiting(control.call(get_status))


WHY: Final[Mapping[str, str]] = {
    Doubt.ARCHIVE_PRUNING: "archived values were restored while `zapdb migrate prune-archive` was "
    "deleting them, which was interrupted: it is not known which were left"
}


def note_doubts(doubts: Mapping[str, str]) -> None:
    """Say which tables may have other values than then, and why."""
    for table, doubt in doubts.items():
        print_note(f"not exact: {table}: {WHY[doubt]}")


def _list_rows(versions: Iterable[RecordVersion]) -> Iterator[Sequence[Part]]:
    shape: RecordShape | None = None
    record: Any = None
    for one in versions:
        if shape and one.shape and shape.table != one.shape.table:
            shape = record = None
        moment = "" if one.moment is None else f"#{one.moment}"
        made = "" if one.made_at is None else f"{one.made_at:%Y-%m-%d %H:%M:%S}"
        told = show_difference((shape, record), (one.shape, one.record), one.fields)
        yield (moment, made, one.principal or "", (one.operation, "bold"), told)
        shape, record = one.shape, one.record


# Differences


def history_diff_command(
    first: MomentArgument,
    second: MomentArgument,
    options: ServedTenantOptions,
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
    with options.control() as control:
        for_text = not output.as_json
        found = control.call(
            diff_moments, first, second, tables=tuple(table or ()), for_text=for_text
        )
        if output.as_json:
            output.lines(found)
        else:
            rows = []
            for one in found:
                if isinstance(one, ChangedSchema):
                    output.write(f"{one.table}: {'; '.join(one.schema)}")
                else:
                    rows.append(_difference_to_row(one))
            output.table(("table", "key", "operation", "change"), rows, empty="no differences")
        note_waiting(control.call(get_status))


def _difference_to_row(one: ChangedRecord) -> tuple[Part, ...]:
    operation = "insert" if one.before is None else "delete" if one.after is None else "update"
    key = show_key_values(one.shape_after or one.shape_before, one.key)
    return (one.table, key, (operation, "bold"), show_change(one))


def history_audit_command(
    options: ServedTenantOptions,
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
    with options.control() as control:
        listed = list(
            control.call(
                audit,
                since=since,
                until=until,
                principal=principal,
                table=table,
                field=field,
                limit=limit + 1,
                for_text=not output.as_json,
            )
        )
        status = control.call(get_status)
    shown = listed[:limit]
    output.lines(shown)
    output.table(
        ("moment", "made at", "principal", "table", "key", "operation", "change"),
        list(map(_entry_to_row, () if output.as_json else shown)),
        solid=("moment", "made at"),
        empty="no changes",
    )
    if len(listed) > limit:
        print_note("there are earlier changes: --limit shows more, --until earlier ones")
    note_waiting(status)


def _entry_to_row(one: AuditedChange) -> tuple[Part, ...]:
    told = ", ".join(one.fields)
    if one.before is not None or one.after is not None:
        told = ", ".join(filter(None, (show_change(one), show_archived(one))))
    made = f"{one.made_at:%Y-%m-%d %H:%M:%S}"
    key = show_key_values(one.shape_after or one.shape_before, one.key)
    operation = (one.operation, "bold")
    return (f"#{one.moment}", made, one.principal, one.table or "", key, operation, told)
