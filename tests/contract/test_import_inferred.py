"""Migrations inferred from files: their rows are imported without another word."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from pyarrow import parquet

from tests.contract.test_import_databases import Place
from tests.support import Workspace

TOKEN = "12345678-1234-5678-1234-56781234567"
CSV = f"""\
Film ID,Title,US Gross,Zip,Released,Seen at,Good,Rank,Token,Nothing,Ratio,Computed
1,Metropolis,1236166,01234,1927-01-10,1927-01-10T20:00:00Z,true,1,{TOKEN}8,,1e3,10.357019999999999
2,"M, eine Stadt",2.5,99999,,1931-05-11 20:00:00+02:00,FALSE,,{TOKEN}9,,0.5,8.25
"""


@pytest.fixture
def place(workspace: Workspace, tmp_path: Path) -> Place:
    return Place(workspace, str(tmp_path / "Films.csv"), tmp_path)


def test_a_csv_file_becomes_a_table(place: Place) -> None:
    Path(place.source).write_text(CSV)
    inferred = place.infer()
    assert (inferred.status, inferred.err) == (0, "")
    text = place.migration()
    for field in (
        "table: films",
        "key: [film_id]",
        "{type: integer, name: film_id}",
        "{type: decimal, scale: 1, name: us_gross}",
        "{type: string, name: zip}",
        "{type: date, optional: true, name: released}",
        "{type: timestamp, name: seen_at}",
        "{type: boolean, name: good}",
        "{type: integer, optional: true, name: rank}",
        "{type: uuid, name: token}",
        "{type: string, name: nothing}",
        "{type: float, name: ratio}",
        "{type: float, name: computed}",
    ):
        assert field in text, field
    place.migrate()
    assert place.copy("--table", "films").status == 0
    first, second = place.records("films")
    assert (first["title"], first["zip"], first["ratio"]) == ("Metropolis", "01234", 1000.0)
    assert (second["released"], second["rank"], second["good"]) == (None, None, False)
    assert second["seen_at"] == datetime.datetime(1931, 5, 11, 18, tzinfo=datetime.UTC)


@pytest.mark.parametrize("engine", ["sqlite"])
def test_an_empty_text_is_null_where_the_import_stores_one(place: Place) -> None:
    """A field is optional if the import of the same file, with the same options, has nulls."""
    Path(place.source).write_text("id,a,b,c\n1,,\\N,\n2,x,y,5\n")
    said = place.infer("--table", "texts").out
    assert 'texts.a: its empty cells are empty texts; to have nulls, give --null ""' in said
    text = place.migration()
    for field in ("string, name: a", "string, optional: true, name: b", "optional: true, name: c"):
        assert field in text
    place.workspace.remove(1)
    Path(place.source).write_text("id,a,n\n1,,\n2,x,5\n")
    assert "empty cells" not in place.infer("--null", "", "--table", "nulls").out
    place.migrate()
    assert place.copy("--table", "nulls", "--null", "").status == 0
    assert [tuple(r.values()) for r in place.records("nulls")] == [(1, None, None), (2, "x", 5)]


CODES = ("+491234", "007", "-007", "1E5", "2e10", "1e1000", "1e-1000", "0.1234567890123456789e1")
NUMBERS = {"integer": ("12", "-7"), "decimal": ("1.50", "-3"), "float": ("1.5e3", "1e+05", "7")}


@pytest.mark.parametrize("engine", ["sqlite"])
def test_a_column_of_codes_is_text_and_the_file_says_so(place: Place) -> None:
    """What would not come back as it is written, if it was read as a number."""
    columns = {f"c{at}": (code, "1") for at, code in enumerate(CODES)}
    columns |= {name: (*cells, "2")[:2] for name, cells in NUMBERS.items()}
    header = ",".join(["id", *columns])
    lines = [",".join([str(n), *(c[n] for c in columns.values())]) for n in range(2)]
    Path(place.source).write_text("\n".join([header, *lines, ""]))
    said, text = place.infer("--table", "codes").out, place.migration()
    for at, code in enumerate(CODES):
        assert f"{{type: string, name: c{at}}}" in text
        assert f"if they were numbers, as '{code}'; it is text" in said
    for name in NUMBERS:
        assert f"type: {name}" in text
        assert f"codes.{name}:" not in said
    place.migrate()
    assert place.copy("--table", "codes").status == 0
    first, _ = place.records("codes")
    assert tuple(first[f"c{at}"] for at in range(len(CODES))) == CODES


def test_a_file_without_a_key_gets_one(place: Place) -> None:
    Path(place.source).write_text("name,Name\na,1\nb,\n")
    inferred = place.infer("--table", "things")
    assert "no column is the key for sure: id is generated" in inferred.out
    assert '--map "Name=name_2"' in inferred.out
    place.migrate()
    assert place.copy("--table", "things", "--map", "Name=name_2").status == 0
    found = [(record["name"], record["name_2"]) for record in place.records("things")]
    assert sorted(found, key=repr) == [("a", 1), ("b", None)]


def test_a_parquet_file_becomes_a_table(place: Place, tmp_path: Path) -> None:
    table: Any = pyarrow.table(
        {
            "id": pyarrow.array([1, 2], pyarrow.int32()),
            "price": pyarrow.array([None, "1.25"]).cast(pyarrow.decimal128(9, 2)),
            "tags": [["a"], []],
            "kind": pyarrow.array(["x", "y"]).dictionary_encode(),
            "place": [{"a": 1}, None],
            "day": pyarrow.array([1, 2], pyarrow.date32()),
        }
    )
    path = tmp_path / "Things.parquet"
    parquet.write_table(table, path)
    other = place._replace(source=str(path))
    assert "things.place: struct<a: int64> is JSON here" in other.infer().out
    other.migrate()
    assert other.copy("--table", "things").status == 0
    first, second = other.records("things")
    assert (first["price"], str(second["price"]), list(first["tags"])) == (None, "1.25", ["a"])
    assert (first["kind"], first["place"], second["place"]) == ("x", {"a": 1}, None)


def test_other_files_have_to_be_described(place: Place, tmp_path: Path) -> None:
    path = tmp_path / "things.ndjson"
    path.write_text('{"id": 1}\n')
    refused = place._replace(source=str(path)).infer()
    assert (refused.status, "no migration can be inferred" in refused.err) == (2, True)
    Path(place.source).write_text("")
    assert "the file is empty" in place.infer().err
