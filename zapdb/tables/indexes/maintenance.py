"""Maintenance of indexes: the entries that a change of one record adds and removes.

An index that is *building* is maintained like any other, with one difference. Its builder may have
inserted the old entry after this transaction's snapshot, where a DELETE would not see it and leave
it for ever. So the old entry is first inserted if absent. If the builder's row exists unseen,
PostgreSQL reports a serialization failure, and the transaction runs again with a snapshot that sees
it. The record is written before its entries, so the record's row lock orders builder and writer.

In a unique index a key has one entry, for one record. Entries are simply inserted. If one is
refused, the key's record is looked up after the rollback: the database's own constraint decides,
not the lookup. While the index is being built, entries are inserted if absent, since the builder
may have inserted them already. Only a record's own entry is ever deleted. A record whose key was
taken when the builder came to it has no entry.

An index that is *rewriting*, for other collation or time zone data, is maintained like one that is
building, with the new keys: an old one can't be computed any more. The rewriting job finds the old
entries that a writer leaves behind (decisions/0015). A disabled index has no entries.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from zapdb.activation import IndexDescriptor
from zapdb.errors import DatasetMismatch
from zapdb.limits import INDEX_KEY_SIZE_BYTES_MAX
from zapdb.records import PagedRow, PagedRows, Record
from zapdb.schema import TableSchema
from zapdb.storage import Connection, EntryStatements, RecordStatements, Refusal
from zapdb.tables.indexes.keys import (
    UNIQUE_ORDERED_SIZE_BYTES,
    KeyBuilder,
    build_keys,
    is_truncated,
    truncate_key,
    truncate_unique_key,
)

EntryRow = tuple[bytes, bytes]
"""An entry: its key, and the key of its record."""
Move = tuple[bytes | None, bytes | None]
"""The keys of the entries that a record loses and gets; None if there is no such entry."""


class Collision(Exception):
    """A key of a unique index has the entry of another record; nothing more was written."""

    def __init__(self, index: IndexMaintainer, key: bytes, record_key: bytes, owner: bytes) -> None:
        super().__init__()
        self.index = index
        self.key = key
        self.record_key = record_key
        self.owner = owner
        """The key of the record that owns the entry."""


@dataclass(frozen=True, slots=True)
class IndexMaintainer:
    """An index as writers and readers use it."""

    descriptor: IndexDescriptor
    keys: KeyBuilder
    entries: EntryStatements
    matches_datasets: bool
    """Whether this process makes the same keys as the index holds, because it has the same
    datasets."""
    is_built: bool = field(init=False)
    names: frozenset[str] = field(init=False)
    """Those of its fields."""
    has_entries: ClassVar[bool] = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "is_built", self.descriptor.state == "readable")
        object.__setattr__(self, "names", frozenset(self.field_names))

    @property
    def name(self) -> str:
        return self.descriptor.index.name

    @property
    def is_readable(self) -> bool:
        """With other datasets it is not readable: new bounds over old entries miss rows (rule
        26)."""
        return self.is_built and self.matches_datasets

    @property
    def field_names(self) -> tuple[str, ...]:
        return tuple(field.name for field in self.keys.fields)

    def entry_key(self, record: Record, record_key: bytes) -> bytes:
        """The key of a record's entry. Raises `DatasetMismatch`."""
        if not self.matches_datasets:
            self.refuse_other_datasets()
        key = self.keys.build(record)
        return key if len(key) < INDEX_KEY_SIZE_BYTES_MAX else truncate_key(key)

    def move_entry(self, record_key: bytes, old: Record, new: Record) -> Move:
        """Return the keys of the entries that a change removes and adds. Both are None if the entry
        stays the same: it exists, or the builder will insert it."""
        before, after = self.entry_key(old, record_key), self.entry_key(new, record_key)
        return (None, None) if before == after else (before, after)

    def list_entries(self, records: Sequence[tuple[bytes, Record]]) -> list[EntryRow]:
        """Return the entries of (record key, record) pairs. Raises `DatasetMismatch`."""
        if not self.matches_datasets:
            self.refuse_other_datasets()
        build, entries = self.keys.build, list[EntryRow]()
        for record_key, record in records:
            key = build(record)
            is_short = len(key) < INDEX_KEY_SIZE_BYTES_MAX
            entries.append((key if is_short else truncate_key(key), record_key))
        return entries

    def refuse_other_datasets(self) -> None:
        """Raises `DatasetMismatch`."""
        built_with, here = self.descriptor.describe_difference()
        raise DatasetMismatch(
            "this process has other collation or time zone data than the index was built with",
            index=self.name,
            built_with=built_with,
            here=here,
            hint="it was built with these data before: use the newer ones, or run `zapdb "
            "reindex run` with these"
            if self.descriptor.is_ahead
            else "open the database again, with the ICU and time zone data that all other "
            "processes have",
        )

    def may_tie(self, page: PagedRows) -> bool:
        """Return whether any entry's key may differ from the full key, or be in another order."""
        sizes = [len(key) + len(record_key) for key, record_key, _ in page]
        return max(sizes, default=0) >= UNIQUE_ORDERED_SIZE_BYTES

    def may_be_truncated(self, entry: PagedRow) -> bool:
        """Return whether an entry's key may differ from the full key."""
        return is_truncated(entry[0])

    def add_entries(
        self, connection: Connection, entries: Sequence[EntryRow], refused: Refusal | None = None
    ) -> None:
        """Insert entries, in order of their keys.

        For a unique index, raises `Collision`, or the error that `refused` returns, if a key is
        taken.
        """
        if self.is_built:
            self.entries.insert_many(connection, entries, refused)
        else:
            self.entries.insert_absent(connection, entries)

    def find_collision(
        self, connection: Connection, entries: Sequence[EntryRow], gone: Container[EntryRow] = ()
    ) -> Collision | None:
        """Find the first entry of a unique index whose key another given entry has, or another
        record's entry; entries in `gone` do not count."""
        stored = self.find_stored_collisions(connection, dict(enumerate(entries)), gone)
        first = dict[bytes, bytes]()
        for number, (key, record_key) in enumerate(entries):
            if number in stored:
                return stored[number]
            if first.setdefault(key, record_key) != record_key:
                return Collision(self, key, record_key, first[key])
        return None

    def find_stored_collisions(
        self,
        connection: Connection,
        entries: Mapping[int, EntryRow],
        gone: Container[EntryRow] = (),
    ) -> dict[int, Collision]:
        """Find the entries of a unique index whose keys other records' entries have, by the numbers
        that they were given with; entries in `gone` do not count."""
        owners = self.entries.find_owners(connection, [key for key, _ in entries.values()])
        return {
            number: Collision(self, key, record_key, owner)
            for number, (key, record_key) in entries.items()
            if (owner := owners.get(key, record_key)) != record_key and (key, owner) not in gone
        }

    def remove_entries(self, connection: Connection, entries: Sequence[EntryRow]) -> None:
        if not self.is_built:
            self.entries.insert_absent(connection, entries)
        self.entries.delete_many(connection, entries)


