"""Verification: every record decodes, and every index holds exactly the entries of its records.

Every stored migration can be activated and rolled back.

Every record satisfies the validated checks and references.

Every entry of the schema history has the fingerprint of its table schema, and the table schema that
the migrations lead to; entries of dropped tables, too.

Every blob that a record refers to exists and has the size that the record says, and its chunks are
the bytes that were written. Blobs that no record owns are no problem: the sweep deletes them.
"""

from __future__ import annotations

from dataclasses import dataclass

from zapdb.activation import TenantCatalog, load_tenant_catalog
from zapdb.activation.record_layouts import load_layouts
from zapdb.catalog.schema_history import RevisionEntry, read_entries
from zapdb.catalog.schema_history_faults import find_faults
from zapdb.errors import BlobMissing, CorruptBlob, CorruptionError, CorruptRecord, UnknownZone
from zapdb.indexes import BoundTable
from zapdb.jobs.sweep import count_blobs
from zapdb.jobs.validation import find_violations
from zapdb.limits import PAGE_RECORDS_MAX, VIOLATIONS_SHOWN_MAX
from zapdb.records import OwnedBlobs, Record, decode_prefix
from zapdb.storage import BlobStatements, Connection, Storage, TransactionMode
from zapdb.storage.cells import as_bytes


@dataclass(frozen=True, slots=True)
class TableReport:
    """The problems of one table; `problems` has the first ones, `problem_count` the number of all.

    There is one report for each active table, and one for each dropped table whose history has
    problems.
    """

    table: str
    records: int
    revisions: dict[int, int]
    entries: dict[str, int]
    building: tuple[str, ...]
    blobs: int
    problem_count: int
    problems: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class BlobsReport:
    """How many blobs the database has, and how many of them no record owns."""

    blobs: int
    unowned: int


class _Problems:
    def __init__(self) -> None:
        self.count = 0
        self.shown: list[str] = []

    def add(self, text: str) -> None:
        self.count += 1
        if len(self.shown) < VIOLATIONS_SHOWN_MAX:
            self.shown.append(text)


def verify_tenant(storage: Storage, tenant: int) -> list[TableReport]:
    """Check all tables of a tenant in one snapshot, in memory that does not grow with them."""
    with storage.transaction(TransactionMode.READ) as connection:
        catalog = load_tenant_catalog(connection, tenant)
        for migration in catalog.chain.migrations:
            migration.check()
        logs: dict[int, list[RevisionEntry]] = {}
        for entry in read_entries(connection, tenant):
            logs.setdefault(entry.table_number, []).append(entry)
        reports = []
        for descriptor in catalog.tables.values():
            problems = _Problems()
            _verify_log(logs.pop(descriptor.schema.number), catalog, problems)
            reports.append(
                _verify_table(connection, BoundTable(storage, catalog, descriptor), problems)
            )
        for number, log in logs.items():  # of tables that were dropped
            problems = _Problems()
            _verify_log(log, catalog, problems)
            if problems.count:
                reports.append(_report_log(number, log, problems))
        return reports


def _verify_log(log: list[RevisionEntry], catalog: TenantCatalog, problems: _Problems) -> None:
    for entry, fault in find_faults(log, catalog.chain):
        problems.add(f"revision {entry.revision} of the schema history: {fault}")


def _report_log(number: int, log: list[RevisionEntry], problems: _Problems) -> TableReport:
    try:
        name = log[-1].schema.name
    except CorruptionError:
        name = f"(table {number})"
    return TableReport(name, 0, {}, {}, (), 0, problems.count, tuple(problems.shown))


def verify_blobs(storage: Storage) -> BlobsReport:
    """Count the blobs of all tenants; raises `CorruptRecord` where a record can't be read."""
    with storage.transaction(TransactionMode.READ) as connection:
        return BlobsReport(*count_blobs(connection))


class _Blobs:
    """Checks whether the blobs that a table's records refer to exist."""

    def __init__(self, connection: Connection, bound: BoundTable) -> None:
        self.count = 0
        self._connection = connection
        self._table = BlobStatements(connection.storage)
        self._owned = OwnedBlobs(
            load_layouts(connection, bound.catalog.tenant, bound.schema.number)
        )

    def check(self, key: bytes, value: bytes, problems: _Problems) -> bool:
        """Whether all are what was written."""
        before = problems.count
        for made, size in self._owned.find(value):
            self.count += 1
            found, is_whole = self._table.measure(self._connection, made)
            if (found, is_whole) != (size, True):
                problems.add(f"record {key.hex()[:32]}: {found} of the {size} bytes of a blob")
                continue
            try:
                self._table.check(self._connection, made, size)
            except CorruptBlob as error:
                problems.add(f"record {key.hex()[:32]}: {error.context['what']}")
        return problems.count == before


def _read_whole(
    bound: BoundTable, key: bytes, value: bytes, blobs: _Blobs, problems: _Problems
) -> Record | None:
    """A record that can be read, with all of its large values; else None, and the problem is
    noted."""
    try:
        has_blobs = blobs.check(key, value, problems)
        record = bound.reader.read(key, value)
    except (BlobMissing, CorruptBlob):  # a conversion needs one, and it is noted already
        return None
    except CorruptRecord as error:
        problems.add(f"record {key.hex()[:32]}: {error.context['what']}")
        return None
    except UnknownZone as error:
        zone, data = error.context["zone"], error.context["data"]
        problems.add(f"record {key.hex()[:32]}: time zone {zone} is not in {data}")
        return None
    return record if has_blobs else None  # keys of entries and checks may need them


def _verify_table(connection: Connection, bound: BoundTable, problems: _Problems) -> TableReport:
    blobs = _Blobs(connection, bound)
    revisions: dict[int, int] = {}
    readable = [index for index in bound.indexes if index.is_readable]
    demands = bool(bound.checks or bound.references)
    records, after = 0, b""
    while True:
        page = connection.fetch_all(bound.records.page_sql, (after, PAGE_RECORDS_MAX))
        if not page:
            break
        whole: list[tuple[bytes, Record]] = []
        for raw_key, raw_value in page:
            key, value = as_bytes(raw_key), as_bytes(raw_value)
            record = _read_whole(bound, key, value, blobs, problems)
            if record is None:
                continue
            whole.append((key, record))
        for index in readable:
            rows = [(index.entry_key(record, key), key) for key, record in whole]
            there = index.entries.find_entries(connection, rows)
            for _, key in (row for row in rows if row not in there):
                problems.add(f"record {key.hex()[:32]}: no entry in {index.name!r}")
        if demands:
            for what, text in find_violations(connection, bound, whole, validated=True):
                problems.add(f"{what}: {text}")
        records += len(page)
        after = as_bytes(page[-1][0])
    for prefix, count in bound.records.count_by_prefix(connection):
        revisions[decode_prefix(prefix, 0)[0]] = count
    entries = {}
    for index in readable:
        # Each record has its entry; as many entries as records means that there is no other.
        (entries[index.name],) = connection.fetch_one(index.entries.count_sql)
        if entries[index.name] != records:
            problems.add(
                f"index {index.name!r}: {entries[index.name]} entries for {records} records"
            )
    return TableReport(
        bound.schema.name,
        records,
        revisions,
        entries,
        tuple(index.name for index in bound.indexes if not index.is_readable),
        blobs.count,
        problems.count,
        tuple(problems.shown),
    )
