"""What the records of a table must satisfy once pending migrations are applied, tried on records.

It is what the jobs after the migrations look for (`building`, `validation`): records that have the
same key in a unique index, that violate a check, or that lack the target of a reference; and fields
that become required, where they have no value.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b
from typing import Any, Final

from zapdb.activation import TableDescriptor, TenantCatalog
from zapdb.activation.tenant_catalog import NOT_STORED
from zapdb.catalog.row_kinds import ConstraintFinding
from zapdb.catalog.stored_migrations import ChainPlace
from zapdb.errors import DiskFull
from zapdb.errors.zapdb_error import describe_error
from zapdb.jobs.findings import EXAMPLES_MAX
from zapdb.jobs.validation import find_violations
from zapdb.migrations import Migration
from zapdb.records import CANNOT_BE_READ, Record, decoder_of
from zapdb.schema import Field
from zapdb.storage import Connection, Storage
from zapdb.storage.cells import as_bytes
from zapdb.tables.indexes import BoundTable, Collision, IndexMaintainer, make_reader, violations
from zapdb.tables.indexes.maintenance import EntryRow

Rows = Sequence[tuple[bytes, bytes]]
"""Records: (key, value)."""
Read = Callable[[bytes, bytes], Record]
KEY_DIGEST_SIZE_BYTES: Final = 16
SEEN_KEYS_CACHE_KIB: Final = 65_536
"""How much of the file is kept in memory."""


class Tally:
    """Findings in the order of their first ones, with the first examples."""

    def __init__(self) -> None:
        self._counts = dict[str, int]()
        self._examples = dict[str, list[str]]()

    def add(self, what: str, describe: Callable[[], str]) -> None:
        self._counts[what] = self._counts.get(what, 0) + 1
        examples = self._examples.setdefault(what, [])
        if len(examples) < EXAMPLES_MAX:
            examples.append(describe())

    def findings(self) -> tuple[ConstraintFinding, ...]:
        return tuple(
            ConstraintFinding(what, count, tuple(self._examples[what]))
            for what, count in self._counts.items()
        )


@dataclass(frozen=True, slots=True)
class RequiredField:
    """A field that a migration makes required, as it is before and after it, and what reads it."""

    before: Field
    after: Field
    read_before: Read
    read_after: Read

    def is_missing(self, key: bytes, value: bytes) -> bool:
        return getattr(self.read_before(key, value), self.before.name) is None

    def describe(self, bound: BoundTable, key: bytes, value: bytes) -> str:
        filled = violations.show_fields(self.read_after(key, value), [self.after.name])
        return f"{violations.show_key(bound, key)} has no {self.before.name}, and gets {filled}"


@dataclass(frozen=True, slots=True)
class _Found:
    """What was found of some records, which can all be read: in words what they violate, the
    entries that they would have in each unique index, and fields that would be filled."""

    records: list[tuple[bytes, Record]]
    violated: list[tuple[str, str]]
    entries: list[list[EntryRow]]
    missing: list[tuple[RequiredField, bytes, bytes]]


class FutureChecks:
    """The checks of one table under the tenant catalog that the migrations would make. To be closed
    at the end."""

    def __init__(
        self,
        storage: Storage,
        future: TenantCatalog,
        descriptor: TableDescriptor,
        pending: Sequence[Migration],
    ) -> None:
        self.bound = BoundTable(storage, future, descriptor)
        self.refused, self.filled = Tally(), Tally()
        self._read = _reader(self.bound, future.place, self.bound.decode_demanded)
        self._unique = [
            index
            for index in self.bound.indexes
            if index.descriptor.index.unique
            and index.descriptor.state == "building"
            and index.matches_datasets
        ]
        self._required = list(_list_required(self.bound, pending))
        self._seen = _SeenKeys()

    @property
    def is_needed(self) -> bool:
        """Whether anything can be violated, so that all records have to be read."""
        return bool(self._unique or self._required or self.bound.descriptor.unvalidated)

    def close(self) -> None:
        self._seen.close()

    def look_at(self, connection: Connection, rows: Rows) -> dict[bytes, str]:
        """Note what records violate, in one snapshot; returns why some can't be read, by their
        keys."""
        unreadable = dict[bytes, str]()
        try:
            found = [self._find(connection, rows)]
        except CANNOT_BE_READ:
            found = []
            for row in rows:
                try:
                    found.append(self._find(connection, [row]))
                except CANNOT_BE_READ as error:
                    unreadable[row[0]] = describe_error(error)
        for one in found:
            self._note(connection, one)
        return unreadable

    def _find(self, connection: Connection, rows: Rows) -> _Found:
        records = [(key, self._read(key, value)) for key, value in rows]
        return _Found(
            records,
            list(find_violations(connection, self.bound, records, validated=False)),
            [index.list_entries(records) for index in self._unique],
            [
                (field, key, value)
                for field in self._required
                for key, value in rows
                if field.is_missing(key, value)
            ],
        )

    def _note(self, connection: Connection, found: _Found) -> None:
        for what, text in found.violated:
            self.refused.add(what, partial(str, text))
        for field, key, value in found.missing:
            describe = partial(field.describe, self.bound, key, value)
            self.filled.add(f"field {field.after.name}", describe)
        for number, entries in enumerate(found.entries):
            for entry, (_, record) in zip(entries, found.records, strict=True):
                self._note_entry(connection, number, entry, record)

    def _note_entry(
        self, connection: Connection, number: int, entry: EntryRow, record: Record
    ) -> None:
        """Note the key that a record would have in a unique index; it is refused if another record
        has it, and still has it."""
        (key, record_key), index = entry, self._unique[number]
        owner = self._seen.find(number, key)
        if owner is None or not self._has_key(connection, index, owner, key):
            self._seen.note(number, key, record_key)
            return
        found = Collision(index, key, record_key, owner)
        describe = partial(violations.describe_collision, self.bound, found, record)
        self.refused.add(f"index {index.name}", describe)

    def _has_key(
        self, connection: Connection, index: IndexMaintainer, record_key: bytes, key: bytes
    ) -> bool:
        stored = connection.fetch_one(self.bound.statements.get_sql, (record_key,))
        if stored is None or stored[0] is None:
            return False
        record = self.bound.index_reader.read(record_key, as_bytes(stored[0]))
        return index.entry_key(record, record_key) == key


def _list_required(bound: BoundTable, pending: Sequence[Migration]) -> Iterator[RequiredField]:
    number = bound.schema.number
    for migration in pending:
        before = migration.before.table_numbered(number)
        after = migration.after.table_numbered(number)
        if before is None or after is None:
            continue
        optional = {field.number: field for field in before.fields if field.optional}
        for field in after.fields:
            if field.number in optional and not field.optional:
                wanted = frozenset({field.number})
                chain, zones = bound.catalog.chain, bound.catalog.zones
                sides = (migration.number - 1, before), (migration.number, after)
                readers = (
                    _reader(bound, ChainPlace.on(chain, at), decoder_of(table, wanted, zones))
                    for at, table in sides
                )
                yield RequiredField(optional[field.number], field, *readers)


def _reader(bound: BoundTable, place: ChainPlace, decode: Any) -> Read:
    return make_reader(
        bound.storage, bound.catalog, bound.descriptor, place, NOT_STORED, decode
    ).read


class _SeenKeys:
    """The keys of unique indexes that were seen so far, and the record that has each.

    There may be more than memory has room for: they lie in a temporary file of SQLite, which nobody
    else can open, and which is gone with the process. It has digests of keys, and so no values. To
    be closed at the end; used by one thread at a time.
    """

    def __init__(self) -> None:
        self._file = sqlite3.connect("", isolation_level=None, check_same_thread=False)
        self._file.execute("PRAGMA journal_mode = OFF")
        self._file.execute(f"PRAGMA cache_size = -{SEEN_KEYS_CACHE_KIB}")
        self._file.execute(
            "CREATE TABLE seen (of INTEGER NOT NULL, digest BLOB NOT NULL, record BLOB NOT NULL,"
            " PRIMARY KEY (of, digest)) WITHOUT ROWID"
        )
        self._file.execute("BEGIN")

    def close(self) -> None:
        self._file.close()

    def find(self, index: int, key: bytes) -> bytes | None:
        """The key of the record that was noted for an index and a key of it."""
        query = "SELECT record FROM seen WHERE of = ? AND digest = ?"
        with _naming_the_disk():
            row = self._file.execute(query, (index, _digest(key))).fetchone()
        return None if row is None else row[0]

    def note(self, index: int, key: bytes, record: bytes) -> None:
        """Note a record in the place of what was noted before."""
        with _naming_the_disk():
            self._file.execute(
                "INSERT OR REPLACE INTO seen VALUES (?, ?, ?)", (index, _digest(key), record)
            )


def _digest(key: bytes) -> bytes:
    return blake2b(key, digest_size=KEY_DIGEST_SIZE_BYTES).digest()


@contextmanager
def _naming_the_disk() -> Iterator[None]:
    try:
        yield
    except sqlite3.OperationalError as error:
        raise DiskFull(
            "the temporary file with the keys of unique indexes can't be written",
            cause=str(error),
            hint="set SQLITE_TMPDIR to a directory with room for it: some 50 bytes for each record",
        ) from error
