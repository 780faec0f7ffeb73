"""Tables without a schema history: restored without it, or made before there was one.

The earlier schemas of such a table are unknown. Its log begins anew with `recovered` entries: the
active schema, by the system, at an unknown time. The first entry's revision is the one that the
records have, since each record holds that number. If records have several revisions, the schemas of
these are unknown.

Later records are written under a revision that was never used. The lost log may have had higher
revisions, and with a reused one, data of that time, such as changes in the change log, would be
read with a schema that they never had (rule 1). A tenant's catalog version rises with every
transaction that appends to a log of the tenant, by at least one for each entry of a table. So no
revision was ever higher than it, and the next number is unused.

    load_or_recover          the tenant catalog, for opening; does nothing more if no log is missing
    recover_schema_history   the tables of one tenant
    recover_all_tenants      all tenants, in the background
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from typing import Final

from zapdb.activation.tenant_catalog import TenantCatalog, load_tenant_catalog
from zapdb.catalog import schema_history
from zapdb.catalog.principal import SYSTEM, acting_as
from zapdb.catalog.schema_history import KnownLayout
from zapdb.catalog.stored_migrations import (
    ChainPlace,
    StoredLines,
    list_stored,
    read_chain,
    read_chain_state,
    read_line,
)
from zapdb.catalog.tenants import list_tenants, read_tenant
from zapdb.catalog.zone_numbers import load_zones
from zapdb.errors import (
    CorruptCatalog,
    CorruptRecord,
    MissingSchemaHistory,
    UnknownName,
    UnknownZone,
    ZapdbError,
)
from zapdb.limits import PAGE_RECORDS_MAX
from zapdb.migrations import Chain
from zapdb.records import Attachments, codec_for, decode_prefix, group_by_revision
from zapdb.schema import TableSchema
from zapdb.storage import BlobStatements, Connection, Storage, TransactionMode
from zapdb.storage.cells import as_bytes, as_number
from zapdb.storage.data_tables import list_record_tables
from zapdb.storage.identities import count_of
from zapdb.storage.record_statements import RecordStatements
from zapdb.storage.statements import catalog_version_sql, raise_catalog_version

logger = logging.getLogger("zapdb.history")

RECOVERY_HINT: Final = (
    "restore zapdb_schema_history from a backup of the same moment as the records"
)


def load_or_recover(
    storage: Storage, tenant: int, known: TenantCatalog | None = None
) -> TenantCatalog:
    """Return the tenant catalog, loaded in a transaction of its own; begins missing logs.

    If logs of this tenant were missing, those of others may be, too: a background thread goes
    through all tenants.
    """
    try:
        return _load(storage, tenant, known)
    except MissingSchemaHistory:
        recover_schema_histories(storage, tenant)
        threading.Thread(
            target=_recover_in_background, args=(storage,), name="zapdb-recovery", daemon=True
        ).start()
        return _load(storage, tenant, known)


def _recover_in_background(storage: Storage) -> None:
    try:
        recover_all_tenants(storage, lambda: storage.pool.is_closed)
    except ZapdbError as error:  # the database was closed; the next opening of a tenant does it
        logger.info("recovering the histories of other tenants ended early: %s", error)
    finally:
        storage.release_connection()


def _load(storage: Storage, tenant: int, known: TenantCatalog | None) -> TenantCatalog:
    with storage.transaction(TransactionMode.READ) as connection:
        return load_tenant_catalog(connection, tenant, known)


def recover_schema_histories(storage: Storage, tenant: int) -> list[str]:
    """Call `recover_schema_history` with the migrations that are active for the tenant."""
    with storage.transaction(TransactionMode.READ) as connection:
        row = read_tenant(connection, tenant)
        position, chain = row.position, read_line(connection, row.migration)
    return recover_schema_history(storage, tenant, chain, position)


def recover_schema_history(storage: Storage, tenant: int, chain: Chain, position: int) -> list[str]:
    """Begin the missing logs of the tenant's tables; returns the names of these tables.

    Runs one query if no log is missing, and else a transaction of its own, which holds the gate
    while it reads records of these tables. Raises `CorruptCatalog`, with nothing written, if the
    records do not fit the active schema.
    """
    if not list_missing(storage.connection(), tenant, chain, position):
        return []
    with acting_as(SYSTEM), storage.transaction(TransactionMode.DDL) as connection:
        now = read_tenant(connection, tenant)
        is_there = ChainPlace(now.position, now.migration) == ChainPlace.on(chain, position)
        if not is_there or now.removing:
            return []  # its position has changed, which needs the logs
        missing = list_missing(connection, tenant, chain, position)
        begun = list(_begin_logs(connection, tenant, chain, position, missing))
        if begun:
            # Processes that know the lost log write under its revisions: they have to look again.
            raise_catalog_version(connection, tenant)
    for table in begun:
        logger.warning("the schema history of table %r was missing, and begins anew", table)
    return begun


def list_missing(
    connection: Connection, tenant: int, chain: Chain, position: int
) -> list[TableSchema]:
    """The tables at a position, active or archived, that have no log."""
    logged = schema_history.read_logged_tables(connection, tenant)
    schema = chain.schema_at(position)
    tables = [*schema, *(archived.table for archived in schema.archived)]
    return [table for table in tables if table.number not in logged]


def _begin_logs(
    connection: Connection, tenant: int, chain: Chain, position: int, tables: list[TableSchema]
) -> Iterator[str]:
    there = list_record_tables(connection) if tables else []
    # As many activations as a version counts: no revision is above that.
    unused = count_of(as_number(connection.fetch_one(catalog_version_sql(tenant))[0])) + 1
    for table in tables:
        if table.number not in there:
            if chain.schema_at(position).table_numbered(table.number) is None:
                continue  # archived, and what was archived is pruned
            raise CorruptCatalog(
                "a table has neither records nor a schema history",
                tenant=tenant,
                table=table.name,
                hint="restore the whole database from a backup",
            )
        layout = _find_revision(connection, tenant, table)
        place = ChainPlace.on(chain, position)
        made = schema_history.NewRevision(
            tenant, table, "recovered", place, KnownLayout(layout, layout)
        )
        for revision in _choose_revisions(layout, unused):
            schema_history.insert_revision(connection, made, revision, 0)
        yield table.name


def _choose_revisions(layout: int | None, unused: int) -> list[int]:
    """Those of the entries that a log begins with: the records', and one that is new."""
    return [unused] if layout is None else sorted({layout, max(layout, unused)})


