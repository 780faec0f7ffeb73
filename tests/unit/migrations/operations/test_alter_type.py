import pytest

from tests.documents import document, resolve_documents, show
from zapdb.errors import InvalidMigration, NotExhaustive
from zapdb.migrations import Chain, Migration
from zapdb.migrations.operations.alter_type import AddedMember, AlterType, RemovedMember
from zapdb.records import Recast, SourceField
from zapdb.schema import TableSchema
from zapdb.values import Enum, Struct

STATE = "create_type: {type: state, enum: [open, done, dropped]}"
PLACE = """create_type: {type: place, struct: [
      {name: street, type: string, optional: true},
      {name: number, type: integer},
      {name: states, type: list, of: state}]}"""
ROUTE = "create_type: {type: route, struct: [{name: stops, type: list, of: place}]}"
ITEMS = """create_table: {table: items, key: [id], fields: [
      {name: id, type: integer},
      {name: state, type: state, optional: true},
      {name: states, type: list, of: state},
      {name: route, type: route}]}"""
BOXES = """create_table: {table: boxes, key: [state, id], fields: [
      {name: state, type: state},
      {name: id, type: integer}]}"""
LABELS = """create_table: {table: labels, key: [id], fields: [
      {name: id, type: integer},
      {name: box, type: reference, to: boxes}]}"""
ALL = (STATE, PLACE, ROUTE, ITEMS)


def after(*operations: str, before: tuple[str, ...] = ALL, rollback: str = "inferred") -> Chain:
    return resolve_documents(document(*before), document(*operations, rollback=rollback))


def altered(*operations: str, before: tuple[str, ...] = ALL) -> Migration:
    return after(*operations, before=before).migrations[-1]


def refused(
    *operations: str,
    before: tuple[str, ...] = ALL,
    kind: type[InvalidMigration] = InvalidMigration,
    rollback: str = "inferred",
) -> list[str]:
    with pytest.raises(InvalidMigration) as caught:
        after(*operations, before=before, rollback=rollback)
    assert type(caught.value) is kind
    for violation in caught.value.violations:
        assert violation.location.file == "0002_test.yaml"
    return [show(v).removeprefix("0002_test.yaml:") for v in caught.value.violations]


def alter(rest: str, kind: str = "state") -> str:
    return f"alter_type: {{type: {kind}, {rest}}}"


def type_of(migration: Migration, name: str) -> Enum | Struct:
    found = migration.after.type_named(name)
    assert found is not None
    return found


def table_of(migration: Migration, name: str) -> TableSchema:
    found = migration.after.table_named(name)
    assert found is not None
    return found


def recast(migration: Migration, table: int, number: int, *, up: bool = True) -> Recast:
    route = migration.conversion_up(table) if up else migration.conversion_down(table)
    found = route.derivations[number]
    assert isinstance(found, Recast)
    return found


# enums


def test_members_of_an_enum_are_numbered_on_and_keep_their_numbers() -> None:
    migration = altered(
        alter("add: [{name: held, back: open}, {name: new, back: open, position: 0}], "
              "rename: {done: ready}, remove: {dropped: {to: ready}}")
    )  # fmt: skip
    state = type_of(migration, "state")
    assert isinstance(state, Enum)
    assert state.members == ((5, "new"), (1, "open"), (2, "ready"), (4, "held"))
    assert state.number == 1


def test_what_is_of_the_type_changes_with_it_wherever_it_stands() -> None:
    migration = altered(alter("rename: {done: ready}"))
    state = type_of(migration, "state")
    items = table_of(migration, "items")
    assert items.fields[1].type == state
    place = type_of(migration, "place")
    assert isinstance(place, Struct)
    assert place.members[2].type.items == state
    assert items.fields[3].type == type_of(migration, "route")
    assert items.fields[3].type.members[0].type.items == place


