"""Fixtures for pytest: a fresh migrated database for each test, in milliseconds.

`pytest_plugins = ["zapdb.testing"]` in the top `conftest.py` enables them. `Templates`, which makes
the databases, needs no pytest. See docs/guides/testing.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from zapdb.database import Database
from zapdb.database import open as open_database
from zapdb.testing.templates import Templates

__all__ = [
    "Templates",
    "zapdb_address",
    "zapdb_database",
    "zapdb_migrations",
    "zapdb_options",
    "zapdb_preview",
    "zapdb_templates",
]


def pytest_addoption(parser: pytest.Parser) -> None:
    description = (
        "the address of a PostgreSQL server for tests with zapdb, or 'embedded'; else SQLite"
    )
    parser.addoption("--zapdb-server", metavar="ADDRESS", help=description)
    parser.addini("zapdb_server", description)
    live = "the address of a database to look at as the migration files would make it"
    parser.addoption("--zapdb-preview", metavar="ADDRESS", help=live)
    parser.addini("zapdb_preview", live)
    parser.addini("zapdb_migrations", "the directory of the migration files", default="migrations")


@pytest.fixture(scope="session")
def zapdb_migrations(pytestconfig: pytest.Config) -> Path:
    """The directory of the migration files: the ini option `zapdb_migrations`."""
    return Path(pytestconfig.rootpath, pytestconfig.getini("zapdb_migrations"))


@pytest.fixture(scope="session")
def zapdb_templates(pytestconfig: pytest.Config) -> Iterator[Templates]:
    """The templates of this session's databases."""
    server = pytestconfig.getoption("zapdb_server") or pytestconfig.getini("zapdb_server")
    with Templates(server or None) as templates:
        yield templates


@pytest.fixture
def zapdb_address(zapdb_templates: Templates, zapdb_migrations: Path) -> Iterator[str]:
    """The address of a fresh database for the test, with all migrations applied."""
    with zapdb_templates.fresh_database(zapdb_migrations) as address:
        yield address


@pytest.fixture
def zapdb_options() -> dict[str, Any]:
    """Further arguments to open `zapdb_database` with; override it, such as for `models`."""
    return {}


@pytest.fixture
def zapdb_database(
    zapdb_address: str, zapdb_migrations: Path, zapdb_options: dict[str, Any]
) -> Iterator[Database]:
    """A fresh, open database for the test; closed and removed afterwards."""
    with open_database(zapdb_address, migrations=zapdb_migrations, **zapdb_options) as db:
        yield db


@pytest.fixture
def zapdb_preview(pytestconfig: pytest.Config, zapdb_migrations: Path) -> Iterator[Database]:
    """The database of `--zapdb-preview`, or of the ini option, such as the one in production or a
    copy of it, as the migration files would make it: nothing is applied. Without an address, the
    test is skipped."""
    address = pytestconfig.getoption("zapdb_preview") or pytestconfig.getini("zapdb_preview")
    if not address:
        pytest.skip("no --zapdb-preview ADDRESS was given")
    with open_database(address, migrations=zapdb_migrations, preview=True) as db:
        yield db
