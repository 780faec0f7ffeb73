"""Both codecs against msgspec and fastavro, and index keys against the bare collator.

One record of eight fields, about 128 bytes, goes through all of them; the same Python types come
out. zapdb's side has all checks on: the generated Python, and the accelerator where it is built.
The figures are processor time. It decodes the integer key besides, which lies beside the value.
msgspec writes and reads a typed struct as MessagePack, in its fastest form of each type. fastavro
has logical types for decimal, timestamp and UUID, and the JSON field as a string, through `json`.
"""

from __future__ import annotations

import datetime
import decimal
import io
import json
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import fastavro
import msgspec

from tests.bench.databases import Bench
from tests.bench.measure import Row, take_turns
from tests.bench.processor import spend_turns
from tests.blobs import NO_BLOBS
from zapdb.datasets import Collation, collator
from zapdb.records import Codec, asdict, codec_for, encode_prefix, native
from zapdb.records.codec import compile_codec
from zapdb.schema import Field, Index, IndexComponent, TableSchema
from zapdb.tables.indexes import build_keys
from zapdb.values import Boolean, Decimal, Integer, Json, String, Timestamp, Uuid

RECORDS = 1_000
ROUNDS = 41

ROOT = Collation("und")
BY_NAME = Index(1, "by_name", (IndexComponent(3, ROOT),))
MEMBERS = TableSchema(
    1,
    "members",
    (1,),
    (
        Field(1, "id", Integer()),
        Field(2, "number", Integer()),
        Field(3, "name", String()),
        Field(4, "city", String()),
        Field(5, "active", Boolean()),
        Field(6, "balance", Decimal(2)),
        Field(7, "joined", Timestamp()),
        Field(8, "extra", Json()),
        Field(9, "sponsor", Uuid()),
    ),
    (BY_NAME,),
)


class Member(msgspec.Struct):
    number: int
    name: str
    city: str
    active: bool
    balance: decimal.Decimal
    joined: datetime.datetime
    extra: dict[str, Any]
    sponsor: uuid.UUID


AVRO = fastavro.parse_schema(
    {
        "type": "record",
        "name": "member",
        "fields": [
            {"name": "number", "type": "long"},
            {"name": "name", "type": "string"},
            {"name": "city", "type": "string"},
            {"name": "active", "type": "boolean"},
            {
                "name": "balance",
                "type": {"type": "bytes", "logicalType": "decimal", "precision": 18, "scale": 2},
            },
            {"name": "joined", "type": {"type": "long", "logicalType": "timestamp-micros"}},
            {"name": "extra", "type": "string"},
            {"name": "sponsor", "type": {"type": "string", "logicalType": "uuid"}},
        ],
    }
)

CITIES = ("Amsterdam Noord", "São Paulo, Vila Madalena", "東京都渋谷区", "Nairobi West, Kenya")
START = datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC)


def make_members() -> Iterator[dict[str, Any]]:
    for number in range(RECORDS):
        yield {
            "number": number * 7919 % 1_000_003,
            "name": f"Augusta Ada King of Lovelace, {number}",
            "city": CITIES[number % len(CITIES)],
            "active": number % 3 == 0,
            "balance": decimal.Decimal(number * 137).scaleb(-2),
            "joined": START + datetime.timedelta(seconds=number * 37, microseconds=number),
            "extra": {"tags": ["member", "newsletter"], "score": number % 100},
            "sponsor": uuid.UUID(int=number * 0x9E3779B97F4A7C15F39CC0605CEDC835 % 2**128),
        }


def run(bench: Bench) -> list[Row]:
    members = list(make_members())
    return [*_run_encode(members), *_run_decode(members), _run_keys(members)]


NATIVE_REACH, PURE_ENCODE_REACH, PURE_DECODE_REACH = 1.3, 9, 5
"""Against msgspec; the pure codec is not to become slower (decision 53)."""


def _codecs() -> list[tuple[str, Codec]]:
    """The codecs by the name of what runs them."""
    codecs = [("pure codec", compile_codec(MEMBERS))]
    if native.accelerator is not None:
        codecs.insert(0, ("native codec", codec_for(MEMBERS)))
    return codecs


def _take_turns(*actions: Callable[[], object]) -> list[float]:
    return [spent.processor / RECORDS for spent in spend_turns(ROUNDS, None, *actions)]


