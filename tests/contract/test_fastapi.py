"""Transactions in FastAPI, whose parts of a request run in several threads and contexts.

A sync dependency that yields is begun in one thread of a pool, its endpoint runs in another, and it
is left in a third; by default that is after the response was sent.
"""

import logging
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Any, Literal

import anyio.to_thread
import pytest
from fastapi import Depends, FastAPI, Request
from fastapi.responses import JSONResponse

import zapdb
from tests.contract.tables import ITEMS
from tests.contract.test_full_disk import TEXT, fill, mounted
from tests.servers import ask, ask_together, serving_asgi
from tests.support import GUARD_SECONDS, Workspace, wait_until
from zapdb.database import Database, Transaction
from zapdb.limits import WRITE

CLIENTS = 8
HERE = Path(__file__).name
Scope = Literal["function", "request"]


@pytest.fixture
def db(workspace: Workspace) -> Database:
    workspace.write(1, ITEMS)
    return workspace.open()


def make_app() -> FastAPI:
    """An application that answers for zapdb's errors, where it still can."""
    app = FastAPI()

    @app.exception_handler(zapdb.ZapdbError)
    async def refuse(_: Request, error: zapdb.ZapdbError) -> JSONResponse:
        return JSONResponse(error.to_json(), 500)

    return app


def ids(db: Database) -> set[int]:
    return {record.id for record in db.table("items").scan()}


def with_handle(db: Database) -> Callable[[], Iterator[Transaction]]:
    def tx() -> Iterator[Transaction]:
        with db.transaction() as tx:
            yield tx

    return tx


def without_handle(db: Database) -> Callable[[], Iterator[Database]]:
    def tx() -> Iterator[Database]:
        with db.transaction():
            yield db

    return tx


# A dependency that yields


def test_rule_15_a_dependency_that_yields_the_handle_loses_nothing(db: Database) -> None:
    """8 clients, sync endpoints, half of them raise after they wrote."""
    app = make_app()

    @app.post("/items/{key}")
    def create(
        key: int, tx: Annotated[Any, Depends(with_handle(db), scope="function")]
    ) -> dict[str, int]:
        tx.table("items").insert(id=key, title="Milk")
        if key % 2:
            raise zapdb.errors.InvalidValue("it is odd")
        tx.table("items").update(key, size=key)
        return {"id": key}

    with serving_asgi(app) as port:
        answers = ask_together(
            port, CLIENTS, 200, lambda client, key: (key, *client.ask("POST", f"/items/{key}"))
        )
        # With 8 clients any of them may lose a conflict; one by itself loses none.
        answers += ask_together(
            port, 1, 20, lambda client, n: (200 + n, *client.ask("POST", f"/items/{200 + n}"))
        )
    created = {key for key, status, _ in answers if status == 200}
    for key, status, body in answers:
        expected = ["value.invalid"] if key % 2 else ["concurrency.conflict"]  # with another one
        assert status == 200 or body["code"] in expected
    assert ids(db) == created
    assert created >= set(range(200, 220, 2))
    assert db._storage.pool.list_open() == []


@pytest.mark.parametrize("scope", ["function", "request"])
def test_rule_15_one_that_yields_no_handle_is_an_error_on_the_first_request(
    db: Database, scope: Scope, caplog: pytest.LogCaptureFixture
) -> None:
    """With one client that is alone. Left after the response, it can only be said in the log."""
    app = make_app()

    @app.get("/items")
    def count(db: Annotated[Any, Depends(without_handle(db), scope=scope)]) -> int:
        found: int = db.table("items").count()
        return found

    with serving_asgi(app) as port, caplog.at_level(logging.ERROR, logger="uvicorn.error"):
        status, body = ask(port, "GET", "/items")
        message = "a transaction was left by another thread, task or context than began it"
        if scope == "function":
            assert status == 500
            assert body["message"] == message
            assert HERE in body["context"]["begun_at"]
            assert "yield tx" in body["hint"]
        else:
            wait_until(lambda: message in caplog.text, "it is logged")
    assert db._storage.pool.list_open() == []


