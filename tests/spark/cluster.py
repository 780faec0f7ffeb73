"""A standalone cluster of Spark as processes on the loopback: a master and two workers."""

from __future__ import annotations

import itertools
import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from pyspark.find_spark_home import _find_spark_home

from tests.support import GUARD_SECONDS, SHORT_LIVED, is_running, wait_until

HOME = Path(_find_spark_home())
WORKERS = 2
REGISTERED = re.compile(r"Successfully registered with master")
ELECTED = re.compile(r"I have been elected leader")


PLACE = ("--host", "127.0.0.1", "--webui-port", "0")


@dataclass
class Cluster:
    """A running cluster; its workers may be killed, and others started in their place."""

    master: str
    directory: Path
    stack: ExitStack
    more: dict[str, str]
    workers: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def command(self, *arguments: str) -> list[str]:
        """That of spark-submit for a program, as its driver."""
        command = [str(HOME / "bin" / "spark-submit"), "--master", self.master]
        command += ["--conf", "spark.ui.enabled=false", "--conf", "spark.driver.host=127.0.0.1"]
        command += ["--conf", f"spark.executor.extraJavaOptions={SHORT_LIVED}"]
        return [*command, *arguments]

    def submit(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a program by spark-submit to its end."""
        return subprocess.run(
            self.command(*arguments),
            env=environment(),
            capture_output=True,
            text=True,
            timeout=GUARD_SECONDS,
        )

    def start_workers(self) -> None:
        """As many as are missing, all at once; returns when they are registered."""
        self.workers = [worker for worker in self.workers if is_running(worker.pid)]
        logs = []
        while len(self.workers) < WORKERS:
            log = self.directory / f"worker{next(self._numbers)}.log"
            options = ["--cores", "1", "--memory", "1g"]
            options += ["--work-dir", str(self.directory / "work"), self.master]
            kind = "org.apache.spark.deploy.worker.Worker"
            running = _running([kind, *PLACE, *options], log, self.more)
            self.workers.append(self.stack.enter_context(running))
            logs.append(log)
        for log in logs:
            wait_until(lambda log=log: REGISTERED.search(log.read_text()), "a worker is registered")

    _numbers: Iterator[int] = field(default_factory=itertools.count)


def environment() -> dict[str, str]:
    """Of Spark's own processes: what they find of zapdb is what is sent to them."""
    found = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    return {
        **found,
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_JAVA_OPTS": SHORT_LIVED,
    }


@contextmanager
def running_cluster(directory: Path, **more: str) -> Iterator[Cluster]:
    """`more` is of the environment of its processes."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    master = f"spark://127.0.0.1:{port}"
    with ExitStack() as stack:
        kind = "org.apache.spark.deploy.master.Master"
        log = directory / "master.log"
        stack.enter_context(_running([kind, *PLACE, "--port", str(port)], log, more))
        wait_until(lambda: ELECTED.search(log.read_text()), "the master leads")
        cluster = Cluster(master, directory, stack, more)
        cluster.start_workers()
        yield cluster


@contextmanager
def _running(
    arguments: Sequence[str], log: Path, more: Mapping[str, str]
) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("wb") as file:
        process = subprocess.Popen(
            [str(HOME / "bin" / "spark-class"), *arguments],
            env={**environment(), **more},
            stdout=file,
            stderr=file,
        )
    try:
        yield process
    finally:
        if is_running(process.pid):
            process.terminate()  # a worker ends its executors
        process.wait(GUARD_SECONDS)
