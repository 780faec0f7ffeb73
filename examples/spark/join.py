"""Join two tables as of one moment, into a file of Parquet.

python examples/spark/join.py DATABASE DIRECTORY [spark://HOST:PORT]
"""

from __future__ import annotations

import sys

import zapdb
import zapdb.spark


def join(url: str, directory: str, master: str | None = None) -> None:
    spark = zapdb.spark.start_session(master)
    read = spark.read.format("zapdb").options(database=url, partitions="4")
    with zapdb.open(url, read_only=True) as db, zapdb.spark.snapshot(db):
        airports = read.options(table="airports").load()
        flights = read.options(table="flights", where="distance >= 6000").load()
        joined = flights.join(airports, flights.origin == airports.code)
        joined.select("id", "name", "distance").write.mode("overwrite").parquet(directory)
    print(spark.read.parquet(directory).count(), "far flights in", directory)


if __name__ == "__main__":
    join(*sys.argv[1:])
