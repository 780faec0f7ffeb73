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
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from zapdb.activation import TenantCatalog
from zapdb.migrations import Migration
from zapdb.migrations.proof_findings import LossyField, MemoryBlobs, ProofFinding
from zapdb.migrations.prove import converted_tables
from zapdb.migrations.round_trip import RECORD_PREFIX, RoundTrip
from zapdb.records import Attachments, decode_prefix
from zapdb.storage import Connection, RecordStatements, Storage, TransactionMode
from zapdb.storage.cells import as_bytes
from zapdb.tables.indexes import BoundTable

Draw = Callable[[], float]
"""Numbers in [0, 1), one after the other."""
SEED_BITS: Final = 32


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


def draw_seed() -> int:
    """A seed for a sample that is new each time."""
    return secrets.randbits(SEED_BITS)


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
    sampled = []
    with storage.transaction(TransactionMode.READ) as connection:
        for descriptor in catalog.tables.values():
            number = descriptor.schema.number
            converting = list_converting(migrations, number)
            if converting:
                bound = BoundTable(storage, catalog, descriptor)
                draw = random.Random(f"{seed}/{number}").random  # noqa: S311 - no secret
                sampled.append(_try_table(connection, bound, converting, sample, draw))
    return sampled


def list_converting(migrations: Iterable[Migration], table: int) -> list[Migration]:
    """Those of the migrations that convert the records of a table."""
    return [migration for migration in migrations if table in converted_tables(migration)]


def _try_table(
    connection: Connection, bound: BoundTable, migrations: list[Migration], sample: int, draw: Draw
) -> TableSample:
    count, trial = bound.statements.count(connection), RecordTrial(bound, migrations)
    for key, stored in sample_records(connection, bound, count, sample, draw):
        trial.try_record(key, stored)
    return trial.report(count)


class RecordTrial:
    """Sends records of a table up through migrations that follow the active one, one after the
    other, and back through each; nothing is written."""

    def __init__(self, bound: BoundTable, migrations: Sequence[Migration]) -> None:
        self._bound = bound
        self._attachments = bound.make_attachments()
        self._memory = MemoryBlobs(lambda blob: self._attachments.load(blob))
        self._archived = bound.catalog.archived_fields(bound.schema.number)
        number, zones = bound.schema.number, bound.catalog.zones
        self._round_trips = [
            RoundTrip(migration, number, zones, self._memory, is_private=True)
            for migration in migrations
        ]
        self._tried = self._returned = 0

    def try_record(self, key: bytes, stored: bytes) -> None:
        """Try a record, in a transaction; raises `CorruptRecord`, `BlobMissing` and `UnknownZone`
        for one that can't be read as it is, which is no fault of a migration."""
        bound = self._bound
        attachments = self._attachments = bound.make_attachments(key, stored)
        bound.reader.read(key, stored)
        current = bound.reader.convert(key, stored, attachments)
        value = RECORD_PREFIX + current[decode_prefix(current, 0)[1] :]
        archive: Mapping[int, bytes] = _archive_of(attachments, self._archived)
        came_back = True
        for round_trip in self._round_trips:
            trace = round_trip.try_record(key, value, archive)
            came_back = came_back and trace.came_back
            if trace.error is not None:
                break
            value, archive = trace.values[1], trace.archives[1]
        self._memory.blobs.clear()
        self._tried += 1
        self._returned += came_back

    def report(self, records: int) -> TableSample:
        """What the records showed, of so many."""
        trips = self._round_trips
        failures = tuple(finding for trip in trips for finding in trip.failures.values())
        losses = tuple(
            (trip.migration.label, loss) for trip in trips for loss in trip.report().lossy
        )
        return TableSample(
            self._bound.schema.name, records, self._tried, self._returned, failures, losses
        )


def _archive_of(attachments: Attachments, numbers: Iterable[int]) -> dict[int, bytes]:
    """Return the archived values of a record once it is converted to the active schema."""
    found = {number: attachments.archive.get(number) for number in numbers}
    kept = {n: v for n, v in found.items() if v is not None and n not in attachments.restored}
    return kept | attachments.archived


def sample_records(
    connection: Connection, bound: BoundTable, count: int, sample: int, draw: Draw
) -> Iterator[tuple[bytes, bytes]]:
    """Records drawn at random, in the order of their keys; all `count` where there are no more."""
    for key, stored in read_places(connection, bound.statements, draw_places(count, sample, draw)):
        yield key, as_bytes(stored)


def read_places(
    connection: Connection,
    records: RecordStatements,
    places: Iterable[int],
    last: tuple[bytes, int] = (b"", -1),
) -> Iterator[tuple[bytes, Any]]:
    """The records at these places in the order of keys, which come behind the `last` one, given by
    its key and place. What stands in a cell is not looked at."""
    key, at = last
    for place in places:
        # From the previous key: all statements together scan the keys once.
        found = records.find_key(connection, key, place - at - 1)
        if found is None:
            return  # records were deleted since they were counted
        key, at = found, place
        row = connection.fetch_one(records.get_sql, (key,))
        if row is not None and row[0] is not None:
            yield key, row[0]


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
