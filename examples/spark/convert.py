"""Apply a migration, and convert the records by a cluster of Spark.

    python examples/spark/convert.py DATABASE [spark://HOST:PORT]

With spark-submit, the master is that of the command; `zapdb spark package` makes the archive:

    spark-submit --master spark://HOST:PORT --py-files zapdb.zip examples/spark/convert.py DATABASE
"""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

import zapdb
from zapdb.spark import TaskReport, run_on_spark

MIGRATIONS = Path(__file__).parent / "migrations"


def convert(url: str, master: str | None = None) -> set[int]:
    """Returns the ids of the executors' processes that did the work."""
    tasks: list[TaskReport] = []
    with zapdb.open(url, migrations=MIGRATIONS, apply="auto") as db:
        db.admin.run_jobs(partial(run_on_spark, master=master, on_tasks=tasks.extend))
        print("flights by revision:", db.admin.count_by_revision("flights"))
    processes = {task.process for task in tasks}
    print(f"{sum(task.written for task in tasks)} records, {len(processes)} processes of executors")
    return processes


if __name__ == "__main__":
    convert(*sys.argv[1:])
