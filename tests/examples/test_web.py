"""examples/web: every program, in a real server, with clients that are many and orders that fail.

What was answered 200 is there, and what was answered with an error is not. docs/guides/web.md shows
the programs as they are.
"""

from __future__ import annotations

import contextvars
import importlib
import json
import os
import re
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import celery
import pytest

import zapdb
from tests.servers import Client, ask, ask_together, serving, serving_asgi, serving_wsgi, start
from tests.support import GUARD_SECONDS, LIVE, ROOT, Workspace, count_connections, wait_until
from zapdb.cli.program import run_program
from zapdb.database import Database
from zapdb.limits import WRITE

PROGRAMS = ROOT / "examples" / "web"
MIGRATIONS = PROGRAMS / "migrations"
GUIDE = ROOT / "docs" / "guides" / "web.md"
CLIENTS = 8
REQUESTS = 500


# The guide


def test_the_guide_shows_the_programs_as_they_are() -> None:
    text = GUIDE.read_text(encoding="utf-8")
    shown = dict(re.findall(r"^```\w+ file=(\S+)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL))
    files = [*PROGRAMS.glob("*.py"), *MIGRATIONS.glob("*.yaml")]
    assert shown == {str(f.relative_to(PROGRAMS)): f.read_text(encoding="utf-8") for f in files}


def test_the_migrations_are_as_locked(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_program(["migrate", "check", "-m", str(MIGRATIONS)]) == 0
    assert "and as in zapdb.lock" in capsys.readouterr().out


# Orders


@pytest.fixture
def place(workspace: Workspace) -> Workspace:
    with zapdb.open(workspace.address, migrations=MIGRATIONS, apply="auto"):
        return workspace


Outcome = tuple[int, int, Any]
"""The number of an order, the status that it was answered with, and the body."""


def is_good(number: int) -> bool:
    """Whether the card of an order is good: that of every second of each client."""
    return number // CLIENTS % 2 == 0


def order(number: int) -> dict[str, Any]:
    return {"number": number, "article": "lamp", "quantity": 1 + number % 3}


def card(number: int) -> str:
    return "good" if is_good(number) else "declined"


def place_order(path: str, client: Client, number: int) -> Outcome:
    return number, *client.ask("POST", f"{path}?card={card(number)}", order(number))


def check_orders(place: Workspace, outcomes: list[Outcome], *, may_be_busy: bool = False) -> None:
    """Every order that was answered 200 is there, as it was answered, and none other is."""
    assert sorted(number for number, *_ in outcomes) == list(range(REQUESTS))
    busy = {503} if may_be_busy else set()
    wrong = [
        (number, status, body)
        for number, status, body in outcomes
        if status not in {200 if is_good(number) else 402, *busy}
    ]
    assert wrong == []
    statuses = Counter(status for _, status, _ in outcomes)
    assert statuses[200] > REQUESTS / 4
    assert statuses[402] > REQUESTS / 4
    placed = {number: body for number, status, body in outcomes if status == 200}
    with zapdb.open(place.address, read_only=True) as db:
        found = {one.number: one for one in db.table("orders").scan()}
    assert found.keys() == placed.keys()
    for number, body in placed.items():
        here = found[number]
        assert body == order(number) | {"id": str(here.id)}
        assert (here.number, here.quantity) == (number, body["quantity"])


def nodes(place: Workspace) -> list[Any]:
    """The processes that have not closed the database."""
    return place.execute(f"SELECT key FROM zapdb_catalog WHERE kind = 'node'{LIVE}")


def environment(place: Workspace) -> dict[str, str]:
    return {"SHOP_DATABASE": place.address}


# Web servers

SERVED = {
    "fastapi": ("uvicorn", "fastapi_sync:app", "/orders"),
    "fastapi, by a dependency": ("uvicorn", "fastapi_sync:app", "/by-dependency/orders"),
    "fastapi, async": ("uvicorn", "fastapi_async:app", "/orders"),
    "fastapi, async, by a dependency": ("uvicorn", "fastapi_async:app", "/by-dependency/orders"),
    "flask": ("waitress", "--call", "flask_app:create_app", "/orders"),
    "django": ("waitress", "django_app:application", "/orders"),
    "fastapi, workers": ("uvicorn", "--workers", "3", "fastapi_sync:app", "/orders"),
}


def params() -> Iterator[Any]:
    for program, (server, *_) in SERVED.items():
        # Both servers of threads call `db.run`: on PostgreSQL, FastAPI does so in the short form.
        # So do blocks of a dependency: on SQLite, where they wait for each other.
        is_second = server == "waitress" or "dependency" in program
        marks = [pytest.mark.long_on("postgresql")] if is_second else []
        if "workers" in program:
            marks = [pytest.mark.long]
        yield pytest.param(program, marks=marks)


@pytest.mark.parametrize("program", list(params()))
def test_rule_15_what_was_answered_200_is_there_and_nothing_else(
    place: Workspace, tmp_path: Path, program: str
) -> None:
    *server, path = SERVED[program]
    log = tmp_path / "server.log"
    with serving(*server, path=PROGRAMS, environment=environment(place), log=log) as served:
        outcomes = ask_together(served.port, CLIENTS, REQUESTS, partial(place_order, path))
        status, body = ask(served.port, "GET", "/orders/0")
        assert (status, body["article"]) == (200, "lamp")
        assert ask(served.port, "GET", "/health")[1]["position"] == 1
        if place.engine == "postgresql":  # as many as the guide says, and this one
            assert count_connections(place) <= 64 + 1
    # A block can't be run again where it meets another transaction.
    check_orders(place, outcomes, may_be_busy="dependency" in path)
    assert nodes(place) == []  # it was closed


# What errors are answered with


@contextmanager
def imported(name: str, db: Database, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A program in this process, on a database that a test has opened."""
    monkeypatch.syspath_prepend(str(PROGRAMS))
    shop = importlib.import_module("shop")
    monkeypatch.setattr(shop, "open_database", lambda: db)
    try:
        yield importlib.import_module(name)
    finally:
        for module in ("shop", name):
            sys.modules.pop(module, None)


@contextmanager
def fastapi_port(db: Database, monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    with imported("fastapi_sync", db, monkeypatch) as module, serving_asgi(module.app) as port:
        yield port


@contextmanager
def flask_port(db: Database, monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    with imported("flask_app", db, monkeypatch) as module:
        app = module.create_app()
        with serving_wsgi(app) as port:
            yield port


@contextmanager
def django_port(db: Database, monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    with (
        imported("django_app", db, monkeypatch) as module,
        serving_wsgi(module.application) as port,
    ):
        yield port


# A project of Django is configured once in a process, so this test has one engine.
@pytest.mark.parametrize("engine", ["sqlite"])
@pytest.mark.parametrize("framework", [fastapi_port, flask_port, django_port])
def test_errors_are_answered_by_what_a_client_can_do_about_them(
    place: Workspace, framework: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("zapdb.storage.pool.CONNECTION_WAIT_SECONDS", 0.2)
    monkeypatch.setattr("zapdb.storage.sqlite.BUSY_TIMEOUT_MS", 200)
    monkeypatch.setattr("zapdb.storage.pool.BUSY_TIMEOUT_MS", 200)
    monkeypatch.setattr("zapdb.tables.session.WRITE", WRITE.within(0))
    db = zapdb.open(place.address, migrations=MIGRATIONS, max_connections=2)
    with db, framework(db, monkeypatch) as port, Client(port) as client:

        def post(status: int, code: str, **changes: Any) -> None:
            found, body = client.ask("POST", "/orders", order(1) | changes)
            assert (found, body.get("error")) == (status, code)

        assert client.ask("POST", "/orders", order(1))[0] == 200
        assert client.ask("GET", "/orders/2")[0] == 404
        post(409, "constraint.unique")
        post(422, "constraint.check", number=3, quantity=0)
        status, body = client.ask("POST", "/orders", order(4) | {"article": 7})
        assert status == 422
        assert body.get("error") == "value.invalid" or "detail" in body  # FastAPI looks first
        with db.transaction():
            post(503, "concurrency.conflict", number=4)
            assert client.headers["Retry-After"] == "1"
        with ExitStack() as stack:
            enter = stack.enter_context
            held = [contextvars.Context().run(enter, db.snapshot()) for _ in range(2)]
            status, body = client.ask("GET", "/orders/1")
            assert (status, body["error"]) == (503, "concurrency.connections_busy")
            assert client.headers["Retry-After"] == "1"
            assert client.ask("GET", "/health")[0] == 200
            assert [snap.table("orders").count() for snap in held] == [1, 1]
        with db.transaction() as tx:
            tx.table("orders").where().delete()
        db.close()
        status, body = client.ask("GET", "/orders/1")
        assert (status, body) == (500, {"error": "usage", "message": "try it again later"})


# Celery

CELERY = """\
broker_url = "filesystem://"
broker_transport_options = {{
    "data_folder_in": "{0}/in", "data_folder_out": "{0}/out", "control_folder": "{0}/control",
    "processed_folder": "{0}/done", "store_processed": True, "polling_interval": 0.05,
}}
result_backend = "file://{0}/results"
"""


class Tasks:
    """What sends tasks to a worker: by files of a broker that is a directory."""

    def __init__(self, directory: Path) -> None:
        settings: dict[str, Any] = {}
        exec((directory / "settings.py").read_text(), settings)
        self.app = celery.Celery("clients")
        self.app.conf.update({name: settings[name] for name in settings if name[0] != "_"})
        self._directory = directory
        self._sending = threading.Lock()

    def send(self, *arguments: Any) -> Any:
        with self._sending:
            result = self.app.send_task("celery_tasks.create_order", arguments)
            # The worker would otherwise read a file that is not yet written to its end.
            for path in (self._directory / "out").iterdir():
                path.rename(self._directory / "in" / path.name)
        return result

    def wait(self, result: Any) -> Any:
        """What a task returned, or the error that it raised."""

        def is_ready() -> bool:
            with suppress(ValueError):  # the file of the result is not yet written to its end
                return bool(result.ready())
            return False

        wait_until(is_ready, "a task was run")
        return result.result


@contextmanager
def worker(place: Workspace, directory: Path) -> Iterator[Tasks]:
    """A worker of Celery with eight forked processes."""
    for name in ("in", "out", "control", "done", "results"):
        (directory / name).mkdir(parents=True)
    (directory / "settings.py").write_text(CELERY.format(directory))
    command = ["-m", "celery", "--app", "celery_tasks", "worker", "--pool", "prefork"]
    options = ["--concurrency", str(CLIENTS), "--without-gossip", "--without-mingle"]
    path = os.pathsep.join(map(str, [directory, PROGRAMS, ROOT]))
    given = environment(place) | {"SHOP_CELERY": "settings", "PYTHONPATH": path}
    with (directory / "worker.log").open("wb") as log:
        process = start(*command, *options, path=PROGRAMS, environment=given, stderr=log)
    tasks = Tasks(directory)
    try:
        yield tasks
        process.terminate()
        assert process.wait(GUARD_SECONDS) == 0
    finally:
        process.kill()
        process.wait()
        tasks.app.close()


@pytest.mark.long_on("postgresql")
def test_rule_15_tasks_of_celery_that_succeeded_are_there_and_no_others(
    place: Workspace, tmp_path: Path
) -> None:
    def work(tasks: Tasks, first: int) -> list[Outcome]:
        numbers = range(first, REQUESTS, CLIENTS)
        results = [tasks.send(order(number), card(number)) for number in numbers]
        return [outcome(n, tasks.wait(result)) for n, result in zip(numbers, results, strict=True)]

    def outcome(number: int, result: Any) -> Outcome:
        if isinstance(result, Exception):
            assert type(result).__name__ == "CardDeclined", result
            return number, 402, None
        return number, 200, result

    with worker(place, tmp_path / "celery") as tasks, ThreadPoolExecutor(CLIENTS) as clients:
        found = list(clients.map(partial(work, tasks), range(CLIENTS)))
    check_orders(place, [one for outcomes in found for one in outcomes])
    assert nodes(place) == []  # each of its processes has closed it


# multiprocessing


def test_rule_15_orders_of_forked_processes_that_succeeded_are_there_and_no_others(
    place: Workspace,
) -> None:
    check_orders(place, run_processes(place, "fork"))


@pytest.mark.long_on("postgresql")
def test_rule_15_orders_of_spawned_processes_that_succeeded_are_there_and_no_others(
    place: Workspace,
) -> None:
    check_orders(place, run_processes(place, "spawn"))


def run_processes(place: Workspace, method: str) -> list[Outcome]:
    lines = [json.dumps(order(n) | {"card": card(n)}) for n in range(REQUESTS)]
    process = start(
        "processes.py",
        method,
        path=PROGRAMS,
        environment=environment(place),
        cwd=PROGRAMS,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    output, _ = process.communicate("\n".join(lines), timeout=GUARD_SECONDS)
    assert process.returncode == 0
    outcomes = []
    for line in output.splitlines():
        number, status, body = line.split(" ", 2)
        outcomes.append((int(number), int(status), json.loads(body)))
    return outcomes
