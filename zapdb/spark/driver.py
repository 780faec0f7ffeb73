"""What the driver tells all processes of a Spark session about itself, and what it sends to them.

A data source is planned and read in other processes than the application's: they have the options,
and what the registered class holds. `DriverContext` is that. Each process compares its own release
with the driver's before it opens a database. A task opens it later than the driver, by an address
which on another machine may lead to another one, so it proves first that it is the same, with the
same migrations, as tasks of jobs do (rule 32).

An object of ours is unpickled before any code of ours runs. So it travels as bytes, together with
the function that unpickles them, which needs no zapdb, and says so where there is none.
"""

from __future__ import annotations

import importlib
import os
import pickle
import socket
import sys
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from pyspark import SparkFiles, cloudpickle

from zapdb import release
from zapdb.activation import TenantCatalog
from zapdb.catalog.stored_migrations import ChainPlace
from zapdb.database.transaction_blocks import Snapshot
from zapdb.errors import ExecutorMismatch, PendingMigrations, StorageError, UsageError
from zapdb.spark.kept_open import KEPT_OPEN, DatabaseOpening, read_database_id
from zapdb.spark.options import Place
from zapdb.storage import Connection

LOCAL: Final = "local"


@dataclass(frozen=True, slots=True)
class HeldSnapshot:
    """A snapshot that `zapdb.spark.snapshot` holds: the name of PostgreSQL's, or the address of a
    copy of the SQLite file."""

    exported: str | None = None
    copy: str | None = None


@dataclass(frozen=True, slots=True)
class DriverContext:
    """The driver's release and session, and the snapshots that it holds, by databases' ids."""

    version: str = field(default_factory=lambda: release.__version__)
    level: int = field(default_factory=lambda: release.LEVEL)
    master: str = "local"
    speculates: bool = False
    held: Mapping[str, HeldSnapshot] = field(default_factory=dict)

    def check_process(self) -> None:
        """Raise `ExecutorMismatch` in a process that has another release than the driver."""
        here = (release.__version__, release.LEVEL)
        if here != (self.version, self.level):
            raise ExecutorMismatch(
                "this process of Spark has another release of zapdb than the driver",
                here=f"{here[0]}, level {here[1]}",
                driver=f"{self.version}, level {self.level}",
                hint="run `zapdb spark package zapdb.zip` where the driver runs, and give the "
                "file to spark-submit with --py-files",
            )

    def holds(self, snapshot: Snapshot) -> bool:
        """Whether the driver holds a snapshot of the database."""
        with snapshot._session.connected() as connection:
            return read_database_id(connection) in self.held

    def without_snapshots(self) -> DriverContext:
        """The same for what reads the present: writing, and the change log."""
        return replace(self, held={})

    def check_writing(self) -> None:
        """Raise `UsageError` in a session whose tasks may be started twice."""
        refuse_speculation(self.speculates)

    def check_place(self, dialect: str) -> None:
        """Raise `UsageError` for a SQLite file in a session whose executors may be elsewhere."""
        refuse_file_on_cluster(self.master, dialect)


def refuse_file_on_cluster(master: str, dialect: str) -> None:
    """Raise `UsageError` for a SQLite file and a master that is not local (rule 32)."""
    if dialect == "sqlite" and not master.startswith(LOCAL):
        raise UsageError(
            "the machines of a cluster cannot reach a SQLite file",
            master=master,
            hint="use the master local[*], or a PostgreSQL database",
        )


def refuse_speculation(is_on: bool) -> None:
    """Raise `UsageError` if tasks that write may be started twice."""
    if is_on:
        raise UsageError(
            "the Spark session has speculation on, which would run writing tasks twice",
            hint="set spark.speculation=false and start the session again",
        )


@contextmanager
def opened_for_reading(context: DriverContext, place: Place) -> Iterator[Snapshot]:
    """A snapshot of the database of some options, opened read-only: the one that the driver holds
    of it, if there is one. Raises `UsageError` if that is over."""
    context.check_process()
    opening = DatabaseOpening(place.database, place.tenant, read_only=True)
    with ExitStack() as stack:
        with _explaining_path(place.database):
            db = stack.enter_context(KEPT_OPEN.using(opening))
        context.check_place(db._storage.dialect.name)
        held = None
        if context.held:
            held = context.held.get(read_database_id(db._storage.connection()))
        with _explaining_end() if held is not None else nullcontext():
            if held is not None and held.exported is not None:
                opening = replace(opening, snapshot=held.exported)
                db = stack.enter_context(KEPT_OPEN.using(opening))
            elif held is not None and held.copy is not None:
                db = stack.enter_context(KEPT_OPEN.using(replace(opening, address=held.copy)))
            snapshot = stack.enter_context(db.snapshot())
        yield snapshot


@contextmanager
def _explaining_path(address: str) -> Iterator[None]:
    """A file that is not there may be in the directory of another process."""
    try:
        yield
    except (PendingMigrations, StorageError) as error:
        path = address.partition("sqlite:///")[2].partition("?")[0]
        if path and not Path(path).is_absolute():
            error.hint = "give the whole path of the file: this process of Spark works in another "
            error.hint += f"directory than your program, perhaps ({Path.cwd()})"
        raise


@contextmanager
def _explaining_end() -> Iterator[None]:
    try:
        yield
    except (StorageError, PendingMigrations) as error:  # the copy of a SQLite file is removed
        raise UsageError(
            "the snapshot that this is read in is over",
            cause=error.context.get("detail", error.message),
            hint="call the actions (count, collect, write, …) inside the block of "
            "zapdb.spark.snapshot(db): Spark reads when an action runs, not when load() is called",
        ) from error


def unpickle_sent(raw: bytes) -> Any:
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
            return unpickle_sent(raw)
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


unpickle_sent.__module__ = "__main__"
"""So Spark's pickler sends the function itself: of another module, it would send the name."""


class Sent:
    """Base of classes whose objects are sent to executors."""

    def __reduce__(self) -> tuple[Any, ...]:
        state = cloudpickle.dumps((type(self), self.__dict__))  # type: ignore[no-untyped-call]  # it has no types
        return unpickle_sent, (state,)


@dataclass(frozen=True, slots=True)
class SameDatabase:
    """The database of the driver, and the place of its tenant."""

    database: str
    place: ChainPlace

    @classmethod
    def of(cls, connection: Connection, catalog: TenantCatalog) -> SameDatabase:
        return cls(read_database_id(connection), catalog.place)

    def check(self, connection: Connection, catalog: TenantCatalog) -> None:
        """Raise `ExecutorMismatch` for another database, or one with other migrations. Those that
        were applied since are no reason: who reads or writes looks at the columns."""
        number = read_database_id(connection)
        if number != self.database:
            raise ExecutorMismatch(
                "the address leads this process to another database than the driver",
                here=number,
                driver=self.database,
                hint="give an address that all machines of the cluster understand: with the host "
                "of the database, not localhost",
            )
        if not catalog.is_behind(self.place):
            raise ExecutorMismatch(
                "this process has another chain of migrations than the driver had",
                position=catalog.position,
                expected=self.place.position,
                hint="a migration was rolled back meanwhile: load the table again",
            )
