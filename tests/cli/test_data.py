"""Records on the command line: every type as text, there and back; all or nothing; wrong input."""

from __future__ import annotations

import io
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyarrow import parquet

import zapdb
from tests.cli.program import Project, strip_ansi
from tests.forms import cases
from tests.strategies import records_of, tables
from zapdb.cli.progress_counter import ProgressCounter
from zapdb.cli.record_commands import write_lines
from zapdb.errors import InvalidValue, UsageError
from zapdb.records import codec_for
from zapdb.records.cell_format import from_text, to_cell
from zapdb.records.record_lines import read_lines
from zapdb.schema import Field, TableSchema
from zapdb.values import Integer, String, ValueType

SHOP = """\
zapdb: 1
summary: A shop
changes:
  - create_type: {type: state, enum: [open, done]}
  - create_type: {type: place, struct: [{name: city, type: string}, {name: floor, type: integer,
      optional: true}]}
  - create_table: {table: boxes, key: [row, label], fields: [
      {name: row, type: integer}, {name: label, type: string}]}
  - create_table:
      table: items
      key: [box, number]
      fields:
        - {name: box, type: reference, to: boxes}
        - {name: number, type: integer}
        - {name: title, type: string}
        - {name: price, type: decimal, scale: 2, default: "0.00"}
        - {name: weight, type: float, optional: true}
        - {name: due, type: date, optional: true}
        - {name: made, type: timestamp, optional: true}
        - {name: local, type: zoned_timestamp, optional: true}
        - {name: raw, type: binary, optional: true}
        - {name: done, type: boolean, default: false}
        - {name: details, type: json, optional: true}
        - {name: token, type: uuid, optional: true}
        - {name: state, type: state, default: open}
        - {name: place, type: place, optional: true}
        - {name: tags, type: list, of: string, default: []}
        - {name: note, type: string, optional: true}
  - create_index: {table: items, index: by_due, fields: [{field: due}]}
rollback: inferred
"""
MILK = {
    "box": [1, "a,b"],
    "number": 1,
    "title": 'Milk\n\r"fresh", \\N',
    "price": "1.20",
    "weight": "nan",
    "due": "2024-05-31",
    "made": "2024-05-31T10:00:00.000001+00:00",
    "local": "2024-10-27T02:30:00 Europe/Vienna fold=1",
    "raw": "00ff",
    "done": True,
    "details": {"a": [1, 1.0, None, "ß"]},
    "token": "0190163d-8694-739b-aea5-966c26f8ad90",
    "state": "done",
    "place": {"city": "Bern", "floor": None},
    "tags": ["x", "\\", ""],
    "note": None,
}
PLAIN = dict.fromkeys(MILK) | {
    "box": [2, "c"],
    "number": 2**70,
    "title": "\\N",
    "price": "-0.05",
    "done": False,
    "state": "open",
    "tags": [],
    "note": "",
}


@pytest.fixture(scope="module")
def empty_shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = Project(tmp_path_factory.mktemp("shop"))
    made.file("0001_shop").write_text(SHOP)
    given = ("-d", f"sqlite:///{made.database}", "-m", str(made.migrations))
    assert made.run("migrate", "up", *given).status == 0
    return made.directory


@pytest.fixture
def shop(project: Project, empty_shop: Path) -> Project:
    shutil.copytree(empty_shop, project.directory, dirs_exist_ok=True)
    return project


def put(shop: Project, *records: dict[str, Any]) -> None:
    lines = "\n".join(map(json.dumps, records))
    result = shop.run("import", "-", "--table", "items", "--mode", "upsert", stdin=lines)
    assert (result.status, result.err) == (0, "")


