"""What is sent to executors: it says so where there is no zapdb to read it.

An object of ours is unpickled before any code of ours runs. So it travels as bytes, together with
the function that unpickles them, which needs no zapdb.
"""

from __future__ import annotations

import importlib
import os
import pickle
import socket
import sys
import zipfile
from pathlib import Path
from typing import Any

from pyspark import SparkFiles, cloudpickle


def receive(raw: bytes) -> Any:
    """Unpickle an object and its state; raises `ModuleNotFoundError` that names this process.

    Spark puts the archives of `--py-files` on the path of all its processes but the one that plans
    the batches of a stream. That one is told a directory inside the one that they are in.
    """
    try:
        kind, state = pickle.loads(raw)  # noqa: S301 - the driver made it
    except ModuleNotFoundError as missing:
        root = Path(SparkFiles.getRootDirectory())
        shipped = [str(path) for at in (root, root.parent) for path in at.glob("*.zip")]
        ours = [path for path in shipped if zipfile.Path(path, "zapdb/").exists()]
        archives = [path for path in ours if path not in sys.path]
        if archives:
            sys.path[1:1] = archives
            importlib.invalidate_caches()
            return receive(raw)
        message = (
            f"{missing}: this process of Spark has no zapdb, or lacks a package that zapdb needs"
            f" (host {socket.gethostname()}, process {os.getpid()}, Python {sys.executable})."
            " Run `zapdb spark package zapdb.zip` where the driver runs, and give the file to"
            " spark-submit with --py-files zapdb.zip; or install 'zapdb[spark]' in the driver's"
            " release on each machine. The packages that zapdb needs have to be installed there."
        )
        raise ModuleNotFoundError(message, name=missing.name) from None
    made = kind.__new__(kind)
    made.__dict__.update(state)
    return made


receive.__module__ = "__main__"
"""So Spark's pickler sends the function itself: of another module, it would send the name."""


class Sent:
    """Base of classes whose objects are sent to executors."""

    def __reduce__(self) -> tuple[Any, ...]:
        state = cloudpickle.dumps((type(self), self.__dict__))  # type: ignore[no-untyped-call]  # it has no types
        return receive, (state,)
