"""Stored migrations as files: what the database knows of them is enough to apply them elsewhere.

A file has the same digest as the stored migration. Comments, reasons and examples are in the
author's files alone, so these are preferred where they are at hand.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from zapdb.catalog.stored import provisional_numbers
from zapdb.errors import CorruptCatalog, InvalidMigration, ZapdbError
from zapdb.files import writing_file
from zapdb.migrations import Chain, Migration
from zapdb.migrations.chain import MigrationFile, list_files
from zapdb.migrations.document import DocumentText, read_document
from zapdb.migrations.lockfile import write_lock
from zapdb.migrations.operations import Operation
from zapdb.migrations.parsed_migration import parse_document
from zapdb.migrations.resolution import resolve
from zapdb.migrations.undo import to_yaml


def write_migrations(chain: Chain, directory: Path, authored: Path | None = None) -> None:
    """Write the files of a chain, with their lock file; `authored` is a directory of files that are
    copied if they are the same migrations."""
    directory.mkdir()
    sources = _read_authored(authored)
    for migration in chain.migrations:
        text = _find_authored(migration, sources) or write_document(migration).encode()
        with writing_file(directory / f"{migration.label}.yaml") as file:
            file.write(text)
    write_lock(directory, chain)


def _read_authored(directory: Path | None) -> dict[int, MigrationFile]:
    if directory is None or not directory.is_dir():
        return {}
    return {file.number: file for file in list_files(directory)}


def _find_authored(migration: Migration, files: dict[int, MigrationFile]) -> bytes | None:
    file = files.get(migration.number)
    if file is None or file.name != migration.name:
        return None
    with suppress(ZapdbError):
        source = file.read()
        if _digest(migration, source) == migration.digest:
            return source.raw
    return None


def write_document(migration: Migration) -> str:
    """The text of a file that is this migration; raises `CorruptCatalog` where there is none."""
    for rollback in (None, migration.rollback):
        text = _format(migration, rollback)
        source = DocumentText(f"{migration.label}.yaml", text.encode())
        with suppress(InvalidMigration):
            if _digest(migration, source) == migration.digest:
                return text
    raise CorruptCatalog(
        "a stored migration can't be written as a file",
        migration=migration.label,
        hint="give the directory of its file: --migrations DIRECTORY",
    )


def _format(migration: Migration, rollback: Sequence[Operation] | None) -> str:
    summary = json.dumps(migration.summary, ensure_ascii=False)
    text = f"zapdb: {migration.version}\nsummary: {summary}\n"
    if migration.replaces:
        text += "replaces:\n" + "".join(f"  - {digest}\n" for digest in migration.replaces)
    if migration.activation is not None:
        text += f"activation: {migration.activation}\n"
    text += f"changes:\n{_indent(to_yaml(migration.changes))}"
    if rollback is None:
        return f"{text}rollback: inferred\n"
    return f"{text}rollback:\n{_indent(to_yaml(tuple(rollback)))}"


def _indent(items: str) -> str:
    return "".join(f"  {line}\n" for line in items.splitlines())


def _digest(migration: Migration, source: DocumentText) -> str:
    parsed = parse_document(read_document(source), source, migration.number, migration.name)
    return resolve(parsed, migration.before, provisional_numbers()).digest
