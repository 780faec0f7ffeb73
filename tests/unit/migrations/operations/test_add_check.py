import pytest

from tests.documents import (
    PEOPLE,
    document,
    people_of,
    resolve_after_people,
    resolve_documents,
    violations_of,
)
from zapdb.migrations.operations.check_and_reference import DropCheck
from zapdb.schema import Check


def add(expression: str, name: str = "c") -> str:
    return f'add_check: {{table: people, check: {name}, expression: "{expression}"}}'


DROP = "drop_check: {table: people, check: c}"


def test_a_check_is_kept_as_canonical_text_under_a_number_of_its_own() -> None:
    migration = resolve_after_people(add("balance>0 and name!=''"), add("id > 0", "d"))
    assert people_of(migration.after).checks == (
        Check(1, "c", "(balance > 0) and (name != '')"),
        Check(2, "d", "id > 0"),
    )
    assert migration.rollback == (DropCheck("people", "d"), DropCheck("people", "c"))
    assert migration.conversion_up(1).is_identity


def test_rule_05_blanks_are_no_part_of_a_digest() -> None:
    digests = {resolve_after_people(add(text)).digest for text in ("id>0", " id  > 0")}
    assert len(digests) == 1


@pytest.mark.parametrize(
    ("operation", "violation"),
    [
        (add("id > 0").replace("people", "nobody"), "there is no table 'nobody' here"),
        (
            add("fax > 0"),
            "in the expression 'fax > 0', column 1: there is no field 'fax' here",
        ),
        (
            add("length(name)"),
            "in the expression 'length(name)', column 1: the result must be boolean, not integer",
        ),
    ],
)
def test_this_check_is_refused_here(operation: str, violation: str) -> None:
    assert violations_of(operation) == [f"0002_test.yaml:5:5: {violation}"]


def test_a_name_is_taken_once() -> None:
    assert violations_of(add("id > 0"), add("id > 1")) == [
        "0002_test.yaml:6:5: there is a check 'c' on 'people' already"
    ]


def test_a_table_has_at_most_so_many_checks() -> None:
    checks = [add("id > 0", f"c{n}") for n in range(101)]
    assert violations_of(*checks) == ["0002_test.yaml:105:5: a table has at most 100 checks"]


def test_a_renamed_field_is_renamed_in_the_checks_that_read_it() -> None:
    rename = "rename_field: {table: people, field: name, to: title}"
    migration = resolve_after_people(add("name != 'name' and contains(name, name)"), rename)
    (check,) = people_of(migration.after).checks
    assert check.expression == "(title != 'name') and contains(title, title)"
    assert migration.rollback


@pytest.mark.parametrize("name", ["class", "if", "is", "lambda"])
def test_a_name_that_no_expression_can_read_is_refused(name: str) -> None:
    rename = f"rename_field: {{table: people, field: name, to: {name}}}"
    assert violations_of(add("name != ''"), rename) == [
        f"0002_test.yaml:6:5: the check 'c' can't read a field that is called {name!r}"
    ]
    assert resolve_after_people(add("id > 0"), rename).rollback


@pytest.mark.parametrize(
    "operation",
    [
        "drop_field: {table: people, field: name, restore: {value: x}}",
        "drop_field: {table: people, field: name, restore: {archive: true, otherwise: {value: x}}}",
        'change_type: {table: people, field: name, type: integer, up: "5", down: text(name)}',
        "transform: {table: people, from: {name: string}, into: {x: string}, "
        "up: {x: name}, down: {name: x}}",
    ],
)
def test_a_field_that_a_check_reads_goes_after_the_check_only(operation: str) -> None:
    assert violations_of(add("name != ''"), operation) == [
        "0002_test.yaml:6:5: the check 'c' reads 'name'"
    ]
    assert resolve_after_people(add("name != ''"), DROP, operation).rollback


def test_the_rollback_of_a_drop_adds_the_check_again() -> None:
    chain = resolve_documents(document(PEOPLE, add("id > 0")), document(DROP))
    last = chain.migrations[-1]
    assert people_of(last.after).checks == ()
    (back,) = last.rollback
    assert (back.keyword, back.expression) == ("add_check", "id > 0")


def test_a_check_that_is_not_there_is_refused() -> None:
    assert violations_of(DROP) == ["0002_test.yaml:5:5: there is no check 'c' on 'people'"]
