"""`zapdb.testing`: each test has a fresh migrated database, copied from one that was made once."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

import pytest

import zapdb
from tests import processes
from tests.documents import document
from tests.support import PostgresServer
from zapdb.errors import UsageError
from zapdb.storage.private_file import PRIVATE_PREFIX
from zapdb.testing import Templates
from zapdb.testing.templates import TEMPLATE_NAME, digest_of_files

ITEMS = (
    "create_table: {table: items, key: [id], fields: "
    "[{name: id, type: integer}, {name: title, type: string}]}"
)
SIZE = "add_field: {table: items, field: {name: size, type: integer, default: 1}}"

CONFTEST = 'pytest_plugins = ["zapdb.testing"]\n'
TESTS = """\
import pytest, zapdb

@pytest.mark.parametrize("number", [1, 2])
def test_one(zapdb_database, number):
    items = zapdb_database.table("items")
    assert items.count() == 0
    items.insert(id=number, title="Milk")

def test_its_address_is_for_programs_that_open_it_themselves(zapdb_address, zapdb_migrations):
    with zapdb.open(zapdb_address, migrations=zapdb_migrations) as db:
        assert db.table("items").count() == 0

class TestOthers:
    @pytest.fixture
    def zapdb_options(self):
        return {"read_only": True}

    def test_options(self, zapdb_database):
        with pytest.raises(zapdb.errors.UsageError):
            zapdb_database.table("items").insert(id=1, title="Milk")
"""


@pytest.fixture
def migrations(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory of migrations; temporary files are in another one of the test's own."""
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    monkeypatch.setattr(tempfile, "tempdir", None)
    directory = tmp_path / "migrations"
    directory.mkdir()
    (directory / "0001_items.yaml").write_text(document(ITEMS))
    return directory


@pytest.fixture
def server(engine: str, request: pytest.FixtureRequest) -> str | None:
    if engine == "sqlite":
        return None
    running: PostgresServer = request.getfixturevalue("postgres")
    return running.address("postgres")


def left_behind(request: pytest.FixtureRequest, engine: str) -> list[str]:
    if engine == "sqlite":
        return [path.name for path in Path(tempfile.gettempdir()).glob(f"{PRIVATE_PREFIX}*")]
    running: PostgresServer = request.getfixturevalue("postgres")
    like = TEMPLATE_NAME.replace("_", r"\_")
    found = running.execute(f"SELECT datname FROM pg_database WHERE datname LIKE '{like}%'")
    return [name for (name,) in found]


def test_copies_are_fresh_and_go_again(
    request: pytest.FixtureRequest, engine: str, server: str | None, migrations: Path
) -> None:
    with Templates(server) as templates:
        for _ in range(2):
            with (
                templates.fresh_database(migrations) as first,
                templates.fresh_database(migrations) as second,
            ):
                assert first != second
                with (
                    zapdb.open(first, migrations=migrations) as one,
                    zapdb.open(second, migrations=migrations) as other,
                ):
                    assert (one.position, one.applied) == (1, ())
                    one.table("items").insert(id=1, title="Milk")
                    assert other.table("items").count() == 0
            assert len(left_behind(request, engine)) == 1  # the template
        before = digest_of_files(migrations)
        (migrations / "0002_size.yaml").write_text(document(SIZE))
        assert digest_of_files(migrations) != before
        with (
            templates.fresh_database(migrations) as address,
            zapdb.open(address, migrations=migrations) as db,
        ):
            assert (db.position, db.applied) == (2, ())
    assert left_behind(request, engine) == []


def test_a_test_that_fails_leaves_no_copy(
    request: pytest.FixtureRequest, engine: str, server: str | None, migrations: Path
) -> None:
    with Templates(server) as templates:
        with pytest.raises(AssertionError), templates.fresh_database(migrations):
            raise AssertionError
        assert len(left_behind(request, engine)) == 1
    assert left_behind(request, engine) == []


def test_migrations_that_fail_say_so_in_each_test(
    request: pytest.FixtureRequest, engine: str, server: str | None, migrations: Path
) -> None:
    (migrations / "0002_wrong.yaml").write_text(document("drop_table: {table: nothing}"))
    with Templates(server) as templates:
        for _ in range(2):
            with (
                pytest.raises(zapdb.errors.InvalidMigration),
                templates.fresh_database(migrations),
            ):
                pass
    assert left_behind(request, engine) == []


@pytest.mark.parametrize("given", [pytest.param("option", marks=pytest.mark.on_each_engine), "ini"])
def test_the_fixtures_of_pytest(
    engine: str, server: str | None, tmp_path: Path, given: str
) -> None:
    (tmp_path / "schema").mkdir()
    (tmp_path / "schema" / "0001_items.yaml").write_text(document(ITEMS))
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_it.py").write_text(TESTS)
    ini = "[pytest]\nzapdb_migrations = schema\n"
    arguments = []
    if server is not None and given == "ini":
        ini += f"zapdb_server = {server}\n"
    elif server is not None:
        arguments = ["--zapdb-server", server]
    (tmp_path / "pytest.ini").write_text(ini)
    done = processes.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(Path(zapdb.__file__).parents[1])},
        capture_output=True,
        text=True,
    )
    assert done.stdout.splitlines()[-1].startswith("4 passed"), done.stdout + done.stderr


@pytest.mark.long
@pytest.mark.parametrize("engine", ["postgresql"])
@pytest.mark.parametrize("name", ["x", "x" * 100])
def test_an_embedded_server_is_started_and_stopped(
    engine: str, migrations: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where temporary files are too deep for the path of a socket."""
    place = migrations.parent / "tmp" / name
    place.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    with (
        Templates("embedded") as templates,
        templates.fresh_database(migrations) as address,
        zapdb.open(address, migrations=migrations) as db,
    ):
        assert db.table("items").count() == 0
        assert len(list(place.glob("zapdb-pg-*"))) == 1
        assert address.startswith("postgresql+psycopg://")
    assert list(place.iterdir()) == []


def test_a_server_is_one_of_postgresql(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="not the address of a PostgreSQL server"):
        Templates(f"sqlite:///{tmp_path / 'x.db'}")
