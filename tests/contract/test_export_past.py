"""Past moments as directories, and the databases that are made of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

import zapdb
from tests.contract.every_type import fill, make_shop
from tests.contract.stored_pasts import begin, flush
from tests.contract.tables import ADD_COLOR, ITEMS
from tests.support import PostgresServer, Workspace, error_of
from zapdb.activation.rollback import roll_back
from zapdb.database import Database
from zapdb.errors import HistoryGap, HistoryNotStored
from zapdb.transfer.export.directory import export_directory
from zapdb.transfer.export.export_loading import load_export
from zapdb.transfer.export.manifest import Form, Manifest, read_manifest


def describe(made: Manifest) -> tuple[Any, ...]:
    """What an export says of a state, without archived values and numbers of sequences."""
    tables = [structs.replace(table, archive=None, sequences={}) for table in made.tables]
    return made.position, made.chain, sorted(tables, key=lambda table: table.name)


def add_migration(db: Database, workspace: Workspace, *operations: str) -> Database:
    db.close()
    workspace.write(4, *operations)
    return workspace.open()


def fill_later(db: Database, numbers: range) -> None:
    for number in numbers:
        values = zapdb.asdict(db.table("orders").get(number - 20))
        token = {"id": number, "parent": None, "settled": not values["settled"]}
        db.table("orders").insert(**{**values, **token})


@pytest.mark.long_on("postgresql")
def test_a_past_is_exported_as_the_present_was(
    workspace: Workspace, tmp_path: Path, postgres: PostgresServer
) -> None:
    """Every type, on the files and rewound, through a migration that was rolled back since."""
    form: Form = "parquet" if workspace.engine == "sqlite" else "ndjson"
    db = make_shop(workspace, orders=40)
    db.admin.set_setting("change_log", "on")
    begin(db, tmp_path / "store")
    exported = dict[int, Manifest]()

    def note() -> None:
        moment = next(db.moments()).number
        exported[moment] = export_directory(db, tmp_path / f"now-{moment}", form=form)

    fill(db, range(40, 60))
    note()
    db = add_migration(db, workspace, "rename_field: {table: orders, field: paid, to: settled}")
    fill_later(db, range(60, 70))
    note()
    flush(db)
    db.close()
    with workspace.follow() as tool:
        roll_back(tool._storage)
    db = add_migration(
        db,
        workspace,
        "drop_field: {table: orders, field: weight, restore: {archive: true, otherwise:"
        " {value: '1.5'}}}",
        "rename_table: {table: customers, to: clients}",
        "drop_index: {table: orders, index: by_token}",
    )
    note()
    db.table("orders").delete(3)
    note()
    flush(db)
    pinned = list[Any]()

    def look(_: object) -> None:
        pins = "SELECT count(*) FROM zapdb_leases WHERE substr(name, 1, 12) = 'history-pin/'"
        pinned.append(workspace.execute(pins))

    for moment, made in exported.items():
        past, to = db.at(moment), tmp_path / f"then-{moment}"
        found = export_directory(past, to, form=form, progress=look)
        assert pinned.pop() == [(1,)]
        assert describe(found) == describe(made), moment
        told = read_manifest(tmp_path / f"then-{moment}").moment
        assert told is not None
        assert (told.number, told.doubts) == (moment, {})
        for path in sorted((tmp_path / f"now-{moment}" / "migrations").iterdir()):
            then = tmp_path / f"then-{moment}" / "migrations" / path.name
            assert then.read_bytes() == path.read_bytes()
    moment = list(exported)[1]
    with postgres.fresh_database() as address:
        address = address if workspace.engine == "sqlite" else f"sqlite:///{tmp_path}/other.db"
        loaded = load_export(tmp_path / f"then-{moment}", address)
        assert (loaded.moment, loaded.position) == (moment, 4)
        with zapdb.open(address) as copy:
            assert "settled" in copy.table("orders").field_names
            assert copy.table("orders").count() == 70
            again_made = export_directory(copy, tmp_path / "again", form=form)
    assert describe(again_made) == describe(exported[moment])


def test_what_there_was_not_is_refused(workspace: Workspace, tmp_path: Path) -> None:
    workspace.write(1, ITEMS.replace("type: integer}", "type: integer, generated: sequence}", 1))
    db = workspace.open()
    db.admin.set_setting("change_log", "on")
    db.table("items").insert(title="a")
    early = next(db.moments()).number
    for _ in range(3):
        db.table("items").insert(title="b")
    made = export_directory(db.at(early), tmp_path / "early")
    assert [table.records for table in made.tables] == [1]
    assert {one.name for one in made.settings} == {"change_log"}
    (job,) = db.jobs.list()
    assert (job.kind, job.state, job.subject) == ("export", "done", str(tmp_path / "early"))
    assert (db.jobs.get(job.id).progress.read, db.jobs.get(job.id).reads) == (1, 1)
    load_export(tmp_path / "early", f"sqlite:///{tmp_path}/early.db")
    with zapdb.open(f"sqlite:///{tmp_path}/early.db") as copy:
        drawn = copy.table("items").insert(title="c").id
    assert drawn > 4, "no number is drawn twice"
    error = error_of(lambda: export_directory(db.at(0), tmp_path / "none"))
    assert type(error) is HistoryGap
    workspace.write(2, ADD_COLOR)
    db.close()
    db = workspace.open()
    error = error_of(lambda: export_directory(db.at(early), tmp_path / "none"))
    assert type(error) is HistoryNotStored
    assert not (tmp_path / "none").exists()
    error = error_of(lambda: export_directory(db.at(next(db.moments())), tmp_path / "early"))
    assert error.message == "the directory is not empty"
