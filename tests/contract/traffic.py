"""A process of a rolling deployment: `python -m tests.contract.traffic OPTIONS`, with traffic.

It opens a database with its files, and reads and writes until its input ends. Each write is noted
in a file before it is sent (`?`) and once it is done (`!`): what was done must be there for ever,
what was only sent may be. Whatever else goes wrong ends the process with status 1.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests import processes
from tests.support import GUARD_SECONDS, ROOT, Workspace, wait_until

RECORDS = 400


@dataclass
class Traffic:
    """A running process, and the file with what it did."""

    process: subprocess.Popen[str]
    path: Path

    @property
    def lines(self) -> list[list[Any]]:
        text = self.path.read_text() if self.path.exists() else ""
        return [json.loads(line) for line in text.splitlines()]

    def wait_for_writes(self, count: int) -> None:
        """Until so many more were done."""
        before = len(self.lines)
        wait_until(
            lambda: len(self.lines) >= before + 2 * count or self.process.poll() is not None,
            "it wrote",
        )
        assert self.process.poll() is None, self.told

    @property
    def told(self) -> str:
        assert self.process.stderr is not None
        return self.process.stderr.read()

    def wait_for_death(self) -> None:
        assert self.process.wait(GUARD_SECONDS) == -9, self.told
        self._close()

    def end(self) -> None:
        """Let it finish what it is at."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        assert self.process.wait(GUARD_SECONDS) == 0, self.told
        self._close()

    def _close(self) -> None:
        for stream in (self.process.stdin, self.process.stderr):
            assert stream is not None
            stream.close()


@dataclass
class Ledger:
    """By (key, field): the value that was written last, or may have been."""

    done: dict[tuple[int, str], Any] = field(default_factory=dict)
    unsure: dict[tuple[int, str], list[Any]] = field(default_factory=dict)
    writes: int = 0

    def take(self, traffic: Traffic) -> None:
        """Add what a process did that has ended; to be called in the order of the writes."""
        sent: dict[tuple[int, str], Any] = {}
        for mark, key, name, value in traffic.lines:
            at = (key, name)
            if mark == "?":
                sent[at] = value
                continue
            if mark == "!":
                self.done[at] = value
                self.unsure.pop(at, None)
                self.writes += 1
            del sent[at]
        for at, value in sent.items():
            self.unsure.setdefault(at, []).append(value)

    def allows(self, key: int, name: str, value: Any, first: Any) -> bool:
        at = (key, name)
        return value in (self.done.get(at, first), *self.unsure.get(at, ()))


@contextmanager
def start_traffic(place: Workspace, **options: Any) -> Iterator[Traffic]:
    given = {"address": place.address, "directory": str(place.directory), **options}
    process = processes.Popen(
        [sys.executable, "-m", "tests.contract.traffic", json.dumps(given)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    traffic = Traffic(process, Path(given["path"]))
    try:
        yield traffic
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        traffic._close()


# The process itself


def run(options: dict[str, Any]) -> None:
    import zapdb
    from tests.contract.worker import _kill_in
    from zapdb.activation import up
    from zapdb.catalog import DEFAULT_TENANT
    from zapdb.database.tenant_refresh import BackgroundJobs, run_all
    from zapdb.jobs import range_work

    if "die" in options:
        module, function, kill_at = options["die"]
        _kill_in({"up": up, "range_work": range_work}[module], function, kill_at)
    ended = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()
    with zapdb.open(
        options["address"], migrations=options["directory"], apply=options.get("apply", "never")
    ) as db:
        # Only where it is asked for: else another process might be faster than the one that dies.
        background = None
        if options.get("converts"):
            background = BackgroundJobs(db._storage, DEFAULT_TENANT, run_all)
        notes = os.open(options["path"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        try:
            _work(db, options, notes, ended)
        finally:
            os.close(notes)
            if background is not None:
                background.stop()


def _work(db: Any, options: dict[str, Any], notes: int, ended: threading.Event) -> None:
    from zapdb.errors import CommitUnknown, TransactionConflict

    items, known = db.table("items"), {}
    random.seed(options["part"])
    mine = range(options["part"], RECORDS, options["parts"])
    for turn in range(1_000_000):
        if ended.is_set():
            return
        key, name = random.choice(mine), random.choice(options["fields"])
        value: Any = turn if name == "size" else f"{options['part']} {turn}"

        def note(mark: str, at: tuple[int, str] = (key, name), value: Any = value) -> None:
            os.write(notes, (json.dumps([mark, *at, value]) + "\n").encode())

        note("?")
        try:
            items.update(key, **{name: value})
        except TransactionConflict:
            note("-")  # nothing was written
            time.sleep(0.01)
        except CommitUnknown:
            known.pop((key, name), None)
        else:
            note("!")
            known[key, name] = value
        for key in (key, random.randrange(RECORDS)):  # noqa: B020 - its own, and any
            record = items.get(key)
            assert record.title == f"title {key}", record
            for name in options["fields"]:
                wanted = known.get((key, name), getattr(record, name))
                assert getattr(record, name) == wanted, (record, name, wanted)
        if turn % 25 == 0:
            assert [record.id for record in items.scan()] == list(range(RECORDS))


if __name__ == "__main__":
    run(json.loads(sys.argv[1]))