def test_rule_15_what_it_writes_without_the_handle_is_never_answered_200(
    workspace: Workspace, db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On SQLite the endpoint waits for the very block that waits for the endpoint."""
    monkeypatch.setattr("zapdb.storage.sqlite.BUSY_TIMEOUT_MS", 300)
    monkeypatch.setattr("zapdb.storage.pool.BUSY_TIMEOUT_MS", 300)
    monkeypatch.setattr("zapdb.tables.session.WRITE", WRITE.within(0))
    app = make_app()

    @app.post("/items/{key}")
    def create(
        key: int, db: Annotated[Any, Depends(without_handle(db), scope="function")]
    ) -> dict[str, int]:
        db.table("items").insert(id=key, title="Milk")
        return {"id": key}

    with serving_asgi(app) as port:
        status, body = ask(port, "POST", "/items/1")
    assert status == 500
    if workspace.engine == "sqlite":
        assert HERE in body["context"]["begun_at"]
        assert "handle" in body["hint"]
    else:
        assert "committed singly" in body["context"]["note"]


def test_rule_15_an_endpoint_beneath_an_async_dependency_inherits_no_transaction(
    db: Database,
) -> None:
    """Its context is copied to the thread of the endpoint."""
    app = make_app()

    async def begin() -> AsyncIterator[None]:
        with db.transaction():
            yield

    async def begin_with_handle() -> AsyncIterator[Transaction]:
        with db.transaction() as tx:
            yield tx

    @app.post("/without")
    def without(_: Annotated[None, Depends(begin, scope="function")]) -> None:
        db.table("items").insert(id=1, title="Milk")

    @app.post("/with")
    def with_handle(tx: Annotated[Any, Depends(begin_with_handle, scope="function")]) -> None:
        tx.table("items").insert(id=2, title="Milk")

    with serving_asgi(app) as port:
        status, body = ask(port, "POST", "/without")
        assert status == 500
        assert body["message"].startswith("this task or thread inherited an open transaction")
        assert "use its handle" in body["hint"]
        assert HERE in body["context"]["begun_at"]
        assert ask(port, "POST", "/with")[0] == 200
    assert ids(db) == {2}


# Threads


@pytest.mark.parametrize("way", ["run", "dependency"])
def test_requests_that_are_more_than_connections_all_get_one(
    workspace: Workspace, db: Database, way: str
) -> None:
    """With `run`, any number of threads will do; a dependency that yields needs one for each
    request, since it waits in one thread for what another one has to end."""
    db = workspace.open(max_connections=2)
    app = make_app()

    @app.get("/few-threads")
    async def use_few_threads() -> None:
        anyio.to_thread.current_default_thread_limiter().total_tokens = 2

    @app.post("/run/{key}")
    def create(key: int) -> None:
        db.run(lambda tx: tx.table("items").insert(id=key, title="Milk"))

    @app.post("/dependency/{key}")
    def create_in(key: int, tx: Annotated[Any, Depends(with_handle(db), scope="function")]) -> None:
        tx.table("items").insert(id=key, title="Milk")

    with serving_asgi(app) as port:
        if way == "run":
            ask(port, "GET", "/few-threads")
        answers = ask_together(
            port, CLIENTS, 80, lambda client, key: client.ask("POST", f"/{way}/{key}")
        )
    codes = {body["code"] for status, body in answers if status != 200}
    assert codes <= ({"concurrency.conflict"} if way == "dependency" else set())
    assert len(ids(db)) == [status for status, _ in answers].count(200)


# When a dependency is left


def answers_of_two_that_meet(db: Database, scope: Scope) -> list[int]:
    """Two requests whose transactions each read what the other writes: one COMMIT is refused."""
    app, both = make_app(), threading.Barrier(2)
    db.table("items").insert_many([{"id": key, "title": "x", "size": 1} for key in (0, 1)])

    @app.post("/items/{key}")
    def change(
        key: int, tx: Annotated[Any, Depends(with_handle(db), scope=scope)]
    ) -> dict[str, int]:
        size = tx.table("items").get(1 - key).size
        tx.table("items").update(key, size=size + 1)
        both.wait(GUARD_SECONDS)
        return {"size": size + 1}

    with serving_asgi(app) as port:
        answers = ask_together(port, 2, 2, lambda client, key: client.ask("POST", f"/items/{key}"))
    return sorted(status for status, _ in answers)


@pytest.mark.parametrize("engine", ["postgresql"])
def test_rule_15_a_commit_that_is_refused_is_answered_so_where_the_scope_is_the_function(
    db: Database,
) -> None:
    assert answers_of_two_that_meet(db, "function") == [200, 500]
    assert sorted(record.size for record in db.table("items").scan()) == [1, 2]


@pytest.mark.parametrize("engine", ["postgresql"])
def test_the_default_scope_answers_200_for_a_commit_that_is_refused(
    db: Database, caplog: pytest.LogCaptureFixture
) -> None:
    """It can't be helped from here: the response was sent. It is logged, with the place."""
    with caplog.at_level(logging.ERROR, logger="zapdb"):
        assert answers_of_two_that_meet(db, "request") == [200, 200]
    assert sorted(record.size for record in db.table("items").scan()) == [1, 2]
    assert "a transaction could not be committed" in caplog.text
    assert HERE in caplog.text


@pytest.mark.parametrize("engine", ["postgresql"])
def test_rule_15_run_in_the_endpoint_repeats_what_met_another(db: Database) -> None:
    app, both = make_app(), threading.Barrier(2)
    db.table("items").insert_many([{"id": key, "title": "x", "size": 1} for key in (0, 1)])
    calls: list[int] = []

    @app.post("/items/{key}")
    def change(key: int) -> int:
        def work(tx: Transaction) -> int:
            size: int = tx.table("items").get(1 - key).size
            tx.table("items").update(key, size=size + 1)
            calls.append(key)
            if calls.count(key) == 1:
                both.wait(GUARD_SECONDS)
            return size + 1

        return db.run(work)

    with serving_asgi(app) as port:
        answers = ask_together(port, 2, 2, lambda client, key: client.ask("POST", f"/items/{key}"))
    assert sorted(answers) == [(200, 2), (200, 3)]  # one after the other
    assert len(calls) == 3
    assert sorted(record.size for record in db.table("items").scan()) == [2, 3]


@pytest.mark.parametrize("scope", ["function", "request"])
def test_a_full_disk_at_commit_is_answered_200_by_the_default_scope_alone(
    tmp_path: Path, scope: Scope
) -> None:
    """The same on SQLite."""
    directory = tmp_path / "migrations"
    directory.mkdir()
    with ExitStack() as stack:
        disk = stack.enter_context(mounted(tmp_path / "disk", 4 << 20))
        place = Workspace("sqlite", f"sqlite:///{disk / 'test.db'}", directory)
        stack.enter_context(place)
        place.write(1, ITEMS)
        db, app = place.open(), make_app()

        @app.post("/items/{key}")
        def create(
            key: int, tx: Annotated[Any, Depends(with_handle(db), scope=scope)]
        ) -> dict[str, int]:
            tx.table("items").insert(id=key, title=TEXT)
            fill(disk, 0)
            return {"id": key}

        with serving_asgi(app) as port:
            status, _ = ask(port, "POST", "/items/1")
        assert status == (500 if scope == "function" else 200)
        assert ids(db) == set()
