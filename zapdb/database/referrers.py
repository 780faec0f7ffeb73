"""What becomes of the records that refer to one when it is deleted.

The record is deleted first, then whoever refers to it is looked for: a record that refers to itself
is in nobody's way, and a circle of cascades ends where it began. `restrict` looks at the moment: a
record that another cascade of the same deletion would take away later is in the way, too.

Referrers are found by an index that begins with the field; by a scan while none such is readable.
Deleted records whose referrers are still to be looked for wait on a stack, at most a page for each
level of cascades.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from zapdb.database.session import Session
from zapdb.database.writing import remove_record, store_change
from zapdb.indexes import LiveIndex, LiveTable, Referrer, search_equal, violations
from zapdb.limits import PAGE_RECORDS_MAX
from zapdb.records import held
from zapdb.storage import Connection

PAGE: Final = 256
"""Referrers that are dealt with at a time."""

Stored = tuple[bytes, bytes]
"""A record's key and bytes."""


def let_go(session: Session, connection: Connection, live: LiveTable, key: bytes) -> None:
    """Deal with all that refers to a record that was deleted in this transaction.

    Raises `ReferenceViolation` where a reference restricts the deletion, and what changing the
    referring records raises.
    """
    waiting = [(live, key)]
    while waiting:
        live, key = waiting.pop()
        for referrer in live.referrers:
            other = session.live_in_force(referrer.table)
            if referrer.key.on_delete == "restrict":
                _restrict(connection, live, key, other, referrer)
            elif referrer.key.on_delete == "set_null":
                while page := find_referrers(connection, live, key, other, referrer, PAGE):
                    for found in page:
                        _set_null(connection, other, referrer, found)
            else:
                page = find_referrers(connection, live, key, other, referrer, PAGE)
                if len(page) == PAGE:
                    waiting.append((live, key))  # again, once those of this page are dealt with
                for removed, stored in page:
                    remove_record(connection, other, removed, stored)
                    if other.referrers:
                        waiting.append((other, removed))


def _restrict(
    connection: Connection, live: LiveTable, key: bytes, other: LiveTable, referrer: Referrer
) -> None:
    found = find_referrers(connection, live, key, other, referrer, PAGE_RECORDS_MAX)
    if found:
        keys = [key for key, _ in found]
        raise violations.referred_to(live, key, other, referrer, keys, PAGE_RECORDS_MAX)


def _set_null(connection: Connection, other: LiveTable, referrer: Referrer, found: Stored) -> None:
    key, stored = found
    name = other.table.field_numbered(referrer.key.field).name
    beside = other.make_beside(key, stored)
    old, _ = other.reader.open(key, stored, beside)
    values = held(old) | {name: None}
    store_change(connection, other, key, old, values, {name}, beside, stored=stored)


def find_referrers(
    connection: Connection,
    live: LiveTable,
    key: bytes,
    other: LiveTable,
    referrer: Referrer,
    limit: int,
) -> list[Stored]:
    """The first records that refer to one, in the order of the index or of their keys."""
    index = next((i for i in other.indexes if _finds(i, referrer)), None)
    pages = _scan(connection, other) if index is None else _search(connection, live, key, index)
    field = other.table.field_numbered(referrer.key.field)
    encode, read, found = field.type.encode, other.index_reader.read, list[Stored]()
    for page in pages:
        for record_key, stored in page:
            value = getattr(read(record_key, stored), field.name)
            if value is not None and encode(value) == key:
                found.append((record_key, stored))
                if len(found) == limit:
                    return found
    return found


def _finds(index: LiveIndex, referrer: Referrer) -> bool:
    return index.is_readable and index.state.index.components[0].field == referrer.key.field


def _search(
    connection: Connection, live: LiveTable, key: bytes, index: LiveIndex
) -> Iterator[list[Stored]]:
    target = live.codec.decode_key(key)
    search = search_equal(index.keys, [target if len(target) > 1 else target[0]])
    low, high = search.entry_bounds
    lower, after = (None if low is None else (low, b"")), None
    while True:
        _, page = index.entries.page(connection, lower, high, after, PAGE, descending=False)
        yield [(bytes(record), bytes(value)) for _, record, value in page]
        if len(page) < PAGE:
            return
        after = (bytes(page[-1][0]), bytes(page[-1][1]))


def _scan(connection: Connection, other: LiveTable) -> Iterator[list[Stored]]:
    after = b""
    while page := connection.fetch_all(other.records.page_sql, (after, PAGE_RECORDS_MAX)):
        yield [(bytes(key), bytes(value)) for key, value in page]
        after = bytes(page[-1][0])
