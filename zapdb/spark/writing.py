"""Writing a frame into a table: `df.write.format("zapdb").mode("append")`.

Each task opens the database itself and writes its rows in batches by the ordinary way, so indexes,
checks, references and the change log are right. What makes it once, see `marks`.
"""

from __future__ import annotations

import hashlib
import logging
import uuid
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any, Final

import pyarrow
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from zapdb.activation.datasets import datasets_in_use
from zapdb.database import Database
from zapdb.database.table import Table
from zapdb.errors import ExecutorMismatch, InvalidValue, JobError, UsageError, ZapdbError
from zapdb.imports import SourceRow, match_columns
from zapdb.imports.row import ImportMode
from zapdb.imports.row_batches import Refused, write_batch
from zapdb.limits import INSERT_BATCH_RECORDS
from zapdb.logs import log_event
from zapdb.records.arrow import read_values
from zapdb.schema import TableSchema
from zapdb.spark.driver import DriverContext, SameDatabase, Sent, opened_for_reading
from zapdb.spark.kept_open import KEPT_OPEN, DatabaseOpening
from zapdb.spark.marks import PartitionMarks, digest_row, finish_job, is_job_done
from zapdb.spark.options import WRITE_OPTIONS, GivenOptions, Place
from zapdb.storage import Connection
from zapdb.storage.identifiers import UUID_VERSION, VARIANT, make_uuid7
from zapdb.tables.queries.arrow_ranges import bind_now
from zapdb.values import Uuid, Zones

logger = logging.getLogger("zapdb.spark")

CAST_HINT: Final = (
    "cast the column, or leave such rows out, in the frame: "
    'df.withColumn("a", df["a"].cast("decimal(38, 2)")), df.dropna(subset=["a"])'
)


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """Where rows go, and whether records with their keys are updated."""

    place: Place
    upsert: bool
    job: str | None
    """A name under which the same write may be run again."""

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> WriteOptions:
        """Raises `UsageError` for unknown or missing options."""
        given = GivenOptions(options, WRITE_OPTIONS)
        return cls(Place.of(given), given.flag("upsert"), given.text("job"))


@dataclass(frozen=True, slots=True)
class WriteJob:
    """One write, planned: its name, when it began, and what executors must have."""

    id: str
    name: str
    """The one that was given, or one that was made for it."""
    began_ms: int
    is_named: bool
    is_done: bool
    datasets: Mapping[str, tuple[str, str]]
    proof: SameDatabase


@dataclass
class WrittenPartition(WriterCommitMessage):
    """How many rows of a partition an attempt wrote, and how many earlier attempts had written."""

    partition: int
    written: int
    left_out: int


