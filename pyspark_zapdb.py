"""Where Spark finds the data source `zapdb` by itself.

Spark imports each installed module whose name begins with `pyspark_`, and knows its
`DefaultSource`. So `format("zapdb")` works in a session that imports nothing of zapdb.
"""

from contextlib import suppress

# Without what zapdb needs for Spark there is no such data source, and others work.
with suppress(ImportError):
    from zapdb.spark.data_source import ZapdbDataSource as DefaultSource

__all__ = ["DefaultSource"]
