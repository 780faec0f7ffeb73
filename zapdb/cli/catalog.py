"""`zapdb catalog`: the tables in force, and the history of their schemas."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Annotated, Any

import typer

from zapdb.catalog import IndexState, TableState, View
from zapdb.catalog.history import Entry, format_fingerprint
from zapdb.catalog.inspection import read_labels, read_log
from zapdb.catalog.view import ConstraintKind
from zapdb.cli.configuration import DatabaseOption, JsonOption
from zapdb.cli.opening import opened
from zapdb.cli.output import Output, from_us
from zapdb.cli.types import show_type, type_to_json
from zapdb.errors import UsageError
from zapdb.indexes.code import show_code
from zapdb.schema import Check, Field, ForeignKey, Index, Table, fingerprint
from zapdb.storage import Mode
from zapdb.values import Reference

group = typer.Typer(name="catalog", help="Tables, their schemas, and how they came about.")


@group.command("list")
def list_tables(database: DatabaseOption = None, as_json: JsonOption = False) -> None:
    """Show the tables in force.

    With `--json`: `{position, migration, tables: [{table, number, key, fields, indexes, revision,
    layout_revision, fingerprint}]}`, with the names of fields and indexes.
    """
    output = Output(as_json)
    with opened(database) as (_, view):
        states = list(view.tables.values())
    columns = ("table", "key", "fields", "indexes", "revision", "fingerprint")
    rows = [
        (
            (state.table.name, "bold"),
            ", ".join(f.name for f in state.table.key_fields),
            str(len(state.table.fields)),
            str(len(state.indexes)),
            str(state.revision),
            format_fingerprint(fingerprint(state.table)),
        )
        for state in states
    ]
    output.table(
        columns,
        rows,
        right=("fields", "indexes", "revision"),
        solid=("fingerprint",),
        empty="no tables",
    )
    tables = [
        _summarize(state)
        | {
            "fields": [f.name for f in state.table.fields],
            "indexes": [index.index.name for index in state.indexes],
        }
        for state in states
    ]
    output.document({"position": view.position, "migration": _newest_label(view), "tables": tables})


def _summarize(state: TableState) -> dict[str, Any]:
    return {
        "table": state.table.name,
        "number": state.table.number,
        "key": [f.name for f in state.table.key_fields],
        "revision": state.revision,
        "layout_revision": state.layout_revision,
        "fingerprint": format_fingerprint(fingerprint(state.table)),
    }


def _newest_label(view: View) -> str | None:
    return view.chain.at(view.position).label if view.position else None


@group.command("show")
def show(
    table: Annotated[str, typer.Argument(help="The table's name.")],
    database: DatabaseOption = None,
    code: Annotated[
        bool,
        typer.Option("--code", help="Print the generated source: codec, index keys, conversions."),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Show a table: its fields, its key, its indexes, checks and references, and their states.

    With `--json`: `{table, number, key, revision, layout_revision, fingerprint, fields: [{name,
    number, type, key, optional, generated, default}], indexes: [{name, number, unique, state,
    fields: [{field, collation, descending}], datasets}], checks: [{name, number, expression,
    state}], references: [{field, table, on_delete, state}]}`, with `code` if it is asked for.
    `default` is there only where the field has one; `datasets` gives version and fingerprint of
    what the index was built with.
    """
    output = Output(as_json)
    with opened(database) as (_, view):
        state = view.table(table)
    source = show_code(view, state) if code else None
    if source is not None:
        _write_code(source, output)
    else:
        _write_table(state, output)
    document = _summarize(state) | {
        "fields": [_field_to_json(state.table, f) for f in state.table.fields],
        "indexes": [_index_to_json(state.table, index) for index in state.indexes],
        "checks": [_check_to_json(state, check) for check in state.table.checks],
        "references": [_reference_to_json(state, key) for key in state.table.foreign_keys],
    }
    output.document(document if source is None else document | {"code": source})


