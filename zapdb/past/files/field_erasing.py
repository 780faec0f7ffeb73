"""Erasing the past values of fields from the database: from the change log, archived values and
large values.

The records stay, with the values that they have now. So that what is rewound finds the erased
values and not those, each record gets a change of its own: from what is left of the past to what it
is now. It is of a later moment than all that the files have: there, all rows lose the values. A
record that is not converted yet is converted before, so that its change is one of the table's
layout: changes of another one belong to no era.

An erased value reads as null; as the neutral value of its type, if the field was ever required.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace
from typing import Any, Final

import msgspec

from zapdb.activation import TenantCatalog
from zapdb.activation.record_layouts import load_layouts
from zapdb.catalog import principal
from zapdb.catalog.schema_history import RevisionEntry, is_on_chain
from zapdb.errors import CorruptRecord
from zapdb.log.logged_versions import (
    list_logged_keys,
    list_logged_revisions,
    list_versions_of,
    replace_version,
)
from zapdb.log.pending_changes import LoggedChange, append_change
from zapdb.past.files.history_erasures import Erasure, write_proof
from zapdb.past.files.working_store import StoreWriter
from zapdb.records import (
    Attachments,
    Conversion,
    ConversionPlan,
    Layout,
    OwnedBlobs,
    compile_conversion,
    decode_prefix,
    decode_unreadable,
    encode_prefix,
    encode_unreadable,
)
from zapdb.records.archive_cells import (
    cells_of,
    decode_archive,
    large_fields,
    list_archived_blobs,
    without_cells,
)
from zapdb.records.derivation import Constant, Derivation, SourceField, restored_in
from zapdb.schema import Field
from zapdb.storage import BlobStatements, Connection, RecordStatements, TransactionMode
from zapdb.storage.archives import take_archived_of
from zapdb.storage.cells import as_bytes
from zapdb.storage.data_tables import list_record_tables
from zapdb.storage.identifiers import make_uuid7
from zapdb.tables.indexes import BoundTable
from zapdb.tables.writes import BatchConversion, convert_records
from zapdb.values.blob import is_blob, read_blob

KEYS_PER_TRANSACTION: Final = 200
"""So many records are done in one transaction, which nobody can write beside."""


def erase_from_database(working: StoreWriter, erasure: Erasure) -> Erasure:
    """Erase fields as far as that is not done, some records in each transaction; returns the
    erasure as it is stored then."""
    while erasure.resume_after is not None:
        with working.changing(TransactionMode.DDL) as connection:
            catalog = working.load_catalog(connection)
            eraser = _FieldEraser(connection, working, catalog, erasure)
            keys = eraser.list_keys()
            for key in keys:
                eraser.erase(key)
            is_end = erasure.key is not None or len(keys) < KEYS_PER_TRANSACTION
            erasure = replace(
                erasure, proof=eraser.proof, resume_after=None if is_end else keys[-1]
            )
            write_proof(connection, erasure)
    return erasure


def find_erased_value(field: Field, entries: list[RevisionEntry]) -> Any:
    """Return what an erased value of a field reads as, by all entries of its table."""
    same = [f for entry in entries for f in entry.schema.fields if f.number == field.number]
    if all(f.optional for f in same):
        return None
    neutral = field.type.neutral()
    return "" if neutral is None else neutral  # of JSON, whose null would be no value


def list_blobs_of(change: LoggedChange, owned: OwnedBlobs, large: Collection[int]) -> set[bytes]:
    """Return the large values of a logged change; `large` are the cells that may have some."""
    logged = {blob for value in change[:2] if value for blob, _ in owned.find_logged(value)}
    archives = (decode_archive(cell) for cell in change[2:])
    return logged | {blob for one in archives for blob in list_archived_blobs(one, large)}


def list_archived_large(
    archived: Iterable[tuple[int, bytes]], large: Collection[int]
) -> set[bytes]:
    """Return the large values among archived values, which come with their cells."""
    return {
        read_blob(value, 0)[0][0] for cell, value in archived if cell in large and is_blob(value)
    }


class _Values:
    """Takes the values of fields out of stored records, whatever their revision."""

    def __init__(
        self,
        connection: Connection,
        working: StoreWriter,
        catalog: TenantCatalog,
        erasure: Erasure,
    ) -> None:
        self._connection, self._working, self._catalog = connection, working, catalog
        table = self._table = erasure.table_number
        self._fields = erasure.fields
        self.added = set[bytes]()
        """The large values that conversions made, which may be those that are erased."""
        self._entries = working.revisions.list_of(table)
        self._programs = dict[int, Conversion | None]()
        self._ways = dict[tuple[int, int], Conversion | None]()

    def erase(self, key: bytes, value: bytes, at: int | None = None) -> bytes:
        """Return a record without its values, or the same; in the layout of revision `at`, if that
        is given: what a migration made of the values stays. Raises `CorruptRecord`."""
        revision, _ = decode_prefix(value, 0)
        if at is not None and at != revision:
            way = self._find_way(revision, at)
            if way is not None:
                value, revision = self._run(way, key, value, at), at
        program = self._find_program(revision, value)
        return value if program is None else self._run(program, key, value, revision)

    def has_any(self, value: bytes) -> bool:
        """Whether a record's layout has one of the fields."""
        return self._find_program(decode_prefix(value, 0)[0], value) is not None

    def _run(self, program: Conversion, key: bytes, value: bytes, revision: int) -> bytes:
        attachments = Attachments(self._working.blobs.load, make_uuid7)
        _, start = decode_prefix(value, 0)
        made = program.convert(key, value, start, encode_prefix(revision), attachments)
        if attachments.blobs:
            self._working.blobs.insert(self._connection, attachments.blobs)
            self.added |= attachments.blobs.keys()
        return made

    def _find_program(self, revision: int, value: bytes) -> Conversion | None:
        if revision not in self._programs:
            entry = self._working.revisions.find(self._table, revision)
            if entry is None:
                raise CorruptRecord.at(f"record of the unknown revision {revision}", value, 0)
            self._programs[revision] = self._compile(entry)
        return self._programs[revision]

    def _compile(self, entry: RevisionEntry) -> Conversion | None:
        schema, zones = self._working.revisions.schema_of(entry), self._catalog.zones
        made = dict[int, Derivation]()
        for field in schema.value_fields:
            made[field.number] = SourceField(field.number)
            if field.number in self._fields:
                made[field.number] = Constant(find_erased_value(field, self._entries))
        if all(isinstance(one, SourceField) for one in made.values()):
            return None
        layout = Layout.of(schema, zones)
        keys: dict[int, Derivation] = {f.number: SourceField(f.number) for f in schema.key_fields}
        return compile_conversion(layout, layout, ConversionPlan(keys | made), zones=zones)

    def _find_way(self, earlier: int, later: int) -> Conversion | None:
        """Return the program between two revisions, if it changes bytes and takes nothing from the
        archive."""
        if (earlier, later) not in self._ways:
            self._ways[earlier, later] = self._compile_way(earlier, later)
        return self._ways[earlier, later]

    def _compile_way(self, earlier: int, later: int) -> Conversion | None:
        revisions, chain = self._working.revisions, self._catalog.chain
        ends = [revisions.find(self._table, number) for number in (earlier, later)]
        first, last = ends
        if first is None or last is None or first.layout_revision == last.layout_revision:
            return None
        if not (is_on_chain(first, chain) and is_on_chain(last, chain)):
            return None  # of a migration that was rolled back
        between = (e for e in self._entries if earlier < e.revision <= later)
        if any(entry.event == "reapply" for entry in between):
            return None  # values came back that no conversion makes
        places = self._table, first.position, last.position
        plan = chain.conversion_plan(*places)
        if any(restored_in(derivation) for derivation in plan.derivations.values()):
            return None
        return chain.program(*places, self._catalog.zones)


