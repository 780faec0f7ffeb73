"""References: what a record refers to is there, and what becomes of it when that one goes."""

from __future__ import annotations

import itertools
import random
import threading
import time
import tracemalloc
from contextlib import suppress
from typing import Any

import pytest

from tests.lookups import find
from tests.support import (
    WAYS,
    Faults,
    Way,
    Workspace,
    dump,
    error_of,
    finish,
    is_resolved,
    wait_until,
)
from zapdb.activation.rollback import roll_back
from zapdb.activation.up import migrate_up
from zapdb.catalog import DEFAULT_TENANT
from zapdb.database import Database
from zapdb.errors import (
    CommitUnknown,
    RecordExists,
    RecordNotFound,
    ReferenceViolation,
    TransactionConflict,
    UniqueViolation,
)
from zapdb.jobs import plan_jobs
from zapdb.jobs.job_run import JobReport, run_job, run_locally
from zapdb.storage import Storage
from zapdb.tables import on_delete as module

OWNERS = """\
create_table: {table: owners, key: [id, name], fields: [
      {name: id, type: integer}, {name: name, type: string}]}"""
PETS = """\
create_table: {table: pets, key: [id], fields: [
      {name: id, type: integer},
      {name: owner, type: reference, to: owners, optional: true},
      {name: friend, type: reference, to: pets, optional: true}]}"""
TOYS = """\
create_table: {table: toys, key: [id], fields: [
      {name: id, type: integer},
      {name: pet, type: reference, to: pets, optional: true}]}"""
BY_OWNER = "create_index: {table: pets, index: by_owner, fields: [{field: owner}, {field: id}]}"
BY_FRIEND = "create_index: {table: pets, index: by_friend, fields: [{field: friend}]}"
BY_PET = "create_index: {table: toys, index: by_pet, fields: [{field: pet}]}"
TABLES = (OWNERS, PETS, TOYS, BY_OWNER, BY_FRIEND, BY_PET)
TITLED_PETS = PETS.replace("fields: [", "fields: [{name: title, type: string},", 1)
DROP_TITLE = """\
drop_field: {table: pets, field: title,
      restore: {archive: true, otherwise: {expression: "text(id)"}}}"""


def refer(table: str, field: str, on_delete: str) -> str:
    return f"add_reference: {{table: {table}, field: {field}, on_delete: {on_delete}}}"


def make(workspace: Workspace, owner: str, friend: str = "set_null", pet: str = "cascade") -> Any:
    workspace.write(
        1,
        *TABLES,
        refer("pets", "owner", owner),
        refer("pets", "friend", friend),
        refer("toys", "pet", pet),
    )
    return workspace.open()


def ids(db: Database, table: str) -> list[int]:
    return [record.id for record in db.table(table).scan()]


def assert_clean(db: Database) -> None:
    for report in db.admin.verify():
        assert report.problems == ()


def run_jobs(storage: Storage) -> list[JobReport]:
    reports = [
        run_job(storage, job, lambda s, j: run_locally(s, j, batch_records_max=16))
        for job in plan_jobs(storage, DEFAULT_TENANT, is_by_hand=True)
    ]
    return [report for report in reports if report is not None]


ADA, BOB = (1, "Ada"), (2, "Bob")


# Inserting and changing


def test_rule_25_what_a_record_refers_to_must_be_there(workspace: Workspace) -> None:
    db = make(workspace, "restrict")
    owners, pets = db.table("owners"), db.table("pets")
    with pytest.raises(ReferenceViolation) as caught:
        pets.insert(id=1, owner=ADA)
    assert isinstance(caught.value, ValueError)
    assert caught.value.context == {
        "table": "pets",
        "field": "owner",
        "value": "(1, 'Ada')",
        "target": "owners",
        "key": "1",
    }
    assert caught.value.hint == "insert the record of 'owners' first"
    owners.insert(id=1, name="Ada")
    pets.insert(id=1, owner=ADA)
    with pytest.raises(ReferenceViolation):
        pets.update(1, owner=BOB)
    pets.update(1, owner=None)
    pets.update(1, friend=1)
    with db.transaction():
        with pytest.raises(ReferenceViolation):
            pets.insert(id=2, owner=BOB)
        owners.insert(id=2, name="Bob")
        pets.insert(id=2, owner=BOB)
    assert ids(db, "pets") == [1, 2]
    assert_clean(db)


