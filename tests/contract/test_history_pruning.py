"""Pruning the schema history: what stays readable, what is refused, what never happens."""

from __future__ import annotations

from typing import Any

import pytest

from tests.contract.tables import ADD_COLOR, ADD_WEIGHT, INDEX_SIZE, ITEMS, RENAME_SIZE
from tests.lookups import find
from tests.support import Workspace, dump, error_of
from zapdb.activation.inspection import read_log
from zapdb.activation.rollback import roll_back
from zapdb.activation.up import migrate_up
from zapdb.catalog import DEFAULT_TENANT
from zapdb.catalog.cluster import ensure_database
from zapdb.catalog.schema_history import RevisionEntry
from zapdb.errors import ConcurrencyError, UnknownName, UsageError
from zapdb.jobs.archive_pruning import prune_archives
from zapdb.jobs.blob_sweep import sweep_blobs
from zapdb.past.schema_history_pruning import PruneBound, Pruning, plan_pruning, prune
from zapdb.records import asdict
from zapdb.storage import TransactionMode

pytestmark = pytest.mark.long_on("postgresql")


COUNT = 60
ARCHIVE_NOTE = (
    "drop_field: {table: items, field: note, restore: {archive: true, otherwise: {value: null}}}"
)
ARCHIVE_ITEMS = "drop_table: {table: items, records: archive}"


def plan(place: Workspace, name: str = "items", **bound: Any) -> Pruning:
    with place.control.transaction(TransactionMode.READ) as connection:
        log = read_log(connection, DEFAULT_TENANT, name)
        return plan_pruning(connection, log, PruneBound(**bound))


def prune_log(place: Workspace, name: str = "items", **bound: Any) -> list[int]:
    """The revisions that are left."""
    prune(place.control, plan(place, name, **bound))
    return revisions(place, name)


def entries(place: Workspace, name: str = "items") -> list[RevisionEntry]:
    with place.control.transaction(TransactionMode.READ) as connection:
        return read_log(connection, DEFAULT_TENANT, name)


def revisions(place: Workspace, name: str = "items") -> list[int]:
    return [entry.revision for entry in entries(place, name)]


def up(place: Workspace, number: int, *operations: str) -> None:
    place.write(number, *operations)
    ensure_database(place.control, create=True)
    migrate_up(place.control, DEFAULT_TENANT, place.directory)


def convert(place: Workspace) -> None:
    with place.open() as db:
        db.admin.run_jobs()


def contents(place: Workspace, name: str = "items") -> list[dict[str, Any]]:
    """All records, read in whatever revision they have; everything is whole."""
    with place.open() as db:
        for report in db.admin.verify():
            assert report.problems == ()
        return [asdict(record) for record in db.table(name).scan()]


def insert(place: Workspace, start: int, **values: Any) -> None:
    with place.open() as db:
        db.table("items").insert_many(
            {"id": at, "title": f"title {at}"} | values for at in range(start, start + COUNT)
        )


@pytest.fixture
def base(workspace: Workspace) -> Workspace:
    """Generations 1 to 3, each with a layout of its own; records were written under the first."""
    up(workspace, 1, ITEMS)
    insert(workspace, 0, note="n")
    up(workspace, 2, ADD_COLOR)
    up(workspace, 3, ADD_WEIGHT)
    return workspace


# What is refused


def test_rule_31_pruning_is_refused_while_records_of_a_revision_exist(base: Workspace) -> None:
    insert(base, COUNT)
    with base.open() as db:
        assert db.admin.count_by_revision("items") == {1: COUNT, 3: COUNT}
    before = dump(base)
    pruning = plan(base, keep_last=1)
    assert [(requirement.revision, requirement.what) for requirement in pruning.required_by] == [
        (1, f"{COUNT} records")
    ]
    error = error_of(lambda: prune(base.control, pruning))
    assert isinstance(error, UsageError)
    assert error.context == {"table": "items", "needed": f"revision 1: {COUNT} records"}
    assert "zapdb convert run" in error.hint
    assert dump(base) == before
    convert(base)
    assert prune_log(base, keep_last=1) == [3]


@pytest.mark.parametrize("engine", ["sqlite"])
def test_rule_31_a_single_record_is_enough(base: Workspace) -> None:
    with base.open() as db:
        for at in range(1, COUNT):
            db.table("items").update(at, weight=1)
    assert [requirement.what for requirement in plan(base, keep_last=1).required_by] == ["1 record"]
    with base.open() as db:
        db.table("items").delete(0)
    assert prune_log(base, keep_last=1) == [3]


