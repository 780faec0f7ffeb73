"""How tables of a past moment are read: by their schema of then, and by no index."""

from __future__ import annotations

from zapdb import release
from zapdb.activation.descriptors import IndexDescriptor
from zapdb.formats import newest
from zapdb.records import RecordReader, codec_for
from zapdb.schema import TableSchema
from zapdb.tables.indexes import BoundTable
from zapdb.tables.indexes.maintenance import open_maintainer
from zapdb.tables.indexes.schema_adapter import SchemaAdapter


class PastAdapter(SchemaAdapter):
    """Reads a table by the schema of a past moment. Its indexes have no entries of then, so what
    would be read by one is scanned."""

    is_current = False

    def __init__(self, bound: BoundTable, schema: TableSchema, reader: RecordReader) -> None:
        self.bound = bound
        self.position = bound.catalog.position
        self.schema = schema
        self.codec = codec_for(schema, bound.catalog.zones)
        self.reader = reader
        self.indexes = tuple(
            open_maintainer(
                schema,
                IndexDescriptor(
                    index,
                    schema.datasets_of(index),
                    "building",
                    0,
                    0,
                    newest("key", release.LEVEL),
                    {},
                ),
                bound.records,
            )
            for index in schema.indexes
        )
        self._name_fields()
