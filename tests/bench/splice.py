"""A conversion that splices bytes, against the same conversion by decoding and encoding."""

from __future__ import annotations

from tests.bench.databases import Bench
from tests.bench.measure import Row, take_turns
from tests.bench.people import CREATE, DROP_ONE_ADD_ONE, make_people
from tests.blobs import NO_BLOBS
from zapdb.migrations.chain import load_directory
from zapdb.records import Layout, codec_for, compile_conversion, encode_prefix

RECORDS = 5_000
ROUNDS = 15


def run(bench: Bench) -> list[Row]:
    migrations = bench.migrations("splice", CREATE)
    migrations.add(*DROP_ONE_ADD_ONE)
    chain = load_directory(migrations.directory)
    (before,), (after,) = chain.schema_at(1), chain.schema_at(2)
    plan = chain.conversion_plan(before.number, 1, 2)
    spliced, long_way = (
        compile_conversion(Layout.of(before), Layout.of(after), plan, splice=splice).convert
        for splice in (True, False)
    )
    codec = codec_for(before)
    records = [
        (codec.encode_key(values), codec.encode(encode_prefix(1), values, NO_BLOBS))
        for values in make_people(0, RECORDS)
    ]
    prefix = encode_prefix(2)
    for key, record in records:
        results = [run(key, record, 1, prefix, NO_BLOBS) for run in (spliced, long_way)]
        assert results[0] == results[1]

    def convert_spliced() -> None:
        for key, record in records:
            spliced(key, record, 1, prefix, NO_BLOBS)

    def convert_the_long_way() -> None:
        for key, record in records:
            long_way(key, record, 1, prefix, NO_BLOBS)

    ours, theirs = take_turns(ROUNDS, convert_spliced, convert_the_long_way)
    return [
        Row("conversion by splice", "decode and encode", ours / RECORDS, theirs / RECORDS, ("≥", 5))
    ]
