"""What all value types have in common, and the registry."""

import pytest

from zapdb.values import VALUE_TYPES, Decimal, make_type


def test_types_are_registered_under_the_names_of_documents() -> None:
    names = "integer decimal boolean date timestamp binary string json uuid float"
    assert list(VALUE_TYPES) == names.split()


def test_a_type_is_made_of_its_name_and_parameters() -> None:
    assert make_type("decimal", {"scale": 3}) == Decimal(3)
    assert make_type("decimal", {"scale": 3}) != Decimal(2)
    assert Decimal(3).parameters() == {"scale": 3}
    for name, parameters in (
        ("decimal", {}),
        ("integer", {"scale": 3}),
        ("decimal", {"scale": "3"}),
    ):
        with pytest.raises(TypeError):
            make_type(name, parameters)


@pytest.mark.parametrize("name", [name for name in VALUE_TYPES if name != "decimal"])
def test_types_without_parameters_are_equal_and_hashable(name: str) -> None:
    assert make_type(name, {}) == make_type(name, {})
    assert len({make_type(name, {}), make_type(name, {})}) == 1
