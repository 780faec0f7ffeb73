"""Calls that can never finish: they wait on an event loop's thread for something that only this
thread can end.

A synchronous call stops the event loop of its thread while it waits. If it waits for a transaction
that was begun on that loop and that no call is using, it waits for itself.
"""

from __future__ import annotations

import asyncio
import os
import threading
import weakref
from collections.abc import Collection
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, Final

from zapdb.errors import UsageError, ZapdbError
from zapdb.limits import LOOP_WAIT_SECONDS
from zapdb.storage.open_transaction import OpenTransaction
from zapdb.storage.transaction_owners import in_no_transaction, running_loop

if TYPE_CHECKING:
    from zapdb.storage.connection import Connection
    from zapdb.storage.pool import Pool

BLOCKING_SQL: Final = (
    "WITH RECURSIVE blocking(pid) AS (SELECT unnest({of}) UNION"
    " SELECT unnest(pg_blocking_pids(pid)) FROM blocking) SELECT pid FROM blocking"
).format(of="pg_blocking_pids({pid}) || pg_safe_snapshot_blocking_pids({pid})")
"""The sessions of a PostgreSQL server that a session waits for, directly or indirectly."""

_NOTHING: Final = nullcontext()

OPENED: Final[weakref.WeakSet[Pool]] = weakref.WeakSet()
"""The pools of all databases that are open in this process."""


def _abandon_after_fork() -> None:
    for pool in list(OPENED):
        pool.abandon_after_fork()


if hasattr(os, "register_at_fork"):  # not on Windows, which can't fork
    os.register_at_fork(after_in_child=_abandon_after_fork)


def refuse_waiting(blocker: OpenTransaction) -> UsageError:
    """Return the error of a call that waits for a transaction that can't continue before the call
    returns."""
    return UsageError(
        f"this call would wait forever for a {blocker.name} of the same event loop",
        begun_at=blocker.place,
        hint="leave that block first, or work through its handle; on an event loop, use "
        "zapdb.aio, or call it in a thread: await asyncio.to_thread(...)",
    )


def find_stuck() -> list[OpenTransaction]:
    """Return the open transactions that only the event loop of this thread could end."""
    loop = running_loop()
    return [] if loop is None else _list_stuck(loop)


def _list_stuck(loop: asyncio.AbstractEventLoop) -> list[OpenTransaction]:
    return [one for one in _list_of_loop(loop) if not one.is_in_use]


def _list_of_loop(loop: asyncio.AbstractEventLoop) -> list[OpenTransaction]:
    found = (one for pool in list(OPENED) for one in pool.list_open())
    return [one for one in found if one.is_of_loop(loop)]


def find_blocking_transaction(
    stuck: Collection[OpenTransaction], connection: Connection, blocking: Collection[int]
) -> OpenTransaction | None:
    """Return the first transaction that is one of these sessions of the connection's server."""
    server, _ = _find_session(connection)
    for one in stuck:
        other, process = _find_session(one.connection)
        if server is not None and server == other and process in blocking:
            return one
    return None


def _find_session(connection: Connection) -> tuple[object, int]:
    """Return a connection's server and its process there; no server for a file or a closed one."""
    try:
        info = connection.driver.info
        return (info.host, info.port), int(info.backend_pid)
    except Exception:  # of the driver, whose connection may be closed
        return None, 0


def watch_loop(connection: Connection) -> AbstractContextManager[object]:
    """While the block runs statements on a PostgreSQL connection, check whether they can ever
    finish."""
    loop = running_loop()
    if loop is None:
        return _NOTHING
    # Also transactions in use by a thread, because it may finish before this statement.
    others = [one for one in _list_of_loop(loop) if one.connection is not connection]
    return LoopWatch(connection, loop) if others else _NOTHING


class LoopWatch:
    """A thread that cancels the statement of a connection if it can never finish."""

    def __init__(self, connection: Connection, loop: asyncio.AbstractEventLoop) -> None:
        self._connection = connection
        self._loop = loop
        self._done = threading.Event()
        self._cancelling = threading.Lock()
        run = in_no_transaction().run
        self._thread = threading.Thread(
            target=run, args=(self._run,), name="zapdb-loop-watch", daemon=True
        )

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        with self._cancelling:
            self._done.set()
            self._connection.refusal = None  # the statement may have ended before it was cancelled

    def _run(self) -> None:
        while not self._done.wait(LOOP_WAIT_SECONDS):
            stuck = _list_stuck(self._loop)
            try:
                blocking = self._find_blocking()
            except (
                ZapdbError,
                OSError,
            ):  # the server cannot be reached, which the statement reports, too
                return
            met = find_blocking_transaction(stuck, self._connection, blocking)
            if met is None:
                continue
            with self._cancelling:
                if not self._done.is_set():
                    self._connection.refusal = refuse_waiting(met)
                    self._connection.driver.cancel_safe()
            return

    def _find_blocking(self) -> list[int]:
        _, pid = _find_session(self._connection)
        try:
            own = self._connection.storage.own_connection()
            found: list[Any] = own.fetch_all(BLOCKING_SQL.format(pid=pid))
        finally:
            self._connection.storage.release_connection()
        return [int(row[0]) for row in found]