def _write_code(source: str, output: Output) -> None:
    source = source.rstrip("\n")
    if not output.is_terminal:
        output.write(source)
        return
    from rich.syntax import Syntax

    output.console.print(Syntax(source, "python", background_color="default", word_wrap=True))


def _write_table(state: TableState, output: Output) -> None:
    table = state.table
    output.write(
        (table.name, "bold"),
        f"  revision {state.revision}, layout of revision {state.layout_revision}, "
        f"fingerprint {format_fingerprint(fingerprint(table))}",
    )
    output.write()
    output.table(
        ("field", "type", "attributes"),
        [(f.name, show_type(f.type), ", ".join(_attributes(table, f))) for f in table.fields],
    )
    if state.indexes:
        output.write()
        columns = ("index", "fields", "state", "built with")
        output.table(columns, [_index_row(table, index) for index in state.indexes])
    if table.checks:
        output.write()
        checks = [(c.name, c.expression, _phase(state, "check", c.number)) for c in table.checks]
        output.table(("check", "must be true", "state"), checks)
    if table.foreign_keys:
        output.write()
        columns = ("reference", "to", "on delete", "state")
        output.table(columns, [_reference_row(state, key) for key in table.foreign_keys])


def _phase(state: TableState, kind: ConstraintKind, number: int) -> tuple[str, str]:
    found = next(c for c in state.constraints if (c.kind, c.number) == (kind, number))
    return found.phase, "green" if found.is_validated else "yellow"


def _reference_row(state: TableState, key: ForeignKey) -> tuple[str, str, str, tuple[str, str]]:
    field = state.table.field_numbered(key.field)
    on_delete = key.on_delete.replace("_", " ")
    return field.name, _target_name(field), on_delete, _phase(state, "reference", key.field)


def _attributes(table: Table, field: Field) -> Iterator[str]:
    if field.number in table.key:
        yield "key" if len(table.key) == 1 else f"key {table.key.index(field.number) + 1}"
    if field.generated:
        yield "generated"
    if field.optional:
        yield "optional"
    if field.has_default:
        yield f"default {json.dumps(_default(field), ensure_ascii=False)}"


def _default(field: Field) -> Any:
    return None if field.default is None else field.type.to_document(field.default)


def _index_row(table: Table, state: IndexState) -> tuple[str, str, tuple[str, str], str]:
    readable = state.phase == "readable"
    versions = ", ".join(f"{name} {version}" for name, version in state.versions.items())
    return (
        state.index.name,
        ", ".join(_show_components(table, state.index)) + ("; unique" * state.index.unique),
        (state.phase, "green" if readable else "yellow"),
        versions or "-",
    )


def _show_components(table: Table, index: Index) -> Iterator[str]:
    for component in index.components:
        text = table.field_numbered(component.field).name
        if component.collation is not None:
            text += f" ({component.collation})"
        yield text + (" descending" if component.descending else "")


def _field_to_json(table: Table, field: Field) -> dict[str, Any]:
    described = {
        "name": field.name,
        "number": field.number,
        "type": type_to_json(field.type),
        "key": field.number in table.key,
        "optional": field.optional,
        "generated": field.generated,
    }
    return described | ({"default": _default(field)} if field.has_default else {})


def _index_to_json(table: Table, state: IndexState) -> dict[str, Any]:
    return {
        "name": state.index.name,
        "number": state.index.number,
        "unique": state.index.unique,
        "state": state.phase,
        "fields": [
            {
                "field": table.field_numbered(component.field).name,
                "collation": None if component.collation is None else str(component.collation),
                "descending": component.descending,
            }
            for component in state.index.components
        ],
        "datasets": {
            name: {"version": state.versions[name], "fingerprint": found}
            for name, found in state.datasets.items()
        },
    }


def _check_to_json(state: TableState, check: Check) -> dict[str, Any]:
    phase, _ = _phase(state, "check", check.number)
    return {
        "name": check.name,
        "number": check.number,
        "expression": check.expression,
        "state": phase,
    }