@settings(deadline=None, max_examples=cases(600), suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_records_of_all_types_come_back_from_lines_and_texts(drawer: st.DataObject) -> None:
    table: TableSchema = drawer.draw(tables())
    drawn = drawer.draw(st.lists(records_of(table), max_size=3))
    codec = codec_for(table)
    records = [codec.record(*(drawn_one[f.name] for f in table.fields)) for drawn_one in drawn]
    for form in ("ndjson", "csv"):
        stream = io.StringIO(newline="")
        write_lines(table, records, form, stream, ProgressCounter())
        stream.seek(0)
        back = [values for _, values in read_lines(table, stream, form)]
        assert len(back) == len(records)
        for record, values in zip(records, back, strict=True):
            for field in table.fields:
                is_same(field.type, getattr(record, field.name), values[field.name])
    for record in records:
        for field in table.fields:
            value = getattr(record, field.name)
            is_same(field.type, value, from_text(table, field, to_cell(field, value)))


def is_same(kind: ValueType, left: Any, right: Any) -> None:
    if left is None or right is None:
        assert left is right
    else:
        assert kind.is_same(left, right), (kind, left, right)


@pytest.mark.parametrize("form", ["ndjson", "csv"])
def test_an_export_is_imported_into_another_database(shop: Project, form: str) -> None:
    put(shop, MILK, PLAIN)
    exported = shop.run("data", "export", "items", "--format", form)
    assert exported.status == 0
    assert exported.err == "exported 2 records\n"
    other = ("-d", "sqlite:///other.db")
    assert shop.run("migrate", "up", *other).status == 0
    result = shop.run(
        "import", "-", "--table", "items", "--format", form, *other, stdin=exported.out
    )
    assert (result.status, result.out[:32]) == (0, "imported 2 records into items in")
    assert shop.run("data", "export", "items", "--format", form, *other).out == exported.out
    if form == "ndjson":
        assert [json.loads(line) for line in exported.out.splitlines()] == [MILK, PLAIN]
    with (
        zapdb.open("sqlite:///test.db", read_only=True) as one,
        zapdb.open("sqlite:///other.db", read_only=True) as two,
    ):
        assert repr(list(one.table("items").scan())) == repr(list(two.table("items").scan()))


def test_one_record_is_put_as_arguments_and_got(shop: Project) -> None:
    given = ['box=[1,"x"]', "number=1", "title=Tea = good", "due=2024-05-31", "note=\\N"]
    result = shop.run("data", "put", "items", *given)
    assert (result.status, result.out) == (0, 'put items [1,"x"], 1\n')
    changed = shop.run("data", "put", "items", *given[:2], "done=true", "due=\\N", "--json")
    assert changed.json["table"] == "items"
    record = changed.json["record"]
    assert (record["title"], record["due"], record["done"]) == ("Tea = good", None, True)
    assert shop.run("data", "get", "items", '[1,"x"]', "1", "--json").json == record
    shown = shop.run("data", "get", "items", '[1,"x"]', "1").out.splitlines()
    assert shown[2:6] == ["title    Tea = good", "price    0.00", "weight   null", "due      null"]
    assert shop.run("data", "put", "boxes", "row=-1", "label=\\\\a").status == 0
    assert shop.run("data", "get", "boxes", "--json", "--", "-1", "\\\\a").json["label"] == "\\a"
    missing = shop.run("data", "get", "items", '[1,"x"]', "7", "--json")
    assert missing.status == 1
    assert missing.error["code"] == "record.not_found"
    said = shop.run("data", "get", "boxes", "77", "x").err
    assert "no record has this key" in said
    assert "find()" not in said
    assert "run `zapdb data list boxes` to see the keys" in " ".join(said.split())


WRONG = [
    ("number=x", "items.number", "digits, such as -12"),
    ("price=1,5", "items.price", "a number, such as 12.50"),
    ("weight=heavy", "items.weight", "a number, such as 1.5e-3, or nan, inf, -inf"),
    ("due=2024-13-01", "items.due", "a date, such as 2024-05-31"),
    ("made=2024-05-31T10:00:00", "items.made", "an instant with its offset"),
    ("local=2024-05-31", "items.local", "a local time and its zone"),
    ("raw=xyz", "items.raw", "pairs of hexadecimal digits, such as 00ff"),
    ("done=yes", "items.done", "true or false"),
    ("details={", "items.details", 'JSON, such as {"a": 1}'),
    ('details={"a":1,"a":2}', "items.details", 'JSON, such as {"a": 1}'),
    ("token=12", "items.token", "a UUID, such as 0190163d"),
    ("state=opn", "items.state", "one of open, done"),
    ("place=Bern", "items.place", "a JSON object with its members"),
    ("tags=a", "items.tags", "a JSON list"),
    ("box=1", "items.box", "the key of a record of boxes (integer, string)"),
    ("number=\\N", "items.number", "an integer of at most 63 bytes"),
]


def test_wrong_input_is_named_with_its_form(shop: Project) -> None:
    for given_text, field, expected in WRONG:
        result = shop.run("data", "put", "items", given_text, "--json")
        assert result.status == 1, given_text
        assert result.error["context"]["field"] == field
        assert result.error["context"]["expected"].startswith(expected)


def test_other_wrong_input(shop: Project) -> None:
    cases = [
        (("put", "items"), 2, "give the fields of a record"),
        (("put", "items", "title"), 2, "give a field as name=value"),
        (("put", "items", "number=1", "number=2"), 2, "a field was given twice"),
        (("put", "items", "title=\\x"), 1, "a value begins with a single backslash"),
        (("put", "items", "titel=a"), 1, "did you mean 'title'?"),
        (("put", "itens", "title=a"), 1, "no such table"),
        (("get", "items", "1"), 2, "these are not the fields of the key"),
        (("list", "items", "--limit", "0"), 2, "the least is 1"),
        (("list", "items", "--order-by", "title,nix"), 1, "field: nix"),
        (("list", "items", "--cursor", "x"), 1, "cursor"),
        (
            ("export", "items", "--format", "csv", "--as-text", "number"),
            2,
            "--as-text is only for Parquet",
        ),
        (("export", "items", "--format", "parquet"), 2, "Parquet cannot be written to a terminal"),
        (("export", "items", "--json"), 2, "the --json report would both go to standard output"),
    ]
    for arguments, status, message in cases:
        result = shop.run("data", *arguments)
        assert result.status == status, arguments
        assert message in result.err


LINES = '{"box":[1,"a"],"number":1,"title":"a"}\n\n{"box":[1,"a"],"number":2,"title":"b"}\n'


@pytest.mark.parametrize(
    ("last", "message"),
    [
        ('{"box":[1,"a"],"number":3}', "a required field is missing"),
        ('{"box":[1,"a"],"number":3,"title":5}', "field: items.title"),
        ('{"box":[1,"a"],"number":3,"tilte":"a"}', "did you mean 'title'?"),
        ('{"box":[1,"a"],"number":3,"number":4}', "an object has the same name twice"),
        ("[1]", "a row is not a JSON object"),
        ('{"box":', "the text is not valid JSON"),
    ],
)
def test_all_lines_are_imported_or_none_unless_in_batches(
    shop: Project, last: str, message: str
) -> None:
    command = ("import", "-", "--table", "items")
    result = shop.run(*command, "--atomic", stdin=LINES + last)
    assert result.status == 1
    assert message in result.err
    assert result.err.startswith("error: standard input:4: ")
    assert shop.run("data", "export", "items").out == ""
    result = shop.run(*command, "--batch", "1", stdin=LINES + last)
    assert result.status == 1
    assert "  imported: 2 rows\n" in result.err
    assert len(shop.run("data", "export", "items").out.splitlines()) == 2


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("box,nix\n", "column: nix"),
        ("number,number\n1,2\n", "a column occurs twice"),
        ('box,number,title\n"[1,""a""]",1\n', "a row has another number of cells than the header"),
        ('box,number,title\n"[1,""a""]",x,a\n', "standard input:2: "),
        ('box,number,title\n"[1', "the file is not CSV from here on"),
    ],
)
def test_wrong_csv_is_refused(shop: Project, text: str, message: str) -> None:
    result = shop.run("import", "-", "--table", "items", "--format", "csv", stdin=text)
    assert result.status in (1, 2)
    assert message in result.err


