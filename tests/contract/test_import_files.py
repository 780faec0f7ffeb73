"""`zapdb import` of text files: every row once, whatever is wrong and whenever it is killed."""

from __future__ import annotations

import contextlib
import encodings.aliases
import io
import json
import random
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests import processes
from tests.support import Workspace, wait_until
from zapdb import asdict
from zapdb.cli.program import run_program

ITEMS = [
    """create_table: {table: items, key: [id], fields: [
      {name: id, type: integer}, {name: title, type: string},
      {name: due, type: date, optional: true},
      {name: price, type: decimal, scale: 2, default: "0.00"},
      {name: us_gross, type: float, optional: true},
      {name: made, type: timestamp, optional: true},
      {name: done, type: boolean, default: false},
      {name: tags, type: list, of: string, default: []},
      {name: next, type: reference, to: items, optional: true}]}""",
    "create_index: {table: items, index: by_title, unique: true, fields: [{field: title}]}",
    "create_index: {table: items, index: by_next, fields: [{field: next}]}",
    "add_reference: {table: items, field: next, on_delete: restrict}",
    "add_check: {table: items, check: cheap, expression: 'price < 90'}",
]


class Result(NamedTuple):
    status: int
    out: str
    err: str


class Place(NamedTuple):
    """A database with the table, and a directory for files."""

    workspace: Workspace
    directory: Path

    def run(self, text: str | bytes, *options: str, name: str = "items.csv") -> Result:
        """Import a file with this content."""
        path = self.directory / name
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return self.run_again(str(path), *options)

    def run_again(self, path: str, *options: str) -> Result:
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            status = run_program(self.arguments(path, *options))
        return Result(status, out.getvalue(), err.getvalue())

    def arguments(self, path: str, *options: str) -> list[str]:
        return ["import", path, "--table", "items", "-d", self.workspace.address, *options]

    def records(self) -> list[dict[str, Any]]:
        with contextlib.closing(self.workspace.follow()) as db:
            return [asdict(record) for record in db.table("items")]

    def titles(self) -> list[str]:
        return [record["title"] for record in self.records()]


@pytest.fixture
def place(workspace: Workspace, tmp_path: Path) -> Place:
    workspace.write(1, *ITEMS)
    workspace.open().close()
    directory = tmp_path / "files"
    directory.mkdir()
    return Place(workspace, directory)


KILLED = """
import os, signal, sys
from importlib import import_module
from zapdb.cli.program import run_program

module, _, function = sys.argv[1].rpartition(".")
setattr(import_module(module), function, lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL))
run_program(sys.argv[2:])
"""


def run_and_kill(function: str, *arguments: str) -> None:
    """Run a command in a process that is killed where it calls the function."""
    ended = processes.run([sys.executable, "-c", KILLED, function, *arguments], check=False)
    assert ended.returncode == -signal.SIGKILL


def rows(*numbers: int) -> str:
    return "id,title\n" + "".join(f"{n},t{n}\n" for n in numbers)


def test_columns_are_fields_by_name_and_values_change_their_form(place: Place) -> None:
    result = place.run(
        "ID,Title,Due,US Gross,Price,Done,Made at,Junk,tags,next\n"
        '1.0,"Mi\nlk",2024-05-31 00:00:00,,1.5,T,2024-05-31 10:00,x,"[""a""]",2\n'
        "+2,\\\\N,,3,9,0,2024-05-31T10:00:00Z,,[],\\N\n",
        *("--map", "Made at=made", "--map", "Junk=", "--time-zone", "Europe/Vienna"),
    )
    assert result[:2] == (0, result.out)
    assert result.out.startswith("imported 2 records into items")
    first, second = place.records()
    assert (first["id"], first["title"], first["next"]) == (1, "Mi\nlk", 2)
    assert (str(first["due"]), first["us_gross"], str(first["price"])) == (
        "2024-05-31",
        None,
        "1.50",
    )
    assert (first["done"], list(first["tags"])) == (True, ["a"])
    assert first["made"].isoformat() == "2024-05-31T08:00:00+00:00"
    assert (second["title"], second["us_gross"], second["done"]) == ("\\N", 3.0, False)
    assert second["made"].isoformat() == "2024-05-31T10:00:00+00:00"


