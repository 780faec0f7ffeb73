import pytest

from zapdb.errors import CorruptRecord, InvalidValue
from zapdb.limits import VALUE_SIZE_BYTES_MAX
from zapdb.values import Binary, Decimal, Integer, Json, List, String

NUMBERS = List(Integer())
TEXTS = List(List(String()))


@pytest.mark.parametrize(
    ("kind", "value", "encoded"),
    [
        (NUMBERS, [], "80"),
        (NUMBERS, [1, -1, 300], "85 81 7f c1012c"),
        (TEXTS, [["a", ""], []], "85 83 8161 80 80"),
        (List(Json()), [None, {}], "84 81f6 81a0"),
    ],
)
def test_items_stand_one_behind_the_other(kind: List, value: list[object], encoded: str) -> None:
    raw = bytes.fromhex(encoded)
    assert kind.encode(value) == raw
    assert kind.decode(b"\x00" + raw + b"\x00", 1) == (value, 1 + len(raw))
    assert kind.skip(raw, 0) == len(raw)


@pytest.mark.parametrize("raw", ["", "81", "82c1", "81c101", "82c00100", "7f"])
def test_items_that_end_elsewhere_than_the_list_are_corrupt(raw: str) -> None:
    with pytest.raises(CorruptRecord):
        NUMBERS.decode(bytes.fromhex(raw), 0)


def test_values_are_checked_item_by_item() -> None:
    assert NUMBERS.check((1, 2), "p") == [1, 2]
    for value in ("ab", 5, {1: 2}, None):
        with pytest.raises(InvalidValue):
            NUMBERS.check(value, "p")
    with pytest.raises(InvalidValue) as caught:
        TEXTS.check([[], ["a", 5]], "items.tags")
    assert caught.value.context["field"] == "items.tags[1][1]"


def test_a_list_is_bounded() -> None:
    photos = List(Binary())
    with pytest.raises(InvalidValue) as caught:
        photos.encode([bytes(VALUE_SIZE_BYTES_MAX)], "items.photos")
    assert caught.value.context["field"] == "items.photos"
    assert caught.value.context["size_bytes_max"] == VALUE_SIZE_BYTES_MAX


def test_documents_write_items_as_their_type_does() -> None:
    prices = List(Decimal(2))
    value = prices.from_document(["1.5", "2"], "p")
    assert prices.to_document(value) == ["1.50", "2.00"]
    with pytest.raises(InvalidValue) as caught:
        prices.from_document(["1.5", "x"], "prices")
    assert caught.value.context["field"] == "prices[1]"


def test_what_a_list_can_do_depends_on_its_items() -> None:
    assert (NUMBERS.depth, TEXTS.depth) == (1, 2)
    assert not NUMBERS.keyable
    assert not NUMBERS.indexable
    assert NUMBERS.encoding_id != TEXTS.encoding_id
    assert str(TEXTS) == "list(list(string))"
