"""Pinned fingerprints: was it ever stamped on the table, what changed since, who is refused."""

from __future__ import annotations

import shutil
from collections.abc import Callable

import pytest

import zapdb
from tests.contract.tables import ADD_COLOR, INDEX_SIZE, ITEMS, RENAME_SIZE
from tests.support import Workspace, error_of
from zapdb.activation import load_tenant_catalog
from zapdb.activation.inspection import read_log
from zapdb.activation.pinned_fingerprints import (
    FingerprintMatch,
    Pins,
    find_fingerprint,
    list_fingerprints,
)
from zapdb.activation.rollback import roll_back
from zapdb.activation.up import migrate_up
from zapdb.catalog import DEFAULT_TENANT
from zapdb.catalog.cluster import ensure_database
from zapdb.catalog.feed import read_seq
from zapdb.errors import FingerprintUnknown, UnknownName
from zapdb.migrations import Chain
from zapdb.past.schema_history_pruning import PruneBound, plan_pruning, prune
from zapdb.schema import fingerprint
from zapdb.storage import TransactionMode

TAGS = "create_table: {table: tags, key: [name], fields: [{name: name, type: string}]}"
ADD_RANK = "add_field: {table: items, field: {name: rank, type: integer, default: 0}}"


def up(place: Workspace, number: int, *operations: str) -> None:
    place.write(number, *operations)
    ensure_database(place.control, create=True)
    migrate_up(place.control, DEFAULT_TENANT, place.directory)


def find(place: Workspace, wanted: int, name: str = "items") -> FingerprintMatch:
    with place.control.transaction(TransactionMode.READ) as connection:
        return find_fingerprint(connection, DEFAULT_TENANT, name, wanted)


def check(place: Workspace, pins: dict[str, int], end: int | None) -> None:
    """As a process whose files end there."""
    with place.control.transaction(TransactionMode.READ) as connection:
        Pins(pins, end).check(connection, load_tenant_catalog(connection, DEFAULT_TENANT))


def chain_of(place: Workspace) -> Chain:
    with place.open() as db:
        return db._catalog.chain


@pytest.fixture
def stamped(workspace: Workspace) -> list[int]:
    """The fingerprints of four revisions, of which the last is the second again."""
    up(workspace, 1, ITEMS)
    up(workspace, 2, ADD_COLOR)
    up(workspace, 3, RENAME_SIZE, INDEX_SIZE.replace("field: size", "field: extent"))
    tables = [t for p in (1, 2, 3) for t in chain_of(workspace).schema_at(p)]
    roll_back(workspace.control)
    workspace.remove(3)
    return [*map(fingerprint, tables), fingerprint(tables[1])]


@pytest.mark.parametrize("engine", ["sqlite"])
def test_rule_04_a_fingerprint_is_found_with_what_changed_since(
    workspace: Workspace, stamped: list[int]
) -> None:
    first, second, third, _ = stamped
    found = find(workspace, first)
    assert (found.table, found.revisions, found.revision) == ("items", (1,), 4)
    assert (found.fingerprint, found.current, found.is_active) == (first, second, True)
    assert (found.is_known, found.is_current) == (True, False)
    (added,) = found.differences
    assert (added.part, added.name, added.change, added.after["default"]) == (
        "field",
        "color",
        "added",
        "red",
    )
    found = find(workspace, second)
    assert (found.revisions, found.is_current, found.differences) == ((2, 4), True, ())
    found = find(workspace, third)
    assert (found.revisions, found.is_current) == ((3,), False)
    assert [(d.part, d.name, d.change) for d in found.differences] == [
        ("field", "size", "changed"),
        ("index", "by_size", "removed"),
    ]
    found = find(workspace, 5)
    assert (found.is_known, found.is_current, found.revisions, found.differences) == (
        False,
        False,
        (),
        (),
    )
    with pytest.raises(UnknownName):
        find(workspace, first, "persons")


def test_rule_04_pins_hold_where_the_files_know_the_schema(
    workspace: Workspace, stamped: list[int]
) -> None:
    first, second, third, _ = stamped
    assert list_fingerprints(chain_of(workspace)) == {first, second}
    for pin in (first, second, third):  # stamped once, and what is in force is known
        check(workspace, {"items": pin}, 2)
    check(workspace, {}, 0)

    error = error_of(lambda: check(workspace, {"items": 5}, 2))
    assert isinstance(error, FingerprintUnknown)
    assert "never had the schema" in error.message
    assert error.context["pinned"] == "0x0000000000000005"
    assert error.context["history"] == ", ".join(f"0x{f:016x}" for f in (first, second, third))

    # The files of an older process end at 1: what is in force, it does not know.
    assert list_fingerprints(chain_of(workspace), 1) == {first}
    error = error_of(lambda: check(workspace, {"items": first}, 1))
    assert isinstance(error, FingerprintUnknown)
    assert error.context["active"] == f"0x{second:016x}"
    assert error.context["changed_since"] == "field color added"
    with pytest.raises(UnknownName):
        check(workspace, {"persons": first}, 2)


