"""Writers at full speed: `python -m tests.crash.writers ADDRESS MIGRATIONS NOTES SEED`.

Several clients of `tests.contract.registers` on one open database, from the first line of its input
until that ends. What they were answered stands in the file of notes, for a checker of histories.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import zapdb
from tests.contract.registers import Client, as_history
from tests.linearizability import Operation
from tests.support import GUARD_SECONDS, ROOT, Workspace, is_running, wait_until
from zapdb.errors import StorageError, TransactionConflict, UpdateConflict

CLIENTS = 3
KEYS = tuple(range(50, 3_000, 250))
"""Records in many ranges of a job; nobody else writes them."""
PAUSE_SECONDS = 0.05
"""After an error of the database: it is being started again."""


class EnduringClient(Client):
    """Goes on when the database is away, or refuses writes since a migration is being rolled back.
    Nothing was written where an error says so."""

    keys = KEYS

    def swap(self, key: int, _seen: int, value: int, seen: Any) -> Any:
        """A field that a migration drops is another one for this process since then: of that the
        checker knows nothing. Who writes a record changes its size."""
        try:
            return super().swap(key, _seen, value, seen)
        except UpdateConflict as error:
            if "size" in str(error.context["changed"]).split(", "):
                raise
            raise TransactionConflict("the schema changed since the record was read") from error

    def run_until(self, ended: threading.Event) -> None:
        while not ended.is_set():
            try:
                self.run(1)
            except StorageError:
                self.note([self.number, "", (), "nothing", 0, 0])
                ended.wait(PAUSE_SECONDS)


def main(address: str, directory: str, path: str, seed: str) -> None:
    ended, lock = threading.Event(), threading.Lock()
    with (
        zapdb.open(address, migrations=directory) as db,
        Path(path).open("w") as notes,
    ):

        def note(line: list[Any]) -> None:
            with lock:
                notes.write(json.dumps(line) + "\n")
                notes.flush()

        clients = [EnduringClient(db, number, int(seed), note) for number in range(CLIENTS)]

        def run(client: EnduringClient) -> None:
            try:
                client.run_until(ended)
            except BaseException:
                traceback.print_exc()
                os._exit(1)

        threads = [threading.Thread(target=run, args=(client,)) for client in clients]
        sys.stdin.readline()
        for thread in threads:
            thread.start()
        sys.stdin.read()
        ended.set()
        for thread in threads:
            thread.join()


class Writers:
    """The running process."""

    def __init__(self, process: subprocess.Popen[str], notes: Path) -> None:
        self.process = process
        self.notes = notes

    def wait_until_open(self) -> None:
        self._wait_until(self.notes.exists, "the database of the writers is open")

    def begin(self) -> None:
        """Returns when they write."""
        assert self.process.stdin is not None
        self.process.stdin.write("begin\n")
        self.process.stdin.flush()
        self._wait_until(lambda: self._count() > 30, "they write")

    def _wait_until(self, holds: Callable[[], bool], what: str) -> None:
        wait_until(lambda: holds() or self.process.poll() is not None, what)
        assert self.process.poll() is None, "the writers ended"

    def _count(self) -> int:
        return self.notes.read_bytes().count(b"\n")

    def end(self) -> list[Operation]:
        """Their history, once they have ended."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        assert self.process.wait(GUARD_SECONDS) == 0, "a writer met an error; see above"
        return as_history(json.loads(line) for line in self.notes.read_text().splitlines())


@contextmanager
def writing(place: Workspace, notes: Path, seed: int) -> Iterator[Writers]:
    command = [sys.executable, "-m", "tests.crash.writers"]
    command += [place.address, str(place.directory), str(notes), str(seed)]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, text=True) as process:
        try:
            yield Writers(process, notes)
        finally:
            if is_running(process.pid):
                process.kill()


if __name__ == "__main__":
    main(*sys.argv[1:])
