"""Proving migrations on records that a database has: a sample of them, read and never written.

What made-up values miss (see `migrations.prove`), real ones may show. The records of each table are
read in the shape that is in force, sent through the migrations that follow, one after the other,
and back through each. Their contents are not shown; a finding names a record by its key.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from zapdb.catalog import View
from zapdb.indexes import LiveTable
from zapdb.migrations import Migration
from zapdb.migrations.finding import Finding
from zapdb.migrations.prove import converted_tables
from zapdb.migrations.trial import PREFIX, Memory, Trial
from zapdb.records import Beside, decode_prefix
from zapdb.storage import Connection, Mode, Storage
from zapdb.values.blob import Blob


@dataclass(frozen=True, slots=True)
class SampledTable:
    """A table whose records were tried: how many it has, and how many were read."""

    table: str
    records: int
    sampled: int
    failures: tuple[Finding, ...]


def prove_with_records(
    storage: Storage, view: View, migrations: Sequence[Migration], sample: int
) -> list[SampledTable]:
    """Try migrations that follow the view's position on up to `sample` records of each table.

    Only tables that one of them converts are read. Raises `CorruptRecord`, `BlobMissing` and
    `UnknownZone` for records that can't be read as they are.
    """
    converted = [(migration, set(converted_tables(migration))) for migration in migrations]
    sampled = []
    with storage.transaction(Mode.READ) as connection:
        for state in view.tables.values():
            number = state.table.number
            touching = [migration for migration, tables in converted if number in tables]
            if touching:
                live = LiveTable(storage, view, state)
                sampled.append(_try_table(connection, live, touching, sample))
    return sampled


def _try_table(
    connection: Connection, live: LiveTable, migrations: list[Migration], sample: int
) -> SampledTable:
    beside = live.make_beside()

    def load(blob: Blob) -> bytes:
        return beside.load(blob)

    memory = Memory(load)
    trials = [
        Trial(migration, live.table.number, live.view.zones, memory, is_private=True)
        for migration in migrations
    ]
    (count,) = connection.fetch_one(live.records.count_sql)
    archived = live.view.chain.archived_fields(live.table.number)
    tried = 0
    for key, stored in sample_records(connection, live, int(count), sample):
        beside = live.make_beside(key, stored)
        live.reader.read(key, stored)  # what can't be read as it is is no fault of a migration
        current = live.reader.convert(key, stored, beside)
        value = PREFIX + current[decode_prefix(current, 0)[1] :]
        archive: Mapping[int, bytes] = _archive_of(beside, archived)
        for trial in trials:
            journey = trial.try_record(key, value, archive)
            if journey.error is not None:
                break
            value, archive = journey.values[1], journey.archives[1]
        memory.blobs.clear()
        tried += 1
    failures = tuple(finding for trial in trials for finding in trial.failures.values())
    return SampledTable(live.table.name, int(count), tried, failures)


def _archive_of(beside: Beside, numbers: Iterable[int]) -> dict[int, bytes]:
    """What is archived beside a record once it has the shape that is in force."""
    found = {number: beside.archive.get(number) for number in numbers}
    kept = {n: v for n, v in found.items() if v is not None and n not in beside.restored}
    return kept | beside.archived


def sample_records(
    connection: Connection, live: LiveTable, count: int, sample: int
) -> Iterator[tuple[bytes, bytes]]:
    """Records at even distances in the order of their keys, all where there are no more."""
    if not count:
        return
    every = -(-count // sample)
    for key in live.records.slice_keys(connection, every):
        row = connection.fetch_one(live.records.get_sql, (key,))
        if row is not None and row[0] is not None:
            yield key, bytes(row[0])
