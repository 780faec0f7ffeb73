"""A standalone cluster of Spark as processes on the loopback: a master and two workers."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from pyspark.find_spark_home import _find_spark_home

from tests.support import GUARD_SECONDS, wait_until

HOME = Path(_find_spark_home())
WORKERS = 2
REGISTERED = re.compile(r"Successfully registered with master")
ELECTED = re.compile(r"I have been elected leader")


@dataclass(frozen=True)
class Cluster:
    master: str

    def submit(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a program by spark-submit, as its driver, to its end."""
        command = [str(HOME / "bin" / "spark-submit"), "--master", self.master]
        command += ["--conf", "spark.ui.enabled=false", "--conf", "spark.driver.host=127.0.0.1"]
        return subprocess.run(
            [*command, *arguments],
            env=environment(),
            capture_output=True,
            text=True,
            timeout=GUARD_SECONDS,
        )


def environment() -> dict[str, str]:
    """Of Spark's own processes: what they find of zapdb is what is sent to them."""
    found = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    return {**found, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}


@contextmanager
def running_cluster(directory: Path) -> Iterator[Cluster]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    master = f"spark://127.0.0.1:{port}"
    place = ["--host", "127.0.0.1", "--webui-port", "0"]
    with ExitStack() as stack:
        kind = "org.apache.spark.deploy.master.Master"
        log = directory / "master.log"
        stack.enter_context(_running([kind, *place, "--port", str(port)], log))
        wait_until(lambda: ELECTED.search(log.read_text()), "the master leads")
        for number in range(WORKERS):
            kind, log = "org.apache.spark.deploy.worker.Worker", directory / f"worker{number}.log"
            options = ["--cores", "1", "--memory", "1g", "--work-dir", str(directory / "work")]
            stack.enter_context(_running([kind, *place, *options, master], log))
            wait_until(lambda log=log: REGISTERED.search(log.read_text()), "a worker is registered")
        yield Cluster(master)


@contextmanager
def _running(arguments: Sequence[str], log: Path) -> Iterator[None]:
    with log.open("wb") as file:
        process = subprocess.Popen(
            [str(HOME / "bin" / "spark-class"), *arguments],
            env=environment(),
            stdout=file,
            stderr=file,
        )
    try:
        yield
    finally:
        process.terminate()  # a worker ends its executors
        process.wait(GUARD_SECONDS)