def test_values_are_mapped_in_lists_and_in_structs_of_structs() -> None:
    migration = altered(alter("rename: {open: new}, remove: {dropped: {to: done}}"))
    assert migration.conversion_up(1).derivations[1] == SourceField(1)
    state = recast(migration, 1, 2)
    assert [state.recast(name) for name in ("open", "done", "dropped")] == ["new", "done", "done"]
    assert not state.keeps_bytes
    assert recast(migration, 1, 3).recast(["open", "dropped"]) == ["new", "done"]
    route = recast(migration, 1, 4)
    given = route.source.check(
        {"stops": [{"number": 5, "states": ["open"]}, {"street": "x", "number": 6, "states": []}]},
        "p",
    )
    assert route.target.to_document(route.recast(given)) == {
        "stops": [
            {"street": None, "number": 5, "states": ["new"]},
            {"street": "x", "number": 6, "states": []},
        ]
    }


def test_a_rename_keeps_the_bytes_and_members_that_come_change_no_value() -> None:
    assert recast(altered(alter("rename: {open: new}")), 1, 2).keeps_bytes
    migration = altered(alter("add: [{name: held, back: open}]"))
    assert migration.conversion_up(1).is_identity
    assert recast(migration, 1, 2, up=False).recast("held") == "open"
    assert not recast(migration, 1, 2, up=False).keeps_bytes


def test_two_members_can_swap_their_names() -> None:
    migration = altered(alter("rename: {open: done, done: open}"))
    assert type_of(migration, "state").members == ((1, "done"), (2, "open"), (3, "dropped"))
    assert recast(migration, 1, 2).recast("open") == "done"
    assert recast(migration, 1, 2, up=False).recast("open") == "done"


def test_the_inferred_rollback_puts_members_back_to_their_places() -> None:
    migration = altered(
        alter("add: [{name: held, back: open}], rename: {done: ready}, remove: {open: {to: held}}")
    )
    assert migration.rollback == (
        AlterType(
            "state",
            (AddedMember("open", back="held", position=0),),
            {"ready": "done"},
            {"held": RemovedMember(to="open")},
        ),
    )
    down = recast(migration, 1, 2, up=False)
    assert [down.recast(name) for name in ("ready", "held")] == ["done", "open"]


def test_what_is_removed_is_lost_and_all_else_comes_back() -> None:
    (operation,) = altered(alter("remove: {dropped: {to: done}}")).changes
    items = after(alter("rename: {open: new}")).schema_at(1).table_named("items")
    assert items is not None
    assert operation.lossy_fields(items) == {2, 3, 4}
    (operation,) = altered(alter("rename: {open: new}")).changes
    assert operation.lossy_fields(items) == frozenset()


def test_a_default_changes_with_its_type() -> None:
    before = (STATE, ITEMS.replace("optional: true", "default: done").replace(
        ",\n      {name: route, type: route}", ""))  # fmt: skip
    migration = altered(alter("rename: {done: ready}"), before=before)
    assert table_of(migration, "items").fields[1].default == "ready"
    assert refused(alter("remove: {done: {to: open}}"), before=before) == [
        "5:5: the default of items.state has members that go, and that no rollback brings back"
    ]
    assert altered(alter("remove: {open: {to: done}}"), before=before).rollback


@pytest.mark.parametrize(
    ("rest", "violation"),
    [
        ("add: []", "5:5: nothing is added, renamed or removed"),
        ("rename: {shut: open}", "5:5: 'state' has no member 'shut'"),
        ("rename: {open: open}", "5:5: 'open' is called that already"),
        ("rename: {open: done}", "5:5: the member 'done' stands twice"),
        ("add: [{name: open, back: done}]", "5:5: the member 'open' stands twice"),
        ("remove: {shut: {to: open}}", "5:5: 'state' has no member 'shut'"),
        (
            "rename: {open: new}, remove: {open: {to: done}}",
            "5:5: 'open' is renamed and removed",
        ),
        ("remove: {open: {}}", "5:46: what do records get that are 'open'?"),
        ("remove: {open: {to: open}}", "5:46: 'state' has no member 'open' then"),
        (
            "remove: {open: {to: done, restore: x}}",
            "5:46: a member of an enum has nothing to restore",
        ),
        ("add: [{name: held, back: shut}]", "5:37: 'state' had no member 'shut' before"),
        (
            "add: [{name: held, type: string, back: open}]",
            "5:37: a member of an enum has a name and no type",
        ),
        (
            "add: [{name: held, back: open, position: 4}]",
            "5:5: positions are different, and 0 to 3",
        ),
        (
            "add: [{name: a, back: open, position: 0}, {name: b, back: open, position: 0}]",
            "5:5: positions are different, and 0 to 4",
        ),
    ],
)
def test_this_change_of_an_enum_is_refused_here(rest: str, violation: str) -> None:
    assert violation in refused(alter(rest))


