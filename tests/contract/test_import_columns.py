"""Columns are imported by whole arrays: the bytes are those of records that are inserted one
by one, and what is wrong with a row is said as it is there."""

from __future__ import annotations

import datetime
import decimal
import uuid
from collections.abc import Iterator
from typing import Any

import pyarrow
import pytest

from tests.support import Workspace
from zapdb.database import Database, RecordChange
from zapdb.errors import CheckViolation, RecordExists, ReferenceViolation, UniqueViolation
from zapdb.imports import (
    SkippedRow,
    row_batches,
)
from zapdb.storage import postgresql_dialect
from zapdb.storage.data_tables import index_table_name, record_table_name

UTC = datetime.UTC
KINDS = "create_type: {type: kind, enum: [small, large, huge]}"
TARGETS = "create_table: {table: targets, key: [name], fields: [{name: name, type: string}]}"
THINGS = """create_table: {{table: {0}, key: [name, id], fields: [
  {{name: name, type: string}}, {{name: id, type: integer}},
  {{name: count, type: integer, optional: true}}, {{name: price, type: decimal, scale: 2}},
  {{name: size, type: float, optional: true}}, {{name: text, type: string, optional: true}},
  {{name: at, type: timestamp}}, {{name: day, type: date, optional: true}},
  {{name: is_new, type: boolean}}, {{name: raw, type: binary}},
  {{name: token, type: uuid, optional: true}}, {{name: kind, type: kind}},
  {{name: data, type: json}}, {{name: tags, type: list, of: integer, optional: true}},
  {{name: target, type: reference, to: targets, optional: true}},
  {{name: other, type: reference, to: targets, optional: true}},
  {{name: made, type: integer, generated: sequence}},
  {{name: left, type: integer, default: 7}}, {{name: gone, type: string, optional: true}}]}}"""
INDEXES = (
    "[{field: count, descending: true}, {field: day}]",
    "[{field: text, collation: {locale: und, strength: primary}}]",
    "[{field: text}, {field: gone}]",
    "[{field: kind}, {field: price, descending: true}, {field: left}]",
    "[{field: size}, {field: at}, {field: is_new}, {field: raw}, {field: token}, {field: target}]",
)
UNIQUE = ("[{field: count}, {field: id}]", "[{field: made}]")


def things(name: str) -> Iterator[str]:
    yield THINGS.format(name)
    for number, fields in enumerate([*INDEXES, *UNIQUE]):
        unique = ", unique: true" if fields in UNIQUE else ""
        yield f"create_index: {{table: {name}, index: i{number}, fields: {fields}{unique}}}"
    yield f"create_index: {{table: {name}, index: by_target, fields: [{{field: target}}]}}"
    yield f"add_reference: {{table: {name}, field: target, on_delete: restrict}}"


def make(at: int) -> dict[str, Any]:
    sign = -1 if at % 3 else 1
    return {
        "name": "Ä" * (at % 5) + str(at % 7),
        "id": at,
        "count": None if at % 4 == 0 else sign * 3**at % 2**62 * sign,
        "price": decimal.Decimal(sign * at * 10 ** (at % 12)).scaleb(-2),
        "size": None if at % 6 == 0 else sign * at / 7,
        "text": [None, "", "long " * 300, f"ümlaut {at % 9}", "x" * 5000][at % 5],
        "at": datetime.datetime(1969, 1, 1, tzinfo=UTC)
        + datetime.timedelta(days=at, microseconds=at),
        "day": None if at % 5 else datetime.date(1960, 1, 1) + datetime.timedelta(days=at * 300),
        "is_new": at % 2 == 0,
        "raw": bytes([at % 256]) * (at % 70),
        "token": None if at % 8 == 3 else uuid.UUID(int=at << 90 | at),
        "kind": ["small", "large", "huge"][at % 3],
        "data": {"n": at} if at % 3 else None,
        "tags": None if at % 2 else [at, -at],
        "target": [None, "a", "b\0c"][at % 3],
        "other": ["a", None][at % 2],  # without a zero, which is packed otherwise
    }


def to_arrow(rows: list[dict[str, Any]]) -> Any:
    """The rows in types of Arrow that hold the same values, some in another form."""
    plain = [
        {
            **row,
            "token": row["token"] and str(row["token"]),
            "data": "null" if row["data"] is None else f'{{"n": {row["data"]["n"]}}}',
        }
        for row in rows
    ]
    schema = pyarrow.schema(
        {
            "name": pyarrow.large_string(),
            "id": pyarrow.int64(),
            "count": pyarrow.int64(),
            "price": pyarrow.decimal128(30, 2),
            "size": pyarrow.float64(),
            "text": pyarrow.dictionary(pyarrow.int32(), pyarrow.string()),
            "at": pyarrow.timestamp("ns", "Europe/Vienna"),
            "day": pyarrow.date32(),
            "is_new": pyarrow.bool_(),
            "raw": pyarrow.binary(),
            "token": pyarrow.string(),
            "kind": pyarrow.string(),
            "data": pyarrow.string(),
            "tags": pyarrow.list_(pyarrow.int16()),
            "target": pyarrow.string(),
            "other": pyarrow.string(),
        }
    )
    return pyarrow.Table.from_pylist(plain, schema)


