"""What verification looks for in a page of a table's records, and in a table as a whole.

Every record decodes, has its entry in each readable index, and satisfies the validated checks and
references. Every blob that a record or an archived value refers to exists and has the size that the
record says, and its chunks are the bytes that were written. Every archived value decodes. As many
entries as records mean that there is no other entry; where entries are missing, those that no
record has are counted. No archived value outlives its record. No record has a lower revision than
is noted of its range of keys.

The records of a dropped table that are archived are decoded by the schema of their revision.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

from zapdb.activation import TableDescriptor, TenantCatalog
from zapdb.activation.record_layouts import load_layouts
from zapdb.catalog.schema_history import (
    RevisionEntry,
    format_fingerprint,
    is_on_chain,
    read_entries,
)
from zapdb.errors import BlobMissing, CorruptBlob, CorruptionError, CorruptRecord, UnknownZone
from zapdb.errors.zapdb_error import describe_error
from zapdb.jobs.known_revisions import find_wrong_ranges
from zapdb.jobs.validation import find_violations
from zapdb.migrations import Chain
from zapdb.records import Attachments, Codec, OwnedBlobs, Record, codec_for, decode_prefix
from zapdb.records.unreadable import show_stored_key
from zapdb.schema import TableSchema, canonical_bytes, fingerprint
from zapdb.storage import ArchiveStatements, BlobStatements, Connection, RecordStatements, Storage
from zapdb.storage.archives import count_unowned
from zapdb.storage.identifiers import make_uuid7
from zapdb.tables.indexes import BoundTable, IndexMaintainer
from zapdb.values import ValueType
from zapdb.values.blob import Blob, decode_inline_or_blob

Page = Sequence[tuple[bytes, bytes]]
"""Records: (key, value)."""

KEY_DIGITS_SHOWN: Final = 32


class Problem(NamedTuple):
    """What is wrong: with what, and in words; `unreadable` is the key of a record that can't be
    read."""

    what: str
    text: str
    unreadable: bytes | None = None


Problems = list[Problem]


class RecordChecks(ABC):
    """The checks of one table, with the tenant catalog that they were made with; each is called in
    a READ transaction."""

    def __init__(self, storage: Storage, catalog: TenantCatalog, table: int) -> None:
        self.catalog = catalog
        self.table = table
        self.records = RecordStatements(storage, table, catalog.tenant)
        self.archives = ArchiveStatements(self.records, catalog.archived_fields(table))
        self._blobs = BlobStatements(storage)
        self._owned: OwnedBlobs | None = None
        self._types: dict[int, list[ValueType]] | None = None

    @abstractmethod
    def read(self, key: bytes, value: bytes) -> Record:
        """The record; raises `CorruptRecord`, `BlobMissing`, `CorruptBlob` and `UnknownZone`."""

    @property
    @abstractmethod
    def codec(self) -> Codec:
        """What decodes keys."""

    def say(self, key: bytes) -> str:
        """The beginning of a problem of a record: its key as people give it, and as it is stored,
        in hex."""
        shown, raw = show_stored_key(self.codec.decode_key, key), key.hex()[:KEY_DIGITS_SHOWN]
        return f"record {raw}: " if shown == key.hex() else f"record {shown} ({raw}): "

    def check_related(self, connection: Connection, whole: list[tuple[bytes, Record]]) -> Problems:
        """What is wrong beside records that can be read."""
        return []

    def check_counts(self, connection: Connection, found: Collection[str]) -> Problems:
        """What counting tells, beside records."""
        return []

    def check_page(self, connection: Connection, page: Page) -> Problems:
        """What is wrong with records that follow one another."""
        problems: Problems = []
        whole: list[tuple[bytes, Record]] = []
        for key, value in page:
            before = len(problems)
            record = self._read(connection, key, value, problems)
            # Keys of entries and checks may need the large values, too.
            if record is not None and len(problems) == before:
                whole.append((key, record))
        problems += self.check_related(connection, whole)
        if self.archives.is_used:
            problems += self._check_archives(connection, [key for key, _ in page])
        return problems

    def check_table(self, connection: Connection, found: Collection[str]) -> Problems:
        """What is wrong with the table as a whole: its history, and what is counted; `found` says
        with what something is wrong in its pages."""
        log = list(read_entries(connection, self.catalog.tenant, self.table))
        problems = [*check_history(log, self.catalog), *self.check_counts(connection, found)]
        unowned = count_unowned(connection, self.records)
        if unowned:
            problems.append(
                Problem("archive", f"{unowned} archived values of records that do not exist")
            )
        return problems

    def _read(
        self, connection: Connection, key: bytes, value: bytes, problems: Problems
    ) -> Record | None:
        """A record that can be read; else None, and the problem is noted."""
        said = self.say(key)
        try:
            if self._owned is None:
                layouts = load_layouts(connection, self.catalog.tenant, self.table)
                self._owned = OwnedBlobs(layouts)
            for made, size in self._owned.find(value):
                problems += self._check_blob(connection, made, size, said)
            return self.read(key, value)
        except (BlobMissing, CorruptBlob):  # a conversion needs one, and it is noted already
            return None
        except CorruptRecord as error:
            problems.append(Problem("records", f"{said}{describe_error(error)}", key))
        except UnknownZone as error:
            zone, data = error.context["zone"], error.context["data"]
            problems.append(Problem("records", f"{said}time zone {zone} is not in {data}"))
        return None

    def _check_blob(self, connection: Connection, made: bytes, size: int, said: str) -> Problems:
        found, is_whole = self._blobs.measure(connection, made)
        if (found, is_whole) != (size, True):
            return [Problem("large values", f"{said}{found} of the {size} bytes of a blob")]
        try:
            self._blobs.check(connection, made, size)
        except CorruptBlob as error:
            return [Problem("large values", f"{said}{error.context['what']}")]
        return []

    # Archived values

    def _check_archives(self, connection: Connection, keys: Sequence[bytes]) -> Problems:
        problems: Problems = []
        fields = self.catalog.archived_fields(self.table)
        for key, values in self.archives.load_many(connection, keys).items():
            for cell, encoded in values.items():
                name = fields[cell].name if cell in fields else f"cell {cell}"
                said = f"{self.say(key)}archived value of {name}: "
                value = None if not encoded else self._read_archived(connection, cell, encoded)
                if isinstance(value, CorruptRecord):
                    problems.append(Problem("archive", f"{said}{describe_error(value)}"))
                elif isinstance(value, Blob):
                    problems += self._check_blob(connection, value.id, value.size, said)
        return problems

    def _read_archived(self, connection: Connection, cell: int, encoded: bytes) -> object:
        """An archived value, by any type that its cell ever had; else the error of the newest."""
        if self._types is None:
            self._types = self._load_types(connection)
        error: CorruptRecord | None = None
        for kind in self._types.get(cell, []):
            try:
                value, end = _decode(kind, encoded)
                if end == len(encoded):
                    return value
                raise CorruptRecord.at("bytes after the value", encoded, end)
            except CorruptRecord as found:
                error = error or found
            except IndexError:
                error = error or CorruptRecord.at("a value that ends early", encoded, 0)
        return error or CorruptRecord.at("a value of an unknown field", encoded, 0)

    def _load_types(self, connection: Connection) -> dict[int, list[ValueType]]:
        """The types of each field by its cell, the newest first: names within them change."""
        found: dict[int, list[ValueType]] = {}
        for schema in _list_schemas(connection, self.catalog.tenant, self.table):
            # A field that a migration both makes and archives is in no schema's fields.
            for field in (*schema.fields, *(archived.field for archived in schema.archived)):
                kind = field.type.bind(self.catalog.zones)
                known = found.setdefault(field.cell, [])
                if kind not in known:
                    known.insert(0, kind)
        for cell, kept in self.catalog.kept_fields(self.table).items():
            found.setdefault(cell, [kept.type.bind(self.catalog.zones)])
        return found


def _decode(kind: Any, encoded: bytes) -> tuple[Any, int]:
    """The value of a field, or its `Blob`, and where it ends."""
    return decode_inline_or_blob(kind, encoded, 0) if kind.may_be_blob else kind.decode(encoded, 0)


def _list_schemas(connection: Connection, tenant: int, table: int) -> Iterable[TableSchema]:
    for entry in read_entries(connection, tenant, table):
        try:
            yield entry.schema
        except CorruptionError:  # the check of the history tells
            continue


class ActiveChecks(RecordChecks):
    """Of a table that is active: its records by the current schema, its indexes and constraints."""

    def __init__(
        self, storage: Storage, catalog: TenantCatalog, descriptor: TableDescriptor
    ) -> None:
        super().__init__(storage, catalog, descriptor.schema.number)
        self.bound = BoundTable(storage, catalog, descriptor)
        self.indexes = [index for index in self.bound.indexes if index.is_readable]

    @property
    def codec(self) -> Codec:
        return self.bound.codec

    def read(self, key: bytes, value: bytes) -> Record:
        return self.bound.reader.read(key, value)

    def check_related(self, connection: Connection, whole: list[tuple[bytes, Record]]) -> Problems:
        problems: Problems = []
        for index in self.indexes:
            rows = [(index.entry_key(record, key), key) for key, record in whole]
            there = index.entries.find_entries(connection, rows)
            problems += [
                _of_index(index, f"{self.say(key)}no entry in {index.name!r}")
                for _, key in (row for row in rows if row not in there)
            ]
        if self.bound.checks or self.bound.references:
            found = find_violations(connection, self.bound, whole, validated=True)
            problems += [Problem(what, f"{what}: {text}") for what, text in found]
        return problems

    def check_counts(self, connection: Connection, found: Collection[str]) -> Problems:
        # If each record has its entry, as many entries as records mean that there is no other.
        (records,) = connection.fetch_one(self.records.count_sql)
        problems: Problems = []
        for index in self.indexes:
            entries = count_entries(connection, index)
            if entries != records:
                said = f"index {index.name!r}: {entries} entries for {records} records"
                problems.append(_of_index(index, said))
            is_damaged = _of_index(index, "").what in found
            if is_damaged and (extra := index.entries.count_extra(connection)):
                said = f"index {index.name!r}: entries that no record has: {extra}"
                problems.append(_of_index(index, said))
        return problems + self._check_ranges(connection)

    def _check_ranges(self, connection: Connection) -> Problems:
        wrong = find_wrong_ranges(connection, self.catalog.tenant, self.bound.descriptor)
        return [
            Problem(
                "range revisions",
                f"records of revisions below {known.revision}, which is noted as the lowest one of "
                f"their keys: {count:,}; `zapdb verify --repair` forgets the note, and then `zapdb "
                "convert run` converts them",
            )
            for known, count in wrong
        ]


def count_entries(connection: Connection, index: IndexMaintainer) -> int:
    (count,) = connection.fetch_one(index.entries.count_sql)
    return int(count)


def _of_index(index: IndexMaintainer, text: str) -> Problem:
    return Problem(f"index {index.name}", text)


class ArchivedChecks(RecordChecks):
    """Of a dropped table whose records are archived: each by the schema of its revision."""

    def __init__(self, storage: Storage, catalog: TenantCatalog, table: TableSchema) -> None:
        super().__init__(storage, catalog, table.number)
        self._table = table
        self._schemas: dict[int, TableSchema] | None = None
        self._attachments = Attachments(self._blobs.load, make_uuid7)

    @property
    def codec(self) -> Codec:
        return codec_for(self._table, self.catalog.zones)

    def check_page(self, connection: Connection, page: Page) -> Problems:
        if self._schemas is None:
            log = read_entries(connection, self.catalog.tenant, self.table)
            self._schemas = {entry.revision: entry.schema for entry in log}
        return super().check_page(connection, page)

    def read(self, key: bytes, value: bytes) -> Record:
        assert self._schemas is not None, "a page is checked"
        revision, start = decode_prefix(value, 0)
        if revision not in self._schemas:
            raise CorruptRecord.at(f"record of the unknown revision {revision}", value, 0)
        codec = codec_for(self._schemas[revision], self.catalog.zones)
        return codec.decode(key, value, start, self._attachments)


def open_checks(storage: Storage, catalog: TenantCatalog, table: int) -> RecordChecks | None:
    """The checks of a table that is active, kept or archived; None for any other."""
    descriptor = catalog.find_numbered(table)
    if descriptor is not None:
        return ActiveChecks(storage, catalog, descriptor)
    for archived in list_archived_tables(catalog):
        if archived.number == table:
            return ArchivedChecks(storage, catalog, archived)
    return None


def list_archived_tables(catalog: TenantCatalog) -> list[TableSchema]:
    """The dropped tables whose records are archived at the tenant's position."""
    return [one.table for one in catalog.chain.schema_at(catalog.position).archived]


