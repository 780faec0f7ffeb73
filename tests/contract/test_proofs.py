"""Nothing is applied that is not proven; real records show what made-up ones miss."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.contract.tables import ADD_COLOR, ADD_WEIGHT, ITEMS, RENAME_SIZE
from tests.documents import document
from tests.support import Workspace, dump, wait_until
from zapdb.activation import TenantCatalog, load_tenant_catalog
from zapdb.activation.up import MigrationChoice, migrate_up
from zapdb.catalog import DEFAULT_TENANT
from zapdb.errors import (
    BlobMissing,
    CorruptRecord,
    ExampleNotProven,
    LeaseLost,
    RollbackNotProven,
)
from zapdb.expressions import FUNCTIONS
from zapdb.jobs.sampling import TableSample, prove_with_records
from zapdb.limits import INLINE_SIZE_BYTES_MAX
from zapdb.migrations import NumberAllocator, list_files, resolve_files
from zapdb.migrations.proof_findings import RecordTrace
from zapdb.migrations.round_trip import RoundTrip
from zapdb.storage import TransactionMode
from zapdb.values import String

SPLIT = """\
transform: {table: items, from: {title: string}, into: {kind: string, number: string},
      up: {kind: "before(title, ' ')", number: "after(title, ' ')"},
      down: {title: "join(' ', kind, number)"}}"""
LOSSY_SPLIT = SPLIT[:-1] + ", reversibility: lossy}"

# Exact, but for one title that no expression names.
ODD_ONE = """\
transform: {table: items, from: {title: string}, into: {name: string},
      up: {name: "replace(title, 'q', 'k') if length(title) == 13 and ends_with(title, 'z') else
      title"}, down: {title: name}}"""


def tenant_catalog_of(place: Workspace) -> TenantCatalog:
    with place.control.transaction(TransactionMode.READ) as connection:
        return load_tenant_catalog(connection, DEFAULT_TENANT)


def sample(place: Workspace, count: int = 1_000, seed: int = 0) -> list[TableSample]:
    catalog = tenant_catalog_of(place)
    files = list_files(place.directory)[catalog.chain.end :]
    chain = resolve_files(files, catalog.chain, NumberAllocator.provisional())
    pending = chain.after(catalog.position)
    return prove_with_records(place.connect(), catalog, pending, count, seed)


# Applying


@pytest.mark.parametrize("has_database", [False, True])
def test_rule_06_nothing_is_applied_before_all_is_proven(
    workspace: Workspace, has_database: bool
) -> None:
    workspace.write(1, ITEMS)
    if has_database:
        workspace.open().table("items").insert(id=1, title="Milk")
    workspace.write(2, ADD_COLOR)
    path = workspace.write(3, SPLIT)
    before = dump(workspace) if has_database else {}
    for _ in range(2):
        with pytest.raises(RollbackNotProven) as caught:
            workspace.open(apply="auto")
        assert str(caught.value.location) == f"{path}:5:5"
        assert caught.value.context["back"] == "title=' '"
    if has_database:
        assert dump(workspace) == before
        assert workspace.execute("SELECT count(*) FROM zapdb_migrations") == [(1,)]
    with pytest.raises(RollbackNotProven):
        migrate_up(
            workspace.connect(), DEFAULT_TENANT, workspace.directory, MigrationChoice(again=True)
        )
    workspace.write(3, LOSSY_SPLIT)
    with workspace.open() as db:
        assert db.position == 3


def test_only_what_is_to_be_applied_is_proven(workspace: Workspace) -> None:
    workspace.write(1, ITEMS)
    workspace.write(2, ADD_COLOR)
    workspace.write(3, SPLIT)
    workspace.write(1, ITEMS)
    with pytest.raises(RollbackNotProven):
        workspace.open()
    storage = workspace.connect()
    applied = migrate_up(storage, DEFAULT_TENANT, workspace.directory, MigrationChoice(to=2))
    assert [one.number for one in applied] == [1, 2]


def test_examples_are_run_before_anything_is_applied(workspace: Workspace) -> None:
    workspace.write(1, ITEMS)
    workspace.open().close()
    path = workspace.directory / "0002_test.yaml"
    examples = "examples: [{table: items, before: {title: a b}, after: {kind: a, number: a}}]\n"
    path.write_text(document(LOSSY_SPLIT) + examples)
    with pytest.raises(ExampleNotProven) as caught:
        workspace.open()
    assert caught.value.context["cause"] == "number is 'b', not 'a'"
    path.write_text(document(LOSSY_SPLIT) + examples.replace("number: a", "number: b"))
    with workspace.open() as db:
        assert db.position == 2


CHAIN = "name = 'catalog/chain'"


def test_rule_09_the_lease_is_kept_while_proving(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace.write(1, ITEMS)
    monkeypatch.setattr("zapdb.activation.up.CHAIN_LEASE_SECONDS", 0.3)

    def expiry() -> int:
        return int(workspace.execute(f"SELECT expires_at FROM zapdb_leases WHERE {CHAIN}")[0][0])

    def prove(migrations: object) -> None:
        for _ in range(3):
            before = expiry()
            wait_until(lambda before=before: expiry() > before, "it is renewed")

    monkeypatch.setattr("zapdb.activation.up.require_proven", prove)
    with workspace.open() as db:
        assert db.position == 1
    assert expiry() == 0  # it was given back


def test_rule_09_who_loses_the_lease_while_proving_stores_nothing(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace.write(1, ITEMS)

    def prove(migrations: object) -> None:
        workspace.execute(f"UPDATE zapdb_leases SET epoch = epoch + 1 WHERE {CHAIN}")

    monkeypatch.setattr("zapdb.activation.up.require_proven", prove)
    with pytest.raises(LeaseLost):
        workspace.open()
    assert workspace.execute("SELECT count(*) FROM zapdb_migrations") == [(0,)]


# Real records


def test_real_records_show_what_made_up_ones_miss(workspace: Workspace) -> None:
    workspace.write(1, ITEMS)
    with workspace.open() as db:
        db.table("items").insert_many({"id": n, "title": f"item {n}"} for n in range(50))
        db.table("items").insert(id=-7, title="quite a fizzz")
    workspace.write(2, ADD_COLOR)
    workspace.write(3, ODD_ONE)
    before = dump(workspace)
    (found,) = sample(workspace)
    assert (found.table, found.records, found.sampled) == ("items", 51, 51)
    (failure,) = found.failures
    assert (failure.kind, failure.field, failure.migration) == ("rollback", "title", "0003_test")
    shown = str(failure.to_error())
    assert "(key)=79" in shown
    assert "fizzz" not in shown
    assert dump(workspace) == before


def test_samples_show_what_is_periodic(workspace: Workspace) -> None:
    """Every tenth record is of another kind, and none of them lies at even distances."""
    workspace.write(1, ITEMS)
    with workspace.open() as db:
        db.table("items").insert_many(
            {"id": n, "title": "odd" if n % 10 == 3 else "two words"} for n in range(1000)
        )
    workspace.write(2, LOSSY_SPLIT)
    for seed in range(3):
        (found,) = sample(workspace, 100, seed)
        assert (found.records, found.sampled) == (1000, 100)
        ((label, loss),) = found.losses
        assert (label, loss.field, loss.tried) == ("0002_test", "title", 100)
        assert loss.returned == found.returned
        assert 1 <= 100 - found.returned <= 30
        assert loss.example is not None
        assert loss.example.record["title"] == "'odd'"
        assert loss.example.back == {"title": "'odd '"}


def test_samples_are_drawn_by_their_seed(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace.write(1, ITEMS)
    with workspace.open() as db:
        db.table("items").insert_many({"id": n, "title": "x"} for n in range(100))
        db.admin.create_tenant("other")
        with workspace.open(tenant="other") as other:
            other.table("items").insert_many({"id": n, "title": "x"} for n in range(-50, 150))
    workspace.write(2, ADD_COLOR)
    keys: list[bytes] = []
    try_record = RoundTrip.try_record

    def note(self: RoundTrip, key: bytes, *rest: object) -> RecordTrace:
        keys.append(key)
        return try_record(self, key, *rest)

    monkeypatch.setattr(RoundTrip, "try_record", note)
    drawn = []
    for seed in (1, 2, 1):
        (found,) = sample(workspace, 10, seed)
        assert (found.records, found.sampled, found.returned) == (100, 10, 10)
        assert keys == sorted(set(keys))
        drawn.append(list(keys))
        keys.clear()
    assert drawn[0] == drawn[2] != drawn[1]
    (found,) = sample(workspace, 100)
    assert len(keys) == 100
    assert found.sampled == 100


def test_stale_records_and_blobs_are_read_as_they_are(workspace: Workspace) -> None:
    long = "two words " * INLINE_SIZE_BYTES_MAX
    workspace.write(1, ITEMS)
    with workspace.open() as db:
        db.table("items").insert(id=1, title=long, note="x")
    workspace.write(2, LOSSY_SPLIT)
    with workspace.open() as db:
        db.table("items").insert(id=2, kind="a", number=long)
    workspace.write(3, ADD_WEIGHT)
    workspace.write(
        4,
        "transform: {table: items, from: {number: string}, into: {rest: string},"
        " up: {rest: number}, down: {number: rest}}",
    )
    (found,) = sample(workspace)
    assert (found.sampled, found.failures) == (2, ())


def test_tables_that_stay_as_they_are_are_not_read(workspace: Workspace) -> None:
    workspace.write(1, ITEMS)
    workspace.open().close()
    workspace.write(2, RENAME_SIZE)
    assert sample(workspace) == []
    workspace.write(2, ADD_COLOR)
    (found,) = sample(workspace)
    assert (found.records, found.sampled) == (0, 0)


@pytest.mark.parametrize("is_converted", [False, True])
def test_rule_19_archived_values_of_real_records_are_taken_back(
    workspace: Workspace, is_converted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace.write(1, ITEMS)
    with workspace.open() as db:
        db.table("items").insert(id=1, title="x", note="kept")
        db.table("items").insert(id=2, title="x")
    workspace.write(2, "drop_field: {table: items, field: note, restore: {archive: true}}")
    with workspace.open() as db:
        if is_converted:
            db.admin.run_jobs()
        db.table("items").insert(id=3, title="x")
    workspace.write(3, "restore_field: {table: items, field: note, archived_by: 2}")
    archives: list[dict[int, bytes]] = []
    try_record = RoundTrip.try_record

    def note(self: RoundTrip, key: bytes, value: bytes, archive: dict[int, bytes]) -> RecordTrace:
        archives.append(archive)
        return try_record(self, key, value, archive)

    monkeypatch.setattr(RoundTrip, "try_record", note)
    before = dump(workspace)
    (found,) = sample(workspace)
    assert (found.sampled, found.failures) == (3, ())
    assert [list(archive.values()) for archive in archives] == [
        [String().encode("kept")], [b""], []
    ]  # fmt: skip
    assert dump(workspace) == before


def test_records_that_cannot_be_read_are_no_fault_of_a_migration(workspace: Workspace) -> None:
    workspace.write(1, ITEMS)
    with workspace.open() as db:
        db.table("items").insert(id=1, title="x" * INLINE_SIZE_BYTES_MAX * 2)
        db.table("items").insert(id=2, title="x")
    workspace.write(2, LOSSY_SPLIT)
    (found,) = sample(workspace)
    assert (found.sampled, found.failures) == (2, ())
    workspace.execute("DELETE FROM zapdb_blobs")
    with pytest.raises(BlobMissing):
        sample(workspace)
    workspace.execute("UPDATE zapdb_records_1 SET value = ?", (b"\x81\x00\x81",))
    with pytest.raises(CorruptRecord):
        sample(workspace)


def test_what_stops_a_real_record_is_told_without_its_contents(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace.write(1, ITEMS)
    with workspace.open() as db:
        db.table("items").insert(id=1, title="secret")
    workspace.write(2, LOSSY_SPLIT)
    workspace.write(3, ADD_COLOR)

    def fail(text: str, separator: str) -> str:
        raise LookupError(text)

    monkeypatch.setitem(FUNCTIONS, "before", replace(FUNCTIONS["before"], apply=fail))
    (found,) = sample(workspace)
    (failure,) = found.failures
    assert (failure.kind, failure.cause) == ("conversion", "LookupError")
    assert str(failure.place).endswith("0002_test.yaml:5:5")
    assert "secret" not in str(failure.to_error())
    assert "title=str of 6 characters" in str(failure.to_error())
