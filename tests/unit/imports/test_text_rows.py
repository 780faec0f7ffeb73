"""CSV and lines of JSON are gone on with at any row, and what has changed before it is noticed."""

from __future__ import annotations

import csv
import io
import json
import os
import random
from itertools import islice
from pathlib import Path

import pytest

from zapdb.imports import text_rows
from zapdb.imports.csv_rows import CsvSource
from zapdb.imports.given_file import GivenFile
from zapdb.imports.json_rows import NdjsonSource
from zapdb.imports.row import RowSource, SourceChanged
from zapdb.schema import Field, TableSchema
from zapdb.values import Integer, String

TABLE = TableSchema(
    1, "items", (1,), (Field(1, "id", Integer()), Field(2, "title", String(), optional=True))
)
PARTS = ("a", "ß", "日本", "😀", '"', ",", "\n", "\r\n", "\r", " ", "x" * 50)
ENCODINGS = ("utf-8", "utf-8-sig", "utf-16", "utf-32", "utf-7", "gb18030")


def titles(count: int, chance: random.Random, encoding: str) -> list[str]:
    made = ("".join(chance.choices(PARTS, k=chance.randrange(6))) for _ in range(count))
    return [title.encode(encoding, "ignore").decode(encoding) or "-" for title in made]


def as_csv(found: list[str], line_end: str) -> str:
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator=line_end, quoting=csv.QUOTE_ALL)
    writer.writerow(["id", "title"])
    for number, title in enumerate(found):
        writer.writerow([number, title])
        if number % 7 == 3:
            stream.write(line_end)  # a blank line is no row
    return stream.getvalue()


def open_source(path: Path, encoding: str) -> RowSource:
    marked = encoding in ("utf-8", "utf-8-sig", "utf-16", "utf-32")
    given = GivenFile(str(path), encoding=None if marked else encoding)
    return (CsvSource if path.suffix == ".csv" else NdjsonSource)(given, TABLE)


def read_all(path: Path, encoding: str, after: str = "") -> list[tuple[int, object]]:
    found = []
    for row in open_source(path, encoding).rows(after):
        assert row.error is None, row.error
        found.append((row.number, dict(row.values)))
    return found


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("line_end", ["\n", "\r\n", "\r"])
def test_any_row_can_be_gone_on_behind(tmp_path: Path, encoding: str, line_end: str) -> None:
    chance = random.Random(f"{encoding}{line_end}")
    found = titles(300, chance, encoding)
    expected = [{"id": number, "title": title} for number, title in enumerate(found)]
    lines = "".join(json.dumps(one, ensure_ascii=False) + "\n" for one in expected)
    for path, text in (
        (tmp_path / "items.csv", as_csv(found, line_end)),
        (tmp_path / "items.ndjson", lines),
    ):
        path.write_bytes(text.encode(encoding))
        everything = read_all(path, encoding)
        assert [values for _, values in everything] == expected
        for count in (1, *sorted(chance.sample(range(2, 300), 4)), 300):
            mark = mark_behind(path, count, encoding)
            assert read_all(path, encoding, mark) == everything[count:], count


def mark_behind(path: Path, count: int, encoding: str = "utf-8") -> str:
    source = open_source(path, encoding)
    rows = source.rows()
    return source.position_of(list(islice(rows, count))[-1])


def test_what_has_changed_before_a_mark_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "items.csv"
    path.write_text("id,title\n1,a\n2,b\n3,c\n")
    mark = mark_behind(path, 2)
    path.write_text("id,title\n1,a\n2,b\n3,C\n4,d\n")  # behind the mark
    assert [number for number, _ in read_all(path, "utf-8", mark)] == [4, 5]
    os.utime(path, (1, 1))
    assert len(read_all(path, "utf-8", mark)) == 2
    for text in ("id,title\n1,a\n2,B\n3,c\n", "id,title\n1,a\n", "", "id,titel\n1,a\n2,b\n3,c\n"):
        path.write_text(text)
        with pytest.raises(SourceChanged):
            list(open_source(path, "utf-8").rows(mark))


def test_another_encoding_must_mean_the_same_text(tmp_path: Path) -> None:
    path = tmp_path / "items.csv"
    path.write_bytes("id,title\n1,a\n2,ä\n3,ö\n".encode("latin-1"))
    mark = mark_behind(path, 1)
    assert read_all(path, "latin-1", mark) == [
        (3, {"id": 2, "title": "ä"}),
        (4, {"id": 3, "title": "ö"}),
    ]
    latin = mark_behind(path, 2, "latin-1")
    for other in ("cp1252", "utf-16-le"):
        with pytest.raises(SourceChanged):
            list(open_source(path, other).rows(latin))
    with pytest.raises(SourceChanged):
        list(open_source(path, "utf-16-le").rows(mark))


def test_what_comes_before_a_mark_is_not_read_if_the_file_is_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "items.csv"
    path.write_text("id,title\n" + "".join(f"{n},{'t' * 50}\n" for n in range(5_000)))
    mark = mark_behind(path, 4_990)
    read = list[int]()

    class Counted(text_rows._Prefix):
        def move_on(self, byte: int) -> bool:
            read.append(byte - self.byte)
            return super().move_on(byte)

    monkeypatch.setattr(text_rows, "_Prefix", Counted)
    assert len(read_all(path, "utf-8", mark)) == 10
    assert sum(read) < 1_000
    os.utime(path, (1, 1))
    assert len(read_all(path, "utf-8", mark)) == 10
    assert sum(read) > path.stat().st_size - 1_000
