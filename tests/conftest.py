"""Fixtures shared by all tests: a PostgreSQL server, and a workspace on each storage engine."""

from __future__ import annotations

import gc
import os
import re
import signal
from collections import defaultdict
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from tests import forms, processes
from tests.codecs_in_use import CODECS, using_codec
from tests.races import RacyTests
from tests.support import SHORT_LIVED, PostgresServer, Workspace, find_memory
from zapdb.catalog.zone_numbers import append_zones
from zapdb.storage import connect, ensure_storage


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--long", action="store_true", help="also run the long form of tests (make test-long)"
    )
    parser.addoption("--racy", type=int, metavar="SEED", help="schedule threads with malice")


SLOW = ("crash", "docs", "examples", "fuzz", "packaging", "spark")
"""Directories of tests that take seconds each: first, so that no worker is left with one."""


def pytest_configure(config: pytest.Config) -> None:
    forms.is_long = config.getoption("--long")
    seed = config.getoption("--racy")
    if seed is not None:
        config.pluginmanager.register(RacyTests(seed))
    # A loaded machine may take any time.
    settings.register_profile("unhurried", settings(), deadline=None)
    settings.load_profile("unhurried")
    # What starts in the background of a shell inherits that Ctrl-C is ignored; tests send it.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    # Images of containers tend to set it: each of hundreds of processes would compile all modules.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    # Spark's JVMs live for seconds: the second compiler takes half of their time, and earns none.
    os.environ.setdefault("SPARK_SUBMIT_OPTS", SHORT_LIVED)
    # PYTEST_DEBUG_TEMPROOT, pytest's own, names another place.
    if memory := find_memory():
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(memory))


SELDOM = (10_000, 20, 50)
"""How many new objects begin a collection, and how many of those an older one: with Python's 700
and 10, a fifth of the time of most tests went into it."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Slow directories first. Without `--long`, leave out what is marked `long`, and `long_on` its
    storage engine, and what runs on the other one (`forms.ON_ONE_ENGINE`)."""
    items.sort(key=lambda item: item.nodeid.split("/", 2)[1] not in SLOW)
    if config.getoption("--long"):
        return
    on_both = _find_those_on_both([item for item in items if not _is_long(item)])
    kept, long = list[pytest.Item](), list[pytest.Item]()
    for item in items:
        name = on_both.get(item)
        is_elsewhere = name is not None and forms.engine_of(name) != _engine_of(item)
        (long if _is_long(item) or is_elsewhere else kept).append(item)
    if long:
        config.hook.pytest_deselected(items=long)
        items[:] = kept


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Import the test files and collect their tests without collections of cyclic garbage: it all
    stays, and they took a third of the time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_collection_finish() -> None:
    """Set aside what was imported and collected: half a million objects, which each full collection
    would look through again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*SELDOM)


def pytest_unconfigure() -> None:
    """Extension modules complain of what is not collected at the end."""
    processes.close_nursery()
    gc.unfreeze()


@pytest.fixture
def no_collection() -> Iterator[None]:
    """No collection of cyclic garbage, which a process that ran thousands of tests has much of: it
    takes a while, and where it calls back, Python drops a KeyboardInterrupt."""
    gc.disable()
    yield
    gc.enable()


def _engine_of(item: pytest.Item) -> str | None:
    callspec = getattr(item, "callspec", None)
    return None if callspec is None else callspec.params.get("engine")


def _is_long(item: pytest.Item) -> bool:
    if item.get_closest_marker("short") is not None:
        return False
    on = item.get_closest_marker("long_on")
    return item.get_closest_marker("long") is not None or (
        on is not None and _engine_of(item) in on.args
    )


def _find_those_on_both(items: list[pytest.Item]) -> dict[pytest.Item, str]:
    """Tests of files that run on one engine and are asked for on each, by a name for the pair; one
    that was asked for by itself runs where it was asked for."""
    named = defaultdict[str, list[pytest.Item]](list)
    for item in items:
        engine = _engine_of(item)
        is_marked = item.get_closest_marker("on_each_engine") is not None
        if engine and not is_marked and item.path.stem[len("test_") :] in forms.ON_ONE_ENGINE:
            named[re.sub(rf"\b{engine}\b", "", item.nodeid)].append(item)
    return {item: name for name, both in named.items() if len(both) > 1 for item in both}


@pytest.fixture(scope="session")
def newest_postgres() -> Iterator[PostgresServer]:
    """A PostgreSQL server of this test process, started at its first use."""
    with PostgresServer.start() as server:
        yield server


@pytest.fixture(scope="session")
def oldest_postgres() -> Iterator[PostgresServer]:
    """The same of the oldest release that zapdb promises."""
    with PostgresServer.start(is_oldest=True) as server:
        yield server


@pytest.fixture
def postgres_release() -> str | None:
    """None for the newest release: tests/contract has tests that run on the oldest one again."""
    return None


@pytest.fixture
def postgres(request: pytest.FixtureRequest, postgres_release: str | None) -> PostgresServer:
    """The PostgreSQL server that the test is for."""
    name = "newest_postgres" if postgres_release is None else "oldest_postgres"
    server: PostgresServer = request.getfixturevalue(name)
    return server


@pytest.fixture(scope="module", params=CODECS)
def codec_in_use(request: pytest.FixtureRequest) -> Iterator[str]:
    """Each codec that is there, for what makes its codecs after this."""
    with using_codec(request.param):
        yield str(request.param)


TASK_FAILURES_MAX = 4


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """One Spark session for all tests of a process: starting one takes seconds."""
    from zapdb.spark import start_session

    with pytest.MonkeyPatch.context() as environment:
        for name, value in processes.environment_of_spark().items():
            environment.setenv(name, value)
        session = start_session(f"local[2,{TASK_FAILURES_MAX}]")
    yield session
    session.stop()


@pytest.fixture(scope="session")
def prepared_file(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The file of a SQLite database that has zapdb's own tables and the numbers of time zones, and
    nothing else."""
    file = tmp_path_factory.mktemp("prepared") / "prepared.db"
    storage = connect(f"sqlite:///{file}")
    ensure_storage(storage, create=True)
    append_zones(storage)
    storage.close()
    return file.read_bytes()


@pytest.fixture(params=["sqlite", "postgresql"])
def engine(request: pytest.FixtureRequest) -> str:
    """The storage engines; a test that holds for one of them says so with `parametrize`."""
    return str(request.param)


@pytest.fixture
def workspace(engine: str, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Workspace]:
    """A fresh database without a schema, and an empty directory of migrations.

    It has zapdb's own tables, and the numbers of time zones: making them takes more than half of
    the time of most tests. One marked `empty` begins with none, and on SQLite without a file.
    """
    directory = tmp_path / "migrations"
    directory.mkdir()
    is_empty = request.node.get_closest_marker("empty") is not None
    if engine == "sqlite":
        file = tmp_path / "test.db"
        if not is_empty:
            file.write_bytes(request.getfixturevalue("prepared_file"))
        with Workspace(engine, f"sqlite:///{file}", directory) as place:
            yield place
        return
    server: PostgresServer = request.getfixturevalue("postgres")
    template = "template1" if is_empty else server.prepared
    with server.fresh_database(template) as address, Workspace(engine, address, directory) as place:
        yield place
