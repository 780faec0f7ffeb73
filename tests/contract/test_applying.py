"""Applying migrations: one transaction each, once, by the process that comes first."""

from __future__ import annotations

import itertools

import pytest

from tests.contract.tables import ADD_COLOR, ADD_WEIGHT, DROP_NOTE, INDEX_SIZE, ITEMS, RENAME_SIZE
from tests.support import WAYS, Faults, Way, Workspace, dump, error_of
from zapdb.activation.rollback import roll_back
from zapdb.activation.up import AppliedMigration, MigrationChoice, migrate_up
from zapdb.catalog import DEFAULT_TENANT
from zapdb.errors import CommitUnknown, LeaseLost
from zapdb.schema import fingerprint
from zapdb.storage import Storage
from zapdb.storage.identities import count_of

pytestmark = pytest.mark.empty

TAGS = "create_table: {table: tags, key: [name], fields: [{name: name, type: string}]}"
PROCESSES = 100


def up(place: Workspace, storage: Storage) -> list[str]:
    applied = migrate_up(storage, DEFAULT_TENANT, place.directory)
    return [migration.label for migration in applied]


def end_leases(place: Workspace) -> None:
    """As time would."""
    place.execute("DELETE FROM zapdb_leases")


def counters(place: Workspace) -> dict[str, int]:
    rows = place.execute(
        "SELECT name, value FROM zapdb_counters"
        " WHERE name NOT IN ('seq', 'zone', 'change', 'change_at')"
    )  # numbers of zones are drawn when a database is opened, as many as the data know
    return {
        str(name): count_of(value) if name == "migration" else int(value) for name, value in rows
    }


# One transaction


