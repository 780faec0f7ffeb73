"""Processes that do not fit the database: of the future, of the past, with other files.

Each is refused with the same words by every command that it may try, and nothing changes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import zapdb
from tests.cli.program import MIGRATIONS, Project
from zapdb import release
from zapdb.errors import (
    IncompatibleVersion,
    MigrationConflict,
    PendingMigrations,
    SchemaChangesRefused,
    ServedSchemaUnavailable,
    UnknownName,
    ZapdbError,
)

MORE = MIGRATIONS["0002_add_age"].replace("name: age", "name: height")


def rows_of(project: Project) -> dict[str, list[Any]]:
    """All rows, but for leases that were taken and given back, and the seqs that took."""
    found = project.dump()
    del found["zapdb_leases"]
    found["zapdb_counters"] = [row for row in found["zapdb_counters"] if row[0] != "seq"]
    return found


def refuse_to_open(project: Project, kind: type[ZapdbError], **options: object) -> str:
    """What opening is refused with; the database stays as it is, row by row."""
    before = rows_of(project)
    with pytest.raises(kind) as caught:
        zapdb.open(
            f"sqlite:///{project.database}", migrations=project.migrations, **options
        ).close()
    assert type(caught.value) is kind
    assert rows_of(project) == before
    return str(caught.value).replace(str(project.database), "test.db")


def test_rule_06_files_of_the_future_that_nobody_applied(current: Project) -> None:
    current.file("0005_more").write_text(MORE)
    assert refuse_to_open(current, PendingMigrations) == (
        "the files contain migrations that the database does not store yet\n"
        "  database: sqlite:///test.db\n"
        "  pending: 1\n"
        "  first: 0005_more\n"
        "  hint: run `zapdb migrate up`, or open the database with apply='auto'"
    )


def test_rule_10_a_release_of_the_past(current: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """The level was raised since."""
    monkeypatch.setattr(release, "LEVEL", release.LEVEL + 1)
    assert current.run("cluster", "upgrade").status == 0
    monkeypatch.undo()
    monkeypatch.chdir(current.directory)
    assert refuse_to_open(current, IncompatibleVersion).splitlines()[0] == (
        "the database uses features that this release does not know"
    )


def test_rule_11_files_of_the_past_whose_table_is_gone(current: Project) -> None:
    current.file("0005_gone").write_text(
        "zapdb: 1\nsummary: Nobody is left\nchanges:\n"
        "  - drop_table: {table: people, records: discard}\nrollback: inferred\n"
    )
    assert current.run("migrate", "up").status == 0
    current.file("0005_gone").unlink()
    assert refuse_to_open(current, ServedSchemaUnavailable) == (
        "a table of these files was dropped\n"
        "  files_end: 4\n"
        "  table: people\n"
        "  dropped_by: 0005_gone\n"
        "  hint: add the newer files to the directory, and deploy code that works "
        "without the table"
    )


def test_rule_06_files_that_conflict(current: Project) -> None:
    current.file("0002_add_age").write_text(
        MIGRATIONS["0002_add_age"].replace("name: age", "name: years")
    )
    for apply in ("never", "auto"):
        message = refuse_to_open(current, MigrationConflict, apply=apply)
        assert "the file differs from the migration that the database stored" in message
        assert "'age' stored, 'years' in the file" in message


def test_rule_06_files_that_begin_in_the_middle(current: Project) -> None:
    current.file("0001_people").unlink()
    before = current.dump()
    with pytest.raises(ZapdbError, match="migration 1 is missing before this one"):
        zapdb.open(f"sqlite:///{current.database}", migrations=current.migrations)
    assert current.dump() == before


def test_rule_06_a_database_that_refuses_schema_changes(current: Project) -> None:
    assert current.run("settings", "set", "schema_changes", "refuse").status == 0
    current.file("0005_more").write_text(MORE)
    message = (
        "a setting refuses schema changes\n"
        "  setting: schema_changes\n"
        "  hint: run `zapdb settings set schema_changes allow` to allow them again"
    )
    assert refuse_to_open(current, SchemaChangesRefused, apply="auto") == message
    before = rows_of(current)
    up = current.run("migrate", "up")
    assert (up.status, up.err) == (1, f"error: {message}\n")
    current.file("0005_more").unlink()
    forget = current.run("migrate", "rollback", "--yes")
    assert (forget.status, forget.err) == (1, f"error: {message}\n")
    assert rows_of(current) == before


def test_an_unknown_tenant(current: Project) -> None:
    assert refuse_to_open(current, UnknownName, tenant="nobody").startswith(
        "there is no such tenant\n  tenant: nobody\n  tenants: default\n"
    )


TAMPERED: dict[str, Callable[[Project], None]] = {
    "a position beyond the end": lambda p: _set_tenant(p, '"position":4', '"position":9'),
    "a tenant's row that says nothing": lambda p: _set_tenant(p, '"position":4,', ""),
    "a tenant's row that is gone": lambda p: _delete(p, "tenant"),
    "a chain that ends elsewhere": lambda p: _set(p, "chain", '"stored_end":4', '"stored_end":3'),
    "the state of an index that is gone": lambda p: _delete(p, "index"),
}


def _set(project: Project, kind: str, old: str, new: str) -> None:
    project.sql(
        "UPDATE zapdb_catalog SET value = replace(value, ?, ?) WHERE kind = ?", old, new, kind
    )


def _set_tenant(project: Project, old: str, new: str) -> None:
    _set(project, "tenant", old, new)


def _delete(project: Project, kind: str) -> None:
    project.sql("DELETE FROM zapdb_catalog WHERE kind = ?", kind)


@pytest.mark.parametrize("tampered", TAMPERED)
def test_a_tenant_that_was_tampered_with(current: Project, tampered: str) -> None:
    current.run("tenant", "create", "acme")
    TAMPERED[tampered](current)
    message = refuse_to_open(current, zapdb.errors.CorruptCatalog)
    for command in (("migrate", "up"), ("verify",), ("convert", "run")):
        before = current.dump()
        result = current.run(*command)
        assert result.status == 1
        assert result.err.splitlines()[0] == "error: " + message.splitlines()[0]
        assert current.dump() == before
