import pytest

from tests.documents import document, marked_place, resolve_documents, violations_of
from zapdb.limits import TYPE_DEPTH_MAX
from zapdb.migrations.operations.declared_type import DropType
from zapdb.values import Enum, Integer, List, Member, Reference, String, Struct

MOOD = "create_type: {type: mood, enum: [fine, so_so]}"
PLACE = """create_type: {type: place, struct: [
      {name: moods, type: list, of: mood},
      {name: street, type: string, optional: true}]}"""
TOWNS = "create_table: {table: towns, key: [id], fields: [{name: id, type: integer}]}"


def test_members_are_numbered_in_declared_order() -> None:
    chain = resolve_documents(document(MOOD, PLACE))
    mood = Enum("mood", 1, ((1, "fine"), (2, "so_so")))
    members = (Member(1, "moods", List(mood)), Member(2, "street", String(), optional=True))
    assert chain.schema_at(1).types == (mood, Struct("place", 2, members))


def test_the_inferred_rollback_drops_the_types_in_reverse() -> None:
    (migration,) = resolve_documents(document(MOOD, PLACE)).migrations
    assert migration.rollback == (DropType("place"), DropType("mood"))


def test_types_are_used_by_their_names() -> None:
    chain = resolve_documents(
        document(MOOD, TOWNS),
        document(
            "create_table: {table: people, key: [id, mood], fields: [{name: id, type: integer},"
            " {name: mood, type: mood}, {name: town, type: reference, to: towns},"
            " {name: boss, type: reference, to: people, optional: true},"
            " {name: days, type: list, of: {type: list, of: integer}}]}"
        ),
    )
    people = chain.schema_at(2).table_named("people")
    assert people is not None
    mood = chain.schema_at(1).types[0]
    assert [f.type for f in people.fields] == [
        Integer(),
        mood,
        Reference("towns", 1, (Integer(),)),
        Reference("people", 2, (Integer(), mood)),
        List(List(Integer())),
    ]


@pytest.mark.parametrize(
    ("operations", "message"),
    [
        (["§create_type: {type: string, enum: [a]}"], "'string' is a type of zapdb's own"),
        ([MOOD, f"§{MOOD}"], "there is a type 'mood' already"),
        (["§create_type: {type: people, enum: [a]}"], "there is a table 'people' already"),
        (
            [MOOD, "§create_table: {table: mood, key: [id], fields: [{name: id, type: integer}]}"],
            "there is a type 'mood' already",
        ),
        ([MOOD, "§rename_table: {table: people, to: mood}"], "there is a type 'mood' already"),
        (["§create_type: {type: mood}"], "a type has exactly one of enum and struct"),
        (
            ["§create_type: {type: mood, enum: [a], struct: []}"],
            "a type has exactly one of enum and struct",
        ),
        (["§create_type: {type: mood, enum: []}"], "a type has 1 to 4096 members"),
        (["§create_type: {type: mood, enum: [a, b, a]}"], "the member 'a' stands twice"),
        (
            ["create_type: {type: t, struct: [§{name: a, type: strng}]}"],
            "there is no type 'strng'",
        ),
        (
            ["create_type: {type: t, struct: [§{name: a, type: t}]}"],
            "there is no type 't'",
        ),
        (
            ["create_type: {type: t, struct: [§{name: a, type: enum}]}"],
            "there is no type 'enum'",
        ),
        (
            ["create_type: {type: t, struct: [§{name: a, type: list}]}"],
            "these are not the parameters of type 'list'",
        ),
        (
            ["create_type: {type: t, struct: [§{name: a, type: string, to: b}]}"],
            "these are not the parameters of type 'string'",
        ),
        (
            ["create_type: {type: t, struct: [§{name: a, type: reference, to: b}]}"],
            "there is no table 'b' to refer to",
        ),
    ],
)
def test_what_is_wrong_is_said_at_its_place(operations: list[str], message: str) -> None:
    assert violations_of(*operations) == [f"{marked_place(*operations)}: {message}"]


def test_types_nest_to_a_limit() -> None:
    deep = "string"
    for _ in range(TYPE_DEPTH_MAX + 1):
        deep = f"{{type: list, of: {deep}}}"
    operation = f"create_type: {{type: t, struct: [§{{name: a, {deep[1:-1]}}}]}}"
    message = f"types nest at most {TYPE_DEPTH_MAX} deep"
    assert violations_of(operation) == [f"{marked_place(operation)}: {message}"]
