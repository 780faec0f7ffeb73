"""What all value types have in common, and the registry."""

import pytest

from zapdb.values import VALUE_TYPES, Decimal, Enum, List, Member, Reference, String, Struct

PARAMETRIC = {"decimal", "list", "reference", "enum", "struct"}


def test_types_are_registered_under_the_names_of_documents() -> None:
    names = (
        "integer decimal boolean date timestamp zoned_timestamp binary string json uuid float"
        " reference enum struct list"
    )
    assert list(VALUE_TYPES) == names.split()


def test_types_are_equal_by_their_parameters_and_hashable() -> None:
    made = [
        lambda: Decimal(3),
        lambda: List(String()),
        lambda: Reference("people", 1, (String(),)),
        lambda: Enum("state", 1, ((1, "open"),)),
        lambda: Struct("address", 1, (Member(1, "street", String()),)),
    ]
    for make in made:
        assert make() == make()
        assert len({make(), make()}) == 1
    assert Decimal(3) != Decimal(2)
    assert Decimal(3).parameters() == {"scale": 3}


@pytest.mark.parametrize("name", [n for n in VALUE_TYPES if n not in PARAMETRIC])
def test_types_without_parameters_are_equal_and_hashable(name: str) -> None:
    make = VALUE_TYPES[name]
    assert make() == make()
    assert len({make(), make()}) == 1
