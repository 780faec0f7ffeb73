"""Which rows an import skips: those that row by row are refused, found without trying each."""

from __future__ import annotations

import random
from typing import Any

import pytest

from tests.contract.test_import_upserts import GivenLines, Lines
from tests.support import Workspace
from zapdb import asdict
from zapdb.database import Database
from zapdb.errors import ZapdbError
from zapdb.imports import Importer, ImportMode
from zapdb.imports.importer import SkippedList, SkippedRow
from zapdb.imports.row_batches import Inserting

TABLES = (
    "create_table: {table: planes, key: [id], fields: [{name: id, type: integer}]}",
    *(
        f"""create_table: {{table: {name}, key: [id], fields: [
          {{name: id, type: integer}}, {{name: word, type: string, optional: true}},
          {{name: size, type: integer, default: 5}},
          {{name: plane, type: reference, to: planes, optional: true}}]}}"""
        for name in ("ones", "others")
    ),
    *(
        rule
        for name in ("ones", "others")
        for rule in (
            f"create_index: {{table: {name}, index: w, unique: true, fields: [{{field: word}}]}}",
            f"create_index: {{table: {name}, index: plane, fields: [{{field: plane}}]}}",
            f"add_check: {{table: {name}, check: small, expression: 'size < 90'}}",
            f"add_reference: {{table: {name}, field: plane, on_delete: restrict}}",
        )
    ),
)


@pytest.fixture
def db(workspace: Workspace) -> Database:
    workspace.write(1, *TABLES)
    db = workspace.open()
    db.table("planes").insert_many({"id": number} for number in range(5))
    for name in ("ones", "others"):
        db.table(name).insert_many({"id": n, "word": chr(97 + n)} for n in range(3))
    return db


def skip(db: Database, name: str, lines: Lines, mode: ImportMode = "append") -> list[SkippedRow]:
    skipped = list[SkippedRow]()
    Importer(db._session, db.table(name), mode, skipped=SkippedList(skipped)).run(GivenLines(lines))
    return skipped


def skip_one_by_one(db: Database, name: str, lines: Lines) -> list[tuple[int, str]]:
    refused = list[tuple[int, str]]()
    for number, values in lines:
        try:
            db.table(name).insert(**values)
        except ZapdbError as error:
            refused.append((number, error.code))
    return refused


def draw_lines(drawer: random.Random) -> Lines:
    lines = list[tuple[int, dict[str, Any]]]()
    for number in range(drawer.randint(1, 30)):
        values: dict[str, Any] = {"id": drawer.randint(0, 60)}
        if drawer.random() < 0.5:
            values["word"] = drawer.choice("abcdefghijklmnopqrstuvwxyz")
        if drawer.random() < 0.2:
            values["size"] = drawer.choice([1, 90])
        if drawer.random() < 0.5:
            values["plane"] = drawer.randint(0, 7)
        lines.append((number + 1, values))
    return lines


@pytest.mark.on_each_engine
def test_rows_are_skipped_as_if_each_was_tried(db: Database) -> None:
    drawer = random.Random(5)
    for _ in range(25):
        lines = draw_lines(drawer)
        expected = skip_one_by_one(db, "others", lines)
        skipped = skip(db, "ones", lines)
        assert [row.number for row in skipped] == [number for number, _ in expected]
        assert [asdict(r) for r in db.table("ones").scan()] == [
            asdict(r) for r in db.table("others").scan()
        ]
        assert not any("none was inserted" in row.error.hint for row in skipped)
        for name in ("ones", "others"):
            db.table(name).delete_many(range(3, 61))


def test_many_rows_that_are_refused_take_few_tries(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In halves until each was alone, 300 of 2,000 took 2,300 insertions."""
    own, tries = Inserting.__call__, list[int]()

    def count(write: Inserting, connection: Any, rows: Any) -> None:
        tries.append(len(rows))
        own(write, connection, rows)

    monkeypatch.setattr(Inserting, "__call__", count)
    wrong = ({"plane": 7}, {"size": 90}, {"word": "a"}, {"id": 1})
    lines = [(n, {"id": n} | (wrong[n // 4 % 4] if n % 4 == 0 else {})) for n in range(10, 210)]
    skipped = skip(db, "ones", lines)
    assert [row.number for row in skipped] == [n for n, values in lines if n % 4 == 0]
    assert len(tries) <= 2 + len(wrong)
    assert db.table("ones").count() == 3 + 150
