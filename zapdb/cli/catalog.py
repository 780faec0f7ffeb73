"""`zapdb catalog list`, `show` and `fingerprint`: the active tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated

import typer

from zapdb.cli.connecting import ServedTenantOptions
from zapdb.cli.differences import show_type, write_differences
from zapdb.cli.output import Output, Part, as_plain
from zapdb.cli.revisions import show_time
from zapdb.control import catalog
from zapdb.control.catalog import (
    FieldDescription,
    IndexDescription,
    KeyRange,
    PinCheck,
    TableDescription,
    parse_fingerprint,
)
from zapdb.errors import EXIT_ERROR, UsageError
from zapdb.printing import one_line

KEY_CHARS_MAX = 60
"""Of a key that is shown."""


def catalog_list_command(options: ServedTenantOptions, output: Output) -> None:
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


def catalog_show_command(
    table: Annotated[str, typer.Argument(help="The table's name.")],
    options: ServedTenantOptions,
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
    output = Output(output.as_json)
    with options.control() as control:
        found = control.call(catalog.get_table, table, with_code=code)
        known = control.call(catalog.list_key_ranges, table).ranges if ranges else None
    if known is not None:
        _write_ranges(known, output)
        output.document(as_plain(found) | {"ranges": known})
        return
    if found.code is not None:
        _write_code(found.code, output)
    else:
        _write_table(found, output)
    output.document(found)


def _write_code(source: str, output: Output) -> None:
    source = source.rstrip("\n")
    if not output.is_terminal:
        output.write(source)
        return
    from rich.syntax import Syntax

    output.console.print(Syntax(source, "python", background_color="default", word_wrap=True))


def _write_table(found: TableDescription, output: Output) -> None:
    output.write(
        (found.table, "bold"),
        f"  revision {found.revision}, layout of revision {found.layout_revision}, "
        f"fingerprint {found.fingerprint}",
    )
    output.write()
    output.table(
        ("field", "type", "attributes"),
        [(f.name, show_type(f.type), ", ".join(_attributes(found, f))) for f in found.fields],
    )
    if found.indexes:
        output.write()
        columns = ("index", "fields", "state", "built with")
        output.table(columns, [_index_row(index) for index in found.indexes])
    if found.checks:
        output.write()
        checks = [(c.name, c.expression, _show_state(c.state)) for c in found.checks]
        output.table(("check", "must be true", "state"), checks)
    if found.references:
        output.write()
        columns = ("reference", "to", "on delete", "state")
        references = [
            (one.field, one.table, one.on_delete.replace("_", " "), _show_state(one.state))
            for one in found.references
        ]
        output.table(columns, references)
    if found.archived:
        output.write()
        kept = [(a.field, show_type(a.type), f"{a.migration:04d}") for a in found.archived]
        output.table(("archived", "type", "dropped by"), kept)


def _show_state(state: str) -> tuple[str, str]:
    """Of a check or reference."""
    return state, "green" if state == "validated" else "yellow"


def _attributes(table: TableDescription, field: FieldDescription) -> Iterator[str]:
    if field.key:
        yield "key" if len(table.key) == 1 else f"key {table.key.index(field.name) + 1}"
    if field.generated:
        yield "sequence" if field.generated == "sequence" else "generated"
    if field.optional:
        yield "optional"
    if field.default_text:
        yield f"default {field.default_text}"


def _index_row(found: IndexDescription) -> tuple[str, str, tuple[str, str], str]:
    versions = ", ".join(f"{name} {data.version}" for name, data in found.built_with.items())
    return (
        found.name,
        ", ".join(_show_components(found)) + ("; unique" * found.unique),
        (found.state, "green" if found.state == "readable" else "yellow"),
        versions or "-",
    )


def _show_components(index: IndexDescription) -> Iterator[str]:
    for component in index.fields:
        text = component.field
        if component.collation is not None:
            text += f" ({component.collation})"
        yield text + (" descending" if component.descending else "")


def _write_ranges(known: Sequence[KeyRange], output: Output) -> None:
    rows: list[Sequence[Part]] = [
        (
            "-" if one.after is None else one_line(one.after_text, KEY_CHARS_MAX),
            "-" if one.up_to is None else one_line(one.up_to_text, KEY_CHARS_MAX),
            str(one.revision),
            ("current", "green") if one.current else ("may be stale", "yellow"),
        )
        for one in known
    ]
    columns = ("after the key", "up to the key", "lowest revision", "records")
    output.table(columns, rows, right=columns[2:3])


def catalog_fingerprint_command(
    table: Annotated[str, typer.Argument(help="The table's name.")],
    options: ServedTenantOptions,
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
    if find is not None:
        parse_fingerprint(find)
    with options.control() as control:
        if find is not None:
            return _write_found(output, control.call(catalog.check_pin, table, find))
        newest = control.call(catalog.get_fingerprint, table)
    shown = newest.fingerprint
    if verbose:
        shown += f"  revision {newest.revision}, {newest.migration or newest.event}"
        shown += f", {show_time(newest)} by {newest.migrated_by}"
    output.write(shown)
    output.document(newest)
    return 0


def _write_found(output: Output, found: PinCheck) -> int:
    output.write(*_describe_found(found))
    is_current = found.active is not None and found.active.fingerprint == found.fingerprint
    if found.revisions and not is_current:
        write_differences(output, found.differences)
    output.document(found)
    return 0 if found.revisions else EXIT_ERROR


def _describe_found(found: PinCheck) -> Iterator[Part]:
    yield found.fingerprint
    if not found.revisions:
        yield ("  never stamped on ", "red")
        yield found.table
        return
    noun = "revision" if len(found.revisions) == 1 else "revisions"
    yield f"  {noun} {', '.join(map(str, found.revisions))} of {found.table}"
    if found.active is None:
        yield (f"; dropped at revision {found.revision}", "yellow")
    elif found.active.fingerprint == found.fingerprint:
        yield (", active", "green")
    else:
        yield f"; active is revision {found.active.revision} ({found.active.fingerprint})"
