"""The application's view of a table: the schema at the end of its own migration files (rule 11).

For most processes that is the active schema, and nothing is converted. A process with older files
works with an older schema, and one whose newest files were rolled back with that which they lead
to. What it reads is converted from the stored revision, back by the stored rollbacks and forward by
the changes; what it writes is converted to the active schema. When it changes a record, only fields
derived from the changed ones are recomputed. All other fields keep their values, including fields
that it does not know. Values of dropped fields, and of those that a rolled-back migration made, are
read from the archive and written to it."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Set
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from zapdb.activation.activate import keeps_entries
from zapdb.activation.descriptors import IndexDescriptor
from zapdb.catalog.stored_migrations import ChainPlace
from zapdb.limits import PLANS_KEPT_MAX
from zapdb.memo import Memo
from zapdb.migrations.chain import compile_spreading, find_made_between
from zapdb.records import (
    Archive,
    Attachments,
    Conversion,
    Record,
    Restored,
    codec_for,
    decode_prefix,
    encode_prefix,
    held,
)
from zapdb.records.derivation import inputs_made_of, inputs_of
from zapdb.schema import Field, Index, TableSchema
from zapdb.tables.indexes.choosing import Planner
from zapdb.tables.indexes.maintenance import IndexMaintainer, open_maintainer
from zapdb.tables.indexes.ordering import Order
from zapdb.tables.indexes.paths import Path, list_paths
from zapdb.values import Binary, is_same_held
from zapdb.values.blob import Blob

if TYPE_CHECKING:
    from zapdb.tables.indexes.bound_table import BoundTable


BuildKey = Callable[[Record], bytes]
PREFIX: Final = encode_prefix(1)
"""The prefix of records on their way to the active schema, which replaces it."""


class SchemaAdapter:
    """Reads and writes by the active schema: nothing is converted."""

    is_current = True

    def __init__(self, bound: BoundTable) -> None:
        self.bound = bound
        self.place = bound.place
        self.schema = bound.schema
        self.codec = bound.codec
        self.reader = bound.reader
        self.indexes = bound.indexes
        self._name_fields()

    def _name_fields(self) -> None:
        self._planners = dict[int, Planner]()
        self.order_keys = Memo[tuple[Order, ...], BuildKey](PLANS_KEPT_MAX)
        """The functions that make the keys of orders of queries, by the fields of the order."""
        self.quick_reads = Memo[Hashable, Any](PLANS_KEPT_MAX)
        """How queries are read in one statement, by their shape: see `queries.quick_reads`."""
        self.key_names = tuple(f.name for f in self.schema.key_fields)
        self.made_fields = tuple(f for f in self.schema.fields if f.is_made)
        """The fields whose values are made at insert where none is given."""
        seen = {f.number for f in self.schema.fields}
        self.unseen_made_fields = tuple(
            f for f in self.bound.schema.fields if f.is_made and f.number not in seen
        )
        """The fields of only the active schema whose values are made at insert."""
        sequences = [f for f in (*self.schema.fields, *self.bound.schema.fields) if f.is_sequence]
        names = {f.number: f.name for f in self.schema.fields}
        self.sequences = {f.number: names.get(f.number) for f in sequences}
        """The fields that are sequences in either schema, by number, with their names in this
        schema."""
        self.file_kinds = {
            f.name: f.type for f in self.schema.value_fields if isinstance(f.type, Binary)
        }
        """The fields whose value may be given as an open file, with their types."""

    @cached_property
    def planner(self) -> Planner:
        """Plans queries by the indexes that can be read."""
        readable = (index.keys for index in self.indexes if index.is_readable)
        return Planner(self.schema, list_paths(self.schema, readable))

    @cached_property
    def rewritten(self) -> tuple[IndexMaintainer, ...]:
        """The indexes whose entries are being rewritten for other datasets."""
        return tuple(i for i in self.indexes if i.descriptor.state == "rewriting")

    def planner_by(self, index: IndexMaintainer) -> Planner:
        """Return the planner of queries that are read by one index; if that can't be read, they
        scan the table."""
        number = index.descriptor.index.number
        if number not in self._planners:
            path = Path.by_index(index.keys) if index.is_readable else Path.by_key(self.schema)
            self._planners[number] = Planner(self.schema, (path,))
        return self._planners[number]

    def index(self, name: str) -> IndexMaintainer | None:
        return next((index for index in self.indexes if index.name == name), None)

    def encode(
        self,
        key: bytes,
        values: Mapping[str, Any],
        unseen: Mapping[str, Any],
        attachments: Attachments,
    ) -> bytes:
        """The bytes of a new record, as they are stored; `unseen` are the values of fields that
        only the active schema has, if they were made."""
        return self.codec.encode(self.bound.prefix, values, attachments)

    def change(
        self,
        key: bytes,
        stored: bytes,
        changes: Mapping[str, Any],
        attachments: Attachments,
    ) -> tuple[Record, dict[str, Any], frozenset[str]]:
        """Return a record as it was, its new values by name, and the names of the changed fields.

        All are by the active schema; what has to be stored with them is added to `attachments`.
        """
        bound = self.bound
        old, _ = bound.reader.open(key, stored, attachments)
        values = held(old) | dict(changes)
        following = bound.kept_following
        if not following.keys().isdisjoint(changes):
            aside = bound.make_attachments(key, stored)
            encoded = bound.codec.encode(bound.prefix, values, aside)
            new = bound.codec.decode(key, encoded, len(bound.prefix), aside)
            for name in list_differing(bound.schema, old, new):
                remake_kept(attachments, following.get(name, ()))
        return old, values, frozenset(changes)


class ServedSchemaAdapter(SchemaAdapter):
    """Converts between the active schema and another one: an older one that newer migrations have
    changed, or one that was rolled back."""

    is_current = False

    def __init__(self, bound: BoundTable, place: ChainPlace) -> None:
        catalog, number = bound.catalog, bound.schema.number
        self.bound = bound
        self.place = place
        self.schema = catalog.table_at(place, number)
        self.codec = codec_for(self.schema, catalog.zones)
        self.reader = bound.make_reader(place)
        self.indexes = tuple(self._open_index(index) for index in self.schema.indexes)
        self._forwards = catalog.program(number, place, bound.place)
        self._backs = Memo[int, Conversion](PLANS_KEPT_MAX)
        self._plan = catalog.plan(number, place, bound.place)
        self._unseen = tuple(
            f for f in bound.schema.value_fields if f.cell not in self.schema.cells
        )
        self._name_fields()

    def _open_index(self, index: Index) -> IndexMaintainer:
        """Return the active index if its entries are also right in the older schema; else a
        placeholder.

        A lookup by the placeholder scans the table: slower, and right (rule 20).
        """
        bound, catalog = self.bound, self.bound.catalog
        plan = catalog.plan(bound.schema.number, bound.place, self.place)
        kept = keeps_entries(plan, bound.schema, self.schema, index)
        descriptor = next(
            (s for s in bound.descriptor.indexes if s.index.number == index.number), None
        )
        if kept and descriptor is not None:
            needs = self.schema.datasets_of(index)
            found = replace(descriptor, index=index, dependencies=needs)
        else:
            found = IndexDescriptor.planned(self.schema, index)
        return open_maintainer(self.schema, found, bound.statements)

    @cached_property
    def _back(self) -> Conversion | None:
        """The program from the active schema, if something is archived on its way."""
        catalog, number, active = self.bound.catalog, self.schema.number, self.bound.place
        if not catalog.plan(number, active, self.place).archives:
            return None
        return catalog.program(number, active, self.place)

    @cached_property
    def _spread(self) -> Conversion:
        """The program for writes that change a few fields, which keeps all other values."""
        catalog = self.bound.catalog
        lines = catalog.line_to(self.place), catalog.line_to(self.bound.place)
        return compile_spreading(*lines, self.schema.number, catalog.zones)

    def _find_back(self, revision: int) -> Conversion:
        """The program from records of a revision, by which all values that migrations on the way
        made are archived, as far as they would not be made again."""

        def compile_back() -> Conversion:
            catalog = self.bound.catalog
            origin = self.bound.descriptor.origins[revision]
            lines = catalog.line_to(origin), catalog.line_to(self.place)
            return compile_spreading(*lines, self.schema.number, catalog.zones)

        return self._backs.get(revision, compile_back)

    @cached_property
    def _between(self) -> dict[str, frozenset[int]]:
        """The cells that are made between the two schemas, by the field of this one of which they
        are made; empty if the active schema has all of them."""
        catalog, number = self.bound.catalog, self.schema.number
        lines = catalog.line_to(self.place), catalog.line_to(self.bound.place)
        return find_made_between(*lines, number)

    @cached_property
    def _following(self) -> dict[str, frozenset[str]]:
        """Return the active fields that are made of each field of this schema."""
        names = {f.number: f.name for f in self.bound.schema.fields}
        found: dict[int, set[str]] = {f.number: set() for f in self.schema.fields}
        reapplied = self.bound.catalog.reapplied_fields(self.schema.number)
        for number, derivation in self._plan.derivations.items():
            while isinstance(derivation, Restored) and derivation.slot.number in reapplied:
                derivation = derivation.otherwise
            if not isinstance(derivation, Restored):  # what was archived is not made of it
                for read in inputs_of(derivation):
                    found[read].add(names[number])
        return {f.name: frozenset(found[f.number]) for f in self.schema.fields}

    @cached_property
    def _kept_following(self) -> dict[str, frozenset[int]]:
        """Return the cells of rolled-back migrations whose values are made again where a field of
        this schema changes."""
        found = self.bound.catalog.find_kept_following(self.schema.number, self.place)
        return {f.name: found[f.number] for f in self.schema.fields if f.number in found}

    def _archived_with(self, names: Iterable[str]) -> dict[int, bool]:
        """Return the cells of archived fields that are made of any of these fields, or would be;
        and whether their values are made again, whatever is archived."""
        changed = {f.number for f in self.schema.fields if f.name in names}
        plan = self._plan
        return {
            slot.number: not inputs_made_of(derivation, ()).isdisjoint(changed)
            for slot, derivation in plan.archives.items()
            if inputs_of(derivation) & changed
            or (slot in plan.otherwise and inputs_of(plan.otherwise[slot]) & changed)
        }

    def encode(
        self,
        key: bytes,
        values: Mapping[str, Any],
        unseen: Mapping[str, Any],
        attachments: Attachments,
    ) -> bytes:
        encoded = self.codec.encode(PREFIX, values, attachments)
        bound = self.bound
        converted = self._forwards.convert(key, encoded, len(PREFIX), bound.prefix, attachments)
        if not unseen:
            return converted
        # A conversion knows constants only; a new record has what the active schema makes.
        new = held(bound.codec.decode(key, converted, len(bound.prefix), attachments))
        return bound.codec.encode(bound.prefix, new | dict(unseen), attachments)

    def change(
        self,
        key: bytes,
        stored: bytes,
        changes: Mapping[str, Any],
        attachments: Attachments,
    ) -> tuple[Record, dict[str, Any], frozenset[str]]:
        bound = self.bound
        old, _ = bound.reader.open(key, stored, attachments)
        aside = bound.make_attachments(key, stored)
        seen, converted = self.reader.open(key, stored, aside)
        revision, start = decode_prefix(stored, 0)
        if self._between and revision in bound.descriptor.origins:
            self._find_back(revision).convert(key, stored, start, PREFIX, aside)
        elif converted is stored and self._back is not None:  # it passes places with other layouts
            self._back.convert(key, stored, start, PREFIX, aside)
        encoded = self.codec.encode(PREFIX, held(seen) | dict(changes), aside)
        wanted = self.codec.decode(key, encoded, len(PREFIX), aside)
        differing = list_differing(self.schema, seen, wanted)
        changed = frozenset[str]().union(*(self._following[name] for name in differing))
        # What this schema does not show of the record, and stays, is found on the way forwards.
        was = held(old)
        stays = {
            f.cell: self._encode(f, was[f.name]) for f in self._unseen if f.name not in changed
        }
        archived = self._archived_with(differing)
        remade = {cell for cell, is_remade in archived.items() if is_remade}
        remade.update(f.cell for f in self._unseen if f.name in changed)
        for name in differing:
            remade |= self._between.get(name, frozenset())
        aside.archive = _Hidden(aside.archived | stays, aside.archive, remade)
        aside.archived = {}
        aside.unneeded = set()
        converted = self._spread.convert(key, encoded, len(PREFIX), bound.prefix, aside)
        new = held(bound.codec.decode(key, converted, len(bound.prefix), aside))
        attachments.blobs.update(aside.blobs)
        for name in differing:
            remake_kept(attachments, self._kept_following.get(name, ()))
        for cell in archived:
            if cell in aside.unneeded:
                remake_kept(attachments, [cell])
            else:
                attachments.archived[cell] = aside.archived[cell]
                attachments.unneeded.discard(cell)
        return old, was | {name: new[name] for name in changed}, changed

    def _encode(self, field: Field, value: Any) -> bytes:
        if value is None or isinstance(value, Blob):
            return b"" if value is None else value.encode()
        return field.type.bind(self.bound.catalog.zones).encode(value)


def list_differing(schema: TableSchema, old: Record, new: Record) -> list[str]:
    """Return the fields whose values differ in two records of a schema."""
    before, after = held(old), held(new)
    return [
        f.name
        for f in schema.value_fields
        if not is_same_held(f.type, before[f.name], after[f.name])
        and not is_same_held(f.type, getattr(old, f.name), getattr(new, f.name))
    ]


def remake_kept(attachments: Attachments, cells: Iterable[int]) -> None:
    """Note that values which a rolled-back migration made are made again of the record that is
    written: nothing is archived of them."""
    for cell in cells:
        attachments.archived.pop(cell, None)
        attachments.unneeded.add(cell)


class _Hidden:
    """The archive of a record while it goes back to an older schema and forwards again: what the
    way back took from it comes before what is stored. It has nothing of cells that are made again,
    `remade`."""

    __slots__ = ("_remade", "_stored", "_taken")

    def __init__(self, taken: Mapping[int, bytes], stored: Archive, remade: Set[int]) -> None:
        self._taken = taken
        self._stored = stored
        self._remade = remade

    def get(self, number: int, /) -> bytes | None:
        if number in self._remade:
            return None
        found = self._taken.get(number)
        return self._stored.get(number) if found is None else found
