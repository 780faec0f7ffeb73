"""What differs between two moments: the net change of each record, and schemas.

Within a table's span the change log alone tells it. Where a migration has made other bytes in
between, both pasts are read and compared.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from operator import itemgetter
from typing import Any, NamedTuple

from zapdb.catalog.schema_history import read_entries
from zapdb.errors import HistoryPurged, UnknownName
from zapdb.limits import PAGE_RECORDS_MAX
from zapdb.log.moments import LoggedMoment, Moments
from zapdb.log.rewinding import NetChange, list_net_changes
from zapdb.past.reading.changed_fields import list_changed
from zapdb.past.reading.moment import (
    When,
    find_moment,
    is_pruned,
    open_moments,
    require_kept,
)
from zapdb.past.reading.past_session import PastSession
from zapdb.past.reading.schema_at import TableAt, read_schema_at
from zapdb.past.reading.stored_state import MADE_ANEW
from zapdb.records import Record
from zapdb.schema import TableSchema
from zapdb.storage import Connection
from zapdb.tables.change_decoding import ChangeDecoder
from zapdb.tables.changes import within_snapshot
from zapdb.tables.indexes import BoundTable
from zapdb.tables.session import Session


@dataclass(frozen=True, slots=True)
class RecordDifference:
    """How one record differs between two moments: `before` at the first, `after` at the second,
    each under the table's schema of its moment; None where there is no record.

    `key` are the values of the key's fields, `fields` the names of the fields that differ, as
    `after` has them, or `before` where the record is gone; so is `table`. Fields are compared by
    number: a renamed field is no difference.
    """

    table: str
    key: tuple[Any, ...]
    before: Record | None
    after: Record | None
    fields: tuple[str, ...]
    schema_before: TableSchema | None = field(repr=False)
    schema_after: TableSchema | None = field(repr=False)

    def reversed(self) -> RecordDifference:
        fields = self.fields
        if self.before is not None and self.after is not None:
            assert self.schema_before is not None
            assert self.schema_after is not None
            numbers = {one.name: one.number for one in self.schema_after.fields}
            names = {one.number: one.name for one in self.schema_before.fields}
            fields = tuple(names[numbers[name]] for name in fields)
        schema = self.schema_before or self.schema_after
        return replace(
            self,
            table=self.table if schema is None else schema.name,
            before=self.after,
            after=self.before,
            fields=fields,
            schema_before=self.schema_after,
            schema_after=self.schema_before,
        )

    def __repr__(self) -> str:
        return f"<difference in {self.table!r}, key {self.key!r}: {', '.join(self.fields)}>"


@dataclass(frozen=True, slots=True)
class TableDifference:
    """How the schema of one table differs between two moments; None where there is no such table.

    `table` is its name at the second one, if it has one there. `changes` says it in words: names,
    fields and their types; fields are compared by number.
    """

    table: str
    before: TableSchema | None = field(repr=False)
    after: TableSchema | None = field(repr=False)
    changes: tuple[str, ...]


class _Pair(NamedTuple):
    """A table at the earlier moment, and at the later one; one of them may be None."""

    before: TableAt | None
    after: TableAt | None

    @property
    def schema(self) -> TableSchema:
        found = self.after or self.before
        assert found is not None
        return found.schema

    @property
    def schemas(self) -> tuple[TableSchema | None, TableSchema | None]:
        before, after = self
        return (
            None if before is None else before.schema,
            None if after is None else after.schema,
        )


def list_differences(
    session: Session, first: When, second: When, tables: Collection[str] | None
) -> Iterator[RecordDifference]:
    """Yield the differences by table and key: see `Database.diff`."""
    moments, places = open_moments(session), [find_moment(session, w) for w in (first, second)]
    earlier, later = sorted(places, key=lambda moment: moment.number)
    is_backward = places[0].number > places[1].number
    decoder = ChangeDecoder(session)
    pairs, logged = _choose(_list_pairs(session, moments, earlier, later), tables), set[int]()
    with within_snapshot(session) as connection:
        if not is_pruned(connection, moments, earlier):
            told = (pair for pair in pairs if _tells_all(connection, session.catalog.tenant, pair))
            logged.update(pair.schema.number for pair in told)
    for pair in pairs:
        behind, between = b"", (earlier, later)
        if pair.schema.number in logged:
            try:
                for made in _list_changes(session, moments, between, pair.schema.number):
                    behind = made.key
                    yield from _turn(_decode(decoder, pair, made), is_backward=is_backward)
                continue
            except HistoryPurged:
                pass  # meanwhile: files may have the rest
        for difference in _join_pasts(session, pair, between, behind):
            yield from _turn(difference, is_backward=is_backward)


def _turn(made: RecordDifference | None, *, is_backward: bool) -> Iterator[RecordDifference]:
    if made is not None:
        yield made.reversed() if is_backward else made


def list_schema_differences(session: Session, first: When, second: When) -> list[TableDifference]:
    """Return the tables whose schemas differ: see `Database.diff_schemas`."""
    moments, places = open_moments(session), [find_moment(session, w) for w in (first, second)]
    earlier, later = sorted(places, key=lambda moment: moment.number)
    found = []
    for pair in _list_pairs(session, moments, earlier, later):
        before, after = pair.schemas
        if places[0].number > places[1].number:
            before, after = after, before
        changes = tuple(_describe(before, after))
        if changes:
            name = (after or before or pair.schema).name
            found.append(TableDifference(name, before, after, changes))
    return found


def _list_changes(
    session: Session, moments: Moments, between: tuple[LoggedMoment, LoggedMoment], table: int
) -> Iterator[NetChange]:
    """Raises `HistoryPurged` if changes are pruned meanwhile; those before have been yielded."""

    def read(behind: bytes) -> list[NetChange]:
        with within_snapshot(session) as connection:
            page = list_net_changes(connection, moments, between, table, behind)
            require_kept(moments, connection, between[0])
            return page

    page = read(b"")
    while page:
        yield from page
        page = read(page[-1].key)


def _list_pairs(
    session: Session, moments: Moments, earlier: LoggedMoment, later: LoggedMoment
) -> list[_Pair]:
    with within_snapshot(session) as connection:
        session.pin(connection)
        then, now = (
            read_schema_at(connection, session.catalog, moments, at) for at in (earlier, later)
        )
    pairs = [_Pair(then.numbered(t.schema.number), t) for t in now.tables.values()]
    gone = [t for t in then.tables.values() if now.numbered(t.schema.number) is None]
    return pairs + [_Pair(table, None) for table in gone]


def _tells_all(connection: Connection, tenant: int, pair: _Pair) -> bool:
    """Whether the change log alone tells what became of a table's records in between: all of them
    had one layout, and none came back with a dropped table, of which no change tells."""
    before, after = pair
    if after is None or not (before or after).is_recorded:
        return False
    since = 0 if before is None else before.revision
    between = [
        entry
        for entry in read_entries(connection, tenant, after.schema.number)
        if since < entry.revision <= after.revision
    ]
    layouts = {one.layout_revision for one in (before, after, *between) if one is not None}
    return len(layouts) == 1 and not any(entry.event in MADE_ANEW for entry in between)


def _choose(pairs: list[_Pair], names: Collection[str] | None) -> list[_Pair]:
    """Return the tables that are meant, which may be named as at either moment."""
    if names is None:
        return pairs
    names = [names] if isinstance(names, str) else names
    known = {table.schema.name for pair in pairs for table in pair if table is not None}
    unknown = set(names) - known
    if unknown:
        raise UnknownName.of_table(min(unknown), known)
    return [p for p in pairs if any(t is not None and t.schema.name in names for t in p)]


# From the change log


def _decode(decoder: ChangeDecoder, pair: _Pair, made: NetChange) -> RecordDifference | None:
    if made.before == made.after:
        return None
    first, second = (
        (None, None)
        if then is None
        else decoder.decode_under(then.schema, then.layout_revision, made.key, value)
        for then, value in zip(pair, (made.before, made.after), strict=True)
    )
    return _make(pair.schema.name, first, second, list_changed(*first, *second))


def _make(
    table: str,
    first: tuple[TableSchema | None, Record | None],
    second: tuple[TableSchema | None, Record | None],
    fields: tuple[str, ...],
) -> RecordDifference | None:
    (schema_before, before), (schema, after) = first, second
    one, of = (before, schema_before) if after is None else (after, schema)
    if one is None or of is None or not fields:
        return None
    key = tuple(getattr(one, key.name) for key in of.key_fields)
    return RecordDifference(table, key, before, after, fields, schema_before, schema)


# Where a migration has made other bytes in between: from both pasts


def _join_pasts(
    session: Session, pair: _Pair, between: tuple[LoggedMoment, LoggedMoment], behind: bytes
) -> Iterator[RecordDifference | None]:
    """Compare the records of both moments behind a key, as far as they can be read; raises what is
    in the way."""
    schemas = pair.schemas
    sides = [
        iter(()) if schema is None else _scan(PastSession(session, at), schema.name, behind)
        for at, schema in zip(between, schemas, strict=True)
    ]
    merged = heapq.merge(
        ((key, 0, record) for key, record in sides[0]),
        ((key, 1, record) for key, record in sides[1]),
        key=itemgetter(0, 1),
    )
    for _, same in itertools.groupby(merged, itemgetter(0)):
        found = {side: record for _, side, record in same}
        first, second = ((schema, found.get(side)) for side, schema in enumerate(schemas))
        schema_before, schema_after = schemas
        fields = list_changed(schema_before, first[1], schema_after, second[1])
        if len(found) == 2:  # fields that only one schema has are differences of the schemas
            assert schema_before is not None
            common = {one.number for one in schema_before.fields}
            fields = tuple(
                one.name
                for one in pair.schema.fields
                if one.name in fields and one.number in common
            )
        yield _make(pair.schema.name, first, second, fields)


def _scan(past: PastSession, name: str, behind: bytes) -> Iterator[tuple[bytes, Record]]:
    after = (behind, behind) if behind else None
    while True:
        bound, page = past.read_active(past.bind_served(name), partial(_read_page, after))
        for key, _, value in page:
            yield key, bound.adapter.reader.read(key, value)
        if len(page) < PAGE_RECORDS_MAX:
            return
        after = page[-1][:2]


def _read_page(
    after: tuple[bytes, bytes] | None, connection: Connection, bound: BoundTable
) -> tuple[int, list[tuple[bytes, bytes, bytes]]]:
    return bound.records.page(connection, None, None, after, PAGE_RECORDS_MAX, descending=False)


# Schemas in words


def _describe(before: TableSchema | None, after: TableSchema | None) -> Iterator[str]:
    if before is None or after is None:
        yield "the table was created" if before is None else "the table was dropped"
        return
    if before.name != after.name:
        yield f"the table was {before.name}"
    earlier = {one.number: one for one in before.fields}
    for one in after.fields:
        was = earlier.pop(one.number, None)
        if was is None:
            yield f"field {one.name} was added"
            continue
        if was.name != one.name:
            yield f"field {one.name} was {was.name}"
        if was.type.name != one.type.name:
            yield f"field {one.name} was of type {was.type.name}"
        elif was.type != one.type:
            yield f"field {one.name} was of the type {was.type!r}"
        if was.optional != one.optional:
            yield f"field {one.name} was {'optional' if was.optional else 'required'}"
    for gone in earlier.values():
        yield f"field {gone.name} was dropped"
