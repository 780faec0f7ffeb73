"""Every operation goes up and comes back, with records of every revision, beside a plain model."""

from __future__ import annotations

import datetime
import uuid
from decimal import Decimal
from typing import Any

import pytest

from tests.contract.model import Model
from tests.support import Workspace
from zapdb.activation.rollback import roll_back
from zapdb.database import Database
from zapdb.migrations.operations.operation_examples import EXAMPLES, FIRST
from zapdb.schema import Field, TableSchema
from zapdb.storage import connect
from zapdb.values import Enum, Reference

COUNT = 6


def value_of(field: Field, at: int) -> Any:
    """A value of the field, another one for each number; now and then null where that may be."""
    if field.optional and at % 3 == 0:
        return None
    match field.type:
        case Enum(members=members):
            return members[at % len(members)][1]
        case Reference():
            return at % COUNT
    return {
        "integer": at,
        "uuid": uuid.UUID(int=at),
        "string": f"Ada {at} Lovelace",
        "date": datetime.date(2020, 1, 1) + datetime.timedelta(at),
        "decimal": Decimal(at).quantize(Decimal("0.01")),
    }[field.type.name]


def row_of(table: TableSchema, at: int) -> dict[str, Any]:
    return {
        f.name: at if f.number in table.key and f.type.name == "integer" else value_of(f, at)
        for f in table.fields
    }


def insert(db: Database, model: Model, first: int) -> None:
    """Records into every table, those that are referred to first."""
    chain = db._catalog.chain
    for table in chain.schema_at(chain.end):
        for at in range(first, first + COUNT):
            row = row_of(table, at)
            db.table(table.name).insert(**row)
            model.put(chain, table, {f.name: row[f.name] for f in table.fields})


def update(db: Database, model: Model, key: int) -> None:
    """One record of every table, each in its last field."""
    chain = db._catalog.chain
    for table in chain.schema_at(chain.end):
        if (key,) not in model.rows[table.number] or not table.value_fields:
            continue
        field = table.value_fields[-1]
        changed = {field.name: value_of(field, key + 1)}
        row = model.now(chain, table, (key,)).row
        db.table(table.name).update(key, **changed)
        model.put(chain, table, row | changed)


def write(place: Workspace, number: int, item: str) -> None:
    changes = "".join(f"  {line}\n" for line in item.splitlines())
    text = f"zapdb: 1\nsummary: Example\nchanges:\n{changes}rollback: inferred\n"
    (place.directory / f"{number:04d}_example.yaml").write_text(text)


def check(db: Database, model: Model) -> None:
    model.check(db)
    for report in db.admin.verify():
        assert report.problems == ()


@pytest.mark.parametrize("keyword", EXAMPLES)
def test_rule_13_an_operation_goes_up_and_comes_back(workspace: Workspace, keyword: str) -> None:
    """Applied, read, converted in part and as a whole, forgotten, and read after each of it."""
    example, model = EXAMPLES[keyword], Model()
    items = (FIRST, *(EXAMPLES[needed].text for needed in example.needs), example.text)
    for number, item in enumerate(items, 1):
        write(workspace, number, item)
        with workspace.open() as db:
            model.migrate(db._catalog.chain)
            check(db, model)
            insert(db, model, number * COUNT - COUNT)
            check(db, model)
    end = len(items)
    with workspace.open() as db:
        chain = db._catalog.chain
        update(db, model, 1)
        check(db, model)
        db.admin.run_jobs()
        model.convert(chain)
        check(db, model)
    storage = connect(workspace.address)
    try:
        assert roll_back(storage).migrations[0].number == end
    finally:
        storage.close()
    (workspace.directory / f"{end:04d}_example.yaml").unlink()
    model.forget(chain)
    with workspace.open() as db:
        check(db, model)
        insert(db, model, end * COUNT)
        check(db, model)