def test_rule_25_a_record_may_refer_to_itself_and_to_others_of_its_batch(
    workspace: Workspace,
) -> None:
    db = make(workspace, "restrict")
    pets = db.table("pets")
    pets.insert(id=1, friend=1)
    pets.insert_many({"id": n, "friend": n % 7 + 2} for n in range(2, 1_200))
    with pytest.raises(ReferenceViolation) as caught:
        pets.insert_many({"id": n, "friend": n + 1} for n in range(5_000, 5_700))
    assert caught.value.context["key"] == "5699"
    assert caught.value.hint == "none was inserted"
    assert pets.count() == 1_199
    pets.delete(1)
    assert_clean(db)


# Deleting


def test_rule_25_restrict_keeps_the_target(workspace: Workspace) -> None:
    db = make(workspace, "restrict")
    owners, pets = db.table("owners"), db.table("pets")
    owners.insert_many([{"id": 1, "name": "Ada"}, {"id": 2, "name": "Bob"}])
    pets.insert_many({"id": n, "owner": ADA} for n in range(3))
    with pytest.raises(ReferenceViolation) as caught:
        owners.delete(*ADA)
    assert caught.value.context == {
        "table": "owners",
        "key": "1, 'Ada'",
        "referring": "pets.owner",
        "records": "3",
        "example": "0",
    }
    owners.insert_many({"id": n, "name": "x"} for n in range(10, 300))
    with pytest.raises(ReferenceViolation) as several:
        owners.delete_many([*((n, "x") for n in range(10, 300)), ADA])
    assert several.value.context == caught.value.context
    assert owners.delete_many((n, "x") for n in range(10, 300)) == 290
    with db.transaction():
        owners.delete(*BOB)
        with pytest.raises(ReferenceViolation):
            owners.delete(*ADA)
        pets.delete(0)
    assert [r.id for r in owners.scan()] == [1]
    assert ids(db, "pets") == [1, 2]
    pets.insert_many({"id": n, "owner": ADA} for n in range(10, 1_200))
    with pytest.raises(ReferenceViolation) as caught:
        owners.delete(*ADA)
    assert caught.value.context["records"] == "1,000 or more"
    for record in list(pets.scan()):
        pets.delete(record.id)
    owners.delete(*ADA)
    assert_clean(db)