class ZapdbWriter(Sent, DataSourceArrowWriter):
    """One write. It is made where the query is planned, and sent to the executors."""

    def __init__(self, context: DriverContext, options: WriteOptions, job: WriteJob) -> None:
        self._context = context
        self._options = options
        self._job = job

    @classmethod
    def plan(cls, context: DriverContext, options: WriteOptions, schema: StructType) -> ZapdbWriter:
        """Raises `UsageError` for columns that don't fit the table, before anything is written."""
        context.check_writing()
        context = context.without_snapshots()
        made, is_named = make_uuid7(), options.job is not None
        name = options.job or made.hex()
        with opened_for_reading(context, options.place) as snapshot:
            bound = snapshot.table(options.place.table)._current()
            _check_columns(bound.adapter.schema, schema, _mode(options))
            _check_types(bound.adapter.schema, schema, bound.catalog.zones)
            number = _name_job(bound.catalog.tenant, name)
            with snapshot._session.connected() as connection:
                is_done = is_named and is_job_done(connection, number)
                proof = SameDatabase.of(connection, bound.catalog)
            datasets = datasets_in_use(bound.catalog)
        began_ms = int.from_bytes(made[:6], "big")
        job = WriteJob(number, name, began_ms, is_named, is_done, datasets, proof)
        return cls(context, options, job)

    def write(self, iterator: Iterator[Any]) -> WrittenPartition:
        """Write the rows of a partition that no earlier attempt has written."""
        task = TaskContext.get()
        assert task is not None, "Spark calls it in a task"
        number = task.partitionId()
        if self._job.is_done:
            return WrittenPartition(number, 0, 0)
        self._check_process()
        with self._opened() as db:
            marks = PartitionMarks.claim(db._storage, self._job.id, number)
            if marks.is_done:  # Spark lost the result, not the rows
                return WrittenPartition(number, 0, marks.written)
            before = marks.written
            try:
                _PartitionWriter(db, self._options, self._job, marks).write(iterator)
            except ZapdbError as error:
                error.hint = "; ".join(filter(None, (error.hint, _go_on(self._job))))
                raise
            if marks.known:
                raise JobError(
                    "Spark computed other rows for a partition than at its first attempt",
                    partition=number,
                    rows_missing=marks.known.total(),
                    hint="rows of the first attempt are written already; write a frame that is "
                    "the same each time: persist() or checkpoint() it before, and avoid rand()",
                )
            marks.finish()
            return WrittenPartition(number, marks.written - before, before)

    def _opened(self) -> AbstractContextManager[Database]:
        place = self._options.place
        return KEPT_OPEN.using(DatabaseOpening(place.database, place.tenant, read_only=False))

    def _check_process(self) -> None:
        """Raise `ExecutorMismatch` if the address leads this process to another database, or to
        other migrations, or if it has other collation or time zone data than the driver: opening
        the database to write would build indexes anew."""
        options = self._options
        with opened_for_reading(self._context, options.place) as snapshot:
            catalog = bind_now(snapshot.table(options.place.table)).catalog
            with snapshot._session.connected() as connection:
                self._job.proof.check(connection, catalog)
            here = datasets_in_use(catalog)
        for name, expected in self._job.datasets.items():
            if name in here and here[name][1] != expected[1]:
                raise ExecutorMismatch(
                    "this process has other collation or time zone data than the driver",
                    dataset=name,
                    version=here[name][0],
                    expected=expected[0],
                    hint="install the same ICU and time zone data on every machine of the cluster",
                )

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """All partitions are written."""
        if self._job.is_done:
            return
        with self._opened() as db:
            finish_job(db._storage, self._job.id, is_named=self._job.is_named)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """A partition failed for good: what others have committed stays, and so do their marks.

        Spark may fail to call it.
        """
        log_event(
            logger,
            "spark.write_failed",
            f"a write to a table failed; {_go_on(self._job)}",
            level=logging.WARNING,
            table=self._options.place.table,
            job=self._job.name,
        )


class _PartitionWriter:
    """Writes batches of one partition, each with its marks."""

    def __init__(
        self, db: Database, options: WriteOptions, job: WriteJob, marks: PartitionMarks
    ) -> None:
        self._table: Table = db.table(options.place.table)
        self._session = db._session
        self._mode = _mode(options)
        self._job = job
        self._marks = marks

    def write(self, batches: Iterator[Any]) -> None:
        fresh = ((d, v) for d, v in self._rows(batches) if self._marks.take(d))
        while some := list(islice(fresh, INSERT_BATCH_RECORDS)):
            first = self._marks.written
            rows = [
                SourceRow(at, self._with_ids(values, first + at))
                for at, (_, values) in enumerate(some)
            ]
            save = partial(self._save, [digest for digest, _ in some])
            write_batch(self._session, self._table, rows, self._mode, save)
            self._marks.committed(len(some))

    def _rows(self, batches: Iterator[Any]) -> Iterator[tuple[bytes, dict[str, Any]]]:
        for batch in batches:
            bound = self._table._current()
            schema = bound.adapter.schema
            for values in _read_values(schema, batch, bound.catalog.zones):
                yield digest_row(list(values.items())), values

    def _with_ids(self, values: dict[str, Any], row: int) -> dict[str, Any]:
        """The values with generated ids filled in, which are the same at each attempt."""
        bound = self._table._current()
        missing = [
            f.name
            for f in bound.adapter.schema.fields
            if f.generated == "uuid" and f.name not in values
        ]
        return {**values, **{name: self._make_id(name, row) for name in missing}}

    def _make_id(self, name: str, row: int) -> uuid.UUID:
        """A UUID of version 7 as of the job's beginning, whose other bits are made of job, field,
        partition and row."""
        seed = f"{self._job.id}\0{name}\0{self._marks.claimed.number}\0{row}".encode()
        number = int.from_bytes(hashlib.blake2b(seed, digest_size=10).digest(), "big")
        low, high = number & ((1 << 62) - 1), number >> 68
        return uuid.UUID(int=self._job.began_ms << 80 | UUID_VERSION | high << 64 | VARIANT | low)

    def _save(self, digests: list[bytes], connection: Connection, refused: list[Refused]) -> None:
        if refused:
            raise refused[0].error
        self._marks.save(connection, digests)


