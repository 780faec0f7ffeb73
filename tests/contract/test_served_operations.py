"""Processes whose files end before what is in force read and write in their own shape (rule 11)."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from tests.contract.model import Key, Model, Row, compare
from tests.contract.test_operations import row_of, value_of, write
from tests.lookups import find
from tests.support import Workspace, error_of
from zapdb.activation.rollback import roll_back
from zapdb.database import Database
from zapdb.errors import (
    ActivationPending,
    RecordExists,
    ServedSchemaUnavailable,
)
from zapdb.migrations import Chain
from zapdb.migrations.operations.operation_examples import EXAMPLES, FIRST
from zapdb.schema import TableSchema

pytestmark = pytest.mark.long_on("postgresql")


COUNT = 6
"""Records that each of the processes writes into each table: as many towns are referred to."""


# Every operation


class Beside:
    """A process at an older position beside one that has the newest files, and the model."""

    def __init__(self, older: Database, newer: Database, model: Model, at: int) -> None:
        self.older, self.newer, self.model, self.at = older, newer, model, at

    @property
    def chain(self) -> Chain:
        return self.newer._catalog.chain

    def tables(self) -> list[TableSchema]:
        return list(self.chain.schema_at(self.at))

    def check(self) -> None:
        """Both see what the model says, by whatever way they look."""
        self.model.check(self.newer)
        self.model.check_at(self.older, self.chain, self.at)
        for table in self.tables():
            wanted = self.model.seen_all(self.chain, table.number, self.at)
            seen = self.older.table(table.name)
            assert seen.count() == len(wanted)
            for key, row in wanted.items():
                compare(table, record_to_row(seen.get(*key)), row)
            self.check_lookups(table, wanted)
            check_arrow(self.older, table, wanted)
        for db in (self.older, self.newer):
            for report in db.admin.verify():
                assert report.problems == ()

    def check_lookups(self, table: TableSchema, wanted: dict[Key, Row]) -> None:
        for index in table.indexes:
            name = table.field_numbered(index.components[0].field).name
            for value in {row[name] for row in wanted.values()}:
                mine = [
                    record_to_row(r) for r in find(self.older.table(table.name), index.name, value)
                ]
                assert keys_of(table, mine) == keys_of(
                    table, [row for row in wanted.values() if row[name] == value]
                )
            assert keys_of(
                table, [record_to_row(r) for r in self.older.table(table.name).using(index.name)]
            ) == sorted(wanted)

    def write(self, first: int) -> None:
        """All that the older process can do to records, of its own and of the newer one's."""
        numbers = itertools.count(first)
        for table in self.tables():
            mine = self.older.table(table.name)
            rows = [row_of(table, next(numbers)) for _ in range(COUNT)]
            for row in rows[:2]:
                assert record_to_row(mine.insert(**row)).keys() == row.keys()
            mine.insert_many(rows[2:])
            for row in rows:
                self.model.insert_at(self.chain, table.number, row, self.at)
            assert isinstance(error_of(lambda t=mine, r=rows[0]: t.insert(**r)), RecordExists)
        for table in self.tables():
            keys = list(self.model.rows[table.number])
            for (turn, field), key in zip(
                enumerate([*table.value_fields] * 2), itertools.cycle(keys), strict=False
            ):
                self.update(table, key, {field.name: value_of(field, turn + 1)})
            everything = {f.name: value_of(f, 7) for f in table.value_fields}
            self.update(table, keys[-1], everything)
            if table.name != "towns":  # what refers to one is the matter of other tests
                seen = self.model.seen(self.chain, table.number, keys[0], self.at)
                self.older.table(table.name).delete(*self.model.key_of(table, seen))
                del self.model.rows[table.number][keys[0]]

    def update(self, table: TableSchema, key: Key, changes: Row) -> None:
        seen = self.model.seen(self.chain, table.number, key, self.at)
        shown = self.older.table(table.name).update(*self.model.key_of(table, seen), **changes)
        self.model.update_at(self.chain, table.number, key, changes, self.at)
        wanted = self.model.seen(self.chain, table.number, key, self.at)
        compare(table, record_to_row(shown), wanted)

    def write_newer(self, first: int) -> None:
        for table in self.chain.schema_at(self.chain.end):
            for at in range(first, first + COUNT):
                row = row_of(table, at)
                self.newer.table(table.name).insert(**row)
                self.model.put(self.chain, table, {f.name: row[f.name] for f in table.fields})


