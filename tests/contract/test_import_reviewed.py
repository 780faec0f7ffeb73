"""What `--infer` writes is a migration that zapdb takes; what it says of the rest; and that what is
not wanted may be deleted from the file."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
import yaml

from tests.contract.test_import_databases import Place
from tests.contract.test_import_databases import place as place
from tests.support import PostgresServer, Workspace

LONG = "a" * 62


@pytest.fixture
def lite(workspace: Workspace, tmp_path: Path) -> Place:
    return Place(workspace, f"sqlite:///{tmp_path / 'source.db'}", tmp_path)


def subjects(notes: list[dict[str, Any]]) -> set[str]:
    return {note["subject"] for note in notes}


@pytest.mark.on_each_engine
def test_what_no_migration_may_have_is_left_out(place: Place) -> None:
    is_sqlite = "sqlite" in place.source
    now = "'now'" if is_sqlite else "('now'::text)::date"
    json_type = "JSON" if is_sqlite else "jsonb"
    place.execute(
        "CREATE TABLE parents (id INTEGER PRIMARY KEY)",
        "CREATE TABLE things (id INTEGER PRIMARY KEY, day DATE DEFAULT CURRENT_DATE,"
        f" said DATE DEFAULT {now}, until DATE DEFAULT '2024-02-29', n INTEGER DEFAULT NULL,"
        " parent INTEGER NOT NULL REFERENCES parents ON DELETE SET NULL,"
        f" extra {json_type}, amount NUMERIC(5, 2) DEFAULT 1.5, w VARCHAR(9) CHECK (w > 'a'),"
        " size INTEGER CHECK (size >= 0), flag BOOLEAN DEFAULT '1')",
        f'CREATE TABLE "{LONG}-" (id INTEGER PRIMARY KEY)',
        f'CREATE TABLE "{LONG} " (id INTEGER PRIMARY KEY, "{LONG}-" INTEGER,'
        f' "{LONG} " INTEGER, "1st" INTEGER, "ä-ö" INTEGER, "zapdb" INTEGER, "A" INTEGER)',
        "CREATE INDEX i1 ON things (w, n)",
        *([] if is_sqlite else ["CREATE INDEX i2 ON things USING gin (extra)"]),
    )
    inferred = place.infer("--json")
    assert (inferred.status, inferred.err) == (0, "")
    place.migrate()
    text = place.migration()
    (things,) = [
        change["create_table"]
        for change in yaml.safe_load(text)["changes"]
        if change.get("create_table", {}).get("table") == "things"
    ]
    assert {f["name"]: f["default"] for f in things["fields"] if "default" in f} == {
        "until": "2024-02-29",
        "amount": "1.5",
        "flag": True,
    }
    assert "{table: things, field: parent, on_delete: restrict}" in text
    left_out = subjects(inferred.json["left_out"])
    assert {"things.day", "things.said"} <= left_out
    assert is_sqlite or "things.i2" in left_out
    names = set(inferred.json["tables"]) - {"things", "parents"}
    assert names == {LONG, f"{LONG[:61]}_2"}
    place.execute(
        "INSERT INTO parents VALUES (1)",
        "INSERT INTO things (id, parent, said) VALUES (1, 1, '2024-01-01')",
        f'INSERT INTO "{LONG} " VALUES (1, 2, 3, 4, 5, 6, 7)',
    )
    assert place.copy().status == 0


@pytest.mark.parametrize("engine", ["sqlite"])
def test_the_file_is_read_behind_those_that_are_there(lite: Place) -> None:
    """A table of a name that is taken is left out, and what refers to it keeps its values."""
    lite.workspace.write(
        1, "create_table: {table: people, key: [id], fields: [{name: id, type: uuid}]}"
    )
    lite.execute(
        "CREATE TABLE people (id INTEGER PRIMARY KEY)",
        "CREATE TABLE pets (id INTEGER PRIMARY KEY, owner INTEGER NOT NULL REFERENCES people)",
        "INSERT INTO people VALUES (1)",
        "INSERT INTO pets VALUES (1, 1)",
    )
    inferred = lite.infer("--json")
    assert inferred.status == 3
    assert subjects(inferred.json["left_out"]) == {"people", "pets.owner"}
    assert inferred.json["tables"] == {"pets": ["id", "owner"]}
    lite.migrate()
    copied = lite.copy("--exclude", "people")
    assert (copied.status, lite.records("pets")) == (0, [{"id": 1, "owner": 1}]), copied.err


@pytest.mark.parametrize("engine", ["sqlite"])
def test_keys_of_sqlite_in_any_case_and_to_nothing(lite: Place) -> None:
    lite.execute(
        "CREATE TABLE People (Id INTEGER PRIMARY KEY, Name TEXT, UNIQUE (NAME))",
        "CREATE TABLE pets (id INTEGER PRIMARY KEY, owner INTEGER REFERENCES PEOPLE (ID)"
        " ON DELETE CASCADE, Vet INTEGER, gone INTEGER REFERENCES people (nope),"
        " home INTEGER REFERENCES nowhere, FOREIGN KEY (VET) REFERENCES people ON DELETE SET NULL)",
        "INSERT INTO people VALUES (1, 'a')",
        "INSERT INTO pets VALUES (1, 1, 1, 5, 6)",
    )
    inferred = lite.infer("--json")
    assert (inferred.status, inferred.err) == (0, "")
    assert subjects(inferred.json["left_out"]) == {"pets.gone", "pets.home"}
    text = lite.migration()
    for part in (
        "add_reference: {table: pets, field: owner, on_delete: cascade}",
        "add_reference: {table: pets, field: vet, on_delete: set_null}",
        "unique: true",
    ):
        assert part in text, text
    lite.migrate()
    assert lite.copy().status == 0


@pytest.mark.on_each_engine
def test_what_is_deleted_from_the_file_is_not_imported(place: Place) -> None:
    place.execute(
        "CREATE TABLE logs (id INTEGER PRIMARY KEY, line VARCHAR(20))",
        "CREATE TABLE people (id INTEGER PRIMARY KEY, name VARCHAR(20), secret VARCHAR(20),"
        " log INTEGER REFERENCES logs)",
        "INSERT INTO logs VALUES (1, 'x')",
        "INSERT INTO people VALUES (1, 'a', 'b', 1)",
    )
    assert place.infer().status == 0
    (path,) = place.workspace.directory.glob("*.yaml")
    document = yaml.safe_load(path.read_text())
    (people,) = [
        change["create_table"]
        for change in document["changes"]
        if change.get("create_table", {}).get("table") == "people"
    ]
    people["fields"] = [field for field in people["fields"] if field["name"] != "secret"]
    people["fields"][-1] = {"name": "log", "type": "integer"}
    document["changes"] = [{"create_table": people}]
    path.write_text(yaml.safe_dump(document))
    place.migrate()
    copied = place.copy("--json")
    assert copied.status == 0, copied.err
    assert copied.json["not_here"] == ["logs", "people.secret"]
    assert copied.json["tables_left_out"] == []
    assert "logs, people.secret" in copied.err
    assert place.records("people") == [{"id": 1, "name": "a", "log": 1}]
    only = place.copy(
        "--mode", "upsert", "--only", "people", "--exclude", "people.secret", "--json"
    )
    assert (only.status, only.json["not_here"]) == (0, [])
    wrong = place.copy("--only", "poeple")
    assert (wrong.status, "no such table" in wrong.err, "people" in wrong.err) == (2, True, True)


@pytest.mark.on_each_engine
def test_chosen_tables_and_columns(place: Place) -> None:
    place.fill(8)
    inferred = place.infer("--json", "--exclude", "Employee", "--exclude", "Track.Released")
    assert inferred.status == 0, inferred.err
    assert "employee" not in inferred.json["tables"]
    assert "released" not in inferred.json["tables"]["track"]
    assert {"Customer.SupportRepId", "Track.Released"} <= subjects(inferred.json["left_out"])
    assert "support_rep_id" in inferred.json["tables"]["customer"]
    place.migrate()
    assert place.copy("--exclude", "Employee").status == 0
    place.workspace.remove(1)
    only = place.infer("--json", "--only", "Artist", "--only", "Album")
    assert set(only.json["tables"]) == {"artist", "album"}
    refused = place.run("import", __file__, "--format", "csv", "--only", "x")
    assert (refused.status, "tables of a database" in refused.err) == (2, True)


@pytest.mark.parametrize("engine", ["sqlite"])
def test_one_list_of_what_is_carried_changed_and_left_out(
    workspace: Workspace, postgres: PostgresServer, tmp_path: Path
) -> None:
    with postgres.fresh_database() as address:
        place = Place(workspace, address, tmp_path)
        place.execute(
            "CREATE DOMAIN citext AS text",  # of the extension's name, which is not on this server
            'CREATE TABLE things (id integer PRIMARY KEY, "Name" citext UNIQUE, code varchar(20),'
            " r int4range, price numeric(8, 2), other integer REFERENCES things ON UPDATE CASCADE"
            " DEFERRABLE, EXCLUDE USING gist (r WITH &&))",
            "COMMENT ON TABLE things IS 'of all kinds'",
            "COMMENT ON COLUMN things.price IS 'in euros'",
            "CREATE FUNCTION nothing() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END'",
            "CREATE TRIGGER watch BEFORE INSERT ON things FOR EACH ROW EXECUTE FUNCTION nothing()",
            "CREATE RULE quiet AS ON DELETE TO things DO INSTEAD NOTHING",
            "CREATE POLICY mine ON things USING (true)",
            "CREATE MATERIALIZED VIEW counted AS SELECT count(*) FROM things",
            "CREATE VIEW seen AS SELECT * FROM things",
            "CREATE SCHEMA elsewhere",
            "CREATE TABLE elsewhere.x (id integer)",
        )
        inferred = place.infer("--json")
        assert inferred.status == 0, inferred.err
        said = inferred.json
        assert said["carried"] == {
            "tables": 1, "fields": 6, "required fields": 1, "references": 1,
            "unique indexes": 1, "indexes": 1,
        }  # fmt: skip
        changed = [f"{note['subject']}: {note['text']}" for note in said["changed"]]
        left_out = [f"{note['subject']}: {note['text']}" for note in said["left_out"]]
        for wanted, found in (
            ("things: comment: of all kinds", changed),
            ("things.price: comment: in euros", changed),
            ("things: other names: Name is name", changed),
            ("things: sizes are not kept: code VARCHAR(20), price NUMERIC(8, 2)", changed),
            ("unique whatever the case there", changed),
            ("foreign keys that are deferrable (1)", changed),
            ("things.watch: a trigger", left_out),
            ("things.quiet: a rule", left_out),
            ("things.mine: a policy of row security", left_out),
            ("counted: a materialized view", left_out),
            ("seen: a view", left_out),
            ("the schema elsewhere: another schema", left_out),
            ("an exclusion constraint: EXCLUDE USING gist", left_out),
            ("things: on update of other", left_out),
            ("functions and procedures (1)", left_out),
        ):
            assert any(wanted in line for line in found), (wanted, found)
        place.workspace.remove(1)
        printed = place.infer().out
        assert "carried: 1 tables, 6 fields" in printed
        assert printed.index("changed; comments") < printed.index("left out; comments")


@pytest.mark.parametrize("engine", ["sqlite"])
def test_virtual_tables_of_sqlite_and_the_tables_behind_them(lite: Place) -> None:
    lite.execute(
        "CREATE TABLE notes (id INTEGER PRIMARY KEY, body TEXT COLLATE NOCASE UNIQUE)",
        "CREATE VIRTUAL TABLE found USING fts5(body)",
        "CREATE VIRTUAL TABLE boxes USING rtree(id, low, high)",
        "CREATE TRIGGER watch AFTER INSERT ON notes BEGIN SELECT 1; END",
        "INSERT INTO found VALUES ('x')",
        "INSERT INTO boxes VALUES (1, 0.5, 1)",
    )
    inferred = lite.infer("--json")
    assert inferred.json["tables"] == {"notes": ["id", "body"]}
    assert subjects(inferred.json["left_out"]) == {"found", "boxes", "notes.watch"}
    assert "the 5 tables behind it" in str(inferred.json["left_out"])
    assert any("whatever the case" in note["text"] for note in inferred.json["changed"])
    with contextlib.closing(sa.create_engine(lite.source).connect()):
        lite.migrate()
    assert lite.copy().status == 0
