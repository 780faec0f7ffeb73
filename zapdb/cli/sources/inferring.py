"""Migrations of what was inferred from a source, and what is said of it."""

from __future__ import annotations

from pathlib import Path

from zapdb.cli.configuration import find_migrations
from zapdb.cli.output import Output, format_count
from zapdb.cli.scaffold import create_migration
from zapdb.database.imports import normalize_name
from zapdb.inference import Inference, InferredTable, render_changes


def write_migration(found: Inference, migrations: str | None, output: Output) -> None:
    """Write the next migration with the tables, and say what has no equivalent."""
    changes = render_changes(found)
    # Where a file lies is of this machine; a migration is for all.
    name = found.source if "://" in found.source else Path(found.source).name
    path = str(create_migration(find_migrations(migrations), f"Tables of {name}", changes))
    output.document(
        {
            "path": path,
            "source": found.source,
            "tables": {table.name: [f.name for f in table.fields] for table in found.tables},
            "left_out": found.left_out,
            "notes": [{"subject": note.subject, "text": note.text} for note in found.all_notes],
        }
    )
    output.write(("wrote ", "green"), f"{path}: {format_count(len(found.tables), 'table')}")
    if found.all_notes:
        output.write("look at these, which are comments in the file:")
    for note in found.all_notes:
        output.write("  ", (note.subject, "bold"), f": {note.text}")


def name_of_table(source: str, given: str | None) -> str:
    """The name of a file's table: what is given, or the name of the file."""
    return given or normalize_name(Path(source).stem)


def one_table(source: str, table: InferredTable) -> Inference:
    return Inference(source, [table])