def record_to_row(record: Any) -> Row:
    return {name: getattr(record, name) for name in record._fields}


def keys_of(table: TableSchema, rows: list[Row]) -> list[Key]:
    return sorted(tuple(row[f.name] for f in table.key_fields) for row in rows)


def check_arrow(db: Database, table: TableSchema, wanted: dict[Key, Row]) -> None:
    pytest.importorskip("pyarrow")
    found = db.table(table.name).to_arrow().read_all()
    assert found.column_names == [f.name for f in table.fields]
    for field in table.fields:
        if field.type.name in ("string", "date", "integer", "decimal"):
            values = found.column(field.name).to_pylist()
            assert values == [wanted[key][field.name] for key in sorted(wanted)]


def items_of(keyword: str) -> list[str]:
    example = EXAMPLES[keyword]
    return [FIRST, *(EXAMPLES[needed].text for needed in example.needs), example.text]


@pytest.mark.parametrize("keyword", [k for k in EXAMPLES if k != "drop_table"])
def test_rule_11_older_processes_go_on_beside_every_operation(
    workspace: Workspace, keyword: str
) -> None:
    """One that was open before, and one that has the newest file and works without it."""
    items, model = items_of(keyword), Model()
    at = len(items) - 1
    for number, item in enumerate(items[:-1], 1):
        write(workspace, number, item)
    kept = workspace.open()
    model.migrate(kept._catalog.chain)
    Beside(kept, kept, model, at).write_newer(0)
    write(workspace, at + 1, items[-1])
    newer = workspace.open()
    model.migrate(newer._catalog.chain)
    told = workspace.open(serve_as=at)
    both = Beside(kept, newer, model, at)
    both.write_newer(10)
    model.check_at(kept, both.chain, at)
    both.write(20)
    both.older = told
    both.check()
    newer.admin.run_jobs()
    model.convert(both.chain)
    model.check_at(kept, both.chain, at)
    both.write(60)
    both.older = kept
    both.check()
    chain = both.chain
    newer.close()
    told.close()
    assert roll_back(workspace.connect()).migrations[0].number == at + 1
    model.forget(chain)
    workspace.remove(at + 1)
    kept.admin.wait_for_catalog(kept.admin.catalog_seq())
    again = Beside(kept, kept, model, at)
    again.write(100)
    model.check(kept)


def test_rule_11_a_dropped_table_is_served_while_it_is_used(
    workspace: Workspace,
) -> None:
    items = items_of("drop_table")
    at = len(items) - 1
    for number, item in enumerate(items[:-1], 1):
        write(workspace, number, item)
    kept = workspace.open()
    write(workspace, at + 1, items[-1])
    waits = error_of(lambda: workspace.open(wait_seconds=0))
    assert isinstance(waits, ActivationPending)
    told = workspace.open(apply="never", serve_as=at)
    assert (told.position, told.table("visits").count()) == (at, 0)
    kept.close()
    newer = workspace.open()
    assert newer.position == at + 1
    told.admin.wait_for_catalog(told.admin.catalog_seq())
    assert told.table("visits").count() == 0
    with workspace.open(serve_as=at) as another:
        assert another.table("visits").count() == 0
    told.close()
    refused = error_of(lambda: workspace.open(serve_as=at))
    assert isinstance(refused, ServedSchemaUnavailable)
    assert refused.context["dropped_by"] == f"{at + 1:04d}_example"