def test_json_lines_and_an_array_are_the_same(place: Place) -> None:
    objects = [
        {"id": 1.0, "title": "a", "price": 1.1, "tags": ["x"], "US Gross": 1, "next": None},
        {"id": 2, "title": "b" * 70_000, "price": "2.20", "due": "2024-05-31", "next": 1},
    ]
    lines = "\n\n".join(map(json.dumps, objects))
    assert place.run(lines, name="a.ndjson").status == 0
    made = place.records()
    assert [str(record["price"]) for record in made] == ["1.10", "2.20"]
    array = json.dumps(objects, indent=2)
    assert place.run(array, "--mode", "upsert", name="a.json").status == 0
    assert place.records() == made
    assert place.run(" [ ] ", name="b.json").status == 0
    for text, message in [
        ('{"a": 1}', "b.json: the file is no JSON array"),
        ('[{"id": 3, "title": "c"}', "a comma or the end of the array is missing"),
        ('[{"id": 3, "title": "c"},\n{"id"]', "this is not JSON"),
        ('[{"id": 3, "title": "c"}] 7', "there is more after the array"),
        ('[{"id": 3, "title": "c"},\n 7]', "b.json:2: a row is not a JSON object"),
        ('[{"id": 3, "titel": "c"}]', "did you mean 'title'?"),
    ]:
        result = place.run(text, "--from-start", name="b.json")
        assert result.status in (1, 2), text
        assert message.split(": ")[-1] in result.err, result.err
    assert place.records() == made


WRONG = [
    ("id,title", "{0},t{0}", "3,c,d", "cells: 3"),
    ("id,title", "{0},t{0}", "3", "the row has no cell for 'title'"),
    ("id,title", "{0},t{0}", "x,c", "expected: digits"),
    ("id,title", "{0},t{0}", "2,c", "a record with this key already exists"),
    ("id,title", "{0},t{0}", "3,t1", "another record has the same values"),
    ("id,title,price", "{0},t{0},{0}", "3,c,99", "check: cheap"),
    ("id,title,price", "{0},t{0},{0}", "3,c,9.999", "with at most 2 digits after the point"),
    ("id,title,next", "{0},t{0},", "3,c,7", "a record refers to a record that does not exist"),
    ("id,title,made", "{0},t{0},", "3,c,2024-05-31 10:00", "--time-zone UTC"),
    ("id,title,made", "{0},t{0},", "3,c,31.5.2024", "value: 31.5.2024"),
    ("id,title,tags", "{0},t{0},[]", "3,c,[", "the text is not valid JSON"),
    ("id,title", "{0},t{0}", "3,\\x", "a value begins with a single backslash"),
]


@pytest.mark.long_on("postgresql")
@pytest.mark.parametrize(("header", "good", "bad", "shown"), WRONG)
def test_a_wrong_row_is_named_and_leaves_nothing_of_its_batch(
    place: Place, header: str, good: str, bad: str, shown: str
) -> None:
    begin = [header, good.format(1), good.format(2), good.format(4)]
    result = place.run("\n".join([*begin, bad]), "--batch", "2")
    assert result.status == 1
    assert result.err.startswith(f"error: {place.directory / 'items.csv'}:5: ")
    assert shown in result.err
    assert "imported: 2 rows" in result.err
    assert place.titles() == ["t1", "t2"]
    result = place.run("\n".join([*begin, good.format(5)]), "--batch", "2")
    assert (result.status, result.err) == (0, "went on after 2 rows of an earlier run\n")
    assert place.titles() == ["t1", "t2", "t4", "t5"]


def test_wrong_rows_are_skipped_and_written_down(place: Place) -> None:
    skipped = place.directory / "skipped.ndjson"
    text = "id,title,next\n1,a,3\n2,b,x\n3,c,2\n4,d\n5,e,6\n6,f,\n1,g,\n8,\\N,\n9,i,\n"
    options = ("--on-error", "skip", "--skipped", str(skipped), "--batch", "6")
    result = place.run(text, *options)
    assert (result.status, result.err) == (3, f"skipped 5 rows: see {skipped}\n")
    # 1 refers to 3, and that to a row that is wrong; 5 refers to a later row of its batch.
    assert place.titles() == ["g", "e", "f", "i"]
    with contextlib.closing(place.workspace.follow()) as db:
        progress = db.jobs.get("import").progress
    assert (progress.read, progress.written) == (9, 4)
    lines = [json.loads(line) for line in skipped.read_text().splitlines()]
    assert [(line["line"], line["given"][0]) for line in lines] == [
        (2, "1"),
        (3, "2"),
        (4, "3"),
        (5, "4"),
        (9, "8"),
    ]


def test_a_part_that_changed_is_not_gone_on_from(place: Place) -> None:
    assert place.run(rows(1, 2, 3, 2), "--batch", "2").status == 1
    result = place.run(rows(1, 7, 3, 4), "--batch", "2")
    assert result.status == 2
    assert "that part has changed since" in result.err
    assert place.titles() == ["t1", "t2"]
    result = place.run(rows(1, 7, 3, 4), "--batch", "2", "--from-start", "--mode", "upsert")
    assert result.status == 0
    assert place.titles() == ["t1", "t2", "t3", "t4", "t7"]
    # The import has ended: the next one begins anew.
    assert "already exists" in place.run(rows(1, 7, 3, 4)).err


