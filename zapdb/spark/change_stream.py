"""The changes of a table as a stream: `spark.readStream.format("zapdb_changes")`.

An offset is a bookmark of the change log. What lies between two bookmarks never changes, so a batch
that Spark runs again has the same rows: with a sink that writes each batch once, each change counts
once (rule 29). Records are converted to the table's newest schema, before and after alike.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import islice
from typing import Any, ClassVar, Final, NoReturn, cast

import pyarrow
import pyarrow.compute
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from zapdb.database import Database
from zapdb.database.opening import open_to_read
from zapdb.database.transaction_blocks import Snapshot
from zapdb.errors import UsageError
from zapdb.limits import PAGE_RECORDS_MAX
from zapdb.log.change_log import Bookmark, ChangeLog, ChangeRow
from zapdb.records import Layout, decode_unreadable
from zapdb.records.arrow import arrow_decoder, decode_batches
from zapdb.spark.driver import DriverContext, Sent, opened_for_reading
from zapdb.spark.options import STREAM_OPTIONS, GivenOptions, Place
from zapdb.storage.cells import as_bytes, as_time
from zapdb.tables.changes import ChangeFollower
from zapdb.tables.indexes import BoundTable
from zapdb.tables.queries.arrow_ranges import bind_now

CHANGES_FORMAT: Final = "zapdb_changes"
BEGIN, END = "begin", "end"
_TIME: Final = pyarrow.timestamp("us", "UTC")

Offset = dict[str, str]


@dataclass(frozen=True, slots=True)
class StreamOptions:
    """Which table's changes, from where, how many in a batch, and who follows."""

    place: Place
    since: str
    """A bookmark, `begin` or `end` of the log; only for the first run of a query."""
    changes_per_batch: int | None
    follower: str | None
    """The follower that is advanced behind each batch, so that no change is pruned before."""

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> StreamOptions:
        """Raises `UsageError` for unknown or missing options."""
        given = GivenOptions(options, STREAM_OPTIONS)
        since = given.text("since") or BEGIN
        if since not in (BEGIN, END):
            try:
                Bookmark.parse(since)
            except UsageError as error:
                raise given.refuse("since", "begin, end, or the bookmark of a change") from error
        return cls(
            Place.of(given), since, given.count("changes_per_batch", 1), given.text("follower")
        )


@dataclass
class ChangesPartition(InputPartition):
    """The changes behind one bookmark, up to another one."""

    start: str
    end: str


class ZapdbChangesSource(Sent, DataSource):
    """The changes of a table; `register` registers a class of a session's own."""

    context: ClassVar[DriverContext] = DriverContext()

    @classmethod
    def name(cls) -> str:
        return CHANGES_FORMAT

    def schema(self) -> StructType:
        options = self._parse()
        context = self.context.without_snapshots()
        with opened_for_reading(context, options.place) as snapshot:
            return from_arrow_schema(_arrow_schema(_bind(snapshot, options)))

    def streamReader(self, schema: StructType) -> ChangesReader:
        return ChangesReader(self.context.without_snapshots(), self._parse(), schema)

    def reader(self, schema: StructType) -> NoReturn:
        raise UsageError(
            "the changes of a table are a stream",
            hint='read them with spark.readStream.format("zapdb_changes"), and what there is now '
            'with .trigger(availableNow=True); or read the table: spark.read.format("zapdb")',
        )

    def writer(self, schema: StructType, overwrite: bool) -> NoReturn:
        raise UsageError(
            "the change log is written by zapdb alone", hint='write a table: format("zapdb")'
        )

    def streamWriter(self, schema: StructType, overwrite: bool) -> NoReturn:
        self.writer(schema, overwrite)

    def _parse(self) -> StreamOptions:
        return StreamOptions.parse(dict(self.options))


def _bind(snapshot: Snapshot, options: StreamOptions) -> BoundTable:
    return bind_now(snapshot.table(options.place.table))


