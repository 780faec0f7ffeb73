"""Tables and background jobs on Apache Spark; the only place that imports pyspark (extra `spark`).

Importing it registers the data source `zapdb` in the active session, if there is one. Each name is
imported when it is first used: the processes that work on jobs need none of them, and load neither
the data sources nor what these read columns with.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from zapdb.errors import MissingExtra

try:
    from pyspark.sql import SparkSession
except ImportError as missing:
    raise MissingExtra.named("spark", "pyspark") from missing

if TYPE_CHECKING:
    from zapdb.spark.data_source import register_sources as register
    from zapdb.spark.data_source import snapshot
    from zapdb.spark.past_frames import read_past
    from zapdb.spark.runner import run_on_spark
    from zapdb.spark.spark_session import start_session, start_session_for
    from zapdb.spark.task import TaskReport

_HOMES: Final = {
    "TaskReport": ("task", "TaskReport"),
    "read_past": ("past_frames", "read_past"),
    "register": ("data_source", "register_sources"),
    "run_on_spark": ("runner", "run_on_spark"),
    "snapshot": ("data_source", "snapshot"),
    "start_session": ("spark_session", "start_session"),
    "start_session_for": ("spark_session", "start_session_for"),
}
"""The module that each name is from, and its name there."""

__all__ = [
    "TaskReport",
    "read_past",
    "register",
    "run_on_spark",
    "snapshot",
    "start_session",
    "start_session_for",
]

if not TYPE_CHECKING:  # to a type checker, a module with `__getattr__` has every name

    def __getattr__(name: str) -> Any:
        if name not in _HOMES:
            raise AttributeError(f"module 'zapdb.spark' has no attribute {name!r}", name=name)
        module, its_name = _HOMES[name]
        found = globals()[name] = getattr(import_module(f"zapdb.spark.{module}"), its_name)
        return found

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})


if (_session := SparkSession.getActiveSession()) is not None:
    import_module("zapdb.spark.data_source").register_sources(_session)
