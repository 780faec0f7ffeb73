"""Erasing a record from the past for good: from the change log, archives and large values at once,
then from every file of the history store.

The first transaction takes the gate, so that nobody writes the record meanwhile. It deletes what
the database has, and stores the erasure with the record's key. From then on the rest can be done by
any process: the next one that follows the store goes on with it. The key is deleted at the end.

Of fields, the first transaction stores that they are to be erased, and `field_erasing` does it.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import msgspec

from zapdb.activation import TenantCatalog
from zapdb.activation.inspection import read_log
from zapdb.activation.record_layouts import load_layouts
from zapdb.catalog.retired_tables import list_retired, sweep_retired
from zapdb.catalog.schema_events import append_erasure_event, append_field_erasure_events
from zapdb.catalog.schema_history import REVISIONS
from zapdb.errors import (
    CorruptCatalog,
    CorruptRecord,
    HistoryBehind,
    UnknownField,
    UsageError,
)
from zapdb.jobs.blob_sweep import sweep_blobs
from zapdb.jobs.erased_keys import forget_key
from zapdb.log.change_log import BEGINNING, Bookmark
from zapdb.log.logged_versions import (
    delete_versions,
    find_place_before,
    is_changed_behind,
    list_versions_of,
)
from zapdb.log.stamps import add_stamp
from zapdb.past.files.erased_files import finish_erasures
from zapdb.past.files.field_erasing import list_archived_large, list_blobs_of
from zapdb.past.files.history_erasures import (
    Erasure,
    ErasureProof,
    LoggedChanges,
    digest_key,
    insert_erasure,
)
from zapdb.past.files.history_manifest import list_timelines
from zapdb.past.files.stores import take_over_store
from zapdb.past.files.working_store import FOLLOWER, StoreWriter
from zapdb.records import OwnedBlobs, codec_for, decode_prefix, group_by_revision
from zapdb.records.archive_cells import large_fields
from zapdb.schema import Field, TableSchema
from zapdb.storage import (
    BlobStatements,
    Connection,
    RecordStatements,
    Storage,
    TransactionMode,
)
from zapdb.storage.archives import take_archived_of
from zapdb.storage.cells import as_text
from zapdb.storage.data_tables import list_record_tables

logger = logging.getLogger("zapdb.history")


@dataclass(frozen=True, slots=True)
class ErasureTarget:
    """A table from which a record is erased; one that was dropped has no `active` descriptor."""

    schema: TableSchema
    large: Mapping[int, Field]
    """The fields that it ever had and that may have large values, by cell."""
    is_active: bool

    @property
    def number(self) -> int:
        return self.schema.number


def find_erasure_target(connection: Connection, catalog: TenantCatalog, name: str) -> ErasureTarget:
    """Return the table of a name, else the last one that had it; raises `UnknownName`."""
    log = read_log(connection, catalog.tenant, name)
    large = large_fields(entry.schema for entry in log)
    schema = log[-1].schema
    number = schema.number
    active = catalog.find_numbered(number)
    if active is not None:
        schema = active.schema
    return ErasureTarget(schema, large, active is not None)


def begin_erasure(working: StoreWriter, table: ErasureTarget, key: bytes) -> Erasure:
    """Delete a record's past from the database, and store what is left to be done in files.

    Raises `UsageError` while the record exists, or a follower of the change log has not read its
    last change.
    """
    with working.changing(TransactionMode.DDL) as connection:
        _require_gone(connection, working, table, key)
        _require_read(connection, working, table, key)
        now = working.storage.now_us(connection)
        made = Erasure.make(working.tenant, table.number, key, (), now)
        proof, counted = _delete(connection, working, table, key)
        erasure = replace(made, proof=proof, counted=counted)
        _hide_in_bookmarks(connection, working, table, key)
        forget_key(connection, working.tenant, table.number, key)
        append_erasure_event(connection, working.tenant, table.number, erasure.key_sha256)
        insert_erasure(connection, erasure)
    return erasure


@dataclass(frozen=True, slots=True)
class HistoryErasure:
    """The proof of an erasure: what was looked at and deleted.

    `key_sha256` is that of `id` and the record's key, by which the erasure can be found again; None
    for all records. `changes` were deleted from the change log, `archived_values` and
    `large_values` from the database. Where `fields` were erased, `records` had past values of them,
    and the changes and rows stay without these. Of `files_searched` files of the history store,
    `files_rewritten` were written anew without `rows` of their rows; `files_deleted` are the former
    ones, and those of killed work. `examples` were in the findings of the tenant's jobs, which keep
    their counts. `large_values_swept` had no owner any more, and may have been of what was erased.
    `not_reached` says where it may still be.
    """

    table: str
    fields: tuple[str, ...]
    id: str
    key_sha256: str | None
    records: int
    changes: int
    archived_values: int
    large_values: int
    files_searched: int
    files_rewritten: int
    rows: int
    files_deleted: int
    examples: int
    not_reached: tuple[str, ...]
    large_values_swept: int = 0


PRESENT: Final = "what the records have now, which is not the past"
COPIES: Final = "exports, mirrors and backups that were made before"
UNOWNED: Final = (
    "large values of changes that were pruned or not logged, until `zapdb sweep --older-than 0s`"
)
FORMER: Final = "the former directory of the history store, unless it was deleted: {}"
RETIRED: Final = "entries of replaced indexes, until nothing reads them and a database is opened"
NOT_REACHED: Final = {
    "sqlite": "free pages of the database file and its log, until VACUUM",
    "postgresql": "dead rows, until VACUUM; archived WAL, and replicas",
}


def erase_record(
    storage: Storage, tenant: int, name: str, key: Sequence[Any], *, now: bool = False
) -> HistoryErasure:
    """Erase a record of a table from the past, by its key's values; see `begin_erasure`.

    With `now`, files are deleted that readers have pinned. Raises `LeaseHeld` if the follower of
    the store does not pause, and what is in the way of the files: then the erasure is finished by
    who follows next.
    """
    with take_over_store(storage, tenant) as working:
        with storage.transaction(TransactionMode.READ) as connection:
            catalog = working.load_catalog(connection)
            table = find_erasure_target(connection, catalog, name)
        begun = begin_erasure(working, table, _encode_key(catalog, table, key))
        done = next(e for e in finish_erasures(working, now=now) if e.id == begun.id)
    return _make_proof(storage, table, done, table.large)


def erase_fields(
    storage: Storage,
    tenant: int,
    name: str,
    fields: Sequence[str],
    key: Sequence[Any] | None,
    *,
    now: bool = False,
) -> HistoryErasure:
    """Erase the past values of fields of one record, by its key's values, or of all records; see
    `begin_field_erasure`, and `erase_record` for the rest."""
    with take_over_store(storage, tenant) as working:
        with storage.transaction(TransactionMode.READ) as connection:
            working.load_in(connection)
            catalog = working.load_catalog(connection)
            table = find_erasure_target(connection, catalog, name)
        numbers = _find_fields(working, table, fields)
        encoded = None if key is None else _encode_key(catalog, table, key)
        begun = begin_field_erasure(working, table, numbers, encoded)
        done = next(e for e in finish_erasures(working, now=now) if e.id == begun.id)
    large = [field for field in table.large.values() if field.number in numbers]
    proof = _make_proof(storage, table, done, large)
    return replace(proof, fields=tuple(fields), not_reached=(PRESENT, *proof.not_reached))


def sweep_unowned(storage: Storage, proof: HistoryErasure) -> HistoryErasure:
    """Delete the large values that nothing owns, if some may be of what was erased; return what
    the proof is then. A record that can't be read may own any of them: then they stay."""
    if UNOWNED not in proof.not_reached:
        return proof
    try:
        swept = sweep_blobs(storage, older_than_seconds=0)
    except (CorruptRecord, CorruptCatalog) as error:
        logger.warning("large values that may have been erased are not swept: %s", error)
        return proof
    left = tuple(place for place in proof.not_reached if place != UNOWNED)
    return replace(proof, not_reached=left, large_values_swept=swept.deleted)