class ChangesReader(Sent, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """One running query. The process that plans its batches keeps the database open."""

    def __init__(self, context: DriverContext, options: StreamOptions, schema: StructType) -> None:
        self._context = context
        self._options = options
        self._schema = schema
        self._db: Database | None = None
        self._follower: ChangeFollower | None = None
        self._last: Bookmark | None = None
        """Where a query ends that takes what there is now."""

    # Planning

    def initialOffset(self) -> Offset:
        db = self._opened()
        match self._options.since:
            case "begin":
                return _to_offset(db.change_log.begin())
            case "end":
                return _to_offset(db.change_log.end())
        return _to_offset(Bookmark.parse(self._options.since))

    def getDefaultReadLimit(self) -> ReadLimit:
        most = self._options.changes_per_batch
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        db, place = self._opened(), _to_bookmark(start)
        end = self._last or db.change_log.end()
        if end <= place:
            return start
        if isinstance(limit, ReadMaxRows):
            with db.snapshot() as snapshot:
                found = _read_log(snapshot, _bind(snapshot, self._options), place, end)
                with closing(found):  # it uses the snapshot until it is closed
                    last = list(islice(found, limit.max_rows - 1, limit.max_rows))
                if last:
                    end = last[0].bookmark
        return _to_offset(end)

    def prepareForTriggerAvailableNow(self) -> None:
        self._last = self._opened().change_log.end()

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        if start == end:
            return []
        return [ChangesPartition(start["bookmark"], end["bookmark"])]

    def commit(self, end: Offset) -> None:
        if self._options.follower is None:
            return
        if self._follower is None:
            self._follower = self._opened().change_log.follower(self._options.follower)
        if self._follower.bookmark < _to_bookmark(end):
            self._follower.advance(_to_bookmark(end))

    def stop(self) -> None:
        if self._db is not None:
            self._db.close()
            self._db = None

    def _opened(self) -> Database:
        """The database, as a node where that may write: what is visible now gets its place in the
        order. Else up to the last place that another process gave."""
        if self._db is None:
            self._context.check_process()
            place = self._options.place
            self._db = open_to_read(place.database, place.tenant)
            self._context.check_place(self._db._storage.dialect.name)
        return self._db

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_db": None, "_follower": None}

    # Reading, on executors

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yield the changes of a batch as record batches, in the order of the log."""
        given, options = cast(ChangesPartition, partition), self._options
        wanted = to_arrow_schema(self._schema, timezone="UTC")
        with opened_for_reading(self._context, options.place) as snapshot:
            bound = _bind(snapshot, options)
            if from_arrow_schema(_arrow_schema(bound)) != self._schema:
                raise UsageError(
                    "the schema of the table has changed since the query began",
                    table=options.place.table,
                    hint="start the query again: it goes on from its checkpoint with the new "
                    "columns",
                )
            start, end = Bookmark.parse(given.start), Bookmark.parse(given.end)
            with closing(_read_log(snapshot, bound, start, end)) as rows:
                while some := list(islice(rows, PAGE_RECORDS_MAX)):
                    yield _to_batch(bound, some).cast(wanted)


def _to_offset(bookmark: Bookmark) -> Offset:
    return {"bookmark": str(bookmark)}


def _to_bookmark(offset: Offset) -> Bookmark:
    return Bookmark.parse(offset["bookmark"])


def _read_log(
    snapshot: Snapshot, bound: BoundTable, start: Bookmark, end: Bookmark
) -> Generator[ChangeRow, None, None]:
    """The changes of the table's records behind a bookmark, up to another one."""
    session = snapshot._session
    with session.connected() as connection:
        log = ChangeLog(session.storage, bound.catalog.tenant)
        for row in log.read(connection.fetch_all, start, end.stamp):
            if row.bookmark > end:
                return
            if row.table == bound.schema.number and row.event is None:
                yield row


# Rows of the log as Arrow


def _arrow_schema(bound: BoundTable) -> Any:
    decoder = _decoder(bound)
    record = _nullable(pyarrow.struct(list(decoder.schema)))
    key_names = {f.name for f in bound.adapter.schema.key_fields}
    key = pyarrow.struct([f for f in decoder.schema if f.name in key_names])
    return pyarrow.schema(
        [
            pyarrow.field("operation", pyarrow.string(), False),
            pyarrow.field("key", key, False),
            pyarrow.field("before", record),
            pyarrow.field("after", record),
            pyarrow.field("principal", pyarrow.string(), False),
            pyarrow.field("made_at", _TIME, False),
            pyarrow.field("transaction", pyarrow.int64(), False),
            pyarrow.field("stamp", pyarrow.int64(), False),
            pyarrow.field("stamped_at", _TIME, False),
            pyarrow.field("bookmark", pyarrow.string(), False),
        ]
    )


def _nullable(kind: Any) -> Any:
    """A struct whose members may be null, as those of a null are."""
    if not pyarrow.types.is_struct(kind):
        return kind
    return pyarrow.struct([f.with_type(_nullable(f.type)).with_nullable(True) for f in kind])


def _decoder(bound: BoundTable) -> Any:
    return arrow_decoder(bound.adapter.schema, zones=bound.catalog.zones)


def _to_batch(bound: BoundTable, rows: Sequence[ChangeRow]) -> Any:
    schema = _arrow_schema(bound)
    read = [None if decode_unreadable(row.before) else row.before for row in rows]
    before = _to_structs(bound, rows, read)
    after = _to_structs(bound, rows, [row.after for row in rows])
    key = [
        pyarrow.compute.coalesce(
            pyarrow.compute.struct_field(after, [f.name]),
            pyarrow.compute.struct_field(before, [f.name]),
            *_find_unreadable_key(bound, rows, f),
        ).cast(f.type)
        for f in schema.field("key").type
    ]
    made = [row.transaction for row in rows]
    columns = [
        pyarrow.array([_name(row) for row in rows]),
        pyarrow.StructArray.from_arrays(key, fields=list(schema.field("key").type)),
        before,
        after,
        pyarrow.array([one.principal for one in made]),
        pyarrow.array([as_time(one.made_at) for one in made], _TIME),
        pyarrow.array([one.number for one in made]),
        pyarrow.array([one.stamp for one in made]),
        pyarrow.array([as_time(one.stamped_at) for one in made], _TIME),
        pyarrow.array([str(row.bookmark) for row in rows]),
    ]
    return pyarrow.RecordBatch.from_arrays(columns, schema=schema)


def _find_unreadable_key(bound: BoundTable, rows: Sequence[ChangeRow], field: Any) -> list[Any]:
    """The values of a field of the key of records that could not be read, in an array; no array if
    there are none."""
    reader, keys = bound.adapter.reader, list[tuple[bytes, bytes]]()
    # Of a record without values, the fields of the key can be decoded.
    empty = reader.prefix + bytes(Layout.of(bound.adapter.schema).presence_size_bytes)
    places: list[int | None] = []
    for row in rows:
        is_unreadable = decode_unreadable(row.before) is not None
        places.append(len(keys) if is_unreadable else None)
        if is_unreadable:
            keys.append((row.key, empty))
    if not keys:
        return []
    decoder = arrow_decoder(bound.adapter.schema, [field.name], zones=bound.catalog.zones)
    found = pyarrow.Table.from_batches(
        decode_batches(decoder, keys, bound.make_attachments, reader), decoder.schema
    )
    return [found.column(0).combine_chunks().take(pyarrow.array(places, pyarrow.int64()))]


def _name(row: ChangeRow) -> str:
    if row.before is None:
        return "insert"
    return "delete" if row.after is None else "update"


def _to_structs(
    bound: BoundTable, rows: Sequence[ChangeRow], values: Sequence[bytes | None]
) -> Any:
    """Stored records as an array of structs; None is a null."""
    decoder, there = _decoder(bound), list[tuple[bytes, bytes]]()
    places: list[int | None] = []
    for row, value in zip(rows, values, strict=True):
        places.append(None if value is None else len(there))
        if value is not None:
            there.append((as_bytes(row.key), as_bytes(value)))
    make, reader = bound.make_attachments, bound.adapter.reader
    batches = list(decode_batches(decoder, there, make, reader)) if there else []
    table = pyarrow.Table.from_batches(batches, decoder.schema)
    record = _nullable(pyarrow.struct(list(decoder.schema)))
    columns = [
        column.cast(f.type).combine_chunks()
        for column, f in zip(table.columns, record, strict=True)
    ]
    structs = pyarrow.StructArray.from_arrays(columns, fields=list(record))
    return structs.take(pyarrow.array(places, pyarrow.int64()))
