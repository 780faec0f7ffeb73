"""What applying pending migrations will do to a database, before it is done: nothing is changed.

Applying takes milliseconds whatever a table holds. What takes long comes after it: records are
converted and indexes are built in the background. How long is told from records that there are, by
converting a sample of them here; writing them back comes on top.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from zapdb.catalog import View, nodes
from zapdb.catalog.activation import is_same_layout, keeps_entries
from zapdb.indexes import LiveTable
from zapdb.jobs.sampling import sample_records
from zapdb.migrations import Chain, Migration
from zapdb.records import encode_prefix
from zapdb.records.layout import decode_prefix
from zapdb.schema import Table
from zapdb.storage import Connection, Mode, RecordTable, Storage


@dataclass(frozen=True, slots=True)
class TablePlan:
    """What one table is in for, all pending migrations together.

    `records` is what it holds now and `converted` how many of them will be stale; `seconds` is what
    reading and converting those takes in one thread of this machine, None where none is converted.
    """

    table: str
    fate: str
    records: int
    converted: int
    indexes: tuple[str, ...]
    seconds: float | None


@dataclass(frozen=True, slots=True)
class ProcessPlan:
    """A live process, and how far its files go."""

    process: str
    release: str
    files_end: int


@dataclass(frozen=True, slots=True)
class Plan:
    """`behind` are the live processes whose files end before the last pending migration."""

    migrations: tuple[Migration, ...]
    tables: tuple[TablePlan, ...]
    behind: tuple[ProcessPlan, ...]


def make_plan(storage: Storage, view: View, chain: Chain, sample: int) -> Plan:
    """The plan of bringing a tenant from the view's position to the end of the chain."""
    with storage.transaction(Mode.READ) as connection:
        before, after = chain.schema_at(view.position), chain.schema_at(chain.end)
        tables = [
            _plan_table(connection, storage, view, chain, table, sample)
            for table in after
            if before.table_numbered(table.number) != table
        ]
        tables += [
            _plan_drop(connection, view, chain, table)
            for table in before
            if after.table_numbered(table.number) is None
        ]
        behind = [
            ProcessPlan(str(node.lease.owner), node.release, node.files_end)
            for node, is_alive in nodes.list_nodes(connection)
            if is_alive and node.files_end < chain.end
        ]
    pending = chain.after(view.position)
    return Plan(pending, tuple(tables), tuple(behind))


def _plan_table(
    connection: Connection,
    storage: Storage,
    view: View,
    chain: Chain,
    table: Table,
    sample: int,
) -> TablePlan:
    before = chain.schema_at(view.position)
    old, kept = before.table_numbered(table.number), before.table_kept(table.number)
    if kept is None:
        return TablePlan(table.name, "created", 0, 0, (), None)
    records = _count(connection, view, table)
    built = tuple(
        index.name
        for index in table.indexes
        if old is None or not keeps_entries(chain, old, table, index, view.position, chain.end)
    )
    fate = "restored" if old is None else "changed"
    if is_same_layout(chain, kept, table, view.position, chain.end):
        return TablePlan(table.name, fate, records, 0, built, None)
    seconds = None
    if old is not None and records:
        state = view.tables[old.name]
        live = LiveTable(storage, view, state)
        seconds = _measure(connection, live, chain, table.number, records, sample)
    return TablePlan(table.name, fate, records, records, built, seconds)


def _plan_drop(connection: Connection, view: View, chain: Chain, table: Table) -> TablePlan:
    is_kept = chain.schema_at(chain.end).table_kept(table.number) is not None
    fate = "archived" if is_kept else "discarded"
    return TablePlan(table.name, fate, _count(connection, view, table), 0, (), None)


def _count(connection: Connection, view: View, table: Table) -> int:
    records = RecordTable(connection.storage, table.number, view.tenant)
    (count,) = connection.fetch_one(records.count_sql)
    return int(count)


def _measure(
    connection: Connection, live: LiveTable, chain: Chain, number: int, records: int, sample: int
) -> float:
    """What it takes to convert all records, from what it takes for some of them."""
    program = chain.program(number, live.view.position, chain.end, live.view.zones)
    prefix, converted = encode_prefix(live.state.revision + 1), 0
    spent = 0.0
    for key, stored in sample_records(connection, live, records, sample):
        beside = live.make_beside(key, stored)
        started = time.perf_counter()
        current = live.reader.convert(key, stored, beside)
        _, start = decode_prefix(current, 0)
        program.convert(key, current, start, prefix, beside)
        spent += time.perf_counter() - started
        converted += 1
    return records * spent / converted if converted else 0.0
