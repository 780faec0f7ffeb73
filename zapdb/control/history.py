"""The past: moments, who changed what, records and tables as they were, and the history store.

A moment is given as commands take it: a time with its UTC offset, how long ago (`2h`), a moment's
number (`#12`), or a bookmark. It is read where the database is, by the database's clock.
"""

from __future__ import annotations

import io
import threading
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any, Final
from weakref import WeakKeyDictionary

import msgspec

from zapdb.answers import hidden
from zapdb.catalog.cluster.level import check_level
from zapdb.catalog.schema_history import format_fingerprint
from zapdb.catalog.tenants import list_tenants
from zapdb.control.bounds import Between, Count
from zapdb.control.catalog import FieldDescription, describe_field
from zapdb.control.durations import DURATION, read_ago_us
from zapdb.control.records import (
    RecordShape,
    describe_archived,
    describe_record,
    key_to_plain,
    make_shape,
    names_in,
    without_large,
)
from zapdb.control.target import Json, Target
from zapdb.database import Database, Query
from zapdb.database.past import Past
from zapdb.errors import MissingExtra, RecordNotFound, UsageError, ZapdbError
from zapdb.limits import (
    ARROW_PART_SIZE_BYTES,
    FIELDS_PER_TABLE_MAX,
    PAST_PAGE_RECORDS_MAX,
    PAST_PAGE_SIZE_BYTES_MAX,
    PASTS_KEPT_MAX,
)
from zapdb.log.change_log import Bookmark
from zapdb.past.files.history_manifest import read_store
from zapdb.past.files.wanted_stores import read_wanted
from zapdb.past.reading.audit import AuditEntry
from zapdb.past.reading.difference import RecordDifference
from zapdb.past.reading.listing import ChangeCounts, MomentSummary
from zapdb.past.reading.moment import parse_moment
from zapdb.past.reading.past_table import PastTable, explaining_names
from zapdb.past.reading.schema_at import TableAt
from zapdb.past.reading.versions import Version, list_named_versions
from zapdb.records import Record
from zapdb.records.cell_format import read_key, record_to_plain
from zapdb.schema import TableSchema, canonical_bytes, fingerprint
from zapdb.storage import Connection
from zapdb.storage.cells import as_time
from zapdb.tables.queries.conditions import read_condition

if TYPE_CHECKING:
    from zapdb.past.files.stores import HistoryStatus


def read_named_moment(db: Database, text: str) -> datetime | int | Bookmark:
    """What a text names as a moment; raises `UsageError`."""
    if DURATION.fullmatch(text.removeprefix("-")):
        return as_time(read_ago_us(db._storage.connection(), text.removeprefix("-")))
    moment = parse_moment(text)
    if moment is None and (time := _read_time(text)) is not None:
        raise UsageError(
            "a time that names a moment needs its UTC offset",
            given=text,
            hint=f"if it is UTC, give {time.isoformat()}Z",
        )
    if moment is None:
        raise UsageError(
            "this names no moment",
            given=text,
            hint="give a time with its UTC offset (2026-01-31T12:00Z), how long ago (2h), a number "
            "that `zapdb history moments` shows (#12), or a bookmark",
        )
    return moment


_kept_pasts: WeakKeyDictionary[Database, OrderedDict[str, Past]] = WeakKeyDictionary()
_keeping: Final = threading.Lock()


def open_past(db: Database, text: str) -> Past:
    """The database at the moment that a text names; raises the errors of `db.at`.

    What a text names is the same for ever, but for how long ago something was. And a past holds
    nothing but what it knows of its tables. So the newest ones are kept for those who ask again.
    """
    with _keeping:
        kept = _kept_pasts.setdefault(db, OrderedDict())
        found = kept.get(text)
        if found is not None:
            kept.move_to_end(text)
            return found
    found = db.at(read_named_moment(db, text))
    if parse_moment(text) is not None:
        with _keeping:
            kept[text] = found
            while len(kept) > PASTS_KEPT_MAX:
                kept.popitem(last=False)
    return found


def _read_time(text: str) -> datetime | None:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return None


def _read_if_any(db: Database, text: str | None) -> datetime | int | Bookmark | None:
    return None if text is None else read_named_moment(db, text)


# Moments, and who changed what