def test_standard_input_is_read_as_it_is() -> None:
    table = TableSchema(1, "notes", (1,), (Field(1, "id", Integer()), Field(2, "text", String())))

    def read(given: bytes, form: Any) -> list[Any]:
        return list(read_lines(table, io.TextIOWrapper(io.BytesIO(given), "ascii"), form))

    csv = 'id,text\r\n1,"a\r\nß\rb"\r\n2,\x85\n'.encode()
    assert read(csv, "csv") == [
        (2, {"id": 1, "text": "a\r\nß\rb"}),
        (5, {"id": 2, "text": "\x85"}),
    ]
    lines = '{"text":"ß\u2028"}\r\n{"id":1}'.encode()
    assert read(lines, "ndjson") == [(1, {"text": "ß\u2028"}), (2, {"id": 1})]
    with pytest.raises(UsageError, match="not UTF-8"):
        read(b'{"text":"\xff"}\n', "ndjson")


CONDITIONS = {
    "done": [1],
    "not done and number >= 2": [2, 3],
    "done == false": [2, 3],
    "False == done": [2, 3],
    "due == '2024-05-31'": [1],
    "'2024-06-01' <= due": [2],
    "due is None or due > '2024-06-01'": [3],
    "due == null": [3],
    "starts_with(title, 'T')": [1, 3],
    "one_of(number, 1, 3) and not (title == 'Tea')": [3],
    "between(price, '0.50', 2)": [2, 3],
    "state != 'open'": [1],
    "-1 < number and number < 3": [1, 2],
}
NO_CONDITIONS = {
    "done = true": "equal is written ==",
    "price > 1.5": "write a decimal or float as text",
    "titel": "did you mean 'title'?",
    "title": "this is not a condition on a field",
    "number + 1 == 2": "this is not a condition on a field",
    "title == note": "a field is compared with a value",
    "starts_with(title)": "starts_with() of 0 values is not a condition",
    "__import__('os').system('id')": "not part of the expression language",
    "[x for x in done]": "not part of the expression language",
    "due < 'soon'": "a date, such as 2024-05-31",
    "number < null": "use is_null(), or != None",
    "": "not an expression",
}


