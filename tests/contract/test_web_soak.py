"""A web service of several processes, with clients, deaths of servers, and migrations that roll.

`make soak` runs rounds of it for as long as `ZAPDB_SOAK_SECONDS` says; one round by default.
"""

from __future__ import annotations

import os
import random
import sys
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from http.client import HTTPException
from pathlib import Path
from typing import Any

import pytest

import zapdb
from tests import forms, processes
from tests.contract.soak_app import TWIN
from tests.contract.tables import ITEMS
from tests.documents import document
from tests.servers import Client, Server
from tests.support import ROOT, Workspace, wait_until

pytestmark = pytest.mark.long_on("sqlite")

SOAK_SECONDS = float(os.environ.get("ZAPDB_SOAK_SECONDS", "0"))
WAYS = ("/run", "/token", "/dependency", "/async", "/async-dependency")
KEYS = 1_000
"""Of each client, which alone writes to them."""

Sizes = set[int | None]
"""What the size of a record may be; None where there may be no record."""


@dataclass
class Fleet:
    """The servers of a service, and the version that new ones get."""

    place: Workspace
    directory: Path
    files: Path
    size: str = "size"
    servers: list[Server] = field(default_factory=list)
    started: int = 0
    done: Counter[str] = field(default_factory=Counter)

    def start(self) -> Server:
        self.started += 1
        environment = {
            "SOAK_DATABASE": self.place.address,
            "SOAK_FILES": str(self.files),
            "SOAK_SIZE": self.size,
        }
        return Server(
            "uvicorn",
            "tests.contract.soak_app:app",
            path=ROOT,
            environment=environment,
            log=self.directory / f"server{self.started}.log",
        )

    def replace(self, at: int, how: str) -> None:
        """Put a server of the newest version in the place of another, which ends `how`."""
        new, old = self.start().wait(), self.servers[at]
        self.servers[at] = new
        (old.kill if how == "kill" else old.stop)()
        self.done[how] += 1

    def kill(self, at: int) -> None:
        """A server dies while clients use it, and is started again."""
        self.servers[at].kill()
        self.done["kill"] += 1
        self.servers[at] = self.start().wait()

    def migrate(self, turn: int) -> None:
        """One more migration, by the command that a deployment runs, beside all servers."""
        new = self.directory / f"files{turn}"
        new.mkdir()
        for path in self.files.iterdir():
            (new / path.name).write_bytes(path.read_bytes())
        size = f"size_{turn}"
        changes = [
            f"rename_field: {{table: items, field: {self.size}, to: {size}}}",
            f"add_field: {{table: items, field: {{name: c{turn}, type: string, default: red}}}}",
        ]
        if turn > 1:
            gone = f"c{turn - 1}"
            changes.append(f"drop_field: {{table: items, field: {gone}, restore: {{value: blue}}}}")
        (new / f"{turn + 1:04d}_test.yaml").write_text(document(*changes))
        command = [sys.executable, "-m", "zapdb", "migrate", "up", "-d", self.place.address]
        done = processes.run([*command, "-m", str(new)], cwd=ROOT, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        self.files, self.size = new, size
        self.done["migration"] += 1


@dataclass
class Customer:
    """A client that writes to records of its own, through whatever server there is."""

    number: int
    fleet: Fleet
    ended: threading.Event
    pause_seconds: float
    may_be: dict[int, Sizes] = field(default_factory=dict)
    answers: Counter[str] = field(default_factory=Counter)

    def work(self) -> None:
        chance = random.Random(self.number)
        client, port = None, 0
        for turn in range(1, 10_000_000):
            if self.ended.is_set():
                break
            if client is None or chance.random() < 0.1:
                if client is not None:
                    client.__exit__()
                port = chance.choice(self.fleet.servers).port
                client = Client(port)
                if not client.connect():
                    client = None
                    time.sleep(0.01)
                    continue
            time.sleep(self.pause_seconds)
            if not self.write(client, chance, turn):
                client.__exit__()
                client = None
        if client is not None:
            client.__exit__()

    def write(self, client: Client, chance: random.Random, turn: int) -> bool:
        """One request; False where it was not answered."""
        key = self.number * KEYS + chance.randrange(KEYS)
        body = {"key": key, "size": turn, "fails": chance.random() < 0.5}
        was: Sizes = self.may_be.get(key, {None})
        try:
            status, answer = client.ask("POST", chance.choice(WAYS), body)
        except (OSError, HTTPException):
            self.may_be[key] = was | {turn}
            self.answers["none"] += 1
            return False
        self.answers[str(status)] += 1
        if status == 200:
            assert not body["fails"]
            assert answer == {"size": turn}
            self.may_be[key] = {turn}
        else:  # what was answered with an error is not there
            assert status == 503 or (status == 402 and body["fails"]), answer
        return True


def test_rule_15_a_service_loses_nothing_and_keeps_nothing_that_it_refused(
    workspace: Workspace, tmp_path: Path
) -> None:
    """Every write that was answered 200 is there, those answered with an error are not."""
    workspace.write(1, ITEMS)
    with workspace.open():
        pass
    processes, clients, pause_seconds = (4, 16, 0.0) if forms.is_long else (2, 8, 0.05)
    fleet, ended = Fleet(workspace, tmp_path, workspace.directory), threading.Event()
    customers = [Customer(number, fleet, ended, pause_seconds) for number in range(clients)]
    deadline, turn = time.monotonic() + SOAK_SECONDS, 0
    with ExitStack() as stack:
        for _ in range(processes):
            server = fleet.start()
            fleet.servers.append(server)
        stack.callback(lambda: [server.kill() for server in fleet.servers])
        for server in fleet.servers:
            server.wait()
        threads = stack.enter_context(ThreadPoolExecutor(clients))
        stack.callback(ended.set)
        working = [threads.submit(customer.work) for customer in customers]

        def wait_for_writes(count: int) -> None:
            before = acknowledged(customers)
            wait_until(
                lambda: (
                    acknowledged(customers) >= before + count or any(one.done() for one in working)
                ),
                "the service wrote",
            )

        wait_for_writes(20)
        while not turn or time.monotonic() < deadline:
            turn += 1
            run_round(fleet, turn)
            wait_for_writes(20)
        ended.set()
        for one in working:
            one.result()
        for server in fleet.servers:
            server.stop()
    check(workspace, fleet, customers)


def run_round(fleet: Fleet, turn: int) -> None:
    """A death, a migration, and one server after the other replaced, by death or in order."""
    if forms.is_long:
        fleet.kill(turn % len(fleet.servers))
    fleet.migrate(turn)
    for at in range(len(fleet.servers)):
        fleet.replace(at, "stop" if at % 4 == 1 else "kill")


def acknowledged(customers: list[Customer]) -> int:
    return sum(customer.answers["200"] for customer in customers)


def check(place: Workspace, fleet: Fleet, customers: list[Customer]) -> None:
    answers: Counter[str] = sum((customer.answers for customer in customers), Counter())
    may_be = {key: sizes for customer in customers for key, sizes in customer.may_be.items()}
    with zapdb.open(place.address, migrations=fleet.files) as db:
        found = {record.id: getattr(record, fleet.size) for record in db.table("items").scan()}
        assert [report.problems for report in db.admin.verify()] == [()]
    wrong: list[Any] = [
        (key, sizes, found.get(key), found.get(key + TWIN))
        for key, sizes in may_be.items()
        if found.get(key) not in sizes or found.get(key) != found.get(key + TWIN)
    ]
    assert wrong == []
    assert {key % TWIN for key in found} <= may_be.keys()
    assert min(answers["200"], answers["402"]) > 10
    print(f"{place.engine}: answers {dict(answers)}; {dict(fleet.done)}; {len(found)} records")
