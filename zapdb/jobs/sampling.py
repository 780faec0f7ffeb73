"""Proving migrations on records that a database has: a sample of them, read and never written.

Real values may show what generated ones miss (see `migrations.prove`). The records of each table
are read at the active schema, sent through the pending migrations, one after the other, and back
through each. A failure names a record by its key and describes its values. If a migration declares
a loss, which people have to judge, one example shows the field's value before and after the round
trip, shortened.

The sample is drawn without replacement, and every record has the same chance to be in it, whatever
order or period the data have. If `r` of `n` records are of some kind, the chance that the sample
has none of them is at most `(1 - r/n) ** sample`. Drawing scans the keys once in the order of the
primary key, as counting does, and reads only the drawn records. The same seed draws the same
records from the same keys, on every Python.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from zapdb.activation import TenantCatalog
from zapdb.migrations import Migration
from zapdb.migrations.proof_findings import LossyField, MemoryBlobs, ProofFinding
from zapdb.migrations.prove import converted_tables
from zapdb.migrations.round_trip import RECORD_PREFIX, RoundTrip
from zapdb.records import Attachments, decode_prefix
from zapdb.storage import Connection, Storage, TransactionMode
from zapdb.storage.cells import as_bytes
from zapdb.tables.indexes import BoundTable
from zapdb.values.blob import Blob

Draw = Callable[[], float]
"""Numbers in [0, 1), one after the other."""


@dataclass(frozen=True, slots=True)
class TableSample:
    """A table whose records were tried: how many it has, and how many were read.

    `returned` of the `sampled` came back from all the migrations as they were. `losses` has, by the
    label of the migration, the fields whose rollback is declared to be lossy, with counts.
    """

    table: str
    records: int
    sampled: int
    returned: int
    failures: tuple[ProofFinding, ...]
    losses: tuple[tuple[str, LossyField], ...]


def prove_with_records(
    storage: Storage,
    catalog: TenantCatalog,
    migrations: Sequence[Migration],
    sample: int,
    seed: int,
) -> list[TableSample]:
    """Try migrations that follow the tenant catalog's position on up to `sample` records of each
    table.

    The records are drawn by `seed`, for each table independently of the others. Only tables that
    one of the migrations converts are read. Raises `CorruptRecord`, `BlobMissing` and `UnknownZone`
    for records that can't be read as they are.
    """
    converted = [(migration, set(converted_tables(migration))) for migration in migrations]
    sampled = []
    with storage.transaction(TransactionMode.READ) as connection:
        for descriptor in catalog.tables.values():
            number = descriptor.schema.number
            touching = [migration for migration, tables in converted if number in tables]
            if touching:
                bound = BoundTable(storage, catalog, descriptor)
                draw = random.Random(f"{seed}/{number}").random  # noqa: S311 - no secret
                sampled.append(_try_table(connection, bound, touching, sample, draw))
    return sampled


def _try_table(
    connection: Connection, bound: BoundTable, migrations: list[Migration], sample: int, draw: Draw
) -> TableSample:
    attachments = bound.make_attachments()

    def load(blob: Blob) -> bytes:
        return attachments.load(blob)

    memory = MemoryBlobs(load)
    round_trips = [
        RoundTrip(migration, bound.schema.number, bound.catalog.zones, memory, is_private=True)
        for migration in migrations
    ]
    (count,) = connection.fetch_one(bound.statements.count_sql)
    archived = bound.catalog.chain.archived_fields(bound.schema.number)
    tried = returned = 0
    for key, stored in sample_records(connection, bound, int(count), sample, draw):
        attachments = bound.make_attachments(key, stored)
        bound.reader.read(key, stored)  # what can't be read as it is is no fault of a migration
        current = bound.reader.convert(key, stored, attachments)
        value = RECORD_PREFIX + current[decode_prefix(current, 0)[1] :]
        archive: Mapping[int, bytes] = _archive_of(attachments, archived)
        came_back = True
        for round_trip in round_trips:
            trace = round_trip.try_record(key, value, archive)
            came_back = came_back and trace.came_back
            if trace.error is not None:
                break
            value, archive = trace.values[1], trace.archives[1]
        memory.blobs.clear()
        tried += 1
        returned += came_back
    failures = tuple(
        finding for round_trip in round_trips for finding in round_trip.failures.values()
    )
    losses = tuple((t.migration.label, loss) for t in round_trips for loss in t.report().lossy)
    return TableSample(bound.schema.name, int(count), tried, returned, failures, losses)


def _archive_of(attachments: Attachments, numbers: Iterable[int]) -> dict[int, bytes]:
    """Return the archived values of a record once it is converted to the active schema."""
    found = {number: attachments.archive.get(number) for number in numbers}
    kept = {n: v for n, v in found.items() if v is not None and n not in attachments.restored}
    return kept | attachments.archived


def sample_records(
    connection: Connection, bound: BoundTable, count: int, sample: int, draw: Draw
) -> Iterator[tuple[bytes, bytes]]:
    """Records drawn at random, in the order of their keys; all `count` where there are no more."""
    key, last = b"", -1
    for place in draw_places(count, sample, draw):
        # From the previously drawn key: all statements together scan the keys once.
        found = bound.statements.find_key(connection, key, place - last - 1)
        if found is None:
            return  # records were deleted since they were counted
        key, last = found, place
        row = connection.fetch_one(bound.statements.get_sql, (key,))
        if row is not None and row[0] is not None:
            yield key, as_bytes(row[0])


def draw_places(count: int, sample: int, draw: Draw) -> list[int]:
    """Up to `sample` different numbers below `count`, in order, each set as likely as any other.

    R. Floyd's way, of J. Bentley, "Programming Pearls: A Sample of Brilliance" (CACM 30, 1987). It
    takes `draw`, numbers in [0, 1), alone, whose sequence for a seed no Python changes.
    """
    found = set[int]()
    for upper in range(max(count - sample, 0), count):
        place = int(draw() * (upper + 1))
        found.add(upper if place in found else place)
    return sorted(found)
