"""Threads that Python did not begin, such as those in which DuckDB reads a stream."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable

import pytest

from tests.contract.tables import ITEMS
from tests.support import Workspace
from zapdb.storage import Connection

CALLBACK = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)


def call_in_native_thread(act: Callable[[], object]) -> None:
    """Call it in a thread of the operating system, which ends with the call."""
    library, thread = ctypes.CDLL(None), ctypes.c_ulong()
    callback = CALLBACK(lambda _: act() and None)
    assert library.pthread_create(ctypes.byref(thread), None, callback, None) == 0
    assert library.pthread_join(thread, None) == 0


@pytest.mark.skipif(sys.platform != "linux", reason="the library of threads is Linux's")
def test_a_native_thread_keeps_its_connection(workspace: Workspace) -> None:
    workspace.write(1, ITEMS)
    with workspace.open() as db:
        db.table("items").insert(id=1, title="Milk")
        seen: list[tuple[Connection, str]] = []

        def read() -> None:
            title = db.table("items").get(1).title
            seen.append((db._storage.own_connection(), title))

        for _ in range(3):
            call_in_native_thread(read)
        assert [title for _, title in seen] == ["Milk"] * 3
        left = {id(connection) for connection, _ in seen} - {
            id(connection) for connection in db._storage.pool._kept.values()
        }
        assert left == set()
