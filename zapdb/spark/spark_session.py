"""Starting Spark for zapdb's jobs, or using the active session.

A session of ours is quiet, binds to the loopback address when it is local, and has speculation
off: every attempt of a task does its writes, and a speculative twin would only take ranges away
from the first (safe, thanks to the fences, and a waste). A session of the application's is used as
it is, and refused with speculation on.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

from zapdb.errors import JobError, MissingExtra, UsageError
from zapdb.limits import SPARK_CONNECT_SECONDS
from zapdb.storage import Storage

try:
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession
except ImportError as missing:
    raise MissingExtra.named("spark", "pyspark") from missing

from zapdb.spark.data_source import is_speculative, register_sources
from zapdb.spark.driver import LOCAL, refuse_file_on_cluster, refuse_speculation

LOCAL_MASTER: Final = "local[*]"
LOGGING: Final = Path(__file__).parent / "log4j2.properties"
JAVA_RELEASE_MIN: Final = 17
START_HINT: Final = "Spark wrote above what is wrong: check the master, and Spark's configuration"
STOPPED: Final = "stopped SparkContext"
NO_ANSWER_HINT: Final = (
    "its port takes connections: check that a Spark master of the same release listens there, and "
    "that it can reach this machine"
)
JAVA_HINT: Final = "Spark needs a Java of 17 or later: install a JRE, or set JAVA_HOME"
SUBMITTED: Final = "PYSPARK_GATEWAY_PORT"
"""Set in programs that spark-submit runs."""
_OTHER_MASTER: Final = re.compile(r"local(\[[^\]]+\])?|local-cluster\[.+\]|yarn|k8s://.+")
_JAVA_VERSION: Final = re.compile(r'version "(?:1\.)?(\d+)')


def find_session() -> SparkSession | None:
    """The active session of this process."""
    return SparkSession.getActiveSession()


def start_session(master: str | None = None) -> SparkSession:
    """Return the active session, or a new one, with zapdb's data sources registered.

    A new one is on `master`, or `local[*]`; in a program that spark-submit runs, on the master of
    that. Raises `UsageError` if the session is on another master than the one that is given, and
    `JobError` if Spark can't start: Java is missing or too old, or no master can be reached.
    """
    session = find_session() or _new_session(master or LOCAL_MASTER)
    refuse_other_master(session, master)
    register_sources(session)
    return session


def start_session_for(storage: Storage, master: str | None = None) -> SparkSession:
    """The same for jobs that write to a database: raises what keeps them from it, too, and before
    it waits for a cluster what can be known before."""
    session = find_session()
    if session is None:
        if SUBMITTED not in os.environ:
            refuse_file_on_cluster(master or LOCAL_MASTER, storage.dialect.name)
        session = start_session(master)
    refuse_other_master(session, master)  # jobs need no data sources: it may do without
    check_session(session, storage)
    return session


def _new_session(master: str) -> SparkSession:
    builder = (
        SparkSession.builder.config("spark.speculation", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.artifact.isolation.enabled", "false")
    )
    if SUBMITTED not in os.environ:  # else name and master are those of spark-submit
        builder = _set_up(builder, master)
    try:
        return builder.getOrCreate()
    except (PySparkException, Py4JJavaError, FileNotFoundError) as error:
        java = getattr(error, "java_exception", None)
        cause = (str(error) if java is None else str(java.toString())).splitlines()[0]
        raise explain_start(master, cause) from error


def explain_start(master: str, cause: str) -> JobError:
    """The error for a session that did not start. A master that never answers ends it a minute
    later, and Spark says no more than that it is over."""
    if STOPPED in cause and not master.startswith(LOCAL):
        return JobError("the Spark master did not answer", master=master, hint=NO_ANSWER_HINT)
    return JobError("Spark could not be started", master=master, cause=cause, hint=START_HINT)


def refuse_other_master(session: SparkSession, master: str | None) -> None:
    """Raise `UsageError` if a master is given and a session is on another one."""
    running = session.sparkContext.getConf().get("spark.master", "") or ""
    if master is not None and master != running:
        raise UsageError(
            "the Spark session of this process is on another master",
            master=master,
            running=running,
            hint="leave the master out to use this session, or stop it first: session.stop(); "
            "with spark-submit, give --master to spark-submit",
        )


def _set_up(builder: Any, master: str) -> Any:
    """The options of a session that this process starts by itself."""
    require_java()
    require_master(master)
    # Workers must run this Python, not the first python3 on the path.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = (
        builder.appName("zapdb")
        .master(master)
        .config("spark.ui.enabled", "false")
        .config("spark.driver.extraJavaOptions", f"-Dlog4j2.configurationFile={LOGGING.as_uri()}")
    )
    if not master.startswith(LOCAL):
        return builder
    return builder.config("spark.driver.bindAddress", "127.0.0.1").config(
        "spark.driver.host", "127.0.0.1"
    )


def require_java() -> None:
    """Raise `JobError` unless Spark would find a Java that it can run on."""
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if java is None or not Path(java).is_file():
        raise JobError(
            "Spark could not be started: there is no Java",
            looked_for=java or "java on the PATH",
            hint=JAVA_HINT,
        )
    told = subprocess.run([java, "-version"], capture_output=True, text=True, check=False)
    found = _JAVA_VERSION.search(told.stderr)
    if found is not None and int(found[1]) < JAVA_RELEASE_MIN:
        raise JobError(
            "Spark could not be started: this Java is too old",
            java=java,
            version=found[1],
            hint=JAVA_HINT,
        )


def require_master(master: str) -> None:
    """Raise `JobError` if no machine of `spark://host:port,…` takes connections, and `UsageError`
    for what is no master.

    Spark itself would try for a minute, and end without saying why.
    """
    if _OTHER_MASTER.fullmatch(master):
        return
    refused = []
    kind, _, places = master.rpartition("://")
    for place in places.split(","):
        host, _, port = place.rpartition(":")
        if kind != "spark" or not host or not port.isdigit():
            raise UsageError(
                "this is not the address of a Spark master",
                master=master,
                hint="give spark://HOST:PORT, as the page of the master shows it; local[*] for "
                "this machine; yarn, or k8s://…",
            )
        try:
            socket.create_connection((host, int(port)), SPARK_CONNECT_SECONDS).close()
            return
        except OSError as error:
            refused.append(f"{place}: {error.strerror or error}")
    raise JobError(
        "the Spark master can't be reached",
        master=master,
        cause="; ".join(refused),
        hint="start the master, or check the host, the port and firewalls",
    )


def check_session(spark: SparkSession, storage: Storage) -> None:
    """Raise `UsageError` for a session that is not suitable for a writing job."""
    refuse_speculation(is_speculative(spark))
    master = spark.sparkContext.getConf().get("spark.master", "") or ""
    refuse_file_on_cluster(master, storage.dialect.name)
