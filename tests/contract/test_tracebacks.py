"""The ten most frequent errors: how many frames of ours a traceback shows before their reason."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import zapdb
from tests.support import Workspace
from zapdb.database import Database
from zapdb.errors import (
    CheckViolation,
    InvalidValue,
    RecordExists,
    RecordNotFound,
    ReferenceViolation,
    UniqueViolation,
    UnknownField,
    UnknownName,
    ZapdbError,
)

FRAMES_MAX = 8
"""A frame is two lines of a traceback, so the call and its reason are on one screen."""

MAKERS = """\
create_table: {table: makers, key: [id], fields: [
      {name: id, type: integer},
      {name: name, type: string}]}"""
ITEMS = """\
create_table: {table: items, key: [id], fields: [
      {name: id, type: integer},
      {name: title, type: string},
      {name: stock, type: integer},
      {name: maker, type: reference, to: makers, optional: true}]}"""
TITLES = "create_index: {table: items, index: titles, unique: true, fields: [{field: title}]}"
COUNTED = "add_check: {table: items, check: counted, expression: stock >= 0}"
BY_MAKER = "create_index: {table: items, index: by_maker, fields: [{field: maker}]}"
MADE = "add_reference: {table: items, field: maker, on_delete: restrict}"

MISTAKES: list[tuple[str, type[ZapdbError], Callable[[Any], object]]] = [
    ("unknown field", UnknownField, lambda db: items(db).insert(id=2, tilte="b", stock=1)),
    ("missing field", InvalidValue, lambda db: items(db).insert(id=2, title="b")),
    ("wrong type", InvalidValue, lambda db: items(db).insert(id=2, title="b", stock="one")),
    ("duplicate key", RecordExists, lambda db: items(db).insert(id=1, title="b", stock=1)),
    ("no record: get", RecordNotFound, lambda db: items(db).get(5)),
    ("no record: update", RecordNotFound, lambda db: items(db).update(5, stock=3)),
    ("no record: delete", RecordNotFound, lambda db: items(db).delete(5)),
    (
        "broken reference",
        ReferenceViolation,
        lambda db: items(db).insert(id=2, title="b", stock=1, maker=9),
    ),
    ("restricted deletion", ReferenceViolation, lambda db: db.table("makers").delete(1)),
    ("condition on a field", UnknownField, lambda db: items(db).where(colour=3)),
    ("field of a condition", UnknownField, lambda db: items(db).f.colour == 3),
    ("check", CheckViolation, lambda db: items(db).insert(id=2, title="b", stock=-1)),
    ("check of many", CheckViolation, lambda db: insert_many(db, id=2, title="b", stock=-1)),
    ("unique", UniqueViolation, lambda db: items(db).insert(id=2, title="a", stock=1)),
    ("unique in an update", UniqueViolation, lambda db: items(db).update(3, title="a")),
    ("unique among many", UniqueViolation, lambda db: insert_many(db, id=2, title="a", stock=1)),
    ("unknown table", UnknownName, lambda db: db.table("itms")),
]


def items(db: Any) -> Any:
    return db.table("items")


def insert_many(db: Any, **values: Any) -> None:
    items(db).insert_many([values])


@pytest.fixture
def db(workspace: Workspace) -> Database:
    workspace.write(1, MAKERS, ITEMS, TITLES, COUNTED, BY_MAKER, MADE)
    db = workspace.open()
    db.table("makers").insert(id=1, name="m")
    items(db).insert(id=1, title="a", stock=1, maker=1)
    items(db).insert(id=3, title="c", stock=1)
    return db


def test_a_traceback_has_few_frames_before_its_reason(db: Database) -> None:
    package, shown = str(Path(zapdb.__file__).parent), dict[str, list[str]]()
    for name, kind, mistake in MISTAKES:
        for where, act in (("", mistake), (", in a transaction", in_transaction(mistake))):
            with pytest.raises(kind) as raised:
                act(db)
            frames = traceback.extract_tb(raised.tb)
            ours = [frame.name for frame in frames if frame.filename.startswith(package)]
            if where:  # those of the block itself, which are the same whatever is done in it
                ours = [name for name in ours if name not in {"__exit__", "leave"}]
            if len(ours) > FRAMES_MAX:
                shown[name + where] = ours
            assert raised.value.__cause__ is None  # a second traceback before it
            assert raised.value.__context__ is None or raised.value.__suppress_context__
    assert shown == {}


def in_transaction(mistake: Callable[[Any], object]) -> Callable[[Any], object]:
    def act(db: Database) -> None:
        with db.transaction() as tx:
            mistake(tx)

    return act
