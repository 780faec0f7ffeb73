"""Records as Arrow record batches, and back: the way to Spark, to DuckDB and into files.

Decoding has source of its own (see `decoder` and `columns`); encoding goes through the table's
codec. Nothing here needs a database: a task on another machine needs the table's schema and the
rows.
"""

from zapdb.errors import MissingExtra

try:  # before the modules that use them
    import numpy  # noqa: F401 - is it installed?
    import pyarrow  # noqa: F401 - is it installed?
except ImportError as missing:
    raise MissingExtra.named("sql", "pyarrow") from missing

from zapdb.records.arrow.columns import make_column
from zapdb.records.arrow.decoder import arrow_decoder
from zapdb.records.arrow.encoder import GivenColumn, column_encoder
from zapdb.records.arrow.packing import parse_uuids
from zapdb.records.arrow.record_batches import (
    arrow_schema,
    decode_batch,
    decode_batches,
    decode_page,
    encode_batch,
    read_values,
    to_reader,
)
from zapdb.records.arrow.whole_columns import PackedRows

__all__ = [
    "GivenColumn",
    "PackedRows",
    "arrow_decoder",
    "arrow_schema",
    "column_encoder",
    "decode_batch",
    "decode_batches",
    "decode_page",
    "encode_batch",
    "make_column",
    "parse_uuids",
    "read_values",
    "to_reader",
]
