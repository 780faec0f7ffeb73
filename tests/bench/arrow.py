"""Records to Arrow batches, against making objects of them and a table of those; and back."""

from __future__ import annotations

import functools
import itertools
import json
from collections.abc import Iterator
from typing import Any

import pyarrow

from tests.bench.databases import Bench
from tests.bench.measure import Row, take_turns
from tests.bench.people import make_people
from tests.blobs import NO_BLOBS
from zapdb.limits import PAGE_RECORDS_MAX
from zapdb.records import asdict, codec_for, decoder_of
from zapdb.records.arrow import arrow_decoder, arrow_schema, decode_batches, encode_batch
from zapdb.schema import Field, TableSchema
from zapdb.values import Boolean, Decimal, Integer, Json, String, Timestamp, Uuid

TYPES = {
    "id": Integer(),
    "number": Integer(),
    "name": String(),
    "city": String(),
    "active": Boolean(),
    "balance": Decimal(2),
    "met": Timestamp(),
    "extra": Json(),
    "token": Uuid(),
}
PEOPLE = TableSchema(1, "people", (1,), tuple(Field(n, *f) for n, f in enumerate(TYPES.items(), 1)))
SAMPLE = 10 * PAGE_RECORDS_MAX
"""Records that are made; they are read again and again."""
ROUNDS = 3


def run(bench: Bench) -> list[Row]:
    without_json = [name for name in TYPES if name != "extra"]
    return [
        _run_decoding(bench, "all fields", list(TYPES), 1.5),
        _run_decoding(bench, "all but the JSON", without_json, 2),
        _run_encoding(bench),
    ]


@functools.cache
def _sample() -> list[tuple[bytes, bytes]]:
    codec = codec_for(PEOPLE)
    people = make_people(0, SAMPLE)
    return [(codec.encode_key(each), codec.encode(b"\x81", each, NO_BLOBS)) for each in people]


def _rows(count: int) -> Iterator[tuple[bytes, bytes]]:
    return itertools.islice(itertools.cycle(_sample()), count)


def _run_decoding(bench: Bench, what: str, fields: list[str], at_least: float) -> Row:
    count = bench.many
    schema = arrow_schema(PEOPLE, fields)
    numbers = frozenset(f.number for f in PEOPLE.fields if f.name in fields)
    decode = decoder_of(PEOPLE, numbers)

    def decode_columns() -> None:
        batches = decode_batches(arrow_decoder(PEOPLE, fields), _rows(count), lambda *_: NO_BLOBS)
        assert sum(batch.num_rows for batch in batches) == count

    def decode_objects() -> None:
        rows, made = _rows(count), 0
        while page := list(itertools.islice(rows, PAGE_RECORDS_MAX)):
            objects = [_plain(asdict(decode(key, value, 1, NO_BLOBS))) for key, value in page]
            made += pyarrow.Table.from_pylist(objects, schema).num_rows
        assert made == count

    ours, theirs = take_turns(ROUNDS, decode_columns, decode_objects)
    return Row(
        f"records to Arrow, {what}",
        "objects, then a table",
        ours / count,
        theirs / count,
        ("≥", at_least),
    )


def _plain(record: dict[str, Any]) -> dict[str, Any]:
    """The values as the columns have them."""
    if "extra" in record:
        record["extra"] = json.dumps(record["extra"], sort_keys=True)
    record["token"] = record["token"].bytes
    return record


def _run_encoding(bench: Bench) -> Row:
    count = bench.many // 10
    codec = codec_for(PEOPLE)
    batches = list(decode_batches(arrow_decoder(PEOPLE), _rows(count), lambda *_: NO_BLOBS))
    people = list(make_people(0, count))

    def encode_columns() -> None:
        for batch in batches:
            encode_batch(PEOPLE, batch, b"\x81", NO_BLOBS)

    def encode_objects() -> None:
        for person in people:
            codec.encode_key(person)
            codec.encode(b"\x81", person, NO_BLOBS)

    ours, theirs = take_turns(ROUNDS, encode_columns, encode_objects)
    return Row(
        "records from Arrow, all fields",
        "from objects that are there",
        ours / count,
        theirs / count,
        None,
    )
