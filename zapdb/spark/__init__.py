"""Tables and background jobs on Apache Spark; the only place that imports pyspark (extra `spark`).

Importing it registers the data source `zapdb` in the active session, if there is one.
"""

from zapdb.spark.past import read_past
from zapdb.spark.registration import register_sources as register
from zapdb.spark.registration import snapshot
from zapdb.spark.runner import run_on_spark
from zapdb.spark.session import find_session, start_session, start_session_for
from zapdb.spark.task import TaskReport

__all__ = [
    "TaskReport",
    "read_past",
    "register",
    "run_on_spark",
    "snapshot",
    "start_session",
    "start_session_for",
]

if (_session := find_session()) is not None:
    register(_session)
