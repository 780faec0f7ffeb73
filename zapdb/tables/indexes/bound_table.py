"""The active schema of a tenant's table, with all that reads and writes need: codec, reader,
statements, indexes, checks and references."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import NamedTuple, Self

from zapdb.activation import TableDescriptor, TenantCatalog, load_tenant_catalog
from zapdb.activation.served_schema import sees_active
from zapdb.activation.tenant_catalog import NOT_STORED
from zapdb.catalog.stored_migrations import ChainPlace
from zapdb.limits import PLANS_KEPT_MAX
from zapdb.memo import Memo
from zapdb.records import (
    Attachments,
    Conversion,
    Decode,
    RecordReader,
    codec_for,
    decoder_of,
)
from zapdb.records.attachments import NO_ARCHIVE, Load
from zapdb.records.unreadable import name_record
from zapdb.schema import Field, TableSchema
from zapdb.storage import (
    ArchiveStatements,
    BlobStatements,
    Connection,
    KeySample,
    RecordSource,
    RecordStatements,
    Storage,
    TransactionMode,
)
from zapdb.storage.identifiers import make_uuid7
from zapdb.tables.indexes.checks import CompiledCheck, compile_check
from zapdb.tables.indexes.keys import build_keys
from zapdb.tables.indexes.maintenance import IndexMaintainer, open_maintainer
from zapdb.tables.indexes.references import (
    IncomingReference,
    ReferenceCheck,
    list_incoming_references,
    open_reference,
)
from zapdb.tables.indexes.schema_adapter import SchemaAdapter, ServedSchemaAdapter
from zapdb.values.blob import is_blob, read_blob

# Records that a process with a newer schema changed while they were read.
#
# Outside of transactions a page of records is read first, and their attachments when they are
# decoded. If an attachment was deleted in between, the record is read again (see
# `StoredArchive`). It may then have a revision that became active after the page was read. The
# catalog is read again for that revision (rule 8), and the record is still converted to the
# schema of its page.


def compile_from_newer(
    storage: Storage, catalog: TenantCatalog, target: TableSchema, place: ChainPlace, revision: int
) -> Conversion:
    """Compile the program from the layout of a revision that `catalog` lacks to the layout of its
    table `target` at a place.

    Raises `KeyError` for a revision that no record can have now either, and `UnknownName` if the
    table was dropped.
    """
    newer, number = _load_now(storage, catalog), target.number
    program = catalog.program(
        number, newer.table_numbered(number, target.name).origins[revision], place
    )
    if program.is_self_contained:
        return program
    records = RecordStatements(storage, number, catalog.tenant)
    archives, convert = ArchiveStatements(records, newer.archived_fields(number)), program.convert

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


class RecordArchive(NamedTuple):
    """Archived values of a record by cell, and its attachments, which load them."""

    values: dict[int, bytes]
    attachments: Attachments

    @classmethod
    def of(cls, values: dict[int, bytes], load: Load) -> Self:
        return cls(values, Attachments(load, make_uuid7, values))


class BoundTable:
    """Made from a tenant catalog and replaced with it; immutable except for the programs that it
    compiles.

    Its parts belong to the active schema. If another one is `served`, `adapter` gives the
    application the schema of that place.
    """

    def __init__(
        self,
        storage: Storage,
        catalog: TenantCatalog,
        descriptor: TableDescriptor,
        served: ChainPlace | None = None,
        statements: RecordStatements | None = None,
    ) -> None:
        self.storage = storage
        self.catalog = catalog
        self.descriptor = descriptor
        self.served = served
        self.schema = descriptor.schema
        self.statements = statements or RecordStatements(
            storage, descriptor.schema.number, catalog.tenant
        )
        """Those on the records of now, which also write."""
        self.records: RecordSource = self.statements
        """What is read."""
        self.blobs = BlobStatements(storage)
        self._archived = catalog.archived_fields(descriptor.schema.number)
        self.archives = ArchiveStatements(self.statements, self._archived)
        self.archived = descriptor.schema.archived_cells
        """The cells of the dropped fields whose values are archived."""
        self.codec = codec_for(descriptor.schema, catalog.zones)
        self.place = place = catalog.place_of(descriptor)
        """The place whose schema it has: that of the tenant, if it is not a kept one."""
        self.reader = make_reader(storage, catalog, descriptor, place, descriptor.revision)
        self.prefix = self.reader.prefix
        self.current = descriptor.current
        """The revisions of records that are not stale (rule 1)."""
        self.logs_changes = descriptor.logs_changes
        """Whether changes of records are kept in the change log."""
        indexed = {c.field for index in descriptor.schema.indexes for c in index.components}
        self.decode_indexed = decoder_of(descriptor.schema, frozenset(indexed), catalog.zones)
        """Decodes the fields that indexes are on, and no others: enough to build entries."""
        self.index_reader = make_reader(
            storage, catalog, descriptor, place, descriptor.revision, self.decode_indexed
        )
        self.indexes: tuple[IndexMaintainer, ...] = tuple(
            open_maintainer(descriptor.schema, index, self.statements)
            for index in descriptor.indexes
        )
        self.checks: tuple[CompiledCheck, ...] = tuple(
            compile_check(descriptor.schema, check) for check in descriptor.schema.checks
        )
        self.references: tuple[ReferenceCheck, ...] = tuple(
            open_reference(catalog, descriptor.schema, key, self.statements)
            for key in descriptor.schema.foreign_keys
        )
        self.field_readers = Memo[frozenset[int], RecordReader](PLANS_KEPT_MAX)
        """Readers of some fields of the application's view of the records, by their numbers."""
        self.is_bare = not (self.indexes or self.checks or self.references)
        """Whether records are written without decoding them."""
        read = {name for check in self.checks for name in check.fields}
        demanded = {f.number for f in descriptor.schema.fields if f.name in read}
        demanded |= {key.field for key in descriptor.schema.foreign_keys}
        self.decode_demanded = decoder_of(
            descriptor.schema, frozenset(indexed | demanded), catalog.zones
        )
        """Decodes the fields that indexes, checks and references are on."""
        self.adapter = SchemaAdapter(self)
        if served is not None and is_changed(catalog, descriptor, served):
            self.adapter = ServedSchemaAdapter(self, served)

    @cached_property
    def incoming_references(self) -> tuple[IncomingReference, ...]:
        """The references to the records of this table."""
        return list_incoming_references(self.catalog, self.schema)

    def make_attachments(self, key: bytes = b"", value: bytes = b"") -> Attachments:
        """Attachments of a record that is read or written: takes its new blobs.

        Key and value are those of a record that is stored already; a new one has no archive.
        """
        archive = self.archives.open(key, value) if value else NO_ARCHIVE
        return Attachments(self.blobs.load, make_uuid7, archive)

    def read_archives(
        self, connection: Connection, rows: Sequence[tuple[bytes, bytes]]
    ) -> list[RecordArchive]:
        """Return the archived values of records, given by key and bytes: those that are archived,
        and those that are still in stale bytes."""
        found = list[RecordArchive]()
        for (key, value), one in zip(rows, self.open_archives(connection, rows), strict=True):
            self.reader.convert(key, value, one.attachments)
            values = {**one.values, **one.attachments.archived}
            kept = {number: values[number] for number in self.archived & values.keys()}
            found.append(RecordArchive(kept, one.attachments))
        return found

    def open_archives(
        self, connection: Connection, rows: Sequence[tuple[bytes, bytes]]
    ) -> list[RecordArchive]:
        """Return what is archived of records, given by key and bytes."""
        stored = self.archives.load_many(connection, [key for key, _ in rows])
        return [RecordArchive.of(stored.get(key, {}), self.blobs.load) for key, _ in rows]

    def sample_keys(
        self, connection: Connection, lower: bytes | None, upper: bytes | None
    ) -> KeySample | None:
        """About how many records have lower ≤ key < upper, and how they are spread; None where all
        keys have to be counted."""
        return self.records.sample_keys(connection, lower, upper)

    def count_keys(self, connection: Connection, lower: bytes | None, upper: bytes | None) -> int:
        """Return how many records have lower ≤ key < upper; about how many, at most, where counting
        them would be reading them."""
        return self.records.count_range(connection, lower, upper, None)[1]

    def archived_blobs(self, attachments: Attachments) -> dict[bytes, bytes]:
        """Return the new blobs of a record that its archived values refer to."""
        return archived_blobs(attachments, self._archived)

    @cached_property
    def kept_following(self) -> dict[str, frozenset[int]]:
        """The cells that migrations have made which were rolled back and are kept, and whose values
        are made again where a field changes; by the field's name."""
        catalog, table = self.catalog, self.schema
        found = catalog.find_kept_following(table.number, self.place)
        return {f.name: found[f.number] for f in table.fields if f.number in found}

    def make_reader(self, place: ChainPlace) -> RecordReader:
        """Return a reader of the records by the table's schema at another place."""
        return make_reader(self.storage, self.catalog, self.descriptor, place, NOT_STORED)

    def make_field_reader(self, decode: Decode) -> RecordReader:
        """Return a reader of some fields of the application's view of the records."""
        place = self.adapter.place
        return make_reader(self.storage, self.catalog, self.descriptor, place, NOT_STORED, decode)


