"""Random lives of a database beside a plain model: migrations, writes, jobs, forgets, in any order.

The model keeps each record as it was last written, with the position on the chain that it had then,
and what is archived beside it. Reading it now is taking it along the chain by the oracle, operation
by operation. The database must show the same at every moment, whatever was converted meanwhile.
"""

from __future__ import annotations

import shutil
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, event, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

import zapdb
from tests.oracle import Kept, convert_kept
from tests.strategies import DECLARATIONS, Author, document_of, extend, records_of, values_of
from tests.support import PostgresServer
from zapdb.catalog import DEFAULT_TENANT
from zapdb.catalog.up import migrate_up
from zapdb.errors import (
    CheckViolation,
    NotProven,
    RecordExists,
    ReferenceViolation,
    UniqueViolation,
)
from zapdb.jobs import forget_newest
from zapdb.jobs.archives import prune_archives
from zapdb.migrations import Chain, Numbers
from zapdb.records import held
from zapdb.schema import Table
from zapdb.storage import connect

CONSTRAINTS = (UniqueViolation, CheckViolation, ReferenceViolation)
Stored = tuple[Kept, int]
"""A record as it was last written, and the position that it was written at."""


class Life(RuleBasedStateMachine):
    """One database; `server` is None for SQLite."""

    def __init__(self, server: PostgresServer | None) -> None:
        super().__init__()
        self.resources = ExitStack()
        self.directory = Path(tempfile.mkdtemp(prefix="zapdb-life-"))
        self.resources.callback(shutil.rmtree, self.directory)
        self.migrations = self.directory / "migrations"
        self.migrations.mkdir()
        if server is None:
            self.address = f"sqlite:///{self.directory / 'life.db'}"
        else:
            self.address = self.resources.enter_context(server.fresh_database())
        self.db: zapdb.database.Database | None = None
        self.rows: dict[int, dict[tuple[Any, ...], Stored]] = {}

    def teardown(self) -> None:
        if self.db is not None:
            self.db.close()
        self.resources.close()

    # What both sides know

    @property
    def chain(self) -> Chain:
        assert self.db is not None
        return self.db.view.chain

    def tables(self) -> list[Table]:
        return list(self.chain.schema_at(self.chain.end))

    def now(self, table: Table, stored: Stored) -> Kept:
        kept, position = stored
        return convert_kept(self.chain, table.number, kept, position, self.chain.end)

    def key_of(self, table: Table, row: dict[str, Any]) -> tuple[Any, ...]:
        return tuple(row[f.name] for f in table.key_fields)

    def path(self, number: int) -> Path:
        return self.migrations / f"{number:04d}_drawn.yaml"

    # Steps

    @initialize(data=st.data())
    def begin(self, data: st.DataObject) -> None:
        self.path(1).write_text(document_of(DECLARATIONS))
        self.db = zapdb.open(self.address, migrations=self.migrations, apply="auto")
        self.migrate(data)

    @rule(data=st.data())
    def migrate(self, data: st.DataObject) -> None:
        """One migration of one or two operations; some are refused, and change nothing then."""
        author, chain = Author(data.draw, archives=True), self.chain
        following = Numbers(dict.fromkeys(("table", "field", "index", "type", "check"), 10**9))
        operations = [author.operation(chain.schema_at(chain.end))]
        text = document_of(operations)
        extend(chain, text, following)
        number = chain.end + 1
        self.path(number).write_text(text)
        assert self.db is not None
        self.db.close()
        storage = connect(self.address)
        try:
            migrate_up(storage, DEFAULT_TENANT, self.migrations, again=True)
        except NotProven:
            event("not proven")
            self.path(number).unlink()
        finally:
            storage.close()
        self.db = zapdb.open(self.address, migrations=self.migrations)
        for keyword in operations[0]:
            event(keyword)
        kept = {t.number for t in (*self.tables(), *self._archived_tables())}
        self.rows = {n: rows for n, rows in self.rows.items() if n in kept}
        for table in self.tables():
            self.rows.setdefault(table.number, {})
            if len(self.rows[table.number]) < 3:
                self._insert(table, data.draw(st.lists(records_of(table), min_size=2, max_size=3)))

    def _archived_tables(self) -> list[Table]:
        return [archived.table for archived in self.chain.schema_at(self.chain.end).archived]

    @rule(data=st.data())
    @precondition(lambda self: self.db is not None and self.tables())
    def insert(self, data: st.DataObject) -> None:
        table = data.draw(st.sampled_from(self.tables()))
        self._insert(table, data.draw(st.lists(records_of(table), min_size=1, max_size=4)))

    def _insert(self, table: Table, records: list[dict[str, Any]]) -> None:
        assert self.db is not None
        for row in records:
            key = self.key_of(table, row)
            try:
                self.db.table(table.name).insert(**row)
            except RecordExists:
                assert key in self.rows[table.number]
                continue
            except CONSTRAINTS:
                continue
            assert key not in self.rows[table.number]
            self.rows[table.number][key] = Kept(row), self.chain.end

    @rule(data=st.data())
    @precondition(lambda self: any(self.rows.get(t.number) for t in self.tables()))
    def update(self, data: st.DataObject) -> None:
        assert self.db is not None
        table, key = self._choose(data)
        kept = self.now(table, self.rows[table.number][key])
        fields = list(table.value_fields)
        if not fields:
            return
        field = data.draw(st.sampled_from(fields))
        value = data.draw(
            st.none() | values_of(field.type) if field.optional else values_of(field.type)
        )
        try:
            self.db.table(table.name).update(*key, **{field.name: value})
        except CONSTRAINTS:
            return
        self.rows[table.number][key] = (
            Kept(kept.row | {field.name: value}, kept.archive),
            self.chain.end,
        )

    @rule(data=st.data())
    @precondition(lambda self: any(self.rows.get(t.number) for t in self.tables()))
    def delete(self, data: st.DataObject) -> None:
        assert self.db is not None
        table, key = self._choose(data)
        if any(t.foreign_keys for t in self.tables()):
            return  # what goes with it is the matter of other tests
        self.db.table(table.name).delete(*key)
        del self.rows[table.number][key]

    def _choose(self, data: st.DataObject) -> tuple[Table, tuple[Any, ...]]:
        table = data.draw(st.sampled_from([t for t in self.tables() if self.rows[t.number]]))
        at = data.draw(st.integers(0, len(self.rows[table.number]) - 1))
        return table, list(self.rows[table.number])[at]

    @rule()
    @precondition(lambda self: self.db is not None)
    def run_jobs(self) -> None:
        assert self.db is not None
        self.db.run_jobs()
        for table in self.tables():
            rows = self.rows[table.number]
            for key, stored in rows.items():
                rows[key] = self.now(table, stored), self.chain.end

    @rule()
    @precondition(lambda self: self.db is not None)
    def prune(self) -> None:
        assert self.db is not None
        self.run_jobs()
        prune_archives(self.db.storage, DEFAULT_TENANT)
        for table in self.tables():
            gone = {archived.field.number for archived in table.archived}
            for kept, _ in self.rows[table.number].values():
                kept.archive = {n: v for n, v in kept.archive.items() if n not in gone}
        for table in self._archived_tables():
            self.rows[table.number] = {}

    @rule()
    @precondition(lambda self: self.db is not None and self.chain.end > 2)
    def forget(self) -> None:
        """Records that were written under the newest migration go back; the others never left."""
        assert self.db is not None
        chain, number = self.chain, self.chain.end
        before = chain.schema_at(number - 1)
        self.db.close()
        storage = connect(self.address)
        try:
            assert forget_newest(storage, DEFAULT_TENANT).number == number
        finally:
            storage.close()
        self.path(number).unlink()
        back: dict[int, dict[tuple[Any, ...], Stored]] = {}
        for table in (*before, *(archived.table for archived in before.archived)):
            rows = back.setdefault(table.number, {})
            for key, (kept, position) in self.rows.get(table.number, {}).items():
                if position >= number:
                    kept = convert_kept(chain, table.number, kept, number, number - 1)
                    position = number - 1
                rows[key] = kept, position
        self.rows = back
        self.db = zapdb.open(self.address, migrations=self.migrations)

    # What must hold

    @invariant()
    def what_is_read_is_what_the_model_says(self) -> None:
        if self.db is None:
            return
        for table in self.tables():
            found = [held(record) for record in self.db.table(table.name).scan()]
            wanted = [self.now(table, stored).row for stored in self.rows[table.number].values()]
            assert len(found) == len(wanted)
            by_key = {self.key_of(table, row): row for row in wanted}
            for row in found:
                expected = by_key[self.key_of(table, row)]
                assert row.keys() == expected.keys()
                for field in table.fields:
                    mine, theirs = row[field.name], expected[field.name]
                    is_null = mine is None or theirs is None
                    same = mine is theirs if is_null else field.type.is_same(mine, theirs)
                    assert same, (table.name, field.name, mine, theirs)


LIVES = {"sqlite": 25, "postgresql": 8}


def test_rule_02_every_life_is_what_the_model_says(
    engine: str, request: pytest.FixtureRequest
) -> None:
    server = request.getfixturevalue("postgres") if engine == "postgresql" else None
    run_state_machine_as_test(
        lambda: Life(server),
        settings=settings(
            max_examples=LIVES[engine],
            stateful_step_count=30,
            deadline=None,
            phases=(Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink),
            suppress_health_check=list(HealthCheck),
        ),
    )
