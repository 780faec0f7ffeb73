"""Tables and background jobs on Apache Spark; the only place that imports pyspark (extra `spark`).

Importing it registers the data source `zapdb` in the active session, if there is one.
"""

from zapdb.spark.registration import register_sources as register
from zapdb.spark.registration import snapshot
from zapdb.spark.runner import TaskReport, run_on_spark
from zapdb.spark.session import check_session, find_session, start_session

__all__ = ["TaskReport", "check_session", "register", "run_on_spark", "snapshot", "start_session"]

if (_session := find_session()) is not None:
    register(_session)