@dataclass(frozen=True, slots=True)
class MomentMade:
    """A moment with its transaction: who made it, when, and how many records of which tables it
    changed."""

    moment: int
    visible_at: datetime | None
    made_at: datetime
    principal: str
    bookmark: str
    changes: tuple[ChangeCounts, ...]


def get_moments(
    target: Target,
    since: str | None = None,
    until: str | None = None,
    principal: str | None = None,
    table: str | None = None,
    limit: Count | None = None,
) -> Iterator[MomentMade]:
    """The moments after `since` up to `until`, newest first, at most `limit`; only those of a
    principal, or of a table, if they are given."""
    db = target.open_database()
    found = db.moments(
        since=_read_if_any(db, since),
        until=_read_if_any(db, until),
        principal=principal,
        table=table,
    )
    return map(_describe_moment, islice(found, limit))


def _describe_moment(made: MomentSummary) -> MomentMade:
    return MomentMade(
        made.number,
        made.visible_at,
        made.made_at,
        made.principal,
        str(made.bookmark),
        made.changes,
    )


@dataclass(frozen=True, slots=True)
class AuditedChange:
    """What one transaction made of one record, or of a schema; who made it, and when.

    `operation` is `insert`, `update`, `delete`, or an event of a schema, which has no record.
    `fields` are the names of the fields whose values changed; `before` and `after` are objects of
    the fields, or None where there was no record; `archived_before` and `archived_after` have the
    archived values of dropped fields, if one of them was changed.
    """

    moment: int
    made_at: datetime
    principal: str
    table: str | None
    key: tuple[Json, ...]
    operation: str
    fields: tuple[str, ...]
    before: Json | None
    after: Json | None
    archived_before: Json | None
    archived_after: Json | None
    shape_before: RecordShape | None = hidden()
    shape_after: RecordShape | None = hidden()


def audit(
    target: Target,
    since: str | None = None,
    until: str | None = None,
    principal: str | None = None,
    table: str | None = None,
    field: str | None = None,
    limit: Count | None = None,
    for_text: bool = False,
) -> Iterator[AuditedChange]:
    """The changes of records and schemas after `since` up to `until`, newest first, at most
    `limit`; only those by a principal, of a table, or of a field, if they are given. A caller who
    may see some tables alone is told what stands under their names."""
    db = target.open_database()
    found = db.audit(
        since=_read_if_any(db, since),
        until=_read_if_any(db, until),
        principal=principal,
        table=table,
        field=field,
    )
    shown = target.only_shown(
        found, lambda one: names_in(one.table, one.schema_before, one.schema_after)
    )
    return (_describe_entry(one, for_text=for_text) for one in islice(shown, limit))


def _describe_entry(one: AuditEntry, *, for_text: bool) -> AuditedChange:
    before, shape_before = describe_record(one.schema_before, one.before, for_text=for_text)
    after, shape_after = describe_record(one.schema_after, one.after, for_text=for_text)
    was = describe_archived(one.schema_before, one.archived_before)
    has = describe_archived(one.schema_after, one.archived_after)
    is_archive_changed = bool(was or has)
    return AuditedChange(
        moment=one.moment.number,
        made_at=one.made_at,
        principal=one.principal,
        table=one.table,
        key=key_to_plain(one.schema_after or one.schema_before, one.key),
        operation=one.operation,
        fields=one.fields,
        before=before,
        after=after,
        archived_before=was if is_archive_changed else None,
        archived_after=has if is_archive_changed else None,
        shape_before=shape_before,
        shape_after=shape_after,
    )


# Records and tables as they were


@dataclass(frozen=True, slots=True)
class PastRecord:
    """A record as it was at a moment, as an object of its fields.

    `doubts` are the tables whose values may not be those of then, each with the reason.
    """

    moment: int
    record: Json
    doubts: Mapping[str, str]
    shape: RecordShape | None


def fetch_row(
    target: Target, table: str, key: tuple[str, ...], at: str, for_text: bool = False
) -> PastRecord:
    """The record of a table as it was at a moment, by the texts of its key's fields, in order.

    Raises `RecordNotFound`.
    """
    db = target.open_database()
    past = open_past(db, at)
    found = past.table(table)
    moment, schema = past._session.moment.number, found._bound.adapter.schema
    record = found.find(*read_key(schema, key))
    if record is None:
        raise _no_record(f"there was no record with this key at moment #{moment}", table, key)
    shown, shape = describe_record(schema, record, for_text=for_text)
    return PastRecord(moment, shown, past.doubts, shape)


