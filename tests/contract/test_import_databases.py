"""`zapdb import` of other databases: a migration for their tables, and every row of them."""

from __future__ import annotations

import contextlib
import datetime
import decimal
import io
import json
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import sqlalchemy as sa

from tests import chinook, processes
from tests.contract.test_import_files import run_and_kill
from tests.support import PostgresServer, Workspace, wait_until
from zapdb import asdict
from zapdb.cli.program import run_program
from zapdb.database import Database


class Result(NamedTuple):
    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


class Place(NamedTuple):
    """A source without tables, and a database without migrations."""

    workspace: Workspace
    source: str
    directory: Path

    def run(self, *arguments: str) -> Result:
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            status = run_program(arguments)
        return Result(status, out.getvalue(), err.getvalue())

    def infer(self, *options: str) -> Result:
        return self.run("import", self.source, "--infer", "-m", self.migrations, *options)

    def migrate(self) -> None:
        assert self.run("migrate", "up", "-m", self.migrations, "-d", self.target).status == 0

    def copy(self, *options: str) -> Result:
        return self.run("import", self.source, "-d", self.target, *options)

    @property
    def migrations(self) -> str:
        return str(self.workspace.directory)

    @property
    def target(self) -> str:
        return self.workspace.address

    def migration(self) -> str:
        (path,) = self.workspace.directory.glob("*.yaml")
        return path.read_text()

    def execute(self, *statements: str) -> None:
        engine = sa.create_engine(self.source)
        with engine.begin() as connection:
            for statement in statements:
                connection.exec_driver_sql(statement)
        engine.dispose()

    def fill(self, size: int) -> None:
        chinook.fill(self.source, size).dispose()

    def source_rows(self, table: sa.Table) -> list[dict[str, Any]]:
        """The rows by SQLAlchemy's own types."""
        engine = sa.create_engine(self.source)
        query = sa.select(table).order_by(*table.primary_key.columns)
        with engine.connect() as connection:
            rows = [dict(row) for row in connection.execute(query).mappings()]
        engine.dispose()
        return rows

    def records(self, name: str) -> list[dict[str, Any]]:
        with contextlib.closing(self.workspace.follow()) as db:
            return [asdict(record) for record in db.table(name)]

    def count(self, name: str) -> int:
        with contextlib.closing(self.workspace.follow()) as db:
            return db.table(name).count()


@pytest.fixture(params=["from sqlite", "from postgresql"])
def place(request: pytest.FixtureRequest, workspace: Workspace, tmp_path: Path) -> Iterator[Place]:
    if request.param == "from sqlite":
        yield Place(workspace, f"sqlite:///{tmp_path / 'source.db'}", tmp_path)
        return
    server: PostgresServer = request.getfixturevalue("postgres")
    with server.fresh_database() as address:
        yield Place(workspace, address, tmp_path)


def expected(table: sa.Table, row: dict[str, Any]) -> dict[str, Any]:
    """A row as its record should be, from what is known of the shop."""
    made = {}
    for name, value in row.items():
        field = "".join(f"_{c.lower()}" if c.isupper() else c for c in name).lstrip("_")
        if isinstance(value, datetime.datetime):
            made[field] = value.replace(tzinfo=datetime.UTC)
        elif isinstance(value, chinook.Kind):
            made[field] = str(value)
        else:
            made[field] = value
    if table is chinook.INVOICE_LINE:
        made["invoice"] = (made.pop("invoice_country"), made.pop("invoice_number"))
    return made


def require_same(place: Place) -> None:
    for table in chinook.METADATA.sorted_tables:
        name = "".join(f"_{c.lower()}" if c.isupper() else c for c in table.name).lstrip("_")
        rows = [expected(table, row) for row in place.source_rows(table)]
        found = place.records(name)
        assert sorted(found, key=repr_of) == sorted(rows, key=repr_of), name


def repr_of(row: dict[str, Any]) -> str:
    return repr(sorted(row.items()))


