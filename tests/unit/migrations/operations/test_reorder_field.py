import pytest

from tests.documents import people_of, resolve_after_people, violations_of
from zapdb.migrations.operations.rename import ReorderField


def reorder(field: str, position: object) -> str:
    return f"reorder_field: {{table: people, field: {field}, position: {position}}}"


@pytest.mark.parametrize(
    ("field", "position", "order"),
    [
        ("id", 5, "name age balance token extra id"),
        ("extra", 0, "extra id name age balance token"),
        ("age", 3, "id name balance age token extra"),
        ("age", 1, "id age name balance token extra"),
    ],
)
def test_rule_21_any_field_can_stand_elsewhere_and_no_record_changes(
    field: str, position: int, order: str
) -> None:
    migration = resolve_after_people(reorder(field, position))
    before, after = people_of(migration.before), people_of(migration.after)
    assert " ".join(f.name for f in after.fields) == order
    assert after.key == before.key
    assert after.value_fields == before.value_fields
    assert migration.conversion_up(1).is_identity
    (back,) = migration.rollback
    at = [f.name for f in before.fields].index(field)
    assert back == ReorderField("people", field, at)


@pytest.mark.parametrize(
    ("field", "position", "violation"),
    [
        ("age", 2, "'age' stands there already"),
        ("age", 6, "the position must be 0 to 5"),
        ("age", -1, "the position must be 0 to 5"),
        ("fax", 0, "there is no field 'fax' in 'people' here"),
    ],
)
def test_this_order_is_refused_here(field: str, position: int, violation: str) -> None:
    assert violations_of(reorder(field, position)) == [f"0002_test.yaml:5:5: {violation}"]


def test_an_explicit_rollback_must_lead_back() -> None:
    text = reorder("age", 0)
    assert resolve_after_people(text, rollback=f"[{{{reorder('age', 2)}}}]").rollback
    assert violations_of(text, rollback=f"[{{{reorder('age', 1)}}}]") == [
        "0002_test.yaml:1:1: the rollback does not bring back the table 'people' as it was before"
    ]