@dataclass(frozen=True, slots=True)
class UniqueIndexMaintainer(IndexMaintainer):
    """An index in which no two records have equal keys, unless a field of the key is null."""

    optional: tuple[str, ...] = ()
    """The names of its fields that may be null."""

    def entry_key(self, record: Record, record_key: bytes) -> bytes:
        if not self.matches_datasets:
            self.refuse_other_datasets()
        has_null = any(getattr(record, name) is None for name in self.optional)
        return truncate_unique_key(self.keys.build(record), record_key, has_null=has_null)

    def list_entries(self, records: Sequence[tuple[bytes, Record]]) -> list[EntryRow]:
        return [(self.entry_key(record, key), key) for key, record in records]

    def may_tie(self, page: PagedRows) -> bool:
        # `super()` does not work in a dataclass with slots.
        return IndexMaintainer.may_tie(self, page) or any(map(self.may_be_truncated, page))

    def may_be_truncated(self, entry: PagedRow) -> bool:
        key, record_key, _ = entry
        # With a null, the record's key is behind the full key.
        return is_truncated(key) or (bool(self.optional) and key.endswith(record_key))

    def add_entries(
        self, connection: Connection, entries: Sequence[EntryRow], refused: Refusal | None = None
    ) -> None:
        if self.is_built:
            self.entries.insert_many(connection, entries, refused)
            return
        if self.entries.insert_absent(connection, entries) < len(entries):
            found = self.find_collision(connection, entries)
            if found is not None:
                raise found


@dataclass(frozen=True, slots=True)
class DisabledIndexMaintainer(IndexMaintainer):
    """An index that no process maintains until an operator rebuilds it (rule 26).

    A unique index still binds. It can't be checked whether a new value is taken, so all writes are
    refused.
    """

    has_entries = False

    def refuse_other_datasets(self) -> None:
        """Raises `DatasetMismatch` if the index is unique."""
        if self.descriptor.index.unique:
            raise DatasetMismatch(
                "a unique index is disabled because its collation or time zone data "
                "changed, so its fields cannot be changed",
                index=self.name,
                built_with="; ".join(d.version for d in self.descriptor.built_with.values()),
                hint="rebuild it with `zapdb reindex run`",
            )

    def list_entries(self, records: Sequence[tuple[bytes, Record]]) -> list[EntryRow]:
        self.refuse_other_datasets()
        return []

    def move_entry(self, record_key: bytes, old: Record, new: Record) -> Move:
        if self.descriptor.index.unique and self.keys.build(old) != self.keys.build(new):
            self.refuse_other_datasets()
        return None, None


def open_maintainer(
    table: TableSchema, descriptor: IndexDescriptor, records: RecordStatements
) -> IndexMaintainer:
    keys = build_keys(table, descriptor.index, descriptor.key_format)
    unique = descriptor.index.unique
    entries = EntryStatements(records.storage, descriptor.entry_table, records, unique=unique)
    if descriptor.state == "disabled":
        return DisabledIndexMaintainer(descriptor, keys, entries, matches_datasets=False)
    matches_datasets = not descriptor.is_mismatched
    if not unique:
        return IndexMaintainer(descriptor, keys, entries, matches_datasets)
    optional = tuple(field.name for field in keys.fields if field.optional)
    return UniqueIndexMaintainer(descriptor, keys, entries, matches_datasets, optional)


def find_collision(
    connection: Connection, index: IndexMaintainer, record_key: bytes, record: Record
) -> Collision | None:
    """Return the entry that keeps a record from having its own, if any."""
    key = index.entry_key(record, record_key)
    owner = index.entries.find_owners(connection, [key]).get(key, record_key)
    return None if owner == record_key else Collision(index, key, record_key, owner)
