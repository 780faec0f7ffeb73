"""Plans writes: from a bound table, stored bytes and given values to `Write` values.

Nothing here has a connection. A record's blobs and archive come through its attachments, and new
blobs are added to these (rule 19). The table's demands on a record that need no database are
checked here: types, checks, keys that fit an index.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from copy import copy
from typing import Any, Final

from zapdb.errors import CheckViolation, ZapdbError
from zapdb.log.pending_changes import LoggedChange
from zapdb.records import Attachments, Record, decode_prefix, held, new_blobs
from zapdb.storage.archives import ArchiveRow, archive_rows
from zapdb.tables.indexes import BoundTable, violations
from zapdb.tables.writes.write import NO_BLOBS, NOT_CONVERTED, Keys, NewRecords, Write

Keyed = tuple[bytes, Record]
"""A record with its key."""
Changes = tuple[Record, Mapping[str, Any], Collection[str]]
"""A record before the change by the active schema, its new values, and the fields that differ."""
NewValues = tuple[Mapping[str, Any], Mapping[str, Any]]
"""The values of a new record: in the served schema, and of fields that only the active one has."""
Stored = tuple[bytes, bytes]
"""A record's key and bytes."""
DECODED_AT_ONCE: Final = 100
"""How many new records there are as objects at a time."""


def plan_insert(
    bound: BoundTable, key: bytes, values: Mapping[str, Any], unseen: Mapping[str, Any]
) -> Write:
    """A new record of these values, and of those that were made for fields that only the active
    schema has; raises `InvalidValue` and `CheckViolation`."""
    attachments = bound.make_attachments()
    value = bound.adapter.encode(key, values, unseen, attachments)
    record, blobs = _read_new(bound, key, value, attachments)
    return Write(
        key,
        None,
        value,
        record,
        (),
        tuple([index.new_entry(key, record) for index in bound.indexes]),
        tuple([reference.key_of(record) for reference in bound.references]),
        blobs,
        tuple(archive_rows(key, attachments.archived)),
        change=LoggedChange(None, value) if bound.logs_changes else None,
    )


def _read_new(
    bound: BoundTable, key: bytes, value: bytes, attachments: Attachments
) -> tuple[Record, Mapping[bytes, bytes]]:
    """Return the record of new bytes and its blobs; raises `CheckViolation`."""
    record = bound.codec.decode(key, value, len(bound.prefix), attachments)
    blobs = new_blobs(record, attachments)  # before a check has loaded them
    if bound.checks:
        check_records(bound, [(key, record)])
    if attachments.archived:
        blobs = blobs | bound.archived_blobs(attachments)
    return record, blobs


def plan_inserts(bound: BoundTable, records: Sequence[NewValues], hint: str = "") -> list[Write]:
    """New records of these values, each with those that were made for fields that only the active
    schema has; raises `InvalidValue` and `CheckViolation`."""
    attachments = bound.make_attachments()
    rows, archived = _encode(bound, records, attachments)
    decoded: Sequence[Record | None] = [None] * len(rows)
    added: Iterable[Keys] = [()] * len(rows)
    targets: Iterable[Keys] = [()] * len(rows)
    if not bound.is_bare:
        keyed = bound.decode_rows(rows, attachments)
        check_records(bound, keyed, hint)
        decoded = [record for _, record in keyed]
        if bound.indexes:
            added = zip(*[index.new_entries(keyed) for index in bound.indexes], strict=True)
        if bound.references:
            targets = [tuple([r.key_of(record) for r in bound.references]) for _, record in keyed]
    plans = [
        Write(key, None, value, record, (), entries, referred, NO_BLOBS, kept)
        for (key, value), record, entries, referred, kept in zip(
            rows, decoded, added, targets, archived, strict=True
        )
    ]
    if bound.logs_changes:
        plans = [plan._replace(change=LoggedChange(None, plan.after)) for plan in plans]
    if attachments.blobs and plans:  # stored together, whichever record has them
        plans[0] = plans[0]._replace(blobs=attachments.blobs)
    return plans


def plan_new_records(
    bound: BoundTable, records: Sequence[NewValues], hint: str = ""
) -> NewRecords | None:
    """The same without record objects, of which as many as a batch has would keep the garbage
    collector busy; None if values are archived with them, as under an older schema."""
    if not bound.adapter.is_current:
        return None
    attachments = bound.make_attachments()
    rows, _ = _encode(bound, records, attachments)
    entries = [list[Stored]() for _ in bound.indexes]
    targets = [set[bytes]() for _ in bound.references]
    wrong = dict[int, CheckViolation]()
    for start in range(0, 0 if bound.is_bare else len(rows), DECODED_AT_ONCE):
        keyed = bound.decode_rows(rows[start : start + DECODED_AT_ONCE], attachments)
        wrong |= find_check_violations(bound, keyed, start)
        for index, found in zip(bound.indexes, entries, strict=True):
            found += index.list_entries(keyed)
        for reference, named in zip(bound.references, targets, strict=True):
            keys = (reference.key_of(record) for _, record in keyed)
            named.update(key for key in keys if key is not None)
    require_none(wrong, hint)
    return NewRecords(
        rows,
        [sorted(found) for found in entries],
        [sorted(named) for named in targets],
        attachments.blobs,
    )


