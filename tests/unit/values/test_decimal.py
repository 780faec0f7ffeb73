import time
from collections.abc import Callable
from decimal import Decimal as D
from decimal import localcontext
from typing import Any

import pytest

from zapdb.errors import InvalidValue
from zapdb.values import Decimal
from zapdb.values.generated_source import Namespace, compile_function, indent
from zapdb.values.varint import INTEGER_MAX, INTEGER_MIN, encode_varint

MONEY = Decimal(2)


@pytest.mark.parametrize(
    ("scale", "value", "hundredths"),
    [(2, "0", 0), (2, "0.01", 1), (2, "-12.34", -1234), (0, "7", 7), (2, "1E+3", 100_000)],
)
def test_decimal_is_the_scaled_integer(scale: int, value: str, hundredths: int) -> None:
    kind = Decimal(scale)
    checked = kind.check(D(value), "p")
    assert kind.encode(checked) == kind.encode_key(checked) == encode_varint(hundredths)
    assert kind.decode(kind.encode(checked), 0) == (D(value), len(encode_varint(hundredths)))


@pytest.mark.parametrize("scale", [0, 2, 64])
@pytest.mark.parametrize("text", ["0", "-0", "-0.0", "5", "1E+1", "0E+999999", "0E-999999"])
def test_a_checked_decimal_is_the_one_that_decodes(scale: int, text: str) -> None:
    """Digit for digit: what shows them must not depend on whether the value was stored."""
    kind = Decimal(scale)
    checked = kind.check(D(text), "p")
    assert str(checked) == str(kind.decode(kind.encode(checked), 0)[0])
    assert checked.as_tuple().exponent == -scale
    assert not checked.is_signed()


def test_a_decimal_takes_integers_but_no_floats() -> None:
    assert str(MONEY.check(5, "p")) == "5.00"
    for refused in (5.0, True, "5", None):
        with pytest.raises(InvalidValue) as caught:
            MONEY.check(refused, "people.balance")
        assert caught.value.context["field"] == "people.balance"


@pytest.mark.parametrize("text", ["NaN", "sNaN", "Infinity", "-Infinity"])
def test_a_decimal_is_finite(text: str) -> None:
    with pytest.raises(InvalidValue):
        MONEY.check(D(text), "p")


@pytest.mark.parametrize("text", ["0.001", "1E-999999", "12.345", "0.0000000001"])
def test_digits_that_the_scale_has_no_room_for_are_refused_not_rounded(text: str) -> None:
    with pytest.raises(InvalidValue) as caught:
        MONEY.check(D(text), "p")
    assert caught.value.context["expected"] == "a decimal with at most 2 digits after the point"


@pytest.mark.parametrize("scale", [0, 3, 64])
def test_a_decimal_ends_where_the_varint_does(scale: int) -> None:
    kind = Decimal(scale)
    for bound, outwards in ((INTEGER_MAX, 1), (INTEGER_MIN, -1)):
        digits = tuple(map(int, str(abs(bound))))
        largest = D((bound < 0, digits, -scale))
        checked = kind.check(largest, "p")
        assert kind.decode(kind.encode(checked), 0)[0] == largest
        beyond = tuple(map(int, str(abs(bound + outwards))))
        with pytest.raises(InvalidValue) as caught:
            kind.check(D((bound < 0, beyond, -scale)), "p")
        assert caught.value.context["expected"] == "a decimal of at most 63 bytes"


@pytest.mark.parametrize("text", ["1E+200", "1E+999999", "9" * 300])
def test_huge_decimals_are_refused(text: str) -> None:
    with pytest.raises(InvalidValue):
        MONEY.check(D(text), "p")


@pytest.mark.parametrize("scale", [-1, 65])
def test_a_scale_is_0_to_64(scale: int) -> None:
    with pytest.raises(InvalidValue) as caught:
        Decimal(scale)
    assert caught.value.context["expected"] == "0 to 64"


def test_a_decimal_in_a_document_is_text_or_an_integer() -> None:
    assert MONEY.from_document("12.30", "p") == D("12.3")
    assert MONEY.from_document(12, "p") == D(12)
    assert MONEY.from_document("+1.5E+1", "p") == D(15)
    for refused in ("twelve", "", "NaN", "1_000", " 12", "12\n", "१२", "1E+9999999999", "."):
        with pytest.raises(InvalidValue):
            MONEY.from_document(refused, "p")
    for refused in (1.5, None, True):
        with pytest.raises(InvalidValue):
            MONEY.from_document(refused, "p")
    assert MONEY.to_document(MONEY.check(D("5"), "p")) == "5.00"


class Amount(D):
    pass


ODD: list[Any] = [
    *map(D, ("0", "-0.0", "0E+999999", "0E-999999", "7", "-7.25", "1E+1", "12.340000", "0.63")),
    *map(D, ("9" * 18, "-" + "9" * 19, "9" * 40, "1E+60", "NaN", "-NaN", "sNaN", "Infinity")),
    *map(D, ("-Infinity", "0.001", "1E-999999", "1E+900000", "1E+999999", "1E+149", "1E+150")),
    *(5, -5, 2**64, True, None, "5", 5.0, Amount("12.34"), INTEGER_MAX, INTEGER_MIN),
]


@pytest.mark.parametrize("value", ODD, ids=repr)
def test_generated_source_takes_and_refuses_what_the_check_does(value: Any) -> None:
    names = Namespace()
    statements, encoded = MONEY.encode_source("v", "people.balance", names)
    lines = ["def encode(v):", *indent([*statements, f"return {encoded}"])]
    encode, _ = compile_function("encode", lines, names, "test decimal")
    names = Namespace()
    lines = indent(["n = len(b)", *MONEY.decode_source("x", names), "return x, p"])
    decode, _ = compile_function("decode", ["def decode(b, p):", *lines], names, "test decimal")

    def outcome(encode: Callable[[Any], bytes]) -> Any:
        try:
            return encode(value)
        except InvalidValue as refused:
            return refused.context

    started = time.process_time()
    with localcontext() as context:  # what the application rounds to is no concern of ours
        context.prec = 2
        context.clear_traps()
        expected = outcome(lambda value: MONEY.encode(MONEY.check(value, "people.balance")))
        assert outcome(encode) == expected
        if isinstance(expected, bytes):
            assert str(decode(expected, 0)) == str(MONEY.decode(expected, 0))
    assert time.process_time() - started < 1
