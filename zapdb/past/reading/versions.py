"""The biography of one record: what each transaction of the change log made of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from typing import Any, Literal

from zapdb.errors import InvalidValue, TransactionConflict, UnknownName, UsageError, ZapdbError
from zapdb.limits import READ
from zapdb.log.moments import LoggedMoment, Moments
from zapdb.log.rewinding import find_drop, list_of_record
from zapdb.past.files.history_erasures import list_half_erased
from zapdb.past.files.history_manifest import list_timelines
from zapdb.past.reading.changed_fields import Sides, list_changed
from zapdb.past.reading.listing import TableNames
from zapdb.past.reading.moment import Moment, open_moments, to_moment
from zapdb.past.reading.names_at import explain_table_now
from zapdb.past.reading.recorded import is_recording, make_unrecorded
from zapdb.past.reading.replaced_files import retry_if_compacted
from zapdb.printing import one_line, show_moment
from zapdb.records import Record, codec_for
from zapdb.schema import TableSchema
from zapdb.storage import Connection
from zapdb.storage.cells import as_time
from zapdb.storage.retries import attempts
from zapdb.tables.change_decoding import ChangeDecoder
from zapdb.tables.changes import find_newest_stamp, within_snapshot
from zapdb.tables.session import Session
from zapdb.tables.table_reading import ReadableTable

VersionOperation = Literal["baseline", "insert", "update", "delete", "drop"]


@dataclass(frozen=True, slots=True)
class Version:
    """One state of a record: from a moment until the next one, or until now.

    `record` is under the table's schema of that time; None after a deletion, and after a `drop` of
    its table, which is the last version if the log or the files have it. `fields` are the names
    of the fields that the transaction changed, also of dropped ones that are archived. A `baseline`
    was there when the log began, or the files of the history store: since when is not known, and
    `since`, `principal` and `made_at` are None.
    """

    operation: VersionOperation
    record: Record | None
    fields: tuple[str, ...]
    since: Moment | None
    until: Moment | None
    principal: str | None
    made_at: datetime | None
    schema: TableSchema | None = field(repr=False)

    def __repr__(self) -> str:
        by = "" if self.principal is None else f" by {one_line(self.principal)}"
        at = "" if self.made_at is None else f", {show_moment(self.made_at)}"
        return f"<{self.operation}: {self.record!r}{at}{by}>"


def list_versions(
    session: Session,
    name: str,
    number: int | None,
    read_key: Callable[[TableSchema], tuple[Any, ...]],
) -> list[Version]:
    """Return the versions of the record with a key, oldest first: in the dropped tables that had a
    name, and then in the table with a number. `read_key` gives the key for a table's schema; a
    table whose key can't have these values is left out.

    Raises `UnknownName` if there is no such table; what `read_key` raises, or `InvalidValue`, if
    all are left out; `HistoryGap` if there are no versions, while the change log is off; and
    `TransactionConflict` if the log is pruned between its two readings again and again.
    """
    names = TableNames(session)
    dropped = [one for one in names.find_dropped(name) if one != number]
    tables = dropped if number is None else [*dropped, number]
    if not tables:
        error = UnknownName.of_table(name, session.catalog.tables)
        explain_table_now(session, error)
        raise error
    found, refused, key = list[Version](), list[ZapdbError](), tuple[Any, ...]()
    for table in tables:
        schema = names.schema(table)
        try:
            key = read_key(schema)
            encoded = _encode_key(session, schema, key)
        except (InvalidValue, UsageError) as error:
            refused.append(error)
            continue
        versions = _list_of(session, table, encoded)
        if names.is_dropped(table) and versions and versions[-1].record is not None:
            _append_drop(session, table, versions)
        found += versions
    if len(refused) == len(tables):
        raise refused[-1]
    if not found and not is_recording(session, tables):
        raise make_unrecorded(table=name, key=", ".join(map(str, key)))
    return found


def list_record_versions(
    table: ReadableTable[Any], key: tuple[Any, ...], named: Mapping[str, Any]
) -> list[Version]:
    """Return the versions of the record with a key, given in order or by name; see
    `list_versions`."""
    if named:
        key = table._join_key(key, named)
    bound = table._current()
    table._encode_key(bound, key)
    return list_versions(table._session, table.name, bound.schema.number, lambda _: key)


def list_named_versions(
    session: Session, name: str, read_key: Callable[[TableSchema], tuple[Any, ...]]
) -> list[Version]:
    """The same for the table that has a name now, if there is one."""
    number = None
    with suppress(UnknownName):
        number = session.bind_served(name).schema.number
    return list_versions(session, name, number, read_key)


def _encode_key(session: Session, schema: TableSchema, key: tuple[Any, ...]) -> bytes:
    names = [field.name for field in schema.key_fields]
    if len(key) != len(names):
        raise UsageError(
            "these are not the fields of the key",
            table=schema.name,
            key=", ".join(names),
            given=len(key),
            hint="give one value for each field of the key, in this order",
        )
    return codec_for(schema, session.catalog.zones).key_of(*key)


def _append_drop(session: Session, table: int, found: list[Version]) -> None:
    """Append that the table of a record was dropped, if that was recorded."""
    moments = open_moments(session)
    with within_snapshot(session) as connection:
        made = find_drop(connection, moments, table)
        if made is None and list_timelines(connection, session.catalog.tenant):
            from zapdb.past.reading.stored_moments import StoredMoments

            stored = StoredMoments(connection, moments).find_drop(table)
            made = None if stored is None else stored[:3]
    if made is None:
        return
    sides = Sides(found[-1].schema, found[-1].record, found[-1].schema, None)
    _append(found, sides, *made)
    found[-1] = replace(found[-1], operation="drop")


def _list_of(session: Session, table: int, key: bytes) -> list[Version]:
    moments = open_moments(session)
    find_newest_stamp(session, moments.log)
    for _ in attempts(READ):
        with within_snapshot(session) as connection:
            beginning = moments.find_beginning(connection).number
        found = retry_if_compacted(session, partial(_list_pruned, session, beginning, table, key))
        with within_snapshot(session) as connection:
            if moments.find_beginning(connection).number == beginning:
                _add_logged(session, connection, moments, (table, key), found)
                return found
    raise TransactionConflict(
        "the change log was pruned while a record's versions were read",
        hint="read them again, or when the pruning has ended",
    )


def _add_logged(
    session: Session,
    connection: Connection,
    moments: Moments,
    of: tuple[int, bytes],
    found: list[Version],
) -> None:
    """Add the versions of a record, by its table and key, that the log has."""
    decoder, (table, key) = ChangeDecoder(session), of
    for moment, row in list_of_record(connection, moments, table, key):
        schema_before, before = decoder.decode_record(table, key, row.before)
        schema, after = decoder.decode_record(table, key, row.after)
        if before is not None and (not found or found[-1].record is None):
            found.append(_make_baseline(schema_before, before))
        was = decoder.decode_archive(row.archive_before, schema_before)
        has = decoder.decode_archive(row.archive_after, schema)
        sides = Sides(schema_before, before, schema, after, was, has)
        _append(found, sides, moment, row.principal, row.made_at)


def _append(
    found: list[Version], sides: Sides, moment: LoggedMoment, principal: str, made_at: int
) -> None:
    """Append what a moment made of the record."""
    since = to_moment(moment)
    if found:
        found[-1] = replace(found[-1], until=since)
    schema = sides.schema_after or sides.schema_before
    made = sides.operation, sides.after, sides.fields, since, None
    found.append(Version(*made, principal, as_time(made_at), schema))


def _make_baseline(schema: TableSchema | None, record: Record) -> Version:
    return Version("baseline", record, (), None, None, None, None, schema)


def _list_pruned(session: Session, beginning: int, table: int, key: bytes) -> list[Version]:
    """Return the versions that were pruned from the log, as the files of the store tell them."""
    found = list[Version]()
    with within_snapshot(session) as connection:
        if not beginning or not list_timelines(connection, session.catalog.tenant):
            return found
        if key in list_half_erased(connection, session.catalog.tenant, table):
            return found  # files have the rest of it
    from zapdb.past.reading.stored_audit import StoredAudit

    for made, change in StoredAudit(session).list_versions(table, key):
        if made is None:
            known = found[-1] if found else None
            is_new = (
                known is None
                or known.record is None
                or list_changed(known.schema, known.record, change.schema_after, change.after)
            )
            if change.after is not None and is_new:
                found.append(_make_baseline(change.schema_after, change.after))
            continue
        _append(found, change, made.moment, made.principal, made.made_at)
    return found
