"""The cells of fields: a new one exactly where a migration computes a field's values anew."""

from __future__ import annotations

import yaml

from tests.documents import document, resolve_documents
from tests.strategies import check_cells, document_of, extend
from tests.unit.migrations.operations.test_random import BASE, KINDS, VALID
from zapdb.migrations import Chain, NumberAllocator, read_stored
from zapdb.records import Restored
from zapdb.records.derivation import restored_in

REMADE = {
    "change_type": {"people.balance"},
    "make_required": {"towns.title"},
    "make_optional": {"people.balance"},
}
"""The fields whose values the operations of `VALID` compute anew; those of all others compute none,
or those of new fields."""


def remade_by(chain: Chain) -> set[str]:
    """The fields whose cells are not what they were before the last migration."""
    migration = chain.migrations[-1]
    found = set()
    for table in migration.after:
        before = migration.before.table_active_or_archived(table.number)
        held = () if before is None else (*before.fields, *(a.field for a in before.archived))
        old = {f.number: f.cell for f in held}
        fields = (*table.fields, *(archived.field for archived in table.archived))
        found |= {f"{table.name}.{f.name}" for f in fields if f.cell != old.get(f.number, f.number)}
    check_cells(chain)
    return found


def after(*operations: str, base: Chain = BASE) -> Chain:
    drawn = [yaml.safe_load(one) for one in operations]
    numbers = NumberAllocator(dict.fromkeys(KINDS, 1_000 * base.end))
    return extend(base, document_of(drawn), numbers)


def test_each_operation_computes_what_is_said() -> None:
    for keyword, text in VALID.items():
        assert remade_by(after(f"{keyword}: {text}")) == REMADE.get(keyword, set()), keyword


def test_a_type_with_other_members_is_in_all_fields_that_have_it() -> None:
    """Their bytes stay on the way up; on the way back a record may have the new member."""
    chain = after(
        "create_type: {type: mark, enum: [a, b]}",
        "create_table: {table: marked, key: [id], fields: [{name: id, type: integer}, "
        "{name: one, type: mark}, {name: many, type: list, of: mark}]}",
    )
    more = after("alter_type: {type: mark, add: [{name: c, back: a}]}", base=chain)
    assert remade_by(more) == {"marked.one", "marked.many"}
    renamed = after("alter_type: {type: mark, rename: {a: z}}", base=chain)
    assert remade_by(renamed) == set()


def test_a_field_that_is_changed_and_dropped_at_once_is_archived_in_a_cell_of_its_own() -> None:
    """Its archived values are of another type than the field has before the migration."""
    changed = (
        "change_type: {table: people, field: age, type: string, up: text(age), "
        "down: 'integer(age, else=0)'}"
    )
    dropped = "drop_field: {table: people, field: age, restore: {archive: true}}"
    gone = "drop_index: {table: people, index: by_age}"
    free = "drop_check: {table: people, check: c}"
    chain = after(free, gone, changed, dropped)
    assert remade_by(chain) == {"people.age"}
    migration = chain.migrations[-1]
    (people,) = (table for table in migration.after if table.name == "people")
    (archived,) = (one.field for one in people.archived if one.field.name == "age")
    (slot,) = migration.conversion_up(people.number).archives
    assert slot.number == archived.cell != archived.number
    back = migration.conversion_down(people.number).derivations[archived.number]
    assert [one.slot.number for one in restored_in(back)] == [archived.cell]


def test_a_field_that_comes_back_has_the_cell_that_was_archived() -> None:
    changed = "make_optional: {table: people, field: balance, fill: {value: '0.00'}}"
    dropped = "drop_field: {table: people, field: balance, restore: {archive: true}}"
    restored = "restore_field: {table: people, field: balance, archived_by: 4}"
    chain = after(changed)
    (people,) = (table for table in chain.schema_at(3) if table.name == "people")
    (cell,) = (f.cell for f in people.fields if f.name == "balance")
    chain = after(dropped, base=chain)
    assert remade_by(chain) == set()
    (slot,) = chain.migrations[-1].conversion_up(people.number).archives
    assert slot.number == cell
    chain = after(restored, base=chain)
    assert remade_by(chain) == set()
    assert chain.table_at(5, people.number).cells == people.cells
    back = chain.migrations[-1].conversion_up(people.number).derivations.values()
    assert [one.slot.number for one in back if isinstance(one, Restored)] == [cell]


def test_siblings_have_cells_of_their_own() -> None:
    """Two migrations behind one that change a field alike, such as one that was rolled back and is
    stored again: the bytes are equal, and mean something else where one of them was edited."""
    change = "make_optional: {table: people, field: balance, fill: {value: '0.00'}}"
    numbers = NumberAllocator(dict.fromkeys(KINDS, 5_000))
    document = document_of([yaml.safe_load(change)])
    one, other = (extend(BASE, document, numbers).schema_at(3) for _ in range(2))
    (people,) = (table for table in one if table.name == "people")
    (again,) = (table for table in other if table.name == "people")
    assert people.fields != again.fields
    assert people.cells != again.cells


def test_what_a_migration_computes_is_read_as_it_was_stored() -> None:
    migration = after("make_required: {table: towns, field: title, fill: {value: x}}").migrations[
        -1
    ]
    stored = migration.structure, migration.name, "", migration.drawn, migration.before
    assert read_stored(*stored).after == migration.after
    assert migration.drawn["remade"] == [
        field.number for table in migration.after for field in table.fields if field.name == "title"
    ]


def test_a_chain_of_documents_draws_cells_behind_its_numbers() -> None:
    chain = resolve_documents(
        document(
            "create_table: {table: t, key: [id], fields: [{name: id, type: integer}, "
            "{name: a, type: integer}]}"
        ),
        document(
            "change_type: {table: t, field: a, type: string, up: text(a), "
            "down: 'integer(a, else=0)'}"
        ),
        document("add_field: {table: t, field: {name: b, type: integer, default: 0}}"),
    )
    (table,) = chain.schema_at(3)
    assert [(f.name, f.number, f.cell) for f in table.fields] == [
        ("id", 1, 1),
        ("a", 2, 3),
        ("b", 4, 4),
    ]