def _encode(
    bound: BoundTable, records: Sequence[NewValues], attachments: Attachments
) -> tuple[list[Stored], list[tuple[ArchiveRow, ...]]]:
    """Return the keys and bytes of new records, and the archived values of each."""
    shape = bound.adapter
    encode_key, encode = shape.codec.encode_key, shape.codec.encode
    if shape.is_current:
        prefix = bound.prefix
        rows = [(encode_key(values), encode(prefix, values, attachments)) for values, _ in records]
        return rows, [()] * len(rows)
    rows, archived = [], []
    for values, unseen in records:
        key = encode_key(values)
        rows.append((key, shape.encode(key, values, unseen, attachments)))
        archived.append(tuple(archive_rows(key, attachments.archived)))
        attachments.archived = {}
    return rows, archived


def plan_update(
    bound: BoundTable,
    key: bytes,
    stored: bytes,
    changes: Changes,
    attachments: Attachments,
) -> Write:
    """Plan new values of a record, which was opened from its bytes `stored` with `attachments`. If
    it was stale, what the conversion made is stored with it. Raises `InvalidValue` and
    `CheckViolation`."""
    old, values, changed = changes
    value = bound.codec.encode(bound.prefix, values, attachments)
    new, blobs = _read_new(bound, key, value, attachments)
    removed: list[bytes | None] = []
    added: list[bytes | None] = []
    for index in bound.indexes:
        # The others keep their entries, and large values need not be loaded for it.
        moved = index.move_entry(key, old, new) if index.is_on(changed) else (None, None)
        removed.append(moved[0])
        added.append(moved[1])
    targets = [
        reference.key_of(new) if reference.field.name in changed else None
        for reference in bound.references
    ]
    change: LoggedChange | None = None
    converted: Mapping[int, bytes] = NOT_CONVERTED
    if bound.logs_changes:
        before, made, converted = _before(bound, key, stored)
        change, blobs = LoggedChange(before, value), {**blobs, **made}
    return Write(
        key,
        stored,
        value,
        new,
        tuple(removed),
        tuple(added),
        tuple(targets),
        blobs,
        tuple(archive_rows(key, attachments.archived)),
        change=change,
        converted=converted,
    )


def plan_null(bound: BoundTable, key: bytes, stored: bytes, name: str) -> Write:
    """A record whose field of this name becomes null."""
    attachments = bound.make_attachments(key, stored)
    old, _ = bound.reader.open(key, stored, attachments)
    return plan_update(bound, key, stored, (old, held(old) | {name: None}, {name}), attachments)


def plan_delete(bound: BoundTable, key: bytes, stored: bytes) -> Write:
    """Plan the deletion of a record and all that belongs to it; references to it are not
    checked."""
    removed: Keys = ()
    if bound.indexes:
        # A stale record is converted with its archived values, so before these are deleted.
        old = bound.index_reader.read(key, stored)
        removed = tuple([index.drop_entry(key, old) for index in bound.indexes])
    change: LoggedChange | None = None
    blobs: Mapping[bytes, bytes] = NO_BLOBS
    converted: Mapping[int, bytes] = NOT_CONVERTED
    if bound.logs_changes:
        before, blobs, converted = _before(bound, key, stored)
        change = LoggedChange(before, None)
    return Write(
        key, stored, None, removed=removed, blobs=blobs, change=change, converted=converted
    )


def plan_archiving(
    bound: BoundTable, key: bytes, stored: bytes, rows: Sequence[ArchiveRow]
) -> Write:
    """A record that stays what it is, and gets archived values."""
    before, blobs, converted = _before(bound, key, stored)
    return Write(
        key,
        stored,
        stored,
        blobs=blobs,
        archived=tuple(rows),
        change=LoggedChange(before, before),
        converted=converted,
    )


def _before(
    bound: BoundTable, key: bytes, stored: bytes
) -> tuple[bytes, Mapping[bytes, bytes], Mapping[int, bytes]]:
    """A stored record as the change log keeps it, the blobs that only its conversion makes, which
    the log owns, and the values that it archives."""
    attachments = bound.make_attachments(key, stored)
    value = bound.reader.convert(key, stored, attachments)
    blobs: Mapping[bytes, bytes] = NO_BLOBS
    if attachments.blobs:
        blobs = new_blobs(
            bound.codec.decode(key, value, len(bound.prefix), attachments), attachments
        )
    if attachments.archived:
        blobs = {**blobs, **bound.archived_blobs(attachments)}
    _, start = decode_prefix(value, 0)
    return bound.prefix + value[start:], blobs, attachments.archived or NOT_CONVERTED


def check_records(bound: BoundTable, records: Iterable[Keyed], hint: str = "") -> None:
    """Raises `CheckViolation` unless all checks of the table are true."""
    require_none(find_check_violations(bound, records), hint)


def find_check_violations(
    bound: BoundTable, records: Iterable[Keyed], start: int = 0
) -> dict[int, CheckViolation]:
    """What is wrong with records, by their places, which are counted from `start`."""
    if not bound.checks:
        return {}
    found = dict[int, CheckViolation]()
    for place, (key, record) in enumerate(records, start):
        for check in bound.checks:
            if not check.holds(record):
                found[place] = violations.check_violation(bound, check, key, record)
                break
    return found


def require_none(found: Mapping[int, ZapdbError], hint: str) -> None:
    """Raise the error of the first of several records, which knows those of each."""
    if found:
        raise first_of(found, hint)


def first_of(found: Mapping[int, ZapdbError], hint: str) -> ZapdbError:
    """The error of the first of several records, which knows those of each; with a hint about all
    of them."""
    first = found[min(found)]
    error = copy(first)
    error.context, error.hint, error.of_each = {**first.context}, hint or first.hint, found
    return error