def _no_record(what: str, table: str, key: tuple[str, ...]) -> RecordNotFound:
    return RecordNotFound(
        what,
        table=table,
        key=", ".join(key),
        hint=f"run `zapdb history moments --table {table}` to see what changed when",
    )


@dataclass(frozen=True, slots=True)
class RecordVersion:
    """What a transaction made of a record; None for the record after a deletion. A `baseline` was
    there when the log began, so its moment, time and principal are not known."""

    operation: str
    moment: int | None
    made_at: datetime | None
    principal: str | None
    fields: tuple[str, ...]
    record: Json | None
    shape: RecordShape | None = hidden()


def get_versions(
    target: Target, table: str, key: tuple[str, ...], for_text: bool = False
) -> Iterator[RecordVersion]:
    """What each transaction made of a record, oldest first, also in dropped tables that had the
    name; none of one that has not changed since the change log was switched on. A caller who may
    see some tables alone is told of the versions under their names.

    Raises `RecordNotFound`.
    """
    db = target.open_database()
    found = list_named_versions(db._session, table, lambda schema: read_key(schema, key))
    versions = list(target.only_shown(found, lambda one: names_in(table, one.schema)))
    if not versions:
        descriptor = db._catalog.tables.get(table)
        if descriptor is None or not db.table(table).exists(*read_key(descriptor.schema, key)):
            raise _no_record("the change log has no record with this key", table, key)
    return (_describe_version(version, for_text=for_text) for version in versions)


def _describe_version(version: Version, *, for_text: bool) -> RecordVersion:
    record, shape = describe_record(version.schema, version.record, for_text=for_text)
    return RecordVersion(
        version.operation,
        None if version.since is None else version.since.number,
        version.made_at,
        version.principal,
        version.fields,
        record,
        shape,
    )


@dataclass(frozen=True, slots=True)
class LargeValues:
    """The sizes in bytes of a record's large values, by field."""

    sizes: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class PastPage:
    """A page of the records that a table had at a moment, each as an object of its fields, and the
    cursor of the next page; None on the last one."""

    moment: int
    records: tuple[Json, ...]
    cursor: str | None
    doubts: Mapping[str, str] = hidden()
    shape: RecordShape | None = hidden()
    large: tuple[LargeValues, ...] = hidden()


def list_records(
    target: Target,
    table: str,
    at: str,
    where: str | None = None,
    order_by: Annotated[tuple[str, ...], Between(0, FIELDS_PER_TABLE_MAX)] = (),
    limit: Annotated[int, Between(1, PAST_PAGE_RECORDS_MAX)] = 20,
    cursor: str | None = None,
    for_text: bool = False,
) -> PastPage:
    """A page of the records that a table had at a moment: at most `limit`, and fewer if more would
    be beyond 16 MiB.

    `where` is a condition on fields; `order_by` are fields, descending behind a minus.
    """
    db = target.open_database()
    past = open_past(db, at)
    schema = past.schema(table)
    found = past.table(table)
    query = _select(found, schema, where)
    if order_by:
        with explaining_names(past._session):
            query = query.order_by(*order_by)
    shown = list[tuple[dict[str, Any], dict[str, int]]]()

    def measure(record: Record) -> int:
        plain = record_to_plain(schema, record), dict[str, int]()
        shown.append(without_large(schema, record) if for_text else plain)
        return len(msgspec.json.encode(shown[-1]))

    page = query._page(limit, cursor, measure, PAST_PAGE_SIZE_BYTES_MAX)
    del shown[len(page) :]
    records = tuple(record for record, _ in shown)
    if not for_text:
        return PastPage(past.moment.number, records, page.cursor, past.doubts, None, ())
    return PastPage(
        past.moment.number,
        records,
        page.cursor,
        past.doubts,
        make_shape(schema),
        tuple(LargeValues(sizes) for _, sizes in shown),
    )


@dataclass(frozen=True, slots=True)
class ArrowPart:
    """A part of a stream of Arrow IPC, which may end anywhere in a batch of records. The first part
    has the doubts."""

    moment: int
    doubts: Mapping[str, str]
    data: bytes


