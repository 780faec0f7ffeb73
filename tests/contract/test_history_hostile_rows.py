"""Rows of the manifest that somebody else wrote, in the database or in a directory: no file of the
host is deleted for them, and no rows are made of them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from pyarrow import parquet

from tests.contract.stored_pasts import begin, flush, read_manifest
from tests.contract.test_history_erased import ANOTHER, KEY, make_people
from tests.contract.test_history_rebuilt import lose_manifest
from tests.support import Workspace, error_of
from zapdb.catalog.cluster.leases import Owner
from zapdb.database import Database
from zapdb.errors import CorruptCatalog, HistoryDamaged
from zapdb.past.files.cleaning import delete_retired
from zapdb.past.files.manifest_files import DIGEST_DIGITS, list_manifests
from zapdb.past.files.stores import hold_store

Json = dict[str, Any]


def sweep(db: Database) -> int:
    db.admin.set_setting("history_grace_seconds", "0")
    with hold_store(db._storage, db._catalog.tenant, Owner.here(), 10) as working:
        return delete_retired(working)


ROWS: list[Json] = [
    {"id": "../../../victim"},
    {"id": "A" * 32},
    {"id": "a" * 31},
    {"kind": "../../victim"},
    {"kind": ""},
    {"directory": "elsewhere"},
    {"first_moment": -1},
    {"last_moment": 0},
    {"rows": -1},
    {"table_number": 0},
    {"retired_at": "now"},
]


def test_a_row_that_zapdb_does_not_write_is_refused(workspace: Workspace, tmp_path: Path) -> None:
    db = make_people(workspace, tmp_path / "store")
    victim = tmp_path / "victim.parquet"
    victim.write_bytes(b"not of zapdb")
    names = "id, kind, directory, first_moment, last_moment, rows, table_number, state, retired_at"
    sql = f"SELECT {names} FROM zapdb_history_files WHERE kind = 'checkpoint' LIMIT 1"
    row = dict(zip(names.split(", "), workspace.execute(sql)[0], strict=True))
    for changed in ROWS:
        if workspace.engine == "postgresql" and "retired_at" in changed:
            continue  # its columns have types
        made = row | {"state": "retired", "retired_at": 0} | changed
        write(workspace, row["id"], made)
        with pytest.raises(CorruptCatalog):
            sweep(db)
        with suppress(CorruptCatalog):  # it looks at the live ones first
            db.history.erase_fields("people", "name")
        assert victim.exists()
        write(workspace, made["id"], row)
    workspace.execute("UPDATE zapdb_history_stores SET timeline = '../x'")
    with pytest.raises(CorruptCatalog):
        sweep(db)


def write(workspace: Workspace, id: str, row: Json) -> None:
    columns = ", ".join(f"{column} = ?" for column in row)
    workspace.execute(f"UPDATE zapdb_history_files SET {columns} WHERE id = ?", [*row.values(), id])


def test_a_file_of_another_database_is_not_deleted(workspace: Workspace, tmp_path: Path) -> None:
    """Its row is as zapdb writes it, but for the directory."""
    other = tmp_path / "other"
    with Workspace("sqlite", f"sqlite:///{tmp_path}/other.db", workspace.directory) as stranger:
        make_people(stranger, other).close()
    there = {path: path.read_bytes() for path in other.rglob("*") if path.is_file()}
    foreign = next(path for path in there if path.name.startswith("checkpoint-"))
    db = make_people(workspace, tmp_path / "store")
    file = next(file for file in read_manifest(db)[2] if file.kind == "checkpoint")
    workspace.execute(
        "UPDATE zapdb_history_files SET id = ?, directory = ?, state = 'retired', retired_at = 0"
        " WHERE id = ?",
        [foreign.stem.partition("-")[2], str(other), file.id],
    )
    sweep(db)
    assert {path: path.read_bytes() for path in other.rglob("*") if path.is_file()} == there
    db.table("people").delete(KEY)
    with pytest.raises(HistoryDamaged, match="of another database"):
        db.history.erase("people", KEY)
    assert {path: path.read_bytes() for path in other.rglob("*") if path.is_file()} == there
    # Nor is a whole file of another program, which is not a damaged one.
    parquet.write_table(pyarrow.table({"n": [1, 2]}), foreign)
    there[foreign] = foreign.read_bytes()
    sweep(db)
    with pytest.raises(HistoryDamaged, match="not a file of a history store"):
        db.history.erase("people", KEY)
    assert {path: path.read_bytes() for path in other.rglob("*") if path.is_file()} == there


def test_a_removed_tenant_takes_its_own_files_alone(workspace: Workspace, tmp_path: Path) -> None:
    """Whatever directory the rows name."""
    make_people(workspace, tmp_path / "store").close()
    db = workspace.open()
    db.admin.create_tenant("acme")
    with db.for_tenant("acme") as acme:
        acme.admin.set_setting("change_log", "on")
        acme.table("people").insert(mail=ANOTHER, name="Anna")
        number = acme._catalog.tenant
        begin(acme, tmp_path / "acme")
        flush(acme)
    home = tmp_path / "home"
    kept = home / str(number) / "1" / "letter.txt"
    kept.parent.mkdir(parents=True)
    kept.write_text("Dear Anna")
    (kept.parent / "checkpoint-0a.part").write_text("of another program")
    (home / str(number) / "table.parquet").write_text("of another program")
    workspace.execute(
        "UPDATE zapdb_history_stores SET directory = ? WHERE tenant = ?", [str(home), number]
    )
    db.admin.remove_tenant("acme")
    assert len([path for path in home.rglob("*") if path.is_file()]) == 3


def no_files(manifest: Json) -> None:
    manifest["files"] = []


def twice(manifest: Json) -> None:
    manifest["files"].append(dict(manifest["files"][0]))


def without_a_checkpoint(manifest: Json) -> None:
    manifest["files"] = [one for one in manifest["files"] if one["kind"] != "checkpoint"]


def without_an_era(manifest: Json) -> None:
    manifest["eras"] = manifest["eras"][1:]


def era_twice(manifest: Json) -> None:
    manifest["eras"].append(dict(manifest["eras"][0]))


def without_moments(manifest: Json) -> None:
    manifest["files"] = [one for one in manifest["files"] if one["kind"] != "moments"]


def setting(part: str, name: str, value: Any) -> Callable[[Json], None]:
    def change(manifest: Json) -> None:
        row = manifest[part]
        if part != "store":
            row = next(one for one in row if one.get("kind") != "moments")
        row[name] = value

    return change


HOSTILE = {
    "no files": no_files,
    "a file twice": twice,
    "no checkpoint": without_a_checkpoint,
    "an era is missing": without_an_era,
    "an era twice": era_twice,
    "no moments": without_moments,
    "another tenant's era": setting("eras", "tenant", 2),
    "another timeline's era": setting("eras", "timeline", "a" * 32),
    "another tenant's file": setting("files", "tenant", 2),
    "another timeline's file": setting("files", "timeline", "a" * 32),
    "a negative end": setting("store", "ends", -1),
    "an end before the beginning": setting("store", "begins", 10_000),
    "moments are missing": setting("store", "ends", 10_000),
    "an era of no table": setting("eras", "table_number", -3),
    "an era without number": setting("eras", "era", 0),
    "an era with a negative end": setting("eras", "last_moment", -1),
    "an era behind the store": setting("eras", "first_moment", 10_000),
    "a negative number of rows": setting("eras", "live_rows", -1),
    "a file with a negative size": setting("files", "size_bytes", -1),
    "a file behind the store": setting("files", "last_moment", 10_000),
    "a file of no era": setting("files", "era", 99),
    "a retired file": setting("files", "state", "retired"),
    "a file elsewhere": setting("files", "id", "../../x"),
    "a file in a relative directory": setting("files", "directory", "../x"),
    "a file in a directory of two lines": setting("files", "directory", "/x\ny"),
    "a store in a directory of two lines": setting("store", "directory", "/x\ny"),
    "a former directory that moves a cursor": setting("store", "former_directories", ["/\x1b[2J"]),
    "a timeline elsewhere": setting("store", "timeline", "../../x"),
    "a negative commit": setting("store", "commits", -1),
}


@pytest.fixture
def kept(workspace: Workspace, tmp_path: Path) -> tuple[Database, Path, bytes]:
    """A store whose rows are lost, and its manifest."""
    db = make_people(workspace, tmp_path / "store")
    lose_manifest(workspace)
    (path,) = list_manifests(tmp_path / "store", 1)
    return db, path, path.read_bytes()


def test_a_manifest_that_contradicts_itself_is_refused(
    kept: tuple[Database, Path, bytes],
) -> None:
    db, path, raw = kept
    place = path.parent.parent
    for name, change in HOSTILE.items():
        manifest = json.loads(raw)
        change(manifest)
        made = json.dumps(manifest).encode()
        assert manifest != json.loads(raw), name
        digest = hashlib.sha256(made).hexdigest()[:DIGEST_DIGITS]
        hostile = path.with_name(f"{path.stem.rpartition('-')[0]}-{digest}.json")
        path.unlink(missing_ok=True)
        hostile.write_bytes(made)
        error = error_of(lambda: db.history.rebuild_manifest(place))
        assert isinstance(error, HistoryDamaged), name
        assert error.message == "this is not a manifest of a history store", name
        hostile.unlink()
    path.write_bytes(raw)
    db.history.rebuild_manifest(place)
    assert db.history.verify(sample=9).problems == ()
