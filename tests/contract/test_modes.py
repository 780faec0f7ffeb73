"""Files that are made with records of a database are read by nobody who may not read that."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.contract.tables import ITEMS
from tests.support import Workspace
from zapdb.cli.program import run_program
from zapdb.database import Database
from zapdb.transfer.export.all_tenants_export import export_all_tenants
from zapdb.transfer.export.directory import export_directory
from zapdb.transfer.export.sql_script import export_sql
from zapdb.transfer.mirror.keeping import keep_mirror

Make = Callable[[Database, Path], object]


def begin_history(db: Database, path: Path) -> None:
    db.admin.set_setting("change_log", "on")
    db.history.start(path)
    db.table("items").insert(id=9, title="later")
    db.history.flush()


def want_histories(db: Database, path: Path) -> None:
    db.admin.set_setting("history_store", str(path))
    db.admin.create_tenant(path.name)
    db.for_tenant(path.name).table("items").insert(id=9, title="later")
    db.for_tenant(path.name).history.flush()


def run(*arguments: str) -> Make:
    def call(db: Database, path: Path) -> None:
        given = [one.replace("{path}", str(path)) for one in arguments]
        assert run_program([*given, "-d", db._storage.shown_url]) in (0, 3)

    return call


def skip_rows(db: Database, path: Path) -> None:
    rows = path.with_name("rows.csv")
    rows.write_text("id,title\nx,y\n")
    options = ("--on-error", "skip", "--skipped", "{path}")
    run("import", str(rows), "--table", "items", *options)(db, path)
    rows.unlink()


MAKERS: dict[str, Make] = {
    "a directory": lambda db, path: export_directory(db, path),
    "a directory of all tenants": lambda db, path: export_all_tenants(db, path, form="csv"),
    "the change log": run("export", "{path}", "--change-log", "-f", "csv"),
    "the past": lambda db, path: export_directory(db.at(next(db.moments())), path, form="csv"),
    "a script": lambda db, path: export_sql(db, path, "sqlite"),
    "records": run("data", "export", "items", "-o", "{path}"),
    "skipped rows": skip_rows,
    "a history store": begin_history,
    "the history stores of all tenants": want_histories,
    "a mirror in SQLite": lambda db, path: keep_mirror(db, f"sqlite:///{path}", once=True),
    "a mirror in DuckDB": lambda db, path: keep_mirror(db, f"duckdb:{path}", once=True),
}


@contextmanager
def umask(mask: int) -> Iterator[None]:
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


def who_may_read(path: Path, top: Path) -> int:
    """The bits of a file's readers who may look through all directories that lead to it."""
    found = path.stat().st_mode & 0o044
    for directory in path.parents:
        if directory == top:
            break
        found &= (directory.stat().st_mode & 0o011) << 2
    return found


@pytest.mark.parametrize("engine", ["sqlite"])
@pytest.mark.parametrize("what", MAKERS)
def test_what_is_made_of_a_private_database_is_private(
    workspace: Workspace, tmp_path: Path, what: str
) -> None:
    workspace.write(1, ITEMS)
    db = workspace.open()
    db.admin.set_setting("change_log", "on")
    db.table("items").insert_many({"id": n, "title": "secret"} for n in range(3))
    file = Path(workspace.address.removeprefix("sqlite:///"))
    top = tmp_path / "top"
    top.mkdir()
    for mode, readers in ((0o600, 0), (0o640, 0o040), (0o644, 0o044)):
        file.chmod(mode)
        place = top / f"{mode:o}"
        with umask(0o022):
            MAKERS[what](db, place)
        made = [path for path in (place, *place.rglob("*")) if path.is_file()]
        shown = [path for path in made if who_may_read(path, top) & ~readers]
        assert made
        assert [one for one in shown if stat.S_ISREG(one.stat().st_mode)] == []
        if what == "a history store":
            break  # it has one directory
