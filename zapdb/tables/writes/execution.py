"""Executes writes: the one place that knows the order of steps.

The order is the same for one write and for many, whatever they do:

    swaps         the record is what was read
    iterations    told of it                         they may need what a record has until now
    records       inserted, updated, deleted         concurrent writers of them wait here
    attachments   blobs; archived values that go, and that come
    entries       old ones removed, new ones added   so that records may exchange values
    targets       the records referred to exist      one may be among the new records
    log           noted; written before COMMIT

All steps run in the caller's transaction, which is rolled back if the database refuses one.
Statements are sent without waiting for their results. If the engine has pipelines they travel
together, and a refusal shows later, at the end of the operation. Its cause is looked up after the
rollback, in a new snapshot: a key may belong to a record that the transaction couldn't see.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from operator import attrgetter
from typing import Final

from zapdb.catalog import principal
from zapdb.errors import RecordExists, TransactionConflict, ZapdbError
from zapdb.log.pending_changes import LoggedChange, append_change
from zapdb.records.archive_cells import encode_archive
from zapdb.storage import (
    Connection,
    LockedRecords,
    Refusal,
    StatementRefused,
    TransactionMode,
)
from zapdb.storage.archives import ArchiveRow
from zapdb.storage.own_writes import RecordWrite, note_writes
from zapdb.tables.indexes import BoundTable, Collision, IndexMaintainer, ReferenceCheck, violations
from zapdb.tables.writes.write import ConvertedRecords, NewRecords, NotAsPlanned, Write
from zapdb.tables.writes.write_planning import first_of, plan_archiving

NONE_INSERTED: Final = "none was inserted"

Rows = list[tuple[bytes, bytes]]

_IS_LOCKED: Final = attrgetter("is_locked")


def execute(
    connection: Connection, bound: BoundTable, writes: Sequence[Write], hint: str = ""
) -> None:
    """Execute planned writes of one table, inside a transaction.

    Raises `ConstraintViolation`. Raises `StatementRefused` with a function that explains it, here
    or when the transaction sends its remaining statements. `hint` belongs to errors about several
    records.
    """
    for write in writes:
        if write.is_swap:
            refused = partial(StatementRefused, _explain_swap)
            bound.records.require_value(connection, write.key, write.before, refused)
    _tell_iterations(connection, bound, [write[:3] for write in writes])
    _write_records(connection, bound, writes, hint)
    if bound.logs_changes:
        _note_changes(connection, bound, writes)
    _write_attachments(connection, bound, writes)
    for at, index in enumerate(bound.indexes):
        if gone := _removed(writes, at):
            index.remove_entries(connection, gone)
        if new := _added(writes, at):
            _add_entries(connection, bound, index, new, writes, hint)
    for at, reference in enumerate(bound.references):
        _require_targets(connection, bound, reference, at, writes, hint)


def execute_inserts(connection: Connection, bound: BoundTable, new: NewRecords) -> None:
    """Insert many records of one table, inside a transaction.

    Raises `NotAsPlanned` if the database refuses one, here or where `execute` raises
    `StatementRefused`: they are to be planned one by one, which tells why.
    """
    refused = partial(StatementRefused, _explain_swap)
    _tell_iterations(connection, bound, [(key, None, value) for key, value in new.rows])
    bound.records.insert_many(connection, new.rows, refused)
    if bound.logs_changes:
        tenant, table, who = bound.catalog.tenant, bound.schema.number, principal.current()
        for key, value in new.rows:
            append_change(connection, who, (tenant, table, key), LoggedChange(None, value))
    if new.blobs:
        bound.blobs.insert(connection, dict(new.blobs))
    for index, entries in zip(bound.indexes, new.entries, strict=True):
        try:
            if entries:
                index.add_entries(connection, entries, refused)
        except Collision:
            raise NotAsPlanned from None
    for reference, targets in zip(bound.references, new.targets, strict=True):
        if targets:
            reference.targets.require_keys(connection, targets, refused)


def execute_conversions(
    connection: Connection, bound: BoundTable, converted: ConvertedRecords
) -> None:
    """Set many locked records of one table, inside a transaction."""
    before, after = converted
    if isinstance(before, LockedRecords):
        bound.records.set_locked(connection, before, after)
    else:
        bound.records.set_many(connection, [key for key, _ in before], after)


def _tell_iterations(
    connection: Connection, bound: BoundTable, writes: Sequence[RecordWrite]
) -> None:
    if connection.mode is not TransactionMode.JOB:  # it moves no record
        note_writes(connection, (bound.catalog.tenant, bound.schema.number), writes)


# Records


def _write_records(
    connection: Connection, bound: BoundTable, writes: Sequence[Write], hint: str
) -> None:
    records = bound.records
    if len(writes) == 1:
        (write,) = writes
        if write.before is None:
            refused = partial(_refuse_key, bound, writes, hint)
            connection.send(records.insert_sql, (write.key, write.after), refused)
        elif write.after is not None:
            connection.send(records.update_sql, (write.after, write.key))
        else:
            connection.send(records.delete_sql, (write.key,))
        return
    if all(map(_IS_LOCKED, writes)):
        _write_locked(connection, bound, writes)
        return
    gone = [w.key for w in writes if w.after is None]
    changed = [(w.key, w.after) for w in writes if w.after is not None and w.before is not None]
    new = [(w.key, w.after) for w in writes if w.after is not None and w.before is None]
    if gone:
        records.delete_many(connection, gone)
    if changed:
        records.update_many(connection, changed)
    if new:
        records.insert_many(connection, new, partial(_refuse_key, bound, writes, hint))


def _write_locked(connection: Connection, bound: BoundTable, writes: Sequence[Write]) -> None:
    """Records that are there, and that no other transaction changes meanwhile."""
    if gone := [w.key for w in writes if w.after is None]:
        bound.records.delete_many(connection, gone)
    changed = {w.key: w.after for w in writes if w.after is not None}
    if changed:
        bound.records.set_many(connection, list(changed), list(changed.values()))


def _refuse_key(bound: BoundTable, writes: Sequence[Write], hint: str) -> Exception:
    return StatementRefused(partial(_explain_key, bound, writes, hint))


def _explain_swap(_: Connection) -> Exception:
    return NotAsPlanned()


def _explain_key(
    bound: BoundTable, writes: Sequence[Write], hint: str, connection: Connection
) -> Exception:
    """Return why one of the new records could not be inserted."""
    keys = [w.key for w in writes if w.before is None]
    there = bound.records.find_keys(connection, keys)
    if not there and len(set(keys)) == len(keys):
        return _conflict(bound, "another transaction inserted the record, and may undo it")
    found = {
        place: RecordExists(
            "a record with this key already exists",
            table=bound.adapter.schema.name,
            key=violations.show_key(bound, write.key),
            hint="use upsert() to replace it",
        )
        for place, write in enumerate(writes)
        if write.before is None and write.key in there
    }
    if found:
        return first_of(found, "" if len(keys) == 1 else hint)
    return RecordExists(
        "two of the records have the same key", table=bound.adapter.schema.name, hint=hint
    )


def _conflict(bound: BoundTable, message: str) -> TransactionConflict:
    return TransactionConflict(
        message,
        table=bound.adapter.schema.name,
        hint="run it again, or use db.run(function), which repeats it",
    )


# Their attachments


def _note_changes(connection: Connection, bound: BoundTable, writes: Sequence[Write]) -> None:
    """Add the changes of the log, before the archive is written: with all archived values of a
    record that gets others."""
    tenant, table, who = bound.catalog.tenant, bound.schema.number, principal.current()
    touching = [w.key for w in writes if w.before is not None and _touches_archive(bound, w)]
    stored = bound.archives.load_many(connection, touching) if touching else {}
    for write in writes:
        if write.change is not None:
            change = write.change
            if _touches_archive(bound, write):
                change = _with_archive(bound, write, change, stored.get(write.key, {}))
            append_change(connection, who, (tenant, table, write.key), change)


def _touches_archive(bound: BoundTable, write: Write) -> bool:
    """Whether a write that is logged gives a record other archived values: its conversion gives it
    none that it had not."""
    if write.change is None or not bound.archived:
        return False
    if write.after is None:
        return True
    return any(write.converted.get(field) != value for field, _, value in write.archived)


def archive_values(connection: Connection, bound: BoundTable, rows: Sequence[ArchiveRow]) -> None:
    """Archive values of records that are there, as an import does; they are noted in the log."""
    if bound.logs_changes:
        given = dict[bytes, list[ArchiveRow]]()
        for row in rows:
            given.setdefault(row[1], []).append(row)
        _, stored = bound.records.find_many(connection, list(given))
        writes = [plan_archiving(bound, key, value, given[key]) for key, value in stored.items()]
        _note_changes(connection, bound, writes)
    bound.archives.insert(connection, rows)


def _with_archive(
    bound: BoundTable, write: Write, change: LoggedChange, stored: Mapping[int, bytes]
) -> LoggedChange:
    """Return a change with all archived values of the record before and after it."""
    before = {**stored, **write.converted}
    after = {} if write.after is None else {**before, **{f: v for f, _, v in write.archived}}
    cells = (
        encode_archive({field: found[field] for field in bound.archived & found.keys()})
        for found in (before, after)
    )
    return LoggedChange(change.before, change.after, *cells)


def _write_attachments(connection: Connection, bound: BoundTable, writes: Sequence[Write]) -> None:
    blobs: dict[bytes, bytes] = {}
    restored: list[tuple[int, bytes]] = []
    archived: list[ArchiveRow] = []
    for write in writes:
        if write.blobs:
            blobs |= write.blobs
        if write.restored:
            restored += [(field, write.key) for field in write.restored]
        if write.archived:
            archived += write.archived
    if blobs:
        bound.blobs.insert(connection, blobs)
    if restored:
        bound.archives.consume(connection, restored)
    if archived:
        bound.archives.insert(connection, archived)
    if bound.archives.fields:
        gone = [write.key for write in writes if write.after is None]
        if gone:
            bound.archives.delete_many(connection, gone)


# Index entries


def _removed(writes: Sequence[Write], at: int) -> Rows:
    """The entries that go in the index at a place of the table's, in order."""
    return sorted((k, w.key) for w in writes if w.removed and (k := w.removed[at]) is not None)