def _make_proof(
    storage: Storage, table: ErasureTarget, done: Erasure, large: Collection[object]
) -> HistoryErasure:
    sweep_retired(storage)
    connection, tenant = storage.connection(), done.tenant
    former = {d for one in list_timelines(connection, tenant) for d in one.former_directories}
    places = [COPIES, *(FORMER.format(directory) for directory in sorted(former))]
    if large:
        places.append(UNOWNED)
    if any(one.tenant == tenant for one in list_retired(connection)):
        places.append(RETIRED)
    is_one = done.key_sha256 != digest_key(done.id, b"")
    return HistoryErasure(
        table=table.schema.name,
        fields=(),
        id=done.id,
        key_sha256=done.key_sha256.hex() if is_one else None,
        not_reached=(*places, NOT_REACHED[storage.dialect.name]),
        **msgspec.structs.asdict(done.proof),
    )


def _find_fields(
    working: StoreWriter, table: ErasureTarget, names: Sequence[str]
) -> tuple[int, ...]:
    """Return the numbers of fields by the names that they have, or else had last. Raises
    `UnknownField`, and `UsageError` for fields of the key."""
    known = dict[str, int]()
    for entry in working.revisions.list_of(table.number):
        known |= {f.name: f.number for f in working.revisions.schema_of(entry).fields}
    known |= {f.name: f.number for f in table.schema.fields}
    for name in names:
        if name not in known:
            raise UnknownField.named(table.schema.name, name, sorted(known))
        if known[name] in table.schema.key:
            raise UsageError(
                "a field of the key can't be erased",
                table=table.schema.name,
                field=name,
                hint="erase the whole record, when it is deleted; or name other fields",
            )
    return tuple(sorted({known[name] for name in names}))


