"""Statements that travel together, and prepared ones, on PostgreSQL.

Of many rows that fail, the error is raised, and the driver writes nothing to standard error on top
of it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest

import zapdb
from tests.contract.tables import ITEMS
from tests.support import Workspace
from zapdb.catalog import principal
from zapdb.errors import StorageError, TransactionConflict, UsageError
from zapdb.storage import DuplicateKey, TransactionMode
from zapdb.tables.change_decoding import RecordChange

INSERT = "INSERT INTO zapdb_counters (name, value) VALUES (%s, %s)"


@pytest.fixture
def spoken() -> Iterator[list[str]]:
    """What the driver logs, which Python writes to standard error where nobody set up logging."""
    said = list[str]()
    handler = logging.Handler()
    handler.emit = lambda record: said.append(record.getMessage())  # type: ignore[method-assign]  # shorter than a class
    logging.getLogger("psycopg").addHandler(handler)
    yield said
    logging.getLogger("psycopg").removeHandler(handler)


@pytest.mark.parametrize("engine", ["postgresql"])
def test_a_connection_that_is_lost_among_many_rows_is_one_error(
    workspace: Workspace, spoken: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    workspace.write(1, ITEMS)
    workspace.open()
    storage = workspace.connect()
    with (  # noqa: PT012 - the end of the transaction is part of it
        pytest.raises(TransactionConflict, match="the connection was lost inside a transaction"),
        storage.transaction(TransactionMode.CATALOG) as connection,
    ):
        (process,) = connection.fetch_one("SELECT pg_backend_pid()")
        workspace.execute("SELECT pg_terminate_backend(?, 5000)", [process])
        connection.run_many(INSERT, [(f"made up {number}", 1) for number in range(5_000)])
    assert spoken == []
    assert capfd.readouterr().err == ""
    left = workspace.execute("SELECT 1 FROM zapdb_counters WHERE starts_with(name, 'made up')")
    assert left == []


@pytest.mark.parametrize("engine", ["postgresql"])
def test_the_first_error_among_many_rows_is_the_one_that_is_raised(
    workspace: Workspace, spoken: list[str]
) -> None:
    workspace.write(1, ITEMS)
    workspace.open()
    storage = workspace.connect()

    def rows() -> Iterator[tuple[str, int]]:
        yield "made up", 1
        raise ZeroDivisionError("of the caller")

    with pytest.raises(DuplicateKey), storage.transaction(TransactionMode.CATALOG) as connection:
        connection.run_many(INSERT, [("made up", 1), ("made up", 2), ("another", 3)])
    with (
        pytest.raises(StorageError) as caught,
        storage.transaction(TransactionMode.CATALOG) as connection,
    ):
        connection.run_many(INSERT, rows())
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    with storage.transaction(TransactionMode.CATALOG) as connection:  # it is of use as before
        connection.run_many(INSERT, [("made up", 1), ("another", 3)])
    assert spoken == []
    assert len(workspace.execute("SELECT 1 FROM zapdb_counters WHERE value = 3")) >= 1


@pytest.mark.parametrize("engine", ["postgresql"])
def test_a_write_goes_on_after_the_driver_has_dropped_all_prepared_statements(
    workspace: Workspace,
) -> None:
    """psycopg does that on its own after a DROP, such as a sweep's, and after a ROLLBACK, such as
    that of a schema change that waits for the gate."""
    workspace.write(1, ITEMS)
    items = workspace.open().table("items")
    for number in range(3):
        items.insert(id=number, title="before")
    storage = items._session.storage
    with storage.transaction(TransactionMode.CATALOG) as connection:
        connection.run("CREATE TABLE made_up (a integer)")
        connection.run("DROP TABLE made_up")
    assert items.insert(id=3, title="after").id == 3
    assert items.count() == 4
    # Also where the first statement is to be prepared anew anyway, and not those behind it.
    with storage.transaction(TransactionMode.READ) as connection:
        connection.run("DEALLOCATE ALL")
    queue: Any = connection.queue
    names = queue._pipeline._names
    for sql in [sql for sql in names if sql.startswith("BEGIN")]:
        del names[sql]
    assert names
    assert items.insert(id=4, title="after").id == 4
    assert items.count() == 5


@pytest.mark.parametrize("engine", ["postgresql"])
def test_two_connections_never_give_statements_the_same_name(workspace: Workspace) -> None:
    """A pooler that knows no prepared statements gives one client the session of another, whose
    statement would be run in the place of its own: acknowledged, and in another table."""
    workspace.write(1, ITEMS)
    workspace.open().close()
    names = list[set[str]]()
    for number in (1, 2):
        with workspace.open() as db:
            for at in range(3):
                db.table("items").insert(id=10 * number + at, title="")
                db.table("items").get(10 * number + at)
            sql = "SELECT name FROM pg_prepared_statements"
            rows = db._storage.own_connection().driver.execute(sql, prepare=False)
            names.append({name for (name,) in rows})
    for prefix in ("zapdb_", "_pg3_"):
        assert all(any(name.startswith(prefix) for name in some) for some in names)
    assert names[0].isdisjoint(names[1])


@pytest.mark.parametrize("engine", ["postgresql"])
@pytest.mark.parametrize("encoding", ["LATIN1", "SQL_ASCII"])
def test_texts_are_utf_8_whatever_the_client_is_said_to_have(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch, encoding: str
) -> None:
    """As a database, a role or an environment may say, and a database of that encoding does."""
    monkeypatch.setenv("PGCLIENTENCODING", encoding)
    workspace.write(1, ITEMS)
    db = workspace.open()
    db.admin.set_setting("change_log", "on")
    with principal.acting_as("Zoë"), db.transaction() as tx:
        tx.table("items").insert(id=1, title="Zoë")
    *_, change = db.change_log.read()
    assert isinstance(change, RecordChange)
    assert (change.principal, db.table("items").get(1).title) == ("Zoë", "Zoë")


@pytest.mark.parametrize("engine", ["postgresql"])
def test_what_an_administrator_has_forbidden_is_said(workspace: Workspace) -> None:
    workspace.write(1, ITEMS)
    db = workspace.open()
    connection = db._storage.own_connection()
    connection.run("SET statement_timeout = 20")
    with pytest.raises(StorageError, match="the server cancelled a statement"):
        connection.run("SELECT pg_sleep(10)")
    connection.run("SET default_transaction_read_only = on")
    with pytest.raises(StorageError, match="the database takes no writes"):
        db.table("items").insert(id=1, title="")


@pytest.mark.parametrize("engine", ["postgresql"])
def test_a_session_that_a_pooler_gives_to_others_is_not_made_read_only(
    workspace: Workspace,
) -> None:
    workspace.write(1, ITEMS)
    workspace.open().close()
    address = f"{workspace.address}&prepared_statements=off"
    with zapdb.open(address, read_only=True) as reader:
        shown = reader._storage.own_connection().fetch_one("SHOW default_transaction_read_only")
        assert shown == ("off",)
        with pytest.raises(UsageError, match="read-only"):
            reader.table("items").insert(id=1, title="")