def _added(writes: Sequence[Write], at: int) -> Rows:
    """The entries that come."""
    return sorted((k, w.key) for w in writes if w.added and (k := w.added[at]) is not None)


def _add_entries(
    connection: Connection,
    bound: BoundTable,
    index: IndexMaintainer,
    entries: Rows,
    writes: Sequence[Write],
    hint: str,
) -> None:
    refused: Refusal | None = None
    if index.descriptor.index.unique:
        refused = partial(StatementRefused, partial(_explain_entry, bound, index, writes, hint))
    try:
        index.add_entries(connection, entries, refused)
    except Collision as found:
        raise _collision(bound, found, writes, hint) from None


def _explain_entry(
    bound: BoundTable,
    index: IndexMaintainer,
    writes: Sequence[Write],
    hint: str,
    connection: Connection,
) -> Exception:
    at = bound.indexes.index(index)
    gone = set(_removed(writes, at))
    entries = _entries_of(writes, at)
    collision = index.find_collision(connection, list(entries.values()), gone)
    if collision is None:
        reason = "another transaction wrote a record with these values, and may undo it"
        return _conflict(bound, reason)
    error = _collision(bound, collision, writes, hint)
    stored = index.find_stored_collisions(connection, entries, gone)
    error.of_each = {place: _collision(bound, found, writes, "") for place, found in stored.items()}
    return error


