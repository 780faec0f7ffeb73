"""The databases that a process of Spark keeps open between its tasks.

Spark runs many tasks in one process, one after another, and opening a database costs more than
reading a small partition of it. So what a task has used waits here for the next one, for a while.
A database belongs to one task at a time. It is used again only if nothing failed in it, and if its
address still leads to the same database; a process that is forked inherits none.
"""

from __future__ import annotations

import atexit
import gc
import os
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

from sqlalchemy import make_url
from sqlalchemy.exc import ArgumentError

from zapdb.catalog import rows
from zapdb.catalog.row_kinds import DatabaseRow
from zapdb.database import Database
from zapdb.database.opening import open as open_database
from zapdb.errors import ZapdbError
from zapdb.limits import SPARK_IDLE_SECONDS
from zapdb.storage import Connection, Storage

T = TypeVar("T")

DAEMON: Final = "pyspark.daemon"
"""The main module of the processes in which Spark plans queries and runs tasks."""


@dataclass(frozen=True, slots=True)
class Opening(ABC, Generic[T]):
    """What is opened, and how: what has equal openings can use the same."""

    address: str = field(repr=False)  # it may hold a password

    @abstractmethod
    def open(self) -> T: ...

    @abstractmethod
    def close(self, opened: T) -> None: ...

    @abstractmethod
    def storage(self, opened: T) -> Storage: ...

    def find_file(self) -> tuple[int, int] | None:
        """Device and number of the SQLite file at the address, which another one may replace."""
        try:
            url = make_url(self.address)
        except ArgumentError:
            return None
        if url.get_backend_name() != "sqlite" or not url.database:
            return None
        with suppress(OSError):
            found = Path(url.database).stat()
            return found.st_dev, found.st_ino
        return None


@dataclass(frozen=True, slots=True)
class DatabaseOpening(Opening[Database]):
    """A database as one of its tenants sees it, to read or to write."""

    tenant: str
    read_only: bool
    snapshot: str | None = None
    """The name of an exported snapshot of PostgreSQL, which all that is read is as of."""

    def open(self) -> Database:
        db = open_database(self.address, tenant=self.tenant, read_only=self.read_only)
        if self.snapshot is not None:
            db._storage.engine.import_snapshot(self.snapshot)
        return db

    def close(self, opened: Database) -> None:
        opened.close()

    def storage(self, opened: Database) -> Storage:
        return opened._storage


@dataclass(frozen=True, slots=True)
class _Kept:
    opening: Opening[Any]
    opened: Any
    file: tuple[int, int] | None
    id: str
    since: float

    def is_same(self) -> bool:
        """Whether it can be used, and is the database that it was: another one may have its
        name."""
        try:
            return read_database_id(self.opening.storage(self.opened).connection()) == self.id
        except (ZapdbError, AssertionError):
            return False

    def close(self) -> None:
        with suppress(ZapdbError):  # its server may be gone
            self.opening.close(self.opened)


class KeptOpen:
    """The databases that no task is using; one thread closes those that wait for long."""

    def __init__(self, idle_seconds: float = SPARK_IDLE_SECONDS) -> None:
        self._idle_seconds = idle_seconds
        self._forget()
        if hasattr(os, "register_at_fork"):  # not on Windows, which can't fork
            os.register_at_fork(after_in_child=self._forget)
        atexit.register(self.close)

    def _forget(self) -> None:
        """In a forked process: the databases are the parent's, and its thread is not here."""
        self._changed = threading.Condition()
        self._kept: list[_Kept] = []
        self._thread: threading.Thread | None = None

    @contextmanager
    def using(self, opening: Opening[T]) -> Iterator[T]:
        """What is open, for the time of the block. Raises what opening it raises."""
        kept = self._take(opening)
        is_whole = False
        try:
            yield kept.opened
            is_whole = True
        except GeneratorExit:  # Spark has read enough
            is_whole = True
            raise
        finally:
            if is_whole:
                self._put(replace(kept, since=time.monotonic()))
            else:
                kept.close()

    def _take(self, opening: Opening[Any]) -> _Kept:
        file = opening.find_file()
        while (kept := self._pop(opening)) is not None:
            if kept.file == file and kept.is_same():
                return kept
            kept.close()
        opened = opening.open()
        set_aside_what_stays()
        try:
            number = read_database_id(opening.storage(opened).connection())
        except BaseException:
            opening.close(opened)
            raise
        return _Kept(opening, opened, file, number, 0.0)

    def _pop(self, opening: Opening[Any]) -> _Kept | None:
        with self._changed:
            for at, kept in enumerate(self._kept):
                if kept.opening == opening:
                    return self._kept.pop(at)
        return None

    def _put(self, kept: _Kept) -> None:
        with self._changed:
            self._kept.append(kept)
            self._changed.notify()
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._close_idle, name="zapdb-spark-idle", daemon=True
                )
                self._thread.start()

    def _close_idle(self) -> None:
        """Close what waits for too long, until nothing waits."""
        while True:
            with self._changed:
                oldest = min((kept.since for kept in self._kept), default=None)
                if oldest is None:
                    self._thread = None
                    return
                left = oldest + self._idle_seconds - time.monotonic()
                if left > 0:
                    self._changed.wait(left)
                    continue
                idle = [kept for kept in self._kept if kept.since == oldest]
                self._kept = [kept for kept in self._kept if kept.since != oldest]
            for kept in idle:
                kept.close()

    def close(self) -> None:
        """Close all that waits."""
        with self._changed:
            kept, self._kept = self._kept, []
            self._changed.notify()
        for one in kept:
            one.close()

    def __len__(self) -> int:
        return len(self._kept)


KEPT_OPEN = KeptOpen()
"""Those of this process."""


def set_aside_what_stays() -> None:
    """In a process that Spark starts: let collections of garbage pass over what is there by now.

    Spark's processes collect all garbage after each task, which looks at every object of every
    package. With those that zapdb needs, that takes longer than to read a small partition.
    """
    main = getattr(sys.modules.get("__main__"), "__spec__", None)
    if main is not None and main.name == DAEMON and not gc.get_freeze_count():
        gc.collect()
        gc.freeze()


def read_database_id(connection: Connection) -> str:
    """The id that a database keeps for ever, copies included."""
    row = rows.get(connection, DatabaseRow)
    assert row is not None, "an open database has it"
    return row.id
