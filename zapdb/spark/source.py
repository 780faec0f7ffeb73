"""The data source `zapdb` of Spark: `spark.read.format("zapdb")`, `df.write.format("zapdb")`.

Spark makes one in each process that plans a query, from the registered class and the options.
"""

from __future__ import annotations

from typing import ClassVar, Final

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from zapdb.spark.driver import DriverContext
from zapdb.spark.options import ReadOptions
from zapdb.spark.reading import ZapdbReader, read_spark_schema
from zapdb.spark.sent import Sent
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

    def _read_options(self) -> ReadOptions:
        return ReadOptions.parse(dict(self.options))
