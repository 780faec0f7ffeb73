import pytest

from tests.documents import document, marked_place, resolve_documents, violations_of
from zapdb.datasets import zone_version
from zapdb.limits import FIELDS_PER_TABLE_MAX
from zapdb.migrations.operations.definitions import FieldDefinition
from zapdb.migrations.operations.table import DropTable
from zapdb.schema import NO_DEFAULT, Field, Now, canonical_bytes, read_canonical_bytes
from zapdb.values import Decimal, Integer, String, Uuid

TOWNS = "create_table: {table: towns, key: [id], fields: [{name: id, type: integer}%s]}"


def test_a_table_has_its_fields_in_declared_order_and_its_key_in_key_order() -> None:
    chain = resolve_documents(
        document(
            "create_table: {table: towns, key: [country, id], fields: ["
            "{name: id, type: integer}, {name: country, type: string}, "
            '{name: tax, type: decimal, scale: 1, default: "0.5"}, '
            "{name: mayor, type: string, optional: true, default: null}, "
            "{name: token, type: uuid, generated: true}]}"
        )
    )
    (table,) = chain.schema_at(1)
    assert (table.name, table.number, table.key) == ("towns", 1, (2, 1))
    assert table.fields == (
        Field(1, "id", Integer()),
        Field(2, "country", String()),
        Field(3, "tax", Decimal(1), default=Decimal(1).from_document("0.5", "p")),
        Field(4, "mayor", String(), optional=True),
        Field(5, "token", Uuid(), generated="uuid"),
    )
    assert chain.migrations[0].drawn == {"table": [1], "field": [1, 2, 3, 4, 5]}


def test_the_inferred_rollback_drops_the_table() -> None:
    (migration,) = resolve_documents(document(TOWNS % "")).migrations
    assert migration.rollback == (DropTable("towns", "discard"),)


def test_an_explicit_rollback_may_say_the_same() -> None:
    inferred, explicit = (
        resolve_documents(document(TOWNS % "", rollback=rollback)).migrations[0]
        for rollback in ("inferred", "[{drop_table: {table: towns, records: discard}}]")
    )
    assert explicit.rollback == inferred.rollback
    assert explicit.digest == inferred.digest


def test_a_rollback_that_leaves_the_table_is_refused() -> None:
    rollback = "[{rename_table: {table: towns, to: cities}}]"
    expected = "the rollback does not bring back the table"
    assert violations_of(TOWNS % "", rollback=rollback) == [
        f"0002_test.yaml:1:1: {expected} 'cities' as it was before"
    ]


def field(text: str) -> str:
    return TOWNS % f", §{{name: x, {text}}}"


