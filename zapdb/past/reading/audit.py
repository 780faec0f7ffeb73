"""Who changed what, and when: the changes of the log with their moments, by principal, table and
field.

Fields and tables are told by their numbers, so an answer goes on behind a renaming.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from zapdb.catalog.schema_history import read_entries
from zapdb.errors import ChangesPruned, UnknownField
from zapdb.log.change_log import ChangeRow
from zapdb.log.followed_moments import follow_changes
from zapdb.log.pending_changes import OF_TENANT
from zapdb.past.reading.changed_fields import Sides
from zapdb.past.reading.listing import MomentSummary, TableNames, iterate_rows, list_with_tables
from zapdb.past.reading.moment import Moment, When, open_moments, to_moment
from zapdb.past.reading.recorded import require_recorded
from zapdb.past.reading.replaced_files import retry_if_compacted
from zapdb.printing import one_line, show_moment
from zapdb.records import Record
from zapdb.schema import TableSchema
from zapdb.tables.change_decoding import ChangeDecoder, SchemaEvent
from zapdb.tables.changes import fetch_logged, find_newest_stamp, within_snapshot
from zapdb.tables.session import Session
from zapdb.values.timestamp import EPOCH, MICROSECOND

if TYPE_CHECKING:
    from zapdb.past.reading.stored_audit import StoredAudit


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """What one transaction made of one record, or of a schema; who made it, and when.

    `operation` is `insert`, `update` or `delete`, or the event of a `SchemaEvent`, which has no
    record. `fields` are the names of the fields whose values changed, also of dropped ones that are
    archived; `before` and `after` are the record under the table's schema of that time, or None
    where there was none. `archived_before` and `archived_after` have its archived values of dropped
    fields, if one of them was changed.
    """

    moment: Moment
    principal: str
    made_at: datetime
    table: str | None
    operation: str
    key: tuple[Any, ...]
    fields: tuple[str, ...]
    before: Record | None
    after: Record | None
    schema_before: TableSchema | None = field(repr=False)
    schema_after: TableSchema | None = field(repr=False)
    archived_before: Mapping[str, Any] = field(default_factory=dict)
    archived_after: Mapping[str, Any] = field(default_factory=dict)

    def __repr__(self) -> str:
        at, by = show_moment(self.made_at), one_line(self.principal)
        key = f", key {self.key!r}" if self.key else ""
        of = "" if self.table is None else f" in {self.table!r}"
        fields = f": {', '.join(self.fields)}" if self.fields else ""
        return f"<{self.operation}{of}{key}{fields}, moment {self.moment.number}, {at} by {by}>"


def list_audit(
    session: Session,
    since: When | None = None,
    until: When | None = None,
    *,
    principal: str | None = None,
    table: str | None = None,
    field: str | None = None,
) -> Iterator[AuditEntry]:
    """Yield the changes after `since` up to `until`, newest first: see `Database.audit`."""
    names = TableNames(session)
    numbers = None if table is None else names.find(table)
    fields = None if field is None else _find_fields(session, table, numbers, field)
    moments = list_with_tables(session, since, until, principal, numbers, names)
    found = _list_entries(session, moments, numbers, fields)
    yield from require_recorded(session, found, numbers, until)


def _list_entries(
    session: Session,
    moments: Iterator[tuple[MomentSummary, Collection[int]]],
    numbers: Collection[int] | None,
    fields: set[tuple[int, int]] | None,
) -> Iterator[AuditEntry]:
    decoder, stored = ChangeDecoder(session), None
    for moment, tables in moments:
        rows = _list_logged(session, moment)
        found = []
        if rows is None:
            from zapdb.past.reading.stored_audit import StoredAudit

            audit = stored = stored or StoredAudit(session)
            chosen = [one for one in tables if numbers is None or one in numbers]
            given = partial(_list_stored, decoder, audit, moment, chosen)
            found = retry_if_compacted(session, given)
        else:
            for row in rows:
                found.append((row.table, _make_entry(decoder, row, moment)))
        for of, entry in reversed(found):
            if (numbers is None or of in numbers) and (
                fields is None or _is_about(entry, of, fields)
            ):
                yield entry


def _list_logged(session: Session, moment: Moment) -> list[ChangeRow] | None:
    """Return the rows of a moment; None if they were pruned from the log."""
    moments = open_moments(session)
    with within_snapshot(session) as connection:
        if moment.number <= moments.find_beginning(connection).number:
            return None
        made = moments.find_bookmark(connection, moment.bookmark)
    try:
        return list(iterate_rows(session, moments, made))
    except ChangesPruned:  # meanwhile
        return None


def _list_stored(
    decoder: ChangeDecoder,
    stored: StoredAudit,
    moment: MomentSummary,
    tables: Sequence[int],
) -> list[tuple[int, AuditEntry]]:
    """Return what the files tell of a moment, with the numbers of tables."""
    made_at = (moment.made_at - EPOCH) // MICROSECOND
    found = []
    for row in stored.list_events(moment, moment.principal, made_at):
        entry = _make_entry(decoder, row, moment)
        if entry is not None:
            found.append((row.table, entry))
    for number in tables:
        if number != OF_TENANT:
            for key, sides in stored.list_changes(moment, number):
                entry = _make_record_entry(moment, moment.principal, moment.made_at, key, sides)
                found.append((number, entry))
    return found


def iterate_audit(session: Session) -> Iterator[AuditEntry]:
    """Yield all that the log has, oldest first, without counting anything twice."""
    moments, decoder = open_moments(session), ChangeDecoder(session)
    until = find_newest_stamp(session, moments.log)
    with within_snapshot(session) as connection:
        beginning = moments.find_beginning(connection)
    fetch = partial(fetch_logged, session)
    for made, rows in follow_changes(moments.log, fetch, beginning, until):
        for row in rows:
            yield _make_entry(decoder, row, to_moment(made.moment))


def _make_entry(decoder: ChangeDecoder, row: ChangeRow, moment: Moment) -> AuditEntry:
    made = decoder.decode(row)
    at = Moment(moment.number, moment.visible_at, made.bookmark)
    if isinstance(made, SchemaEvent):
        fields = () if made.field is None else (made.field,)
        what = made.table, made.event, (), fields, None, None, None, None
        return AuditEntry(at, made.principal, made.made_at, *what)
    states = made.schema_before, made.before, made.schema_after, made.after
    sides = Sides(*states, made.archived_before, made.archived_after)
    entry = _make_record_entry(at, made.principal, made.made_at, made.key, sides)
    return replace(entry, table=made.table, operation=made.operation)


def _make_record_entry(
    moment: Moment, principal: str, made_at: datetime, key: tuple[Any, ...], sides: Sides
) -> AuditEntry:
    schema = sides.schema_after or sides.schema_before
    assert schema is not None, "there was a record"
    return AuditEntry(
        Moment(moment.number, moment.visible_at, moment.bookmark),
        principal,
        made_at,
        schema.name,
        sides.operation,
        key,
        sides.fields,
        sides.before,
        sides.after,
        sides.schema_before,
        sides.schema_after,
        sides.archived_before,
        sides.archived_after,
    )


def _find_fields(
    session: Session, table: str | None, numbers: Collection[int] | None, name: str
) -> set[tuple[int, int]]:
    """Return the fields that have or had a name, by the numbers of table and field."""
    found, known = set[tuple[int, int]](), dict[str, None]()
    with within_snapshot(session) as connection:
        for entry in read_entries(connection, session.catalog.tenant):
            if numbers is not None and entry.table_number not in numbers:
                continue
            for one in entry.schema.fields:
                known[one.name] = None
                if one.name == name:
                    found.add((entry.table_number, one.number))
    if not found:
        raise UnknownField.named(table or "(any)", name, list(known))
    return found


def _is_about(entry: AuditEntry, table: int, fields: set[tuple[int, int]]) -> bool:
    """Whether one of some fields has changed."""
    schema = entry.schema_after or entry.schema_before
    if schema is None:
        return False
    numbers = {one.number for one in schema.fields if one.name in entry.fields}
    return any((table, number) in fields for number in numbers)
