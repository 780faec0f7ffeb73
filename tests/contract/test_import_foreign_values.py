"""Values of other databases that Python, or a field, does not have: carried as the source writes
them, or refused by table, column and row, which `--on-error skip` leaves out."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.contract.test_import_databases import Place
from tests.support import PostgresServer, Workspace

TYPES = (
    "CREATE TYPE mood AS ENUM ('happy', 'sad')",
    "CREATE TYPE rated AS ENUM ('G', 'PG-13')",
    "CREATE DOMAIN positive AS integer CHECK (VALUE > 0)",
    "CREATE DOMAIN label AS text NOT NULL DEFAULT 'x'",
    "CREATE TYPE pair AS (a integer, b text)",
)
VALUES: dict[str, tuple[str, str, Any]] = {
    "span": ("interval", "'1 mon'", "1 mon"),
    "days": ("interval", "'30 days'", "30 days"),
    "hours": ("interval", "'720 hours'", "720:00:00"),
    "ints": ("int4range", "'[1,5)'", "[1,5)"),
    "dates": ("daterange", "'[,2024-02-29]'", "(,2024-03-01)"),
    "times": ("tstzrange", "'[2024-01-01 01:00+01,)'", '["2024-01-01 00:00:00+00",)'),
    "many": ("int4multirange", "'{[1,2),[4,5)}'", "{[1,2),[4,5)}"),
    "clock": ("time", "'24:00'", "24:00:00"),
    "zoned_clock": ("time with time zone", "'10:00+02'", "10:00:00+02"),
    "address": ("inet", "'10.0.0.1'", "10.0.0.1"),
    "net": ("cidr", "'10.0.0.0/8'", "10.0.0.0/8"),
    "mac": ("macaddr", "'08:00:2b:01:02:03'", "08:00:2b:01:02:03"),
    "bits": ("bit(4)", "'1010'", "1010"),
    "place": ("point", "'(1,2.5)'", "(1,2.5)"),
    "pair": ("pair", "'(1,\"a b\")'", '(1,"a b")'),
    "words": ("tsvector", "'a b'", "'a' 'b'"),
    "kept": (
        "timestamp without time zone",
        "'2024-05-31 10:00:00.5'",
        "2024-05-31 10:00:00.500000+00:00",
    ),
    "moods": ("mood[]", "'{happy,sad}'", ["happy", "sad"]),
    "day_list": ("date[]", "'{2024-02-29}'", ["2024-02-29"]),
    "span_list": ("interval[]", "'{1 mon,30 days}'", ["1 mon", "30 days"]),
    "prices": ("numeric(6, 2)[]", "'{1.50}'", ["1.50"]),
    "no_items": ("integer[]", "'{}'", []),
    "grid": ("integer[]", "'{{1,2},{3,4}}'", [[1, 2], [3, 4]]),
    "holes": ("text[]", "'{a,NULL}'", ["a", None]),
    "from_0": ("integer[]", "'[0:1]={1,2}'", [1, 2]),
    "rating": ("rated", "'PG-13'", "PG-13"),
    "size": ("positive", "5", 5),
    "label": ("label", "'y'", "y"),
    "single": ("real", "0.1", 0.1),
}
"""For each column its type, a value, and what a record has of it."""


@pytest.fixture
def place(workspace: Workspace, postgres: PostgresServer, tmp_path: Path) -> Iterator[Place]:
    with postgres.fresh_database() as address:
        yield Place(workspace, address, tmp_path)


@pytest.fixture
def lite(workspace: Workspace, tmp_path: Path) -> Place:
    return Place(workspace, f"sqlite:///{tmp_path / 'source.db'}", tmp_path)


def plain(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return value if isinstance(value, int | float | None) else str(value)


@pytest.mark.on_each_engine
def test_types_that_python_does_not_have_are_as_the_server_writes_them(place: Place) -> None:
    columns = ", ".join(f"{name} {kind}" for name, (kind, _, _) in VALUES.items())
    values = ", ".join(value for _, value, _ in VALUES.values())
    place.execute(
        *TYPES,
        f"CREATE TABLE things (id integer PRIMARY KEY, {columns})",
        f"INSERT INTO things VALUES (1, {values})",
        "INSERT INTO things (id) VALUES (2)",
    )
    inferred = place.infer()
    assert (inferred.status, inferred.err) == (0, "")
    place.migrate()
    copied = place.copy()
    assert (copied.status, copied.err) == (0, "")
    first, second = place.records("things")
    wanted = {name: value for name, (_, _, value) in VALUES.items()}
    assert {name: plain(first[name]) for name in VALUES} == wanted
    assert {name: second[name] for name in VALUES if name != "label"} == dict.fromkeys(
        set(VALUES) - {"label"}
    )
    assert second["label"] == "x"
    text = place.migration()
    for part in ("of: {type: mood}", "rating == 'PG-13'", "size > 0", "default: x, name: label"):
        assert part in text, part


@pytest.mark.on_each_engine
@pytest.mark.parametrize("kind", ["interval", "date", "timestamptz", "citext", "time"])
def test_pages_behind_a_key_of_such_a_type(
    place: Place, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr("zapdb.transfer.inference.table_rows.SOURCE_PAGE_ROWS", 7)
    value = {
        "interval": "make_interval(months => n %% 3, days => n * 11, hours => n)",
        "date": "date '2024-01-01' + n * 7",
        "timestamptz": "timestamptz '2024-01-01 00:00+00' + make_interval(hours => n * 31)",
        "citext": "CASE n %% 2 WHEN 0 THEN 'A' ELSE 'a' END || n",
        "time": "time '00:00' + make_interval(mins => n)",
    }[kind]
    if kind == "citext":  # the extension is not on this server; a type of its name will do
        place.execute("CREATE DOMAIN citext AS text")
    place.execute(
        f"CREATE TABLE things (k {kind} PRIMARY KEY, n integer)",
        f"INSERT INTO things SELECT {value}, n FROM generate_series(1, 40) n",
    )
    assert place.infer().status == 0
    place.migrate()
    assert place.copy("--batch", "3").status == 0
    assert sorted(record["n"] for record in place.records("things")) == list(range(1, 41))
    assert place.copy("--mode", "upsert").status == 0


def skipped_of(place: Place) -> list[dict[str, Any]]:
    path = place.directory / "skipped.ndjson"
    copied = place.copy("--on-error", "skip", "--skipped", str(path), "--batch", "2")
    assert copied.status == 3, copied.err
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.on_each_engine
def test_dates_that_no_field_has_are_named(place: Place) -> None:
    dates = ("infinity", "0044-03-15 BC", "10000-01-01", "-infinity")
    place.execute(
        "CREATE TABLE days (id integer PRIMARY KEY, day date, at timestamptz, t timestamp)",
        "INSERT INTO days VALUES (1, '2024-02-29', '2024-02-29 10:00+02', '9999-12-31 23:59')",
        *(
            f"INSERT INTO days (id, {column}) VALUES ({row + at}, '{value}')"
            for row, column in ((10, "day"), (20, "at"), (30, "t"))
            for at, value in enumerate(dates)
        ),
        "INSERT INTO days (id) VALUES (90)",
    )
    assert place.infer().status == 0
    place.migrate()
    refused = place.copy()
    assert refused.status == 1
    for part in ("field: days.day", "value: infinity", "row: 2", "key: id 10", "source: days"):
        assert part in refused.err, refused.err
    lines = skipped_of(place)
    assert [(line["source"], line["field"], line["given"]["id"]) for line in lines] == [
        ("days", f"days.{column}", row + at)
        for row, column in ((10, "day"), (20, "at"), (30, "t"))
        for at in range(4)
    ]
    assert [record["id"] for record in place.records("days")] == [1, 90]


@pytest.mark.on_each_engine
def test_a_text_that_is_no_utf_8_is_named(lite: Place) -> None:
    lite.execute(
        "CREATE TABLE texts (id INTEGER PRIMARY KEY, t TEXT, day DATE)",
        "CREATE TABLE words (w TEXT PRIMARY KEY) WITHOUT ROWID",
        "INSERT INTO texts VALUES (1, 'ä', '2024-01-01'), (2, CAST(x'ff41' AS TEXT), NULL),"
        " (3, 'c', '24:00'), (4, 'd', 'infinity'), (5, 'e', NULL)",
        "INSERT INTO words VALUES ('a'), (CAST(x'e4' AS TEXT)), (CAST(x'ff' AS TEXT)), ('b'),"
        " (CAST(x'f09f9880' AS TEXT))",
    )
    assert lite.infer().status == 0
    lite.migrate()
    refused = lite.copy()
    assert refused.status == 1
    for part in ("not UTF-8", "field: texts.t", "row: 2", "key: id 2", "skip the row"):
        assert part in refused.err, refused.err
    lines = skipped_of(lite)
    assert [(line["source"], line["field"]) for line in lines] == [
        ("texts", "texts.t"),
        ("texts", "texts.day"),
        ("texts", "texts.day"),
        ("words", "words.w"),
        ("words", "words.w"),
    ]
    assert [record["w"] for record in lite.records("words")] == ["a", "b", "\U0001f600"]


@pytest.mark.parametrize("engine", ["sqlite"])
def test_a_postgresql_database_without_an_encoding(
    workspace: Workspace, postgres: PostgresServer, tmp_path: Path
) -> None:
    postgres.execute("CREATE DATABASE bytes TEMPLATE template0 ENCODING SQL_ASCII LOCALE 'C'")
    try:
        address = f"{postgres.address('bytes')}&client_encoding=utf8"
        place = Place(workspace, address, tmp_path)
        place.execute(
            "CREATE TABLE texts (id integer PRIMARY KEY, t text, w varchar(9) UNIQUE)",
            "INSERT INTO texts VALUES (1, 'ä', 'x'), (2, E'\\xff', 'y'), (3, NULL, 'z')",
        )
        assert place.infer().status == 0
        place.migrate()
        (line,) = skipped_of(place)
        assert (line["field"], line["value"]) == ("texts.t", "b'\\xff'")
        assert [record["t"] for record in place.records("texts")] == ["ä", None]
    finally:
        postgres.execute("DROP DATABASE bytes WITH (FORCE)")


@pytest.mark.on_each_engine
def test_rows_that_two_tables_have_come_once(place: Place) -> None:
    place.execute(
        "CREATE TABLE parted (id integer, day date, PRIMARY KEY (id, day))"
        " PARTITION BY RANGE (day)",
        "CREATE TABLE parted_old PARTITION OF parted FOR VALUES FROM (MINVALUE) TO ('2024-01-01')",
        "CREATE TABLE parted_new PARTITION OF parted DEFAULT",
        "CREATE TABLE notes (id integer PRIMARY KEY, parted integer, day date,"
        " FOREIGN KEY (parted, day) REFERENCES parted_new (id, day))",
        "CREATE TABLE whole (id integer PRIMARY KEY, t text)",
        "CREATE TABLE whole_1 (CHECK (id > 9), PRIMARY KEY (id)) INHERITS (whole)",
        "CREATE TABLE animals (id integer PRIMARY KEY, t text)",
        "CREATE TABLE dogs (sound text, PRIMARY KEY (id)) INHERITS (animals)",
        "INSERT INTO parted SELECT n, date '2023-12-25' + n FROM generate_series(1, 20) n",
        "INSERT INTO notes VALUES (1, 20, date '2023-12-25' + 20)",
        "INSERT INTO whole VALUES (1, 'a')",
        "INSERT INTO whole_1 VALUES (10, 'b')",
        "INSERT INTO animals VALUES (1, 'cat')",
        "INSERT INTO dogs VALUES (2, 'dog', 'wow')",
    )
    inferred = place.infer()
    assert inferred.status == 0, inferred.err
    assert "parted: it and its 2 parts are one table here" in inferred.out
    assert "animals: rows of tables that inherit from it are rows of those alone" in inferred.out
    place.migrate()
    copied = place.copy("--json")
    assert copied.status == 0, copied.err
    rows = {table["table"]: table["rows"] for table in copied.json["tables"]}
    assert rows == {"parted": 20, "notes": 1, "whole": 2, "animals": 1, "dogs": 1}
    (note,) = place.records("notes")
    assert note["parted"][0] == 20
