"""Append the changes of flights to files of Parquet, each change once, whenever this is run.

python examples/spark/stream.py DATABASE DIRECTORY [spark://HOST:PORT]
"""

from __future__ import annotations

import sys

import zapdb.spark


def stream(url: str, directory: str, master: str | None = None) -> None:
    spark = zapdb.spark.start_session(master)
    changes = spark.readStream.format("zapdb_changes").option("database", url)
    rows = changes.option("table", "flights").load()
    query = (
        rows.select("operation", "key.id", "after.distance", "made_at", "principal")
        .writeStream.format("parquet")
        .option("checkpointLocation", f"{directory}/checkpoint")
        .trigger(availableNow=True)
        .start(f"{directory}/changes")
    )
    query.awaitTermination()
    print(spark.read.parquet(f"{directory}/changes").count(), "changes in", directory)


if __name__ == "__main__":
    stream(*sys.argv[1:])
