"""Random lives of a database beside a plain model: migrations, writes, jobs and forgets."""

from __future__ import annotations

import shutil
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, event, settings
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
from tests.contract.model import Key, Model
from tests.strategies import DECLARATIONS, Author, document_of, records_of, values_of
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
from zapdb.migrations import Chain
from zapdb.schema import Table
from zapdb.storage import connect

CONSTRAINTS = (UniqueViolation, CheckViolation, ReferenceViolation)


class Life(RuleBasedStateMachine):
    """One database; `server` is None for SQLite."""

    db: zapdb.database.Database

    def __init__(self, server: PostgresServer | None) -> None:
        super().__init__()
        self.resources = ExitStack()
        directory = Path(tempfile.mkdtemp(prefix="zapdb-life-"))
        self.resources.callback(shutil.rmtree, directory)
        self.migrations = directory / "migrations"
        self.migrations.mkdir()
        if server is None:
            self.address = f"sqlite:///{directory / 'life.db'}"
        else:
            self.address = self.resources.enter_context(server.fresh_database())
        self.model = Model()

    def teardown(self) -> None:
        self.db.close()
        self.resources.close()

    @property
    def chain(self) -> Chain:
        return self.db.view.chain

    @property
    def tables(self) -> list[Table]:
        return list(self.chain.schema_at(self.chain.end))

    @property
    def has_records(self) -> bool:
        return any(self.model.rows[table.number] for table in self.tables)

    def path(self, number: int) -> Path:
        return self.migrations / f"{number:04d}_drawn.yaml"

    @initialize(data=st.data())
    def begin(self, data: st.DataObject) -> None:
        self.path(1).write_text(document_of(DECLARATIONS))
        self.db = zapdb.open(self.address, migrations=self.migrations, apply="auto")
        self.migrate(data)

    @rule(data=st.data())
    def migrate(self, data: st.DataObject) -> None:
        """One operation; one whose rollback is not proven is refused, and changes nothing."""
        author, number = Author(data.draw, archives=True), self.chain.end + 1
        operation = author.operation(self.chain.schema_at(self.chain.end))
        self.path(number).write_text(document_of([operation]))
        self.db.close()
        storage = connect(self.address)
        try:
            migrate_up(storage, DEFAULT_TENANT, self.migrations, again=True)
            event(next(iter(operation)))
        except NotProven:
            self.path(number).unlink()
        finally:
            storage.close()
        self.db = zapdb.open(self.address, migrations=self.migrations)
        self.model.migrate(self.chain)
        for table in self.tables:
            if len(self.model.rows[table.number]) < 3:
                self._insert(table, data.draw(st.lists(records_of(table), min_size=2, max_size=3)))

    @rule(data=st.data())
    @precondition(lambda self: self.tables)
    def insert(self, data: st.DataObject) -> None:
        table = data.draw(st.sampled_from(self.tables))
        self._insert(table, data.draw(st.lists(records_of(table), min_size=1, max_size=4)))

    def _insert(self, table: Table, records: list[dict[str, Any]]) -> None:
        for row in records:
            known = self.model.key_of(table, row) in self.model.rows[table.number]
            try:
                self.db.table(table.name).insert(**row)
            except RecordExists:
                assert known
            except CONSTRAINTS:
                event("a constraint")
            else:
                assert not known
                self.model.put(self.chain, table, row)

    @rule(data=st.data())
    @precondition(lambda self: self.has_records)
    def update(self, data: st.DataObject) -> None:
        table, key = self._choose(data)
        if not table.value_fields:
            return
        field = data.draw(st.sampled_from(table.value_fields))
        values = values_of(field.type)
        value = data.draw(st.none() | values if field.optional else values)
        row = self.model.now(self.chain, table, key).row
        try:
            self.db.table(table.name).update(*key, **{field.name: value})
        except CONSTRAINTS:
            event("a constraint")
        else:
            self.model.put(self.chain, table, row | {field.name: value})

    @rule(data=st.data())
    @precondition(lambda self: self.has_records)
    def delete(self, data: st.DataObject) -> None:
        table, key = self._choose(data)
        if any(other.foreign_keys for other in self.tables):
            return  # what goes with it is the matter of other tests
        self.db.table(table.name).delete(*key)
        del self.model.rows[table.number][key]

    def _choose(self, data: st.DataObject) -> tuple[Table, Key]:
        table = data.draw(st.sampled_from([t for t in self.tables if self.model.rows[t.number]]))
        keys = list(self.model.rows[table.number])
        return table, keys[data.draw(st.integers(0, len(keys) - 1))]

    @rule()
    def run_jobs(self) -> None:
        self.db.run_jobs()
        self.model.convert(self.chain)

    @rule()
    def prune(self) -> None:
        self.run_jobs()
        prune_archives(self.db.storage, DEFAULT_TENANT)
        self.model.prune(self.chain)

    @rule()
    @precondition(lambda self: self.chain.end > 2)
    def forget(self) -> None:
        chain = self.chain
        self.db.close()
        storage = connect(self.address)
        try:
            assert forget_newest(storage).number == chain.end
        finally:
            storage.close()
        self.path(chain.end).unlink()
        self.model.forget(chain)
        self.db = zapdb.open(self.address, migrations=self.migrations)

    @invariant()
    def what_is_read_is_what_the_model_says(self) -> None:
        self.model.check(self.db)


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
            suppress_health_check=list(HealthCheck),
        ),
    )
