"""Fixtures shared by all tests: a PostgreSQL server, and a workspace on each storage engine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import PostgresServer, Workspace


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """A PostgreSQL server of this test process, started at its first use."""
    with PostgresServer.start() as server:
        yield server


@pytest.fixture(params=["sqlite", "postgresql"])
def engine(request: pytest.FixtureRequest) -> str:
    """The storage engines; a test that holds for one of them says so with `parametrize`."""
    return str(request.param)


@pytest.fixture
def workspace(engine: str, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Workspace]:
    """A fresh, empty database with an empty directory of migrations."""
    directory = tmp_path / "migrations"
    directory.mkdir()
    if engine == "sqlite":
        with Workspace(engine, f"sqlite:///{tmp_path / 'test.db'}", directory) as place:
            yield place
        return
    server: PostgresServer = request.getfixturevalue("postgres")
    with server.fresh_database() as address, Workspace(engine, address, directory) as place:
        yield place
