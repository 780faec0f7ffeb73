"""Migrations of what was inferred from a source, and what is said of it."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from zapdb.cli.configuration import find_migrations
from zapdb.cli.output import Output, format_count
from zapdb.cli.scaffold import create_migration, has_files
from zapdb.migrations import list_files
from zapdb.transfer.inference import Inference, Note, render_changes
from zapdb.transfer.inference.database_import import nothing_to_import


def write_migration(found: Inference, migrations: str | None, output: Output) -> None:
    """Write the next migration with the tables, and say what is the same here, what is not, and
    what is left out."""
    directory = find_migrations(migrations)
    # Where a file lies is of this machine; a migration is for all.
    name = found.source if "://" in found.source else Path(found.source).name
    summary = f"Tables of {name}"

    files = list_files(directory) if has_files(directory) else []
    before = [file.parse(file.read()) for file in files]
    changes = render_changes(found, before)
    if not changes:
        raise nothing_to_import(found)
    path = str(create_migration(directory, summary, changes))
    carried, notes = found.count_carried(), found.all_notes
    changed = [note for note in notes if not note.is_left_out]
    left_out = [note for note in notes if note.is_left_out]
    output.document(
        {
            "path": path,
            "source": found.source,
            "tables": {table.name: [f.name for f in table.fields] for table in found.tables},
            "carried": carried,
            "changed": _to_json(changed),
            "left_out": _to_json(left_out),
        }
    )
    output.write(("wrote ", "green"), f"{path}: {format_count(len(found.tables), 'table')}")
    output.write("carried: ", ", ".join(f"{count:,} {kind}" for kind, count in carried.items()))
    _write_notes("changed; comments in the file say so, too:", changed, output)
    _write_notes("left out; comments in the file say so, too:", left_out, output)
    if not notes:
        output.write("nothing is changed or left out")


def _to_json(notes: Iterable[Note]) -> list[dict[str, Any]]:
    return [{"subject": note.subject, "text": note.text} for note in notes]


def _write_notes(title: str, notes: list[Note], output: Output) -> None:
    if notes:
        output.write(title)
    for note in notes:
        output.write("  ", (note.subject, "bold"), f": {note.text}")