def load_table(
    target: Target,
    table: str,
    at: str,
    columns: tuple[str, ...] = (),
    where: str | None = None,
) -> Iterator[ArrowPart]:
    """The records that a table had at a moment, in Arrow: all fields or `columns`, all records or
    those that fulfil the condition `where`.

    The bytes of all parts together are a stream of Arrow IPC, as `pyarrow.ipc.open_stream` reads
    it. A page is read when the parts of the one before it are taken.
    """
    db = target.open_database()
    past = open_past(db, at)
    found = past.table(table)
    source = found if where is None else _select(found, past.schema(table), where)
    return _write_arrow(past, source.to_arrow(columns or None))


def _select(table: PastTable, schema: TableSchema, where: str | None) -> Query:
    return table.where() if where is None else table.where(read_condition(table, schema, where))


def _write_arrow(past: Past, reader: Any) -> Iterator[ArrowPart]:
    import pyarrow

    moment, doubts, sink = past.moment.number, past.doubts, _Sink()
    with pyarrow.ipc.new_stream(sink, reader.schema) as writer:
        for batch in reader:
            writer.write_batch(batch)
            for data in sink.take():
                yield ArrowPart(moment, doubts, data)
                doubts = {}
    for data in sink.take():
        yield ArrowPart(moment, doubts, data)


class _Sink(io.RawIOBase):
    """What Arrow writes, as parts of a size that a message may have."""

    def __init__(self) -> None:
        self._written = list[bytes]()

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._written.append(bytes(data))
        return len(self._written[-1])

    def take(self) -> Iterator[bytes]:
        whole = b"".join(self._written)
        self._written.clear()
        for start in range(0, len(whole), ARROW_PART_SIZE_BYTES):
            yield whole[start : start + ARROW_PART_SIZE_BYTES]


def read_arrow(parts: Iterator[ArrowPart]) -> Any:
    """A `pyarrow.RecordBatchReader` of the parts that `load_table` answers with."""
    import pyarrow

    return pyarrow.ipc.open_stream(io.BufferedReader(_Parts(parts), ARROW_PART_SIZE_BYTES))


class _Parts(io.RawIOBase):
    """The bytes of parts, as a file."""

    def __init__(self, parts: Iterator[ArrowPart]) -> None:
        self._parts, self._rest = parts, memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._rest:
            part = next(self._parts, None)
            if part is None:
                return 0
            self._rest = memoryview(part.data)
        count = min(len(buffer), len(self._rest))
        buffer[:count], self._rest = self._rest[:count], self._rest[count:]
        return count


# What there was


@dataclass(frozen=True, slots=True)
class PastTableDescription:
    """The schema that a table had at a moment; `schema` are its canonical bytes (docs/format), of
    which the fingerprint is made."""

    table: str
    number: int
    key: tuple[str, ...]
    revision: int
    layout_revision: int
    fingerprint: str
    fields: tuple[FieldDescription, ...]
    schema: bytes = hidden()


@dataclass(frozen=True, slots=True)
class PastCatalog:
    """The tables at a moment, and the number of the newest migration that was active."""

    moment: int
    visible_at: datetime | None
    position: int
    tables: tuple[PastTableDescription, ...]


def get_catalog(target: Target, at: str) -> PastCatalog:
    """The tables that there were at a moment, and their schemas."""
    db = target.open_database()
    past = open_past(db, at)
    moment, then = past.moment, past._session.then
    return PastCatalog(
        moment.number,
        moment.visible_at,
        then.position,
        tuple(map(_describe_past_table, then.tables.values())),
    )


def _describe_past_table(then: TableAt) -> PastTableDescription:
    schema = then.schema
    return PastTableDescription(
        table=schema.name,
        number=schema.number,
        key=tuple(one.name for one in schema.key_fields),
        revision=then.revision,
        layout_revision=then.layout_revision,
        fingerprint=format_fingerprint(fingerprint(schema)),
        fields=tuple(describe_field(schema, one) for one in schema.fields),
        schema=canonical_bytes(schema),
    )


# Differences


@dataclass(frozen=True, slots=True)
class ChangedSchema:
    """How the schema of a table differs between two moments, in words."""

    table: str
    schema: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ChangedRecord:
    """How a record differs between two moments: objects of its fields, None where there is no
    record, and the names of the fields that differ."""

    table: str
    key: tuple[Json, ...]
    before: Json | None
    after: Json | None
    fields: tuple[str, ...]
    shape_before: RecordShape | None = hidden()
    shape_after: RecordShape | None = hidden()


