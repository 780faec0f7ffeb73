"""The end of a Spark session, its JVM included: the next one has other jars."""

from __future__ import annotations

from typing import Any

from pyspark import SparkContext


def end(session: Any) -> None:
    session.stop()
    gateway, SparkContext._gateway, SparkContext._jvm = SparkContext._gateway, None, None
    if gateway is not None:
        gateway.shutdown()
        gateway.proc.stdin.close()  # which the JVM ends by
        gateway.proc.wait(60)
