"""Random lives of a database beside a plain model: migrations, writes, jobs and forgets."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any
from unittest.mock import patch

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
from tests.contract.model import Key, Model, Row
from tests.strategies import DECLARATIONS, Author, document_of, records_of, values_of
from tests.support import PostgresServer, are_schemas_whole, assert_revisions_are_known, make_place
from zapdb.activation.rollback import roll_back
from zapdb.activation.up import MigrationChoice, migrate_up
from zapdb.catalog import DEFAULT_TENANT
from zapdb.catalog.cluster.leases import Owner
from zapdb.errors import (
    ActivationPending,
    CheckViolation,
    NotProven,
    RecordExists,
    ReferenceViolation,
    UniqueViolation,
)
from zapdb.jobs import plan_jobs
from zapdb.jobs.archive_pruning import prune_archives
from zapdb.jobs.job import open_ranges
from zapdb.jobs.range_work import run_range
from zapdb.jobs.rehearsal import Rehearsal
from zapdb.jobs.work_loading import load_work
from zapdb.migrations import Chain
from zapdb.records import codec_for, encode_prefix, held
from zapdb.schema import TableSchema
from zapdb.storage import RecordStatements, connect

CONSTRAINTS = (UniqueViolation, CheckViolation, ReferenceViolation)
WINDOW = 3
"""So many migrations the older process is behind at most."""


def read_all(db: zapdb.database.Database) -> dict[str, list[str]]:
    """The records of all tables, in the order of their keys, and of each index."""
    found = dict[str, list[str]]()
    for name in db.tables:
        found[name] = [repr(held(record)) for record in db.table(name).scan()]
        for index in db._catalog.table(name).schema.indexes:
            records = db.table(name).using(index.name)
            found[f"{name}.{index.name}"] = [repr(held(record)) for record in records]
    return found


class Life(RuleBasedStateMachine):
    """One database; `server` is None for SQLite."""

    db: zapdb.database.Database

    def __init__(self, server: PostgresServer | None) -> None:
        super().__init__()
        self.resources = ExitStack()
        self.address, self.migrations = make_place(self.resources, server, "life")
        self.model = Model()
        self.older: zapdb.database.Database | None = None
        """A process that opened the database some migrations ago, and goes on."""
        self.at = 0
        """Where its files end."""

    def teardown(self) -> None:
        self.leave()
        self.db.close()
        self.resources.close()

    @property
    def chain(self) -> Chain:
        return self.db._catalog.chain

    @property
    def tables(self) -> list[TableSchema]:
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
        author = Author(data.draw, archives=True)
        self.apply(data, author.operation(self.chain.schema_at(self.chain.end)))

    def apply(self, data: st.DataObject, operation: Any) -> None:
        number = self.chain.end + 1
        if self.older is not None and number - self.at > WINDOW:
            self.leave()
        if self.older is None and number > 2:
            self.begin_older()
        self.path(number).write_text(document_of([operation]))
        previewed, rehearsed = self.preview(), self.rehearse()
        self.db.close()
        storage = connect(self.address)
        try:
            migrate_up(storage, DEFAULT_TENANT, self.migrations, MigrationChoice(again=True))
            event(next(iter(operation)))
        except ActivationPending:
            assert self.older is not None  # it could not go on without the table
            self.leave()
            migrate_up(storage, DEFAULT_TENANT, self.migrations)
            event("an activation waited")
        except NotProven:
            assert previewed is rehearsed is None
            self.path(number).unlink()
        finally:
            storage.close()
        self.db = zapdb.open(self.address, migrations=self.migrations)
        if previewed is not None and rehearsed is not None:
            assert read_all(self.db) == previewed
            if data.draw(st.booleans(), label="jobs look for violations"):
                self.check_rehearsed(rehearsed)
        self.model.migrate(self.chain)
        for table in self.tables:
            if len(self.model.rows[table.number]) < 3:
                self._insert(table, data.draw(st.lists(records_of(table), min_size=2, max_size=3)))

    def preview(self) -> dict[str, list[str]] | None:
        """What the database would show if the files were applied; None if they are not proven."""
        try:
            with zapdb.open(self.address, migrations=self.migrations, preview=True) as db:
                return read_all(db)
        except NotProven:
            return None

    def rehearse(self) -> Rehearsal | None:
        """What would be refused, and lost; None if the files are not proven."""
        with zapdb.open(self.address) as db:
            try:
                return db.admin.rehearse(self.migrations, all_records=True)
            except NotProven:
                return None

    def check_rehearsed(self, rehearsed: Rehearsal) -> None:
        """What was said to be refused is what jobs list now, of the tables that have changed."""
        told = {
            (table.table, finding.what): finding.count
            for table in rehearsed.tables
            for finding in table.refused
        }
        changed = {table.table for table in rehearsed.tables}
        listed = {
            (report.job.table_name, finding.what): finding.count
            for report in self.db.admin.run_jobs(kinds=("index", "validate"))
            for finding in report.job.findings
            if report.job.table_name in changed
        }
        assert listed == told
        assert not any(table.unreadable_count for table in rehearsed.tables)
        if told:
            event("something was said to be refused, and is")

    @rule(data=st.data())
    @precondition(lambda self: self.tables)
    def insert(self, data: st.DataObject) -> None:
        table = data.draw(st.sampled_from(self.tables))
        self._insert(table, data.draw(st.lists(records_of(table), min_size=1, max_size=4)))

    def _insert(self, table: TableSchema, records: list[dict[str, Any]]) -> None:
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

    def _choose(self, data: st.DataObject) -> tuple[TableSchema, Key]:
        table = data.draw(st.sampled_from([t for t in self.tables if self.model.rows[t.number]]))
        keys = list(self.model.rows[table.number])
        return table, keys[data.draw(st.integers(0, len(keys) - 1))]

    @rule()
    def run_jobs(self) -> None:
        self.db.admin.run_jobs()
        self.model.convert(self.chain)

    @rule(data=st.data())
    def convert_a_range(self, data: st.DataObject) -> None:
        """A worker does one range of a conversion, and ends."""
        storage = self.db._storage
        with patch("zapdb.jobs.job.RANGE_RECORDS", 2):
            jobs = plan_jobs(storage, DEFAULT_TENANT, ["convert"])
        if not jobs:
            return
        job = data.draw(st.sampled_from(jobs))
        number = data.draw(st.sampled_from(open_ranges(storage.connection(), job.id) or [0]))
        run_range(storage, load_work(storage, job.id), Owner.here(), number)
        table = next(table for table in self.tables if table.number == job.table)
        statements = RecordStatements(storage, table.number, DEFAULT_TENANT)
        stored = storage.connection().fetch_all(statements.page_sql, (b"", 1_000))
        decode = codec_for(table, self.db._catalog.zones).decode_key
        current = [decode(key) for key, value in stored if value >= encode_prefix(job.target)]
        self.model.convert_some(self.chain, table, current)
        event("a range was converted")

    @rule()
    def prune(self) -> None:
        self.run_jobs()
        prune_archives(self.db._storage, DEFAULT_TENANT)
        self.model.prune(self.chain)

    @rule()
    @precondition(lambda self: self.chain.end > 2)
    def forget(self) -> None:
        chain = self.chain
        if self.at == chain.end:
            self.leave()  # its files contain the migration
        self.db.close()
        storage = connect(self.address)
        try:
            assert roll_back(storage).migrations[0].number == chain.end
        finally:
            storage.close()
        self.path(chain.end).unlink()
        self.model.forget(chain)
        self.db = zapdb.open(self.address, migrations=self.migrations)

    # The older process

    def begin_older(self) -> None:
        """A process opens the database, and has its files for as long as it lives."""
        self.older = zapdb.open(self.address, migrations=self.migrations)
        self.at = self.chain.end

    def leave(self) -> None:
        if self.older is not None:
            self.older.close()
            self.older = None

    @property
    def older_tables(self) -> list[TableSchema]:
        return list(self.chain.schema_at(self.at)) if self.older is not None else []

    @rule(data=st.data())
    @precondition(lambda self: self.older_tables)
    def insert_older(self, data: st.DataObject) -> None:
        table = data.draw(st.sampled_from(self.older_tables))
        rows = data.draw(st.lists(records_of(table), min_size=1, max_size=3))
        for row in rows:
            known = self.model.key_of(table, row) in self._seen(table)
            try:
                self.older.table(table.name).insert(**row)
            except RecordExists:
                assert known
            except CONSTRAINTS:
                event("a constraint for the older process")
            else:
                assert not known
                made = self._read_made(table, self.model.key_of(table, row))
                self.model.insert_at(self.chain, table.number, row, self.at, made)
        event("the older process inserts", self.chain.end - self.at)

    def _read_made(self, table: TableSchema, key: Key) -> Row:
        """The values of generated fields, and moments, that the older process gave a record, though
        it does not see them."""
        newest = self.chain.table_at(self.chain.end, table.number)
        known = {f.number for f in table.fields}
        names = [f.name for f in newest.fields if f.is_made and f.number not in known]
        if not names:
            return {}
        event("the older process makes values that it does not see")
        record = held(self.db.table(newest.name).get(*key))
        assert None not in [record[name] for name in names]
        return {name: record[name] for name in names}

    @rule(data=st.data())
    @precondition(lambda self: any(self._seen(table) for table in self.older_tables))
    def update_older(self, data: st.DataObject) -> None:
        """One to all fields of a record; also with what they are already."""
        table, key = self._choose_older(data)
        if not table.value_fields:
            return
        for _ in range(data.draw(st.integers(1, 3))):
            self._update_older(data, table, key)

    def _update_older(self, data: st.DataObject, table: TableSchema, key: Key) -> None:
        row = self.model.seen(self.chain, table.number, key, self.at)
        changes = {}
        for field in data.draw(st.lists(st.sampled_from(table.value_fields), max_size=3)):
            values = values_of(field.type)
            values = st.none() | values if field.optional else values
            changes[field.name] = data.draw(st.just(row[field.name]) | values)
        old = self.model.key_of(table, row)
        try:
            self.older.table(table.name).update(*old, **changes)
        except CONSTRAINTS:
            event("a constraint for the older process")
        else:
            self.model.update_at(self.chain, table.number, key, changes, self.at)
        event("the older process updates", self.chain.end - self.at)

    @rule(data=st.data())
    @precondition(lambda self: any(self._seen(table) for table in self.older_tables))
    def delete_older(self, data: st.DataObject) -> None:
        table, key = self._choose_older(data)
        if any(other.foreign_keys for other in self.tables):
            return
        row = self.model.seen(self.chain, table.number, key, self.at)
        self.older.table(table.name).delete(*self.model.key_of(table, row))
        del self.model.rows[table.number][key]

    def _seen(self, table: TableSchema) -> dict[Key, dict[str, Any]]:
        return self.model.seen_all(self.chain, table.number, self.at)

    def _choose_older(self, data: st.DataObject) -> tuple[TableSchema, Key]:
        """A table as the older process has it, and a record's newest key."""
        table = data.draw(st.sampled_from([t for t in self.older_tables if self._seen(t)]))
        keys = list(self.model.rows[table.number])
        return table, keys[data.draw(st.integers(0, len(keys) - 1))]

    @invariant()
    def the_older_process_sees_its_shapes(self) -> None:
        if self.older is not None:
            self.model.check_at(self.older, self.chain, self.at)

    @invariant()
    def no_range_is_noted_with_a_revision_above_its_records(self) -> None:
        assert_revisions_are_known(self.db._storage)

    @invariant()
    def the_rows_of_schemas_are_what_the_migrations_make(self) -> None:
        assert are_schemas_whole(self.db._storage)

    @invariant()
    def what_is_read_is_what_the_model_says(self) -> None:
        self.model.check(self.db)


LIVES = {"sqlite": 8, "postgresql": 4}
LIVES_LONG = {"sqlite": 120, "postgresql": 40}


def test_rule_02_every_life_is_what_the_model_says(
    engine: str, request: pytest.FixtureRequest
) -> None:
    server = request.getfixturevalue("postgres") if engine == "postgresql" else None
    lives = LIVES_LONG if request.config.getoption("--long") else LIVES
    run_state_machine_as_test(
        lambda: Life(server),
        settings=settings(
            max_examples=lives[engine],
            stateful_step_count=30,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