def is_changed(catalog: TenantCatalog, descriptor: TableDescriptor, served: ChainPlace) -> bool:
    """Return whether a process that is served the schema of a place sees another one of the
    table. An equal one beside the chain may say something else of the fields that it has dropped.
    """
    if sees_active(catalog, served):
        return False
    number = descriptor.schema.number
    seen = catalog.schema_at(served).table_numbered(number)
    if seen is None or seen != descriptor.schema:
        return seen is not None
    place = descriptor.kept_at or catalog.place
    return not catalog.is_behind(served) and not catalog.plan(number, served, place).is_identity


def archived_blobs(attachments: Attachments, fields: Mapping[int, Field]) -> dict[bytes, bytes]:
    """Return the new blobs of a record that its archived values refer to."""
    found = {}
    for number, encoded in attachments.archived.items():
        if fields[number].type.may_be_blob and is_blob(encoded):
            (made, _), _ = read_blob(encoded, 0)
            if made in attachments.blobs:
                found[made] = attachments.blobs[made]
    return found


def make_reader(
    storage: Storage,
    catalog: TenantCatalog,
    descriptor: TableDescriptor,
    place: ChainPlace,
    revision: int,
    decode: Decode | None = None,
) -> RecordReader:
    """Return a reader of the table's records by its schema at a place.

    Converted records get the prefix of `revision`. It reads all fields, or the fields of `decode`.
    """
    records = RecordStatements(storage, descriptor.schema.number, catalog.tenant)
    return make_reader_of(records, catalog, descriptor, place, revision, decode)


