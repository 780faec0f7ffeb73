import re

import pytest

from tests.documents import marked_place, people_of, resolve_after_people, violations_of
from zapdb.datasets import Collation
from zapdb.errors import InvalidMigration
from zapdb.limits import INDEX_COMPONENTS_MAX
from zapdb.migrations.operations.index import DropIndex
from zapdb.records import SourceField
from zapdb.schema import Index, IndexComponent


def index(fields: str, name: str = "by_it", table: str = "people") -> str:
    return f"create_index: {{table: {table}, index: {name}, fields: [{fields}]}}"


def test_an_index_holds_its_components_by_number() -> None:
    migration = resolve_after_people(
        index(
            "{field: name, collation: {locale: de, strength: primary, numeric: true}}, "
            "{field: age, descending: true}, {field: id}"
        )
    )
    assert people_of(migration.after).indexes == (
        Index(
            1,
            "by_it",
            (
                IndexComponent(2, Collation("de", "primary", True)),
                IndexComponent(3, descending=True),
                IndexComponent(1),
            ),
        ),
    )
    assert migration.drawn == {"index": [1]}
    assert migration.rollback == (DropIndex("people", "by_it"),)


def test_rule_01_no_record_changes() -> None:
    migration = resolve_after_people(index("{field: name}"))
    assert migration.conversion_up(1).derivations == {n: SourceField(n) for n in range(1, 7)}


def test_strings_sort_by_code_point_without_a_collation_and_tertiary_with_one() -> None:
    migration = resolve_after_people(
        index("{field: name}", "a"), index("{field: name, collation: {locale: und}}", "b")
    )
    indexes = people_of(migration.after).indexes
    assert indexes[0].components == (IndexComponent(2),)
    assert indexes[1].components == (IndexComponent(2, Collation("und", "tertiary", False)),)


MANY = ", ".join(f"{{field: f{at}}}" for at in range(INDEX_COMPONENTS_MAX + 1))


@pytest.mark.parametrize(
    ("operation", "violation"),
    [
        (index("{field: name}", table="nobody"), "there is no table 'nobody' here"),
        (index("{field: fax}"), "there is no field 'fax' in 'people' here"),
        (index(""), "an index has 1 to 16 fields"),
        (index(MANY), "an index has 1 to 16 fields"),
        (index("{field: age}, {field: age}"), "a field stands in an index once"),
        (index("§{field: extra}"), "a json can't be indexed"),
        (index("§{field: age, collation: {locale: und}}"), "only strings have a collation"),
        (
            index("{field: name, collation: §{locale: klingon}}"),
            "no collation for the locale 'klingon'",
        ),
        (
            index('{field: name, collation: §{locale: "de@collation=x"}}'),
            "no collation 'x' for the locale 'de'",
        ),
        (
            index("{field: name, collation: {locale: und, strength: §strong}}"),
            "one of primary, secondary, tertiary, quaternary, identical is needed here",
        ),
        (index("{field: name, collation: §und}"), "a mapping is needed here"),
        (index("{field: name, §order: descending}"), "unknown key 'order'"),
        (index("§name"), "a mapping is needed here"),
    ],
)
def test_this_index_is_refused_here(operation: str, violation: str) -> None:
    assert f"{marked_place(operation)}: {violation}" in violations_of(operation)


def test_two_indexes_of_a_table_have_two_names() -> None:
    assert violations_of(index("{field: name}"), index("{field: age}")) == [
        "0002_test.yaml:6:5: there is an index 'by_it' on 'people' already"
    ]


def test_every_violation_of_the_components_is_found() -> None:
    assert len(violations_of(index("{field: fax}, {field: extra}, {field: gone}"))) == 3


def test_an_index_may_be_unique_and_its_drop_brings_it_back_so() -> None:
    unique = index("{field: name}").replace("]}", "], unique: true}")
    migration = resolve_after_people(unique, "drop_index: {table: people, index: by_it}")
    assert migration.rollback[0].unique is True
    (made,) = people_of(resolve_after_people(unique).after).indexes
    assert made.unique


def test_rule_05_unique_false_is_no_other_spelling() -> None:
    spellings = index("{field: name}"), index("{field: name}").replace("]}", "], unique: false}")
    assert len({resolve_after_people(text).digest for text in spellings}) == 1


@pytest.mark.parametrize(
    ("component", "hint"),
    [("name", "such as {field: …}"), ("{field: name, collation: und}", "such as {locale: …}")],
)
def test_a_text_instead_of_a_mapping_is_told_what_to_write(component: str, hint: str) -> None:
    with pytest.raises(InvalidMigration, match=f"hint: {re.escape(hint)}"):
        resolve_after_people(index(component))