def test_rule_31_pruning_is_refused_while_archives_of_a_revision_exist(base: Workspace) -> None:
    up(base, 4, ARCHIVE_NOTE)
    up(base, 5, RENAME_SIZE)
    convert(base)
    required_by = plan(base, keep_last=1).required_by
    # It has the field in 1, 2 and 3; in 4 it is gone, and that it is archived is known from 5.
    assert [(requirement.revision, requirement.what) for requirement in required_by] == [
        (at, f"{COUNT} archived values of note") for at in (1, 2, 3)
    ]
    assert error_of(lambda: prune_log(base, keep_last=1)) is not None
    prune_archives(base.control, DEFAULT_TENANT)
    assert prune_log(base, keep_last=1) == [4, 5]  # 5 has the layout of 4
    assert len(contents(base)) == COUNT


@pytest.mark.parametrize("engine", ["sqlite"])
def test_rule_31_what_says_that_a_field_was_archived_stays_as_long_as_its_values(
    base: Workspace,
) -> None:
    """Values outlive the field's return for a moment, and a discarded table takes them along."""
    up(base, 4, ARCHIVE_NOTE)
    convert(base)
    up(base, 5, "restore_field: {table: items, field: note, archived_by: 4}")
    convert(base)
    base.execute(  # as if the sweep had not come to it yet
        "INSERT INTO zapdb_archives SELECT 1, 1, key, 4, ? FROM zapdb_records_1", (b"",)
    )
    assert {requirement.revision for requirement in plan(base, keep_last=1).required_by} == {
        1,
        2,
        3,
        4,
    }
    base.execute("DELETE FROM zapdb_archives")
    assert prune_log(base, keep_last=1) == [5]


@pytest.mark.parametrize("engine", ["sqlite"])
def test_rule_31_records_of_an_archived_table_count(base: Workspace) -> None:
    up(base, 4, ARCHIVE_ITEMS)
    assert [requirement.revision for requirement in plan(base, keep_last=1).required_by] == [1]
    assert error_of(lambda: prune_log(base, keep_last=1)) is not None
    # What nobody has goes all the same, and the table comes back whole.
    assert [e.revision for e in plan(base, before=4).pruned] == [1, 2, 3]


@pytest.mark.parametrize("engine", ["sqlite"])
def test_rule_31_a_log_that_changed_meanwhile_is_not_pruned(base: Workspace) -> None:
    convert(base)
    pruning = plan(base, keep_last=1)
    up(base, 4, RENAME_SIZE)
    assert isinstance(error_of(lambda: prune(base.control, pruning)), ConcurrencyError)
    assert revisions(base) == [1, 2, 3, 4]


# What stays


@pytest.mark.parametrize("engine", ["sqlite"])
def test_rule_31_the_newest_entry_stays_whatever_is_asked(base: Workspace) -> None:
    convert(base)
    before = contents(base)
    assert [e.revision for e in plan(base, before=1000).pruned] == [1, 2]
    assert [e.revision for e in plan(base, older_than_us=1 << 62).pruned] == [1, 2]
    assert plan(base, keep_last=3).pruned == plan(base, before=1).pruned == ()
    second = entries(base)[1].migrated_at
    assert [e.revision for e in plan(base, older_than_us=second).pruned] == [1]
    assert prune_log(base, older_than_us=1 << 62) == [3]
    assert prune_log(base, before=1000) == [3]
    assert contents(base) == before


def test_rule_31_an_entry_stays_whose_layout_a_later_one_has(workspace: Workspace) -> None:
    up(workspace, 1, ITEMS)
    insert(workspace, 0)
    up(workspace, 2, INDEX_SIZE)
    up(workspace, 3, RENAME_SIZE)
    insert(workspace, COUNT)
    pruning = plan(workspace, keep_last=1)
    assert [e.revision for e in pruning.layouts] == [1]
    assert [e.revision for e in pruning.pruned] == [2]
    assert pruning.required_by == ()
    prune(workspace.control, pruning)
    assert revisions(workspace) == [1, 3]
    assert len(contents(workspace)) == 2 * COUNT
    up(workspace, 4, ADD_COLOR)
    with workspace.open() as db:
        assert db._catalog.table("items").revision == 4
        assert db.table("items").get(0).color == db.table("items").get(COUNT).color == "red"
        db.admin.run_jobs()
        assert db.admin.count_by_revision("items") == {4: 2 * COUNT}


def test_rule_31_the_entry_stays_to_whose_layout_a_rollback_came_back(workspace: Workspace) -> None:
    """Its records are current, so no conversion would make them newer."""
    up(workspace, 1, ITEMS)
    insert(workspace, 0)
    up(workspace, 2, ADD_COLOR)
    insert(workspace, COUNT)
    roll_back(workspace.control)
    workspace.remove(2)
    assert [one.revision for one in plan(workspace, keep_last=1).required_by] == [2]
    convert(workspace)
    pruning = plan(workspace, keep_last=1)
    assert [e.revision for e in pruning.layouts] == [1]
    assert pruning.required_by == ()
    prune(workspace.control, pruning)
    assert revisions(workspace) == [1, 3]
    assert len(contents(workspace)) == 2 * COUNT