def stored(db: Database, name: str) -> list[list[tuple[Any, ...]]]:
    """The rows of a table's records and entries, without the ids of blobs."""
    connection = db._storage.connection()
    descriptor = db._session.catalog.tables[name]
    tables = [index_table_name(index.entry_table) for index in descriptor.indexes]
    tables.insert(0, record_table_name(descriptor.schema.number))
    return [sorted(map(tuple, connection.fetch_all(f"SELECT * FROM {one}"))) for one in tables]


@pytest.fixture
def db(workspace: Workspace) -> Iterator[Database]:
    workspace.write(1, KINDS, TARGETS, *things("columns"), *things("rows"))
    with workspace.open() as db:
        db.admin.run_jobs()
        db.table("targets").insert_many([{"name": "a"}, {"name": "b\0c"}])
        yield db


@pytest.fixture
def by_columns(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Nothing is written row by row."""

    def refuse(*given: object) -> None:
        raise AssertionError("rows are written one by one")

    with monkeypatch.context() as patch:
        patch.setattr(row_batches, "write_batch", refuse)
        yield


@pytest.mark.usefixtures("by_columns")
def test_columns_become_the_bytes_of_rows(db: Database) -> None:
    rows = [make(at) for at in range(120)]
    report = db.table("columns").import_from(to_arrow(rows))
    assert (report.read, report.written) == (120, 120)
    db.table("rows").insert_many(rows)
    assert list(map(repr, db.table("columns"))) == [
        repr(one).replace("rows", "columns", 1) for one in db.table("rows")
    ]
    blobs = {row["id"] for row in rows if row["text"] and len(row["text"]) > 4096}
    ours, theirs = stored(db, "columns"), stored(db, "rows")
    for mine, other in zip(ours[1:], theirs[1:], strict=True):
        assert mine == other
    assert len(ours[0]) == len(theirs[0]) == 120
    differing = sum(mine != other for mine, other in zip(ours[0], theirs[0], strict=True))
    assert differing == len(blobs)  # each has an id of its own
    assert [report.problem_count for report in db.admin.verify()] == [0, 0, 0]


ITEMS = (
    TARGETS,
    """create_table: {table: items, key: [id], fields: [{name: id, type: integer},
      {name: code, type: integer},
      {name: target, type: reference, to: targets, optional: true}]}""",
    "create_index: {table: items, index: by_code, fields: [{field: code}], unique: true}",
    "create_index: {table: items, index: by_target, fields: [{field: target}]}",
    "add_reference: {table: items, field: target, on_delete: restrict}",
    "add_check: {table: items, check: small, expression: 'code < 100000'}",
)


def test_a_row_that_is_refused_is_named_and_nothing_of_its_batch_is_left(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgresql_dialect, "COPIED_ROWS_MIN", 100)
    count = 250  # so many are sent by COPY, in three parts
    workspace.write(1, *ITEMS)
    with workspace.open() as db:
        db.admin.run_jobs()
        db.admin.set_setting("change_log", "on", table="items")
        items = db.table("items")
        items.insert(id=-1, code=-1)
        ids, codes = list(range(count)), list(range(count))
        cases: list[tuple[dict[str, Any], type[Exception]]] = [
            ({"id": [-1, *ids[1:]], "code": codes}, RecordExists),
            ({"id": ids, "code": [*codes[:-1], -1]}, UniqueViolation),
            ({"id": ids, "code": [*codes[:-1], 100_000]}, CheckViolation),
            ({"id": ids, "code": codes, "target": ["a"] * count}, ReferenceViolation),
        ]
        for columns, error in cases:
            with pytest.raises(error) as caught:
                items.import_from(pyarrow.table(columns))
            assert "row" in caught.value.context
            assert items.count() == 1
        skipped = list[SkippedRow]()
        report = items.import_from(pyarrow.table(cases[1][0]), skipped=skipped)
        assert (report.written, [row.number for row in skipped]) == (count - 1, [count])
        with db.transaction():
            items.import_from(
                pyarrow.table({"id": [i + count for i in ids], "code": [c + count for c in codes]})
            )
        assert items.count() == 2 * count
        assert [one.problem_count for one in db.admin.verify()] == [0, 0]
        inserted = sum(isinstance(change, RecordChange) for change in db.change_log.read())
        assert inserted == 2 * count
