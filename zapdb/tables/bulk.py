"""Several records by their keys: read, or deleted, some hundred with each statement."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from zapdb.errors import UsageError
from zapdb.storage import Connection
from zapdb.storage.cells import as_bytes
from zapdb.storage.statements import VALUES_PER_STATEMENT
from zapdb.tables.indexes import BoundTable
from zapdb.tables.on_delete import apply_on_delete
from zapdb.tables.session import Session
from zapdb.tables.writes import WritePlan, delete_found, execute

KEYS_PER_STATEMENT = VALUES_PER_STATEMENT


def remove_many(
    session: Session, connection: Connection, bound: BoundTable, keys: Sequence[bytes]
) -> int:
    """Delete the records with these keys; return how many existed.

    Referencing records are checked after all of them are deleted, so records that refer to each
    other can be deleted together. Raises `ReferenceViolation`.
    """
    found = _remove(connection, bound, keys)
    apply_on_delete(session, connection, bound, found)
    return len(found)


def remove_all(
    session: Session, connection: Connection, bound: BoundTable, keys: Iterable[bytes]
) -> int:
    """Delete the records with these keys, which are read as they are deleted; return how many.

    Referencing records are checked at the end, so the deleted keys are kept until then if the table
    has incoming references. Raises `ReferenceViolation`.
    """
    stream, deleted, removed = iter(keys), 0, _Keys()
    while some := list(islice(stream, KEYS_PER_STATEMENT)):
        found = _remove(connection, bound, some)
        if bound.incoming_references:
            removed.add(found)
        deleted += len(found)
    left = iter(removed)
    while some := list(islice(left, KEYS_PER_STATEMENT)):
        apply_on_delete(session, connection, bound, some)
    return deleted


def remove_together(
    session: Session,
    connection: Connection,
    of_tables: Sequence[tuple[BoundTable, Sequence[bytes]]],
) -> int:
    """Delete records of several tables, which may refer to each other: referencing records are
    checked after all of them are deleted. Return how many existed; raises `ReferenceViolation`."""
    removed = list[tuple[BoundTable, list[bytes]]]()
    for bound, keys in of_tables:
        stream = iter(keys)
        while some := list(islice(stream, KEYS_PER_STATEMENT)):
            removed.append((bound, list(_remove(connection, bound, some))))
    for bound, found in removed:
        apply_on_delete(session, connection, bound, found)
    return sum(len(found) for _, found in removed)


def change_all(
    connection: Connection, bound: BoundTable, keys: Iterable[bytes], changes: Mapping[str, Any]
) -> int:
    """Change fields of the records with these keys, which are all read first; returns their
    number."""
    if changes.keys() & set(bound.adapter.key_names):
        raise UsageError(
            "the key of a record cannot be changed",
            table=bound.adapter.schema.name,
            key=", ".join(bound.adapter.key_names),
            hint="delete the records and insert them under new keys",
        )
    found, changed = _Keys(), 0
    found.add(keys)
    left = iter(found)
    while some := list(islice(left, KEYS_PER_STATEMENT)):
        _, stored_by_key = bound.records.find_many(connection, some)
        plan = WritePlan(bound)
        for key, value in stored_by_key.items():
            plan.update(key, as_bytes(value), changes)
        execute(connection, plan, "no record was changed")
        changed += len(plan.records)
    return changed


def _remove(connection: Connection, bound: BoundTable, keys: Sequence[bytes]) -> list[bytes]:
    """Delete the records with these keys; return the keys that existed."""
    _, found = bound.records.find_many(connection, keys)
    delete_found(connection, bound, [(key, as_bytes(value)) for key, value in found.items()])
    return list(found)


class _Keys:
    """Many keys in little memory: each takes two bytes more than it has."""

    def __init__(self) -> None:
        self._packed = bytearray()

    def add(self, keys: Iterable[bytes]) -> None:
        for key in keys:
            self._packed += len(key).to_bytes(2, "big") + key

    def __iter__(self) -> Iterator[bytes]:
        at, packed = 0, self._packed
        while at < len(packed):
            end = at + 2 + int.from_bytes(packed[at : at + 2], "big")
            yield bytes(packed[at + 2 : end])
            at = end