def make_reader_of(
    records: RecordStatements,
    catalog: TenantCatalog,
    descriptor: TableDescriptor,
    place: ChainPlace,
    revision: int,
    decode: Decode | None,
) -> RecordReader:
    """Do the same for `records`, among which one is found again that has changed since."""
    storage, number = records.storage, descriptor.schema.number
    target = catalog.table_at(place, number)
    load = BlobStatements(storage).load
    archives = ArchiveStatements(records, catalog.archived_fields(number))

    def find_program(revision: int) -> Conversion | None:
        if place == catalog.place_of(descriptor) and descriptor.has_layout_of(revision):
            return None  # which takes no look at the migrations
        if revision in descriptor.origins:
            return compile_program(catalog, descriptor, target, place, revision)
        return compile_from_newer(storage, catalog, target, place, revision)

    codec = codec_for(target, catalog.zones)
    return RecordReader(
        decode or codec.decode,
        find_program,
        revision,
        lambda key, value: Attachments(load, make_uuid7, archives.open(key, value)),
        lambda error, key: name_record(error, target.name, codec.decode_key, key),
    )


def compile_program(
    catalog: TenantCatalog,
    descriptor: TableDescriptor,
    target: TableSchema,
    place: ChainPlace,
    revision: int,
) -> Conversion | None:
    """Return the program from a revision's layout to the table's layout at a place; None if both
    are one layout.

    A stale record always gets a program, even one that changes only the prefix: after other
    layouts, the table may have the record's layout again. Raises `KeyError` for a revision that no
    record can have."""
    origin = descriptor.origins[revision]
    source = catalog.table_at(origin, target.number)
    if descriptor.current.has(revision) and source.cells == target.cells:
        return None
    return catalog.program(target.number, origin, place)


def show_code(catalog: TenantCatalog, descriptor: TableDescriptor) -> str:
    """All functions as Python source: the codec, each index's keys, each check, and each older
    layout's program."""
    return "\n".join(_sections(catalog, descriptor))


def _sections(catalog: TenantCatalog, descriptor: TableDescriptor) -> Iterator[str]:
    table, place = descriptor.schema, catalog.place_of(descriptor)
    yield f"# The codec of {table.name}, revision {descriptor.revision}.\n"
    yield codec_for(table, catalog.zones).source
    for index in table.indexes:
        yield f"# The keys of the index {index.name}.\n"
        yield build_keys(table, index).source
    for check in table.checks:
        yield f"# The check {check.name}.\n"
        yield compile_check(table, check).source
    for revision in sorted(descriptor.origins):
        if descriptor.layouts.get(revision) != revision:
            continue  # its records have the layout of an earlier one
        program = compile_program(catalog, descriptor, table, place, revision)
        if program is not None:
            yield f"# The conversion from revision {revision} to revision {descriptor.revision}.\n"
            yield program.source
