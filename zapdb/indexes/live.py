"""A table as it is in force for a tenant, ready to work on: codec, reader, statements, indexes."""

from __future__ import annotations

from functools import partial

from zapdb.catalog import TableState, View
from zapdb.catalog.activation import is_same_layout
from zapdb.indexes.maintenance import LiveIndex, open_index
from zapdb.records import (
    Beside,
    Conversion,
    Decode,
    RecordReader,
    codec_for,
    decoder_of,
)
from zapdb.schema import Table
from zapdb.storage import BlobTable, RecordTable, Storage
from zapdb.storage.identifiers import make_uuid7
from zapdb.values import Binary


class LiveTable:
    """Built from a view and replaced with it; immutable but for the programs that it compiles."""

    def __init__(self, storage: Storage, view: View, state: TableState) -> None:
        self.view = view
        self.state = state
        self.table = state.table
        self.records = RecordTable(storage, state.table.number, view.tenant)
        self.blobs = BlobTable(storage)
        self.codec = codec_for(state.table, view.zones)
        self.file_kinds = {
            f.name: f.type for f in state.table.value_fields if isinstance(f.type, Binary)
        }
        """The fields whose value may be given as an open file, with their types."""
        self.key_names = tuple(f.name for f in state.table.key_fields)
        self.reader = make_reader(storage, view, state, view.position, state.revision)
        self.prefix = self.reader.prefix
        indexed = {c.field for index in state.table.indexes for c in index.components}
        self.decode_indexed = decoder_of(state.table, frozenset(indexed), view.zones)
        """Decodes the fields that indexes are on, and no others: enough to build entries."""
        self.index_reader = make_reader(
            storage, view, state, view.position, state.revision, self.decode_indexed
        )
        self.indexes: tuple[LiveIndex, ...] = tuple(
            open_index(state.table, index, self.records) for index in state.indexes
        )

    def make_beside(self) -> Beside:
        """Surroundings for records that are written: takes their new blobs."""
        return Beside(self.blobs.load, make_uuid7)

    def index(self, name: str) -> LiveIndex | None:
        return next((index for index in self.indexes if index.name == name), None)


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
    target = view.chain.schema_at(position).table_numbered(state.table.number)
    assert target is not None
    load = BlobTable(storage).load
    return RecordReader(
        decode or codec_for(target, view.zones).decode,
        partial(compile_program, view, state, target, position),
        revision,
        lambda: Beside(load, make_uuid7),
    )


def compile_program(
    view: View, state: TableState, target: Table, position: int, revision: int
) -> Conversion | None:
    """The program from a revision's layout to the table's at `position`; None if they are one.

    Raises `KeyError` for a revision that no record can have.
    """
    origin = state.origins[revision]
    source = view.chain.schema_at(origin).table_numbered(target.number)
    assert source is not None
    if is_same_layout(view.chain, source, target, origin, position):
        return None
    return view.chain.program(target.number, origin, position, view.zones)
