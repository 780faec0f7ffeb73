"""`zapdb migrate diff` and `graph`: comparing files with stored migrations, and dependencies."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import typer

from zapdb.cli.configuration import MigrationsOption, find_migrations
from zapdb.cli.connecting import ServedDatabaseOptions
from zapdb.cli.output import Output, format_count
from zapdb.control.migrations.comparing import diff
from zapdb.errors import EXIT_ERROR
from zapdb.migrations import label, load_directory
from zapdb.migrations.graph import Graph, MigrationNode, ObjectNode, build_graph, to_mermaid


def migrate_diff_command(
    options: ServedDatabaseOptions, output: Output, migrations: MigrationsOption = None
) -> int:
    """Show where files differ from the stored migrations, field by field.

    Comments, formatting and summaries don't count as differences. Files that are not stored, and
    stored migrations without a file, are only counted. Exit status 1 if there is a difference.

    With `--json`: `{differences: [{number, name, stored, file, lines, error}], not_stored,
    without_file}`. `stored` and `file` are digests, or null; `error` is the text of an error that
    is not a difference of fields, or null.
    """
    directory = find_migrations(migrations)
    with options.control() as control:
        found = control.call(diff, directory)
    for one in found.differences:
        output.write((label(one.number, one.name), "bold"))
        for line in (*one.lines, *(one.error or "").splitlines()):
            output.write(f"  {line}")
    others = {
        "different": len(found.differences),
        "not stored": found.not_stored,
        "without a file": found.without_file,
    }
    parts = [f"{count} {what}" for what, count in others.items() if count]
    output.write(", ".join((f"{format_count(found.same, 'migration')} the same", *parts)))
    output.document(found)
    return EXIT_ERROR if found.differences else 0


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
