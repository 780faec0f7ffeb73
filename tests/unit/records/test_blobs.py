"""Blobs of records: what `Attachments` collect, loaded late, and found without decoding."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest

from tests.blobs import MemoryBlobs
from zapdb.errors import BlobMissing, CorruptRecord, InvalidValue
from zapdb.limits import INLINE_SIZE_BYTES_MAX, VALUE_SIZE_BYTES_MAX
from zapdb.records import (
    Codec,
    Layout,
    OwnedBlobs,
    Record,
    asdict,
    codec_for,
    compile_find,
    held,
    new_blobs,
)
from zapdb.schema import Field, TableSchema
from zapdb.values import Binary, Blob, Integer, Json, String
from zapdb.values.blob import REFERENCE_SIZE_BYTES_MIN

TABLE = TableSchema(
    1,
    "photos",
    (1,),
    (
        Field(1, "id", Integer()),
        Field(2, "title", String()),
        Field(3, "data", Binary(), optional=True),
        Field(4, "size", Integer()),
    ),
    (),
)
LONG = "ß" * 3_000
LARGE = bytes(range(256)) * 20


@pytest.fixture
def blobs() -> MemoryBlobs:
    return MemoryBlobs()


def codec() -> Codec:
    return codec_for(TABLE)


def encode(blobs: MemoryBlobs, **values: Any) -> tuple[bytes, bytes]:
    """A record of revision 1, with its blobs saved."""
    attachments = blobs.attachments()
    given = {"id": 1, "title": "a", "size": 2} | values
    encoded = codec().encode_key(given), codec().encode(b"\x81", given, attachments)
    blobs.save(attachments)
    return encoded


def decode(blobs: MemoryBlobs, encoded: tuple[bytes, bytes]) -> Record:
    return codec().decode(*encoded, 1, blobs.attachments())


def test_the_bytes_of_a_reference(blobs: MemoryBlobs) -> None:
    _, value = encode(blobs, title="x" * 4_097, data=b"")
    title = "7f" + "00" * 15 + "01" + "c11001"
    assert value.hex() == "81" + "01" + title + "80" + "82"
    assert blobs.saved == {bytes(15) + b"\x01": b"x" * 4_097}
    assert REFERENCE_SIZE_BYTES_MIN == len(bytes.fromhex(title)) == 20


def test_what_is_not_looked_at_is_not_loaded(blobs: MemoryBlobs) -> None:
    record = decode(blobs, encode(blobs, title=LONG, data=LARGE))
    saved, blobs.saved = blobs.saved, {}
    assert (record.id, record.size) == (1, 2)
    assert {name: type(value) for name, value in held(record).items()} == {
        "id": int,
        "title": Blob,
        "data": Blob,
        "size": int,
    }
    for use in (lambda: record.title, lambda: asdict(record), lambda: pickle.dumps(record)):
        with pytest.raises(BlobMissing):
            use()
    blobs.saved = saved
    assert (record.title, record.data) == (LONG, LARGE)
    blobs.saved = {}
    assert asdict(record) == {"id": 1, "title": LONG, "data": LARGE, "size": 2}
    assert held(record) == asdict(record)


def test_a_name_that_no_field_has(blobs: MemoryBlobs) -> None:
    for values in ({}, {"title": LONG}):
        record = decode(blobs, encode(blobs, **values))
        with pytest.raises(AttributeError, match="the table has no such field") as raised:
            _ = record.color
        assert "field: color" in str(raised.value)
        assert not hasattr(record, "_other")


def test_records_print_what_fits_on_a_line(blobs: MemoryBlobs) -> None:
    record = decode(blobs, encode(blobs, title=LONG, data=b"y" * 300))
    text = repr(record)
    assert "title=<string of 6,000 bytes, not loaded>" in text
    assert f"data=b'{'y' * 50}'… (300 bytes)" in text
    _ = record.title
    assert f"title='{'ß' * 50}'… (3,000 characters)" in repr(record)
    table = TableSchema(1, "t", (1,), (Field(1, "id", Integer()), Field(2, "json", Json())), ())
    made = codec_for(table).record(1, {"a": list(range(1_000))})
    assert repr(made).endswith("…)")
    assert len(repr(made)) < 250
    assert (
        repr(codec_for(table).record(1, {"a": "b" * 100}))
        == f"t(id=1, json={{'a': '{'b' * 100}'}})"
    )


def test_records_compare_without_loading_one_blob_twice(blobs: MemoryBlobs) -> None:
    encoded = encode(blobs, title=LONG, data=LARGE)
    first, second, copied = (decode(blobs, encoded) for _ in range(3))
    other = decode(blobs, encode(blobs, title=LONG, data=LARGE[:-1] + b"?"))
    equal = decode(blobs, encode(blobs, title=LONG, data=LARGE))
    saved, blobs.saved = blobs.saved, {}
    assert first == second
    blobs.saved = saved
    assert first == equal
    assert first != other
    assert first != asdict(first)
    with pytest.raises(TypeError, match="unhashable"):
        hash(first)
    assert copy.deepcopy(copied) == pickle.loads(pickle.dumps(copied)) == first


def test_a_copy_loads_no_blob(blobs: MemoryBlobs) -> None:
    key, encoded = encode(blobs, title=LONG, data=LARGE)
    record = codec().decode(key, encoded, 1, blobs.attachments())
    for copied in (copy.copy(record), copy.deepcopy(record)):
        assert isinstance(held(copied)["data"], Blob)
        assert (copied.title, copied.data) == (LONG, LARGE)
        assert "not loaded" in repr(record)


def test_a_blob_that_is_passed_on_keeps_its_id(blobs: MemoryBlobs) -> None:
    key, value = encode(blobs, title=LONG, data=LARGE)
    attachments = blobs.attachments()
    again = codec().encode(b"\x81", held(decode(blobs, (key, value))), attachments)
    assert (again, attachments.blobs) == (value, {})
    wrong = held(decode(blobs, (key, value)))
    with pytest.raises(InvalidValue):
        codec().encode(b"\x81", wrong | {"title": wrong["data"]}, attachments)


def test_new_blobs_that_no_field_has_are_left(blobs: MemoryBlobs) -> None:
    attachments = blobs.attachments()
    unused = attachments.add(b"u" * 5_000)
    given = {"id": 1, "title": LONG, "size": 2}
    value = codec().encode(b"\x81", given, attachments)
    record = codec().decode(codec().encode_key(given), value, 1, attachments)
    assert set(attachments.blobs) > set(new_blobs(record, attachments))
    assert new_blobs(record, attachments) == {
        made: raw for made, raw in attachments.blobs.items() if made != unused
    }
    taken = attachments.take_blobs()
    assert (len(taken), attachments.blobs) == (2, {})


def test_what_lies_in_the_blob_table_is_checked(blobs: MemoryBlobs) -> None:
    encoded = encode(blobs, title=LONG)
    (made,) = blobs.saved
    for raw in (LONG.encode()[:-1], b"\xff" * 6_000):
        blobs.saved[made] = raw
        with pytest.raises(CorruptRecord):
            _ = decode(blobs, encoded).title


@pytest.mark.parametrize("size", [INLINE_SIZE_BYTES_MAX, VALUE_SIZE_BYTES_MAX + 1])
def test_a_reference_has_a_size_that_a_blob_can_have(blobs: MemoryBlobs, size: int) -> None:
    key, _ = encode(blobs, title=LONG)
    reference = Blob(bytes(15) + b"\x01", size, String()).encode()
    with pytest.raises(CorruptRecord):
        codec().decode(key, b"\x81\x00" + reference + b"\x82", 1, blobs.attachments())


# Finding


def find(value: bytes, layout: Layout | None = None) -> list[tuple[bytes, int]]:
    return OwnedBlobs({1: layout or Layout.of(TABLE)}).find(value)


def test_blobs_are_found_without_decoding(blobs: MemoryBlobs) -> None:
    for values, sizes in (
        ({}, []),
        ({"title": "x" * 4_096, "data": b"\x7f" * 40}, []),
        ({"title": LONG}, [6_000]),
        ({"data": LARGE}, [len(LARGE)]),
        ({"title": LONG, "data": LARGE}, [6_000, len(LARGE)]),
    ):
        _, value = encode(blobs, **values)
        found = find(value)
        assert [size for _, size in found] == sizes
        assert all(len(blobs.saved[made]) == size for made, size in found)


def test_a_record_that_can_not_be_walked_is_corrupt(blobs: MemoryBlobs) -> None:
    _, value = encode(blobs, title=LONG, data=LARGE)
    for bad in (
        value[:20],
        value[:1] + b"\x02" + value[2:],
        value[:2] + b"\x7e" + value[3:],
        b"\x81",
    ):
        with pytest.raises(CorruptRecord):
            find(bad)
    with pytest.raises(CorruptRecord) as raised:
        find(b"\x82" + value[1:])
    assert "unknown revision 2" in raised.value.context["what"]


def test_layouts_that_hold_no_blobs_are_not_walked() -> None:
    plain = Layout.of(
        TableSchema(1, "t", (1,), (Field(1, "id", String()), Field(2, "j", Json())), ())
    )
    assert compile_find(plain) is None
    assert not OwnedBlobs({1: plain}).are_possible
    assert OwnedBlobs({1: plain, 2: Layout.of(TABLE)}).are_possible
    assert find(b"\x81 anything", plain) == []
