"""Readers: records of any revision, read and converted as records of one shape."""

from __future__ import annotations

from typing import Any

import pytest

from tests.blobs import NO_BLOBS, MemoryBlobs
from tests.documents import document, people_of, resolve_documents
from zapdb.errors import CorruptRecord
from zapdb.records import (
    Conversion,
    Layout,
    asdict,
    codec_for,
    compile_conversion,
    encode_prefix,
)
from zapdb.records.reader import RecordReader

CHAIN = resolve_documents(
    document(
        "create_table: {table: people, key: [id], fields: ["
        "{name: id, type: integer}, {name: name, type: string}]}"
    ),
    document("rename_field: {table: people, field: name, to: title}"),
    document("add_field: {table: people, field: {name: age, type: integer, default: 7}}"),
)
POSITIONS = {1: 1, 2: 2, 3: 3, 63: 2, 64: 3, 65: 1, 300: 3}
"""Revisions on both sides of 64, where prefixes begin to take more than a byte."""
CURRENT = 300


class Programs:
    """Compiles the program of a revision, and counts how often it is asked to."""

    def __init__(self) -> None:
        self.asked: list[int] = []

    def __call__(self, revision: int) -> Conversion | None:
        self.asked.append(revision)
        position = POSITIONS[revision]
        source, target = (Layout.of(people_of(CHAIN.schema_at(p))) for p in (position, 3))
        if source == target:
            return None
        return compile_conversion(source, target, CHAIN.conversion_plan(1, position, 3))


def encode(revision: int, identity: int = 5) -> tuple[bytes, bytes]:
    table = people_of(CHAIN.schema_at(POSITIONS[revision]))
    values: dict[str, Any] = {"id": identity, "name": "Ada", "title": "Ada", "age": 7}
    record = {f.name: values[f.name] for f in table.fields}
    codec = codec_for(table)
    return codec.encode_key(record), codec.encode(encode_prefix(revision), record, NO_BLOBS)


@pytest.fixture
def programs() -> Programs:
    return Programs()


@pytest.fixture
def reader(programs: Programs) -> RecordReader:
    return RecordReader(
        codec_for(people_of(CHAIN.schema_at(3))).decode,
        programs,
        CURRENT,
        MemoryBlobs().attachments,
    )


def test_records_of_every_revision_read_alike(reader: RecordReader) -> None:
    for revision in (*POSITIONS, *reversed(POSITIONS)):
        for identity in (0, 5, 1000):
            read = asdict(reader.read(*encode(revision, identity)))
            assert read == {"id": identity, "title": "Ada", "age": 7}


def test_many_records_are_converted_as_each_is(reader: RecordReader) -> None:
    """In whatever order revisions come; records of the current layout are left as they are."""
    rows = [encode(revision, identity) for identity in range(5) for revision in POSITIONS]
    converted = list(reader.convert_rows(rows))
    assert len(converted) == len(POSITIONS)  # a revision's together
    assert sorted(row for group, _ in converted for row in group) == sorted(rows)
    for group, values in converted:
        expected = [reader.convert(key, value, NO_BLOBS) for key, value in group]
        assert expected == [value for _, value in group] if values is None else values
    assert [len(group) for group, values in converted if values is None] == [5, 5, 5]
    assert list(reader.convert_rows([])) == []
    with pytest.raises(CorruptRecord):
        list(reader.convert_rows([*rows, (b"key", b"")]))


def test_many_records_are_read_as_each_is(reader: RecordReader) -> None:
    """Of one revision or of several, known already or not; a damaged one when it is reached."""
    mixed = [encode(revision, identity) for identity in range(3) for revision in POSITIONS]
    alike = [[encode(revision, identity) for identity in range(3)] for revision in POSITIONS]
    current_first = sorted(mixed, key=lambda row: row[1][:1] != encode_prefix(3))
    for rows in (mixed, *alike, current_first, []):
        found = list(reader.read_many([(b"", *row) for row in rows]))
        assert found == [(row[0], reader.read(*row)) for row in rows]
    key, value = encode(CURRENT)
    for damaged in (b"", value[:-1], b"\xff"):
        read = reader.read_many([(b"", key, value), (b"", key, damaged)])
        assert next(read)
        with pytest.raises(CorruptRecord):
            next(read)


def test_a_program_is_asked_for_once_for_each_revision(
    reader: RecordReader, programs: Programs
) -> None:
    for _ in range(3):
        for revision in POSITIONS:
            reader.read(*encode(revision))
            reader.convert(*encode(revision), NO_BLOBS)
    assert programs.asked == list(POSITIONS)


def test_rule_01_converted_records_have_the_current_prefix_and_others_are_left_alone(
    reader: RecordReader,
) -> None:
    _, current = encode(CURRENT)
    for revision, position in POSITIONS.items():
        key, value = encode(revision)
        converted = reader.convert(key, value, NO_BLOBS)
        if position == 3:
            assert converted is value  # the layout is the current one, whatever the revision
        else:
            assert converted == current


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"\x80",
        b"\x84\x80",
        b"\x7f\x80",
        b"\xc0\x80\x80",
        b"\xc0\x05\x80",  # 5 in a longer form
        b"\xc0",
        b"\x00",
        b"\xff",
    ],
)
def test_records_of_unknown_revisions_are_corrupt(reader: RecordReader, value: bytes) -> None:
    key, _ = encode(1)
    for use in (reader.read, lambda k, v: reader.convert(k, v, NO_BLOBS)):
        with pytest.raises(CorruptRecord):
            use(key, value)
        with pytest.raises(CorruptRecord):
            use(key, value)


def test_a_known_prefix_with_damaged_fields_is_corrupt(reader: RecordReader) -> None:
    for revision in POSITIONS:
        key, value = encode(revision)
        with pytest.raises(CorruptRecord):
            reader.read(key, value[:-1])
        with pytest.raises(CorruptRecord):
            reader.read(key + b"\x00", value)
