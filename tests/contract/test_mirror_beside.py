"""What others have beside a mirror's tables, or have added to them: it stays as it is, or the table
is made again and what is lost is named."""

from __future__ import annotations

from contextlib import closing

import pytest

import zapdb
from tests.contract.mirrors import Place, check, in_pairs, keep, place
from tests.contract.test_mirror_constraints import (
    STEPS,
    compare_lacking,
    found_keys,
    start,
    status_of,
)
from tests.support import Workspace
from zapdb.activation.up import MigrationChoice, migrate_up
from zapdb.catalog import DEFAULT_TENANT
from zapdb.cli.program import run_program
from zapdb.database import Database
from zapdb.transfer.mirror.mirror import Mirror
from zapdb.transfer.mirror.mirror_run import run_mirror
from zapdb.transfer.mirror.target_opening import open_target

__all__ = ["place"]

in_sqlite = pytest.mark.parametrize(("engine", "place"), [("sqlite", "sqlite")], indirect=["place"])
in_postgresql = pytest.mark.parametrize(
    ("engine", "place"), [("sqlite", "postgresql")], indirect=["place"]
)
in_both = pytest.mark.parametrize(
    ("engine", "place"),
    [("sqlite", "sqlite"), ("postgresql", "postgresql")],
    indirect=["place"],
)

TABLES_OF_OTHERS = {
    "autoincrement": "(id INTEGER PRIMARY KEY AUTOINCREMENT, pet INTEGER REFERENCES pets(id)"
    " ON DELETE CASCADE, CHECK (pet > 0))",
    "unique": "(id INTEGER PRIMARY KEY, pet INTEGER UNIQUE COLLATE NOCASE REFERENCES pets(id))",
    "without rowid": "(id TEXT PRIMARY KEY, pet INTEGER REFERENCES pets(id)) WITHOUT ROWID",
    "no key": "(id INTEGER, pet INTEGER REFERENCES pets(id))",
    "generated": "(id INTEGER PRIMARY KEY, g INTEGER GENERATED ALWAYS AS (id + 1) STORED,"
    " pet INTEGER REFERENCES pets(id))",
    "itself": "(id INTEGER PRIMARY KEY, pet INTEGER REFERENCES own(id))",
    "descending": "(id INT PRIMARY KEY DESC, pet INTEGER REFERENCES pets(id))",
    "default": "(id INTEGER PRIMARY KEY, at TEXT DEFAULT (datetime('now')),"
    " pet INTEGER REFERENCES pets)",
    "strict": "(id INTEGER PRIMARY KEY, pet INTEGER REFERENCES pets(id) DEFERRABLE) STRICT",
}
OF_OTHERS = (
    "SELECT type, name, sql FROM sqlite_schema"
    " WHERE tbl_name = 'own' OR name LIKE 'own!_%' ESCAPE '!' ORDER BY name"
)


def run(workspace: Workspace, place: Place, *options: str) -> int:
    arguments = ["-d", workspace.address, "--to", place.address]
    return run_program(["mirror", "run", "--once", *options, *arguments])


def migrate(workspace: Workspace, db: Database, number: int) -> Database:
    workspace.write(number, *STEPS[number - 2])
    db.close()
    db = workspace.open()
    db.admin.run_jobs()
    return db


@in_sqlite
@pytest.mark.parametrize("kind", TABLES_OF_OTHERS)
def test_a_table_of_others_stays(workspace: Workspace, place: Place, kind: str) -> None:
    db = start(workspace)
    keep(db, place)
    place.execute(f"CREATE TABLE own {TABLES_OF_OTHERS[kind]}")
    place.execute("INSERT INTO own (id, pet) VALUES (1, 1)")
    before = place.execute(OF_OTHERS), place.execute("SELECT * FROM own")
    for options in ([], ["--no-foreign-keys"], ["--foreign-keys"], []):
        assert run(workspace, place, *options) == 0
    for number in (2, 3, 4):
        db = migrate(workspace, db, number)
        assert run(workspace, place) == 0
    assert (place.execute(OF_OTHERS), place.execute("SELECT * FROM own")) == before
    assert place.execute("PRAGMA integrity_check") == [("ok",)]
    place.execute("INSERT INTO own (id, pet) VALUES (2, 2)")
    assert set(compare_lacking(db, place).values()) == {""}
    assert set().union(*status_of(db, place).values()) == set()


@in_postgresql
def test_a_foreign_key_of_others_stays(workspace: Workspace, place: Place) -> None:
    keep(start(workspace), place)
    place.execute(
        "CREATE TABLE own (id int PRIMARY KEY,"
        " pet bigint CONSTRAINT zapdb_reference_9_9 REFERENCES pets (id))"
    )
    for options in ([], ["--no-foreign-keys"], ["--foreign-keys"], []):
        assert run(workspace, place, *options) == 0
        found = "SELECT conrelid::regclass::text FROM pg_constraint"
        assert place.execute(f"{found} WHERE conname = 'zapdb_reference_9_9'") == [("own",)]


