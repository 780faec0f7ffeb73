"""What a kind of job does with a batch of records: the base of the kinds."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Final
from weakref import WeakKeyDictionary

from zapdb.activation.tenant_catalog import TableDescriptor, TenantCatalog, load_tenant_catalog
from zapdb.catalog.row_kinds import ConstraintFinding, Job
from zapdb.limits import BATCH_RECORDS_FIRST
from zapdb.storage import (
    ArchiveStatements,
    Connection,
    EntryStatements,
    OfHeld,
    RecordStatements,
    Storage,
)
from zapdb.storage.cells import as_bytes
from zapdb.storage.statements import find_middle, in_range

_LAST: Final[WeakKeyDictionary[Storage, TenantCatalog]] = WeakKeyDictionary()
"""The tenant catalog that a storage's jobs used last. A job loads it where it is planned, by each
of its workers, and at its end; reading and compiling a long chain takes longer than a batch does.
"""

Findings = tuple[ConstraintFinding, ...]
"""What blocks a job."""


class Superseded(Exception):
    """What the job works towards is no longer needed."""


class HeldBack(Exception):
    """Nobody may work on the job now: it is paused or cancelled, or outside its window."""


def load_job_catalog(
    connection: Connection, tenant: int, known: TenantCatalog | None = None
) -> TenantCatalog:
    """Load the tenant catalog, inside a transaction, as `load_tenant_catalog` does. Parts of
    `known` that are still valid are kept, or of the one that was loaded last."""
    storage = connection.storage
    catalog = load_tenant_catalog(connection, tenant, known or _LAST.get(storage))
    _LAST[storage] = catalog
    return catalog


def find_active_table(catalog: TenantCatalog, job: Job) -> TableDescriptor:
    """The table that a job works on, active or kept; raises `Superseded` if there is none."""
    found = catalog.find_numbered(job.table)
    if found is None:
        raise Superseded
    return found


class Work(ABC):
    """What a kind of job does with a batch, under the tenant catalog that it was loaded with."""

    skips_locked: bool = False
    """Whether rows that a writer holds are left for another pass, and have to be found again there.
    Otherwise a batch waits for the writer, who is done in a moment."""
    only_reads: bool = False
    """Whether batches are examined in snapshots of their own, which hold up nobody, and only what
    was found is noted with the progress."""
    batch_records: int = BATCH_RECORDS_FIRST
    """The size of the first batch of the next range: that of the last batch so far."""
    rate: float | None = None
    """How many records a second a worker has read in its last range; None before its first one."""

    def __init__(self, storage: Storage, catalog: TenantCatalog, job: Job) -> None:
        self.storage = storage
        self.catalog = catalog
        self.job = job
        self.records = RecordStatements(storage, job.table, job.tenant)
        self.archives = ArchiveStatements(self.records, catalog.archived_fields(job.table))

    @property
    @abstractmethod
    def condition(self) -> tuple[str, list[Any]]:
        """The SQL condition of the records to work on, in addition to the range itself."""

    @abstractmethod
    def count_left(self, connection: Connection) -> int:
        """How many records the work has not been done for, once its ranges are; less than 0 if it
        was done for more than there are."""

    @abstractmethod
    def finish(self) -> Findings:
        """Publish the result, once nothing is left; returns what is in its way. Raises
        `Superseded`."""

    def count_stale(self, connection: Connection) -> int:
        """How many records satisfy the condition."""
        condition, parameters = self.condition
        (left,) = connection.fetch_one(f"{self.records.count_sql} AND {condition}", parameters)
        return int(left)

    def tidy(self) -> None:  # noqa: B027 - most kinds have nothing to tidy
        """Take away what would be counted by mistake, before what is left is counted."""

    def find_obstacles(self, connection: Connection, *, is_last: bool) -> Findings:
        """Why something is left, if the ranges need not be gone through again; `is_last` if they
        were already."""
        return ()

    def begin_anew(self, connection: Connection) -> None:  # noqa: B027 - most kinds know nothing
        """Forget what is known of its records: all ranges are gone through again."""

    def note_reached(self, connection: Connection) -> None:  # noqa: B027 - most kinds note nothing
        """Store that the target is reached, in the transaction that ends the job."""

    def clean_up(self) -> None:  # noqa: B027 - most kinds leave nothing
        """Remove what nobody needs after the job is done."""

    @property
    def entries(self) -> EntryStatements | None:
        """The index entries that the ranges are of; None if they are of records."""
        return None

    @property
    def goes_back(self) -> bool:
        """Whether a range is done only when no record is left that satisfies the condition."""
        return bool(self.condition[1])

    def range_condition(self, lower: bytes | None, upper: bytes | None) -> tuple[str, list[Any]]:
        """The SQL condition of the records to work on in a range above `lower`, up to `upper`."""
        condition, parameters = self.condition
        keys, bounds = in_range(self.storage.placeholder, lower, upper)
        return f"tenant = {self.job.tenant} AND {condition}{keys}", [*parameters, *bounds]

    def fetch(
        self,
        connection: Connection,
        lower: bytes | None,
        upper: bytes | None,
        limit: int,
        *,
        of_held: OfHeld,
    ) -> list[tuple[bytes, bytes]]:
        """The next rows of a range, locked, in the order of their places: (place, value).

        The places of records are their keys.
        """
        condition, parameters = self.range_condition(lower, upper)
        return self.storage.dialect.lock_records(
            connection, self.records.name, condition, parameters, limit, of_held=of_held
        )

    def find_middle(
        self, connection: Connection, lower: bytes | None, upper: bytes | None, limit: int
    ) -> tuple[int, bytes | None]:
        """How many rows are left in a range, up to `limit`, and the place of the middle one."""
        condition, parameters = self.range_condition(lower, upper)
        count, row = find_middle(
            connection, "key", f"{self.records.name} WHERE {condition}", parameters, limit
        )
        return count, None if row is None else as_bytes(row[0])

    def note_done(  # noqa: B027 - most kinds have nothing to note
        self, connection: Connection, lower: bytes | None, upper: bytes | None
    ) -> None:
        """Store what is known about a range in which nothing is left to do, in the transaction that
        marks it as done."""

    def record_key(self, place: bytes) -> bytes:
        """The key of the record of a row that `fetch` gave."""
        return place

    @abstractmethod
    def try_to_read(self, connection: Connection, place: bytes, value: bytes) -> None:
        """Read a row as `write` does, without writing; raises why it can't be read."""

    @abstractmethod
    def write(self, connection: Connection, batch: list[tuple[bytes, bytes]], number: int) -> int:
        """Work on the (place, value) rows that `fetch` gave, of range `number`; returns how many
        were written."""

    def examine(
        self, connection: Connection, batch: list[tuple[bytes, bytes]]
    ) -> Callable[[Connection, int], object]:
        """Look at a batch in its snapshot, if the work only reads; returns what notes the findings
        for a range, by its number, in the transaction of its progress."""
        return lambda connection, number: self.write(connection, batch, number)