class _LoggedRevisions:
    """Which revision a table had when a logged transaction changed its records."""

    def __init__(self, connection: Connection, working: StoreWriter, table: int) -> None:
        self._entries = working.revisions.list_of(table)
        self._made = list_logged_revisions(connection, working.tenant, table)

    def find(self, transaction: int) -> int | None:
        """Return it; None if the log does not tell."""
        at = bisect_left(self._made, (transaction, 0))
        if at:
            return self._made[at - 1][1]
        first = self._made[0][1] if self._made else None
        known = [e.revision for e in self._entries if first is None or e.revision < first]
        return max(known, default=None)


class _FieldEraser:
    """Erases fields of records, inside one transaction that holds the gate."""

    def __init__(
        self,
        connection: Connection,
        working: StoreWriter,
        catalog: TenantCatalog,
        erasure: Erasure,
    ) -> None:
        self._connection, self._erasure = connection, erasure
        self._tenant, self._table = working.tenant, erasure.table_number
        self.proof = erasure.proof
        self._values = _Values(connection, working, catalog, erasure)
        self._revisions = _LoggedRevisions(connection, working, self._table)
        self._owned = OwnedBlobs(load_layouts(connection, self._tenant, self._table))
        self._blobs = BlobStatements(working.storage)
        self._active = catalog.find_numbered(self._table)
        self._bound: BoundTable | None = None
        if self._active is not None:
            self._bound = BoundTable(working.storage, catalog, self._active)
        self._records: RecordStatements | None = None
        if self._table in list_record_tables(connection):
            self._records = RecordStatements(working.storage, self._table, self._tenant)
        revisions = working.revisions
        schemas = [revisions.schema_of(entry) for entry in revisions.list_of(self._table)]
        self._large = large_fields(schemas)
        self._cells = cells_of(schemas, erasure.fields)
        # What processes have now that are served a kept migration, stays as what records have.
        self._taken = self._cells - catalog.kept_fields(self._table).keys()

    def list_keys(self) -> list[bytes]:
        """Return the next records, in the order of keys: those that there are, and those that were
        changed."""
        erasure = self._erasure
        if erasure.key is not None:
            return [erasure.key]
        after, limit = erasure.resume_after or b"", KEYS_PER_TRANSACTION
        place = self._tenant, self._table
        found = set(list_logged_keys(self._connection, place, after, limit))
        if self._records is not None:
            sql = f"SELECT key FROM {self._records.name} WHERE tenant = {self._tenant}"
            mark = self._connection.storage.placeholder
            sql += f" AND key > {mark} ORDER BY key LIMIT {limit}"
            found |= {as_bytes(key) for (key,) in self._connection.fetch_all(sql, (after,))}
        return sorted(found)[:limit]

    def erase(self, key: bytes) -> None:
        """Erase the fields of one record, and count what was there."""
        was, left = set[bytes](), set[bytes]()
        changes = 0
        for number, change in self._list_versions(key):
            at = self._revisions.find(number)
            made = LoggedChange(
                self._erase_value(key, change.before, at),
                self._erase_value(key, change.after, None),
                without_cells(change.archive_before, self._cells),
                without_cells(change.archive_after, self._cells),
            )
            was |= list_blobs_of(change, self._owned, self._large)
            left |= list_blobs_of(made, self._owned, self._large)
            if made != change:
                place = self._tenant, self._table, number, key
                replace_version(self._connection, place, made)
                changes += 1
        current = self._find_current(key)
        # A record that takes some of them back has done so.
        of = self._tenant, self._table, key, self._taken
        archived = take_archived_of(self._connection, *of)
        kept, changed = self._erase_current(key, current, was)
        left |= self._list_blobs(kept)
        was |= list_archived_large(archived, self._large)
        gone = sorted((was | self._values.added) - left)
        self._values.added.clear()
        proof = self.proof
        self.proof = msgspec.structs.replace(
            proof,
            records=proof.records + bool(changes or changed or archived),
            changes=proof.changes + changes,
            archived_values=proof.archived_values + len(archived) + (kept != current),
            large_values=proof.large_values
            + sum(self._blobs.delete(self._connection, blob) for blob in gone),
        )

    def _list_versions(self, key: bytes) -> Iterator[tuple[int, LoggedChange]]:
        for page in list_versions_of(self._connection, self._tenant, self._table, key):
            yield from page

    def _erase_value(self, key: bytes, value: bytes | None, at: int | None) -> bytes | None:
        if value is None:
            return None
        unreadable = decode_unreadable(value)
        if unreadable is not None:  # where a value is in it is not known
            return encode_unreadable(unreadable.revision, b"")
        return self._values.erase(key, value, at)

    def _list_blobs(self, *values: bytes | None) -> set[bytes]:
        return {blob for value in values if value for blob, _ in self._owned.find_logged(value)}

    def _find_current(self, key: bytes) -> bytes | None:
        """Return a record, which is converted if it was not; None if there is none."""
        if self._records is None:
            return None
        _, current = self._records.find(self._connection, key)
        bound = self._bound
        if current is None or bound is None or not bound.current.is_stale(current):
            return current
        reader = bound.reader
        convert_records(self._connection, bound, [(key, current)], BatchConversion(reader.convert))
        return self._records.find(self._connection, key)[1]

    def _erase_current(
        self, key: bytes, current: bytes | None, was: set[bytes]
    ) -> tuple[bytes | None, bool]:
        """Give a record its change; in a table that was dropped, the record itself loses the
        values. Returns it as it is then, and whether there was something."""
        if current is None or self._records is None:
            return None, False
        if self._active is not None:
            before = self._values.erase(key, current, self._active.revision)
            is_other = self._values.has_any(current) and before != current
            if is_other and self._active.logs_changes:
                place = self._tenant, self._table, key
                append_change(
                    self._connection, principal.current(), place, LoggedChange(before, current)
                )
            return current, is_other
        made = self._values.erase(key, current)
        was |= self._list_blobs(current)
        if made != current:
            self._records.update_many(self._connection, [(key, made)])
        return made, made != current