@in_sqlite
def test_what_others_added_stays_where_constraints_change(
    workspace: Workspace, place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    db = start(workspace)
    keep(db, place)
    for statement in (
        "CREATE TABLE own (pet INTEGER)",
        "CREATE VIEW own_view AS SELECT pets.id, note FROM pets JOIN owners ON owners.id = owner_1",
        "CREATE TRIGGER own_made AFTER INSERT ON pets BEGIN INSERT INTO own VALUES (new.id); END",
        "CREATE TRIGGER own_gone AFTER DELETE ON own BEGIN DELETE FROM pets WHERE 0; END",
        "CREATE UNIQUE INDEX own_index ON pets (id, size) WHERE id > 0",
        "CREATE INDEX own_expression ON pets (id + 1)",
        "CREATE INDEX own_marks ON pets (size) WHERE size <> '{table} {name}'",
    ):
        place.execute(statement)
    before = place.execute(OF_OTHERS)
    capsys.readouterr()
    for options in (["--no-foreign-keys"], ["--foreign-keys"]):
        assert run(workspace, place, *options) == 0
        assert capsys.readouterr().out == ""  # nothing was made again, and nothing is lost
        assert bool(found_keys(place)) == ("--foreign-keys" in options)
    db = migrate(workspace, db, 2)
    db = migrate(workspace, db, 3)
    assert run(workspace, place) == 0
    assert place.execute(OF_OTHERS) == before
    assert place.execute("SELECT * FROM own") == []  # no row was inserted again
    assert len(place.execute("SELECT * FROM own_view")) == 6
    assert place.execute("PRAGMA integrity_check") == [("ok",)]
    assert set().union(*status_of(db, place).values()) == set()


@in_pairs
def test_marks_in_texts_of_others_are_texts(workspace: Workspace, place: Place) -> None:
    db = start(workspace)
    keep(db, place)
    if place.kind == "sqlite":
        place.execute("CREATE INDEX mine ON toys (id) WHERE id <> '{table} {name}'")
        shown = "SELECT sql FROM sqlite_schema WHERE name = 'mine'"
    else:
        place.execute("COMMENT ON TABLE toys IS '{name} {table}'")
        shown = "SELECT comment FROM duckdb_tables() WHERE table_name = 'toys'"
        if place.kind == "postgresql":
            shown = "SELECT obj_description('toys'::regclass)"
    before = place.execute(shown)
    if place.kind == "duckdb":
        place.execute("ALTER TABLE toys ADD COLUMN extra INTEGER")
    else:
        place.execute("ALTER TABLE toys RENAME COLUMN pet TO extra")
    assert run(workspace, place) == 0
    assert place.execute(shown) == before
    check(db, place)


GENERATED = {
    "sqlite": "ALTER TABLE owners ADD COLUMN g INTEGER GENERATED ALWAYS AS (id * 2) VIRTUAL",
    "postgresql": "ALTER TABLE owners ADD COLUMN g bigint GENERATED ALWAYS AS (id * 2) STORED",
}


@in_both
def test_a_table_with_a_generated_column_of_others_is_made_again(
    workspace: Workspace, place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    db = start(workspace)
    keep(db, place)
    place.execute(GENERATED[place.kind])
    place.execute("CREATE INDEX mine ON owners (g)")
    assert "others have changed or dropped it" in compare_lacking(db, place)["owners"]
    db = migrate(workspace, db, 2)
    assert run(workspace, place) == 0
    out = capsys.readouterr()
    assert "index mine of owners" in out.out + out.err
    check(db, place)


@in_both
@pytest.mark.parametrize("steps", range(7))
def test_a_generated_column_comes_between_any_steps(
    workspace: Workspace, place: Place, steps: int
) -> None:
    db = start(workspace)
    db.table("owners").insert(id=7, name="Ada", note="n")
    db.close()
    db = zapdb.open(workspace.address)  # without migrations: it follows those of others
    with closing(open_target(place.address, db._storage)) as target:
        mirror = Mirror(db, target)
        mirror.switch_on()
        run_mirror(mirror, once=True)
        workspace.write(2, *STEPS[0])
        workspace.write(3, "make_required: {table: owners, field: favourite, fill: {value: 3}}")
        choice = MigrationChoice(again=True)
        migrate_up(workspace.connect(), DEFAULT_TENANT, workspace.directory, choice)
        db._session.reload()
        for _ in range(steps):
            mirror.step()
        place.execute(GENERATED[place.kind])
        place.execute("CREATE INDEX mine ON owners (g)")
        db.admin.run_jobs()
        run_mirror(mirror, once=True)
    keep(db, place)
    check(db, place)
    db.close()


@in_postgresql
def test_an_index_of_others_with_the_name_of_a_foreign_key_stays(
    workspace: Workspace, place: Place
) -> None:
    db = start(workspace)
    keep(db, place)
    ((name,),) = place.execute(
        "SELECT conname FROM pg_constraint WHERE contype = 'f' AND conrelid = 'toys'::regclass"
    )
    assert run(workspace, place, "--no-foreign-keys") == 0
    indexes = f"SELECT indexdef FROM pg_indexes WHERE indexname = '{name}'"
    assert place.execute(indexes) == []
    place.execute(f"CREATE INDEX {name} ON toys (id)")
    before = place.execute(indexes)
    assert run(workspace, place, "--foreign-keys") == 0
    assert status_of(db, place)["toys"] != ()  # the index is in its way, as the log says
    assert place.execute(indexes) == before
    place.execute("ALTER TABLE toys DROP COLUMN pet")
    assert run(workspace, place, "--no-foreign-keys") == 0  # the table is made again
    assert place.execute(indexes) == before
    place.execute(f"DROP INDEX {name}")
    assert run(workspace, place, "--foreign-keys") == 0
    check(db, place)


@in_pairs
def test_a_foreign_key_comes_back_to_its_own_index(workspace: Workspace, place: Place) -> None:
    db = start(workspace)
    keep(db, place)
    if place.kind == "postgresql":
        ((name,),) = place.execute(
            "SELECT conname FROM pg_constraint WHERE contype = 'f' AND conrelid = 'toys'::regclass"
        )
        place.execute(f"ALTER TABLE toys DROP CONSTRAINT {name}")
    keep(db, place)
    check(db, place)