def test_rule_04_without_files_only_the_pinned_schema_is_known(
    workspace: Workspace, stamped: list[int]
) -> None:
    first, second, _, _ = stamped
    check(workspace, {"items": second}, None)
    error = error_of(lambda: check(workspace, {"items": first}, None))
    assert isinstance(error, FingerprintUnknown)
    assert "now has another schema" in error.message
    assert error.context["changed_since"] == "field color added"
    error = error_of(lambda: check(workspace, {"items": 5}, None))
    assert isinstance(error, FingerprintUnknown)
    assert "never had the schema" in error.message


@pytest.mark.parametrize("engine", ["sqlite"])
def test_rule_04_a_pinned_table_that_was_renamed_or_dropped(
    workspace: Workspace, stamped: list[int]
) -> None:
    first = stamped[0]
    up(workspace, 3, "rename_table: {table: items, to: things}")
    assert isinstance(error_of(lambda: check(workspace, {"items": first}, 2)), FingerprintUnknown)
    check(workspace, {"items": first}, 3)
    up(workspace, 4, "drop_table: {table: things, records: discard}")
    error = error_of(lambda: check(workspace, {"items": first}, 4))
    assert isinstance(error, FingerprintUnknown)
    assert error.context["active"] == "(dropped)"
    assert not find(workspace, first, "things").is_active


@pytest.mark.parametrize("engine", ["sqlite"])
def test_a_fingerprint_whose_entry_was_pruned_was_never_stamped(
    workspace: Workspace, stamped: list[int]
) -> None:
    with workspace.control.transaction(TransactionMode.READ) as connection:
        log = read_log(connection, DEFAULT_TENANT, "items")
        pruning = plan_pruning(connection, log, PruneBound(keep_last=1))
    prune(workspace.control, pruning)
    assert find(workspace, stamped[2]).revisions == ()
    assert find(workspace, stamped[1]).is_current


def test_a_pinned_table_is_opened_while_the_files_lead_to_what_it_is(
    workspace: Workspace,
) -> None:
    workspace.write(1, ITEMS)
    with workspace.open() as db:
        pinned = db.admin.schema_history("items")[-1].fingerprint
        assert db.admin.find_fingerprint("items", pinned).is_current
    older = shutil.copytree(workspace.directory, workspace.directory.parent / "older")
    workspace.write(2, ADD_COLOR)
    pins = {"items": pinned}
    with zapdb.open(
        workspace.address, migrations=workspace.directory, apply="auto", pin=pins
    ) as db:
        found = db.admin.find_fingerprint("items", pinned)
        assert (found.is_current, found.revisions) == (False, (1,))
        assert [(d.part, d.name) for d in found.differences] == [("field", "color")]
        db.admin.create_tenant("acme")
        db.for_tenant("acme")  # it jumped over the pinned one, which the files lead through
    with pytest.raises(FingerprintUnknown, match="never had the schema"):
        zapdb.open(workspace.address, migrations=workspace.directory, pin={"items": 1})
    with pytest.raises(FingerprintUnknown, match="the migration files do not contain"):
        zapdb.open(workspace.address, migrations=older, pin=pins)
    zapdb.open(workspace.address, migrations=older).close()  # served without
    with pytest.raises(FingerprintUnknown, match="now has another schema"):
        zapdb.open(workspace.address, pin=pins)


# While a database is open


