"""Plans writes: from a table in force, stored bytes and given values to `Write` values.

Nothing here has a connection. What lies beside a record, its blobs and its archive, comes through
its surroundings, and new blobs are left there (rule 19). What the table demands of a record that
can be told without the database is demanded here: types, checks, keys that fit an index.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from zapdb.indexes import LiveTable, violations
from zapdb.records import Beside, Record, decode_prefix, held, new_blobs
from zapdb.storage.archives import ArchiveRow, archive_rows
from zapdb.writes.write import NO_BLOBS, Change, Keys, Write

Keyed = tuple[bytes, Record]
"""A record with its key."""
Changes = tuple[Record, Mapping[str, Any], Collection[str]]
"""A record as it was, in the shape in force, its values, and the fields that differ."""
Stored = tuple[bytes, bytes]
"""A record's key and bytes."""


def plan_insert(live: LiveTable, key: bytes, values: Mapping[str, Any]) -> Write:
    """A new record of these values; raises `InvalidValue` and `CheckViolation`."""
    beside = live.make_beside()
    value = live.shape.encode(key, values, beside)
    record = live.codec.decode(key, value, len(live.prefix), beside)
    blobs = new_blobs(record, beside)  # before a check has looked at them
    if live.checks:
        check_records(live, [(key, record)])
    if beside.archived:
        blobs = blobs | live.archived_blobs(beside)
    return Write(
        key,
        None,
        value,
        record,
        (),
        tuple([index.new_entry(key, record) for index in live.indexes]),
        tuple([reference.key_of(record) for reference in live.references]),
        blobs,
        tuple(archive_rows(key, beside.archived)),
        (None, value) if live.logs_changes else None,
    )


def plan_inserts(
    live: LiveTable, records: Sequence[Mapping[str, Any]], hint: str = ""
) -> list[Write]:
    """New records of these values; raises `InvalidValue` and `CheckViolation`."""
    beside = live.make_beside()
    rows, archived = _encode(live, records, beside)
    decoded: Sequence[Record | None] = [None] * len(rows)
    added: Iterable[Keys] = [()] * len(rows)
    targets: Iterable[Keys] = [()] * len(rows)
    if not live.is_bare:
        keyed = live.decode_rows(rows, beside)
        check_records(live, keyed, hint)
        decoded = [record for _, record in keyed]
        if live.indexes:
            added = zip(*[index.new_entries(keyed) for index in live.indexes], strict=True)
        if live.references:
            targets = [tuple([r.key_of(record) for r in live.references]) for _, record in keyed]
    plans = [
        Write(key, None, value, record, (), entries, referred, NO_BLOBS, kept)
        for (key, value), record, entries, referred, kept in zip(
            rows, decoded, added, targets, archived, strict=True
        )
    ]
    if live.logs_changes:
        plans = [plan._replace(change=(None, plan.after)) for plan in plans]
    if beside.blobs and plans:  # they go together, whosever they are
        plans[0] = plans[0]._replace(blobs=beside.blobs)
    return plans


def _encode(
    live: LiveTable, records: Sequence[Mapping[str, Any]], beside: Beside
) -> tuple[list[Stored], list[tuple[ArchiveRow, ...]]]:
    """The keys and bytes of new records, and what is archived beside each."""
    shape = live.shape
    encode_key, encode = shape.codec.encode_key, shape.codec.encode
    if shape.is_current:
        prefix = live.prefix
        rows = [(encode_key(values), encode(prefix, values, beside)) for values in records]
        return rows, [()] * len(rows)
    rows, archived = [], []
    for values in records:
        key = encode_key(values)
        rows.append((key, shape.encode(key, values, beside)))
        archived.append(tuple(archive_rows(key, beside.archived)))
        beside.archived = {}
    return rows, archived


def plan_update(
    live: LiveTable,
    key: bytes,
    stored: bytes,
    changes: Changes,
    beside: Beside,
) -> Write:
    """Other values of a record, which was opened from its bytes `stored` `beside`; of a stale one,
    what the conversion made is stored with it. Raises `InvalidValue` and `CheckViolation`."""
    old, values, changed = changes
    value = live.codec.encode(live.prefix, values, beside)
    new = live.codec.decode(key, value, len(live.prefix), beside)
    blobs = new_blobs(new, beside)  # before a check has looked at them
    if live.checks:
        check_records(live, [(key, new)])
    if beside.archived:
        blobs = blobs | live.archived_blobs(beside)
    removed, added = list[bytes | None](), list[bytes | None]()
    for index in live.indexes:
        # The others keep their entries, and large values need not be loaded for it.
        moved = index.move_entry(key, old, new) if index.is_on(changed) else (None, None)
        removed.append(moved[0])
        added.append(moved[1])
    targets = [
        reference.key_of(new) if reference.field.name in changed else None
        for reference in live.references
    ]
    change = None
    if live.logs_changes:
        before, made = _before(live, key, stored)
        change, blobs = (before, value), {**blobs, **made}
    return Write(
        key,
        stored,
        value,
        new,
        tuple(removed),
        tuple(added),
        tuple(targets),
        blobs,
        tuple(archive_rows(key, beside.archived)),
        change,
    )


def plan_null(live: LiveTable, key: bytes, stored: bytes, name: str) -> Write:
    """A record whose field of this name becomes null."""
    beside = live.make_beside(key, stored)
    old, _ = live.reader.open(key, stored, beside)
    return plan_update(live, key, stored, (old, held(old) | {name: None}, {name}), beside)


def plan_delete(live: LiveTable, key: bytes, stored: bytes) -> Write:
    """A record that goes with all that is its own; who refers to it is not looked at."""
    removed: Keys = ()
    if live.indexes:
        # Stale ones are converted with what is archived beside them, so before that goes.
        old = live.index_reader.read(key, stored)
        removed = tuple([index.drop_entry(key, old) for index in live.indexes])
    change: Change | None = None
    blobs: Mapping[bytes, bytes] = NO_BLOBS
    if live.logs_changes:
        before, blobs = _before(live, key, stored)
        change = (before, None)
    return Write(key, stored, None, removed=removed, blobs=blobs, change=change)


def _before(live: LiveTable, key: bytes, stored: bytes) -> tuple[bytes, Mapping[bytes, bytes]]:
    """A stored record as the change log keeps it, and the blobs that only its conversion makes:
    the log owns them."""
    beside = live.make_beside(key, stored)
    value = live.reader.convert(key, stored, beside)
    blobs = NO_BLOBS
    if beside.blobs:
        blobs = new_blobs(live.codec.decode(key, value, len(live.prefix), beside), beside)
    _, start = decode_prefix(value, 0)
    return live.prefix + value[start:], blobs


def check_records(live: LiveTable, records: Iterable[Keyed], hint: str = "") -> None:
    """Raises `CheckViolation` unless all checks of the table are true."""
    for key, record in records:
        for check in live.checks:
            if not check.holds(record):
                raise violations.check_violation(live, check, key, record, hint)