@pytest.mark.parametrize("page", [1, 3, 256])
def test_rule_25_cascades_go_on_and_set_null(
    workspace: Workspace, page: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_PAGE", page)
    db = make(workspace, "cascade")
    owners, pets, toys = (db.table(name) for name in ("owners", "pets", "toys"))
    owners.insert_many([{"id": 1, "name": "Ada"}, {"id": 2, "name": "Bob"}])
    pets.insert_many({"id": n, "owner": ADA if n < 10 else BOB} for n in range(12))
    pets.update(3, friend=11)
    pets.update(10, friend=3)
    pets.update(11, friend=4)
    toys.insert_many({"id": n, "pet": n % 12} for n in range(60))
    owners.delete(*ADA)
    assert ids(db, "pets") == [10, 11]
    assert [r.friend for r in pets.scan()] == [None, None]
    assert ids(db, "toys") == [n for n in range(60) if n % 12 >= 10]
    assert list(find(pets, "by_owner", ADA)) == []
    assert_clean(db)


def test_rule_25_a_circle_of_cascades_ends(workspace: Workspace) -> None:
    db = make(workspace, "restrict", friend="cascade")
    pets = db.table("pets")
    pets.insert_many({"id": n, "friend": (n + 1) % 50} for n in range(50))
    pets.insert(id=99, friend=99)
    pets.delete(7)
    assert ids(db, "pets") == [99]
    pets.delete(99)
    assert_clean(db)


@pytest.mark.long_on("postgresql")
def test_rule_25_a_long_chain_of_cascades_needs_no_more_memory(workspace: Workspace) -> None:
    db = make(workspace, "restrict", friend="cascade")
    pets = db.table("pets")
    pets.insert_many({"id": n, "friend": max(n - 1, 0)} for n in range(2_000))
    tracemalloc.start()
    pets.delete(0)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert pets.count() == 0
    assert peak < 2_000_000


@pytest.mark.on_each_engine
def test_rule_25_a_cascade_that_meets_restrict_does_nothing(workspace: Workspace) -> None:
    db = make(workspace, "cascade", pet="restrict")
    db.table("owners").insert(id=1, name="Ada")
    db.table("pets").insert_many({"id": n, "owner": ADA} for n in range(9))
    db.table("toys").insert(id=1, pet=5)
    before = dump(workspace)
    with pytest.raises(ReferenceViolation) as caught:
        db.table("owners").delete(*ADA)
    assert caught.value.context["table"] == "pets"
    assert dump(workspace) == before


@pytest.mark.on_each_engine
def test_rule_25_what_is_let_go_still_meets_everything_else(workspace: Workspace) -> None:
    workspace.write(
        1,
        *TABLES,
        "create_index: {table: toys, index: one, unique: true, fields: [{field: pet}]}",
        'add_check: {table: toys, check: held, expression: "pet is not None or id > 5"}',
        refer("toys", "pet", "set_null"),
    )
    db = workspace.open()
    db.table("pets").insert_many({"id": n} for n in range(8))
    toys = db.table("toys")
    toys.insert_many({"id": n, "pet": n} for n in range(8))
    with pytest.raises(UniqueViolation):
        toys.insert(id=9, pet=3)
    with pytest.raises(ValueError, match="the record violates a check"):
        db.table("pets").delete(3)
    db.table("pets").delete(6)
    db.table("pets").delete(7)
    assert [(r.id, r.pet) for r in toys.scan()][5:] == [(5, 5), (6, None), (7, None)]
    assert_clean(db)


@pytest.mark.parametrize("unique", [False, True])
@pytest.mark.parametrize("on_delete", ["restrict", "cascade", "set_null"])
def test_rule_24_those_who_refer_to_others_by_a_key_that_is_cut_alike_are_left_alone(
    workspace: Workspace, on_delete: str, unique: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_PAGE", 2)
    index = f"unique: {str(unique).lower()}, fields: [{{field: owner}}]"
    workspace.write(
        1,
        OWNERS.replace("[id, name]", "[name, id]"),
        PETS,
        f"create_index: {{table: pets, index: by_owner, {index}}}",
        refer("pets", "owner", on_delete),
    )
    db = workspace.open()
    owners, pets = db.table("owners"), db.table("pets")
    name = "x" * 1_020  # as long as a key may be: the index has all of them but the last byte
    owners.insert_many({"id": n, "name": name} for n in range(1, 13))
    owners.insert_many({"id": n, "name": "Bob"} for n in (1, 3))  # far from the others
    pets.insert_many({"id": n, "owner": (name, n)} for n in range(1, 13))
    if not unique:
        pets.insert(id=112, owner=(name, 12))
    assert workspace.execute("SELECT max(length(key)) FROM zapdb_entries_1") == [(1_024,)]
    if on_delete == "restrict":
        pets.delete_many([5, 7, 8])
        with pytest.raises(ReferenceViolation) as caught:
            owners.delete_many([(name, 5), ("Bob", 1), (name, 12), (name, 7), (name, 8)])
        assert caught.value.context["key"].endswith(", 12")
        assert caught.value.context["records"] == ("1" if unique else "2")
        assert caught.value.context["example"] == "12"
        assert owners.delete_many([("Bob", 1), (name, 5), (name, 7), (name, 8)]) == 4
    else:
        assert owners.delete_many([("Bob", 3), *((name, n) for n in (5, 12, 7, 8))]) == 5
    there = {record.id: record.owner for record in pets.scan()}
    gone = {5, 7, 8} if on_delete == "restrict" else {5, 7, 8, 12, 112}
    assert all(there[n] == (name, n) for n in range(1, 13) if n not in gone)
    assert {there[n] for n in gone if n in there} <= {None}
    assert (gone & there.keys() == set()) is (on_delete != "set_null")
    assert_clean(db)


@pytest.mark.parametrize("on_delete", ["cascade", "set_null"])
@pytest.mark.on_each_engine
def test_rule_25_many_who_refer_to_one_are_dealt_with_by_few_statements(
    workspace: Workspace, on_delete: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    db, pets = make(workspace, on_delete), 0
    faults = Faults(workspace, db._storage, "before", lasting=False)
    faults.install(monkeypatch)
    sent = []
    for count in (20, 320):
        db.table("owners").insert(id=1, name="Ada")
        db.table("pets").insert_many({"id": pets + n, "owner": ADA} for n in range(count))
        db.table("toys").insert_many({"id": pets + n, "pet": pets + n} for n in range(count))
        pets += count
        faults.arm(0)
        db.table("owners").delete(*ADA)
        sent.append(faults.calls)
    assert db.table("toys").count() == (0 if on_delete == "cascade" else pets)
    assert sent[1] <= sent[0] + 10  # a statement for some hundred on SQLite
    assert_clean(db)


@pytest.mark.on_each_engine
def test_rule_25_many_who_refer_to_one_need_no_more_memory_than_a_page(
    workspace: Workspace,
) -> None:
    db = make(workspace, "cascade")
    db.table("owners").insert(id=1, name="Ada")
    db.table("pets").insert_many({"id": n, "owner": ADA} for n in range(6_000))
    tracemalloc.start()
    db.table("owners").delete(*ADA)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert db.table("pets").count() == 0
    assert peak < 1_500_000


def test_rule_25_all_that_belongs_to_the_records_of_a_cascade_goes_and_is_recorded(
    workspace: Workspace,
) -> None:
    """Archived values, and entries in the change log; nothing of another tenant's."""
    count = 700
    workspace.write(1, OWNERS, TITLED_PETS, BY_OWNER, refer("pets", "owner", "cascade"))
    with workspace.open() as db:
        db.admin.create_tenant("other")
        for tenant in (db, db.for_tenant("other")):
            tenant.table("owners").insert_many({"id": n, "name": "Ada"} for n in (1, 2))
            tenant.table("pets").insert_many(
                {"id": n, "title": f"t{n}", "owner": (1 + n % 2, "Ada")} for n in range(count)
            )
    workspace.write(2, DROP_TITLE)
    db = workspace.open()
    other = db.for_tenant("other")
    for tenant in (db, other):
        tenant.admin.run_jobs()
    assert workspace.execute("SELECT count(*) FROM zapdb_archives") == [(2 * count,)]
    db.admin.set_setting("change_log", "on")
    start = db.change_log.end()
    assert db.table("owners").delete_many([(1, "Ada"), (2, "Ada")]) == 2
    changes = [(made.table, made.operation, made.key[-1]) for made in db.change_log.read(start)]
    assert changes == [("owners", "delete", "Ada")] * 2 + [
        ("pets", "delete", n) for n in range(count)
    ]
    assert workspace.execute("SELECT count(*) FROM zapdb_archives") == [(count,)]
    assert [t.table("pets").count() for t in (db, other)] == [0, count]
    assert_clean(db)
    assert_clean(other)


@pytest.mark.parametrize("is_done", [False, True])
def test_rule_19_stale_records_that_let_go_are_converted_and_others_are_not(
    workspace: Workspace, is_done: bool
) -> None:
    workspace.write(1, OWNERS, TITLED_PETS, BY_OWNER, refer("pets", "owner", "set_null"))
    with workspace.open() as db:
        db.table("owners").insert(id=1, name="Ada")
        db.table("pets").insert_many({"id": n, "title": "x", "owner": ADA} for n in range(40))
    workspace.write(2, DROP_TITLE)
    db = workspace.open()
    if is_done:
        db.admin.run_jobs()
    db.table("pets").insert_many({"id": n, "owner": ADA} for n in range(40, 60))
    db.table("owners").delete(*ADA)
    assert [(r.id, r.owner) for r in db.table("pets").scan()] == [(n, None) for n in range(60)]
    assert workspace.execute("SELECT count(*) FROM zapdb_archives") == [(40,)]
    assert_clean(db)


@pytest.mark.parametrize("on_delete", ["restrict", "cascade", "set_null"])
@pytest.mark.on_each_engine
def test_rule_23_referrers_are_found_by_a_scan_while_the_index_is_built(
    workspace: Workspace, on_delete: str
) -> None:
    workspace.write(1, OWNERS, PETS)
    with workspace.open() as first:
        first.table("owners").insert_many([{"id": 1, "name": "Ada"}, {"id": 2, "name": "Bob"}])
        first.table("pets").insert_many(
            {"id": n, "owner": ADA if n % 5 == 0 else BOB} for n in range(2_500)
        )
    workspace.write(2, BY_OWNER, refer("pets", "owner", on_delete))
    db = workspace.open()
    assert "by_owner" not in db.table("pets").readable_indexes()
    if on_delete == "restrict":
        with pytest.raises(ReferenceViolation) as caught:
            db.table("owners").delete(*ADA)
        assert caught.value.context["records"] == "500"
    else:
        db.table("owners").delete(*ADA)
        assert db.table("pets").count() == (2_000 if on_delete == "cascade" else 2_500)
    assert {report.job.state for report in run_jobs(workspace.connect())} == {"done"}
    assert_clean(db)


# By the table's own key

SITTERS = """\
create_table: {table: sitters, key: [owner, day], fields: [
      {name: owner, type: reference, to: owners}, {name: day, type: integer},
      {name: pet, type: reference, to: pets, optional: true}]}"""
VISITS = """\
create_table: {table: visits, key: [sitter, hour], fields: [
      {name: sitter, type: reference, to: sitters}, {name: hour, type: integer}]}"""


def make_sitters(workspace: Workspace, on_delete: str) -> Database:
    """Tables whose keys begin with references, over three levels, without an index."""
    names = refer("sitters", "owner", on_delete), refer("visits", "sitter", on_delete)
    workspace.write(1, OWNERS, PETS, SITTERS, VISITS)
    workspace.write(2, *names)
    db = workspace.open()
    db.table("owners").insert_many({"id": n, "name": f"n{n}"} for n in range(1, 5))
    db.table("owners").insert_many({"id": n, "name": "n"} for n in (1, 255, 256))
    db.table("sitters").insert_many(
        {"owner": (n, f"n{n}"), "day": day} for n in (1, 2, 3) for day in range(600)
    )
    db.table("visits").insert_many(
        {"sitter": ((n, f"n{n}"), day), "hour": n} for n in (1, 2) for day in range(0, 600, 2)
    )
    return db


@pytest.mark.parametrize("on_delete", ["restrict", "cascade"])
def test_rule_25_a_key_that_begins_with_the_reference_finds_who_refers(
    workspace: Workspace, on_delete: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(module, "_scan")  # nobody reads all of a table for it
    db = make_sitters(workspace, on_delete)
    owners, sitters, visits = (db.table(name) for name in ("owners", "sitters", "visits"))
    # Neither refers to these, whose keys stand next to those of others.
    assert owners.delete_many([(1, "n"), (255, "n"), (256, "n"), (4, "n4")]) == 4
    with pytest.raises(ReferenceViolation):
        visits.insert(sitter=((4, "n4"), 1), hour=1)
    if on_delete == "restrict":
        with pytest.raises(ReferenceViolation) as caught:
            owners.delete_many([(2, "n2"), (3, "n3")])
        assert caught.value.context["referring"] == "sitters.owner"
        assert caught.value.context["records"] == "600"
        with pytest.raises(ReferenceViolation):
            sitters.delete((1, "n1"), 0)
        sitters.delete((1, "n1"), 1)
        assert (owners.count(), sitters.count(), visits.count()) == (3, 1_799, 600)
    else:
        assert owners.delete_many([(2, "n2"), (3, "n3")]) == 2
        assert (owners.count(), sitters.count(), visits.count()) == (1, 600, 300)
        assert {record.owner for record in sitters.scan()} == {(1, "n1")}
        sitters.delete((1, "n1"), 0)
        assert (sitters.count(), visits.count()) == (599, 299)
    assert_clean(db)


def test_rule_25_those_found_by_the_key_need_few_statements(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    db = make_sitters(workspace, "cascade")
    faults = Faults(workspace, db._storage, "before", lasting=False)
    faults.install(monkeypatch)
    sent = []
    for n in (3, 2):  # with 600 records, and with 600 and 300 that refer to those
        faults.arm(0)
        db.table("owners").delete(n, f"n{n}")
        sent.append(faults.calls)
    assert max(sent) <= 60
    assert_clean(db)


def test_rule_13_a_rollback_takes_references_of_a_key_away(workspace: Workspace) -> None:
    db = make_sitters(workspace, "restrict")
    run_jobs(workspace.connect())
    db.close()
    roll_back(workspace.connect())
    workspace.remove(2)
    with workspace.open() as db:
        db.table("owners").delete(1, "n1")
        assert db.table("sitters").count() == 1_800
        assert_clean(db)
    workspace.write(2, refer("sitters", "owner", "cascade"))
    with workspace.open() as db:
        (report,) = run_jobs(workspace.connect())
        assert (report.job.kind, report.job.state) == ("validate", "blocked")
        db.table("owners").delete(2, "n2")
        assert db.table("sitters").count() == 1_200


def test_rule_25_an_index_goes_where_the_key_finds_as_well(workspace: Workspace) -> None:
    by_owner = "create_index: {table: sitters, index: by_owner, fields: [{field: owner}]}"
    workspace.write(1, OWNERS, PETS, SITTERS, by_owner, refer("sitters", "owner", "cascade"))
    workspace.write(2, "drop_index: {table: sitters, index: by_owner}")
    with workspace.open() as db:
        db.table("owners").insert(id=1, name="Ada")
        db.table("sitters").insert_many({"owner": ADA, "day": day} for day in range(3))
    roll_back(workspace.connect())
    workspace.remove(2)
    db = workspace.open()
    db.table("owners").delete(*ADA)
    assert db.table("sitters").count() == 0
    run_jobs(workspace.connect())
    assert_clean(db)


# What was there before


def test_rule_25_what_dangles_is_counted_and_listed_until_it_is_gone(workspace: Workspace) -> None:
    workspace.write(1, *TABLES)
    with workspace.open() as first:
        first.table("owners").insert(id=1, name="Ada")
        first.table("pets").insert_many(
            {"id": n, "owner": ADA if n % 10 else BOB, "friend": n} for n in range(30)
        )
    workspace.write(2, refer("pets", "owner", "restrict"), refer("pets", "friend", "restrict"))
    db, storage = workspace.open(), workspace.connect()
    (report,) = run_jobs(storage)
    assert (report.job.kind, report.job.state) == ("validate", "blocked")
    (finding,) = report.job.findings
    assert (finding.what, finding.count) == ("reference owner", 3)
    assert finding.examples[0] == "0 refers to (2, 'Bob'), which is not in owners"
    db._session.reload()
    assert [c.state for c in db._catalog.table("pets").constraints] == ["unvalidated", "validated"]
    assert_clean(db)
    db.table("pets").update(0, friend=3)  # a field that the change leaves alone is not looked at
    with pytest.raises(ReferenceViolation):
        db.table("pets").update(0, owner=(3, "Cy"))
    db.table("owners").insert(id=2, name="Bob")
    (report,) = run_jobs(storage)
    assert report.job.state == "done"
    db._session.reload()
    assert [c.state for c in db._catalog.table("pets").constraints] == ["validated"] * 2
    workspace.execute(
        "DELETE FROM zapdb_records_1 WHERE key ="
        " (SELECT key FROM zapdb_records_1 ORDER BY key DESC LIMIT 1)"
    )
    db.table("pets").count()
    problems = [problem for r in db.admin.verify() for problem in r.problems]
    assert len(problems) == 3
    assert problems[0] == "reference owner: 0 refers to (2, 'Bob'), which is not in owners"


def test_rule_13_a_rollback_takes_references_away(workspace: Workspace) -> None:
    workspace.write(1, *TABLES)
    workspace.open().close()
    workspace.write(2, refer("pets", "owner", "restrict"))
    with workspace.open() as db:
        db.table("owners").insert(id=1, name="Ada")
        db.table("pets").insert(id=1, owner=ADA)
    storage = workspace.connect()
    roll_back(storage)
    workspace.remove(2)
    db = workspace.open()
    db.table("owners").delete(*ADA)
    assert db.table("pets").count() == 1


# Others at the same moment


@pytest.mark.parametrize(
    "on_delete",
    [
        "restrict",
        pytest.param("cascade", marks=pytest.mark.long_on("sqlite")),
        pytest.param("set_null", marks=pytest.mark.long_on("sqlite")),
    ],
)
@pytest.mark.on_each_engine
def test_rule_15_a_target_that_goes_while_it_is_referred_to_leaves_nothing_dangling(
    workspace: Workspace, on_delete: str
) -> None:
    db = make(workspace, on_delete)
    owners = [(n, "x") for n in range(4)]
    stop, problems, done = threading.Event(), list[BaseException](), {"in": 0, "out": 0}

    def run(seed: int) -> None:
        generator, other = random.Random(seed), workspace_dbs[seed]
        while not stop.is_set():
            owner = generator.choice(owners)
            try:
                if seed % 2:
                    other.table("owners").delete(*owner)
                    done["out"] += 1
                    other.table("owners").insert(id=owner[0], name="x")
                else:
                    other.table("pets").insert(id=generator.randint(0, 10**9), owner=owner)
                    done["in"] += 1
                    if on_delete == "restrict" and generator.random() < 0.6:
                        for pet in list(find(other.table("pets"), "by_owner", owner)):
                            other.table("pets").delete(pet.id)
            except (ReferenceViolation, RecordNotFound, RecordExists, TransactionConflict):
                pass
            except BaseException as error:
                problems.append(error)
            time.sleep(0.001)
        other._storage.release_connection()

    db.table("owners").insert_many({"id": n, "name": "x"} for n, _ in owners)
    workspace_dbs = [workspace.open() for _ in range(4)]
    threads = [threading.Thread(target=run, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    time.sleep(2.5)
    wait_until(lambda: problems or min(done.values()) > 3, "all of it was done")
    stop.set()
    for thread in threads:
        finish(thread)
    assert problems == []
    assert min(done.values()) > 3
    assert_clean(db)


@pytest.mark.on_each_engine
def test_rule_15_a_deletion_is_not_beaten_for_ever_by_those_who_refer_to_its_record(
    workspace: Workspace,
) -> None:
    """It reads and writes for longer than they do, so they are done first, again and again."""
    db = make(workspace, "cascade")
    db.table("owners").insert(id=1, name="Ada")
    db.table("pets").insert_many({"id": n, "owner": ADA} for n in range(200))
    stop, problems, opened = (
        threading.Event(),
        list[BaseException](),
        [workspace.open(), workspace.open()],
    )

    def refer(seed: int) -> None:
        other, number = opened[seed], 1_000_000 * (seed + 1)
        while not stop.is_set():
            number += 1
            try:
                other.table("pets").insert(id=number, owner=ADA)
            except ReferenceViolation:
                time.sleep(0.001)
            except BaseException as error:
                problems.append(error)
        other._storage.release_connection()

    threads = [threading.Thread(target=refer, args=(seed,)) for seed in range(2)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(5):
            time.sleep(0.2)
            db.table("owners").delete(*ADA)
            db.table("owners").insert(id=1, name="Ada")
    finally:
        stop.set()
        for thread in threads:
            finish(thread)
    assert problems == []
    assert_clean(db)


@pytest.mark.on_each_engine
def test_rule_25_a_reference_that_is_added_under_writers_ends_up_validated(
    workspace: Workspace,
) -> None:
    """Who began before it binds leaves dangling records behind; who came later leaves none."""
    workspace.write(1, *TABLES)
    db = workspace.open()
    db.table("owners").insert_many({"id": n, "name": "x"} for n in range(20))
    db.table("pets").insert_many({"id": n, "owner": (n % 20, "x")} for n in range(400))
    stop, problems = threading.Event(), list[BaseException]()
    opened = [workspace.open() for _ in range(3)]

    def write(seed: int) -> None:
        generator, other = random.Random(seed), opened[seed]
        while not stop.is_set():
            owner = (generator.randint(0, 19), "x")
            try:
                if generator.random() < 0.4:
                    other.table("owners").delete(*owner)
                elif generator.random() < 0.4:
                    other.table("owners").insert(id=owner[0], name="x")
                else:
                    other.table("pets").update(generator.randint(0, 399), owner=owner)
            except (ReferenceViolation, RecordNotFound, RecordExists, TransactionConflict):
                pass
            except BaseException as error:
                problems.append(error)
            time.sleep(0.002)
        other._storage.release_connection()

    writers = [threading.Thread(target=write, args=(seed,)) for seed in range(3)]
    for writer in writers:
        writer.start()
    storage = workspace.connect()
    time.sleep(0.3)
    workspace.write(2, refer("pets", "owner", "restrict"))
    migrate_up(storage, DEFAULT_TENANT, workspace.directory)
    for _ in range(6):
        run_jobs(storage)
    stop.set()
    for writer in writers:
        finish(writer)
    assert problems == []
    there = {(owner.id, owner.name) for owner in db.table("owners").scan()}
    dangling = [pet.id for pet in db.table("pets").scan() if pet.owner not in there]
    reports = run_jobs(storage)
    assert sum(f.count for report in reports for f in report.job.findings) == len(dangling)
    for pet in dangling:
        db.table("pets").update(pet, owner=None)
    assert all(report.job.state == "done" for report in run_jobs(storage))
    db._session.reload()
    assert [c.state for c in db._catalog.table("pets").constraints] == ["validated"]
    assert_clean(db)


@pytest.mark.parametrize("engine", ["postgresql"])
@pytest.mark.parametrize("first", ["insert", "delete"])
@pytest.mark.on_each_engine
def test_rule_15_of_an_insert_and_a_delete_that_do_not_see_each_other_one_runs_again(
    workspace: Workspace, first: str
) -> None:
    db = make(workspace, "restrict")
    other, attempts = workspace.open(), list[int]()
    db.table("owners").insert(id=1, name="Ada")

    def insert() -> None:
        db.table("pets").count()  # the snapshot is taken
        if not attempts:
            other.table("owners").delete(*ADA)
        attempts.append(1)
        db.table("pets").insert(id=1, owner=ADA)

    def delete() -> None:
        db.table("owners").count()
        if not attempts:
            other.table("pets").insert(id=1, owner=ADA)
        attempts.append(1)
        db.table("owners").delete(*ADA)

    with pytest.raises(ReferenceViolation):
        db.run(insert if first == "insert" else delete)
    assert len(attempts) == 2
    assert_clean(db)


@pytest.mark.parametrize("engine", ["postgresql"])
def test_rule_15_a_deletion_reads_no_more_than_what_it_deletes(workspace: Workspace) -> None:
    """PostgreSQL notes what is read: after a walk through a table, all that others write there."""
    db = make(workspace, "cascade")
    db.table("owners").insert_many([{"id": 1, "name": "Ada"}, {"id": 2, "name": "Bob"}])
    pets = db.table("pets")
    pets.insert_many({"id": n, "owner": ADA if n < 300 else BOB} for n in range(6_000))
    for is_known in (False, True):
        if is_known:
            workspace.execute("ANALYZE")
        with suppress(KeyError), db.transaction():
            db.table("owners").delete(*ADA)
            read = workspace.execute(  # a table of one page is read at once by any statement
                "SELECT relname, locktype FROM pg_locks JOIN pg_class ON pg_class.oid = relation"
                " WHERE mode = 'SIReadLock' AND pg_relation_size(relation) > 100000"
                " AND relname ~ '^zapdb_(records|entries)_[0-9]+(|_pkey)$'"
            )
            raise KeyError
        assert "zapdb_records_2" in {name for name, _ in read}
        assert [name for name, kind in read if kind == "relation"] == []


# Interruptions


@pytest.mark.long_on("postgresql")
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("change", ["insert", "update", "delete"])
@pytest.mark.on_each_engine
def test_rule_25_a_fault_at_each_statement_leaves_all_of_a_change_or_none(
    workspace: Workspace, change: str, way: Way, monkeypatch: pytest.MonkeyPatch
) -> None:
    db = make(workspace, "cascade")
    owners, pets, toys = (db.table(name) for name in ("owners", "pets", "toys"))
    owners.insert_many([{"id": 1, "name": "Ada"}, {"id": 2, "name": "Bob"}])
    pets.insert(id=1, owner=ADA)
    pets.insert(id=2, friend=1)
    toys.insert(id=1, pet=1)
    before = dump(workspace)
    faults = Faults(workspace, db._storage, way, lasting=False)
    faults.install(monkeypatch)

    def act() -> None:
        if change == "insert":
            pets.insert(id=3, owner=ADA, friend=3)
        elif change == "update":
            pets.update(1, owner=BOB)
        else:
            owners.delete(*ADA)

    def take_back() -> None:
        if change == "insert":
            pets.delete(3)
        elif change == "update":
            pets.update(1, owner=ADA)
        else:
            owners.insert(id=1, name="Ada")
            pets.insert(id=1, owner=ADA)
            toys.insert(id=1, pet=1)

    # A connection that is lost before the transaction begins is replaced: nothing fails.
    for call in itertools.count(2 if way == "drop" else 1):
        faults.arm(call)
        error = error_of(act)
        struck = faults.struck
        faults.arm(0)
        if isinstance(error, CommitUnknown) or (error is None and not struck):
            break
        if error is None:
            # The session was lost before COMMIT, and all of the change was made in another one.
            assert way == "drop" or is_resolved(workspace, struck)
            assert dump(workspace) != before
            assert_clean(db)
            take_back()
            before = dump(workspace)
        assert dump(workspace) == before
    assert call > 6
    assert_clean(db)