def test_a_type_keeps_a_member_at_least() -> None:
    rest = "remove: {open: {to: open}, done: {to: open}, dropped: {to: open}}"
    assert "5:5: a type has 1 to 4096 members" in refused(alter(rest))


def test_a_type_that_is_not_there_is_refused() -> None:
    assert refused(alter("rename: {a: b}", "stage")) == ["5:5: there is no type 'stage' here"]


def test_without_back_no_rollback_can_be_inferred() -> None:
    expected = "5:37: no rollback can be inferred: what do records get that are 'held'?"
    assert refused(alter("add: [{name: held}]"), kind=NotExhaustive) == [expected]
    rollback = "[{alter_type: {type: state, remove: {held: {to: done}}}}]"
    migration = after(alter("add: [{name: held}]"), rollback=rollback).migrations[-1]
    assert recast(migration, 1, 2, up=False).recast("held") == "done"
    elsewhere = rollback.replace("held", "open")
    assert "the rollback does not bring back the type 'state' as it was before" in " ".join(
        refused(alter("add: [{name: held}]"), rollback=elsewhere)
    )


# structs


def test_members_of_a_struct_are_added_renamed_and_removed() -> None:
    rest = (
        'add: [{name: zip, type: string, fill: ""}, '
        "{name: at, type: timestamp, optional: true, position: 0}], "
        "rename: {number: house}, remove: {street: {}}"
    )
    migration = altered(alter(rest, "place"))
    place = type_of(migration, "place")
    assert isinstance(place, Struct)
    assert [(m.number, m.name) for m in place.members] == [
        (5, "at"),
        (2, "house"),
        (3, "states"),
        (4, "zip"),
    ]
    route = recast(migration, 1, 4)
    stop = {"street": "x", "number": 5, "states": ["open"]}
    given = route.source.check({"stops": [stop]}, "p")
    made = route.recast(given)
    assert route.target.to_document(made) == {
        "stops": [{"at": None, "house": 5, "states": ["open"], "zip": ""}]
    }
    down = recast(migration, 1, 4, up=False)
    assert down.target.to_document(down.recast(made)) == {"stops": [{**stop, "street": None}]}


def test_what_a_removed_member_gets_on_the_way_back_is_written_out() -> None:
    expected = "5:48: no rollback can be inferred: what was in place.number is lost"
    assert refused(alter("remove: {number: {}}", "place"), kind=NotExhaustive) == [expected]
    migration = altered(alter("remove: {number: {restore: 7}}", "place"))
    (back,) = migration.rollback
    assert back == AlterType("place", (AddedMember("number", "integer", fill=7, position=1),))


def test_the_default_of_a_struct_gets_what_is_added_and_comes_back() -> None:
    default = "{name: place, type: place, default: {number: 1, states: [open]}}"
    before = (STATE, PLACE, ITEMS.replace("{name: route, type: route}", default))
    migration = altered(
        alter('add: [{name: zip, type: string, fill: "0"}]', "place"), before=before
    )
    field = table_of(migration, "items").fields[3]
    assert field.type.to_document(field.default) == {
        "street": None, "number": 1, "states": ["open"], "zip": "0"
    }  # fmt: skip
    assert altered(alter("remove: {number: {restore: 1}}", "place"), before=before).rollback
    assert refused(alter("remove: {number: {restore: 2}}", "place"), before=before) == [
        "5:5: the default of items.place has members that go, and that no rollback brings back"
    ]


@pytest.mark.parametrize(
    ("rest", "violation"),
    [
        ("add: [{name: zip}]", "5:37: a member of a struct has a type"),
        ("add: [{name: zip, type: text}]", "5:37: there is no type 'text'"),
        ("add: [{name: zip, type: string}]", "5:37: 'zip' is required: what do older records get?"),
        (
            "add: [{name: zip, type: string, fill: null}]",
            "5:37: 'place.zip' is required and can't be null",
        ),
        ("add: [{name: zip, type: string, fill: '', back: a}]",
         "5:37: back is for the members of an enum"),
        ("add: [{name: zip, type: route, optional: true}]",
         "5:37: 'place' can't be a part of itself"),
        ("remove: {street: {to: number}}", "5:48: to is for the members of an enum"),
        (
            "remove: {number: {restore: x}}",
            "5:48: a value of 'place.number' must be an integer of at most 63 bytes; "
            "this is str of 1 characters",
        ),
    ],
)  # fmt: skip
def test_this_change_of_a_struct_is_refused_here(rest: str, violation: str) -> None:
    assert violation in refused(alter(rest, "place"))


