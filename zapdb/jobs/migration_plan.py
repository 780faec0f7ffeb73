"""What applying pending migrations will do to a database, before it is done: nothing is changed.

Applying takes milliseconds, however many records a table has. The long work comes after it: records
are converted and indexes are built in the background. Its duration is estimated from existing
records: a sample of them is converted here and written, in transactions that are rolled back.

Processes whose files do not contain the migrations keep their served schema (rule 11), except that
a migration may wait for them (rule 12). The conversion plans in both directions show what that
schema loses.
"""

from __future__ import annotations

import random
import time
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, Literal

from zapdb.activation import TenantCatalog
from zapdb.activation.activate import find_kept
from zapdb.catalog.cluster import nodes
from zapdb.catalog.cluster.nodes import Node
from zapdb.jobs.estimate import may_write_soon, try_out
from zapdb.jobs.sampling import draw_places, read_places
from zapdb.migrations import Chain, Migration
from zapdb.migrations.chain import plan_between, program_between
from zapdb.records import CANNOT_BE_READ, Attachments, decode_prefix, encode_prefix
from zapdb.records.derivation import inputs_of, restored_in
from zapdb.schema import TableSchema
from zapdb.storage import Connection, RecordStatements, Storage, TransactionMode
from zapdb.storage.cells import as_bytes
from zapdb.tables.indexes import BoundTable
from zapdb.tables.writes import BatchConversion, convert_records

PLAN_BATCH_RECORDS: Final = 100
"""Records of a sample that are written in one transaction: it holds its locks as a job does."""

TableAction = Literal["created", "changed", "restored", "archived", "discarded"]


@dataclass(frozen=True, slots=True)
class ServedSchemaLoss:
    """Fields that a process with the present served schema loses when all migrations are applied.

    What it reads of those `declared` is what the rollbacks say, and no value that was stored. What
    it writes to those `dropped_writes` is lost.
    """

    declared: tuple[str, ...] = ()
    dropped_writes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TablePlan:
    """What one table is in for, all pending migrations together.

    `table` is its name afterwards. `records` is what it holds now and `converted` how many of them
    will be stale; `seconds` is what converting those takes in one thread of this machine, None
    where none is converted. It includes writing them if `includes_writing` is true: it is false if
    this process may not write.
    """

    table: str
    action: TableAction
    records: int
    converted: int
    indexes: tuple[str, ...]
    seconds: float | None
    loss: ServedSchemaLoss = ServedSchemaLoss()
    includes_writing: bool = False


@dataclass(frozen=True, slots=True)
class ProcessPlan:
    """A live process.

    `files_end` is the number of its newest file, 0 without files, and `served_position` the
    position that its code is written for, which may be that of a migration that was `rolled_back`.
    `blocks` is the first pending migration that can't become active before the process has its
    file.
    """

    process: str
    release: str
    files_end: int
    served_position: int
    blocks: str | None
    rolled_back: bool

    @property
    def schema(self) -> str:
        """The number of its schema, as commands show it."""
        return f"{self.served_position:04d}{', rolled back' if self.rolled_back else ''}"


@dataclass(frozen=True, slots=True)
class MigrationPlan:
    """`older` are the live processes that will be served an older schema, or that the migrations
    wait for."""

    migrations: tuple[Migration, ...]
    tables: tuple[TablePlan, ...]
    older: tuple[ProcessPlan, ...]


def make_migration_plan(
    storage: Storage, catalog: TenantCatalog, chain: Chain, sample: int
) -> MigrationPlan:
    """Return the plan to migrate a tenant from the tenant catalog's position to the end of the
    chain."""
    pending, samples = chain.after(catalog.find_parting(chain)), dict[str, _Sample]()
    with storage.transaction(TransactionMode.READ) as connection:
        before, after = catalog.chain.schema_at(catalog.position), chain.schema_at(chain.end)
        tables = [
            _plan_table(connection, catalog, chain, table, sample, samples)
            for table in after
            if before.table_numbered(table.number) != table
        ]
        tables += [
            _plan_drop(connection, catalog, chain, table)
            for table in before
            if after.table_numbered(table.number) is None
        ]
        older = [
            process
            for process in list_processes(connection, pending)
            # A process without files works with the active schema, whatever it is.
            if process.files_end
            and (process.blocks or process.rolled_back or process.served_position < chain.end)
        ]
    tables = [
        table if table.table not in samples else _add_writing(samples[table.table], table)
        for table in tables
    ]
    return MigrationPlan(pending, tuple(tables), tuple(older))


def list_processes(connection: Connection, pending: tuple[Migration, ...]) -> list[ProcessPlan]:
    """The live processes, and which of the migrations waits for each."""
    return [
        _plan_process(node, pending) for node, is_alive in nodes.list_nodes(connection) if is_alive
    ]


def _plan_process(node: Node, pending: tuple[Migration, ...]) -> ProcessPlan:
    waiting = (
        m
        for m in pending
        # A process without files never has to be waited for.
        if m.waits_for_nodes
        and node.row.files_end
        and not nodes.has_migration(node, m.number, m.digest)
    )
    first = next(waiting, None)
    label = None if first is None else first.label
    row, is_gone = node.row, node.is_served_rolled_back
    return ProcessPlan(str(node), row.release, row.files_end, row.served_position, label, is_gone)