def _reference_to_json(state: TableState, key: ForeignKey) -> dict[str, Any]:
    field, (phase, _) = state.table.field_numbered(key.field), _phase(state, "reference", key.field)
    return {
        "field": field.name,
        "table": _target_name(field),
        "on_delete": key.on_delete,
        "state": phase,
    }


def _target_name(field: Field) -> str:
    assert isinstance(field.type, Reference)
    return field.type.table


@group.command("history")
def history(
    table: Annotated[str, typer.Option(help="The table's name, or one that it had.")],
    database: DatabaseOption = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Show at most so many.")] = None,
    desc: Annotated[bool, typer.Option("--desc", help="The newest first.")] = False,
    with_snapshot: Annotated[
        bool, typer.Option("--with-snapshot", help="With --json: the schema's bytes, in base64.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Show every schema that a table had: one line for each change.

    `migration` is the newest one that was in force from then on; times are UTC. Where the
    fingerprint is an earlier one again, the schema was rolled back from the generation before.
    Tables that were dropped are found by the name that they had last.

    With `--json`: an object a line, `{table, table_number, gen, fingerprint, migrated_at,
    migrated_by, migration, event, rollback_from, layout_revision}`. `migrated_at` is ISO 8601,
    `rollback_from` a generation or null. `--with-snapshot` adds `snapshot`.
    """
    output = Output(as_json)
    if with_snapshot and not as_json:
        raise UsageError("a snapshot is bytes, and shown in JSON only", hint="add --json")
    with opened(database) as (storage, view), storage.transaction(Mode.READ) as connection:
        entries = read_log(connection, view, table)
        labels = read_labels(connection)
    marked = list(zip(entries, find_rollbacks(entries), strict=True))
    if desc:
        marked.reverse()
    marked = marked[:limit]
    columns = ("gen", "fingerprint", "migrated_at", "migrated_by", "migration", "event")
    rows = [
        (
            str(entry.generation),
            format_fingerprint(entry.fingerprint),
            f"{from_us(entry.migrated_at):%Y-%m-%d %H:%M:%S}",
            entry.migrated_by,
            labels.get((entry.position, entry.digest), "-"),
            entry.event
            if origin is None
            else (f"{entry.event} (rollback from gen {origin})", "yellow"),
        )
        for entry, origin in marked
    ]
    output.table(columns, rows, right=("gen",), solid=("fingerprint", "migrated_at"))
    output.lines(
        _entry_to_json(entry, origin, labels, with_snapshot=with_snapshot)
        for entry, origin in marked
    )


def find_rollbacks(entries: list[Entry]) -> list[int | None]:
    """For each entry, the generation it rolled back: its fingerprint is an earlier one again."""
    seen: set[int] = set()
    found: list[int | None] = []
    last: Entry | None = None
    for entry in entries:
        returned = (
            last is not None and entry.fingerprint in seen and entry.fingerprint != last.fingerprint
        )
        found.append(last.generation if last is not None and returned else None)
        seen.add(entry.fingerprint)
        last = entry
    return found


def _entry_to_json(
    entry: Entry,
    rollback_from: int | None,
    labels: dict[tuple[int, str], str],
    *,
    with_snapshot: bool,
) -> dict[str, Any]:
    described = {
        "table": entry.table.name,
        "table_number": entry.table_number,
        "gen": entry.generation,
        "fingerprint": format_fingerprint(entry.fingerprint),
        "migrated_at": from_us(entry.migrated_at).isoformat(),
        "migrated_by": entry.migrated_by,
        "migration": labels.get((entry.position, entry.digest)),
        "event": entry.event,
        "rollback_from": rollback_from,
        "layout_revision": entry.layout_revision,
    }
    if with_snapshot:
        described["snapshot"] = base64.b64encode(entry.snapshot).decode()
    return described