def test_a_shop_of_eleven_tables_comes_over_whole(place: Place) -> None:
    place.fill(60)
    inferred = place.infer("--json")
    assert (inferred.status, inferred.err) == (0, "")
    assert len(inferred.json["tables"]) == 11
    assert inferred.json["left_out"] == []
    text = place.migration()
    for part in (
        "{type: reference, to: employee, optional: true, name: reports_to}",
        "{type: reference, to: invoice, name: invoice}",
        "key: [playlist_id, track_id]",
        "add_reference: {table: track, field: album_id, on_delete: set_null}",
        "add_reference: {table: album, field: artist_id, on_delete: cascade}",
        "milliseconds >= 0",
        "country == 'AT'",
        'default: "0.99"',
        "default: true, name: active",
        "{type: timestamp, default: now, name: invoice_date}",
        "{type: integer, generated: sequence, name: track_id}",
    ):
        assert part in text, part
    assert place.run("migrate", "check", "--write", "-m", place.migrations).status == 0
    place.migrate()
    copied = place.copy("--json")
    assert (copied.status, copied.err) == (0, "")
    assert copied.json["is_complete"]
    assert [t["rows"] for t in copied.json["tables"] if t["table"] == "track"] == [60]
    require_same(place)
    with contextlib.closing(place.workspace.follow()) as db:
        assert [r.problem_count for r in db.admin.verify()] == [0] * 11
        greatest = db.table("artist").max("artist_id")
        assert db.table("artist").insert(name="new").artist_id > greatest
        db.table("artist").delete(db.table("artist").max("artist_id"))
    # Again: nothing is doubled, and an upsert brings what has changed.
    again = place.copy()
    assert again.status == 1
    assert "already exists" in again.err
    place.execute('UPDATE "Track" SET "Name" = \'new\' WHERE "TrackId" < 9')
    place.execute("INSERT INTO \"Genre\" VALUES (77, 'more')")
    assert place.copy("--mode", "upsert").status == 0
    require_same(place)


def start(place: Place, *options: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "zapdb", "import", place.source, "-d", place.target]
    return processes.Popen([*command, *options], stdout=subprocess.DEVNULL)


def is_at_least(db: Database, name: str, enough: int) -> bool:
    return db.table(name).count() >= enough


@pytest.mark.long_on("postgresql")
def test_a_killed_copy_goes_on_where_it_was(place: Place) -> None:
    place.fill(1_200)
    assert place.infer().status == 0
    place.migrate()
    with contextlib.closing(place.workspace.follow()) as db:
        for name, enough in (("invoice", 100), ("track", 100), ("playlist_track", 100)):
            with start(place, "--batch", "10") as process:
                wait_until(partial(is_at_least, db, name, enough), "it goes on")
                process.kill()
        assert db.table("playlist_track").count() < len(place.source_rows(chinook.PLAYLIST_TRACK))
    assert place.copy().status == 0
    require_same(place)


@pytest.mark.long_on("postgresql")
@pytest.mark.parametrize(
    "function", ["zapdb.jobs.exclusive._note_end", "zapdb.cli.sources.databases.forget_all"]
)
def test_a_copy_that_is_killed_after_its_last_row_copies_no_row_again(
    place: Place, function: str
) -> None:
    place.execute(
        "CREATE TABLE parents (id INTEGER PRIMARY KEY)",
        "CREATE TABLE children (id INTEGER PRIMARY KEY, parent INTEGER REFERENCES parents)",
        "INSERT INTO parents VALUES (1)",
        "INSERT INTO children VALUES (1, 1), (2, 1)",
    )
    assert place.infer().status == 0
    place.migrate()
    run_and_kill(function, "import", place.source, "-d", place.target)
    again = place.copy()
    assert (again.status, place.count("children")) == (0, 2), again.err
    assert "already exists" in place.copy().err


