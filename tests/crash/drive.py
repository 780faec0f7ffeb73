"""A driver of Spark that dies: `python tests/crash/drive.py convert|write|read ADDRESS …`.

Run by spark-submit on a cluster, or as it is on a local master.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow

import zapdb
import zapdb.spark
from zapdb.catalog.row_kinds import Job
from zapdb.storage import Storage

PARTITIONS = 6
SLICE = 100


def convert(address: str, master: str) -> None:
    """All jobs that are planned."""
    with zapdb.open(address) as db:

        def run(storage: Storage, job: Job) -> None:
            zapdb.spark.run_on_spark(storage, job, master=master)

        for report in db.admin.run_jobs(run):
            assert report.job.state == "done", report


def write(address: str, master: str, first: str, end: str) -> None:
    """Visits with these numbers, under a name: a second run goes on where the first one stopped."""
    spark = zapdb.spark.start_session(master)
    numbers = spark.range(int(first), int(end), numPartitions=PARTITIONS)
    rows = numbers.selectExpr("id as number", "'Bern' as town", "concat('visit ', id) as note")
    writer = rows.write.format("zapdb").mode("append").options(database=address, table="visits")
    writer.option("job", f"visits from {first}").save()


def read(address: str, master: str, notes: str, answer: str) -> None:
    """All visits; each batch is noted in a file, and the numbers that were found are the answer."""
    spark = zapdb.spark.start_session(master)
    reader = spark.read.format("zapdb").options(database=address, table="visits")

    # Made here, so that it is sent as a whole: executors do not find the tests.
    def note(batches: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
        for batch in batches:
            for at in range(0, batch.num_rows, SLICE):
                some = batch.slice(at, SLICE)
                with Path(notes).open("a") as file:
                    file.write("." * some.num_rows)
                time.sleep(0.1)
                yield some

    frame = reader.option("partitions", str(PARTITIONS)).load()
    found = frame.mapInArrow(note, frame.schema).select("number", "note").collect()
    wrong = [row for row in found if row.note != f"visit {row.number}"]
    numbers = sorted(row.number for row in found)
    is_right = not wrong and numbers == list(range(len(numbers)))
    Path(answer).write_text(str(len(numbers) if is_right else "wrong"))


if __name__ == "__main__":
    {"convert": convert, "write": write, "read": read}[sys.argv[1]](*sys.argv[2:])
