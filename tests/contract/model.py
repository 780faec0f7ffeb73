"""A database's tables as plain data: what must be read, whatever was converted meanwhile.

The model keeps each record as it was last written, with the position on the chain that it had then,
and what is archived beside it. Reading it now is taking it along the chain by the oracle, operation
by operation.

A process that works with the shape of an older position sees a record as it is when taken there.
What it inserts is a record of that shape. Of a record that it changes, those fields follow in the
newest shape that are made of a field that it changed; `Sources` says which, by the texts of the
operations.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from tests.oracle import Kept, convert_kept, given, number_of
from zapdb.database import Database
from zapdb.expressions import parse_expression
from zapdb.expressions.tree import names_in
from zapdb.migrations import Chain
from zapdb.migrations.migration import ReplayAllocator
from zapdb.migrations.operations import Operation
from zapdb.migrations.operations.field import AddField, DropField, RestoreField
from zapdb.migrations.operations.field_change import MakeRequired
from zapdb.migrations.operations.rename import RenameField
from zapdb.migrations.operations.transform import Transform
from zapdb.records import held
from zapdb.schema import Field, TableSchema

Key = tuple[Any, ...]
Row = dict[str, Any]
NOTHING: Final[Mapping[str, Any]] = {}


class Model:
    """Records by the table's number and their key: as last written, and at which position."""

    def __init__(self) -> None:
        self.rows: dict[int, dict[Key, tuple[Kept, int]]] = {}

    def key_of(self, table: TableSchema, row: dict[str, Any]) -> Key:
        return tuple(row[f.name] for f in table.key_fields)

    def now(self, chain: Chain, table: TableSchema, key: Key) -> Kept:
        """A record as it has to be read at the end of the chain."""
        kept, position = self.rows[table.number][key]
        return convert_kept(chain, table.number, kept, position, chain.end)

    def put(self, chain: Chain, table: TableSchema, row: dict[str, Any]) -> None:
        """A record is written in the current shape; what lies beside it stays."""
        key = self.key_of(table, row)
        archive = self.now(chain, table, key).archive if key in self.rows[table.number] else {}
        self.rows[table.number][key] = Kept(row, archive), chain.end

    # A process at an older position

    def seen(self, chain: Chain, number: int, key: Key, at: int) -> Row:
        """A record as a process sees it that works with the shapes of position `at`.

        It sees what is in force where a table is the same there and its values mean the same.
        """
        kept, position = self.rows[number][key]
        ways = ((at, chain.end), (chain.end, at))
        is_same_table = chain.table_at(at, number) == chain.table_at(chain.end, number)
        if is_same_table and all(chain.conversion_plan(number, *way).is_identity for way in ways):
            at = chain.end
        return convert_kept(chain, number, kept, position, at).row

    def seen_all(self, chain: Chain, number: int, at: int) -> dict[Key, Row]:
        """All records of a table by their keys in the shape of position `at`."""
        table = chain.table_at(at, number)
        rows = (self.seen(chain, number, key, at) for key in self.rows[number])
        return {self.key_of(table, row): row for row in rows}

    def insert_at(
        self, chain: Chain, number: int, row: Row, at: int, made: Mapping[str, Any] = NOTHING
    ) -> None:
        """Such a process inserts a record, and makes values of fields that it does not see."""
        kept = convert_kept(chain, number, Kept(row), at, chain.end)
        kept.row.update(made)
        key = self.key_of(chain.table_at(chain.end, number), kept.row)
        assert key not in self.rows[number]
        self.rows[number][key] = kept, chain.end

    def update_at(self, chain: Chain, number: int, key: Key, changes: Row, at: int) -> None:
        """Such a process changes fields of a record; `key` is that in the newest shape."""
        table, newest = chain.table_at(at, number), chain.table_at(chain.end, number)
        before = self.seen(chain, number, key, at)
        differing = {
            f.name
            for f in table.value_fields
            if f.name in changes and not is_same(f, before[f.name], changes[f.name])
        }
        kept = self.now(chain, newest, key)
        sources = Sources(chain, number, at)
        # What the shape does not show of a record is there for what is restored on the way.
        hidden = convert_kept(chain, number, *self.rows[number][key], at).archive
        made = convert_kept(chain, number, Kept(before | changes, hidden), at, chain.end)
        for name, inputs in sources.fields.items():
            if inputs & differing:
                kept.row[name] = made.row[name]
        for field, inputs in sources.archive.items():
            if inputs & differing:
                kept.archive[field] = made.archive[field]
        self.rows[number][key] = kept, chain.end

    # What happens to the whole database

    def migrate(self, chain: Chain) -> None:
        """A migration was applied: nothing happens to records, but to those of discarded tables."""
        schema = chain.schema_at(chain.end)
        kept = {t.number for t in (*schema, *(archived.table for archived in schema.archived))}
        self.rows = {number: rows for number, rows in self.rows.items() if number in kept}
        for number in kept:
            self.rows.setdefault(number, {})
        self._file_again(chain)

    def _file_again(self, chain: Chain) -> None:
        """Under the keys that records have now: a member of an enum may have another name."""
        for table in chain.schema_at(chain.end):
            rows = self.rows[table.number]
            self.rows[table.number] = {
                self.key_of(table, self.now(chain, table, key).row): stored
                for key, stored in rows.items()
            }

    def convert(self, chain: Chain) -> None:
        """All records were converted."""
        for table in chain.schema_at(chain.end):
            self.convert_some(chain, table, list(self.rows[table.number]))

    def convert_some(self, chain: Chain, table: TableSchema, keys: Iterable[Key]) -> None:
        """These records of a table were converted."""
        rows = self.rows[table.number]
        for key in keys:
            rows[key] = self.now(chain, table, key), chain.end

    def prune(self, chain: Chain) -> None:
        """Archives were pruned, after all records had been converted."""
        schema = chain.schema_at(chain.end)
        for table in schema:
            gone = {archived.field.number for archived in table.archived}
            for kept, _ in self.rows[table.number].values():
                kept.archive = {n: value for n, value in kept.archive.items() if n not in gone}
        for archived in schema.archived:
            self.rows[archived.table.number] = {}

    def forget(self, chain: Chain) -> None:
        """The chain's newest migration was forgotten: records that it converted, or that were
        written under it, go back; the others never left."""
        number = chain.end
        before = chain.schema_at(number - 1)
        back: dict[int, dict[Key, tuple[Kept, int]]] = {}
        for table in (*before, *(archived.table for archived in before.archived)):
            rows = back.setdefault(table.number, {})
            for key, (kept, position) in self.rows.get(table.number, {}).items():
                if position >= number:
                    kept = convert_kept(chain, table.number, kept, number, number - 1)
                rows[key] = kept, min(position, number - 1)
        self.rows = back
        self._file_again(chain.up_to(number - 1))

    def check(self, db: Database) -> None:
        """The database shows what the model says."""
        self.check_at(db, db._catalog.chain, db._catalog.chain.end)

    def check_at(self, db: Database, chain: Chain, at: int) -> None:
        """A process that works with the shapes of position `at` sees what the model says."""
        for table in chain.schema_at(at):
            wanted = self.seen_all(chain, table.number, at)
            found = [held(record) for record in db.table(table.name).scan()]
            assert len(found) == len(wanted)
            for row in found:
                compare(table, row, wanted[self.key_of(table, row)])