def test_rows_that_break_a_rule_are_named_or_skipped(place: Place) -> None:
    place.execute(
        "CREATE TABLE parents (id INTEGER PRIMARY KEY, name VARCHAR(9))",
        "CREATE TABLE children (id INTEGER PRIMARY KEY, parent INTEGER NOT NULL,"
        " price NUMERIC(5, 2))",
        "INSERT INTO parents VALUES (1, 'a')",
        "INSERT INTO children VALUES (1, 1, 1.5), (2, 7, 1), (3, 1, 2.25), (4, 9, 0)",
    )
    place.workspace.write(
        1,
        "create_table: {table: parents, key: [id], fields: [{name: id, type: integer},"
        " {name: name, type: string, optional: true}]}",
        "create_table: {table: children, key: [id], fields: [{name: id, type: integer},"
        # The reference that the source never had.
        " {name: parent, type: reference, to: parents},"
        " {name: price, type: decimal, scale: 2, optional: true}]}",
        "create_index: {table: children, index: by_parent, fields: [{field: parent}]}",
        "add_reference: {table: children, field: parent, on_delete: restrict}",
    )
    place.migrate()
    refused = place.copy("--batch", "1")
    assert refused.status == 1
    assert "children: a record refers to a record that does not exist" in refused.err
    assert "row: 2" in refused.err
    assert "imported: 1 row, and 1 of 1 table before" in refused.err
    assert place.count("children") == 1
    skipped = place.directory / "skipped.ndjson"
    options = ("--on-error", "skip", "--skipped", str(skipped), "--batch", "1")
    copied = place.copy(*options)
    assert copied.status == 3, copied.err
    assert "skipped 2 rows" in copied.err
    lines = [json.loads(line) for line in skipped.read_text().splitlines()]
    assert [(line["source"], line["given"]["id"]) for line in lines] == [
        ("children", 2),
        ("children", 4),
    ]
    assert [str(record["price"]) for record in place.records("children")] == ["1.50", "2.25"]


def test_what_has_no_equivalent_is_said(place: Place) -> None:
    place.execute(
        "CREATE TABLE logs (line VARCHAR(20), at TIMESTAMP)",
        "CREATE TABLE tags (name VARCHAR(20) NOT NULL UNIQUE, hours TIME, amount NUMERIC)",
        "CREATE TABLE weights (w FLOAT PRIMARY KEY)",
        "CREATE TABLE notes (id INTEGER PRIMARY KEY, tag VARCHAR(20) REFERENCES tags (name),"
        " log INTEGER, size INTEGER CHECK (size * 2 > 1), kind VARCHAR(9) DEFAULT ('a' || 'b'))",
        "CREATE INDEX partial ON notes (log) WHERE log > 3",
        "CREATE INDEX computed ON notes (lower(kind))",
        "CREATE VIEW both_of_them AS SELECT * FROM notes",
        "INSERT INTO tags VALUES ('x', '10:00:00', 1.25)",
        "INSERT INTO notes (id, tag, size) VALUES (1, 'x', 1)",
    )
    inferred = place.infer()
    assert inferred.status == 3
    for part in (
        "logs: left out: it has no primary key",
        "weights: left out: its primary key has a type",
        "tags: no primary key; its key is unique: name",
        "tags.hours: the type TIME has no equivalent; it is text",
        "notes.partial: a partial index: left out",
        "a check without equivalent",
        "notes.kind: the default has no equivalent",
        "both_of_them: a view",
    ):
        assert part in inferred.out, (part, inferred.out)
        assert part in place.migration(), part
    assert "{type: reference, to: tags, optional: true, name: tag}" in place.migration()
    place.migrate()
    copied = place.copy("--json")
    assert copied.status == 3
    assert "not imported: logs" in copied.err
    assert copied.json["tables_left_out"] == ["logs", "weights"]
    (tag,) = place.records("tags")
    assert (tag["name"], tag["hours"], tag["amount"] == decimal.Decimal("1.25")) == (
        "x",
        "10:00:00",
        True,
    )


