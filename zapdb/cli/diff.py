"""`zapdb migrate diff` and `graph`: comparing files with stored migrations, and dependencies."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import typer

from zapdb.activation import TenantCatalog
from zapdb.activation.inspection import MigrationState, list_migration_states
from zapdb.cli.configuration import MigrationsOption, find_migrations
from zapdb.cli.connecting import DatabaseOptions
from zapdb.cli.output import Output, format_count
from zapdb.errors import EXIT_ERROR, MigrationConflict, MigrationError
from zapdb.migrations import label, list_files, load_directory
from zapdb.migrations.graph import Graph, MigrationNode, ObjectNode, build_graph, to_mermaid


def migrate_diff_command(
    options: DatabaseOptions, output: Output, migrations: MigrationsOption = None
) -> int:
    """Show where files differ from the stored migrations, field by field.

    Comments, formatting and summaries don't count as differences. Files that are not stored, and
    stored migrations without a file, are only counted. Exit status 1 if there is a difference.

    With `--json`: `{differences: [{number, name, stored, file, lines, error}], not_stored,
    without_file}`. `stored` and `file` are digests, or null; `error` is the text of an error that
    is not a difference of fields, or null.
    """
    files = list_files(find_migrations(migrations))
    with options.connected() as storage:
        catalog = options.read_catalog_if_any(storage)
    states = list_migration_states(files, catalog)
    differences = [
        _describe(state, state.conflict, catalog) for state in states if state.conflict is not None
    ]
    end = 0 if catalog is None else catalog.chain.end
    not_stored = sum(state.phase == "pending" and state.number > end for state in states)
    without_file = sum(state.phase == "stored-only" for state in states)
    for one in differences:
        output.write((label(one["number"], one["name"]), "bold"))
        for line in (*one["lines"], *(one["error"] or "").splitlines()):
            output.write(f"  {line}")
    same = len(states) - not_stored - without_file - len(differences)
    others = {
        "different": len(differences),
        "not stored": not_stored,
        "without a file": without_file,
    }
    parts = [f"{count} {what}" for what, count in others.items() if count]
    output.write(", ".join((f"{format_count(same, 'migration')} the same", *parts)))
    output.document(
        {"differences": differences, "not_stored": not_stored, "without_file": without_file}
    )
    return EXIT_ERROR if differences else 0


def _describe(
    state: MigrationState, conflict: MigrationError, catalog: TenantCatalog | None
) -> dict[str, Any]:
    assert catalog is not None
    row = next((row for row in catalog.stored if row.number == state.number), None)
    described: dict[str, Any] = {
        "number": state.number,
        "name": state.name,
        "stored": None if row is None else row.digest,
        "file": None,
        "lines": [],
        "error": None,
    }
    if not isinstance(conflict, MigrationConflict) or "difference" not in conflict.context:
        return described | {"error": str(conflict)}
    lines = [line.strip() for line in str(conflict.context["difference"]).splitlines()]
    digest = str(conflict.context["file"]).rpartition(" ")[2]
    return described | {"file": digest, "lines": [line for line in lines if line]}


def migrate_graph_command(
    output: Output,
    migrations: MigrationsOption = None,
    form: Annotated[
        Literal["text", "mermaid", "json"],
        typer.Option("--format", help="Text, a Mermaid flowchart, or JSON as with --json."),
    ] = "text",
) -> None:
    """Show the dependencies of migrations on each other, and of tables on tables and types.

    A migration depends on the migrations that last changed the same tables and types.

    With `--json`: `{migrations: [{number, label, after, changes: [{verb, kind, name}]}], tables:
    [{name, references: [{field, table}], types}], types: …}`; types as tables, with members.
    """
    output = Output(output.as_json or form == "json")
    graph = build_graph(load_directory(find_migrations(migrations)))
    if form == "mermaid":
        output.write(to_mermaid(graph).rstrip("\n"))
    else:
        _write_graph(graph, output)
    output.document(
        {
            "migrations": [_migration_to_json(node) for node in graph.migrations],
            "tables": [_object_to_json(n) for n in graph.objects if n.object_id[0] == "table"],
            "types": [_object_to_json(n) for n in graph.objects if n.object_id[0] == "type"],
        }
    )


def _write_graph(graph: Graph, output: Output) -> None:
    labels = {node.number: node.label for node in graph.migrations}
    output.table(
        ("migration", "changes", "depends on"),
        [
            (
                node.label,
                ", ".join(f"{change.verb} {change.name}" for change in node.changes),
                ", ".join(labels[number] for number in node.after),
            )
            for node in graph.migrations
        ],
    )
    output.write()
    output.table(
        ("name", "kind", "refers to", "types"),
        [
            (
                node.name,
                node.object_id[0],
                ", ".join(f"{table} ({field})" for field, table in node.references),
                ", ".join(node.types),
            )
            for node in graph.objects
        ],
        empty="no tables",
    )


def _migration_to_json(node: MigrationNode) -> dict[str, Any]:
    return {
        "number": node.number,
        "label": node.label,
        "after": list(node.after),
        "changes": [
            {"verb": change.verb, "kind": change.object_id[0], "name": change.name}
            for change in node.changes
        ],
    }


def _object_to_json(node: ObjectNode) -> dict[str, Any]:
    return {
        "name": node.name,
        "references": [{"field": field, "table": table} for field, table in node.references],
        "types": list(node.types),
    }
