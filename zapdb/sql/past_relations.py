"""What SQL sees of a past beside its tables, and of all changes.

`zapdb_moments`, the versions of each table, the relations of the catalog as of then, and
`zapdb_audit`, a row for each field that a transaction changed. Rows are made batch by batch, so
memory does not grow with the log.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Any, Final

import pyarrow
import sqlalchemy as sa

from zapdb.activation import TableDescriptor, TenantCatalog
from zapdb.catalog.schema_history import read_entries
from zapdb.catalog.stored_migrations import STORED
from zapdb.past.reading.audit import AuditEntry, iterate_audit
from zapdb.past.reading.listing import MomentSummary, list_moments
from zapdb.past.reading.moment import find_newest_moment
from zapdb.past.reading.past_session import PastSession
from zapdb.past.reading.recorded import require_recorded
from zapdb.past.reading.schema_at import read_chain_at
from zapdb.records import Record
from zapdb.records.cell_format import to_plain
from zapdb.schema import TableSchema
from zapdb.sql.relations import (
    ARROW,
    INTEGER,
    JSON,
    TEXT,
    TIME,
    Relation,
    SqlRow,
    describe_index_columns,
    read_digests,
    to_revision_row,
)
from zapdb.storage import Connection
from zapdb.storage.fixed_tables import MIGRATIONS
from zapdb.tables.changes import find_newest_stamp, open_log
from zapdb.tables.session import Session
from zapdb.values import ValueType


def read_relation_at(session: PastSession, connection: Connection, relation: Relation) -> Any:
    """Return the rows of a relation as a `pyarrow.Table`; raises `HistoryNotStored`."""
    then = session.then
    tables = {
        name: TableDescriptor(one.schema, one.revision, one.layout_revision, {}, {}, ())
        for name, one in then.tables.items()
    }
    catalog = replace(
        session.catalog, position=then.position, migration=then.migration, tables=tables
    )
    read = _READERS[relation.name]
    if read is not None:
        relation = replace(relation, read=partial(read, session))
    return relation.to_arrow(connection, catalog)


def _read_migrations(
    session: PastSession, connection: Connection, _: TenantCatalog
) -> Iterator[SqlRow]:
    """Those that were active."""
    at = MIGRATIONS.c
    query = sa.select(at.id, at.stored_at, at.stored_by)
    stored = {id: when for id, *when in connection.core_execute(query).fetchall()}
    for one in read_chain_at(connection, session.catalog, session.then).migrations:
        when = stored[one.id]
        yield (one.number, one.name, one.summary, STORED, True, one.digest, *when, None, None)


def _read_schema_history(
    session: PastSession, connection: Connection, catalog: TenantCatalog
) -> Iterator[SqlRow]:
    """What there was of it: tables that had been dropped by then included."""
    revisions = {one.schema.number: one.revision for one in session.then.tables.values()}
    digests = read_digests(connection)
    for entry in read_entries(connection, catalog.tenant):
        newest = revisions.get(entry.table_number)
        is_earlier = entry.migrated_at <= session.moment.visible_at
        if is_earlier if newest is None else entry.revision <= newest:
            yield to_revision_row(entry, digests)


def _read_indexes(_: PastSession, __: Connection, catalog: TenantCatalog) -> Iterator[SqlRow]:
    """How far they were built is not known."""
    for descriptor in catalog.tables.values():
        table = descriptor.schema
        for one in table.indexes:
            components = describe_index_columns(table, one)
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


MOMENTS: Final = "zapdb_moments"
VERSIONS: Final = "zapdb_versions_"
"""What the names of relations with all versions of a table begin with."""
MOMENTS_COLUMNS: Final[dict[str, ValueType]] = {
    "moment": INTEGER,
    "visible_at": TIME,
    "made_at": TIME,
    "principal": TEXT,
    "inserted": INTEGER,
    "updated": INTEGER,
    "deleted": INTEGER,
    "events": INTEGER,
    "bookmark": TEXT,
}
BATCH_ROWS: Final = 2_000


def list_past_relations(session: PastSession) -> list[str]:
    """Return the names of the relations of a past."""
    return [MOMENTS, *CATALOG_THEN, *(VERSIONS + name for name in session.table_names)]


class MomentsSource:
    """The moments up to that of a past, newest first, as far as they are known."""

    def __init__(self, session: PastSession) -> None:
        self._session = session

    @property
    def schema(self) -> Any:
        return pyarrow.schema([(name, ARROW[kind]) for name, kind in MOMENTS_COLUMNS.items()])

    def read(self, names: Sequence[str]) -> Iterator[Any]:
        """Raises what listing moments raises."""
        wanted = pyarrow.schema([self.schema.field(name) for name in names])
        places = [list(MOMENTS_COLUMNS).index(name) for name in names]
        session, until = self._session, self._session.moment.number
        found = list_moments(session, None, until, None, None)
        if until == find_newest_moment(session).number:  # it asks for what comes after that, too
            found = require_recorded(session, found)
        moments = map(_to_row, found)
        while page := list(islice(moments, BATCH_ROWS)):
            arrays = [
                pyarrow.array([row[at] for row in page], field.type)
                for at, field in zip(places, wanted, strict=True)
            ]
            yield pyarrow.RecordBatch.from_arrays(arrays, schema=wanted)


def _to_row(made: MomentSummary) -> tuple[Any, ...]:
    counts = (
        sum(getattr(one, name) for one in made.changes)
        for name in ("inserted", "updated", "deleted", "events")
    )
    times = made.number, made.visible_at, made.made_at
    return (*times, made.principal, *counts, str(made.bookmark))


AUDIT: Final = "zapdb_audit"
AUDIT_COLUMNS: Final[dict[str, ValueType]] = {
    "moment": INTEGER,
    "made_at": TIME,
    "visible_at": TIME,
    "principal": TEXT,
    "table_name": TEXT,
    "key": JSON,
    "operation": TEXT,
    "field": TEXT,
    "before": JSON,
    "after": JSON,
}
AuditRow = tuple[Any, ...]


def give_stamps(session: Session) -> None:
    """Let the log tell all changes until now; raises `UsageError` inside a writing transaction."""
    find_newest_stamp(session, open_log(session))


class AuditSource:
    """All changes of the log, field by field, as of this thread's snapshot."""

    def __init__(self, session: Session) -> None:
        self._session = session

    @property
    def schema(self) -> Any:
        return pyarrow.schema([(name, ARROW[kind]) for name, kind in AUDIT_COLUMNS.items()])

    def read(self, names: Sequence[str]) -> Iterator[Any]:
        """Raises what reading the change log raises."""
        places = [list(AUDIT_COLUMNS).index(name) for name in names]
        wanted = pyarrow.schema([self.schema.field(name) for name in names])
        entries = require_recorded(self._session, iterate_audit(self._session))
        rows = (row for entry in entries for row in _list_rows(entry))
        while page := list(islice(rows, BATCH_ROWS)):
            arrays = [
                pyarrow.array([row[at] for row in page], field.type)
                for at, field in zip(places, wanted, strict=True)
            ]
            yield pyarrow.RecordBatch.from_arrays(arrays, schema=wanted)


def _list_rows(entry: AuditEntry) -> Iterator[AuditRow]:
    schema = entry.schema_after or entry.schema_before
    key = None
    if schema is not None:
        key = json.dumps(list(map(to_plain, schema.key_fields, entry.key)), sort_keys=True)
    row = (
        entry.moment.number,
        entry.made_at,
        entry.moment.visible_at,
        entry.principal,
        entry.table,
        key,
        entry.operation,
    )
    numbers = {} if schema is None else {one.name: one.number for one in schema.fields}
    for name in entry.fields:
        number = numbers.get(name)
        before = _show(entry.schema_before, entry.before, number)
        yield (*row, name, before, _show(entry.schema_after, entry.after, number))
    if not entry.fields:
        yield (*row, None, None, None)


def _show(schema: TableSchema | None, record: Record | None, number: int | None) -> str | None:
    """Return the value of a field as JSON; None where there is no record, and no such field."""
    if schema is None or record is None:
        return None
    field = next((one for one in schema.fields if one.number == number), None)
    return None if field is None else json.dumps(to_plain(field, getattr(record, field.name)))
