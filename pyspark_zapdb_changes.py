"""Where Spark finds the data source `zapdb_changes` by itself.

Spark imports each installed module whose name begins with `pyspark_`, and knows its
`DefaultSource`. So `format("zapdb_changes")` works in a session that imports nothing of zapdb.
"""

from contextlib import suppress

# Without what zapdb needs for Spark there is no such data source, and others work.
with suppress(ImportError):
    from zapdb.spark.change_stream import ZapdbChangesSource as DefaultSource

__all__ = ["DefaultSource"]
