"""The application's view of a table: the schema at the end of its own migration files (rule 11).

For most processes that is the active schema, and nothing is converted. A process with older files
works with an older schema. What it reads is converted back from the stored revision by the stored
rollbacks; what it writes is converted forwards. When it changes a record, only fields derived from
the changed ones are recomputed. All other fields keep their values, including fields that it does
not know. Values of dropped fields are read from the archive and written to it."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from zapdb.activation.activate import keeps_entries
from zapdb.activation.descriptors import IndexDescriptor
from zapdb.limits import PLANS_KEPT_MAX
from zapdb.memo import Memo
from zapdb.records import Archive, Attachments, Record, Restored, codec_for, encode_prefix, held
from zapdb.records.derivation import inputs_of
from zapdb.schema import Index
from zapdb.tables.indexes.choosing import Planner
from zapdb.tables.indexes.maintenance import IndexMaintainer, open_maintainer
from zapdb.tables.indexes.ordering import Order
from zapdb.tables.indexes.paths import Path, list_paths
from zapdb.values import Binary, is_same_held

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
        self.position = bound.catalog.position
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
        old, _ = self.bound.reader.open(key, stored, attachments)
        return old, held(old) | dict(changes), frozenset(changes)


class OlderSchemaAdapter(SchemaAdapter):
    """Converts between the active schema and an older one that newer migrations have changed."""

    is_current = False

    def __init__(self, bound: BoundTable, position: int) -> None:
        catalog, number = bound.catalog, bound.schema.number
        self.bound = bound
        self.position = position
        self.schema = catalog.chain.table_at(position, number)
        self.codec = codec_for(self.schema, catalog.zones)
        self.reader = bound.make_reader(position)
        self.indexes = tuple(self._open_index(index) for index in self.schema.indexes)
        self._forwards = catalog.chain.program(number, position, catalog.position, catalog.zones)
        self._plan = catalog.chain.conversion_plan(number, position, catalog.position)
        self._name_fields()

    def _open_index(self, index: Index) -> IndexMaintainer:
        """Return the active index if its entries are also right in the older schema; else a
        placeholder.

        A lookup by the placeholder scans the table: slower, and right (rule 20).
        """
        bound, catalog = self.bound, self.bound.catalog
        way = bound.schema.number, catalog.position, self.position
        kept = keeps_entries(catalog.chain.conversion_plan(*way), bound.schema, self.schema, index)
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
    def _following(self) -> dict[str, frozenset[str]]:
        """Return the active fields that are made of each field of this schema."""
        names = {f.number: f.name for f in self.bound.schema.fields}
        found: dict[int, set[str]] = {f.number: set() for f in self.schema.fields}
        for number, derivation in self._plan.derivations.items():
            if not isinstance(derivation, Restored):  # what was archived is not made of it
                for read in inputs_of(derivation):
                    found[read].add(names[number])
        return {f.name: frozenset(found[f.number]) for f in self.schema.fields}

    def _archived_with(self, names: Iterable[str]) -> list[int]:
        """Return the archived fields that are made of any of these fields."""
        changed = {f.number for f in self.schema.fields if f.name in names}
        return [
            slot.number
            for slot, derivation in self._plan.archives.items()
            if inputs_of(derivation) & changed
        ]

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
        seen, _ = self.reader.open(key, stored, aside)
        # What this schema does not show of the record, what is restored on the way forwards finds.
        aside.archive, aside.archived = _Hidden(aside.archived, aside.archive), {}
        encoded = self.codec.encode(PREFIX, held(seen) | dict(changes), aside)
        wanted = self.codec.decode(key, encoded, len(PREFIX), aside)
        differing = self._list_differing(seen, wanted)
        converted = self._forwards.convert(key, encoded, len(PREFIX), bound.prefix, aside)
        new = held(bound.codec.decode(key, converted, len(bound.prefix), aside))
        changed = frozenset[str]().union(*(self._following[name] for name in differing))
        attachments.blobs.update(aside.blobs)
        for number in self._archived_with(differing):
            attachments.archived[number] = aside.archived[number]
        return old, held(old) | {name: new[name] for name in changed}, changed

    def _list_differing(self, old: Record, new: Record) -> list[str]:
        """Return the fields whose values differ in two records of this schema."""
        before, after = held(old), held(new)
        return [
            f.name
            for f in self.schema.value_fields
            if not is_same_held(f.type, before[f.name], after[f.name])
            and not is_same_held(f.type, getattr(old, f.name), getattr(new, f.name))
        ]


class _Hidden:
    """The archive of a record while it goes back to an older schema and forwards again: what the
    way back took from it comes before what is stored."""

    __slots__ = ("_stored", "_taken")

    def __init__(self, taken: Mapping[int, bytes], stored: Archive) -> None:
        self._taken = taken
        self._stored = stored

    def get(self, number: int, /) -> bytes | None:
        found = self._taken.get(number)
        return self._stored.get(number) if found is None else found
