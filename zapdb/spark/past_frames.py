"""Tables at a past moment as frames of Spark: `read_past`.

Where a history store has the moment, Spark reads the columns of its files itself, by the statement
that DuckDB gets, and the changes behind the files come along as a small frame. Elsewhere records
are rewound, by ranges of keys: that is the data source `zapdb` with the option `at`.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from zapdb.database import Database
from zapdb.database.past import Past
from zapdb.errors import InvalidValue
from zapdb.past.files.file_columns import column_name
from zapdb.past.reading.moment import When
from zapdb.past.reading.replaced_files import retry_if_compacted
from zapdb.past.reading.stored_columns import StoredColumns, TailSource
from zapdb.past.reading.stored_files import RelationFiles
from zapdb.records.arrow import arrow_schema
from zapdb.spark.data_source import FORMAT, require_session
from zapdb.spark.driver import refuse_file_on_cluster
from zapdb.sql.statement_run import as_of_one_moment

CALENDAR: Final = {"datetimeRebaseMode": "CORRECTED", "int96RebaseMode": "CORRECTED"}
"""Files have the dates that they have, those before 1582 too."""
ALL_FILES: Final = {"ignoreMissingFiles": "false", "ignoreCorruptFiles": "false"}
"""Whatever the session says: without one of them, rows would be missing, or earlier ones there."""
_naming = threading.Lock()
"""Held while relations of a session have the names of a statement."""


def read_past(
    db: Database,
    moment: When,
    table: str,
    *,
    as_text: Collection[str] = (),
    partitions: int | None = None,
    spark: SparkSession | None = None,
) -> DataFrame:
    """Return a table as it was at a moment as a frame of Spark.

        goods = zapdb.spark.read_past(db, yesterday, "goods")

    `moment` is what `db.at` takes, `table` the name of then, and the columns are those of then.
    `as_text` names fields whose numbers may exceed 64 bits, or 38 digits: they are strings. With a
    history store that has the moment, Spark reads its files; these are kept for
    `history_grace_seconds` after others have replaced them, or for a block `with db.at(moment):`.
    An erasure deletes them at once where no such block is open: then Spark says that a file does
    not exist, and the moment has to be read again. Else `partitions` ranges of keys are rewound by
    the change log.

    Raises the errors of `db.at` and of `past.table`, `InvalidValue` for a number that is too large
    for its column, and `UsageError` without a Spark session.
    """
    session = require_session(spark)
    past = db.at(moment)

    def read() -> DataFrame | None:
        offer = _offer(past, table, as_text)
        if offer is None:
            return None
        refuse_file_on_cluster(session.sparkContext.master or "", db._storage.dialect.name)
        return _plan(session, offer, as_text)

    frame = retry_if_compacted(past._session, read)
    if frame is not None:
        return frame
    past.table(table)  # raises what is in the way here, not in a process of Spark
    return _load_rewound(session, db, (str(past.moment.bookmark), table), as_text, partitions)


@dataclass(frozen=True, slots=True)
class _Inputs:
    """What a frame reads: a statement over files and over the changes behind them."""

    columns: StoredColumns
    sql: str
    files: dict[str, RelationFiles]
    tails: dict[str, pyarrow.Table]


def _offer(past: Past, table: str, as_text: Collection[str]) -> _Inputs | None:
    """Find the files and the changes in one snapshot; None if there is no store."""
    session = past._session
    with as_of_one_moment(session):
        columns = session.open_columns(table)
        if columns is None:
            return None
        large = [name for name in columns.large if name not in as_text]
        if large:
            raise InvalidValue(
                "a number is too large for its column",
                table=table,
                fields=", ".join(large),
                hint=f"as_text=[{', '.join(map(repr, large))}] makes strings of them",
            )
        sql, files, tails = columns.offer(session.storage.connection(), list(as_text))
        return _Inputs(columns, sql, files, {name: _read(tail) for name, tail in tails.items()})


def _plan(session: SparkSession, offer: _Inputs, as_text: Collection[str]) -> DataFrame:
    """Make the frame; raises `HistoryDamaged` if a file is not there any more."""
    columns, reader = offer.columns, session.read.options(**CALENDAR, **ALL_FILES)
    try:
        relations = {
            name: _in_text(_name_columns(reader.parquet(*held.paths), held), columns, as_text)
            for name, held in offer.files.items()
        }
        relations |= {name: session.createDataFrame(rows) for name, rows in offer.tails.items()}
        return _give_types(_run(session, offer.sql, relations), columns, as_text)
    except PySparkException:
        missing = columns.find_missing()
        if missing is None:
            raise
        raise missing from None


def _load_rewound(
    session: SparkSession,
    db: Database,
    read: tuple[str, str],
    as_text: Collection[str],
    partitions: int | None,
) -> DataFrame:
    moment, table = read
    given = {"database": db._storage.engine.full_address(), "tenant": db._tenant}
    given |= {"at": moment, "table": table, "as_text": ",".join(as_text)}
    if partitions is not None:
        given["partitions"] = str(partitions)
    return session.read.format(FORMAT).options(**given).load()


def _run(session: SparkSession, sql: str, relations: dict[str, DataFrame]) -> DataFrame:
    """Plan a statement over relations; they need their names no longer then."""
    with _naming:
        for name, frame in relations.items():
            frame.createOrReplaceTempView(name)
        try:
            return session.sql(sql)
        finally:
            for name in relations:
                session.catalog.dropTempView(name)


def _name_columns(frame: DataFrame, files: RelationFiles) -> DataFrame:
    return frame.select(*(F.col(f"`{held}`").alias(column) for column, held in files.names.items()))


def _in_text(frame: DataFrame, columns: StoredColumns, as_text: Collection[str]) -> DataFrame:
    """One file may have a field as text, and another one as a number."""
    fields = [field for field in columns.schema.fields if field.name in as_text]
    wanted = {column_name(field) for field in fields}
    return frame.withColumns(
        {name: F.col(name).cast("string") for name in wanted & {*frame.columns}}
    )


def _read(tail: TailSource) -> pyarrow.Table:
    return pyarrow.Table.from_batches(tail.read(tail.schema.names), tail.schema)


def _give_types(frame: DataFrame, columns: StoredColumns, as_text: Collection[str]) -> DataFrame:
    schema = columns.schema
    types = _make_nullable(from_arrow_schema(arrow_schema(schema, None, as_text)))
    chosen: Sequence[Any] = [
        F.col(column_name(field)).cast(types[field.name].dataType).alias(field.name)
        for field in schema.fields
    ]
    return frame.select(*chosen)


def _make_nullable(types: StructType) -> StructType:
    """Spark takes all columns of Parquet files as nullable, inside structs and lists, too."""
    text = json.dumps(types.jsonValue())
    for name in ("nullable", "containsNull"):
        text = text.replace(f'"{name}": false', f'"{name}": true')
    return StructType.fromJson(json.loads(text))
