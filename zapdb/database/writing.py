"""Writing records: the row, its blobs and entries, and what the table demands of it.

All of it happens in the caller's transaction, which is undone where something is refused: so it
matters little what is looked at first. Checks come before any statement. What a record refers to is
looked up after the record is there, since it may be the record itself.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final

from zapdb.database.recording import read_before, record_changed
from zapdb.indexes import Collision, LiveTable, violations
from zapdb.records import Beside, Record, new_blobs
from zapdb.storage import Connection
from zapdb.storage.archives import ArchiveRow, archive_rows

NONE_INSERTED: Final = "none was inserted"

Keyed = tuple[bytes, Record]
"""A record with its key."""
Stored = tuple[bytes, bytes]
"""A record's key and bytes."""


def encode_many(
    live: LiveTable, records: Sequence[Mapping[str, Any]], beside: Beside
) -> tuple[list[tuple[bytes, bytes]], list[ArchiveRow]]:
    """The keys and bytes of new records, and what is archived beside them.

    Their new blobs are left `beside`.
    """
    shape, archived = live.shape, list[ArchiveRow]()
    encode_key, encode = shape.codec.encode_key, shape.codec.encode
    if shape.is_current:
        prefix = live.prefix
        return [(encode_key(values), encode(prefix, values, beside)) for values in records], []
    rows = []
    for values in records:
        key = encode_key(values)
        rows.append((key, shape.encode(key, values, beside)))
        archived += archive_rows(key, beside.archived)
        beside.archived = {}
    return rows, archived


def check_records(live: LiveTable, records: Iterable[Keyed], hint: str = "") -> None:
    """Raises `CheckViolation` unless all checks of the table are true."""
    for key, record in records:
        for check in live.checks:
            if not check.holds(record):
                raise violations.unmet(live, check, key, record, hint)


def check_targets(
    connection: Connection,
    live: LiveTable,
    records: Sequence[Keyed],
    changed: Collection[str] | None = None,
    hint: str = "",
) -> None:
    """Raises `ReferenceViolation` unless what the fields refer to is there: all, or `changed`."""
    for reference in live.references:
        if changed is not None and reference.field.name not in changed:
            continue
        for at in reference.find_missing(connection, [record for _, record in records]):
            raise violations.dangling(live, reference, *records[at], hint)


def insert_entries(connection: Connection, live: LiveTable, key: bytes, record: Record) -> None:
    """Enter a new record into all indexes; raises `UniqueViolation`."""
    for index in live.indexes:
        try:
            index.insert(connection, key, record)
        except Collision as found:
            raise violations.collision(live, found, record) from None


def insert_many_entries(connection: Connection, live: LiveTable, records: Sequence[Keyed]) -> None:
    for index in live.indexes:
        try:
            index.insert_many(connection, index.list_entries(records))
        except Collision as found:
            record = dict(records)[found.record_key]
            raise violations.collision(live, found, record, NONE_INSERTED) from None


def store_change(
    connection: Connection,
    live: LiveTable,
    key: bytes,
    old: Record,
    values: Mapping[str, Any],
    changed: Collection[str],
    beside: Beside,
    *,
    stored: bytes,
) -> tuple[Record, bytes]:
    """Store other values of a record, which differ in the fields `changed`; returns the record and
    its bytes.

    `beside` is where the old record was opened, and `stored` its bytes. Raises `InvalidValue` and
    `ConstraintViolation`.
    """
    new, value, made = check_change(connection, live, key, values, beside, stored=stored)
    connection.run(live.records.update_sql, (value, key))
    live.blobs.insert(connection, made)
    live.store_beside(connection, key, beside)
    for index in live.indexes:
        # The others keep their entries, and large values need not be loaded for it.
        if index.is_on(changed):
            try:
                index.update(connection, key, old, new)
            except Collision as found:
                raise violations.collision(live, found, new) from None
    if live.references:
        check_targets(connection, live, [(key, new)], changed)
    return new, value


def check_change(
    connection: Connection,
    live: LiveTable,
    key: bytes,
    values: Mapping[str, Any],
    beside: Beside,
    *,
    stored: bytes,
) -> tuple[Record, bytes, dict[bytes, bytes]]:
    """Check other values of a record, and note the change for the change log; returns the record,
    its bytes and its new blobs, which are all still to be stored."""
    value = live.codec.encode(live.prefix, values, beside)
    new = live.codec.decode(key, value, len(live.prefix), beside)
    made = new_blobs(new, beside)  # before a check has looked at them
    if live.checks:
        check_records(live, [(key, new)])
    if live.has_history:
        before = read_before(connection, live, key, stored)
        record_changed(connection, live, key, before, value)
    return new, value, made


def remove_records(connection: Connection, live: LiveTable, records: Sequence[Stored]) -> None:
    """Delete records with all that is their own; who refers to them is not looked at."""
    # Stale ones are converted with what is archived beside them, so they are read before that goes.
    read = live.index_reader.read
    old = [(key, read(key, stored)) for key, stored in records] if live.indexes else []
    if live.has_history:
        for key, stored in records:
            before = read_before(connection, live, key, stored)
            record_changed(connection, live, key, before, None)
    keys = [key for key, _ in records]
    live.records.delete_many(connection, keys)
    live.archives.delete_many(connection, keys)
    for index in live.indexes:
        index.delete_many(connection, old)
