"""The relations of the catalog as they tell the schema of a past moment."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any, Final

import sqlalchemy as sa

from zapdb.activation import TableDescriptor, TenantCatalog
from zapdb.catalog.schema_history import read_entries
from zapdb.catalog.stored_migrations import STORED
from zapdb.past.reading.chain_at import read_chain_at
from zapdb.past.reading.past_session import PastSession
from zapdb.sql.relations import Relation, SqlRow, describe_components, to_revision_row
from zapdb.storage import Connection
from zapdb.storage.fixed_tables import MIGRATIONS


def read_relation_at(session: PastSession, connection: Connection, relation: Relation) -> Any:
    """Return the rows of a relation as a `pyarrow.Table`; raises `HistoryNotStored`."""
    then = session.then
    tables = {
        name: TableDescriptor(one.schema, one.revision, one.layout_revision, {}, {}, ())
        for name, one in then.tables.items()
    }
    catalog = replace(session.catalog, position=then.position, tables=tables)
    read = _READERS[relation.name]
    if read is not None:
        relation = replace(relation, read=partial(read, session))
    return relation.to_arrow(connection, catalog)


def _read_migrations(
    session: PastSession, connection: Connection, _: TenantCatalog
) -> Iterator[SqlRow]:
    """Those that were active."""
    at, visible_at = MIGRATIONS.c, session.moment.visible_at
    chain = read_chain_at(connection, session.catalog, session.then)
    query = sa.select(at.number, at.digest, at.stored_at, at.stored_by).order_by(at.id)
    stored = dict[tuple[int, str], tuple[int, str]]()
    for number, digest, stored_at, stored_by in connection.core_execute(query).fetchall():
        if (number, digest) not in stored or stored_at <= visible_at:
            stored[number, digest] = stored_at, stored_by
    for one in chain.migrations:
        when = stored[one.number, one.digest]
        yield (one.number, one.name, one.summary, STORED, True, one.digest, *when, None, None)


def _read_schema_history(
    session: PastSession, connection: Connection, catalog: TenantCatalog
) -> Iterator[SqlRow]:
    """What there was of it: tables that had been dropped by then included."""
    revisions = {one.schema.number: one.revision for one in session.then.tables.values()}
    for entry in read_entries(connection, catalog.tenant):
        newest = revisions.get(entry.table_number)
        is_earlier = entry.migrated_at <= session.moment.visible_at
        if is_earlier if newest is None else entry.revision <= newest:
            yield to_revision_row(entry)


def _read_indexes(_: PastSession, __: Connection, catalog: TenantCatalog) -> Iterator[SqlRow]:
    """How far they were built is not known."""
    for descriptor in catalog.tables.values():
        table = descriptor.schema
        for one in table.indexes:
            components = describe_components(table, one)
            yield (table.name, one.name, one.number, components, one.unique, *[None] * 4)


_Read = Callable[[PastSession, Connection, TenantCatalog], Iterable[SqlRow]]
_READERS: Final[dict[str, _Read | None]] = {
    "zapdb_tables": None,
    "zapdb_fields": None,
    "zapdb_indexes": _read_indexes,
    "zapdb_migrations": _read_migrations,
    "zapdb_schema_history": _read_schema_history,
}
"""None: as of the present, from a catalog that has the tables of then."""
CATALOG_THEN: Final = tuple(_READERS)
"""The names of these relations."""
