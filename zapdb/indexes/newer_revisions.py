"""Records that a process with a newer schema changed while they were read.

Outside of transactions a page of records is read first, and their attachments when they are
decoded. If an attachment was deleted in between, the record is read again (see `StoredArchive`). It
may then have a revision that became active after the page was read. The catalog is read again for
that revision (rule 8), and the record is still converted to the schema of its page.
"""

from __future__ import annotations

from zapdb.activation import TenantCatalog, load_tenant_catalog
from zapdb.errors import TransactionConflict
from zapdb.migrations import Chain
from zapdb.records import Attachments, Conversion
from zapdb.schema import TableSchema
from zapdb.storage import ArchiveStatements, RecordStatements, Storage, TransactionMode


def compile_from_newer(
    storage: Storage, catalog: TenantCatalog, target: TableSchema, position: int, revision: int
) -> Conversion:
    """Compile the program from the layout of a revision that `catalog` lacks to the layout of its
    table `target` at `position`.

    Raises `KeyError` for a revision that no record can have now either, and `UnknownName` if the
    table was dropped. Raises `TransactionConflict` if the position was rolled back and its chain
    lacks the present revision of the records.
    """
    newer, number = _load_now(storage, catalog), target.number
    origin = newer.table_numbered(number, target.name).origins[revision]
    same = _common_end(catalog.chain, newer.chain)
    if position > same and origin > same:
        raise TransactionConflict(
            "the schema changed while the table was read",
            table=target.name,
            hint="run the query again, or run it inside db.snapshot()",
        )
    chain = newer.chain if position <= same else catalog.chain
    program = chain.program(number, origin, position, catalog.zones)
    if program.is_self_contained:
        return program
    records = RecordStatements(storage, number, catalog.tenant)
    archives, convert = ArchiveStatements(records, chain.archived_fields(number)), program.convert

    def convert_from_newer(
        key: bytes, value: bytes, start: int, prefix: bytes, attachments: Attachments
    ) -> bytes:
        # Archived fields may be missing in `catalog`.
        attachments.archive = archives.open(key, value)
        return convert(key, value, start, prefix, attachments)

    return Conversion(convert_from_newer, False, program.source)


def _load_now(storage: Storage, known: TenantCatalog) -> TenantCatalog:
    """What is active, as this thread's transaction sees it if it has one."""
    connection = storage.connection()
    if connection.mode is not None:
        return load_tenant_catalog(connection, known.tenant, known)
    with storage.transaction(TransactionMode.READ) as connection:  # all of it as of one moment
        return load_tenant_catalog(connection, known.tenant, known)


def _common_end(one: Chain, other: Chain) -> int:
    """The position up to which two chains are the same."""
    position = one.start
    if other.start != position:
        return 0
    for ours, theirs in zip(one.migrations, other.migrations, strict=False):
        if ours.digest != theirs.digest:
            break
        position = ours.number
    return position