def check_history(log: Sequence[RevisionEntry], catalog: TenantCatalog) -> Problems:
    """What is wrong with the schema history of one table."""
    return [
        Problem("schema history", f"revision {entry.revision} of the schema history: {fault}")
        for entry, fault in find_faults(log, catalog.chain)
    ]


# Checking a schema history against itself and against the stored migrations.
#
# A log is needed to read old records and old changes, and programs pin its fingerprints. Nothing
# but this check reads all of its entries. It computes each again: the fingerprint from the table
# schema, and the table schema from the migrations, if the entry's migration is still on the
# chain.


def find_faults(log: Sequence[RevisionEntry], chain: Chain) -> Iterator[tuple[RevisionEntry, str]]:
    """Yield the faults of the entries of one table's log, in their order."""
    revisions = {entry.revision for entry in log}
    for entry in log:
        for fault in _find_faults(entry, chain):
            yield entry, fault
        if entry.layout_revision not in revisions or entry.layout_revision > entry.revision:
            yield entry, f"has the layout of revision {entry.layout_revision}, which is not there"


def _find_faults(entry: RevisionEntry, chain: Chain) -> Iterator[str]:
    try:
        table = entry.schema
    except CorruptionError as error:
        yield f"its snapshot can't be read: {error.message}"
        return
    if table.number != entry.table_number:
        yield f"its snapshot is of table number {table.number}"
    made = fingerprint(table)
    if made != entry.fingerprint:
        yield (
            f"its fingerprint is {format_fingerprint(entry.fingerprint)}, and that of its snapshot "
            f"{format_fingerprint(made)}"
        )
    if entry.event == "drop" or not is_on_chain(entry, chain):
        return
    stored = chain.schema_at(entry.position).table_active_or_archived(entry.table_number)
    if stored is None or canonical_bytes(stored) != entry.schema_bytes:
        yield f"its snapshot is not what {chain.at(entry.position).label} makes of the table"
