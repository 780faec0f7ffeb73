"""The migrations that were active at a past moment, those included that were rolled back since."""

from __future__ import annotations

from collections.abc import Mapping

from zapdb.activation import TenantCatalog
from zapdb.catalog.schema_history import RevisionEntry, read_entries
from zapdb.catalog.stored_migrations import read_chains_to
from zapdb.errors import HistoryNotStored
from zapdb.migrations import Chain
from zapdb.past.reading.schema_at import SchemaAt
from zapdb.storage import Connection


def read_chain_at(connection: Connection, catalog: TenantCatalog, then: SchemaAt) -> Chain:
    """Return the migrations that were active, as far as the tables of then tell them apart; raises
    `HistoryNotStored` if they are not stored."""
    entries = read_entries(connection, catalog.tenant)
    known, now = {(one.table_number, one.revision): one for one in entries}, catalog.chain
    if then.position <= now.end and _is_of(now.up_to(then.position), then, known):
        return now.up_to(then.position)
    for chain in read_chains_to(connection, then.position):
        if _is_of(chain, then, known):
            return chain
    raise HistoryNotStored(
        "the migrations that were active at that moment are not stored",
        position=then.position,
        hint="read its tables one by one: `past.table(…).to_arrow()`",
    )


def _is_of(chain: Chain, then: SchemaAt, entries: Mapping[tuple[int, int], RevisionEntry]) -> bool:
    """Whether a chain makes exactly the tables of a moment, by the migrations of then."""
    if chain.end != then.position:
        return False
    active = {schema.number: schema for schema in chain.schema_at(chain.end)}
    if active.keys() != {found.schema.number for found in then.tables.values()}:
        return False
    for found in then.tables.values():
        entry = entries[found.schema.number, found.revision]
        is_inside = chain.start < entry.position <= chain.end
        if active[found.schema.number] != found.schema or not is_inside:
            return False
        if chain.at(entry.position).digest != entry.digest:
            return False
    return True
