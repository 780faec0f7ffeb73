"""The layouts of stored records, for every revision, active or not.

The schema history keeps the table schema of each revision (rule 1). So records can be scanned
without the chain, also those of a dropped table.
"""

from __future__ import annotations

from zapdb.catalog.schema_history import read_entries
from zapdb.errors import CorruptCatalog
from zapdb.records import Layout
from zapdb.storage import Connection


def load_layouts(connection: Connection, tenant: int, number: int) -> dict[int, Layout]:
    """Return the layouts of every revision that a record of a tenant's table may have, by revision.

    Raises `CorruptCatalog` for a table without a history.
    """
    layouts: dict[int, Layout] = {}
    for entry in read_entries(connection, tenant, number):
        known = layouts.get(entry.layout_revision)
        layouts[entry.revision] = Layout.of(entry.schema) if known is None else known
    if not layouts:
        raise CorruptCatalog(
            "a table has records but no schema history",
            tenant=tenant,
            table=number,
            hint="restore zapdb_schema_history from a backup",
        )
    return layouts
