"""Reading a table with Spark: planned by ranges of keys, read in Arrow batches.

What is read less is said by options: `where`, `fields`, `limit`; a schema that is given to
`spark.read` names fields, too. Spark's interface for Python knows no columns and no limits. It can
hand over conditions (`pushFilters`), but Spark 4 then reads too little: what was handed over for
one query of a frame holds for the next one of the same frame, too (*measured* with 4.3: the union
of `frame.where("a = 1")` and `frame.where("a = 2")` lacks the rows of the first one).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, cast

from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from zapdb.database.past import Past
from zapdb.database.transaction_blocks import Snapshot
from zapdb.errors import UsageError
from zapdb.limits import SPARK_PARTITION_RECORDS, SPARK_PARTITIONS_MAX
from zapdb.past.reading.moment import find_moment
from zapdb.records.arrow import arrow_schema
from zapdb.spark.driver import DriverContext, SameDatabase, Sent, opened_for_reading
from zapdb.spark.options import ReadOptions
from zapdb.tables.arrow import WHOLE_TABLE, KeyRange
from zapdb.tables.indexes.predicates import EVERYTHING, Predicate
from zapdb.tables.queries.arrow_ranges import (
    RangeQuery,
    bind_now,
    plan_ranges,
    read_ranges,
)
from zapdb.tables.queries.conditions import read_condition
from zapdb.tables.table_reading import ReadableTable


@dataclass
class RangePartition(InputPartition):
    """Some ranges of a table's keys; none: what an index finds. It carries what the executor is to
    prove, because Spark has sent the reader before it asks for partitions."""

    ranges: tuple[KeyRange, ...]
    proof: SameDatabase


def read_spark_schema(context: DriverContext, options: ReadOptions) -> StructType:
    """The columns of a table in its newest schema, or that of a moment, as Spark's types; raises
    `UnknownName`."""
    with opened_for_reading(context, options.place) as snapshot:
        return _spark_schema(_find(snapshot, options), options)


def _find(snapshot: Snapshot, options: ReadOptions) -> ReadableTable:
    name = options.place.table
    if options.at is None:
        return snapshot.table(name)
    session = snapshot._session
    return Past(session, find_moment(session, options.at)).table(name)


def _condition(table: ReadableTable, options: ReadOptions) -> Predicate:
    if options.where is None:
        return EVERYTHING
    return read_condition(table, bind_now(table).adapter.schema, options.where)


def _spark_schema(table: ReadableTable, options: ReadOptions) -> StructType:
    found = arrow_schema(bind_now(table).adapter.schema, options.fields, options.as_text)
    return from_arrow_schema(found)


class ZapdbReader(Sent, DataSourceReader):
    """One read of a table. It is made where the query is planned, and sent to the executors."""

    def __init__(self, context: DriverContext, options: ReadOptions, schema: StructType) -> None:
        self._context = context
        self._options = options
        self._schema = schema

    def partitions(self) -> list[RangePartition]:
        options = self._options
        with opened_for_reading(self._context, options.place) as snapshot:
            table = _find(snapshot, options)
            self._check_schema(table)
            with snapshot._session.connected() as connection:
                proof = SameDatabase.of(connection, bind_now(table).catalog)
            if options.limit is not None:
                return [RangePartition((WHOLE_TABLE,), proof)]
            # A SQLite file has one partition, unless what is read never changes: the past, or a
            # copy that the driver holds.
            is_file = snapshot._session.storage.dialect.name == "sqlite"
            is_single = is_file and options.at is None and not self._context.holds(snapshot)
            plan = plan_ranges(
                table,
                _condition(table, options),
                part_records=SPARK_PARTITION_RECORDS,
                parts=1 if is_single else options.partitions,
                parts_max=SPARK_PARTITIONS_MAX,
            )
        if plan.index is not None:
            return [RangePartition((), proof)]
        return [RangePartition(part, proof) for part in plan.parts]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yield the record batches of a partition, all as of one moment."""
        planned = cast(RangePartition, partition)
        options, wanted = self._options, to_arrow_schema(self._schema, timezone="UTC")
        with opened_for_reading(self._context, options.place) as snapshot:
            table = _find(snapshot, options)
            with snapshot._session.connected() as connection:
                planned.proof.check(connection, bind_now(table).catalog)
            self._check_schema(table)
            names, where = self._schema.fieldNames(), _condition(table, options)
            if planned.ranges:
                query = RangeQuery(where, names, options.as_text, options.limit)
                found = read_ranges(table, planned.ranges, query)
            else:
                found = table.where(where).to_arrow(names, options.as_text)
            for batch in found:
                yield batch.select(names).cast(wanted)

    def _check_schema(self, table: ReadableTable) -> None:
        """Raise `UsageError` if the query was made for other columns than the table has now."""
        options = self._options
        there = {f.name: f.dataType for f in _spark_schema(table, options)}
        for field in self._schema:
            if there.get(field.name) != field.dataType:
                kind = there.get(field.name)
                raise UsageError(
                    "the query asks for another column than the table has",
                    column=field.name,
                    asked=field.dataType.simpleString(),
                    there="(none)" if kind is None else kind.simpleString(),
                    hint="load the table again, without a schema or with these types: "
                    + ", ".join(f"{name} {kind.simpleString()}" for name, kind in there.items()),
                )
