"""A process that tests talk to, suspend and wake up: `python -m tests.contract.peer OPTIONS`.

It opens a database and obeys the commands on its input, a line each, with a line as the answer. It
may be of another release (a higher level), have shorter leases, or a clock that is wrong.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy.engine import make_url

import zapdb
from tests import processes
from tests.contract import next_formats
from tests.support import ROOT, Workspace, wait_until

OFTEN = {"zapdb.catalog.cluster.node_registration.NODE_HEARTBEAT_SECONDS": 0.1}
"""Patches: leases are renewed often."""

QUICK = {"zapdb.catalog.cluster.node_registration.NODE_LEASE_SECONDS": 1.0, **OFTEN}
"""Patches: leases that end soon, too; for tests in which they do."""


class Peer:
    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.pid = process.pid

    def ask(self, command: str) -> str:
        self.tell(command)
        return self.answer()

    def tell(self, command: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(command + "\n")
        self.process.stdin.flush()

    def answer(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def suspend(self) -> None:
        os.kill(self.pid, signal.SIGSTOP)
        stat = Path(f"/proc/{self.pid}/stat")
        wait_until(lambda: stat.read_text().rpartition(")")[2].split()[0] == "T", "it stopped")

    def suspend_idle(self, place: Workspace) -> None:
        """Suspend it while it does not write: on SQLite nobody else could then."""
        self.suspend()
        while place.engine == "sqlite" and _is_locked(place):
            self.resume()  # it was caught in a heartbeat
            time.sleep(0.01)
            self.suspend()

    def resume(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def stop(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout):
            assert stream is not None
            stream.close()


@contextmanager
def start_peer(place: Workspace, *, within: Sequence[str] = (), **options: Any) -> Iterator[Peer]:
    """A process with the workspace's database open; `answer()` says `open`, or what went wrong.

    `within` is a command that runs another one, its arguments.
    """
    given = {"address": place.address, "directory": str(place.directory), **options}
    process = processes.Popen(
        [*within, sys.executable, "-m", "tests.contract.peer", json.dumps(given)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    peer = Peer(process)
    try:
        yield peer
    finally:
        peer.stop()


@contextmanager
def open_peer(place: Workspace, **options: Any) -> Iterator[Peer]:
    with start_peer(place, **options) as peer:
        said = peer.answer()
        assert said == "open", said
        yield peer


# The process itself


def run(options: dict[str, Any]) -> None:
    _patch(options)
    try:
        with zapdb.open(
            options["address"],
            migrations=options["directory"],
            apply=options.get("apply", "never"),
            serve_as=options.get("serve_as"),
        ) as db:
            print("open", flush=True)
            obey(db, Path(options["directory"]))
    except zapdb.ZapdbError as error:
        print(_told(error), flush=True)


def _patch(options: dict[str, Any]) -> None:
    if "level" in options:
        from zapdb import release

        release.LEVEL = options["level"]
        release.__version__ = f"0.{options['level']}.0"
    for name, value in options.get("patches", {}).items():
        module, _, attribute = name.rpartition(".")
        setattr(importlib.import_module(module), attribute, value)
    if "formats" in options:
        next_formats.install(options["formats"])
    if "clock_seconds" in options:
        off, now, now_ns = options["clock_seconds"], time.time, time.time_ns
        time.time = lambda: now() + off
        time.time_ns = lambda: now_ns() + int(off * 1e9)
    if "layouts" in options:
        from zapdb.storage import storage_version

        storage_version.STORAGE_VERSION = options["layout"]
        storage_version.upgrades_directory = lambda: Path(options["layouts"])


def obey(db: Any, directory: Path) -> None:
    with ExitStack() as open_transaction:
        for line in sys.stdin:
            try:
                print(_do(db, directory, line.split(), open_transaction), flush=True)
            except zapdb.ZapdbError as error:
                print(_told(error), flush=True)


def _do(db: Any, directory: Path, command: list[str], transaction: ExitStack) -> object:
    items = db.table("items")
    match command:
        case ["insert", key]:
            items.insert(id=int(key), title="mine")
            return "written"
        case ["hold", key]:
            transaction.enter_context(db.transaction())
            items.insert(id=int(key), title="held")
            return "held"
        case ["commit"]:
            transaction.close()
            return "committed"
        case ["find", field, value]:
            found = items.where(items[field] == (int(value) if field == "size" else value))
            return f"{[record.id for record in found]} by {found.explain().index}"
        case ["jobs"]:
            db.admin.run_jobs()
            return "done"
        case ["count"]:
            return items.count()
        case ["process"]:
            return os.getpid()
        case ["level"]:
            return db.admin.cluster_level()
        case ["require", level]:
            from zapdb.catalog.cluster.level import require_level

            require_level(db._storage, int(level))
            return "raised"
        case ["layout"]:
            from zapdb.catalog.cluster.level import upgrade_storage_with_level
            from zapdb.storage import read_storage_version

            done = upgrade_storage_with_level(db._storage)
            return f"{done} {read_storage_version(db._storage)}"
        case ["evict"]:
            from zapdb.catalog.cluster.node_registration import evict_dead_nodes

            return len(evict_dead_nodes(db._storage, 0))
        case ["up"]:
            from zapdb.activation.up import migrate_up
            from zapdb.catalog import DEFAULT_TENANT

            return migrate_up(db._storage, DEFAULT_TENANT, directory)[-1].number
        case ["gate"]:
            from zapdb.storage import TransactionMode

            transaction.enter_context(db._storage.transaction(TransactionMode.DDL))
            return "taken"
    raise ValueError(command)


def _is_locked(place: Workspace) -> bool:
    path = make_url(place.address).database
    assert path is not None
    with closing(sqlite3.connect(path, timeout=0.2, isolation_level=None)) as connection:
        try:
            connection.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError:
            return True
        connection.execute("ROLLBACK")
        return False


def _told(error: zapdb.ZapdbError) -> str:
    return " | ".join([type(error).__name__, *str(error).splitlines()])


if __name__ == "__main__":
    run(json.loads(sys.argv[1]))