def _rows(work: str, seconds: list[float], pure_reach: float) -> list[Row]:
    """Those of each codec, of which `seconds` has the times, before msgspec's and fastavro's."""
    *ours, msgpack, avro = seconds
    rows = []
    for (name, _), taken in zip(_codecs(), ours, strict=True):
        reach = pure_reach if name == "pure codec" else NATIVE_REACH
        rows.append(Row(f"{work}, {name}", "msgspec, MessagePack", taken, msgpack, ("≤", reach)))
        rows.append(Row("   the same", "fastavro, schemaless", taken, avro, ("≤", 1)))
    return rows


def _run_encode(members: list[dict[str, Any]]) -> list[Row]:
    prefix, to_msgpack = encode_prefix(1), _msgpack_encoder().encode
    records = [members[at] | {"id": at} for at in range(RECORDS)]
    structs = [Member(**member) for member in members]

    def encode_all(codec: Codec) -> Callable[[], None]:
        encode = codec.encode
        return _for_each(records, lambda record: encode(prefix, record, NO_BLOBS))

    taken = _take_turns(
        *(encode_all(codec) for _, codec in _codecs()),
        _for_each(structs, to_msgpack),
        _for_each(members, _to_avro),
    )
    encode = codec_for(MEMBERS).encode
    size = sum(len(encode(prefix, record, NO_BLOBS)) for record in records) / RECORDS
    return _rows(f"encode 8 fields, {size:.0f} bytes", taken, PURE_ENCODE_REACH)


def _run_decode(members: list[dict[str, Any]]) -> list[Row]:
    codec, prefix = codec_for(MEMBERS), encode_prefix(1)
    start = len(prefix)
    from_msgpack = msgspec.msgpack.Decoder(Member).decode
    ids = [{"id": at} for at in range(RECORDS)]
    pairs = [
        (codec.encode_key(id), codec.encode(prefix, member | id, NO_BLOBS))
        for id, member in zip(ids, members, strict=True)
    ]
    to_msgpack = _msgpack_encoder().encode
    packed = [to_msgpack(Member(**member)) for member in members]
    avros = [_to_avro(member) for member in members]
    for id, member, pair, pack, avro in zip(ids, members, pairs, packed, avros, strict=True):
        for _, one in _codecs():
            assert asdict(one.decode(*pair, start, NO_BLOBS)) == id | member
        assert msgspec.structs.asdict(from_msgpack(pack)) == member == _from_avro(avro)

    def decode_all(codec: Codec) -> Callable[[], None]:
        decode = codec.decode

        def run() -> None:
            for key, value in pairs:
                decode(key, value, start, NO_BLOBS)

        return run

    taken = _take_turns(
        *(decode_all(codec) for _, codec in _codecs()),
        _for_each(packed, from_msgpack),
        _for_each(avros, _from_avro),
    )
    return _rows("decode it, and its key", taken, PURE_DECODE_REACH)


def _run_keys(members: list[dict[str, Any]]) -> Row:
    codec = codec_for(MEMBERS)
    build = build_keys(MEMBERS, BY_NAME).build
    records = [codec.record(at, *member.values()) for at, member in enumerate(members)]
    get_sort_key = collator(ROOT).getSortKey
    names = [member["name"] for member in members]
    ours, bare = take_turns(ROUNDS, _for_each(records, build), _for_each(names, get_sort_key))
    return Row(
        "index key of a collated string",
        "ICU's getSortKey, bare",
        ours / RECORDS,
        bare / RECORDS,
        ("≤", 1.5),
    )


def _msgpack_encoder() -> msgspec.msgpack.Encoder:
    return msgspec.msgpack.Encoder(uuid_format="bytes")


def _to_avro(member: dict[str, Any]) -> bytes:
    buffer = io.BytesIO()
    plain = member | {"extra": json.dumps(member["extra"])}
    fastavro.schemaless_writer(buffer, AVRO, plain)
    return buffer.getvalue()


def _from_avro(data: bytes) -> Any:
    member: Any = fastavro.schemaless_reader(io.BytesIO(data), AVRO, None)
    member["extra"] = json.loads(member["extra"])
    return member


def _for_each(values: list[Any], action: Callable[[Any], Any]) -> Callable[[], None]:
    def run() -> None:
        for value in values:
            action(value)

    return run