@pytest.mark.parametrize("has_files", [True, False])
@pytest.mark.parametrize("read_only", [False, True])
def test_rule_04_a_pin_is_looked_at_again_whenever_the_schema_changes(
    workspace: Workspace, has_files: bool, read_only: bool, caplog: pytest.LogCaptureFixture
) -> None:
    up(workspace, 1, ITEMS, TAGS)
    with workspace.open() as db:
        db.table("items").insert(id=1, title="Milk")
        pinned = db.admin.schema_history("items")[-1].fingerprint
    older = shutil.copytree(workspace.directory, workspace.directory.parent / "older")
    with zapdb.open(
        workspace.address,
        migrations=older if has_files else None,
        pin={"items": pinned},
        read_only=read_only,
    ) as db:
        items, tags = db.table("items"), db.table("tags")
        query = items.where(items.f.id == 1)
        assert items.get(1).title == "Milk"
        up(workspace, 2, ADD_COLOR)
        uses: list[Callable[[], object]] = [
            lambda: items.get(1),
            lambda: items.find(1),
            lambda: list(items.scan()),
            lambda: list(query),
            lambda: items.count(),
            lambda: db.table("items"),
            lambda: db.sql("SELECT * FROM items"),
        ]
        if not read_only:
            uses += [lambda: items.insert(id=2, title="x"), lambda: items.delete(1)]
        for use in uses:
            with pytest.raises(FingerprintUnknown) as caught:
                use()
            assert caught.value.context["changed_since"] == "field color added"
        assert list(tags.scan()) == []  # the other tables go on
        if not read_only:
            tags.insert(name="dairy")
            with db.transaction():
                tags.insert(name="drinks")
                with pytest.raises(FingerprintUnknown):
                    items.insert(id=2, title="x")
            assert tags.count() == 2
        roll_back(workspace.control)
        workspace.remove(2)
        assert items.get(1).title == "Milk"  # it fits again
        assert [r.id for r in query] == [1]
        assert db.table("items").count() == 1
    told = [r.getMessage() for r in caplog.records if r.name == "zapdb.pins"]
    assert len(told) == 1
    assert "can't be used by this process" in told[0]


def test_rule_04_a_pinned_table_that_is_dropped_while_a_database_is_open(
    workspace: Workspace,
) -> None:
    up(workspace, 1, ITEMS, TAGS)
    with workspace.open() as db:
        pinned = db.admin.schema_history("items")[-1].fingerprint
    with zapdb.open(workspace.address, pin={"items": pinned}) as db:
        items = db.table("items")
        up(workspace, 2, "drop_table: {table: items, records: archive}")
        for use in (lambda: items.count(), lambda: db.table("items")):
            with pytest.raises(FingerprintUnknown) as caught:
                use()
            assert caught.value.context["active"] == "(dropped)"
        up(workspace, 3, "restore_table: {table: items, archived_by: 2}")
        assert items.count() == 0


@pytest.mark.parametrize("engine", ["sqlite"])
def test_rule_04_a_pinned_name_that_is_pruned_away_leaves_the_other_tables_alone(
    workspace: Workspace,
) -> None:
    up(workspace, 1, ITEMS, TAGS)
    with workspace.open() as db:
        pinned = db.admin.schema_history("items")[-1].fingerprint
    with zapdb.open(workspace.address, pin={"items": pinned}) as db:
        up(workspace, 2, "rename_table: {table: items, to: things}")
        # What pruning leaves of a log whose layout is another by then.
        workspace.execute("UPDATE zapdb_schema_history SET layout_revision = 2 WHERE revision = 2")
        workspace.execute(
            "DELETE FROM zapdb_schema_history WHERE table_number = 1 AND position = 1"
        )
        up(workspace, 3, ADD_COLOR.replace("items", "things"))
        assert db.table("tags").count() == 0
        with pytest.raises(UnknownName):
            db.table("items")


@pytest.mark.parametrize("engine", ["sqlite"])
def test_rule_04_the_follower_notices_a_pin_that_is_violated(
    workspace: Workspace, caplog: pytest.LogCaptureFixture
) -> None:
    """Nobody has to use the table for it to be logged."""
    up(workspace, 1, ITEMS)
    with workspace.open() as db:
        pinned = db.admin.schema_history("items")[-1].fingerprint
    with zapdb.open(workspace.address, pin={"items": pinned}) as db:
        up(workspace, 2, ADD_COLOR)
        with workspace.control.transaction(TransactionMode.READ) as connection:
            seq = read_seq(connection)
        db.admin.wait_for_catalog(seq)
        assert [r.levelname for r in caplog.records if r.name == "zapdb.pins"] == ["WARNING"]


def test_rule_04_references_into_a_pinned_table_go_on(workspace: Workspace) -> None:
    """Deleting what its records refer to changes them as the schema in force says."""
    up(
        workspace, 1, TAGS,
        "create_table: {table: items, key: [id], fields: [{name: id, type: integer},"
        " {name: tag, type: reference, to: tags, optional: true}]}",
        "create_index: {table: items, index: by_tag, fields: [{field: tag}]}",
        "add_reference: {table: items, field: tag, on_delete: cascade}",
    )  # fmt: skip
    with workspace.open() as db:
        db.table("tags").insert(name="dairy")
        db.table("items").insert(id=1, tag="dairy")
        pinned = db.admin.schema_history("items")[-1].fingerprint
    with zapdb.open(workspace.address, pin={"items": pinned}) as db:
        up(workspace, 2, ADD_RANK)
        db.table("tags").delete("dairy")
        with pytest.raises(FingerprintUnknown):
            db.table("items")
    with workspace.open() as db:
        assert db.table("items").count() == 0
