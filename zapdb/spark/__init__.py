"""Background jobs on Apache Spark; the only place that imports pyspark (extra `spark`)."""

from zapdb.spark.runner import TaskReport, run_on_spark
from zapdb.spark.session import start_session

__all__ = ["TaskReport", "run_on_spark", "start_session"]
