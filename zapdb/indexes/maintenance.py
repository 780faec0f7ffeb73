"""Keeping entries equal to records: what a change of one record does to one index.

An index that is being built (write-only) is maintained like any other, with one difference. Its
builder may have inserted the old entry after this transaction's snapshot, where a DELETE would not
see it and leave it for ever. So the old entry is first inserted if absent: where the builder's row
is there unseen, PostgreSQL reports a serialization failure, and the transaction runs again with a
snapshot that sees it. The record is written before its entries, so builder and writer meet at the
record's row lock.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass

from zapdb.catalog import IndexState
from zapdb.errors import DatasetMismatch
from zapdb.indexes.keys import KeyBuilder, build_keys, cut
from zapdb.records import Record
from zapdb.schema import Table
from zapdb.storage import Connection, IndexTable, RecordTable


@dataclass(frozen=True, slots=True)
class LiveIndex:
    """An index as writers and readers use it."""

    state: IndexState
    keys: KeyBuilder
    entries: IndexTable
    fits: bool
    """Whether this process makes the keys that the index holds: it has the same datasets."""

    @property
    def name(self) -> str:
        return self.state.index.name

    @property
    def is_built(self) -> bool:
        return self.state.phase == "readable"

    @property
    def is_readable(self) -> bool:
        """With other datasets it is not: new bounds over old entries miss rows (rule 26)."""
        return self.is_built and self.fits

    def is_on(self, names: Container[str]) -> bool:
        """Whether any of the fields with these names is part of the index."""
        return any(field.name in names for field in self.keys.fields)

    def entry_key(self, record: Record) -> bytes:
        if not self.fits:
            built_with, here = self.state.describe_difference()
            raise DatasetMismatch(
                "this process has other collation or time zone data than the index is built with",
                index=self.name,
                built_with=built_with,
                here=here,
                hint="open the database again, with the ICU and time zone data that all other "
                "processes have",
            )
        return cut(self.keys.build(record))

    def insert(self, connection: Connection, record_key: bytes, record: Record) -> None:
        if self.is_built:
            connection.run(self.entries.insert_sql, (self.entry_key(record), record_key))
        else:
            self.entries.insert_absent(connection, [(self.entry_key(record), record_key)])

    def delete(self, connection: Connection, record_key: bytes, record: Record) -> None:
        self._delete_entry(connection, self.entry_key(record), record_key)

    def update(self, connection: Connection, record_key: bytes, old: Record, new: Record) -> None:
        """Touch nothing where the entry stays the same: it is there, or its builder will come."""
        before, after = self.entry_key(old), self.entry_key(new)
        if before == after:
            return
        self._delete_entry(connection, before, record_key)
        if self.is_built:
            connection.run(self.entries.insert_sql, (after, record_key))
        else:
            self.entries.insert_absent(connection, [(after, record_key)])

    def _delete_entry(self, connection: Connection, key: bytes, record_key: bytes) -> None:
        if not self.is_built:
            self.entries.insert_absent(connection, [(key, record_key)])
        connection.run(self.entries.delete_sql, (key, record_key))


def open_index(table: Table, state: IndexState, records: RecordTable) -> LiveIndex:
    return LiveIndex(
        state,
        build_keys(table, state.index),
        IndexTable(records.storage, state.physical, records),
        not state.is_outdated,
    )
