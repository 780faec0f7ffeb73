"""The data source `zapdb` of Spark: `spark.read.format("zapdb")`, `df.write.format("zapdb")`.

Spark makes one in each process that plans a query, from the registered class and the options.
"""

from __future__ import annotations

from typing import Any, ClassVar, Final, NoReturn

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit
from pyspark.sql.types import StructType

from zapdb.errors import UsageError
from zapdb.spark.driver import DriverContext, Sent
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