def begin_field_erasure(
    working: StoreWriter, table: ErasureTarget, fields: tuple[int, ...], key: bytes | None
) -> Erasure:
    """Store that the past values of fields are to be erased, of one record or all.

    Raises `UsageError` while records of the table hold a dropped field, and `HistoryBehind` while
    the files lack a migration of the table.
    """
    with working.changing(TransactionMode.DDL) as connection:
        _require_converted(connection, working, table, fields, key)
        _require_followed(connection, working, table)
        now = working.storage.now_us(connection)
        erasure = Erasure.make(working.tenant, table.number, key, fields, now)
        append_field_erasure_events(
            connection, working.tenant, table.number, fields, erasure.key_sha256
        )
        insert_erasure(connection, erasure)
    return erasure


def _require_converted(
    connection: Connection,
    working: StoreWriter,
    table: ErasureTarget,
    fields: tuple[int, ...],
    key: bytes | None,
) -> None:
    """Raise `UsageError` if records still hold the values of a field that was dropped."""
    dropped = set(fields) - {field.number for field in table.schema.fields}
    if not dropped or not table.is_active:
        return
    records = RecordStatements(working.storage, table.number, working.tenant)
    if key is None:
        held = group_by_revision(records.count_by_prefix(connection))
    else:
        _, value = records.find(connection, key)
        held = {} if value is None else {decode_prefix(value, 0)[0]: 1}
    layouts = load_layouts(connection, working.tenant, table.number)
    if any(dropped & {slot.number for slot in layouts[revision].slots} for revision in held):
        raise UsageError(
            "records that are not converted yet hold values of a dropped field",
            table=table.schema.name,
            hint="convert them first: `zapdb convert run`, or db.admin.run_jobs()",
        )


def _require_followed(connection: Connection, working: StoreWriter, table: ErasureTarget) -> None:
    """Raise `HistoryBehind` if the table's files are still to be converted by a migration: it would
    be run on what is left of the values."""
    loaded = working.load_in(connection)
    if loaded is None or loaded.store.state == "broken":
        return
    later = working.moments.find_later(connection, loaded.moment)
    events = ", ".join(f"'{event}'" for event in sorted(REVISIONS))
    found = connection.fetch_one(
        f"SELECT 1 FROM zapdb_changes WHERE tenant = {working.tenant}"
        f" AND table_number = {table.number} AND event IN ({events})"
        f" AND {later('transaction_number')} LIMIT 1"
    )
    if found is not None:
        raise HistoryBehind(
            "a migration of the table is not in the files of the history store yet",
            table=table.schema.name,
            hint="nothing was erased; run `zapdb history flush` first",
        )


