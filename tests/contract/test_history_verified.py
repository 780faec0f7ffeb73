"""`verify` computes the schema history again: from its snapshots, and from the migrations."""

from __future__ import annotations

import zlib

import pytest

from tests.contract.tables import ADD_COLOR, INDEX_SIZE, ITEMS, RENAME_SIZE
from tests.contract.test_history_missing import TAGS, log, up
from tests.support import Workspace
from zapdb.activation.rollback import roll_back
from zapdb.activation.up import MigrationChoice, migrate_up
from zapdb.catalog.schema_history import format_fingerprint
from zapdb.errors import CorruptCatalog
from zapdb.jobs.tenant_verification import TableReport


@pytest.fixture
def place(workspace: Workspace) -> Workspace:
    """A log with an entry of each kind, those of forgotten migrations too."""
    up(workspace, 1, ITEMS, TAGS)
    up(workspace, 2, ADD_COLOR)
    up(workspace, 3, RENAME_SIZE)
    roll_back(workspace.control)
    workspace.remove(3)
    up(workspace, 3, INDEX_SIZE)
    up(workspace, 4, "drop_table: {table: items, records: archive}")
    up(workspace, 5, "restore_table: {table: items, archived_by: 4}")
    up(workspace, 6, "drop_table: {table: tags, records: discard}")
    assert [e.event for e in log(workspace) if e.schema.name == "items"] == [
        "create", "change", "change", "rollback", "change", "drop", "restore"
    ]  # fmt: skip
    return workspace


def verify(place: Workspace) -> list[TableReport]:
    with place.open() as db:
        return db.admin.verify()


def set_entry(place: Workspace, table: int, revision: int, column: str, value: object) -> None:
    place.execute(
        f"UPDATE zapdb_schema_history SET {column} = ? WHERE table_number = ? AND revision = ?",
        (value, table, revision),
    )


def test_a_history_of_all_kinds_of_entries_is_whole(place: Workspace) -> None:
    assert [(report.table, report.problems) for report in verify(place)] == [("items", ())]


def test_rule_03_a_migration_that_is_stored_again_has_other_numbers(workspace: Workspace) -> None:
    """Its schema is the same but for numbers, so that its id tells the two apart."""
    up(workspace, 1, ITEMS)
    up(workspace, 2, INDEX_SIZE)
    roll_back(workspace.control)
    migrate_up(workspace.control, 1, workspace.directory, MigrationChoice(again=True))
    first, _, again = log(workspace)[1:]
    assert first.fingerprint == again.fingerprint
    assert first.migration != again.migration
    assert first.schema_bytes != again.schema_bytes
    assert [report.problems for report in verify(workspace)] == [()]

    # The newest one has to have the numbers that the migration has now.
    set_entry(workspace, again.table_number, again.revision, "table_schema", first.packed)
    with pytest.raises(CorruptCatalog):
        verify(workspace)


def test_rule_03_a_table_that_is_created_again_has_another_number(workspace: Workspace) -> None:
    up(workspace, 1, ITEMS)
    up(workspace, 2, TAGS)
    up(workspace, 3, "rename_table: {table: tags, to: labels}")
    roll_back(workspace.control)
    roll_back(workspace.control)
    migrate_up(workspace.control, 1, workspace.directory, MigrationChoice(again=True))
    assert [(report.table, report.problems) for report in verify(workspace)] == [
        ("items", ()),
        ("labels", ()),
    ]


def test_fingerprints_are_computed_again(place: Workspace) -> None:
    items = [entry for entry in log(place) if entry.schema.name == "items"]
    made, wrong = items[1].fingerprint, items[1].fingerprint ^ 1
    set_entry(place, items[1].table_number, 2, "fingerprint", wrong.to_bytes(8, "big"))
    (report,) = verify(place)
    assert report.problems == (
        "revision 2 of the schema history: its fingerprint is "
        f"{format_fingerprint(wrong)}, and that of its snapshot {format_fingerprint(made)}",
    )


def test_snapshots_are_those_that_the_migrations_lead_to(place: Workspace) -> None:
    """Another entry's snapshot, with the right fingerprint: old records are read otherwise."""
    items = [entry for entry in log(place) if entry.schema.name == "items"]
    number = items[0].table_number
    set_entry(place, number, 2, "table_schema", items[0].packed)
    set_entry(place, number, 2, "fingerprint", items[0].fingerprint.to_bytes(8, "big"))
    (report,) = verify(place)
    assert report.problems == (
        "revision 2 of the schema history: its snapshot is not what 0002_test makes of the table",
    )


@pytest.mark.parametrize("packed", [b"", b"no", zlib.compress(b"no")])
def test_snapshots_that_cannot_be_read_are_problems(place: Workspace, packed: bytes) -> None:
    (tags, *_) = (entry for entry in log(place) if entry.schema.name == "tags")
    for revision in (1, 2):
        set_entry(place, tags.table_number, revision, "table_schema", packed)
    items, dropped = verify(place)
    assert items.problems == ()
    assert dropped.table == f"(table {tags.table_number})"
    assert dropped.problem_count == 2
    assert "revision 1 of the schema history: its snapshot" in dropped.problems[0]


def test_layouts_have_to_be_there(place: Workspace) -> None:
    items = [entry for entry in log(place) if entry.schema.name == "items"]
    place.execute("DELETE FROM zapdb_schema_history WHERE revision = 1 AND table_number = ?",
                  (items[0].table_number,))  # fmt: skip
    set_entry(place, items[0].table_number, 2, "layout_revision", 1)
    (report,) = verify(place)
    assert report.problems == (
        "revision 2 of the schema history: has the layout of revision 1, which is not there",
    )
