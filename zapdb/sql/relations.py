"""The catalog as SQL sees it: relations under reserved names, their columns decoded (rule 30).

They show what is of the tenant whose database is asked, and what all tenants share: migrations, and
settings of the whole database. Other tenants and the processes that have the database open are not
in them: who may ask a statement is not who runs the database. They never contain stored bytes
(structures, snapshots, records, blobs).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow
import sqlalchemy as sa

from zapdb.activation import TenantCatalog
from zapdb.catalog.row_kinds import (
    ChainState,
    DatabaseRow,
    EntryTableRow,
    FindingsRow,
    LevelRow,
    NodeRow,
    SettingRow,
    Tenant,
    TenantNameRow,
)
from zapdb.catalog.schema_history import RevisionEntry, format_fingerprint, read_entries
from zapdb.catalog.settings import ANY
from zapdb.catalog.stored_migrations import STORED
from zapdb.catalog.stored_settings import read_settings
from zapdb.catalog.tenants import list_tenants
from zapdb.jobs.job import list_jobs, read_progress, tenant_of_job
from zapdb.schema import Index, TableSchema, fingerprint
from zapdb.storage import Connection
from zapdb.storage.fixed_tables import CATALOG, MIGRATIONS
from zapdb.values import Boolean, Integer, Json, String, Timestamp, ValueType

SqlRow = Sequence[Any]

INTEGER, TEXT, BOOLEAN, TIME, JSON = Integer(), String(), Boolean(), Timestamp(), Json()
ARROW: Final[dict[ValueType, Any]] = {
    INTEGER: pyarrow.int64(),
    TEXT: pyarrow.string(),
    BOOLEAN: pyarrow.bool_(),
    TIME: pyarrow.timestamp("us", "UTC"),
    JSON: pyarrow.string(),
}


@dataclass(frozen=True)
class Relation:
    """`read` gives the rows as of the connection's transaction; times in microseconds, JSON as
    plain data."""

    name: str
    says: str
    columns: dict[str, ValueType]
    read: Callable[[Connection, TenantCatalog], Iterable[SqlRow]]

    def to_arrow(self, connection: Connection, catalog: TenantCatalog) -> Any:
        """The rows as a `pyarrow.Table`."""
        rows = list(self.read(connection, catalog))
        arrays = []
        for at, kind in enumerate(self.columns.values()):
            values = [row[at] for row in rows]
            if kind is JSON:
                values = [None if v is None else json.dumps(v, sort_keys=True) for v in values]
            arrays.append(pyarrow.array(values, ARROW[kind]))
        schema = pyarrow.schema([(name, ARROW[kind]) for name, kind in self.columns.items()])
        return pyarrow.Table.from_arrays(arrays, schema=schema)


def _read_migrations(connection: Connection, catalog: TenantCatalog) -> Iterable[SqlRow]:
    columns = MIGRATIONS.c
    query = sa.select(
        columns.number,
        columns.name,
        columns.summary,
        columns.state,
        columns.digest,
        columns.stored_at,
        columns.stored_by,
        columns.rolled_back_at,
        columns.rolled_back_by,
    )
    for row in connection.core_execute(query.order_by(columns.id)).fetchall():
        is_active = row.state == STORED and row.number <= catalog.position
        yield (*row[:4], is_active, *row[4:])


def _read_schema_history(connection: Connection, catalog: TenantCatalog) -> Iterable[SqlRow]:
    digests = read_digests(connection)
    return (to_revision_row(one, digests) for one in read_entries(connection, catalog.tenant))


def read_digests(connection: Connection) -> dict[int, str]:
    """The digests of all migrations ever stored, by id."""
    columns = MIGRATIONS.c
    found = connection.core_execute(sa.select(columns.id, columns.digest))
    return {row.id: row.digest for row in found}


def to_revision_row(entry: RevisionEntry, digests: Mapping[int, str]) -> SqlRow:
    """A row of `zapdb_schema_history`, with the digest of the migration."""
    return (
        entry.table_number,
        entry.schema.name,
        entry.revision,
        entry.event,
        format_fingerprint(entry.fingerprint),
        entry.migrated_at,
        entry.migrated_by,
        entry.position,
        digests.get(entry.migration, ""),
        entry.record_format,
        entry.layout_revision,
    )


def _read_tenants(connection: Connection, catalog: TenantCatalog) -> Iterable[SqlRow]:
    for tenant in list_tenants(connection):
        if tenant.number != catalog.tenant:
            continue
        yield (
            tenant.number,
            tenant.name,
            tenant.position,
            tenant.created_at,
            tenant.created_by,
            tenant.removing,
        )


def _read_tables(connection: Connection, catalog: TenantCatalog) -> Iterable[SqlRow]:
    for descriptor in catalog.tables.values():
        table = descriptor.schema
        yield (
            table.name,
            table.number,
            [field.name for field in table.key_fields],
            descriptor.revision,
            descriptor.layout_revision,
            format_fingerprint(fingerprint(table)),
        )


def _read_fields(connection: Connection, catalog: TenantCatalog) -> Iterable[SqlRow]:
    for descriptor in catalog.tables.values():
        table = descriptor.schema
        for field in table.fields:
            is_key = field.number in table.key
            yield (
                table.name,
                field.name,
                field.number,
                str(field.type),
                table.key.index(field.number) + 1 if is_key else None,
                field.optional,
                field.generated,
                field.has_default,
                field.plain_default if field.has_default else None,
            )


def _read_indexes(connection: Connection, catalog: TenantCatalog) -> Iterable[SqlRow]:
    for descriptor in catalog.tables.values():
        for index in descriptor.indexes:
            yield (
                descriptor.schema.name,
                index.index.name,
                index.index.number,
                describe_index_columns(descriptor.schema, index.index),
                index.index.unique,
                index.state,
                index.is_mismatched,
                index.entry_table,
                index.key_format,
            )


def describe_index_columns(table: TableSchema, index: Index) -> list[dict[str, Any]]:
    """What an index has of its table, as plain data."""
    return [
        {
            "field": table.field_numbered(component.field).name,
            "collation": None if component.collation is None else str(component.collation),
            "descending": component.descending,
        }
        for component in index.components
    ]


def _read_constraints(connection: Connection, catalog: TenantCatalog) -> Iterable[SqlRow]:
    for descriptor in catalog.tables.values():
        for constraint in descriptor.constraints:
            yield descriptor.schema.name, constraint.kind, constraint.name, constraint.state


def _read_jobs(connection: Connection, catalog: TenantCatalog) -> Iterable[SqlRow]:
    names = {tenant.number: tenant.name for tenant in list_tenants(connection)}
    for job in list_jobs(connection, catalog.tenant):
        progress = read_progress(connection, job.id)
        yield (
            job.id,
            job.kind,
            names.get(job.tenant),
            job.table_name,
            job.state,
            job.records,
            progress.read,
            progress.written,
            progress.conflicts,
            progress.ranges,
            progress.ranges_done,
            job.created_at,
        )


def _read_settings(connection: Connection, catalog: TenantCatalog) -> Iterable[SqlRow]:
    schema = {descriptor.schema.number: descriptor.schema for descriptor in catalog.tables.values()}
    names = {tenant.number: tenant.name for tenant in list_tenants(connection)}
    for key, value in sorted(read_settings(connection, catalog.tenant).values.items()):
        tenant, table, field, name = key.split("/", 3)
        of = schema.get(int(table)) if table.isdigit() else None
        fields = {} if of is None else {str(f.number): f.name for f in of.fields}
        yield (
            name,
            value,
            names.get(int(tenant)) if tenant.isdigit() else None,
            None if of is None else of.name,
            fields.get(field),
        )


def _read_catalog(connection: Connection, catalog: TenantCatalog) -> Iterable[SqlRow]:
    columns = CATALOG.c
    query = sa.select(columns.kind, columns.key, columns.seq, columns.value)
    query = query.where(columns.value.is_not(None)).order_by(columns.kind, columns.key)
    for kind, key, seq, value in connection.core_execute(query).fetchall():
        found = json.loads(value)
        if _is_for(catalog.tenant, kind, found):
            yield kind, key, seq, found


SHARED: Final = {DatabaseRow.KIND, LevelRow.KIND, ChainState.KIND, EntryTableRow.KIND}
"""The kinds of rows that are of no tenant, and of no process."""


def _is_for(tenant: int, kind: str, found: dict[str, Any]) -> bool:
    """Whether a tenant may see a row: of a kind that is not known here, none."""
    match kind:
        case Tenant.KIND | TenantNameRow.KIND:
            return bool(found["number"] == tenant)
        case FindingsRow.KIND:
            return tenant_of_job(found["job"]) == tenant
        case SettingRow.KIND:
            return found["scope"].partition("/")[0] in (ANY, str(tenant))
        case NodeRow.KIND:
            return False
    return kind in SHARED or found.get("tenant") == tenant


RELATIONS: Final[dict[str, Relation]] = {
    relation.name: relation
    for relation in (
        Relation(
            "zapdb_migrations",
            "Every migration ever stored; active where it is in force for the tenant.",
            {
                "number": INTEGER,
                "name": TEXT,
                "summary": TEXT,
                "state": TEXT,
                "active": BOOLEAN,
                "digest": TEXT,
                "stored_at": TIME,
                "stored_by": TEXT,
                "rolled_back_at": TIME,
                "rolled_back_by": TEXT,
            },
            _read_migrations,
        ),
        Relation(
            "zapdb_schema_history",
            "The schema history of the tenant's tables, the name as it was then.",
            {
                "table_number": INTEGER,
                "table_name": TEXT,
                "revision": INTEGER,
                "event": TEXT,
                "fingerprint": TEXT,
                "migrated_at": TIME,
                "migrated_by": TEXT,
                "position": INTEGER,
                "digest": TEXT,
                "record_format": INTEGER,
                "layout_revision": INTEGER,
            },
            _read_schema_history,
        ),
        Relation(
            "zapdb_tables",
            "The tables in force for the tenant.",
            {
                "name": TEXT,
                "number": INTEGER,
                "key": JSON,
                "revision": INTEGER,
                "layout_revision": INTEGER,
                "fingerprint": TEXT,
            },
            _read_tables,
        ),
        Relation(
            "zapdb_fields",
            "Their fields, in declared order.",
            {
                "table_name": TEXT,
                "name": TEXT,
                "number": INTEGER,
                "type": TEXT,
                "key_position": INTEGER,
                "optional": BOOLEAN,
                "generated": TEXT,
                "has_default": BOOLEAN,
                "default_value": JSON,
            },
            _read_fields,
        ),
        Relation(
            "zapdb_indexes",
            "Their indexes, with how far each is built.",
            {
                "table_name": TEXT,
                "name": TEXT,
                "number": INTEGER,
                "fields": JSON,
                "is_unique": BOOLEAN,
                "state": TEXT,
                "outdated": BOOLEAN,
                "entry_table": INTEGER,
                "key_format": INTEGER,
            },
            _read_indexes,
        ),
        Relation(
            "zapdb_constraints",
            "Their checks and references, with whether all records were looked at.",
            {"table_name": TEXT, "kind": TEXT, "name": TEXT, "state": TEXT},
            _read_constraints,
        ),
        Relation(
            "zapdb_tenants",
            "The tenant, and the number of the newest migration in force for it.",
            {
                "number": INTEGER,
                "name": TEXT,
                "position": INTEGER,
                "created_at": TIME,
                "created_by": TEXT,
                "removing": BOOLEAN,
            },
            _read_tenants,
        ),
        Relation(
            "zapdb_jobs",
            "The tenant's jobs, with how far they are.",
            {
                "id": TEXT,
                "kind": TEXT,
                "tenant": TEXT,
                "table_name": TEXT,
                "state": TEXT,
                "records": INTEGER,
                "records_read": INTEGER,
                "records_written": INTEGER,
                "conflicts": INTEGER,
                "ranges": INTEGER,
                "ranges_done": INTEGER,
                "created_at": TIME,
            },
            _read_jobs,
        ),
        Relation(
            "zapdb_settings",
            "What is set for the tenant, or for all; null where it is set for more.",
            {
                "name": TEXT,
                "value": TEXT,
                "tenant": TEXT,
                "table_name": TEXT,
                "field_name": TEXT,
            },
            _read_settings,
        ),
        Relation(
            "zapdb_catalog",
            "The rows of the catalog as they are stored, for what the others leave out: those of"
            " the tenant, and those that all tenants share.",
            {"kind": TEXT, "key": TEXT, "seq": INTEGER, "value": JSON},
            _read_catalog,
        ),
    )
}
