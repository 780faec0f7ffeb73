"""What differs between two moments: the net change of each record, from the change log alone."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from zapdb.database.change_decoding import ChangeDecoder
from zapdb.database.changes import reading_log
from zapdb.database.history.moment import When, find_moment, open_moments
from zapdb.database.history.schema_then import TableThen, make_gap, read_schema_then
from zapdb.database.history.versions import list_changed
from zapdb.database.session import Session
from zapdb.errors import HistoryNotStored, UnknownName
from zapdb.records import Record
from zapdb.schema import TableSchema
from zapdb.storage.moments import LoggedMoment, Moments
from zapdb.storage.rewinding import NetChange, list_net_changes


@dataclass(frozen=True, slots=True)
class RecordDifference:
    """How one record differs between two moments: `before` at the first, `after` at the second,
    each under the table's schema of its moment; None where there is no record.

    `key` are the values of the key's fields, `fields` the names of the fields that differ, which
    are compared by number: a renamed field is no difference.
    """

    table: str
    key: tuple[Any, ...]
    before: Record | None
    after: Record | None
    fields: tuple[str, ...]
    schema_before: TableSchema | None = field(repr=False)
    schema_after: TableSchema | None = field(repr=False)

    def reversed(self) -> RecordDifference:
        return replace(
            self,
            before=self.after,
            after=self.before,
            schema_before=self.schema_after,
            schema_after=self.schema_before,
        )

    def __repr__(self) -> str:
        return f"<difference in {self.table!r}, key {self.key!r}: {', '.join(self.fields)}>"


def list_differences(
    session: Session, first: When, second: When, tables: Collection[str] | None
) -> Iterator[RecordDifference]:
    """Yield the differences by table and key: see `Database.diff`."""
    moments, places = open_moments(session), [find_moment(session, w) for w in (first, second)]
    earlier, later = sorted(places, key=lambda moment: moment.number)
    is_backward = places[0].number > places[1].number
    decoder = ChangeDecoder(session)
    for now in _find_tables(session, moments, earlier, later, tables):
        for made in _list_changes(session, moments, (earlier, later), now.schema.number):
            difference = _decode(decoder, now, made)
            if difference is not None:
                yield difference.reversed() if is_backward else difference


def _list_changes(
    session: Session, moments: Moments, between: tuple[LoggedMoment, LoggedMoment], table: int
) -> Iterator[NetChange]:
    def read(behind: bytes) -> list[NetChange]:
        with reading_log(session) as connection:
            return list_net_changes(connection, moments, between, table, behind)

    page = read(b"")
    while page:
        yield from page
        page = read(page[-1].key)


def _find_tables(
    session: Session,
    moments: Moments,
    earlier: LoggedMoment,
    later: LoggedMoment,
    names: Collection[str] | None,
) -> list[TableThen]:
    """Return the tables at the later moment, which may be named as at either; raises what is in the
    way."""
    with reading_log(session) as connection:
        then, now = (
            read_schema_then(
                connection, session.catalog, at.number, moments.find_later(connection, at)
            )
            for at in (earlier, later)
        )
    wanted = set(names if names is not None else ()) - {*then.tables, *now.tables}
    if wanted:
        raise UnknownName.of_table(min(wanted), {**then.tables, **now.tables})
    found = []
    for table in now.tables.values():
        before = then.numbered(table.schema.number)
        ours = {table.schema.name} | ({before.schema.name} if before else set())
        if names is None or ours & set(names):
            _require_comparable(before, table, earlier.number)
            found.append(table)
    for gone in then.tables.values():
        if now.numbered(gone.schema.number) is None and (
            names is None or gone.schema.name in names
        ):
            raise HistoryNotStored(
                "the table was dropped between the moments",
                table=gone.schema.name,
                hint="name the tables to compare, or compare with a moment before the drop",
            )
    return found


def _require_comparable(before: TableThen | None, table: TableThen, moment: int) -> None:
    if not (before or table).is_recorded:
        raise make_gap(table.schema.name, moment)
    if before is not None and before.layout_revision != table.layout_revision:
        raise HistoryNotStored(
            "a migration between the moments has changed the table's stored values",
            table=table.schema.name,
            hint="compare moments before it, or after it",
        )


def _decode(decoder: ChangeDecoder, now: TableThen, made: NetChange) -> RecordDifference | None:
    if made.before == made.after:
        return None
    number = now.schema.number
    schema_before, before = decoder.decode_record(number, made.key, made.before)
    schema, after = decoder.decode_record(number, made.key, made.after)
    fields = list_changed(schema_before, before, schema, after)
    one, of = (before, schema_before) if after is None else (after, schema)
    if one is None or of is None or not fields:
        return None
    key = tuple(getattr(one, key.name) for key in of.key_fields)
    return RecordDifference(now.schema.name, key, before, after, fields, schema_before, schema)