@pytest.mark.parametrize(
    ("operation", "violation"),
    [
        (
            "create_table: {table: people, key: [id], fields: [{name: id, type: integer}]}",
            "there is a table 'people' already",
        ),
        (
            "create_table: {table: t, key: [], fields: [{name: id, type: integer}]}",
            "a key is one or more different fields",
        ),
        (
            "create_table: {table: t, key: [id, id], fields: [{name: id, type: integer}]}",
            "a key is one or more different fields",
        ),
        (
            "create_table: {table: t, key: [no_one], fields: [{name: id, type: integer}]}",
            "the key field 'no_one' is not among the fields",
        ),
        (
            "create_table: {table: t, key: [id], fields: [§{name: id, type: json}]}",
            "a json can't be part of a key",
        ),
        (
            TOWNS.replace("{name: id, type: integer}", "§{name: id, type: integer, optional: true}")
            % "",
            "a field of the key can't be optional",
        ),
        ("create_table: {table: t, key: [id], fields: [§id]}", "a mapping is needed here"),
        (TOWNS % ", §{name: id, type: string}", "the field 'id' stands twice"),
        (field("type: intager"), "there is no type 'intager'"),
        (field("type: decimal"), "these are not the parameters of type 'decimal'"),
        (field("type: integer, scale: 2"), "these are not the parameters of type 'integer'"),
        (
            field("type: decimal, scale: true").replace("§", "").replace("true", "§true"),
            "an integer is needed here",
        ),
        (field("type: decimal, scale: 65"), "scale must be 0 to 64"),
        (field("type: decimal, scale: -1"), "scale must be 0 to 64"),
        (field("type: integer, default: null"), "'x' is required and can't be null"),
        (
            field('type: integer, default: "5"'),
            "a value of 'x' must be an integer of at most 63 bytes; this is str of 1 characters",
        ),
        (
            field("type: integer, default: [5]"),
            "a value of 'x' must be an integer of at most 63 bytes; this is list of length 1",
        ),
        (
            field('type: decimal, scale: 1, default: "0.25"'),
            "a value of 'x' must be a decimal with at most 1 digits after the point; "
            "this is Decimal of 2 digits, 2 after the point",
        ),
        (
            field("type: date, default: yesterday"),
            "a value of 'x' must be a date; this is str of 9 characters",
        ),
        (field("type: string, generated: true"), "type string can't be generated"),
        (field("type: integer, generated: true"), "type integer can't be generated"),
        (field("type: uuid, generated: sequence"), "type uuid can't be a sequence"),
        (
            field("type: integer, generated: sequence, default: 1"),
            "a generated field has no default",
        ),
        (
            field("type: integer, generated: always").replace("§", "").replace("always", "§always"),
            "one of true, false, sequence is needed here",
        ),
        (
            field("type: integer, generated: 1")
            .replace("§", "")
            .replace("generated: 1", "generated: §1"),
            "one of true, false, sequence is needed here",
        ),
        (field("type: date, default: today"), "'today' is no default of 'x', a date"),
        (field("type: timestamp, default: now()"), "'now()' is no default of 'x', a timestamp"),
        (
            field("type: zoned_timestamp, default: now"),
            "'now' is no default of 'x', a zoned_timestamp",
        ),
        (
            field("type: zoned_timestamp, default: now Europe/Wien"),
            f"{zone_version()} has no zone 'Europe/Wien' for a value of 'x'",
        ),
        (
            field("type: integer, default: now"),
            "a value of 'x' must be an integer of at most 63 bytes; this is str of 3 characters",
        ),
        (
            field("type: uuid, generated: true, default: 00000000-0000-0000-0000-00000000000a"),
            "a generated field has no default",
        ),
    ],
)
def test_this_table_is_refused_here(operation: str, violation: str) -> None:
    assert f"{marked_place(operation)}: {violation}" in violations_of(operation)


@pytest.mark.parametrize(
    ("text", "default", "generated", "plain"),
    [
        ("type: timestamp, default: now", Now(), None, "now"),
        (
            "type: zoned_timestamp, default: now Europe/Vienna",
            Now("Europe/Vienna"),
            None,
            "now Europe/Vienna",
        ),
        ("type: string, default: now", "now", None, "now"),
        ("type: integer, generated: sequence", NO_DEFAULT, "sequence", None),
    ],
)
def test_what_makes_a_value_at_insert_is_read_and_described(
    text: str, default: object, generated: str | None, plain: str | None
) -> None:
    chain = resolve_documents(document(field(text).replace("§", "")))
    schema = chain.schema_at(1)
    table = schema.table_named("towns")
    assert table is not None
    x = table.field_named("x")
    assert x is not None
    assert (x.default, x.generated) == (default, generated)
    assert read_canonical_bytes(canonical_bytes(table)) == table
    assert FieldDefinition.of(x).build("x", x.number, schema) == x
    assert plain is None or x.plain_default == plain


def test_a_default_of_a_key_field_that_does_not_fit_is_refused() -> None:
    text = (
        "create_table: {table: towns, key: [id], fields: [{name: id, type: integer, default: x}]}"
    )
    (violation,) = violations_of(text)
    assert "a value of 'id' must be an integer" in violation


def test_a_table_has_at_most_1000_fields() -> None:
    def fields(count: int) -> str:
        return "".join(f", {{name: f{at}, type: integer}}" for at in range(count))

    (migration,) = resolve_documents(document(TOWNS % fields(FIELDS_PER_TABLE_MAX - 1))).migrations
    assert len(migration.after.tables[0].fields) == FIELDS_PER_TABLE_MAX
    assert violations_of(TOWNS % fields(FIELDS_PER_TABLE_MAX)) == [
        "0002_test.yaml:5:5: a table has at most 1000 fields"
    ]


@pytest.mark.parametrize("kind", ["json", "float"])
def test_rule_21_which_types_a_key_may_have(kind: str) -> None:
    text = f"create_table: {{table: t, key: [id], fields: [§{{name: id, type: {kind}}}]}}"
    assert violations_of(text) == [f"{marked_place(text)}: a {kind} can't be part of a key"]
