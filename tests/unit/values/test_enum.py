import pytest

from zapdb.errors import CorruptRecord, InvalidValue
from zapdb.values import Enum

STATE = Enum("state", 7, ((3, "open"), (1, "done"), (70, "gone")))


@pytest.mark.parametrize(("member", "encoded"), [("open", "83"), ("done", "81"), ("gone", "c046")])
def test_records_and_keys_hold_the_id_of_a_member(member: str, encoded: str) -> None:
    raw = bytes.fromhex(encoded)
    assert STATE.encode(member) == STATE.encode_key(member) == raw
    assert STATE.decode(b"\x00" + raw + b"\x00", 1) == (member, 1 + len(raw))
    assert STATE.skip(raw, 0) == len(raw)


def test_indexes_hold_the_place_in_the_declared_order() -> None:
    members = ["gone", "done", "open"]
    assert sorted(members, key=STATE.encode_index_key) == ["open", "done", "gone"]


@pytest.mark.parametrize("raw", ["", "82", "80", "7f", "c046"[:2], "ff"])
def test_ids_of_no_member_are_corrupt(raw: str) -> None:
    with pytest.raises(CorruptRecord):
        STATE.decode(bytes.fromhex(raw), 0)


@pytest.mark.parametrize("value", ["OPEN", "", 3, None, ["open"]])
def test_other_values_are_refused_naming_the_members(value: object) -> None:
    with pytest.raises(InvalidValue) as caught:
        STATE.check(value, "items.state")
    assert caught.value.context["field"] == "items.state"
    assert caught.value.context["expected"] == "one of open, done, gone"


def test_an_error_shows_a_few_of_many_members() -> None:
    many = Enum("many", 1, tuple((at, f"m{at}") for at in range(1, 21)))
    assert many.expected == "one of m1, m2, m3, m4, m5, m6, m7, m8 and 12 more"


def test_names_are_no_part_of_the_bytes_but_the_order_is_one_of_the_index() -> None:
    renamed = Enum("states", 7, ((3, "opened"), (1, "done"), (70, "gone")))
    assert renamed != STATE
    assert (renamed.encoding_id, renamed.index_encoding_id) == (
        STATE.encoding_id,
        STATE.index_encoding_id,
    )
    moved = Enum("state", 7, ((1, "done"), (3, "open"), (70, "gone")))
    assert moved.encoding_id == STATE.encoding_id
    assert moved.index_encoding_id != STATE.index_encoding_id
    assert Enum("state", 8, STATE.members).encoding_id != STATE.encoding_id


def test_it_is_called_as_it_was_declared() -> None:
    assert str(STATE) == "state"
