"""Statements for many rows that fail: the error is raised, and nothing is written to standard error
by the driver on top of it."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from tests.contract.tables import ITEMS
from tests.support import Workspace
from zapdb.errors import StorageError, TransactionConflict
from zapdb.storage import DuplicateKey, TransactionMode

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