def _go_on(job: WriteJob) -> str:
    """How a write that failed is finished."""
    return (
        f"what was committed stays: run the same write with option('job', '{job.name}'), and it "
        "goes on where it stopped"
    )


def _mode(options: WriteOptions) -> ImportMode:
    return "upsert" if options.upsert else "append"


def _name_job(tenant: int, name: str) -> str:
    """What a named job is called in the database; it has no character with a meaning there."""
    return f"{tenant}.{hashlib.blake2b(name.encode(), digest_size=16).hexdigest()}"


def _check_columns(table: TableSchema, schema: StructType, mode: ImportMode) -> None:
    names = schema.fieldNames()
    unknown = [name for name in names if table.field_named(name) is None]
    try:
        match_columns(table, names, {}, mode)
    except UsageError as error:
        error.hint = 'rename or drop columns of the frame: df.withColumnRenamed("a", "b")'
        raise
    if unknown:  # `match_columns` would rename them by itself
        raise UsageError(
            "a column has no field",
            table=table.name,
            column=", ".join(unknown),
            fields=", ".join(f.name for f in table.fields),
            hint='rename or drop columns of the frame: df.withColumnRenamed("a", "b")',
        )


def _check_types(table: TableSchema, schema: StructType, zones: Zones) -> None:
    """Raise `InvalidValue` for the first column whose type the field does not take: here, once, and
    not in each task. Values are looked at when they are written."""
    columns = to_arrow_schema(schema, timezone="UTC")
    for column in columns:
        empty = pyarrow.record_batch([pyarrow.array([], column.type)], pyarrow.schema([column]))
        list(_read_values(table, empty, zones))


def _read_values(table: TableSchema, batch: Any, zones: Zones) -> Iterator[dict[str, Any]]:
    try:
        yield from read_values(table, _parse_uuids(table, batch), zones)
    except InvalidValue as error:
        error.context.pop("row", None)  # of the batch: Spark has no numbers of rows
        error.hint = error.hint or CAST_HINT
        raise


def _parse_uuids(table: TableSchema, batch: Any) -> Any:
    """UUIDs that are texts, as Spark's function uuid() makes them, as their bytes."""
    for at, name in enumerate(batch.schema.names):
        field = table.field_named(name)
        is_text = pyarrow.types.is_string(batch.schema.field(at).type)
        if field is None or not isinstance(field.type, Uuid) or not is_text:
            continue
        values = [
            None if text is None else field.type.from_document(text, f"{table.name}.{name}").bytes
            for text in batch.column(at).to_pylist()
        ]
        batch = batch.set_column(at, name, pyarrow.array(values, pyarrow.binary()))
    return batch


def plan_write(
    context: DriverContext, options: Mapping[str, str], schema: StructType, *, overwrite: bool
) -> ZapdbWriter:
    """The writer for a frame with these columns; raises `UsageError` for mode("overwrite")."""
    if overwrite:
        raise UsageError(
            "a table is not overwritten as a whole",
            hint='use mode("append"), with option("upsert", "true") to update records by their '
            "keys; delete the others with db.table(…).delete_where(…)",
        )
    return ZapdbWriter.plan(context, WriteOptions.parse(options), schema)
