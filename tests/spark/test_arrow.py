"""Stored records as columns in Spark, decoded by its Python workers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.blobs import NO_BLOBS, MemoryBlobs
from tests.unit.records.test_arrow import KINDS
from zapdb.records import codec_for
from zapdb.records.arrow import (
    arrow_decoder,
    arrow_schema,
    decode_batch,
    decode_batches,
    encode_batch,
)
from zapdb.schema import Field, TableSchema
from zapdb.values import Integer, ZonedTimestamp


def test_spark_takes_the_batches_and_gives_them_back(spark: Any) -> None:
    from pyspark.sql.pandas.types import from_arrow_schema

    # A worker would need the zone numbers of the database; those of the test stay here.
    kinds = [kind for kind, *_ in KINDS if not isinstance(kind, ZonedTimestamp)]
    values = [value for kind, _, value, _ in KINDS if not isinstance(kind, ZonedTimestamp)]
    fields = [Field(at, f"c{at}", kind, True) for at, kind in enumerate(kinds, 2)]
    table = TableSchema(1, "t", (1,), (Field(1, "id", Integer()), *fields))
    codec = codec_for(table)
    full = {f"c{at}": value for at, value in enumerate(values, 2)}
    records = [{"id": 1, **full}, {"id": 2}]
    rows = [(codec.encode_key(r), codec.encode(b"\x81", r, NO_BLOBS)) for r in records]

    def decode(batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            stored = zip(*(column.to_pylist() for column in batch.columns), strict=True)
            yield from decode_batches(arrow_decoder(table), stored, MemoryBlobs().attachments)

    shape = from_arrow_schema(arrow_schema(table))
    frame = spark.createDataFrame(rows, "key binary, value binary").mapInArrow(decode, shape)
    (returned,) = frame.orderBy("id").toArrow().combine_chunks().to_batches()
    assert encode_batch(table, returned, b"\x81", NO_BLOBS) == rows

    import pyarrow

    given = pyarrow.Table.from_batches(
        [decode_batch(arrow_decoder(table), rows, MemoryBlobs().attachments)]
    )
    created = spark.createDataFrame(given).orderBy("id").toArrow().combine_chunks()
    (returned,) = created.to_batches()
    assert encode_batch(table, returned, b"\x81", NO_BLOBS) == rows
