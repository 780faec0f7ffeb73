"""What a statement about the past reads of files: those of its tables, and nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import pytest

from tests.contract.sql_attacks import REACH
from tests.contract.stored_pasts import begin, read_manifest
from tests.contract.tables import ITEMS
from tests.support import Workspace
from zapdb.database import Database
from zapdb.errors import SqlError, UsageError, ZapdbError
from zapdb.sandbox.inside.statement import open_duckdb

SECRET = "k9Xq-not-for-you"

pytestmark = pytest.mark.parametrize("engine", ["sqlite"])  # which one does not matter here


@pytest.fixture
def db(workspace: Workspace, tmp_path: Path) -> Database:
    """Two tables in one store; the second one has the secret."""
    secrets = ITEMS.replace("items", "secrets")
    workspace.write(1, ITEMS, secrets)
    db = workspace.open()
    db.admin.set_setting("change_log", "on")
    db.table("items").insert(id=1, title="x")
    db.table("secrets").insert(id=1, title=SECRET)
    begin(db, tmp_path / "store")
    return db


def paths(db: Database) -> dict[int, Path]:
    """The path of the checkpoint of each table, by its number."""
    store, _, files = read_manifest(db)
    return {
        file.table_number: Path(store.directory) / file.path
        for file in files
        if file.kind == "checkpoint"
    }


def answer(past: Any, statement: str) -> str:
    """What it answers to a statement, which also names the table: so its files are open."""
    try:
        return str(past.sql(f"{statement} --items").fetchall())
    except ZapdbError as error:
        return str(error)


def test_no_other_file_is_within_reach(
    db: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "place"
    (place / ".tmp").mkdir(parents=True)
    for name in ("secret.csv", ".tmp/spilled", ":memory:"):
        (place / name).write_text(f"a,b\n{SECRET},1\n")
    monkeypatch.chdir(place)
    past = db.at(next(db.moments()))
    assert answer(past, "SELECT title FROM items") == "[('x',)]"
    names = {"file": place / "secret.csv", "dir": place, "name": place.name}
    for attack in REACH:
        assert SECRET not in answer(past, attack.format(**names)), attack
    mine, other = paths(db).values()
    for attack in (
        f"SELECT * FROM '{other}'",
        f"SELECT * FROM read_parquet('{mine.parent}/../{other.parent.name}/{other.name}')",
        f"SELECT * FROM read_parquet(['{mine}', '{other}'], union_by_name = true)",
        f"SELECT * FROM read_parquet('{mine.parent.parent}/*/*.parquet')",
        f"SELECT * FROM read_blob('{other}')",
        f"SELECT * FROM glob('{mine.parent.parent}/**')",
    ):
        told = answer(past, attack)
        assert SECRET not in told, attack
        assert "Cannot access" in told, attack


def test_nothing_is_written(db: Database, tmp_path: Path) -> None:
    past, (mine, _) = db.at(next(db.moments())), paths(db).values()
    before = {path: path.read_bytes() for path in tmp_path.rglob("*.parquet")}
    statements = (
        f"COPY items TO '{mine}'",
        f"COPY items TO '{mine.parent}/new.parquet' (FORMAT parquet)",
        f"ATTACH '{tmp_path}/new.db'",
        f"ATTACH '{mine}' AS items2",
        f"EXPORT DATABASE '{tmp_path}/new'",
        "SET enable_external_access = true",
        "SET allowed_paths = ['/etc/passwd']",
        "CREATE TABLE t AS SELECT * FROM items",
    )
    for statement in statements:
        with pytest.raises((UsageError, SqlError)):
            past.sql(f"{statement} --items")
    # The same where nothing looks at the kind of a statement.
    duck = open_duckdb(None, [str(mine)])
    duck.execute("SET lock_configuration = true")
    duck.read_parquet(str(mine)).create_view("items")
    for statement in statements[:3] + statements[4:7]:
        with pytest.raises(duckdb.Error, match=r"disabled by configuration|locked"):
            duck.execute(statement)
    assert duck.execute("SELECT title FROM items").fetchall() == [("x",)]
    assert {path: path.read_bytes() for path in tmp_path.rglob("*.parquet")} == before
    assert not list(tmp_path.rglob("new*"))
