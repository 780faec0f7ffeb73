import pickle
from types import SimpleNamespace

import pytest

from zapdb.errors import CorruptRecord, InvalidValue
from zapdb.values import Boolean, Integer, Json, List, Member, String, Struct, asdict

PLACE = Struct(
    "place",
    4,
    (
        Member(3, "town", String(), optional=True),
        Member(1, "street", String()),
        Member(2, "floor", Integer(), optional=True),
        Member(9, "data", Json(), optional=True),
    ),
)
"""Declared in another order than numbered."""


def place(**members: object) -> object:
    return PLACE.check(members, "place")


@pytest.mark.parametrize(
    ("members", "encoded"),
    [
        ({"street": "a"}, "83 00 8161"),
        ({"street": "a", "town": "b"}, "85 02 8161 8162"),
        ({"street": "", "floor": -1, "town": "b", "data": {}}, "87 07 80 7f 8162 81a0"),
    ],
)
def test_members_are_laid_out_by_id_behind_presence_bits(
    members: dict[str, object], encoded: str
) -> None:
    raw, value = bytes.fromhex(encoded), place(**members)
    assert PLACE.encode(value) == raw
    assert PLACE.decode(b"\x00" + raw + b"\x00", 1) == (value, 1 + len(raw))
    assert PLACE.skip(raw, 0) == len(raw)


@pytest.mark.parametrize(
    "raw",
    [
        "",
        "80",
        "81 00",
        "83 08 8161",
        "84 00 8161 80",
        "82 00 8161",
        "84 02 8161",
        "85 04 8161 81f6",
    ],
)
def test_bytes_that_no_struct_has_are_corrupt(raw: str) -> None:
    """The last is a JSON null that is present."""
    with pytest.raises(CorruptRecord):
        PLACE.decode(bytes.fromhex(raw), 0)


def test_values_are_objects_with_the_members_in_declared_order() -> None:
    value = place(street="a", floor=2)
    assert (value.street, value.floor, value.town) == ("a", 2, None)
    assert repr(value) == "place(town=None, street='a', floor=2, data=None)"
    assert list(asdict(value)) == ["town", "street", "floor", "data"]
    assert pickle.loads(pickle.dumps(value)) == value
    assert PLACE.check(value, "p") == value
    nested = Struct("home", 5, (Member(1, "places", List(PLACE)),))
    home = nested.check({"places": [{"street": "a"}]}, "p")
    assert asdict(home)["places"][0]["street"] == "a"


@pytest.mark.parametrize(
    ("value", "path"),
    [
        (5, "p"),
        (SimpleNamespace(street="a"), "p"),
        ({}, "p.street"),
        ({"street": None}, "p.street"),
        ({"street": 5}, "p.street"),
        ({"street": "a", "floor": "2"}, "p.floor"),
        ({"street": "a", "colour": 1}, "p.colour"),
        ({"street": "a", 5: 1}, "p.5"),
    ],
)
def test_what_does_not_fit_is_refused_at_its_path(value: object, path: str) -> None:
    with pytest.raises(InvalidValue) as caught:
        PLACE.check(value, "p")
    assert caught.value.context["field"] == path


def test_an_index_compares_member_by_member_in_declared_order() -> None:
    pair = Struct("pair", 1, (Member(2, "a", Boolean(), optional=True), Member(1, "b", Integer())))
    values = [
        pair.check({"a": a, "b": b}, "p") for a in (None, False, True) for b in (-300, 0, 300)
    ]
    assert sorted(values, key=pair.encode_index_key) == values
    assert pair.indexable
    assert not PLACE.indexable  # JSON is not


def test_names_are_no_part_of_the_bytes() -> None:
    renamed = Struct("spot", 4, tuple(Member(m.number, f"x{m.number}", m.type, m.optional)
                                      for m in PLACE.members[::-1]))  # fmt: skip
    assert renamed.encoding_id == PLACE.encoding_id
    assert renamed.index_encoding_id != PLACE.index_encoding_id


def test_documents_write_members_as_their_types_do() -> None:
    value = PLACE.from_document({"street": "a", "data": {"x": 1}}, "p")
    plain = {"town": None, "street": "a", "floor": None, "data": {"x": 1}}
    assert PLACE.to_document(value) == plain
    assert PLACE.from_document(plain, "p") == value