def _entries_of(writes: Sequence[Write], at: int) -> dict[int, tuple[bytes, bytes]]:
    """The entries that come, by the place of the write, in the order of the writes."""
    return {
        place: (key, write.key)
        for place, write in enumerate(writes)
        if write.added and (key := write.added[at]) is not None
    }


def _collision(
    bound: BoundTable, found: Collision, writes: Sequence[Write], hint: str
) -> ZapdbError:
    record = next(w.record for w in writes if w.key == found.record_key)
    assert record is not None  # it got an entry
    return violations.collision(bound, found, record, hint)


# References


def _require_targets(
    connection: Connection,
    bound: BoundTable,
    reference: ReferenceCheck,
    at: int,
    writes: Sequence[Write],
    hint: str,
) -> None:
    wanted = {w.targets[at] for w in writes if w.targets} - {None}
    if wanted:
        keys = sorted(key for key in wanted if key is not None)
        explain = partial(_explain_target, bound, reference, at, writes, hint)
        reference.targets.require_keys(connection, keys, partial(StatementRefused, explain))


def _explain_target(
    bound: BoundTable,
    reference: ReferenceCheck,
    at: int,
    writes: Sequence[Write],
    hint: str,
    connection: Connection,
) -> Exception:
    keys = [w.targets[at] for w in writes if w.targets]
    there = reference.targets.find_keys(connection, [key for key in keys if key is not None])
    if reference.targets.name == bound.records.name:  # they are undone, and would have been there
        there |= {w.key for w in writes if w.after is not None}
    found = dict[int, ZapdbError]()
    for place, write in enumerate(writes):
        key = write.targets[at] if write.targets else None
        if key is not None and key not in there:
            assert write.record is not None  # it has a reference
            found[place] = violations.missing_target(bound, reference, write.key, write.record)
    if found:
        return first_of(found, hint)
    return _conflict(bound, "another transaction inserts the record that one refers to")
