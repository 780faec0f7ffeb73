"""Clients that read and write a few records at random: `python -m tests.contract.registers …`.

As a program it forks some processes, each a client with a database of its own; threads of a test
use `Client` with one that they share. Each operation is noted before it begins and when it has
ended, by the clock of the machine. Some COMMITs report an error though they took effect, or did
not, and one process may die in one: what became of such an operation nobody knows.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import zapdb
from tests import processes
from tests.linearizability import Operation
from tests.support import BACKGROUND, GUARD_SECONDS, ROOT, Workspace
from zapdb.database import Database
from zapdb.errors import (
    CommitUnknown,
    RecordExists,
    RecordNotFound,
    StorageError,
    TransactionConflict,
    UpdateConflict,
)
from zapdb.storage import Connection
from zapdb.storage.engine import StorageEngine

KEYS = (1, 2, 3)
UNKNOWN = "unknown"
MEETINGS_EACH = 20
"""Of so many operations, one at least is at the same time as another one on the same record."""
PAUSE_SECONDS = 0.002
"""Between the operations of a process that is done, while others are not."""
Note = Callable[[list[Any]], None]


ABSENT = 0
"""The state of a key that no record has; values are greater."""


def register(state: int, operation: Operation) -> int | None:
    """What becomes of one record, of which nothing but the size counts.

    An operation of unknown outcome has the effect that it would have had, if any: the checker may
    also leave it out.
    """
    name, (_, *values), result = operation.name, operation.arguments, operation.result
    is_there, value = state != ABSENT, values[-1] if values else ABSENT
    refusal, after = None, value
    match name:
        case "read":
            after = state
        case "insert":
            refusal = "RecordExists" if is_there else None
        case "swap" if is_there:
            refusal = "UpdateConflict" if state != values[0] else None
        case "update" | "delete" | "add" | "swap":
            refusal = None if is_there else "RecordNotFound"
            after = state + value if name == "add" else value
    if refusal is not None:
        return state if result in (refusal, UNKNOWN) else None
    shown = None if after == ABSENT else after
    return after if result in (shown, UNKNOWN) else None


class Client:
    """One of several; `number` makes the values that it writes its own."""

    keys = KEYS

    def __init__(self, db: Database, number: int, seed: int, note: Note) -> None:
        self.db = db
        self.items = db.table("items")
        self.number = number
        self.random = random.Random(seed * 1_000 + number)
        self.note = note
        self.written = 0

    def run(self, times: int) -> None:
        for _ in range(times):
            key = self.random.choice(self.keys)
            name = self.random.choice(
                ["read", "read", "insert", "update", "upsert", "delete", "add", "swap", "swap"]
            )
            if name == "swap":
                seen = self._do("read", key)
                if seen is not None:
                    self._do("swap", key, seen.size, self._new_value(), seen=seen)
            else:
                value = () if name in ("read", "delete") else (self._new_value(),)
                self._do(name, key, *value)

    def _new_value(self) -> int:
        self.written += 1
        return self.number * 1_000_000 + self.written

    def _do(self, name: str, *arguments: Any, **hidden: Any) -> Any:
        self.note([self.number, name, arguments, UNKNOWN, time.monotonic(), None])
        invoked, found = time.monotonic(), None
        try:
            found = self.perform(name, *arguments, **hidden)
            result = found if isinstance(found, int | str | None) else found.size
        except (RecordExists, RecordNotFound, UpdateConflict) as error:
            result = type(error).__name__
        except TransactionConflict:
            result = "nothing"
        except StorageError:
            # A snapshot whose end fails: what it read was not answered, and nothing was changed.
            if name != "read":
                raise
            result, found = "nothing", None
        except CommitUnknown:
            return None
        self.note([self.number, name, arguments, result, invoked, time.monotonic()])
        return found

    def perform(self, name: str, *arguments: Any, **hidden: Any) -> Any:
        return getattr(self, name)(*arguments, **hidden)

    # The operations: each returns the new size, or the record that was read

    def read(self, key: int) -> Any:
        """In one of many ways."""
        items = self.items
        match self.random.randrange(4):
            case 0:
                return items.get_many([key])[0]
            case 1:
                return items.where(items.f.id == key).first()
            case 2:
                with self.db.snapshot():
                    return items.find(key)
        return items.find(key)

    def insert(self, key: int, value: int) -> Any:
        return self.items.insert(id=key, title="x", size=value)

    def update(self, key: int, value: int) -> Any:
        return self.items.update(key, size=value)

    def upsert(self, key: int, value: int) -> Any:
        return self.items.upsert(id=key, title="x", size=value)

    def delete(self, key: int) -> Any:
        return self.items.delete(key)

    def add(self, key: int, value: int) -> Any:
        """A value that is computed from the one that is there."""

        def compute() -> Any:
            return self.items.update(key, size=self.items.get(key).size + value)

        return self.db.run(compute, token=self.random.random() < 0.5)

    def swap(self, key: int, _seen: int, value: int, seen: Any) -> Any:
        return self.items.update(key, size=value, if_unchanged=seen)


def as_history(notes: Iterable[list[Any]]) -> list[Operation]:
    """The operations; those that have no second note, or whose outcome is unknown, stay open."""
    begun: dict[int, Operation] = {}
    history = []
    for number, name, arguments, result, invoked, returned in notes:
        if returned is None:
            if number in begun:
                history.append(begun[number])
            begun[number] = Operation(number, name, tuple(arguments), UNKNOWN, invoked)
            continue
        del begun[number]
        if result != "nothing":
            history.append(Operation(number, name, tuple(arguments), result, invoked, returned))
    return [*history, *begun.values()]


def spoil_commits(db: Database, share: float, die_at: int = 0) -> Callable[[], None]:
    """Let a share of COMMITs report an error, half of them though they took effect; at number
    `die_at` the process ends. Returns what takes it back."""
    kind, calls = type(db._storage.engine), 0
    commit, draw = kind.commit, random.Random(len(BACKGROUND))

    def spoiled(engine: StorageEngine, connection: Connection) -> None:
        nonlocal calls
        if connection.storage is not db._storage or threading.current_thread().name in BACKGROUND:
            commit(engine, connection)
            return
        calls += 1
        if calls == die_at:
            try:  # a COMMIT may bring a refusal
                if draw.random() < 0.5:
                    commit(engine, connection)
            finally:
                os.kill(os.getpid(), signal.SIGKILL)
        if draw.random() >= share:
            commit(engine, connection)
            return
        if draw.random() < 0.5:
            commit(engine, connection)
        raise StorageError("the database reported an error", error="made by a test")

    kind.commit = spoiled
    return lambda: setattr(kind, "commit", commit)


# Processes


def run_processes(place: Workspace, count: int, times: int, seed: int) -> list[Operation]:
    """What so many processes did, so often each or more; the first one dies on the way."""
    options = [place.address, str(place.directory), str(count), str(times), str(seed)]
    done = processes.run(
        [sys.executable, "-m", "tests.contract.registers", *options],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=GUARD_SECONDS,
    )
    assert done.returncode == 0, done.stderr
    return as_history(json.loads(line) for line in done.stdout.splitlines())


class Meetings:
    """What each process is at, and how often two were at the same record at the same time; of
    `count` processes, the first one, which dies, does not count."""

    def __init__(self, context: Any, count: int, enough: int) -> None:
        self._keys = context.Array("i", count)
        self._left = context.Value("i", count)
        self._met = context.Value("i", 0)
        self._enough = enough

    @contextmanager
    def at(self, number: int, key: int) -> Iterator[None]:
        with self._keys.get_lock():
            self._met.value += 0 if number == 0 else self._keys[1:].count(key)
            self._keys[number] = key
        try:
            yield
        finally:
            self._keys[number] = 0

    def end(self) -> None:
        """A process has done its share."""
        with self._left.get_lock():
            self._left.value -= 1

    @property
    def is_any_left(self) -> bool:
        return self._left.value > 0

    @property
    def are_few(self) -> bool:
        return self._met.value < self._enough


class MeetingClient(Client):
    meetings: Meetings

    def perform(self, name: str, *arguments: Any, **hidden: Any) -> Any:
        with self.meetings.at(self.number, arguments[0]):
            return super().perform(name, *arguments, **hidden)

    def run_with_others(self, times: int) -> None:
        """So often, and on until all others have done so, and there were meetings enough.

        A process may do all of its share before the next one gets a processor: nothing would have
        happened at the same time.
        """
        deadline = time.monotonic() + GUARD_SECONDS
        try:
            self.run(times)
        finally:
            self.meetings.end()
        while self.meetings.is_any_left or self.meetings.are_few:
            assert time.monotonic() < deadline, "the others are still at it, or never met"
            if self.meetings.is_any_left:
                time.sleep(PAUSE_SECONDS)
            self.run(1)


def main(address: str, directory: str, count: str, times: str, seed: str) -> None:
    context = multiprocessing.get_context("fork")
    barrier = context.Barrier(int(count))
    meetings = Meetings(context, int(count), int(count) * int(times) // MEETINGS_EACH)

    def run(number: int) -> None:
        with zapdb.open(address, migrations=directory) as db:
            spoil_commits(db, 0.03, int(times) // 8 if number == 0 else 0)
            barrier.wait(GUARD_SECONDS)
            client = MeetingClient(db, number, int(seed), note)
            client.meetings = meetings
            if number == 0:
                client.run(10 * int(times))  # it dies long before
            else:
                client.run_with_others(int(times))

    def note(what: list[Any]) -> None:
        os.write(1, (json.dumps(what) + "\n").encode())

    processes = [context.Process(target=run, args=(n,)) for n in range(int(count))]
    for process in processes:
        process.start()
    processes[0].join()
    meetings.end()
    for process in processes:
        process.join()
    codes = [process.exitcode for process in processes]
    assert codes == [-signal.SIGKILL, *[0] * (int(count) - 1)], codes


if __name__ == "__main__":
    main(*sys.argv[1:])
