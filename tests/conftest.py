"""Fixtures shared by all tests: a PostgreSQL server, and a workspace on each storage engine."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import forms
from tests.support import PostgresServer, Workspace, find_memory


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--long", action="store_true", help="also run the long form of tests (make test-long)"
    )


SLOW = ("crash", "docs", "examples", "fuzz", "packaging", "spark")
"""Directories of tests that take seconds each: first, so that no worker is left with one."""


def pytest_configure(config: pytest.Config) -> None:
    forms.is_long = config.getoption("--long")
    # What starts in the background of a shell inherits that Ctrl-C is ignored; tests send it.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    # Images of containers tend to set it: each of hundreds of processes would compile all modules.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    # PYTEST_DEBUG_TEMPROOT, pytest's own, names another place.
    if memory := find_memory():
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(memory))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Slow directories first. Leave out what is marked `long`, and `long_on` its storage engine,
    without `--long`."""
    items.sort(key=lambda item: item.path.parent.name not in SLOW)
    if config.getoption("--long"):
        return
    long = [item for item in items if _is_long(item)]
    if long:
        config.hook.pytest_deselected(items=long)
        items[:] = [item for item in items if not _is_long(item)]


def _is_long(item: pytest.Item) -> bool:
    if item.get_closest_marker("short") is not None:
        return False
    callspec = getattr(item, "callspec", None)
    engine = None if callspec is None else callspec.params.get("engine")
    on = item.get_closest_marker("long_on")
    return item.get_closest_marker("long") is not None or (on is not None and engine in on.args)


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """A PostgreSQL server of this test process, started at its first use."""
    with PostgresServer.start() as server:
        yield server


TASK_FAILURES_MAX = 4


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """One Spark session for all tests of a process: starting one takes seconds."""
    from zapdb.spark import start_session

    session = start_session(f"local[2,{TASK_FAILURES_MAX}]")
    yield session
    session.stop()


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
