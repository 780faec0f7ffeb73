"""The data source `zapdb` of Spark: `spark.read.format("zapdb")`, `df.write.format("zapdb")`.

Spark makes one in each process that plans a query, from the registered class and the options. These
are other processes than the application's, which holds the snapshots that all partitions share. So
the registered classes say which are held, and are registered anew when that changes.
"""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, ClassVar, Final, NoReturn

from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit
from pyspark.sql.types import StructType

from zapdb.database import Database
from zapdb.database.opening import open as open_database
from zapdb.database.transaction_blocks import Snapshot
from zapdb.errors import UsageError
from zapdb.spark.change_stream import ZapdbChangesSource
from zapdb.spark.driver import DriverContext, HeldSnapshot, Sent
from zapdb.spark.kept_open import read_database_id
from zapdb.spark.options import ReadOptions
from zapdb.spark.reading import ZapdbReader, read_spark_schema
from zapdb.spark.writing import ZapdbWriter, plan_write

FORMAT: Final = "zapdb"


class ZapdbDataSource(Sent, DataSource):
    """Tables of zapdb in Spark; `register` registers a class of a session's own."""

    context: ClassVar[DriverContext] = DriverContext()

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> StructType:
        return read_spark_schema(self.context, self._read_options())

    def reader(self, schema: StructType) -> ZapdbReader:
        return ZapdbReader(self.context, self._read_options(), schema)

    def writer(self, schema: StructType, overwrite: bool) -> ZapdbWriter:
        return plan_write(self.context, dict(self.options), schema, overwrite=overwrite)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return _NoStream()

    def streamWriter(self, schema: StructType, overwrite: bool) -> NoReturn:
        raise UsageError(
            "the data source zapdb takes frames, not streams",
            hint="write each batch of the stream, once: stream.writeStream.foreachBatch(save), "
            'where save(frame, number) is frame.write.format("zapdb").mode("append") with '
            '.option("job", f"NAME-{number}")',
        )

    def _read_options(self) -> ReadOptions:
        return ReadOptions.parse(dict(self.options))


class _NoStream(DataSourceStreamReader):
    """Refuses when the query begins: what `streamReader` raises is hidden by an error of Spark's
    own process, which stops the reader that it has not got."""

    def initialOffset(self) -> NoReturn:
        raise UsageError(
            "the data source zapdb reads tables, which are no streams",
            hint='read the changes of a table as a stream: spark.readStream.format("zapdb_changes")'
            "; or the table as it is: spark.read",
        )

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> NoReturn:
        self.initialOffset()

    def read(self, partition: InputPartition) -> NoReturn:
        self.initialOffset()


SOURCES: Final = (ZapdbDataSource, ZapdbChangesSource)

_lock = threading.RLock()
_held: dict[str, HeldSnapshot] = {}


def register_sources(spark: SparkSession) -> None:
    """Register zapdb's data sources in a session: `spark.read.format("zapdb")`.

    `import zapdb.spark` does this for the active session, if there is one, and
    `zapdb.spark.start_session` for the one that it returns.
    """
    conf = spark.sparkContext.getConf()
    context = DriverContext(
        master=conf.get("spark.master", "") or "",
        speculates=is_speculative(spark),
        held=dict(_held),
    )
    for source in SOURCES:
        # A class that no module has is sent as a whole, with its context.
        name = f"Registered{source.__name__}"
        spark.dataSource.register(type(name, (source,), {"context": context}))


def is_speculative(spark: SparkSession) -> bool:
    """Whether the session starts tasks twice that take long."""
    value = spark.sparkContext.getConf().get("spark.speculation", "false")
    return str(value).lower() == "true"


def require_session(spark: SparkSession | None) -> SparkSession:
    """Return the given session, or the active one; raises `UsageError` without one."""
    session = spark or SparkSession.getActiveSession()
    if session is None:
        raise UsageError(
            "there is no Spark session",
            hint="start one first: zapdb.spark.start_session(), or SparkSession.builder",
        )
    return session


@contextmanager
def snapshot(
    db: Database, *, spark: SparkSession | None = None, directory: str | Path | None = None
) -> Iterator[Snapshot]:
    """Read a database with Spark as of one moment: all partitions of all its tables (rule 32).

        with zapdb.spark.snapshot(db):
            people = spark.read.format("zapdb").options(database=url, table="people").load()
            people.join(cities, "city").write.parquet("out")

    The block yields a handle to read as of the same moment without Spark. On PostgreSQL this
    process holds a transaction open for as long as the block lasts, and exports its snapshot. On
    SQLite the file is copied, to a temporary directory, or in `directory`, and the copy is removed
    at the end. What Spark reads after the block raises `UsageError`.
    """
    session = require_session(spark)
    with ExitStack() as stack:
        number = read_database_id(db._storage.connection())
        handle = stack.enter_context(db.snapshot())
        with handle._session.connected() as connection:
            exported = db._storage.engine.export_snapshot(connection)
        held = HeldSnapshot(exported=exported)
        if exported is None:
            stack.pop_all().close()  # the copy is what is read
            copy = _copy(db, stack, directory)
            held = HeldSnapshot(copy=copy)
            copied = open_database(copy, tenant=db._tenant, read_only=True)
            handle = stack.enter_context(stack.enter_context(copied).snapshot())
        stack.enter_context(_holding(session, number, held))
        yield handle


def _copy(db: Database, stack: ExitStack, directory: str | Path | None) -> str:
    """The address of a copy of a SQLite file, removed with the stack."""
    made = stack.enter_context(tempfile.TemporaryDirectory(prefix="zapdb-spark-", dir=directory))
    path = Path(made) / "snapshot.db"
    db._storage.connection().run("VACUUM INTO ?", (str(path),))
    return f"sqlite:///{path}"


@contextmanager
def _holding(spark: SparkSession, number: str, held: HeldSnapshot) -> Iterator[None]:
    with _lock:
        if number in _held:
            raise UsageError(
                "a snapshot of this database is already held",
                hint="end the first block of zapdb.spark.snapshot before another one begins",
            )
        _held[number] = held
        register_sources(spark)
    try:
        yield
    finally:
        with _lock:
            del _held[number]
            register_sources(spark)