def test_all_rows_or_none(place: Place) -> None:
    assert place.run(rows(*range(5_000), 1), "--atomic").status == 1
    assert place.titles() == []
    assert place.run(rows(*range(5_000)), "--atomic").status == 0
    assert len(place.titles()) == 5_000


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-32"])
def test_a_byte_order_mark_says_the_encoding(place: Place, encoding: str) -> None:
    assert place.run("id,title\n1,Zoë ☕\n".encode(encoding)).status == 0
    assert place.titles() == ["Zoë ☕"]


def test_other_encodings_are_named_or_refused_with_the_line(place: Place) -> None:
    text = "id,title\n1,a\n2,Zoë\n"
    refused = place.run(text.encode("latin-1"))
    assert (refused.status, place.titles()) == (1, [])
    assert "items.csv:3: the text is not UTF-8" in refused.err
    assert "value: Zo\\xeb" in refused.err
    assert "--encoding latin-1" in refused.err
    refused = place.run(text.encode("utf-16-le"))
    assert refused.status == 2
    assert "--encoding utf-16-le" in refused.err
    assert place.run(text.encode(), "--encoding", "ascii").status == 2
    assert "no such encoding" in place.run(text.encode(), "--encoding", "nope").err
    header = place.run("id,titl\xeb\n".encode("latin-1"))
    assert "items.csv:1: the text is not UTF-8" in header.err
    assert place.run(text.encode("latin-1"), "--encoding", "latin-1").status == 0
    assert place.titles() == ["a", "Zoë"]


@pytest.mark.parametrize("time", ["2024-10-27 02:30", "2024-03-31 02:30"])
def test_a_time_that_a_clock_shows_twice_or_never_is_refused(place: Place, time: str) -> None:
    zone = ("--time-zone", "Europe/Vienna")
    result = place.run(f"id,title,made\n1,a,2024-10-27 04:30\n2,b,{time}\n", *zone)
    assert (result.status, place.records()) == (1, [])
    assert "clocks there showed this time twice or never" in result.err
    assert place.run(f"id,title,made\n1,a,{time}:00+01:00\n", *zone).status == 0


OF_NO_TEXT = ("rot13", "hex", "base64", "zlib", "bz2", "undefined", "no_such", "mbcs")


@pytest.mark.parametrize("encoding", OF_NO_TEXT)
def test_what_is_no_encoding_of_texts_is_refused(place: Place, encoding: str) -> None:
    result = place.run(rows(1), "--encoding", encoding)
    assert (result.status, place.records()) == (2, [])
    assert "Python knows no such encoding of texts" in result.err


@pytest.mark.parametrize("engine", ["sqlite"])
def test_every_encoding_that_python_has_reads_what_it_writes_or_is_refused(place: Place) -> None:
    names = {*encodings.aliases.aliases.values()} - {"rot_13", "mbcs", "oem", "tactis"}
    number = 0
    for name in sorted(names):
        number += 1
        try:
            content = f"id,title\n{number},t{number}\n".encode(name)
        except LookupError:
            content = b""
        result = place.run(content, "--encoding", name, name=f"{name}.csv")
        assert "Traceback" not in result.err
        assert result.status == (0 if content else 2), (name, result.err)
        number += not content
    assert len(place.titles()) > 80


def test_wrong_headers_and_arguments_write_nothing(place: Place) -> None:
    for text, options, shown in [
        ("id,title,titel\n", (), "did you mean 'title'?"),
        ("id,title,x,y\n", (), "column: x, y"),
        ("id,id,title\n", (), "a column occurs twice"),
        ("id,title,Title\n", (), "two columns are the same field"),
        ("id\n", (), "fields: title"),
        ("id;title\n1;a\n", (), "--delimiter ';'"),
        ("", (), "the file is empty"),
        ("id,title\n1,a\n", ("--map", "x=title"), "a mapped column does not exist"),
        ("id,title\n1,a\n", ("--map", "title=x"), "no such field"),
        ("id,title\n1,a\n", ("--map", "title"), "COLUMN=FIELD"),
        ("id,title\n1,a\n", ("--format", "xml"), "available: export, database, csv, ndjson"),
        ("id,title\n1,a\n", ("--on-error", "skip"), "go together"),
        ("id,title\n1,a\n", ("--delimiter", "ab"), "one character"),
        ("id,title\n1,a\n", ("--time-zone", "Mars"), "Mars"),
        ('id,title\n1,"a\n', (), "not CSV from here on"),
    ]:
        result = place.run(text, *options)
        assert (result.status in (1, 2), result.out) == (True, ""), (text, options)
        assert shown in result.err, result.err
        assert place.titles() == []
    assert "there is no such file" in place.run_again("missing.csv").err