def _plan_table(
    connection: Connection,
    catalog: TenantCatalog,
    chain: Chain,
    table: TableSchema,
    sample: int,
    samples: dict[str, _Sample],
) -> TablePlan:
    before = catalog.chain.schema_at(catalog.position)
    old, kept = before.table_numbered(table.number), before.table_active_or_archived(table.number)
    if kept is None:
        return TablePlan(table.name, "created", 0, 0, (), None)
    records = _count(connection, catalog, table)
    active = catalog.chain.up_to(catalog.position)
    held = find_kept(old, table, active, chain)
    built = tuple(index.name for index in table.indexes if index.number not in held)
    action: TableAction = "restored" if old is None else "changed"
    loss = ServedSchemaLoss() if old is None else find_loss(old, active, chain)
    if kept.layout == table.layout:
        return TablePlan(table.name, action, records, 0, built, None, loss)
    seconds = None
    if old is not None and records:
        # The fields that the migrations archive are archived while the sample is written.
        is_further = catalog.find_parting(chain) == catalog.position
        known = replace(catalog, chain=chain) if is_further else catalog
        bound = BoundTable(connection.storage, known, catalog.tables[old.name])
        taken = samples[table.name] = _Sample(bound, chain)
        seconds = taken.convert(connection, records, sample)
    return TablePlan(table.name, action, records, records, built, seconds, loss)


def find_loss(old: TableSchema, source: Chain, target: Chain) -> ServedSchemaLoss:
    """Return what a process loses that is served a table's schema at the end of `source` when that
    of `target` is active.

    A field's writes are not stored if no field and no archived value at `target` is made of it. A
    field is declared if the conversion back makes it neither of such fields nor of archived values.
    """
    there, back = (
        plan_between(source, target, old.number),
        plan_between(target, source, old.number),
    )
    declared, dropped_writes = [], []
    for field in old.value_fields:
        made = {n for n, d in there.derivations.items() if field.number in inputs_of(d)}
        is_archived = any(field.number in inputs_of(d) for d in there.archives.values())
        derivation = back.derivations[field.number]
        if not made and not is_archived:
            dropped_writes.append(field.name)
        if not (inputs_of(derivation) & made) and not restored_in(derivation):
            declared.append(field.name)
    return ServedSchemaLoss(tuple(declared), tuple(dropped_writes))


def _plan_drop(
    connection: Connection, catalog: TenantCatalog, chain: Chain, table: TableSchema
) -> TablePlan:
    is_kept = chain.schema_at(chain.end).table_active_or_archived(table.number) is not None
    action: TableAction = "archived" if is_kept else "discarded"
    return TablePlan(table.name, action, _count(connection, catalog, table), 0, (), None)


def _count(connection: Connection, catalog: TenantCatalog, table: TableSchema) -> int:
    records = RecordStatements(connection.storage, table.number, catalog.tenant)
    (count,) = connection.fetch_one(records.count_sql)
    return int(count)


class _Sample:
    """Some records of a table, converted as the pending migrations will."""

    def __init__(self, bound: BoundTable, chain: Chain) -> None:
        self._bound = bound
        active, zones = bound.catalog.chain.up_to(bound.catalog.position), bound.catalog.zones
        self._program, _ = program_between(active, chain, bound.schema.number, zones)
        self._prefix = encode_prefix(bound.descriptor.revision + 1)
        self._keys = list[bytes]()

    def _convert(self, key: bytes, stored: bytes, attachments: Attachments) -> bytes:
        current = self._bound.reader.convert(key, stored, attachments)
        _, start = decode_prefix(current, 0)
        return self._program.convert(key, current, start, self._prefix, attachments)

    def convert(self, connection: Connection, records: int, sample: int) -> float:
        """What it takes to convert all records, from what it takes for some of them."""
        spent = 0.0
        draw = random.Random(0).random  # noqa: S311 - no secret; a plan is the same when made again
        places = draw_places(records, sample, draw)
        for key, cell in read_places(connection, self._bound.statements, places):
            try:
                stored = as_bytes(cell)
                attachments = self._bound.make_attachments(key, stored)
                started = time.perf_counter()
                self._convert(key, stored, attachments)
            except CANNOT_BE_READ:
                continue  # the job leaves it, too
            spent += time.perf_counter() - started
            self._keys.append(key)
        return records * spent / len(self._keys) if self._keys else 0.0

    def write(self, records: int) -> float | None:
        """The same with reading and writing them, which is rolled back; None if none could be."""
        done, spent = 0, 0.0
        if not may_write_soon(self._bound.storage):
            return None
        for start in range(0, len(self._keys), PLAN_BATCH_RECORDS):
            keys = self._keys[start : start + PLAN_BATCH_RECORDS]
            count, seconds = try_out(self._bound.storage, partial(self._write_batch, keys))
            done, spent = done + count, spent + seconds
        return records * spent / done if done else None

    def _write_batch(self, keys: list[bytes], connection: Connection) -> int:
        """Records that a writer has at this moment are left out."""
        bound, marks = self._bound, ", ".join([connection.storage.placeholder] * len(keys))
        batch = connection.storage.dialect.lock_records(
            connection,
            bound.statements.name,
            f"tenant = {bound.catalog.tenant} AND key IN ({marks})",
            keys,
            len(keys),
            of_held="skip",
        )
        return convert_records(connection, bound, batch, BatchConversion(self._convert))


def _add_writing(sample: _Sample, table: TablePlan) -> TablePlan:
    """With the time that writing takes, if it can be measured."""
    seconds = sample.write(table.converted)
    return table if seconds is None else replace(table, seconds=seconds, includes_writing=True)