def _encode_key(catalog: TenantCatalog, table: ErasureTarget, key: Sequence[Any]) -> bytes:
    names = [field.name for field in table.schema.key_fields]
    if len(key) != len(names):
        raise UsageError(
            "a record is erased by all fields of its key",
            table=table.schema.name,
            key=", ".join(names),
            given=len(key),
            hint=f"give {', '.join(names)}, in this order",
        )
    codec = codec_for(table.schema, catalog.zones)
    return codec.encode_key(dict(zip(names, key, strict=True)))


def _require_gone(
    connection: Connection, working: StoreWriter, table: ErasureTarget, key: bytes
) -> None:
    if not table.is_active:
        return
    records = RecordStatements(working.storage, table.number, working.tenant)
    if records.has(connection, key)[1]:
        raise UsageError(
            "the record is still in the table",
            table=table.schema.name,
            hint="delete it first: what is there can't be erased from the past",
        )


def _require_read(
    connection: Connection, working: StoreWriter, table: ErasureTarget, key: bytes
) -> None:
    """Raise `UsageError` for followers that would never hear that the record was deleted."""
    log, moments = working.log, working.moments
    if log.needs_stamp(connection):
        add_stamp(connection, working.tenant)
    behind = [
        name
        for name, place in _list_bookmarks(connection, working.tenant)
        if name not in (BEGINNING, FOLLOWER)
        and is_changed_behind(connection, moments, place, table.number, key)
    ]
    if behind:
        raise UsageError(
            "some followers of the change log have not read the last changes of the record",
            table=table.schema.name,
            followers=", ".join(behind),
            hint="nothing was erased; let them catch up, or remove a dead one: `zapdb changes "
            f"remove-follower {behind[0]}`",
        )


def _list_bookmarks(connection: Connection, tenant: int) -> list[tuple[str, Bookmark]]:
    rows = connection.fetch_all(
        f"SELECT name, bookmark FROM zapdb_followers WHERE tenant = {int(tenant)} ORDER BY name"
    )
    return [(as_text(name), Bookmark.stored(text)) for name, text in rows]


def _hide_in_bookmarks(
    connection: Connection, working: StoreWriter, table: ErasureTarget, key: bytes
) -> None:
    """Put bookmarks directly behind a change of the record behind the one before, which is the
    same place now; a bookmark has the key of its change."""
    mark = working.storage.placeholder
    for name, place in _list_bookmarks(connection, working.tenant):
        if (place.table, place.key) == (table.number, key):
            hidden = find_place_before(connection, working.log, place)
            connection.run(
                f"UPDATE zapdb_followers SET bookmark = {mark}"
                f" WHERE tenant = {working.tenant} AND name = {mark}",
                (str(hidden), name),
            )


def _delete(
    connection: Connection, working: StoreWriter, table: ErasureTarget, key: bytes
) -> tuple[ErasureProof, LoggedChanges]:
    """Delete what the database has of a record that is not in its table any more; return what that
    was, and the changes that moments count."""
    tenant, number = working.tenant, table.number
    owned = OwnedBlobs(load_layouts(connection, tenant, number))
    blobs, counted = set[bytes](), LoggedChanges()
    for page in list_versions_of(connection, tenant, number, key):
        for transaction, change in page:
            counted.add(transaction, change.before, change.after)
            blobs |= list_blobs_of(change, owned, table.large)
    changes = delete_versions(connection, tenant, number, key)
    archived = take_archived_of(connection, tenant, number, key)
    blobs |= list_archived_large(archived, table.large)
    kept = _take_archived_record(connection, working, table, key)
    blobs |= {blob for value in kept for blob, _ in owned.find(value)}
    statements = BlobStatements(working.storage)
    proof = ErasureProof(
        changes=changes,
        archived_values=len(archived) + len(kept),
        large_values=sum(statements.delete(connection, blob) for blob in sorted(blobs)),
    )
    return proof, counted


def _take_archived_record(
    connection: Connection, working: StoreWriter, table: ErasureTarget, key: bytes
) -> list[bytes]:
    """Delete the record from a table that was dropped, and whose records were kept; return it."""
    if table.is_active or table.number not in list_record_tables(connection):
        return []
    records = RecordStatements(working.storage, table.number, working.tenant)
    _, found = records.find(connection, key)
    if found is None:
        return []
    records.delete_many(connection, [key])
    return [found]