def test_conditions_choose_records(shop: Project) -> None:
    base = {"box": [1, "a"]}
    put(
        shop,
        base | {"number": 1, "title": "Tea", "done": True, "due": "2024-05-31", "state": "done"},
        base | {"number": 2, "title": "Milk", "due": "2024-06-01", "price": "0.5"},
        base | {"number": 3, "title": "Tofu", "price": 2},
    )
    for condition, wanted in CONDITIONS.items():
        result = shop.run("data", "list", "items", "--where", condition, "--json")
        assert result.status == 0, result.err
        found = sorted(record["number"] for record in result.json["records"])
        assert found == wanted, condition
    exported = shop.run("data", "export", "items", "--where", "due is not None").out
    assert [json.loads(line)["number"] for line in exported.splitlines()] == [1, 2]
    for condition, message in NO_CONDITIONS.items():
        result = shop.run("data", "list", "items", "--where", condition)
        assert result.status in (1, 2), condition
        assert message in result.err, condition


def test_pages_follow_one_another(shop: Project) -> None:
    put(shop, *({"box": [1, "a"], "number": n, "title": f"t{n % 3}"} for n in range(7)))
    command, found, cursor = ("data", "list", "items", "--order-by", "-title,number"), [], None
    while True:
        more = ("--cursor", cursor) if cursor else ()
        page = shop.run(*command, "--limit", "3", "--json", *more).json
        found += [record["number"] for record in page["records"]]
        cursor = page["cursor"]
        if cursor is None:
            break
    assert found == [2, 5, 1, 4, 0, 3, 6]
    shown = shop.run(*command, "--limit", "3")
    assert shown.err.startswith("more: --cursor ")
    assert len(shown.out.splitlines()) == 5


def test_parquet_and_files(shop: Project) -> None:
    put(shop, MILK, PLAIN)
    refused = shop.run("data", "export", "items", "--format", "parquet", "--output", "x.parquet")
    assert refused.status == 1
    assert "--as-text number" in refused.err
    assert list(Path().glob("x.parquet*")) == []
    command = ("data", "export", "items", "--format", "parquet", "--output", "x.parquet")
    assert shop.run(*command, "--as-text", "number").err == "exported 2 records to x.parquet\n"
    held = parquet.read_table("x.parquet")
    assert held.column("number").to_pylist() == ["1", str(2**70)]
    where = ("--as-text", "number", "--where", "done")
    assert shop.run(*command, *where).status == 0
    assert parquet.read_table("x.parquet").num_rows == 1
    told = shop.run(*command, *where, "--json")
    assert told.json == {"table": "items", "format": "parquet", "path": "x.parquet", "records": 1}
    Path("x.csv").write_text("old")
    assert shop.run("data", "export", "nix", "-f", "csv", "-o", "x.csv").status == 1
    assert Path("x.csv").read_text() == "old"


def test_on_a_terminal_values_are_shortened_and_counted(shop: Project) -> None:
    put(shop, MILK | {"title": "long " * 5_000, "note": "n" * 100})
    shown = strip_ansi(shop.show("data", "list", "items", columns=400))
    assert "<string of 25,000 bytes>" in shown
    assert "n" * 59 + "…" in shown
    put(shop, MILK)
    shown = strip_ansi(shop.show("data", "list", "items", columns=400))
    assert 'Milk\\n\\r"fresh", \\N' in shown
    exported = shop.run_on_terminal("data", "export", "items", "--output", "x.json")
    assert "1 record" in exported.out
    assert strip_ansi(exported.out).endswith("exported 1 record to x.json\n")


def test_a_text_that_begins_with_one_backslash_is_refused(shop: Project) -> None:
    with zapdb.open("sqlite:///test.db", read_only=True) as db:
        table = db._catalog.table("items").schema
    title = table.field_named("title")
    assert title is not None
    assert to_cell(title, "\\N") == "\\\\N"
    with pytest.raises(InvalidValue, match="single backslash"):
        from_text(table, title, "\\n")
