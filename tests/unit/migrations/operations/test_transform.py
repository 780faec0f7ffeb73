import itertools

import pytest

from tests.documents import (
    PEOPLE,
    document,
    marked_place,
    people_of,
    resolve_after_people,
    resolve_documents,
    violations_of,
)
from zapdb.errors import NotExhaustive
from zapdb.expressions import parse_expression
from zapdb.limits import FIELDS_PER_TABLE_MAX
from zapdb.migrations import NumberAllocator, read_stored
from zapdb.migrations.operations.definitions import FieldType
from zapdb.migrations.operations.transform import Transform
from zapdb.records import Computed, SourceField

SPLIT = """transform: {table: people, from: {name: string}, into: {first: string, last: string},
      up: {first: "before(name, ' ')", last: "after(name, ' ')"},
      down: {name: "join(' ', first, last)"}%s}"""

NOT_TEXT = (
    "must be a string of valid Unicode, at most 4194304 bytes of UTF-8; this is int of 3 bits"
)


def test_the_new_fields_stand_where_the_old_ones_stood_with_numbers_of_their_own() -> None:
    migration = resolve_after_people(SPLIT % "")
    after = people_of(migration.after)
    assert [f.name for f in after.fields] == [
        "id",
        "first",
        "last",
        "age",
        "balance",
        "token",
        "extra",
    ]
    assert [f.number for f in after.fields[:3]] == [1, 7, 8]
    derived = migration.conversion_up(1).derivations
    first = derived[7]
    assert isinstance(first, Computed)
    assert first.expression == parse_expression("before(name, ' ')")
    assert first.inputs == {"name": SourceField(2)}
    assert 2 not in derived


def test_the_inferred_rollback_puts_the_old_fields_back_to_their_places() -> None:
    migration = resolve_after_people(SPLIT % "")
    assert migration.rollback == (
        Transform(
            "people",
            {"first": FieldType("string"), "last": FieldType("string")},
            {"name": FieldType("string")},
            {"name": "join(' ', first, last)"},
            {"first": "before(name, ' ')", "last": "after(name, ' ')"},
        ),
    )
    joined = migration.conversion_down(1).derivations[2]
    assert isinstance(joined, Computed)
    assert joined.inputs == {"first": SourceField(7), "last": SourceField(8)}


def test_fields_that_stood_apart_are_put_apart_again() -> None:
    migration = resolve_after_people(
        """transform: {table: people, from: {extra: json, age: {type: integer, optional: true}},
      into: {more: json}, up: {more: extra}, down: {extra: more, age: "None"}}"""
    )
    assert [f.name for f in people_of(migration.after).fields] == [
        "id",
        "name",
        "more",
        "balance",
        "token",
    ]
    (back,) = migration.rollback
    assert isinstance(back, Transform)
    assert back.positions == (2, 5)


def test_a_new_field_may_have_the_name_of_an_old_one() -> None:
    migration = resolve_after_people(
        "transform: {table: people, from: {name: string}, into: {name: string}, "
        "up: {name: lower(name)}, down: {name: upper(name)}}"
    )
    name = people_of(migration.after).field_named("name")
    assert name is not None
    assert name.number == 7
    assert set(migration.conversion_down(1).derivations) == {1, 2, 3, 4, 5, 6}


def test_rule_05_the_order_of_keys_means_nothing() -> None:
    """Not to the digest, so not to the order and numbers of fields either."""
    made = []
    for into in itertools.permutations(["zz: string", "b: string", "aaa: string"]):
        migration = resolve_after_people(
            f"transform: {{table: people, from: {{name: string}}, into: {{{', '.join(into)}}}, "
            "up: {zz: name, aaa: upper(name), b: lower(name)}, down: {name: zz}}"
        )
        made.append((migration.digest, migration.after, migration.rollback))
    assert all(other == made[0] for other in made)


def test_rule_03_the_stored_structure_gives_the_same_fields_their_numbers() -> None:
    """CBOR sorts keys by length first: `b` before `aaa`, which the file may have before it."""
    chain = resolve_documents(
        document(PEOPLE),
        document(
            "transform: {table: people, from: {name: string}, into: {aaa: string, b: string}, "
            "up: {aaa: upper(name), b: lower(name)}, down: {name: aaa}}"
        ),
    )
    given = chain.migrations[1]
    stored = read_stored(given.structure, "test", "Test", given.drawn, given.before)
    assert stored == given
    assert stored.after == given.after
    assert stored.digest == given.digest


def test_positions_may_be_said() -> None:
    migration = resolve_after_people(SPLIT % ", positions: [6, 0]")
    after = people_of(migration.after)
    assert [f.name for f in after.fields] == [
        "last",
        "id",
        "age",
        "balance",
        "token",
        "extra",
        "first",
    ]


def test_without_down_no_rollback_can_be_inferred() -> None:
    text = transform("name: string", "size: integer", "size: length(name)")
    expected = "no rollback can be inferred for a transform of people"
    assert violations_of(text, kind=NotExhaustive) == [f"0002_test.yaml:5:5: {expected}"]


