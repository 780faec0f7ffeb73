"""Applying `on_delete` to the records that refer to deleted records.

Records are deleted first, then their referencing records are searched for. So a record that refers
to itself prevents nothing, and a circle of cascades ends where it began. `restrict` is checked at
that moment: a record that another cascade of the same deletion would delete later still prevents
the deletion.

The work is done in batches of deleted records. Referencing records are found by their key if it
begins with the field, else by an index that does: one statement finds those of a whole batch. While
no such index is readable, they are found by a scan. Batches whose referencing records are still to
be found wait on a stack, at most a page for each table and level of cascades.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final, assert_never

from zapdb.limits import PAGE_RECORDS_MAX
from zapdb.storage import Connection
from zapdb.storage.cells import as_bytes
from zapdb.tables.indexes import (
    BoundTable,
    IncomingReference,
    IndexMaintainer,
    incoming_reference_ranges,
    key_prefix_ranges,
    violations,
)
from zapdb.tables.session import Session
from zapdb.tables.writes import Stored, WritePlan, delete_found, execute

_PAGE: Final = 500
"""The number of referencing records that are changed or deleted at a time."""

Batch = tuple[BoundTable, Sequence[bytes], Sequence[IncomingReference]]
"""Keys of deleted records, and the references to their table that are not processed yet."""


def apply_on_delete(
    session: Session, connection: Connection, bound: BoundTable, keys: Sequence[bytes]
) -> None:
    """Apply `on_delete` to the records that refer to records deleted in this transaction.

    Raises `ReferenceViolation` if a reference restricts the deletion, and the errors of changing
    the referencing records.
    """
    waiting: list[Batch] = [(bound, keys, bound.incoming_references)] if keys else []
    while waiting:
        bound, keys, referrers = waiting.pop()
        unfinished, removed = list[IncomingReference](), list[Batch]()
        for incoming in referrers:
            other = session.bind_referring(incoming)
            match incoming.key.on_delete:
                case "restrict":
                    _restrict(connection, bound, keys, other, incoming)
                case "set_null":
                    while page := find_referrers(connection, bound, keys, other, incoming, _PAGE):
                        _set_null(connection, other, page, incoming)
                case "cascade":
                    page = find_referrers(connection, bound, keys, other, incoming, _PAGE)
                    if page:
                        delete_found(connection, other, page)
                        removed.append((other, [key for key, _ in page], other.incoming_references))
                    if len(page) == _PAGE:
                        unfinished.append(incoming)
                case unknown:
                    assert_never(unknown)
        if unfinished:  # continued after the records that refer to the page
            waiting.append((bound, keys, unfinished))
        waiting += removed


def _set_null(
    connection: Connection,
    other: BoundTable,
    referrers: Sequence[Stored],
    incoming: IncomingReference,
) -> None:
    name, plan = other.schema.field_numbered(incoming.key.field).name, WritePlan(other)
    for key, stored in referrers:
        plan.set_null(key, stored, name)
    execute(connection, plan)


def _restrict(
    connection: Connection,
    bound: BoundTable,
    keys: Sequence[bytes],
    other: BoundTable,
    incoming: IncomingReference,
) -> None:
    for found in find_referrers(connection, bound, keys, other, incoming, 1):
        key = _target_of(other, incoming)(*found)
        assert key is not None
        most = PAGE_RECORDS_MAX
        referring = find_referrers(connection, bound, [key], other, incoming, most)
        raise violations.still_referenced(
            bound, key, other, incoming, [k for k, _ in referring], most
        )


def find_referrers(
    connection: Connection,
    bound: BoundTable,
    keys: Sequence[bytes],
    other: BoundTable,
    incoming: IncomingReference,
    limit: int,
) -> list[Stored]:
    """Some of the records that refer to any of the records with these keys: all, or `limit`."""
    pages = _find_pages(connection, bound, keys, other, incoming, limit)
    target_of, targets, found = _target_of(other, incoming), set(keys), dict[bytes, bytes]()
    for page in pages:
        for key, stored in page:
            if target_of(key, stored) in targets:
                found[key] = stored
                if len(found) == limit:
                    return list(found.items())
    return list(found.items())


def _target_of(
    other: BoundTable, incoming: IncomingReference
) -> Callable[[bytes, bytes], bytes | None]:
    """Tells the key of the record that a stored one refers to, if it refers to any."""
    field, read = other.schema.field_numbered(incoming.key.field), other.index_reader.read
    name, encode, skip = field.name, field.type.encode, field.type.skip
    if _is_first_of_key(other, incoming):  # the key's first bytes are those of the target's key
        return lambda key, stored: key[: skip(key, 0)]

    def target_of(key: bytes, stored: bytes) -> bytes | None:
        value = getattr(read(key, stored), name)
        return None if value is None else encode(value)

    return target_of


def _find_pages(
    connection: Connection,
    bound: BoundTable,
    keys: Sequence[bytes],
    other: BoundTable,
    incoming: IncomingReference,
    limit: int,
) -> Iterator[list[Stored]]:
    """Pages of records among which all are that refer to the records with these keys."""
    if _is_first_of_key(other, incoming):
        return iter([other.statements.find_in(connection, key_prefix_ranges(keys), limit)])
    index = next((i for i in other.indexes if _finds(i, incoming)), None)
    if index is None:
        return _scan(connection, other)
    return _search(connection, bound, keys, index, limit)


def _is_first_of_key(other: BoundTable, incoming: IncomingReference) -> bool:
    return other.schema.key[0] == incoming.key.field


def _finds(index: IndexMaintainer, incoming: IncomingReference) -> bool:
    return index.is_readable and index.descriptor.index.components[0].field == incoming.key.field


def _search(
    connection: Connection,
    bound: BoundTable,
    keys: Sequence[bytes],
    index: IndexMaintainer,
    limit: int,
) -> Iterator[list[Stored]]:
    """Yield the records in the index's ranges that refer to the keys; some come twice."""
    ranges = incoming_reference_ranges(index.keys, map(bound.codec.decode_key, keys))
    page = index.entries.find_in(connection, ranges, limit)
    yield page
    if len(page) < limit:
        return
    # A caller that continues after a full page needs more: the ranges hold other records, too.
    for low, high in ranges:
        yield from _read_range(connection, index, low, high)


def _read_range(
    connection: Connection, index: IndexMaintainer, low: bytes, high: bytes
) -> Iterator[list[Stored]]:
    after = None
    while True:
        _, page = index.entries.page(connection, low, high, after, _PAGE, descending=False)
        yield [(as_bytes(record), as_bytes(value)) for _, record, value in page]
        if len(page) < _PAGE:
            return
        after = (as_bytes(page[-1][0]), as_bytes(page[-1][1]))


def _scan(connection: Connection, other: BoundTable) -> Iterator[list[Stored]]:
    after = b""
    while page := connection.fetch_all(other.statements.page_sql, (after, PAGE_RECORDS_MAX)):
        yield [(as_bytes(key), as_bytes(value)) for key, value in page]
        after = as_bytes(page[-1][0])
