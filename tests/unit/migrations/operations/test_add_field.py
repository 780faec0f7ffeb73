from decimal import Decimal as D

import pytest

from tests.documents import (
    document,
    marked_place,
    people_of,
    resolve_after_people,
    resolve_documents,
    violations_of,
)
from zapdb.datasets import zone_version
from zapdb.expressions import parse_expression
from zapdb.limits import FIELDS_PER_TABLE_MAX
from zapdb.migrations.operations.field import DropField
from zapdb.records import Computed, Constant, SourceField

NOT_TEXT = (
    "must be a string of valid Unicode, at most 4194304 bytes of UTF-8; this is int of 3 bits"
)


def add(field: str, rest: str = "") -> str:
    return f"add_field: {{table: people, field: {{name: fax, {field}}}{rest}}}"


@pytest.mark.parametrize(
    ("operation", "value"),
    [
        (add("type: string, default: none"), "none"),
        (add("type: string, default: none", ", fill: {value: other}"), "other"),
        (add("type: string, optional: true"), None),
        (add("type: string, optional: true, default: x"), "x"),
        (add("type: string, optional: true, default: x", ", fill: {value: null}"), None),
        (add("type: decimal, scale: 2", ", fill: {value: 5}"), D("5.00")),
    ],
)
def test_older_records_get_the_fill_or_the_default_or_null(operation: str, value: object) -> None:
    migration = resolve_after_people(operation)
    derivation = migration.conversion_up(1).derivations[7]
    assert isinstance(derivation, Constant)
    assert (derivation.value, str(derivation.value)) == (value, str(value))
    assert all(
        migration.conversion_up(1).derivations[number] == SourceField(number)
        for number in range(1, 7)
    )
    assert migration.conversion_down(1).derivations == {
        number: SourceField(number) for number in range(1, 7)
    }


def test_older_records_may_get_an_expression_over_their_fields() -> None:
    migration = resolve_after_people(add("type: string", ", fill: {expression: 'upper( name )'}"))
    derivation = migration.conversion_up(1).derivations[7]
    assert isinstance(derivation, Computed)
    assert derivation.expression == parse_expression("upper(name)")
    assert derivation.inputs == {"name": SourceField(2)}
    other = resolve_after_people(add("type: string", ', fill: {expression: "upper(name)"}'))
    assert other.digest == migration.digest


@pytest.mark.parametrize(("position", "at"), [("", 6), (", position: 0", 0), (", position: 6", 6)])
def test_the_position_counts_from_0_in_declared_order(position: str, at: int) -> None:
    migration = resolve_after_people(add("type: string, default: x", position))
    fields = people_of(migration.after).fields
    assert fields[at].name == "fax"
    assert fields[at].number == 7
    assert migration.rollback == (DropField("people", "fax"),)


def test_a_field_that_is_dropped_and_added_again_is_another_field() -> None:
    chain = resolve_documents(
        document(
            "create_table: {table: people, key: [id], fields: ["
            "{name: id, type: integer}, {name: fax, type: string}]}"
        ),
        document("drop_field: {table: people, field: fax, restore: {value: x}}"),
        document(add("type: string, default: other")),
    )
    assert [f.number for f in people_of(chain.schema_at(3)).fields] == [1, 3]
    derived = chain.conversion_plan(1, 1, 3).derivations
    assert isinstance(derived[3], Constant)
    assert derived[3].value == "other"


@pytest.mark.parametrize(
    ("operation", "violation"),
    [
        (add("type: string").replace("people", "nobody"), "there is no table 'nobody' here"),
        (
            add("type: string, default: x").replace("fax", "name"),
            "there is a field 'name' in 'people' already",
        ),
        (
            add("type: string").replace("{name", "§{name"),
            "'fax' is required: what do older records get?",
        ),
        (
            add("type: uuid, generated: true").replace("{name", "§{name"),
            "'fax' is required: what do older records get?",
        ),
        (
            add("type: integer, generated: sequence").replace("{name", "§{name"),
            "'fax' is required: what do older records get?",
        ),
        (
            add("type: timestamp, default: now").replace("{name", "§{name"),
            "'fax' is required: what do older records get?",
        ),
        (add("type: strin").replace("{name", "§{name"), "there is no type 'strin'"),
        (
            add("type: string, default: 5").replace("{name", "§{name"),
            f"a value of 'fax' {NOT_TEXT}",
        ),
        (
            add("type: zoned_timestamp, default: '2024-07-01 12:00 UTC'").replace(
                "{name", "§{name"
            ),
            "a value of 'fax' must be local time and zone (2023-03-26T12:00:00 Asia/Beirut), and "
            "fold=1 or nothing; this is str of 20 characters",
        ),
        (
            add("type: zoned_timestamp, default: '2024-07-01T12:00:00 Mars/Base'").replace(
                "{name", "§{name"
            ),
            f"{zone_version()} has no zone 'Mars/Base' for a value of 'fax'",
        ),
        (add("type: string, default: x", ", position: 7"), "the position must be 0 to 6"),
        (add("type: string, default: x", ", position: -1"), "the position must be 0 to 6"),
        (add("type: string", ", fill: §{}"), "exactly one of value and expression is needed here"),
        (
            add("type: string", ", fill: §{value: x, expression: name}"),
            "exactly one of value and expression is needed here",
        ),
        (add("type: string", ", fill: §{value: null}"), "'fax' is required and can't be null"),
        (add("type: string", ", fill: §{value: 5}"), f"a value of 'fax' {NOT_TEXT}"),
        (
            add("type: string", ", fill: §{expression: age}"),
            "in the expression 'age', column 1: the result must be string, not optional integer",
        ),
        (
            add("type: string", ", fill: §{expression: 'lower(fax)'}"),
            "in the expression 'lower(fax)', column 7: there is no field 'fax' here",
        ),
        (
            add("type: string", ", fill: §{expression: '  name name'}"),
            "in the expression '  name name', column 8: not an expression: invalid syntax",
        ),
        (add("type: string", ", fill: {expression: §5}"), "text is needed here"),
    ],
)
def test_this_field_is_refused_here(operation: str, violation: str) -> None:
    assert f"{marked_place(operation)}: {violation}" in violations_of(operation)


def test_a_full_table_takes_no_field() -> None:
    fields = ", ".join(f"{{name: f{at}, type: integer}}" for at in range(FIELDS_PER_TABLE_MAX - 1))
    full = f"create_table: {{table: full, key: [f0], fields: [{fields}]}}"
    one_more = "add_field: {table: full, field: {name: %s, type: integer, default: 0}}"
    assert resolve_after_people(full, one_more % "a")
    assert violations_of(full, one_more % "a", one_more % "b") == [
        "0002_test.yaml:7:5: a table has at most 1000 fields"
    ]


def test_an_explicit_rollback_need_not_be_the_inferred_one() -> None:
    """Renaming before dropping leads back as well, and is another structure."""
    change = add("type: string, default: x")
    rename = "{rename_field: {table: people, field: fax, to: gone}}"
    rollback = f"[{rename}, {{drop_field: {{table: people, field: gone}}}}]"
    explicit = resolve_after_people(change, rollback=rollback)
    assert len(explicit.rollback) == 2
    assert explicit.digest != resolve_after_people(change).digest
    assert explicit.conversion_down(1).derivations == {
        number: SourceField(number) for number in range(1, 7)
    }