def diff_moments(
    target: Target,
    first: str,
    second: str,
    tables: tuple[str, ...] = (),
    for_text: bool = False,
) -> Iterator[ChangedSchema | ChangedRecord]:
    """The tables whose schemas differ between two moments, and then the records that do: the net
    change. Only of some tables, if any are named; a caller who may see some alone is told of those
    that had names of these at both moments."""
    db = target.open_database()
    moments = [read_named_moment(db, text) for text in (first, second)]
    schemas = [
        ChangedSchema(one.table, one.changes)
        for one in target.only_shown(
            db.diff_schemas(*moments), lambda one: names_in(one.table, one.before, one.after)
        )
        if not tables or {one.table, one.before and one.before.name} & set(tables)
    ]
    found = target.only_shown(
        db.diff(*moments, tables=tables or None),
        lambda one: names_in(one.table, one.schema_before, one.schema_after),
    )
    return _chain(schemas, found, for_text=for_text)


def _chain(
    schemas: list[ChangedSchema], records: Iterator[RecordDifference], *, for_text: bool
) -> Iterator[ChangedSchema | ChangedRecord]:
    yield from schemas
    for one in records:
        before, shape_before = describe_record(one.schema_before, one.before, for_text=for_text)
        after, shape_after = describe_record(one.schema_after, one.after, for_text=for_text)
        yield ChangedRecord(
            one.table,
            key_to_plain(one.schema_after or one.schema_before, one.key),
            before,
            after,
            one.fields,
            shape_before,
            shape_after,
        )


# The history store


@dataclass(frozen=True, slots=True)
class StoreStatus:
    """What the history store of a tenant holds, and how far it is behind: see `HistoryStatus`."""

    tenant: str
    directory: str
    state: str
    begins: int
    ends: int
    visible_at: datetime | None
    flushed_at: datetime
    changes_behind: int
    seconds_behind: float
    files: int
    size_bytes: int
    unfinished: tuple[str, ...]
    is_followed: bool
    purged_before: int
    unfinished_erasures: int
    problem: str | None


def describe_store(tenant: str, status: HistoryStatus) -> StoreStatus:
    """A store as answers have it."""
    return StoreStatus(
        tenant=tenant,
        directory=status.directory,
        state=status.state,
        begins=status.begins,
        ends=status.ends,
        visible_at=status.visible_at,
        flushed_at=status.flushed_at,
        changes_behind=status.lag.changes,
        seconds_behind=status.lag.seconds,
        files=status.files,
        size_bytes=status.size_bytes,
        unfinished=status.unfinished,
        is_followed=status.is_followed,
        purged_before=status.purged_before,
        unfinished_erasures=status.unfinished_erasures,
        problem=status.problem,
    )


@dataclass(frozen=True, slots=True)
class StoreProblem:
    """Why nothing can be said of the store of a tenant; `text` has the context and the hint."""

    tenant: str
    error: str
    text: str = hidden()


@dataclass(frozen=True, slots=True)
class Stores:
    """The stores that were asked for, by the numbers of their tenants."""

    tenants: tuple[StoreStatus | StoreProblem, ...]


def _read_status(connection: Connection, tenant: int) -> HistoryStatus:
    """Raises `MissingExtra` where nothing reads files, as where a client of a service runs."""
    try:
        from zapdb.past.files.stores import read_history_status
    except ModuleNotFoundError as missing:
        raise MissingExtra.named("sql", "pyarrow") from missing
    return read_history_status(connection, tenant)


def list_stores(target: Target, all_tenants: bool = False) -> Stores:
    """What the history store of the tenant holds; or those of all tenants that have one, or are to
    have one. Raises `UsageError` if the tenant has none."""
    if not all_tenants:
        tenant = target.tenant()
        with target.reading() as connection:
            status = _read_status(connection, tenant)
        return Stores((describe_store(target.tenant_name, status),))
    target.require_rows()
    with target.reading() as connection:
        check_level(connection)
        is_wanted = read_wanted(connection) is not None
        known = [one for one in list_tenants(connection) if not one.removing]
    found = list[StoreStatus | StoreProblem]()
    for one in known:
        try:
            with target.reading() as connection:
                if is_wanted or read_store(connection, one.number) is not None:
                    status = _read_status(connection, one.number)
                    found.append(describe_store(one.name, status))
        except ZapdbError as error:
            found.append(StoreProblem(one.name, error.message, str(error)))
    return Stores(tuple(found))