def test_a_type_that_sqlite_does_not_know_is_what_is_stored(
    workspace: Workspace, tmp_path: Path
) -> None:
    place = Place(workspace, f"sqlite:///{tmp_path / 'source.db'}", tmp_path)
    place.execute(
        "CREATE TABLE things (id INTEGER PRIMARY KEY, span INTERVAL, place POINT, price MONEY,"
        " made YEAR, amount NUMBER(8, 2), tags INTEGER[], mixed GEOMETRY, shape LONGBLOB, any,"
        " small UNSIGNED BIG INT, empty INET)",
        "INSERT INTO things VALUES (1, '1 day', '(1,2)', '$3', 1999, 1.25, '{1}', 'x', x'00', 2.5,"
        " 7, NULL)",
        "INSERT INTO things VALUES (2, '', NULL, NULL, 2000, 3, NULL, x'ff', NULL, 1, 8, NULL)",
    )
    inferred = place.infer()
    assert inferred.status == 0, inferred.err
    for part in (
        "things.span: the type INTERVAL has no equivalent; it is text",
        "things.place: the type POINT has no equivalent; it is text",
        "things.price: the type MONEY has no equivalent; it is text",
        "things.made: the type YEAR has no equivalent; all its values are integers",
        "things.tags: the type INTEGER[] has no equivalent; it is text",
        "things.any: it has no type; all its values are numbers, and a scale of 10 was taken",
        "things.empty: the type INET has no equivalent; it is text",
    ):
        assert part in inferred.out, (part, inferred.out)
    assert "things.amount" not in inferred.out
    assert "things.small" not in inferred.out
    place.migrate()
    assert place.copy().status == 0
    first, second = place.records("things")
    assert [str(value) for value in first.values()][1:6] == ["1 day", "(1,2)", "$3", "1999", "1.25"]
    assert (first["shape"], second["mixed"], second["made"]) == (b"\0", "ff", 2000)


def test_a_circle_of_references(place: Place) -> None:
    place.execute(
        "CREATE TABLE people (id INTEGER PRIMARY KEY, home INTEGER)",
        "CREATE TABLE houses (id INTEGER PRIMARY KEY, owner INTEGER REFERENCES people (id))",
        "INSERT INTO people VALUES (1, 1), (2, 2), (3, NULL)",
        "INSERT INTO houses VALUES (1, 2), (2, 1), (3, NULL)",
    )
    if "sqlite" in place.source:
        place.execute(
            "DROP TABLE people",
            "CREATE TABLE people (id INTEGER PRIMARY KEY, home INTEGER REFERENCES houses (id))",
            "INSERT INTO people VALUES (1, 1), (2, 2), (3, NULL)",
        )
    else:
        place.execute("ALTER TABLE people ADD FOREIGN KEY (home) REFERENCES houses (id)")
    assert place.infer().status == 0
    assert "add_field" in place.migration()
    place.migrate()
    assert place.copy().status == 0
    assert [record["home"] for record in place.records("people")] == [1, 2, None]
    assert [record["owner"] for record in place.records("houses")] == [2, 1, None]


@pytest.mark.on_each_engine
def test_references_to_tables_that_are_not_looked_at(place: Place) -> None:
    gone = "gone"
    if "sqlite" not in place.source:
        gone = "elsewhere.people"
        place.execute(
            "CREATE SCHEMA elsewhere", "CREATE TABLE elsewhere.people (id INTEGER PRIMARY KEY)"
        )
    place.execute(
        "CREATE TABLE people (id INTEGER PRIMARY KEY)",
        f"CREATE TABLE pets (id INTEGER PRIMARY KEY, owner INTEGER REFERENCES {gone} (id))",
    )
    inferred = place.infer()
    assert inferred.status == 0, inferred.err
    assert f"pets.owner: refers to {gone}, which is not imported" in inferred.out


def test_wrong_sources(place: Place) -> None:
    assert "has no tables" in place.infer().err or "no such file" in place.infer().err
    other = place.run("import", place.target, "--infer", "-m", place.migrations)
    assert other.status in (1, 2)
    for address, shown in [
        ("postgresql://nobody@127.0.0.1:1/x", "the source database reported an error"),
        ("mysql://user:secret@host/x", "pip install pymysql"),
        ("oracledb2://user:secret@host/x", "no such kind of database"),
        ("sqlite:///missing.db", "no such file"),
    ]:
        result = place.run("import", address, "--infer", "-m", place.migrations)
        assert result.status in (1, 2)
        assert shown in result.err, result.err
        assert "secret" not in result.err
    place.execute("CREATE TABLE x (id INTEGER PRIMARY KEY)")
    place.workspace.write(
        1, "create_table: {table: other, key: [id], fields: [{name: id, type: uuid}]}"
    )
    place.migrate()
    result = place.copy()
    assert (result.status, "tables of the source do not exist here" in result.err) == (2, True)
    same = place.run("import", place.target, "-d", place.target)
    assert "the source is a database of zapdb" in same.err
