"""Tables rewound to a past moment: their schemas of then, and statements that rewind them."""

from __future__ import annotations

from dataclasses import replace

from zapdb.activation import TableDescriptor, TenantCatalog
from zapdb.database.history.past_adapter import PastAdapter
from zapdb.indexes import BoundTable, make_reader
from zapdb.indexes.bound_table import NOT_STORED
from zapdb.records import codec_for
from zapdb.schema import TableSchema
from zapdb.storage import Storage
from zapdb.storage.rewound_records import RewoundStatements


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
        self.records = records
        reader = make_reader(
            storage,
            catalog,
            self.descriptor,
            catalog.position,
            NOT_STORED,
            codec_for(schema, catalog.zones).decode,
        )
        self.adapter = PastAdapter(self, schema, reader)
