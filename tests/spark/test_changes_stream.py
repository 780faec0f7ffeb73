"""The change log as a stream of Spark: each change once, in order, through failures."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows
from pyspark.sql.types import StructType
from sqlalchemy import make_url

from tests.documents import PEOPLE
from tests.support import Workspace
from zapdb.database import RecordChange
from zapdb.errors import HistoryBehind, UsageError
from zapdb.spark.change_stream import StreamOptions, ZapdbChangesSource
from zapdb.spark.data_source import ZapdbDataSource

PER_BATCH = 4
NAMES = """\
create_table: {table: people, key: [id], fields: [
      {name: id, type: integer}, {name: name, type: string}]}"""


class Sink:
    """Keeps the rows of each batch, by its number; fails once when it is told to."""

    def __init__(self) -> None:
        self.batches: dict[int, list[Any]] = {}
        self.fails_at = -1
        self.failed: list[Any] = []

    def __call__(self, frame: Any, number: int) -> None:
        rows = [row.asDict(recursive=True) for row in frame.collect()]
        if number == self.fails_at:
            self.fails_at = -1
            self.failed = rows
            raise RuntimeError("on purpose")
        assert number not in self.batches
        self.batches[number] = rows

    @property
    def rows(self) -> list[Any]:
        return [row for _, rows in sorted(self.batches.items()) for row in rows]


def run(spark: Any, place: Workspace, sink: Sink, checkpoint: Any, **options: Any) -> None:
    given = {"database": place.address, "table": "people", "changes_per_batch": PER_BATCH}
    frame = spark.readStream.format("zapdb_changes").options(**given, **options).load()
    writer = frame.writeStream.foreachBatch(sink).trigger(availableNow=True)
    query = writer.option("checkpointLocation", str(checkpoint)).start()
    try:
        query.awaitTermination()
    finally:
        query.stop()


def wanted(db: Any) -> list[Any]:
    return [
        (c.operation, c.key, str(c.bookmark), c.transaction)
        for c in db.change_log.read()
        if isinstance(c, RecordChange) and c.table == "people"
    ]


def found(sink: Sink) -> list[Any]:
    return [
        (
            row["operation"],
            tuple(row["key"].values()),
            row["bookmark"],
            row["transaction"],
        )
        for row in sink.rows
    ]


NESTED = (
    "create_type: {type: place, struct: [{name: street, type: string}, {name: number,"
    " type: integer}]}",
    "create_table: {table: towns, key: [country, name], fields: [{name: country, type: string},"
    " {name: name, type: string}]}",
    "create_table: {table: people, key: [home], fields: [{name: home, type: reference, to: towns},"
    " {name: at, type: place}, {name: others, type: list, of: place},"
    " {name: photo, type: binary, optional: true}]}",
)


def test_a_record_that_could_not_be_read_has_its_key(workspace):
    workspace.write(1, *NESTED)
    db = workspace.open()
    db.admin.set_setting("change_log", "on")
    people, place = db.table("people"), {"street": "Weg", "number": 3}
    for town in ("Bern", "Biel"):
        people.insert(home=("CH", town), at=place, others=[])
    begin = db.change_log.end()
    workspace.execute("UPDATE zapdb_records_2 SET value = ?", (b"\x81",))
    people.discard_unreadable(("CH", "Biel"))
    people.discard_unreadable(("CH", "Bern"), replacement={"at": place, "others": [place]})
    source = ZapdbChangesSource({"database": workspace.address, "table": "people"})
    reader = source.streamReader(source.schema())
    (partition,) = reader.partitions(
        {"bookmark": str(begin)}, reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    )
    rows = [row for batch in reader.read(partition) for row in batch.to_pylist()]
    reader.stop()
    assert [(row["operation"], row["key"]["home"]["key_1"], row["before"]) for row in rows] == [
        ("delete", "Biel", None),
        ("update", "Bern", None),
    ]
    assert rows[0]["after"] is None
    assert rows[1]["after"]["others"] == [place]


def test_a_batch_has_the_changes_between_two_bookmarks(workspace):
    """The reader as Spark uses it, without Spark: nested values, large ones, nulls of structs."""
    workspace.write(1, *NESTED)
    db = workspace.open()
    db.admin.set_setting("change_log", "on")
    people, place = db.table("people"), {"street": "Weg", "number": 3}
    first = {"home": ("CH", "Bern"), "at": place, "others": [place], "photo": b"x" * 9_000}
    people.insert(**first)
    people.update(("CH", "Bern"), photo=None)
    middle = db.change_log.end()
    people.delete(("CH", "Bern"))

    source = ZapdbChangesSource({"database": workspace.address, "table": "people"})
    reader = source.streamReader(source.schema())
    begin = reader.initialOffset()
    end = reader.latestOffset(begin, ReadAllAvailable())
    two = reader.latestOffset(begin, ReadMaxRows(2))
    assert reader.latestOffset(end, ReadAllAvailable()) == end
    assert reader.partitions(end, end) == []

    def read(start: dict[str, str], stop: dict[str, str]) -> list[Any]:
        (partition,) = reader.partitions(start, stop)
        return [row for batch in reader.read(partition) for row in batch.to_pylist()]

    rows = read(begin, end)
    assert [row["operation"] for row in rows] == ["insert", "update", "delete"]
    home = {"key_0": "CH", "key_1": "Bern"}
    inserted = {"home": home, "at": place, "others": [place], "photo": first["photo"]}
    assert [row["after"] for row in rows] == [inserted, {**inserted, "photo": None}, None]
    assert [row["before"] for row in rows] == [None, inserted, {**inserted, "photo": None}]
    assert [row["key"] for row in rows] == [{"home": home}] * 3
    assert read(begin, two) == rows[:2]
    assert read(two, end) == read({"bookmark": str(middle)}, end) == rows[2:]

    reader.prepareForTriggerAvailableNow()
    people.insert_many({**first, "home": ("CH", name)} for name in ("Basel", "Bern", "Chur"))
    assert reader.latestOffset(end, ReadAllAvailable()) == end
    reader.stop()
    # A batch may end inside a transaction.
    later = source.streamReader(source.schema())
    first_two = later.latestOffset(end, ReadMaxRows(2))
    assert [row["key"]["home"]["key_1"] for row in read(end, first_two)] == ["Basel", "Bern"]
    last = later.latestOffset(first_two, ReadAllAvailable())
    assert [row["key"]["home"]["key_1"] for row in read(first_two, last)] == ["Chur"]
    later.stop()
    workspace.write(
        2, "add_field: {table: people, field: {name: note, type: string, optional: true}}"
    )
    workspace.open()
    with pytest.raises(UsageError, match="the schema of the table has changed since the query"):
        read(begin, end)


@pytest.mark.parametrize("engine", ["postgresql"])
def test_rule_29_a_role_that_may_only_read_gets_what_has_a_stamp(workspace, postgres):
    workspace.write(1, NAMES)
    db = workspace.open()
    db.admin.set_setting("change_log", "on")
    postgres.execute("DROP ROLE IF EXISTS zapdb_stream_reader")
    postgres.execute("CREATE ROLE zapdb_stream_reader LOGIN")
    try:
        workspace.execute("GRANT SELECT ON ALL TABLES IN SCHEMA public TO zapdb_stream_reader")
        url = make_url(workspace.address).set(username="zapdb_stream_reader")
        address = url.render_as_string(hide_password=False)
        db.table("people").insert(id=1, name="Ada")
        source = ZapdbChangesSource({"database": address, "table": "people"})
        reader = source.streamReader(source.schema())
        begin = reader.initialOffset()
        with pytest.raises(HistoryBehind, match="no place in its order yet"):
            reader.latestOffset(begin, ReadAllAvailable())
        known = db.change_log.end()
        db.table("people").insert(id=2, name="Bob")
        end = reader.latestOffset(begin, ReadAllAvailable())
        assert end == {"bookmark": str(known)}
        (partition,) = reader.partitions(begin, end)
        rows = [row for batch in reader.read(partition) for row in batch.to_pylist()]
        assert [row["after"]["name"] for row in rows] == ["Ada"]
        reader.stop()
    finally:
        workspace.execute("DROP OWNED BY zapdb_stream_reader")
        postgres.execute("DROP ROLE zapdb_stream_reader")


@pytest.mark.parametrize("engine", ["postgresql"])
def test_rule_29_each_change_comes_once_in_order(workspace, spark, tmp_path):
    workspace.write(1, PEOPLE.replace("name: name", "name: called"))
    with workspace.open() as db:
        db.admin.set_setting("change_log", "on")
        db.table("people").insert_many(
            {"id": at, "called": f"p{at}", "extra": None} for at in range(6)
        )
    workspace.write(2, "rename_field: {table: people, field: called, to: name}")
    db = workspace.open()
    people = db.table("people")
    people.update(3, name="changed")
    people.delete(4)

    sink, checkpoint = Sink(), tmp_path / "checkpoint"
    sink.fails_at = 1
    with pytest.raises(StreamingQueryException, match="on purpose"):
        run(spark, workspace, sink, checkpoint, follower="spark")
    assert [row["key"]["id"] for row in sink.failed] == [4, 5, 3, 4]
    people.insert(id=9, name="later", extra=None)
    run(spark, workspace, sink, checkpoint, follower="spark")
    assert sink.batches[1] == sink.failed
    assert found(sink) == wanted(db)
    updated = next(row for row in sink.rows if row["operation"] == "update")
    assert (updated["before"]["name"], updated["after"]["name"]) == ("p3", "changed")
    assert next(row for row in sink.rows if row["operation"] == "delete")["after"] is None
    # Spark says that a batch is done when the next one begins.
    (follower,) = db.change_log.followers()
    assert follower.name == "spark"
    assert follower.lag.changes == len(sink.batches[max(sink.batches)])


def test_where_a_stream_begins_is_checked():
    given = {"database": "x", "table": "t"}
    assert StreamOptions.parse(given).since == "begin"
    with pytest.raises(UsageError, match="give begin, end, or the bookmark"):
        StreamOptions.parse({**given, "since": "yesterday"})
    with pytest.raises(UsageError, match="it is an option of spark"):
        StreamOptions.parse({**given, "partitions": "3"})
    with pytest.raises(UsageError, match="did you mean 'changes_per_batch'"):
        StreamOptions.parse({**given, "changes_per_bach": "3"})


@pytest.mark.parametrize("engine", ["sqlite"])
def test_what_is_no_stream_says_what_is_one(workspace, spark):
    workspace.write(1, PEOPLE)
    workspace.open()
    given = {"database": workspace.address, "table": "people"}
    query = spark.readStream.format("zapdb").options(**given).load()
    query = query.writeStream.foreachBatch(Sink()).start()
    with pytest.raises(StreamingQueryException, match="reads tables, which are no streams"):
        query.awaitTermination()
    tables, changes, columns = ZapdbDataSource(given), ZapdbChangesSource(given), StructType()
    with pytest.raises(UsageError, match="takes frames, not streams"):
        tables.streamWriter(columns, overwrite=False)
    with pytest.raises(UsageError, match="the changes of a table are a stream"):
        changes.reader(columns)
    for write in (changes.writer, changes.streamWriter):
        with pytest.raises(UsageError, match="the change log is written by zapdb alone"):
            write(columns, overwrite=False)