@pytest.mark.long_on("postgresql")
@pytest.mark.parametrize(
    ("way", "lasting"), [*((way, False) for way in WAYS), ("before", True), ("after", True)]
)
def test_rule_06_a_migration_takes_force_whole_or_not_at_all(
    workspace: Workspace, way: Way, lasting: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Structure, digest, numbers, entry tables, index states, position and history entries."""
    workspace.write(1, ITEMS)
    with workspace.open() as db:
        db.table("items").insert(id=1, title="Milk")
    workspace.write(2, TAGS, ADD_COLOR, INDEX_SIZE)
    storage = workspace.connect()
    faults = Faults(workspace, storage, way, lasting=lasting)
    faults.install(monkeypatch)
    before, struck = dump(workspace), []
    for call in itertools.count(1):
        faults.arm(call)
        error = error_of(lambda: up(workspace, storage))
        if error is None:
            # A fault after the commit, in giving back the lease, is none of the migration's.
            assert not faults.struck or dump(workspace) != before
            break
        struck.append(faults.struck[0])
        if dump(workspace) != before:
            # Only a commit that reported an error leaves something, and it says that it may.
            assert (way, struck[-1]) == ("after", "commit")
            assert isinstance(error, CommitUnknown)
            break
        faults.arm(0)
        end_leases(workspace)
    kinds = {"begin", "fetch_one", "fetch_all", "run", "commit"}
    assert kinds - ({"begin"} if way == "drop" else set()) <= set(struck)
    assert len(struck) > 25
    faults.arm(0)
    end_leases(workspace)
    assert up(workspace, storage) == []
    with workspace.open() as db:
        assert db.position == 2
        assert db.applied == ()
        assert [entry.position for entry in db.admin.schema_history("items")] == [1, 2]
        assert [entry.position for entry in db.admin.schema_history("tags")] == [2]
        assert db.table("items").get(1).color == "red"
        db.table("tags").insert(name="dairy")
        db.admin.run_jobs()
        assert [report.problem_count for report in db.admin.verify()] == [0, 0]
    # Nothing that failed drew a number.
    assert counters(workspace) == {
        "tenant": 1,
        "migration": 2,
        "table": 2,
        "field": 6,
        "index": 1,
        "type": 0,
        "entry_table": 1,
        "index_build": 1,
        "check": 0,
        "horizon": 0,
    }


@pytest.mark.parametrize("function", ["store", "switch"])
@pytest.mark.on_each_engine
def test_rule_06_a_process_that_dies_while_applying_leaves_nothing(
    workspace: Workspace, function: str
) -> None:
    workspace.write(1, ITEMS)
    workspace.open().close()
    before = dump(workspace)
    workspace.write(2, TAGS, ADD_COLOR)
    died = workspace.run("migrate_dying", function, "1")
    assert died.returncode == -9, died.stderr
    assert dump(workspace) == before
    # Its lease is taken over at once, since its process is known to be gone.
    assert workspace.open().position == 2


@pytest.mark.on_each_engine
def test_rule_09_who_lost_the_chain_applies_nothing(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace.write(1, ITEMS)
    workspace.open().close()
    workspace.write(2, ADD_COLOR)
    before = dump(workspace)
    storage = workspace.connect()

    def lose(*_: object) -> None:
        end_leases(workspace)

    monkeypatch.setattr("zapdb.activation.up.require_none_rolled_back", lose)
    with pytest.raises(LeaseLost):
        up(workspace, storage)
    assert dump(workspace) == before


# Many processes


@pytest.mark.long_on("postgresql")
@pytest.mark.on_each_engine
def test_rule_06_many_processes_apply_a_new_migration_once(workspace: Workspace) -> None:
    """From an empty database, all at one moment."""
    workspace.write(1, ITEMS)
    workspace.write(2, ADD_COLOR)
    ran = workspace.run("open_together", str(PROCESSES))
    told = [line for line in ran.stderr.splitlines() if "waited long for the gate" not in line]
    assert told == []
    outcomes = [line.split() for line in ran.stdout.splitlines()]
    assert len(outcomes) == PROCESSES
    assert sum(int(applied) for applied, _ in outcomes) == 2
    assert {position for _, position in outcomes} == {"2"}
    with workspace.open(apply="never") as db:
        assert [entry.event for entry in db.admin.schema_history("items")] == ["create", "change"]
        assert db.table("items").count() == PROCESSES
        assert db.admin.count_by_revision("items") == {2: PROCESSES}
    assert counters(workspace)["migration"] == 2
    assert counters(workspace)["field"] == 5
    assert workspace.execute("SELECT count(*) FROM zapdb_catalog WHERE kind = 'database'") == [(1,)]


@pytest.mark.on_each_engine
def test_rule_06_a_lease_is_not_waited_for_once_all_is_done(workspace: Workspace) -> None:
    """The process that stored what is wanted has the lease still, and may have more to do."""
    workspace.write(1, ITEMS)
    workspace.open().close()
    for number, operation in ((2, ADD_COLOR), (3, ADD_WEIGHT)):
        workspace.write(number, operation)
    storage, other, found = workspace.connect(), workspace.connect(), list[list[AppliedMigration]]()

    def apply_too(applied: AppliedMigration) -> None:
        wanted = MigrationChoice(to=applied.number)
        found.append(migrate_up(other, DEFAULT_TENANT, workspace.directory, wanted))

    migrate_up(storage, DEFAULT_TENANT, workspace.directory, on_applied=apply_too)
    assert found == [[], []]


# Revisions, layouts, numbers


def test_rule_01_the_revision_is_that_of_the_history(workspace: Workspace) -> None:
    revisions = []
    for number, operation in enumerate((ITEMS, ADD_COLOR, INDEX_SIZE, DROP_NOTE), 1):
        workspace.write(number, operation)
        with workspace.open() as db:
            db.table("items").insert(id=number, title="Milk")
            state = db._catalog.table("items")
            revisions.append((state.revision, state.layout_revision))
            assert db.admin.schema_history("items")[-1].revision == state.revision
            assert db.admin.schema_history("items")[-1].fingerprint == fingerprint(state.schema)
    assert revisions == [(1, 1), (2, 2), (3, 2), (4, 4)]
    with workspace.open() as db:
        assert db.admin.count_by_revision("items") == {1: 1, 2: 1, 3: 1, 4: 1}


def test_rule_01_a_table_that_a_migration_leaves_alone_keeps_its_revision(
    workspace: Workspace,
) -> None:
    workspace.write(1, ITEMS)
    workspace.write(2, TAGS)
    workspace.write(3, ADD_COLOR)
    with workspace.open() as db:
        assert [entry.position for entry in db.admin.schema_history("items")] == [1, 3]
        assert [entry.position for entry in db.admin.schema_history("tags")] == [2]


@pytest.mark.parametrize(
    "operation", [INDEX_SIZE, RENAME_SIZE, "rename_table: {table: items, to: x}"]
)
def test_rule_01_what_leaves_the_layout_alone_makes_nothing_stale(
    workspace: Workspace, operation: str
) -> None:
    workspace.write(1, ITEMS)
    with workspace.open() as db:
        db.table("items").insert(id=1, title="Milk", size=3)
    workspace.write(2, operation)
    with workspace.open() as db:
        (name,) = db._catalog.tables
        state = db._catalog.table(name)
        assert (state.revision, state.layout_revision) == (2, 1)
        db.table(name).insert(id=2, title="Bread")
        assert db.admin.count_by_revision(name) == {1: 1, 2: 1}
        assert [report.job.kind for report in db.admin.run_jobs()] == (
            ["index"] if operation is INDEX_SIZE else []
        )
        assert db.admin.count_by_revision(name) == {1: 1, 2: 1}
        assert [record.id for record in db.table(name).scan()] == [1, 2]


@pytest.mark.on_each_engine
def test_rule_03_numbers_are_never_used_again(workspace: Workspace) -> None:
    drawn = []
    for _ in range(3):
        workspace.write(1, ITEMS)
        workspace.write(2, TAGS, ADD_COLOR, INDEX_SIZE)
        storage = workspace.connect()
        if not drawn:
            workspace.open().close()
        else:
            migrate_up(storage, DEFAULT_TENANT, workspace.directory, MigrationChoice(again=True))
        with workspace.open() as db:
            items, tags = db._catalog.table("items").schema, db._catalog.table("tags").schema
            color = items.field_named("color")
            assert color is not None
            drawn.append((tags.number, color.number, items.indexes[0].number))
            revision = db._catalog.table("items").revision
        assert roll_back(storage).migrations[0].label == "0002_test"
        assert revision == 2 * len(drawn)
    assert len(set(drawn)) == 3
    for kind in zip(*drawn, strict=True):
        assert len(set(kind)) == 3
        assert list(kind) == sorted(kind)
    ids = workspace.execute("SELECT id FROM zapdb_migrations ORDER BY id")
    assert [count_of(number) for (number,) in ids] == [1, 2, 3, 4]


@pytest.mark.on_each_engine
def test_rule_06_up_stops_at_the_number_that_is_given(workspace: Workspace) -> None:
    for number, operation in enumerate((ITEMS, ADD_COLOR, ADD_WEIGHT), 1):
        workspace.write(number, operation)
    workspace.write(1, ITEMS)
    storage = workspace.connect()
    from zapdb.catalog.cluster import ensure_database

    ensure_database(storage, create=True)
    seen: list[str] = []
    applied = migrate_up(
        storage,
        DEFAULT_TENANT,
        workspace.directory,
        MigrationChoice(to=2),
        on_applied=lambda one: seen.append(one.label),
    )
    assert [one.label for one in applied] == seen == ["0001_test", "0002_test"]
    assert [one.tables for one in applied] == [("items",), ("items",)]
    assert up(workspace, storage) == ["0003_test"]
    assert up(workspace, storage) == []
