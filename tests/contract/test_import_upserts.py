"""An import with upsert writes rows together, and it comes to the same as one by one."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import pytest

from tests.support import Faults, Workspace
from zapdb import asdict
from zapdb.database import Database
from zapdb.errors import ZapdbError
from zapdb.imports import Importer, RowSource, SourceRow

TABLES = [
    f"""create_table: {{table: {name}, key: [id], fields: [
      {{name: id, type: integer}}, {{name: word, type: string, optional: true}},
      {{name: size, type: integer, default: 5}},
      {{name: next, type: reference, to: {name}, optional: true}}]}}"""
    for name in ("ones", "others")
]
RULES = [
    rule
    for name in ("ones", "others")
    for rule in (
        f"create_index: {{table: {name}, index: word, unique: true, fields: [{{field: word}}]}}",
        f"create_index: {{table: {name}, index: next, fields: [{{field: next}}]}}",
        f"add_check: {{table: {name}, check: small, expression: 'size < 90'}}",
        f"add_reference: {{table: {name}, field: next, on_delete: restrict}}",
    )
]
Lines = list[tuple[int, dict[str, Any]]]


class GivenLines(RowSource):
    name = "lines"
    identity = ""
    counts_lines = True

    def __init__(self, lines: Lines) -> None:
        self._lines = lines

    def rows(self, after: str = "") -> Iterator[SourceRow]:
        for number, values in self._lines:
            yield SourceRow(number, values, values)


def put(db: Database, name: str, lines: Lines, batch: int | None = None) -> int | None:
    """The line that is refused, if one is."""
    importer = Importer(db._session, db.table(name), "upsert", batch or 2_000)
    try:
        with db.transaction() if batch is None else nullcontext():
            report = importer.run(GivenLines(lines))
    except ZapdbError as error:
        return error.location.line if error.location else 0
    assert report.written == len(lines)
    return None


def put_one_by_one(db: Database, name: str, lines: Lines) -> int | None:
    tried = list[int]()
    try:
        with db.transaction():
            for number, values in lines:
                tried.append(number)
                db.table(name).upsert(**values)
    except ZapdbError:
        return tried[-1]
    return None


def draw_lines(drawer: random.Random) -> Lines:
    """Few keys and words, so that records come twice and are in each other's way."""
    lines = list[tuple[int, dict[str, Any]]]()
    for number in range(drawer.randint(1, 12)):
        values: dict[str, Any] = {"id": drawer.randint(1, 40)}
        if drawer.random() < 0.4:
            values["word"] = drawer.choice([None, *"abcdefghijklmnopq"])
        if drawer.random() < 0.5:
            values["size"] = drawer.choice([1, 2, 90, "x"] if drawer.random() < 0.1 else [1, 2])
        if drawer.random() < 0.1:
            values["next"] = drawer.choice([None, drawer.randint(1, 40)])
        lines.append((number * 2 + 1, values))
    return lines


@pytest.mark.on_each_engine
def test_records_that_are_put_together_come_to_the_same(workspace: Workspace) -> None:
    workspace.write(1, *TABLES, *RULES)
    db, drawer = workspace.open(), random.Random(7)
    outcomes = set()
    for _ in range(60):
        lines = draw_lines(drawer)
        refused = put_one_by_one(db, "others", lines)
        together = put(db, "ones", lines, drawer.choice([None, 40]))
        found = [asdict(record) for record in db.table("ones").scan()]
        expected = [asdict(record) for record in db.table("others").scan()]
        if refused is not None and together is None:
            # Allowed: a record refers to one that comes later, or has the word that one gives up.
            for table in ("ones", "others"):
                db.table(table).delete_many([record["id"] for record in found + expected])
            outcomes.add("only together")
            continue
        assert together == refused
        assert found == expected
        outcomes.add("refused" if refused else "put")
    assert outcomes >= {"refused", "put"}
    assert all(report.problems == () for report in db.admin.verify())


@pytest.mark.parametrize("batch", [None, 500])
def test_new_records_take_few_statements(
    workspace: Workspace, batch: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace.write(1, *TABLES, *RULES)
    db = workspace.open()
    faults = Faults(workspace, db._storage, "before", lasting=False)
    faults.install(monkeypatch)
    faults.arm(0)
    assert put(db, "ones", [(n, {"id": n, "word": str(n)}) for n in range(1_000)], batch) is None
    assert faults.calls < 100
    assert db.table("ones").count() == 1_000