def test_no_type_becomes_deeper_than_types_may_be() -> None:
    outer = [
        f"create_type: {{type: t{n}, struct: [{{name: a, type: list, of: {inner}}}]}}"
        for n, inner in enumerate(("leaf", "t0", "t1"))
    ]
    leaf = "create_type: {type: leaf, struct: [{name: a, type: integer}]}"
    lists = "list, of: {type: list, of: string}"
    rest = f"add: [{{name: b, type: {lists}, optional: true}}]"
    assert refused(alter(rest, "leaf"), before=(leaf, *outer)) == [
        "5:5: t2 would nest deeper: types nest at most 8 deep"
    ]
    assert altered(alter(rest, "leaf"), before=(leaf, *outer[:2])).after


def test_rule_20_an_indexed_struct_stays_one_that_can_be_indexed() -> None:
    spot = "create_type: {type: spot, struct: [{name: a, type: integer}]}"
    table = (
        "create_table: {table: items, key: [id], fields: "
        "[{name: id, type: integer}, {name: spot, type: spot}]}"
    )
    index = "create_index: {table: items, index: by_spot, fields: [{field: spot}]}"
    rest = "add: [{name: b, type: json, optional: true}]"
    assert refused(alter(rest, "spot"), before=(spot, table, index)) == [
        "5:5: the index 'by_spot' of 'items' can't hold values of type spot then"
    ]
    assert altered(alter(rest.replace("json", "string"), "spot"), before=(spot, table, index))


# keys and checks


def test_rule_21_members_in_a_key_can_be_renamed_and_nothing_else() -> None:
    before = (STATE, BOXES, LABELS)
    migration = altered(alter("rename: {open: new}"), before=before)
    assert recast(migration, 1, 1).keeps_bytes
    expected = "5:5: boxes.state is part of a key: its members can be renamed, nothing else"
    for rest in ("add: [{name: held, back: open}]", "remove: {done: {to: open}}"):
        assert refused(alter(rest), before=before) == [expected]


def test_a_reference_to_a_key_with_the_type_is_renamed_with_it() -> None:
    before = (STATE, BOXES, LABELS.replace("boxes}", "boxes, default: [open, 5]}"))
    migration = altered(alter("rename: {open: new}"), before=before)
    box = table_of(migration, "labels").fields[1]
    assert box.default == ("new", 5)
    assert box.type.key == tuple(f.type for f in table_of(migration, "boxes").key_fields)
    derived = recast(migration, 2, 4)
    assert derived.keeps_bytes
    assert derived.recast(("open", 7)) == ("new", 7)
    assert derived.recast(("done", 7)) == ("done", 7)


def test_a_check_that_reads_the_type_is_dropped_first() -> None:
    check = "add_check: {table: items, check: known, expression: state is not None}"
    expected = "5:5: the check 'known' reads items.state"
    for rest in ("add: [{name: held, back: open}]", "rename: {open: new}"):
        assert refused(alter(rest), before=(*ALL, check)) == [expected]
    drop = "drop_check: {table: items, check: known}"
    migration = altered(drop, alter("rename: {open: new}"), check, before=(*ALL, check))
    assert len(table_of(migration, "items").checks) == 1


def test_rule_05_one_meaning_has_one_structure() -> None:
    spellings = {
        "add: [{name: a, back: open}, {name: b, back: open, position: 1}], rename: {}",
        "add: [{name: b, back: open, position: 1}, {name: a, back: open}], remove: {}",
    }
    assert len({altered(alter(rest)).digest for rest in spellings}) == 1
    spellings = {
        "add: [{name: zip, type: string, fill: ''}]",
        'add: [{name: zip, type: string, optional: false, fill: ""}]',
    }
    assert len({altered(alter(rest, "place")).digest for rest in spellings}) == 1
