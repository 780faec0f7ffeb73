"""Tables of a past moment: read by their schemas of then, and by no index; and rewound to it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from zapdb.activation import TableDescriptor, TenantCatalog
from zapdb.activation.descriptors import IndexDescriptor
from zapdb.activation.tenant_catalog import NOT_STORED
from zapdb.log.rewound_records import RewoundStatements
from zapdb.records import Decode, RecordReader, codec_for
from zapdb.schema import TableSchema
from zapdb.storage import ArchiveStatements, Connection, RecordStatements, Storage
from zapdb.tables.indexes import BoundTable
from zapdb.tables.indexes.bound_table import RecordArchive, make_reader_of
from zapdb.tables.indexes.maintenance import open_maintainer
from zapdb.tables.indexes.schema_adapter import SchemaAdapter


class PastAdapter(SchemaAdapter):
    """Reads a table by the schema of a past moment. Its indexes have no entries of then, so what
    would be read by one is scanned."""

    is_current = False

    def __init__(self, bound: BoundTable, schema: TableSchema, reader: RecordReader) -> None:
        self.bound = bound
        self.schema = schema
        self.codec = codec_for(schema, bound.catalog.zones)
        self.reader = reader
        present = RecordStatements(bound.storage, schema.number, bound.catalog.tenant)
        self.indexes = tuple(
            open_maintainer(schema, IndexDescriptor.planned(schema, index), present)
            for index in schema.indexes
        )
        self._name_fields()


class RewoundTable(BoundTable):
    """A table at a past moment: its schema of then, and its records, rewound."""

    def __init__(
        self,
        storage: Storage,
        catalog: TenantCatalog,
        descriptor: TableDescriptor,
        schema: TableSchema,
        records: RewoundStatements,
    ) -> None:
        super().__init__(storage, catalog, replace(descriptor, indexes=()))
        self.records: RewoundStatements = records
        self.archives = ArchiveStatements(records, catalog.archived_fields(schema.number))
        reader = self._make_reader(codec_for(schema, catalog.zones).decode)
        self.adapter = PastAdapter(self, schema, reader)

    def open_archives(
        self, connection: Connection, rows: Sequence[tuple[bytes, bytes]]
    ) -> list[RecordArchive]:
        stored = self.records.load_archives(connection, self.archives, [key for key, _ in rows])
        return [RecordArchive.of(stored.get(key, {}), self.blobs.load) for key, _ in rows]

    def make_field_reader(self, decode: Decode) -> RecordReader:
        return self._make_reader(decode)

    def _make_reader(self, decode: Decode) -> RecordReader:
        catalog = self.catalog
        table = self.records, catalog, self.descriptor, self.place
        return make_reader_of(*table, NOT_STORED, decode)
