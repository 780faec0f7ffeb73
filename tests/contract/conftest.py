"""The contract of databases holds with both codecs: all of it with the accelerator where it is
built; with the generated Python the modules of `SHARE`, and all of it with `--long`.

It holds on the oldest release of PostgreSQL, too: a tenth of what runs on PostgreSQL runs there
again, always the same tenth, and all of it with `--long`."""

from __future__ import annotations

import zlib
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Final

import pytest

from tests import forms
from tests.codecs_in_use import CODECS, using_codec
from zapdb.limits import POSTGRESQL_RELEASE_MIN

SHARE: Final = {"test_calls_of_queries", "test_types"}
"""Values of all types, and pages of records: what a codec can change."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    releases = [pytest.param(None, id=pytest.HIDDEN_PARAM), pytest.param(OLDEST, id=OLDEST)]
    metafunc.parametrize("postgres_release", releases, indirect=True)
    module = metafunc.module.__name__.rpartition(".")[2]
    if len(CODECS) > 1 and (forms.is_long or module in SHARE):
        metafunc.parametrize("contract_codec", CODECS, indirect=True, scope="module")


@pytest.fixture
def key_file(tmp_path: Path) -> Path:
    """The key file of a service, with one key."""
    from tests.services import make_keys  # grpc, which no other test needs

    return make_keys(tmp_path)


@pytest.fixture(scope="module", autouse=True)
def contract_codec(request: pytest.FixtureRequest) -> Iterator[str]:
    """What reads and writes records in a module's tests, and in the processes that they start."""
    wanted: str = getattr(request, "param", CODECS[0])
    if wanted == CODECS[0]:
        yield wanted
        return
    with using_codec(wanted):
        yield wanted


OLDEST: Final = f"postgresql{POSTGRESQL_RELEASE_MIN}"
"""What the name of a test on the oldest release has."""


@pytest.fixture(autouse=True)
def postgres_release(request: pytest.FixtureRequest) -> str | None:
    """The oldest release, for a test that runs there again."""
    return getattr(request, "param", None)


@pytest.hookimpl(wrapper=True)
def pytest_pycollect_makeitem() -> Generator[None, object, object]:
    """Leave out what was to run on the oldest PostgreSQL and is not of PostgreSQL or of the
    tenth."""
    found = yield
    return [item for item in found if _is_wanted(item)] if isinstance(found, list) else found


def _is_wanted(item: pytest.Item | pytest.Collector) -> bool:
    callspec = getattr(item, "callspec", None)
    if not isinstance(item, pytest.Function) or callspec is None:
        return True
    if callspec.params.get("postgres_release") is None:
        return True
    engine = callspec.params.get("engine")
    is_of_postgresql = engine == "postgresql" or (
        engine is None and "postgres" in item.fixturenames
    )
    return is_of_postgresql and (forms.is_long or zlib.crc32(item.nodeid.encode()) % 10 == 0)
