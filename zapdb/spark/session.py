"""Starting Spark for zapdb's jobs, or using the active session.

A session of ours is quiet, binds to the loopback address when it is local, and has speculation
off: every attempt of a task does its writes, and a speculative twin would only take ranges away
from the first (safe, thanks to the fences, and a waste). A session of the application's is used as
it is, and refused with speculation on.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Final

from zapdb.errors import JobError, MissingExtra, UsageError
from zapdb.storage import Storage

try:
    from pyspark.errors import PySparkRuntimeError
    from pyspark.sql import SparkSession
except ImportError as missing:
    raise MissingExtra.named("spark", "pyspark") from missing

LOCAL_MASTER: Final = "local[*]"
LOGGING: Final = Path(__file__).parent / "log4j2.properties"


def start_session(master: str = LOCAL_MASTER) -> SparkSession:
    """Return the active session, or a new one on `master`; raises `JobError` if Spark can't
    start."""
    active = SparkSession.getActiveSession()
    if active is not None:
        return active
    # Workers must run this Python, not the first python3 on the path.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = (
        SparkSession.builder.appName("zapdb")
        .master(master)
        .config("spark.speculation", "false")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.artifact.isolation.enabled", "false")
        .config("spark.driver.extraJavaOptions", f"-Dlog4j2.configurationFile={LOGGING.as_uri()}")
    )
    if master.startswith("local"):
        builder = builder.config("spark.driver.bindAddress", "127.0.0.1").config(
            "spark.driver.host", "127.0.0.1"
        )
    try:
        return builder.getOrCreate()
    except (PySparkRuntimeError, FileNotFoundError) as error:
        raise JobError(
            "Spark could not be started",
            cause=str(error).splitlines()[0],
            hint="Spark needs a Java of 17 or later: install a JRE, or set JAVA_HOME",
        ) from error


def check_session(spark: SparkSession, storage: Storage) -> None:
    """Raise `UsageError` for a session that is not suitable for a writing job."""
    conf = spark.sparkContext.getConf()
    if str(conf.get("spark.speculation", "false")).lower() == "true":
        raise UsageError(
            "the Spark session has speculation on, which would run writing tasks twice",
            hint="set spark.speculation=false and start the session again",
        )
    master = conf.get("spark.master", "") or ""
    if storage.dialect == "sqlite" and not master.startswith("local"):
        raise UsageError(
            "the machines of a cluster cannot reach a SQLite file",
            master=master,
            hint="use --master 'local[*]', or a PostgreSQL database",
        )
