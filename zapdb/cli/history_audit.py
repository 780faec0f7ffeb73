"""`zapdb history audit`: who changed what, and when."""

from __future__ import annotations

from itertools import islice
from typing import Annotated, Any

import typer

from zapdb.cli.history import (
    LIST_MOMENTS,
    SinceOption,
    UntilOption,
    opened_to_read,
    read_moment_argument,
)
from zapdb.cli.listing_options import LimitOption
from zapdb.cli.opening import TenantOptions
from zapdb.cli.output import Output, Part, print_note
from zapdb.cli.record_changes import archived_to_json, record_to_json, show_archived, show_change
from zapdb.database.history.audit import AuditEntry
from zapdb.records.cell_format import to_cell, to_plain


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
