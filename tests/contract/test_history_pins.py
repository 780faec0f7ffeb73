"""Pinned fingerprints: was it ever stamped on the table, what changed since, who is refused."""

from __future__ import annotations

import shutil

import pytest

import zapdb
from tests.contract.tables import ADD_COLOR, INDEX_SIZE, ITEMS, RENAME_SIZE
from tests.support import Workspace, error_of
from zapdb.catalog import DEFAULT_TENANT, ensure_rows
from zapdb.catalog.inspection import read_log
from zapdb.catalog.pinning import Stamped, check_pins, find_fingerprint, list_fingerprints
from zapdb.catalog.pruning import Bound, plan_pruning, prune
from zapdb.catalog.up import migrate_up
from zapdb.errors import FingerprintUnknown, UnknownName, UsageError
from zapdb.jobs import forget_newest
from zapdb.migrations import Chain
from zapdb.schema import fingerprint
from zapdb.storage import Mode, ensure_layout


def up(place: Workspace, number: int, *operations: str) -> None:
    place.write(number, *operations)
    ensure_layout(place.control, create=True)
    ensure_rows(place.control)
    migrate_up(place.control, DEFAULT_TENANT, place.directory)


def find(place: Workspace, wanted: int, name: str = "items") -> Stamped:
    with place.control.transaction(Mode.READ) as connection:
        return find_fingerprint(connection, DEFAULT_TENANT, name, wanted)


def check(place: Workspace, pins: dict[str, int], known: frozenset[int]) -> None:
    with place.control.transaction(Mode.READ) as connection:
        check_pins(connection, DEFAULT_TENANT, pins, known)


def chain_of(place: Workspace) -> Chain:
    with place.open() as db:
        return db.view.chain


@pytest.fixture
def stamped(workspace: Workspace) -> list[int]:
    """The fingerprints of four generations, of which the last is the second again."""
    up(workspace, 1, ITEMS)
    up(workspace, 2, ADD_COLOR)
    up(workspace, 3, RENAME_SIZE, INDEX_SIZE.replace("field: size", "field: extent"))
    tables = [t for p in (1, 2, 3) for t in chain_of(workspace).schema_at(p)]
    forget_newest(workspace.control)
    workspace.remove(3)
    return [*map(fingerprint, tables), fingerprint(tables[1])]


@pytest.mark.parametrize("engine", ["sqlite"])
def test_rule_04_a_fingerprint_is_found_with_what_changed_since(
    workspace: Workspace, stamped: list[int]
) -> None:
    first, second, third, _ = stamped
    found = find(workspace, first)
    assert (found.table, found.generations, found.generation) == ("items", (1,), 4)
    assert (found.fingerprint, found.current, found.is_in_force) == (first, second, True)
    assert (found.is_known, found.is_current) == (True, False)
    (added,) = found.differences
    assert (added.part, added.name, added.change, added.after["default"]) == (
        "field",
        "color",
        "added",
        "red",
    )
    found = find(workspace, second)
    assert (found.generations, found.is_current, found.differences) == ((2, 4), True, ())
    found = find(workspace, third)
    assert (found.generations, found.is_current) == ((3,), False)
    assert [(d.part, d.name, d.change) for d in found.differences] == [
        ("field", "size", "changed"),
        ("index", "by_size", "removed"),
    ]
    found = find(workspace, 5)
    assert (found.is_known, found.is_current, found.generations, found.differences) == (
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
    known = list_fingerprints(chain_of(workspace))
    assert known == {first, second}
    for pin in (first, second, third):  # stamped once, and what is in force is known
        check(workspace, {"items": pin}, known)
    check(workspace, {}, frozenset())

    error = error_of(lambda: check(workspace, {"items": 5}, known))
    assert isinstance(error, FingerprintUnknown)
    assert "never had the schema" in error.message
    assert error.context["pinned"] == "0x0000000000000005"
    assert error.context["history"] == ", ".join(f"0x{f:016x}" for f in (first, second, third))

    # The files of an older process end at 1: what is in force, it does not know.
    older = list_fingerprints(chain_of(workspace), 1)
    assert older == {first}
    error = error_of(lambda: check(workspace, {"items": first}, older))
    assert isinstance(error, FingerprintUnknown)
    assert error.context["in_force"] == f"0x{second:016x}"
    assert error.context["changed_since"] == "field color added"
    with pytest.raises(UnknownName):
        check(workspace, {"persons": first}, known)


@pytest.mark.parametrize("engine", ["sqlite"])
def test_rule_04_a_pinned_table_that_was_renamed_or_dropped(
    workspace: Workspace, stamped: list[int]
) -> None:
    first = stamped[0]
    old = list_fingerprints(chain_of(workspace))
    up(workspace, 3, "rename_table: {table: items, to: things}")
    assert isinstance(error_of(lambda: check(workspace, {"items": first}, old)), FingerprintUnknown)
    check(workspace, {"items": first}, list_fingerprints(chain_of(workspace)))
    up(workspace, 4, "drop_table: {table: things, records: discard}")
    known = list_fingerprints(chain_of(workspace))
    error = error_of(lambda: check(workspace, {"items": first}, known))
    assert isinstance(error, FingerprintUnknown)
    assert error.context["in_force"] == "(dropped)"
    assert not find(workspace, first, "things").is_in_force


@pytest.mark.parametrize("engine", ["sqlite"])
def test_a_fingerprint_whose_entry_was_pruned_was_never_stamped(
    workspace: Workspace, stamped: list[int]
) -> None:
    with workspace.control.transaction(Mode.READ) as connection:
        log = read_log(connection, DEFAULT_TENANT, "items")
        pruning = plan_pruning(connection, log, Bound(keep_last=1))
    prune(workspace.control, pruning)
    assert find(workspace, stamped[2]).generations == ()
    assert find(workspace, stamped[1]).is_current


def test_a_pinned_table_is_opened_while_the_files_lead_to_what_it_is(
    workspace: Workspace,
) -> None:
    workspace.write(1, ITEMS)
    with workspace.open() as db:
        pinned = db.history("items")[-1].fingerprint
        assert db.find_fingerprint("items", pinned).is_current
    older = shutil.copytree(workspace.directory, workspace.directory.parent / "older")
    workspace.write(2, ADD_COLOR)
    pins = {"items": pinned}
    with zapdb.open(
        workspace.address, migrations=workspace.directory, apply="auto", pin=pins
    ) as db:
        found = db.find_fingerprint("items", pinned)
        assert (found.is_current, found.generations) == (False, (1,))
        assert [(d.part, d.name) for d in found.differences] == [("field", "color")]
        db.create_tenant("acme")
        db.for_tenant("acme")  # it jumped over the pinned one, which the files lead through
    with pytest.raises(FingerprintUnknown, match="never had the schema"):
        zapdb.open(workspace.address, migrations=workspace.directory, pin={"items": 1})
    with pytest.raises(FingerprintUnknown, match="the migration files don't know"):
        zapdb.open(workspace.address, migrations=older, pin=pins)
    zapdb.open(workspace.address, migrations=older).close()  # served without
    with pytest.raises(UsageError, match="pins are checked against migration files"):
        zapdb.open(workspace.address, pin=pins)