def compare(table: TableSchema, found: Row, wanted: Row) -> None:
    assert found.keys() == wanted.keys()
    for field in table.fields:
        mine, theirs = found[field.name], wanted[field.name]
        assert is_same(field, mine, theirs), (table.name, field.name, mine, theirs)


def is_same(field: Field, mine: Any, theirs: Any) -> bool:
    if mine is None or theirs is None:
        return mine is theirs
    return bool(field.type.is_same(mine, theirs))


class Sources:
    """Of which fields at an older position the newest fields of a table are made, and what is
    archived on the way: names by name, and by number."""

    def __init__(self, chain: Chain, table: int, at: int) -> None:
        self.fields = {f.name: {f.name} for f in chain.table_at(at, table).fields}
        self.archive: dict[int, set[str]] = {}
        for migration in chain.after(at):
            schema, numbers = migration.before, ReplayAllocator(migration.drawn, migration.number)
            for operation in migration.changes:
                following = operation.apply(schema, numbers)
                before, after = schema.table_numbered(table), following.table_numbered(table)
                if before is not None and getattr(operation, "table", None) == before.name:
                    assert after is not None
                    self._follow(operation, before, after)
                schema = following

    def _follow(self, operation: Operation, before: TableSchema, after: TableSchema) -> None:
        fields = self.fields
        match operation:
            case RenameField(_, field, to):
                fields[to] = fields.pop(field)
            case DropField(_, field, restore):
                inputs = fields.pop(field)
                if given(restore) and restore.archive is True:
                    self.archive[number_of(before, field)] = inputs
            case RestoreField(_, field):
                # One that was dropped before is not made of anything: it is what it is.
                fields[field] = self.archive.pop(number_of(after, field), set())
            case AddField():
                fields[operation.field.name] = self._read(operation.fill)
            case MakeRequired(_, field, fill):
                fields[field] = fields[field] | self._read(fill)
            case Transform():
                taken = {name: fields.pop(name) for name in operation.source}
                for name, text in operation.up.items():
                    fields[name] = set().union(
                        *(taken[n] for n in names_in(parse_expression(text)))
                    )

    def _read(self, fill: Any) -> set[str]:
        if not given(fill) or not given(fill.expression):
            return set()
        return set().union(
            *(self.fields[name] for name in names_in(parse_expression(fill.expression)))
        )
