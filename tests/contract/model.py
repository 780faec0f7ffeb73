"""A database's tables as plain data: what must be read, whatever was converted meanwhile.

The model keeps each record as it was last written, with the position on the chain that it had then,
and what is archived beside it. Reading it now is taking it along the chain by the oracle, operation
by operation.
"""

from __future__ import annotations

from typing import Any

from tests.oracle import Kept, convert_kept
from zapdb.database import Database
from zapdb.migrations import Chain
from zapdb.records import held
from zapdb.schema import Table

Key = tuple[Any, ...]


class Model:
    """Records by the table's number and their key: as last written, and at which position."""

    def __init__(self) -> None:
        self.rows: dict[int, dict[Key, tuple[Kept, int]]] = {}

    def key_of(self, table: Table, row: dict[str, Any]) -> Key:
        return tuple(row[f.name] for f in table.key_fields)

    def now(self, chain: Chain, table: Table, key: Key) -> Kept:
        """A record as it has to be read at the end of the chain."""
        kept, position = self.rows[table.number][key]
        return convert_kept(chain, table.number, kept, position, chain.end)

    def put(self, chain: Chain, table: Table, row: dict[str, Any]) -> None:
        """A record is written in the current shape; what lies beside it stays."""
        key = self.key_of(table, row)
        archive = self.now(chain, table, key).archive if key in self.rows[table.number] else {}
        self.rows[table.number][key] = Kept(row, archive), chain.end

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
            rows = self.rows[table.number]
            for key in rows:
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
        chain = db.view.chain
        for table in chain.schema_at(chain.end):
            found = [held(record) for record in db.table(table.name).scan()]
            wanted = {key: self.now(chain, table, key).row for key in self.rows[table.number]}
            assert len(found) == len(wanted)
            for row in found:
                expected = wanted[self.key_of(table, row)]
                assert row.keys() == expected.keys()
                for field in table.fields:
                    mine, theirs = row[field.name], expected[field.name]
                    is_null = mine is None or theirs is None
                    is_same = mine is theirs if is_null else field.type.is_same(mine, theirs)
                    assert is_same, (table.name, field.name, mine, theirs)