def _find_revision(connection: Connection, tenant: int, table: TableSchema) -> int | None:
    """The one revision of the table's records; None where there are none."""
    records = RecordStatements(connection.storage, table.number, tenant)
    counts = group_by_revision(records.count_by_prefix(connection))
    if len(counts) > 1:
        raise CorruptCatalog(
            "a table has records of several revisions but no schema history that describes them",
            tenant=tenant,
            table=table.name,
            records=", ".join(
                f"{count} of {f'revision {r}' if r else 'none'}" for r, count in counts.items()
            ),
            hint=RECOVERY_HINT,
        )
    for revision in counts:
        _try_records(connection, records, tenant, table)
        return revision
    return None


def _try_records(
    connection: Connection, records: RecordStatements, tenant: int, table: TableSchema
) -> None:
    """Decode some records: records of another schema nearly always fail."""
    codec = codec_for(table, load_zones(connection))
    attachments = Attachments(
        BlobStatements(connection.storage).load, lambda: b""
    )  # nothing is written
    for raw_key, raw_value in connection.fetch_all(records.page_sql, (b"", PAGE_RECORDS_MAX)):
        key, value = as_bytes(raw_key), as_bytes(raw_value)
        try:
            codec.decode(key, value, decode_prefix(value, 0)[1], attachments)
        except UnknownZone:
            continue  # of a later release of the time zone data
        except CorruptRecord as error:
            raise CorruptCatalog(
                "a table has no schema history, and its records do not fit the active schema",
                tenant=tenant,
                table=table.name,
                record=key.hex()[:32],
                cause=error.context.get("what", error.message),
                hint=RECOVERY_HINT,
            ) from error


def recover_all_tenants(
    storage: Storage, should_stop: Callable[[], bool] = lambda: False
) -> dict[int, list[str]]:
    """Begin the missing logs of all tenants; returns the tables by tenant number.

    What can't be done for one tenant is logged, and does not keep the others from it.
    """
    with storage.transaction(TransactionMode.READ) as connection:
        tenants = list_tenants(connection)
        state = read_chain_state(connection)
        chain = read_chain(list_stored(connection, state))
    done, lines = {}, StoredLines(storage, state.value_keeping_ids)
    for tenant in tenants:
        if should_stop():
            break
        try:
            line = lines.find(ChainPlace(tenant.position, tenant.migration), chain)
            begun = recover_schema_history(storage, tenant.number, line, tenant.position)
        except UnknownName:
            continue  # it was removed meanwhile
        except ZapdbError as error:
            logger.warning("tenant %r has tables without a history: %s", tenant.name, error)
            continue
        if begun:
            done[tenant.number] = begun
    return done
