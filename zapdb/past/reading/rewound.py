"""Tables rewound to a past moment: their schemas of then, and statements that rewind them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from zapdb.activation import TableDescriptor, TenantCatalog
from zapdb.log.rewound_records import RewoundStatements
from zapdb.past.reading.past_adapter import PastAdapter
from zapdb.records import Decode, RecordReader, codec_for
from zapdb.schema import TableSchema
from zapdb.storage import ArchiveStatements, Connection, Storage
from zapdb.tables.indexes import BoundTable
from zapdb.tables.indexes.bound_table import NOT_STORED, RecordArchive, make_reader_of


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
        self.archives = ArchiveStatements(records, self.archives.fields)
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
        place = self.records, catalog, self.descriptor, catalog.position
        return make_reader_of(*place, NOT_STORED, decode)
