"""`zapdb catalog list`, `show` and `fingerprint`: the active tables."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Annotated, Any

import typer

from zapdb.activation import IndexDescriptor, TableDescriptor, load_tenant_catalog
from zapdb.activation.inspection import read_labels, read_log
from zapdb.activation.pinning import FingerprintMatch, find_in_log
from zapdb.activation.schema_history_recovery import recover_schema_histories
from zapdb.catalog.range_revisions import RangeRevision
from zapdb.catalog.row_kinds import ConstraintKind
from zapdb.catalog.schema_history import format_fingerprint
from zapdb.cli.connecting import TenantOptions
from zapdb.cli.differences import difference_to_json, show_type, type_to_json, write_differences
from zapdb.cli.output import Output, Part
from zapdb.cli.revisions import FINGERPRINT, entry_to_json, show_time
from zapdb.control import catalog
from zapdb.datasets import Dataset
from zapdb.errors import EXIT_ERROR, CorruptRecord, UnknownName, UsageError
from zapdb.jobs.known_revisions import list_range_revisions
from zapdb.printing import one_line
from zapdb.records import codec_for
from zapdb.records.cell_format import to_cell
from zapdb.schema import Check, Field, ForeignKey, Index, TableSchema, fingerprint
from zapdb.storage import TransactionMode
from zapdb.tables.indexes.code import show_code
from zapdb.values import Reference, to_json


def catalog_list_command(options: TenantOptions, output: Output) -> None:
    """Show the active tables.

    With `--json`: `{position, migration, tables: [{table, number, key, fields, indexes, revision,
    layout_revision, fingerprint}]}`, with the names of fields and indexes.
    """
    with options.control() as control:
        found = control.call(catalog.list_tables)
    columns = ("table", "key", "fields", "indexes", "revision", "fingerprint")
    rows = [
        (
            (one.table, "bold"),
            ", ".join(one.key),
            str(len(one.fields)),
            str(len(one.indexes)),
            str(one.revision),
            one.fingerprint,
        )
        for one in found.tables
    ]
    output.table(
        columns,
        rows,
        right=("fields", "indexes", "revision"),
        solid=("fingerprint",),
        empty="no tables",
    )
    output.document(found)


def _summarize(descriptor: TableDescriptor) -> dict[str, Any]:
    return {
        "table": descriptor.schema.name,
        "number": descriptor.schema.number,
        "key": [f.name for f in descriptor.schema.key_fields],
        "revision": descriptor.revision,
        "layout_revision": descriptor.layout_revision,
        "fingerprint": format_fingerprint(fingerprint(descriptor.schema)),
    }


def catalog_show_command(
    table: Annotated[str, typer.Argument(help="The table's name.")],
    options: TenantOptions,
    output: Output,
    code: Annotated[
        bool,
        typer.Option("--code", help="Print the generated source: codec, index keys, conversions."),
    ] = False,
    ranges: Annotated[
        bool,
        typer.Option("--ranges", help="Print which revisions the records of each key range have."),
    ] = False,
) -> None:
    """Show a table: its fields, its key, its indexes, checks and references, and their states.

    With `--json`: `{table, number, key, revision, layout_revision, fingerprint, fields: [{name,
    number, type, key, optional, generated, default}], indexes: [{name, number, unique, state,
    fields: [{field, collation, descending}], built_with, rewritten_from}], checks: [{name, number,
    expression, state}], references: [{field, table, on_delete, state}], archived: [{field, number,
    type, migration}]}`, and with `--code` also `code`. With `--ranges`, also `ranges: [{after,
    up_to, revision, current}]`, in the order of the keys: no record behind the key `after`, up to
    `up_to`, has a lower revision, as far as is known. Keys are objects of fields, null where there
    is no bound; `current` says that these records need no conversion.

    The state of an index is `readable`, `building`, `rewriting` while its entries are converted
    to other collation or time zone data, or `disabled`. `built_with` has the version and
    fingerprint of each dataset by name; `rewritten_from` has those that some entries may still
    have. `default` is present only if the field has one. `archived` are dropped fields whose
    values are kept, with the number of the migration that dropped them.
    """
    if code and ranges:
        raise UsageError("--code and --ranges show different things", hint="give one of them")
    output, known = Output(output.as_json), list[RangeRevision]()
    with options.opened() as (storage, catalog):
        descriptor = catalog.table(table)
        if ranges:
            with storage.transaction(TransactionMode.READ) as connection:
                catalog = load_tenant_catalog(connection, catalog.tenant, catalog)
                descriptor = catalog.table(table)
                known = list_range_revisions(connection, catalog, table)
    source = show_code(catalog, descriptor) if code else None
    if source is not None:
        _write_code(source, output)
    elif ranges:
        write_ranges(descriptor, known, output)
    else:
        _write_table(descriptor, output)
    document = _summarize(descriptor) | {
        "fields": [_field_to_json(descriptor.schema, f) for f in descriptor.schema.fields],
        "indexes": [_index_to_json(descriptor.schema, index) for index in descriptor.indexes],
        "checks": [_check_to_json(descriptor, check) for check in descriptor.schema.checks],
        "references": [
            _reference_to_json(descriptor, key) for key in descriptor.schema.foreign_keys
        ],
        "archived": [
            {
                "field": a.field.name,
                "number": a.field.number,
                "type": type_to_json(a.field.type),
                "migration": a.archived_by,
            }
            for a in descriptor.schema.archived
        ],
    }
    if source is not None:
        document["code"] = source
    if ranges:
        document["ranges"] = ranges_to_json(descriptor, known)
    output.document(document)


def _write_code(source: str, output: Output) -> None:
    source = source.rstrip("\n")
    if not output.is_terminal:
        output.write(source)
        return
    from rich.syntax import Syntax

    output.console.print(Syntax(source, "python", background_color="default", word_wrap=True))


def _write_table(descriptor: TableDescriptor, output: Output) -> None:
    table = descriptor.schema
    output.write(
        (table.name, "bold"),
        f"  revision {descriptor.revision}, layout of revision {descriptor.layout_revision}, "
        f"fingerprint {format_fingerprint(fingerprint(table))}",
    )
    output.write()
    output.table(
        ("field", "type", "attributes"),
        [(f.name, show_type(f.type), ", ".join(_attributes(table, f))) for f in table.fields],
    )
    if descriptor.indexes:
        output.write()
        columns = ("index", "fields", "state", "built with")
        output.table(columns, [_index_row(table, index) for index in descriptor.indexes])
    if table.checks:
        output.write()
        checks = [
            (c.name, c.expression, _state_of(descriptor, "check", c.number)) for c in table.checks
        ]
        output.table(("check", "must be true", "state"), checks)
    if table.foreign_keys:
        output.write()
        columns = ("reference", "to", "on delete", "state")
        output.table(columns, [_reference_row(descriptor, key) for key in table.foreign_keys])
    if table.archived:
        output.write()
        kept = [
            (a.field.name, show_type(a.field.type), f"{a.archived_by:04d}") for a in table.archived
        ]
        output.table(("archived", "type", "dropped by"), kept)


def _state_of(descriptor: TableDescriptor, kind: ConstraintKind, number: int) -> tuple[str, str]:
    found = next(c for c in descriptor.constraints if (c.kind, c.number) == (kind, number))
    return found.state, "green" if found.is_validated else "yellow"


def _reference_row(
    descriptor: TableDescriptor, key: ForeignKey
) -> tuple[str, str, str, tuple[str, str]]:
    field = descriptor.schema.field_numbered(key.field)
    on_delete = key.on_delete.replace("_", " ")
    return field.name, _target_name(field), on_delete, _state_of(descriptor, "reference", key.field)


def _attributes(table: TableSchema, field: Field) -> Iterator[str]:
    if field.number in table.key:
        yield "key" if len(table.key) == 1 else f"key {table.key.index(field.number) + 1}"
    if field.generated:
        yield "generated" if field.generated == "uuid" else "sequence"
    if field.optional:
        yield "optional"
    if field.has_default:
        shown = json.dumps(field.plain_default, ensure_ascii=False)
        yield f"default {shown if field.has_constant else field.plain_default}"


def _index_row(table: TableSchema, found: IndexDescriptor) -> tuple[str, str, tuple[str, str], str]:
    versions = ", ".join(f"{name} {data.version}" for name, data in found.built_with.items())
    return (
        found.index.name,
        ", ".join(_show_components(table, found.index)) + ("; unique" * found.index.unique),
        (found.state, "green" if found.state == "readable" else "yellow"),
        versions or "-",
    )


def _show_components(table: TableSchema, index: Index) -> Iterator[str]:
    for component in index.components:
        text = table.field_numbered(component.field).name
        if component.collation is not None:
            text += f" ({component.collation})"
        yield text + (" descending" if component.descending else "")


def _field_to_json(table: TableSchema, field: Field) -> dict[str, Any]:
    described = {
        "name": field.name,
        "number": field.number,
        "type": type_to_json(field.type),
        "key": field.number in table.key,
        "optional": field.optional,
        "generated": field.plain_generated,
    }
    return described | ({"default": field.plain_default} if field.has_default else {})


def _index_to_json(table: TableSchema, found: IndexDescriptor) -> dict[str, Any]:
    return {
        "name": found.index.name,
        "number": found.index.number,
        "unique": found.index.unique,
        "state": found.state,
        "fields": [
            {
                "field": table.field_numbered(component.field).name,
                "collation": None if component.collation is None else str(component.collation),
                "descending": component.descending,
            }
            for component in found.index.components
        ],
        "built_with": _datasets_to_json(found.built_with),
        "rewritten_from": _datasets_to_json(found.rewritten_from),
    }


def _datasets_to_json(datasets: dict[str, Dataset]) -> dict[str, Any]:
    return {
        name: {"version": found.version, "fingerprint": found.fingerprint}
        for name, found in datasets.items()
    }


def _check_to_json(descriptor: TableDescriptor, check: Check) -> dict[str, Any]:
    shown, _ = _state_of(descriptor, "check", check.number)
    return {
        "name": check.name,
        "number": check.number,
        "expression": check.expression,
        "state": shown,
    }


def _reference_to_json(descriptor: TableDescriptor, key: ForeignKey) -> dict[str, Any]:
    field = descriptor.schema.field_numbered(key.field)
    shown, _ = _state_of(descriptor, "reference", key.field)
    return {
        "field": field.name,
        "table": _target_name(field),
        "on_delete": key.on_delete,
        "state": shown,
    }


def _target_name(field: Field) -> str:
    assert isinstance(field.type, Reference)
    return field.type.table


def catalog_fingerprint_command(
    table: Annotated[str, typer.Argument(help="The table's name.")],
    options: TenantOptions,
    output: Output,
    find: Annotated[
        str | None,
        typer.Option(
            metavar="FINGERPRINT",
            help="Show when the table had this fingerprint (0x…), and what changed since.",
        ),
    ] = None,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Also show its revision, time and principal.")
    ] = False,
) -> int:
    """Show the fingerprint of a table's schema.

    It is the same in every database with the same migrations, so a program can be pinned to it.
    With `--find`, the exit status is 1 if the table never had that fingerprint. A table that was
    dropped has only a schema history.

    With `--json`: `{table, table_number, revision, fingerprint, migrated_at, migrated_by,
    migration, event}`. With `--find`: `{table, table_number, fingerprint, revisions, active:
    {revision, fingerprint}, differences: [{part, number, name, change, before, after}]}`:
    `revisions` are those at which the table had the fingerprint; `active` is null for a table that
    was dropped; `differences` are the changes since the last of these revisions.
    """
    wanted = None if find is None else parse_fingerprint(find)
    with options.opened_for() as (storage, number):
        recover_schema_histories(storage, number)
        with storage.transaction(TransactionMode.READ) as connection:
            log = read_log(connection, number, table)
            labels = read_labels(connection)
    if wanted is not None:
        return _write_found(output, find_in_log(log, wanted))
    newest = log[-1]
    if newest.event == "drop" or newest.schema.name != table:
        raise UnknownName(
            "the table was dropped; only its schema history remains",
            table=table,
            became="(dropped)" if newest.event == "drop" else newest.schema.name,
            hint="run `zapdb catalog revisions --table NAME` to see it",
        )
    shown = format_fingerprint(newest.fingerprint)
    if verbose:
        shown += f"  revision {newest.revision}, "
        shown += labels.get((newest.position, newest.digest), newest.event)
        shown += f", {show_time(newest)} by {newest.migrated_by}"
    output.write(shown)
    output.document(entry_to_json(newest, labels))
    return 0


def parse_fingerprint(text: str) -> int:
    """Raises `UsageError`."""
    if FINGERPRINT.fullmatch(text) is None:
        raise UsageError(
            "this is not a fingerprint",
            given=text,
            hint="give 0x and up to 16 hexadecimal digits, as `zapdb catalog revisions` prints "
            "them",
        )
    return int(text, 16)


def _write_found(output: Output, found: FingerprintMatch) -> int:
    output.write(*_describe_found(found))
    if found.is_known and not found.is_current:
        write_differences(output, found.differences)
    active = {"revision": found.revision, "fingerprint": format_fingerprint(found.current)}
    output.document(
        {
            "table": found.table,
            "table_number": found.table_number,
            "fingerprint": format_fingerprint(found.fingerprint),
            "revisions": list(found.revisions),
            "active": active if found.is_active else None,
            "differences": list(map(difference_to_json, found.differences)),
        }
    )
    return 0 if found.is_known else EXIT_ERROR


def _describe_found(found: FingerprintMatch) -> Iterator[Part]:
    yield format_fingerprint(found.fingerprint)
    if not found.is_known:
        yield ("  never stamped on ", "red")
        yield found.table
        return
    noun = "revision" if len(found.revisions) == 1 else "revisions"
    yield f"  {noun} {', '.join(map(str, found.revisions))} of {found.table}"
    if found.is_current:
        yield (", active", "green")
    elif found.is_active:
        yield f"; active is revision {found.revision} ({format_fingerprint(found.current)})"
    else:
        yield (f"; dropped at revision {found.revision}", "yellow")


def write_ranges(
    descriptor: TableDescriptor, known: Sequence[RangeRevision], output: Output
) -> None:
    table = descriptor.schema
    rows: list[Sequence[Part]] = [
        (
            "-" if found.lower is None else _show_key(table, found.lower),
            "-" if found.upper is None else _show_key(table, found.upper),
            str(found.revision),
            ("current", "green") if _is_current(descriptor, found) else ("may be stale", "yellow"),
        )
        for found in known
    ]
    columns = ("after the key", "up to the key", "lowest revision", "records")
    output.table(columns, rows, right=columns[2:3])


def ranges_to_json(
    descriptor: TableDescriptor, known: Sequence[RangeRevision]
) -> list[dict[str, Any]]:
    return [
        {
            "after": _key_to_json(descriptor.schema, found.lower),
            "up_to": _key_to_json(descriptor.schema, found.upper),
            "revision": found.revision,
            "current": _is_current(descriptor, found),
        }
        for found in known
    ]


def _is_current(descriptor: TableDescriptor, found: RangeRevision) -> bool:
    return found.revision >= descriptor.layout_revision


def _show_key(table: TableSchema, key: bytes) -> str:
    try:
        values = codec_for(table).decode_key(key)
    except CorruptRecord:
        return key.hex()
    cells = (to_cell(field, value) for field, value in zip(table.key_fields, values, strict=True))
    return one_line(", ".join(cells), 60)


def _key_to_json(table: TableSchema, key: bytes | None) -> Any:
    if key is None:
        return None
    try:
        values = codec_for(table).decode_key(key)
    except CorruptRecord:
        return key.hex()
    return {field.name: to_json(v) for field, v in zip(table.key_fields, values, strict=True)}