def test_rule_31_after_pruning_everything_goes_on(base: Workspace) -> None:
    convert(base)
    before = contents(base)
    other = base.open()  # it knows the revisions that were pruned
    assert prune_log(base, keep_last=1) == [3]
    assert contents(base) == before
    other.table("items").update(0, title="changed")
    up(base, 4, RENAME_SIZE, INDEX_SIZE.replace("field: size", "field: extent"))
    with base.open() as db:
        assert db._catalog.table("items").revision == 4
        assert db.table("items").get(0).title == "changed"
        db.admin.run_jobs()
        assert len(list(find(db.table("items"), "by_size", 0))) == COUNT
        assert db.admin.count_by_revision("items") == {3: COUNT}  # nothing is stale
    up(base, 5, "drop_field: {table: items, field: color, restore: {value: green}}")
    convert(base)
    sweep_blobs(base.control, older_than_seconds=0)
    expected = [{k: v for k, v in r.items() if k not in ("size", "color")} for r in before]
    found = [{k: v for k, v in r.items() if k != "extent"} for r in contents(base)]
    assert found == [r | ({"title": "changed"} if not r["id"] else {}) for r in expected]
    assert revisions(base) == [3, 4, 5]


@pytest.mark.parametrize("written", [True, False], ids=["written", "untouched"])
def test_rule_13_a_rollback_after_pruning_brings_everything_back(
    base: Workspace, written: bool
) -> None:
    convert(base)
    before = contents(base)
    assert prune_log(base, keep_last=1) == [3]
    if written:
        with base.open() as db:
            db.table("items").update(0, weight=3)
    roll_back(base.control)
    base.remove(3)
    without = [{k: v for k, v in r.items() if k != "weight"} for r in before]
    assert contents(base) == without
    (kept, back) = entries(base)
    assert (kept.revision, back.revision, back.event, back.layout_revision) == (
        3,
        4,
        "rollback",
        4,
    )
    with base.open() as db:
        db.admin.run_jobs()
        assert db.admin.count_by_revision("items") == {4: COUNT}
    assert prune_log(base, keep_last=1) == [4]
    roll_back(base.control)
    base.remove(2)
    assert contents(base) == [{k: v for k, v in r.items() if k != "color"} for r in without]
    roll_back(base.control)
    up(base, 1, ITEMS.replace("title", "name"))
    assert contents(base) == []


def test_rule_13_a_rollback_after_pruning_of_a_migration_that_left_the_layout_alone(
    workspace: Workspace,
) -> None:
    up(workspace, 1, ITEMS)
    insert(workspace, 0)
    up(workspace, 2, INDEX_SIZE)
    up(workspace, 3, RENAME_SIZE)
    convert(workspace)
    assert prune_log(workspace, keep_last=1) == [1, 3]
    roll_back(workspace.control)
    workspace.remove(3)
    last = entries(workspace)[-1]
    assert (last.revision, last.layout_revision) == (4, 1)
    roll_back(workspace.control)
    workspace.remove(2)
    assert len(contents(workspace)) == COUNT
    with workspace.open() as db:
        assert db.admin.count_by_revision("items") == {1: COUNT}


@pytest.mark.parametrize("engine", ["sqlite"])
def test_rule_01_the_log_of_a_dropped_table_can_be_pruned(base: Workspace) -> None:
    up(base, 4, "drop_table: {table: items, records: discard}")
    assert prune_log(base, keep_last=1) == [4]
    assert entries(base)[0].event == "drop"


def test_rule_01_an_archived_table_comes_back_after_pruning(base: Workspace) -> None:
    convert(base)
    before = contents(base)
    up(base, 4, ARCHIVE_ITEMS)
    assert [e.revision for e in plan(base, keep_last=2).pruned] == [1, 2]
    assert prune_log(base, keep_last=2) == [3, 4]
    up(base, 5, "restore_table: {table: items, archived_by: 4}")
    assert contents(base) == before
    assert [(e.revision, e.event) for e in entries(base)] == [
        (3, "change"),
        (4, "drop"),
        (5, "restore"),
    ]


# What never happens


@pytest.mark.parametrize("engine", ["sqlite"])
def test_pruning_begins_no_history_of_a_table_without_one(workspace: Workspace) -> None:
    tags = "create_table: {table: tags, key: [name], fields: [{name: name, type: string}]}"
    up(workspace, 1, ITEMS, tags)
    up(workspace, 2, ADD_COLOR)
    workspace.execute("DELETE FROM zapdb_schema_history WHERE table_number = 2")
    assert prune_log(workspace, keep_last=1) == [2]
    assert workspace.execute("SELECT DISTINCT table_number FROM zapdb_schema_history") == [(1,)]
    assert isinstance(error_of(lambda: plan(workspace, "tags", keep_last=1)), UnknownName)


@pytest.mark.parametrize(
    "bound", [{}, {"keep_last": 1, "before": 2}, {"keep_last": 0}, {"keep_last": -1}]
)
def test_what_to_prune_is_said_in_one_way(bound: dict[str, int]) -> None:
    with pytest.raises(UsageError):
        PruneBound(**bound)
