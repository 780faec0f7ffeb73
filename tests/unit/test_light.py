"""What is not needed is not loaded: importing zapdb, and the first answers of the command line."""

from __future__ import annotations

import ast
import builtins
import subprocess
import sys
from pathlib import Path

import pytest

import zapdb
from tests.cli.program import PEOPLE

EXTRAS = {"duckdb", "pandas", "psycopg", "pyarrow", "pyspark", "sqlalchemy.dialects.postgresql"}
OF_COMMANDS = {"alembic", "prometheus_client", "rich.progress"}
OF_A_DATABASE = {"cbor2", "icu", "msgspec", "sqlalchemy", "sqlite3", "yaml"}
ALL = EXTRAS | OF_COMMANDS | OF_A_DATABASE | {"asyncio", "typer"}

VERSION = "import zapdb.cli.program as program; program.run_program(['--version'])"
CHECK = f"{VERSION.partition('(')[0]}(['migrate', 'check', '-m', 'nowhere'])"
WRONG = "import zapdb.cli.program as program; program.run_program(['migrat'])"
HELP = f"{VERSION.partition('(')[0]}(['--help'])"
JOBS = f"{VERSION.partition('(')[0]}(['jobs', 'list', '-d', {{1!r}}])"
STATUS = f"{VERSION.partition('(')[0]}(['migrate', 'status', '-m', {{0!r}}, '-d', {{1!r}}])"


@pytest.mark.parametrize(
    ("statement", "unwanted"),
    [
        ("import zapdb", ALL),
        ("import zapdb; zapdb.errors.ZapdbError", ALL),
        ("import zapdb; zapdb.open", EXTRAS | OF_COMMANDS | {"typer"}),
        ("import zapdb.spark.task", (EXTRAS | OF_COMMANDS) - {"pyspark"}),
        ("import zapdb.aio", EXTRAS | OF_COMMANDS | {"typer"}),
        ("import zapdb; zapdb.connect", (EXTRAS | OF_COMMANDS | {"numpy"}) - {"alembic"}),
        ("import zapdb.service.server", (EXTRAS | {"numpy"})),
        (VERSION, ALL - {"typer"}),
        (CHECK, EXTRAS | OF_COMMANDS | {"sqlalchemy", "sqlite3"}),
        (WRONG, EXTRAS | OF_COMMANDS),
        (HELP, ALL - {"typer"}),
    ],
    ids=[
        *("import", "errors", "open", "task of Spark", "aio", "connect", "server", "version"),
        *("check", "wrong usage", "help"),
    ],
)
def test_what_is_not_needed_is_not_loaded(statement: str, unwanted: set[str]) -> None:
    script = f"{statement}\nimport sys\nprint(sorted({unwanted!r} & sys.modules.keys()))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout.splitlines()[-1:] == ["[]"], done.stdout + done.stderr


OF_EACH_COMMAND = {"commands", "did_you_mean_command", "output", "program", "sensitive_arguments"}


@pytest.mark.parametrize(
    ("statement", "modules", "unwanted"),
    [
        (HELP, set(), {"catalog", "migrations", "storage"}),
        (
            STATUS,
            {"addresses", "configuration", "migration_status", "connecting"},
            {"database", "jobs", "past", "tables"},
        ),
        (
            JOBS,
            {"addresses", "configuration", "jobs", "connecting"},
            {"database", "past", "tables"},
        ),
    ],
    ids=["help", "status", "jobs"],
)
def test_a_command_imports_the_modules_of_no_other(
    statement: str, modules: set[str], unwanted: set[str], tmp_path: Path
) -> None:
    """Of the command line, those that it needs; of the package, none of rooms that it doesn't."""
    address = f"sqlite:///{tmp_path}/test.db"
    (tmp_path / "0001_people.yaml").write_text(PEOPLE, encoding="utf-8")
    with zapdb.open(address, migrations=tmp_path, apply="auto"):
        pass
    script = (
        f"{statement.format(str(tmp_path), address)}\n"
        "import sys\n"
        "parts = [name.split('.') for name in sys.modules if name.startswith('zapdb.')]\n"
        "print(sorted(part[2] for part in parts if part[1] == 'cli' and len(part) == 3))\n"
        "print(sorted({part[1] for part in parts}))\n"
        "print('pydantic' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    imported, rooms, has_pydantic = map(ast.literal_eval, done.stdout.splitlines()[-3:])
    assert set(imported) == OF_EACH_COMMAND | modules, done.stderr
    assert set(rooms) & unwanted == set()
    assert not has_pydantic


def test_garbage_is_collected_once_a_command_is_loaded() -> None:
    script = (
        "import gc, zapdb.cli.program as program\n"
        "program.put_off_collection()\n"
        "before = gc.isenabled()\n"
        "program.run_program(['verify'])\n"
        "print(before, gc.isenabled(), gc.get_freeze_count() > 100_000)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout.splitlines()[-1:] == ["False True True"], done.stdout + done.stderr


def test_the_package_has_the_names_that_applications_use() -> None:
    names = {*zapdb.__all__, "open"}
    assert names <= set(dir(zapdb))
    for name in names:
        assert getattr(zapdb, name) is not None
    assert {"Database", "Page", "Query", "Record", "Snapshot", "Table", "Transaction"} <= names
    assert issubclass(zapdb.errors.RecordNotFound, zapdb.ZapdbError)
    with pytest.raises(AttributeError, match="no attribute 'opne'"):
        zapdb.opne  # type: ignore[attr-defined]  # noqa: B018 - what is tested


def test_a_star_import_leaves_pythons_own_open_alone() -> None:
    namespace: dict[str, object] = {}
    exec("from zapdb import *", namespace)
    assert "Database" in namespace
    assert namespace.get("open", builtins.open) is builtins.open