def test_an_explicit_rollback_makes_it_exhaustive() -> None:
    text = transform("name: string", "size: integer", "size: length(name)")
    back = f"[{{{transform('size: integer', 'name: string', 'name: text(size)')}}}]"
    migration = resolve_after_people(text, rollback=back)
    assert set(migration.conversion_down(1).derivations) == {1, 2, 3, 4, 5, 6}


def test_because_is_for_people_and_reversibility_is_not() -> None:
    plain = resolve_after_people(SPLIT % "")
    assert resolve_after_people(SPLIT % ", because: a reason").digest == plain.digest
    assert resolve_after_people(SPLIT % ", reversibility: lossy").digest != plain.digest
    assert resolve_after_people(SPLIT % ", reversibility: exact").digest == plain.digest


def transform(source: str, into: str, up: str, rest: str = "") -> str:
    return f"transform: {{table: people, from: {{{source}}}, into: {{{into}}}, up: {{{up}}}{rest}}}"


@pytest.mark.parametrize(
    ("operation", "violation"),
    [
        (transform("", "a: string", "a: \"''\""), "from and into each name one field or more"),
        (transform("name: string", "", ""), "from and into each name one field or more"),
        (
            transform("fax: string", "a: string", "a: fax"),
            "there is no field 'fax' in 'people' here",
        ),
        (
            transform("name: §integer", "a: string", "a: name"),
            "'name' is string, not as it is said here",
        ),
        (
            transform("age: §integer", "a: string", "a: text(age)"),
            "'age' is optional integer, not as it is said here",
        ),
        (
            transform("balance: §{type: decimal, scale: 3}", "a: string", "a: text(balance)"),
            "'balance' is decimal(2), not as it is said here",
        ),
        (
            transform("name: string", "age: §string", "age: name"),
            "there is a field 'age' in 'people' already",
        ),
        (transform("name: string", "a: §strin", "a: name"), "there is no type 'strin'"),
        (
            transform("name: string", "a: §{type: string, default: 5}", "a: name"),
            f"a value of 'a' {NOT_TEXT}",
        ),
        (
            transform("name: string", "a: string, b: string", "a: name"),
            "up has no expression for 'b'",
        ),
        (
            transform("name: string", "a: string", "a: name, b: name"),
            "up has an expression for 'b', which is none",
        ),
        (
            transform("name: string", "a: string", "a: age"),
            "in the expression 'age', column 1: there is no field 'age' here",
        ),
        (
            transform("name: string", "a: integer", "a: name"),
            "in the expression 'name', column 1: the result must be integer, not string",
        ),
        (
            transform("name: string", "a: string", "a: name", ", down: {}"),
            "down has no expression for 'name'",
        ),
        (
            transform("name: string", "a: string", "a: name", ", down: {name: name}"),
            "in the expression 'name', column 1: there is no field 'name' here",
        ),
        (
            transform("name: string", "a: string", "a: name", ", positions: [1, 2]"),
            "positions has a different number for each field of into",
        ),
        (
            transform(
                "name: string", "a: string, b: string", "a: name, b: name", ", positions: [1, 1]"
            ),
            "positions has a different number for each field of into",
        ),
        (
            transform("name: string", "a: string", "a: name", ", positions: [6]"),
            "a position must be 0 to 5",
        ),
        (
            transform("name: string", "a: string", "a: name", ", positions: [-1]"),
            "a position must be 0 to 5",
        ),
        (transform("name: string", "§A: string, b: 5", "a: name"), "'A' is not a name"),
        (transform("name: string", "A: string, b: §5", "a: name"), "a name is needed here"),
    ],
)
def test_this_transform_is_refused_here(operation: str, violation: str) -> None:
    assert f"{marked_place(operation)}: {violation}" in violations_of(operation)


def test_rule_21_a_field_of_the_key_cannot_be_transformed() -> None:
    text = transform("id: integer", "a: integer", "a: id", ", down: {id: a}")
    expected = "'id' is part of the key of 'people' and can't be transformed"
    assert violations_of(text) == [f"0002_test.yaml:5:5: {expected}"]


def test_rule_20_a_field_of_an_index_is_transformed_after_the_index_only() -> None:
    index = "create_index: {table: people, index: by_name, fields: [{field: name}]}"
    assert violations_of(index, SPLIT % "") == [
        "0002_test.yaml:6:5: the index 'by_name' uses 'name'"
    ]


def test_a_transform_cannot_fill_a_table_beyond_its_bound() -> None:
    fields = ", ".join(f"{{name: f{at}, type: integer}}" for at in range(FIELDS_PER_TABLE_MAX))
    full = f"create_table: {{table: people, key: [f0], fields: [{fields}]}}"
    split = transform("f1: integer", "a: integer, b: integer", "a: f1, b: f1", ", down: {f1: a}")
    with pytest.raises(Exception, match="a table has at most 1000 fields"):
        resolve_documents(document(full, split), numbers=NumberAllocator())
    same = transform("f1: integer", "a: integer", "a: f1", ", down: {f1: a}")
    assert resolve_documents(document(full, same))
