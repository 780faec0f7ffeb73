"""A table as it is in force for a tenant, ready to work on: codec, reader, statements, indexes, and
what it demands of its records."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Final, cast

from zapdb.activation import TableState, View
from zapdb.activation.activate import is_same_layout, is_unchanged
from zapdb.indexes.checks import CompiledCheck, compile_check
from zapdb.indexes.maintenance import IndexMaintainer, open_maintainer
from zapdb.indexes.newer_revisions import compile_from_newer
from zapdb.indexes.references import (
    IncomingReference,
    ReferenceCheck,
    list_incoming_references,
    open_reference,
)
from zapdb.indexes.schema_adapter import OlderShape, Shape
from zapdb.records import (
    Beside,
    Conversion,
    Decode,
    Record,
    RecordReader,
    codec_for,
    decoder_of,
    encode_prefix,
)
from zapdb.records.beside import NOTHING
from zapdb.schema import Field, Table
from zapdb.storage import ArchiveTable, BlobTable, RecordTable, Storage
from zapdb.storage.identifiers import make_uuid7
from zapdb.values.blob import is_blob, read_blob

NOT_STORED: Final = 0
"""The revision of records that are read in another shape than the stored one: no stored one is."""


class LiveTable:
    """Built from a view and replaced with it; immutable but for the programs that it compiles.

    All of it is as is in force; `shape` is what the application works with, that of the position
    `served` where that is an older one.
    """

    def __init__(
        self, storage: Storage, view: View, state: TableState, served: int | None = None
    ) -> None:
        self.storage = storage
        self.view = view
        self.state = state
        self.served = served
        self.table = state.table
        self.records = RecordTable(storage, state.table.number, view.tenant)
        self.blobs = BlobTable(storage)
        self._archived = view.chain.archived_fields(state.table.number)
        self.archives = ArchiveTable(self.records, self._archived)
        self.codec = codec_for(state.table, view.zones)
        self.reader = make_reader(storage, view, state, view.position, state.revision)
        self.prefix = self.reader.prefix
        self.stale_below = encode_prefix(state.layout_revision)
        """A stored record that is less than this is stale (rule 1)."""
        self.logs_changes = state.logs_changes
        """Whether changes of records are kept in the change log."""
        indexed = {c.field for index in state.table.indexes for c in index.components}
        self.decode_indexed = decoder_of(state.table, frozenset(indexed), view.zones)
        """Decodes the fields that indexes are on, and no others: enough to build entries."""
        self.index_reader = make_reader(
            storage, view, state, view.position, state.revision, self.decode_indexed
        )
        self.indexes: tuple[IndexMaintainer, ...] = tuple(
            open_maintainer(state.table, index, self.records) for index in state.indexes
        )
        self.checks: tuple[CompiledCheck, ...] = tuple(
            compile_check(state.table, check) for check in state.table.checks
        )
        self.references: tuple[ReferenceCheck, ...] = tuple(
            open_reference(view, state.table, key, self.records) for key in state.table.foreign_keys
        )
        self.is_bare = not (self.indexes or self.checks or self.references)
        """Whether a record is written without being looked at."""
        read = {name for check in self.checks for name in check.fields}
        demanded = {f.number for f in state.table.fields if f.name in read}
        demanded |= {key.field for key in state.table.foreign_keys}
        self.decode_demanded = decoder_of(state.table, frozenset(indexed | demanded), view.zones)
        """Decodes the fields that indexes, checks and references are on."""
        is_current = served is None or not is_changed(view, state, served)
        self.shape = Shape(self) if is_current else OlderShape(self, cast("int", served))

    @cached_property
    def incoming_references(self) -> tuple[IncomingReference, ...]:
        """Whoever refers to the records of this table."""
        return list_incoming_references(self.view, self.table)

    def decode_rows(
        self, rows: Iterable[tuple[bytes, bytes]], beside: Beside
    ) -> list[tuple[bytes, Record]]:
        """New records, with their keys, as far as the table looks at them."""
        decode, start = self.decode_demanded, len(self.prefix)
        return [(key, decode(key, value, start, beside)) for key, value in rows]

    def make_beside(self, key: bytes = b"", value: bytes = b"") -> Beside:
        """Surroundings of a record that is read or written: takes its new blobs.

        Key and value are those of a record that is stored already; a new one has no archive.
        """
        archive = self.archives.open(key, value) if value else NOTHING
        return Beside(self.blobs.load, make_uuid7, archive)

    def archived_blobs(self, beside: Beside) -> dict[bytes, bytes]:
        """Of the new blobs beside a record those that its archived values refer to."""
        return archived_blobs(beside, self._archived)

    def make_reader(self, position: int) -> RecordReader:
        """A reader of the records in their shape at another position."""
        return make_reader(self.storage, self.view, self.state, position, NOT_STORED)


def is_changed(view: View, state: TableState, served: int) -> bool:
    """Whether the table is another one to a process whose files end at `served`."""
    if served >= view.position:
        return False
    older = view.chain.schema_at(served).table_numbered(state.table.number)
    return older is not None and not is_unchanged(
        view.chain, older, state.table, served, view.position
    )


def archived_blobs(beside: Beside, fields: Mapping[int, Field]) -> dict[bytes, bytes]:
    """Of the new blobs beside a record those that its archived values refer to."""
    found = {}
    for number, encoded in beside.archived.items():
        if fields[number].type.may_be_blob and is_blob(encoded):
            (made, _), _ = read_blob(encoded, 0)
            if made in beside.blobs:
                found[made] = beside.blobs[made]
    return found


def make_reader(
    storage: Storage,
    view: View,
    state: TableState,
    position: int,
    revision: int,
    decode: Decode | None = None,
) -> RecordReader:
    """A reader of the table's records in their shape at `position`.

    What it converts gets the prefix of `revision`. It reads all fields, or those of `decode`.
    """
    target = view.chain.table_at(position, state.table.number)
    load = BlobTable(storage).load
    number = state.table.number
    records = RecordTable(storage, number, view.tenant)
    archives = ArchiveTable(records, view.chain.archived_fields(number))

    def find_program(revision: int) -> Conversion | None:
        if revision in state.origins:
            return compile_program(view, state, target, position, revision)
        return compile_from_newer(storage, view, target, position, revision)

    return RecordReader(
        decode or codec_for(target, view.zones).decode,
        find_program,
        revision,
        lambda key, value: Beside(load, make_uuid7, archives.open(key, value)),
    )


def compile_program(
    view: View, state: TableState, target: Table, position: int, revision: int
) -> Conversion | None:
    """The program from a revision's layout to the table's at `position`; None if they are one.

    A stale record gets a program in any case, be it one that changes nothing but its prefix: its
    layout may be that of the table again, after having been another one. Raises `KeyError` for a
    revision that no record can have.
    """
    origin = state.origins[revision]
    source = view.chain.table_at(origin, target.number)
    is_stale = revision < state.layout_revision
    if not is_stale and is_same_layout(view.chain, source, target, origin, position):
        return None
    return view.chain.program(target.number, origin, position, view.zones)