def test_the_text_that_is_a_null_is_what_is_said(place: Place) -> None:
    text = "id,title,us_gross\n1,\\server,NA\n2,\\N,1\n"
    assert place.run(text, "--null", "NA").status == 0
    first, second = place.records()
    assert (first["title"], first["us_gross"], second["title"]) == ("\\server", None, "\\N")


def test_an_upsert_changes_what_is_there_as_if_row_by_row(place: Place) -> None:
    assert place.run(rows(*range(10))).status == 0
    made = [(random.Random(at).randrange(20), at) for at in range(300)]
    text = "id,title,price\n" + "".join(f"{n},u{at},{at % 80}\n" for n, at in made)
    assert place.run(text, "--mode", "upsert", "--batch", "70").status == 0
    last = dict(made)
    expected = {n: f"t{n}" for n in range(10)} | {n: f"u{at}" for n, at in last.items()}
    assert {record["id"]: record["title"] for record in place.records()} == expected


@pytest.mark.on_each_engine
def test_two_processes_do_not_import_the_same_file_at_once(place: Place) -> None:
    path = place.directory / "items.csv"
    path.write_text(rows(*range(200_000)))
    with start(place, path, "--batch", "20") as process:
        try:
            wait_until(lambda: count(place) >= 100, "it imports")
            refused = place.run_again(str(path))
        finally:
            process.kill()
    assert refused.status == 1
    assert "another process is at work on the same import" in refused.err


def start(place: Place, path: Path, *options: str) -> subprocess.Popen[bytes]:
    address = place.workspace.address
    command = ["import", str(path), "--table", "items", "-d", address, *options]
    return processes.Popen([sys.executable, "-m", "zapdb", *command])


def is_at_least(place: Place, enough: int) -> bool:
    return count(place) >= enough


def count(place: Place) -> int:
    ((found,),) = place.workspace.execute("SELECT count(*) FROM zapdb_records_1")
    return int(found)


@pytest.mark.long_on("sqlite")
def test_a_killed_import_goes_on_and_every_row_is_there_once(place: Place) -> None:
    path, skipped = place.directory / "items.csv", place.directory / "skipped.ndjson"
    total = 8_000
    with path.open("w") as file:
        file.write("id,title,next\n")
        for n in range(total):
            file.write(f"{n},t{n},{'x' if n % 1_000 == 7 else n - n % 100}\n")
    options = ("--batch", "50", "--on-error", "skip", "--skipped", str(skipped))
    assert place.run_again(str(path)).status == 1  # it is a job from now on
    chance = random.Random(7)
    with contextlib.closing(place.workspace.follow()) as db:
        db.jobs.throttle("import", records_per_second=1_000)  # it is not done before it is killed
        for _ in range(4):
            enough = count(place) + 300
            with start(place, path, *options) as process:
                wait_until(partial(is_at_least, place, enough), "it goes on")
                time.sleep(chance.random() / 50)
                process.kill()
        assert 1_000 < count(place) < total
        db.jobs.throttle("import")
    last = place.run_again(str(path), *options)
    assert last.status == 3
    assert "went on after" in last.err
    ids = [record["id"] for record in place.records()]
    lines = [json.loads(line) for line in skipped.read_text().splitlines()]
    missing = sorted({*range(total)} - {*ids})
    assert len(ids) == len({*ids})
    assert [int(line["given"][0]) for line in lines] == missing
    assert missing == [*range(7, total, 1_000)]
    with contextlib.closing(place.workspace.follow()) as db:
        assert [report.problem_count for report in db.admin.verify()] == [0]


@pytest.mark.long_on("postgresql")
@pytest.mark.parametrize(
    "function", ["zapdb.jobs.exclusive._note_end", "zapdb.cli.sources.file_source.forget_all"]
)
def test_an_import_that_is_killed_after_its_last_row_imports_no_row_again(
    place: Place, function: str
) -> None:
    path = place.directory / "items.csv"
    path.write_text(rows(*range(30)))
    run_and_kill(function, *place.arguments(str(path)))
    assert len(place.records()) == 30
    again = place.run_again(str(path))
    assert (again.status, len(place.records())) == (0, 30), again.err
    assert "went on after 30 rows of an earlier run" in again.err
    # It has ended by now, so once more means once more.
    assert "already exists" in place.run_again(str(path)).err
