"""Executes writes: the one place that knows the order of steps.

The order is the same for one record and for many, whatever becomes of them:

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

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Final

from zapdb.catalog import principal
from zapdb.errors import RecordExists, TransactionConflict, ZapdbError
from zapdb.log.pending_changes import LoggedChange, append_change
from zapdb.records.archive_cells import encode_archive
from zapdb.storage import Connection, StatementRefused, TransactionMode
from zapdb.storage.archives import ArchiveRow
from zapdb.storage.own_writes import note_writes
from zapdb.tables.indexes import BoundTable, Collision, violations
from zapdb.tables.writes.write_plan import LoggedWrite, NotAsPlanned, Stored, WritePlan, first_of

NONE_INSERTED: Final = "none was inserted"


def execute(connection: Connection, plan: WritePlan, hint: str = "") -> None:
    """Execute a plan, inside a transaction.

    Raises `ConstraintViolation`. Raises `StatementRefused` with a function that explains it, here
    or when the transaction sends its remaining statements. `hint` belongs to errors about several
    records.
    """
    bound, records = plan.bound, plan.records
    if not records:
        return
    if plan.is_swap:
        _require_before(connection, plan)
    if connection.mode is not TransactionMode.JOB:  # it moves no record
        note_writes(connection, (bound.catalog.tenant, bound.schema.number), records)
    _write_records(connection, plan, hint)
    if plan.logged and bound.logs_changes:
        _note_changes(connection, bound, plan.logged)
    _write_attachments(connection, plan)
    for at, index in enumerate(bound.indexes):
        if gone := plan.removed.get(at):
            gone.sort()
            index.remove_entries(connection, gone)
        if new := plan.added.get(at):
            new.sort()
            refused = partial(StatementRefused, partial(_explain_entry, plan, at, hint))
            try:
                index.add_entries(connection, new, refused if index.entries.unique else None)
            except Collision as found:
                raise _collision(plan, found, hint) from None
    for at, targets in plan.targets.items():
        refused = partial(StatementRefused, partial(_explain_target, plan, at, hint))
        bound.references[at].targets.require_keys(connection, sorted(targets), refused)


def delete_found(connection: Connection, bound: BoundTable, found: Iterable[Stored]) -> None:
    """Delete records that were just read, and all that belongs to them; references to them are not
    checked."""
    plan = WritePlan(bound)
    for key, stored in found:
        plan.delete(key, stored)
    execute(connection, plan)


# Records


def _require_before(connection: Connection, plan: WritePlan) -> None:
    refused = partial(StatementRefused, _explain_swap)
    for key, before, _ in plan.records:
        plan.bound.statements.require_value(connection, key, before, refused)


def _write_records(connection: Connection, plan: WritePlan, hint: str) -> None:
    records, writes = plan.bound.statements, plan.records
    refused = partial(StatementRefused, partial(_explain_key, plan, hint))
    if len(writes) == 1:
        ((key, before, after),) = writes
        if before is None:
            connection.send(records.insert_sql, (key, after), refused)
        elif after is not None:
            connection.send(records.update_sql, (after, key))
        else:
            connection.send(records.delete_sql, (key,))
        return
    gone = [key for key, _, after in writes if after is None]
    changed = [
        (key, after) for key, before, after in writes if before is not None and after is not None
    ]
    if gone:
        records.delete_many(connection, gone)
    if changed and plan.is_locked:
        by_key = dict(changed)
        records.set_many(connection, list(by_key), list(by_key.values()))
    elif changed:
        records.update_many(connection, changed)
    if len(gone) + len(changed) < len(writes):
        new = [
            (key, after) for key, before, after in writes if before is None and after is not None
        ]
        records.insert_many(connection, new, refused)


def _explain_swap(_: Connection) -> Exception:
    return NotAsPlanned()


def _explain_key(plan: WritePlan, hint: str, connection: Connection) -> Exception:
    """Return why one of the new records could not be inserted."""
    bound = plan.bound
    new = {place: key for place, (key, before, _) in enumerate(plan.records) if before is None}
    there = bound.statements.find_keys(connection, list(new.values()))
    if not there and len({*new.values()}) == len(new):
        return _conflict(bound, "another transaction inserted the record, and may undo it")
    found = {
        place: RecordExists(
            "a record with this key already exists",
            table=bound.adapter.schema.name,
            key=violations.show_key(bound, key),
            hint="use upsert() to replace it",
        )
        for place, key in new.items()
        if key in there
    }
    if found:
        return first_of(found, "" if len(new) == 1 else hint)
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


def _note_changes(connection: Connection, bound: BoundTable, logged: Sequence[LoggedWrite]) -> None:
    """Add the changes of the log, before the archive is written: with all archived values of a
    record that gets others."""
    tenant, table, who = bound.catalog.tenant, bound.schema.number, principal.current()
    touching = [
        one.write[0] for one in logged if one.write[1] is not None and _touches_archive(bound, one)
    ]
    stored = bound.archives.load_many(connection, touching) if touching else {}
    for one in logged:
        change, key = one.change, one.write[0]
        if _touches_archive(bound, one):
            change = _with_archive(bound, one, stored.get(key, {}))
        append_change(connection, who, (tenant, table, key), change)


def _touches_archive(bound: BoundTable, logged: LoggedWrite) -> bool:
    """Whether a write that is logged gives a record other archived values: its conversion gives it
    none that it had not."""
    if not bound.archived:
        return False
    if logged.write[2] is None:
        return True
    return any(
        cell in bound.archived and logged.converted.get(cell) != value
        for cell, _, value in logged.archived
    )


def archive_values(connection: Connection, bound: BoundTable, rows: Sequence[ArchiveRow]) -> None:
    """Archive values of records that are there, as an import does; they are noted in the log."""
    if bound.logs_changes:
        given = dict[bytes, list[ArchiveRow]]()
        for row in rows:
            given.setdefault(row[1], []).append(row)
        _, stored = bound.statements.find_many(connection, list(given))
        plan = WritePlan(bound)
        for key, value in stored.items():
            plan.archive(key, value, given[key])
        _note_changes(connection, bound, plan.logged)
        if plan.blobs:
            bound.blobs.insert(connection, plan.blobs)
    bound.archives.insert(connection, rows)


def _with_archive(
    bound: BoundTable, logged: LoggedWrite, stored: Mapping[int, bytes]
) -> LoggedChange:
    """Return a change with all archived values of the record before and after it."""
    before, after = {**stored, **logged.converted}, dict[int, bytes]()
    if logged.write[2] is not None:
        after = {**before, **{cell: value for cell, _, value in logged.archived}}
    cells = (
        encode_archive({cell: found[cell] for cell in bound.archived & found.keys()})
        for found in (before, after)
    )
    return LoggedChange(logged.change.before, logged.change.after, *cells)


def _write_attachments(connection: Connection, plan: WritePlan) -> None:
    bound = plan.bound
    if plan.blobs:
        bound.blobs.insert(connection, plan.blobs)
    if plan.restored:
        bound.archives.consume(connection, plan.restored)
    if plan.archived:
        bound.archives.insert(connection, plan.archived)
    gone = [key for key, _, after in plan.records if after is None]
    if gone:
        bound.archives.delete_many(connection, gone)


# Index entries


def _explain_entry(plan: WritePlan, at: int, hint: str, connection: Connection) -> Exception:
    index, coming = plan.bound.indexes[at], {*plan.added[at]}
    found = ((place, (index.entry_key(r, key), key)) for place, key, r in plan.read_new())
    entries = {place: entry for place, entry in found if entry in coming}
    gone = {*plan.removed.get(at, ())}
    collision = index.find_collision(connection, list(entries.values()), gone)
    if collision is None:
        reason = "another transaction wrote a record with these values, and may undo it"
        return _conflict(plan.bound, reason)
    error = _collision(plan, collision, hint)
    stored = index.find_stored_collisions(connection, entries, gone)
    error.of_each = {
        place: violations.collision(plan.bound, stored[place], record)
        for place, _, record in plan.read_new()
        if place in stored
    }
    return error


def _collision(plan: WritePlan, found: Collision, hint: str) -> ZapdbError:
    record = next(record for _, key, record in plan.read_new() if key == found.record_key)
    return violations.collision(plan.bound, found, record, hint)


# References


def _explain_target(plan: WritePlan, at: int, hint: str, connection: Connection) -> Exception:
    bound, reference = plan.bound, plan.bound.references[at]
    there = reference.targets.find_keys(connection, list(plan.targets[at]))
    # They are undone, and would have been there.
    if reference.targets.name == bound.statements.name:
        there |= {key for key, _, after in plan.records if after is not None}
    missing = plan.targets[at] - there
    found = {
        place: violations.missing_target(bound, reference, key, record)
        for place, key, record in plan.read_new()
        if reference.key_of(record) in missing
    }
    if found:
        return first_of(found, hint)
    return _conflict(bound, "another transaction inserts the record that one refers to")
