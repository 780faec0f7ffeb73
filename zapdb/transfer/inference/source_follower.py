"""Follows a PostgreSQL source, pass by pass, until the application switches over.

    copy    all rows, as of one moment, resumable
    pass    rows that changed since the pass before, referenced tables first, and those that have
            exchanged unique values at once; then records whose rows are gone, referring tables
            first, and those that refer to each other together
    switch  a last pass under a lock that keeps writers out, and everything compared both ways

How far it has come is kept in the row of a checkpoint: what was changed since the moment there is
not copied yet. It is written when a pass has ended, so a pass that was killed is done again, which
changes nothing (rows that are equal are not written). One process at a time follows a source.
Before the application is switched over, the row says so: whatever dies then, nothing follows any
more, since the records that the application makes here would be deleted.

It is a job, which is held back between batches, while the source's snapshot stays open. Under the
lock of the switch it is not: writers wait. A job that is cancelled ends there, too.
"""

from __future__ import annotations

import hashlib
import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, Final

import sqlalchemy as sa

from zapdb.database import Database, Table
from zapdb.errors import ConstraintViolation, ReferenceViolation, StorageError, UsageError
from zapdb.imports import Checkpoint, Importer, SourceRow, forget_all
from zapdb.imports.checkpoint import checkpoint_id
from zapdb.imports.row_batches import Refused, batched, write_batch, write_together
from zapdb.jobs.exclusive import OnWait, ProgressReporter, noted_as_job
from zapdb.limits import PAGE_RECORDS_MAX
from zapdb.records import asdict
from zapdb.schema import Field
from zapdb.storage import Connection, TransactionMode
from zapdb.tables.bulk import remove_together
from zapdb.tables.indexes import BoundTable
from zapdb.tables.on_delete import find_referrers
from zapdb.transfer.inference.copy_plans import CopyPlan, plan_tables
from zapdb.transfer.inference.copying import Copier, CopyOptions
from zapdb.transfer.inference.inferred import Inference
from zapdb.transfer.inference.source_changes import (
    SourceMoment,
    changed_since,
    find_stamp,
    read_moment,
)
from zapdb.transfer.inference.source_database import SourceDatabase
from zapdb.transfer.inference.table_rows import TableRows

DELETES_SHARE: Final = 0.1
"""The share of its time that a follower looks for rows that are gone, which it does by comparing
all keys of a table."""
RENEW_SECONDS: Final = 2.0
"""How often the lease is renewed during a pass."""
COMPARED_TWICE: Final = 2


@dataclass(frozen=True, slots=True)
class PassReport:
    """What one pass has done."""

    read: int
    deleted: int
    seconds: float
    compared_keys: bool
    """Whether it looked for rows that are gone."""


@dataclass(frozen=True, slots=True)
class SwitchReport:
    """The last pass, and the tables as they were compared; `repaired` counts the rows that no pass
    had brought, because they were changed without their `updated_at`."""

    last: PassReport
    tables: list[ComparedTable]
    repaired: int


class Follower:
    """Keeps the tables of a source here; made by `Follower.opened`."""

    def __init__(
        self,
        source: SourceDatabase,
        plans: list[CopyPlan],
        db: Database,
        options: CopyOptions,
        checkpoint: Checkpoint,
        job: ProgressReporter,
    ) -> None:
        self._source = source
        self._plans = plans
        self._db = db
        self._options = options
        self._checkpoint = checkpoint
        self._job = job
        self._is_locked = False
        """Whether writers of the source wait for this process."""
        self._renewed = time.monotonic()
        self._look_at = 0.0
        """When rows that are gone are looked for next, by the monotonic clock."""

    @classmethod
    @contextmanager
    def opened(
        cls,
        source: SourceDatabase,
        found: Inference,
        db: Database,
        options: CopyOptions,
        on_wait: OnWait | None = None,
    ) -> Iterator[Follower]:
        """Follow a source in the block, as a job of the database: that of the caller, if `options`
        has its `pace`. It is done when the application has switched over; otherwise the next
        follower goes on. `on_wait` is called with what the job waits for.

        Raises `UsageError` for a source that is not PostgreSQL, and for tables that have records
        which are not of it; `LeaseHeld` while another process follows it.
        """
        if source.dialect != "postgresql":
            raise UsageError(
                "only a PostgreSQL database can be followed",
                source=source.shown,
                hint="stop its writers and import it without --follow",
            )
        plans = plan_tables(found, db)
        tenant = db._session.catalog.tenant
        names = ",".join(plan.name for plan in plans)
        name = checkpoint_id(tenant, 0, f"follow {source.shown} {names}")
        noted = noted_as_job(
            db._session, "import", source.shown, on_wait=on_wait, given=options.pace
        )
        with noted as job:
            checkpoint = Checkpoint.claim(db._storage, name, source.shown, anew=False)
            made = cls(source, plans, db, replace(options, pace=job), checkpoint, job)
            try:
                if made.is_switching and not made._filled:
                    checkpoint.state = {}  # it begins anew
                if not checkpoint.state:
                    made._require_empty()
                yield made
            finally:
                if checkpoint.state is not _ENDED:
                    checkpoint.release()
                    job.leave_open()

    @property
    def _filled(self) -> list[str]:
        return [plan.name for plan in self._plans if self._table(plan).first() is not None]

    def _require_empty(self) -> None:
        if filled := self._filled:
            self._checkpoint.forget()
            self._checkpoint.state = _ENDED
            raise UsageError(
                "tables that are to follow a source have records already",
                tables=", ".join(filled),
                hint="following deletes records that the source does not have: begin with empty "
                "tables, in another database or another tenant",
            )

    def _table(self, plan: CopyPlan) -> Table:
        return self._db.table(plan.name)

    # The copy

    def copy(self) -> int:
        """Copy all rows, if that is not done; goes on after an interruption. Returns how many were
        copied, earlier calls included. Raises `SourceLost`: called again, it goes on."""
        with self._source.noticing_loss():
            return self._copy()

    def _copy(self) -> int:
        state = self._checkpoint.state
        if state.get("is_copied") or self.is_switching:
            return 0
        is_first = not state
        if is_first:
            moment = read_moment(self._source.engine)
            self._save({"moment": moment.to_plain(), "is_copied": False})
        since = self._since()
        with self._source.reading() as connection:
            copier = Copier(connection, self._source, self._db, self._options)
            copier.count(self._plans)
            reports = []
            try:
                for plan in self._plans:
                    reports.append(copier.copy(plan))
                    if not is_first:  # of what an earlier run has copied, this one sees newer rows
                        self._bring(connection, plan, plan.fields, since)
                    self._renew()
                for plan, report in zip(self._plans, reports, strict=True):
                    if plan.later:
                        copier.set_references(plan, report)
            except ConstraintViolation:
                if is_first:
                    raise
                self._delete_gone(connection, is_brought=False)
                self._bring_apart(connection)
        self._job.expect(None)  # as long as there are changes
        self._save({**self._checkpoint.state, "is_copied": True})
        forget_all(copier.checkpoints)
        return sum(report.written + report.resumed_after for report in reports)

    # Passes

    def step(self) -> PassReport:
        """One pass, when the job may go on; raises the error of a row that can't be written, and
        `SourceLost`: the next pass brings what this one has not."""
        self._require_following()
        self._job.note(0)
        with self._source.noticing_loss():
            moment = read_moment(self._source.engine, self._since())
            with self._source.reading() as connection:
                report = self._bring_all(connection, is_last=False)
        self._save({"moment": moment.to_plain(), "is_copied": True})
        return report

    def _bring_all(self, connection: sa.Connection, *, is_last: bool) -> PassReport:
        began = time.monotonic()
        looks, deleted = is_last or began >= self._look_at, 0
        try:
            read = self._bring_changes(connection)
        except ConstraintViolation:
            # A row may have the values of one that is gone, or that has other values now.
            deleted, looks = self._delete_gone(connection, is_brought=False), True
            read = self._bring_apart(connection)
        if looks:
            look_began = time.monotonic()
            deleted += self._delete_gone(connection, is_brought=not is_last)
            ended = time.monotonic()
            self._look_at = ended + (ended - look_began) * (1 / DELETES_SHARE - 1)
            if self._checkpoint.state.get("brings_all"):
                read += self._bring_changes(connection)
        return PassReport(read, deleted, time.monotonic() - began, looks)

    def _bring_changes(self, connection: sa.Connection) -> int:
        since = self._since()
        read = sum(self._bring(connection, plan, plan.fields, since) for plan in self._plans)
        for plan, fields in self._later_parts():
            self._bring(connection, plan, fields, since)
        return read

    def _later_parts(self) -> Iterator[tuple[CopyPlan, tuple[Any, ...]]]:
        """The references that are set when all records are there, with the keys of these."""
        for plan in self._plans:
            if plan.later:
                key = tuple(f for f in plan.inferred.fields if f.name in plan.key)
                yield plan, (*key, *plan.later)

    def _bring_apart(self, connection: sa.Connection) -> int:
        """Bring all rows where some have values that must be unique and that other records have
        here, such as rows which exchanged them; returns how many were read.

        When all others are brought, what is in the way of a row that was refused is the record of
        another such row, so these are written at once.
        """
        self._bring_all_again()
        read, parts = 0, [(plan, plan.fields) for plan in self._plans]
        for plan, fields in (*parts, *self._later_parts()):
            refused = list[SourceRow]()
            for some in self._batches(connection, plan, fields):
                read += len(some)
                for one in self._upsert(plan, some):
                    if not isinstance(one.error, ConstraintViolation):
                        raise one.error
                    refused.append(one.row)
            if refused:
                write_together(self._db._session, self._table(plan), refused)
        return read

    def _batches(
        self, connection: sa.Connection, plan: CopyPlan, fields: tuple[Any, ...]
    ) -> Iterator[list[SourceRow]]:
        for some in batched(self._rows(connection, plan, fields).rows(), lambda: PAGE_RECORDS_MAX):
            yield some
            self._renew()
            self._keep_pace(len(some))

    def _upsert(self, plan: CopyPlan, rows: Sequence[SourceRow]) -> list[Refused]:
        """Write rows; returns those that were refused."""
        return write_batch(
            self._db._session, self._table(plan), rows, "upsert", lambda _connection, _refused: None
        )

    def _bring(
        self,
        connection: sa.Connection,
        plan: CopyPlan,
        fields: tuple[Any, ...],
        since: SourceMoment,
    ) -> int:
        """Write the rows that were changed since a moment; returns how many were read."""
        rows = self._rows(connection, plan, fields)
        if not self._checkpoint.state.get("brings_all"):
            rows.condition = changed_since(plan.inferred.source, since)
        importer = Importer(
            self._db._session,
            self._table(plan),
            "upsert",
            self._options.batch_records,
            progress=lambda _: self._renew(),
            pace=_HurriedPace(self._job) if self._is_locked else self._job,
        )
        return importer.run(rows).read

    def _rows(
        self, connection: sa.Connection, plan: CopyPlan, fields: tuple[Any, ...]
    ) -> TableRows:
        return TableRows(connection, self._source, plan, fields, self._options.time_zone)

    def _delete_gone(self, connection: sa.Connection, *, is_brought: bool) -> int:
        """Delete the records whose rows the source does not have, those that refer to others
        first. If all that has changed `is_brought`, tables of equal counts are passed over."""
        deleted, tied = 0, dict[str, list[bytes]]()
        for plan in reversed(self._plans):
            if is_brought and self._is_as_many(connection, plan):
                continue
            table = self._table(plan)
            for keys in self._find_gone(connection, plan):
                self._refresh_referring(connection, plan, keys)
                values = [_as_given(table, key) for key in keys]
                try:
                    deleted += table.delete_many(values)
                except ReferenceViolation:
                    tied.setdefault(plan.name, []).extend(keys)
        return deleted + (self._delete_tied(tied) if tied else 0)

    def _is_as_many(self, connection: sa.Connection, plan: CopyPlan) -> bool:
        """Whether there are as many records as rows, and so the same, since all rows are here:
        where they are found by `updated_at`, some may not be."""
        source = plan.inferred.source
        return find_stamp(source) is None and self._table(plan).count() == _count_rows(
            connection, plan
        )

    def _find_gone(self, connection: sa.Connection, plan: CopyPlan) -> Iterator[list[bytes]]:
        """Yield the keys of records without a row, some at a time."""
        table = self._table(plan)
        for page in _key_pages(table):
            there = self._find_rows(connection, plan, page, plan.key)
            gone = [key for key in page if key not in there]
            if gone:
                yield gone
            self._renew()
            self._keep_pace(len(page), len(gone))

    def _find_rows(
        self,
        connection: sa.Connection,
        plan: CopyPlan,
        keys: Sequence[bytes],
        names: Collection[str],
    ) -> dict[bytes, SourceRow]:
        """The rows that records with these keys have in the source, with values of some fields."""
        shape = self._table(plan)._current().adapter
        every = (*plan.fields, *plan.later)
        rows = self._rows(connection, plan, tuple(f for f in every if f.name in names))
        named = [
            dict(zip(shape.key_names, shape.codec.decode_key(key), strict=True)) for key in keys
        ]
        found = rows.find([tuple(one[name] for name in plan.key) for one in named])
        return {shape.codec.encode_key(row.values): row for row in found}

    def _refresh_referring(
        self, connection: sa.Connection, plan: CopyPlan, keys: Sequence[bytes]
    ) -> None:
        """Bring the rows of the records that refer to others which are gone: in the source they
        refer to no such rows, whatever told of their change. Otherwise the deletion would be
        refused, or change or delete them here."""
        for name, referring in self._find_referring(plan.name, keys).items():
            other = self._plan_of(name)
            if other is None or name == plan.name:
                continue  # of no table of the source; or of rows that are gone, too
            names = [field.name for field in (*other.fields, *other.later)]
            for some in _pages(sorted(referring)):
                found = self._find_rows(connection, other, some, names)
                if self._upsert(other, list(found.values())):  # what they need is not here yet
                    self._bring_all_again()

    def _find_referring(self, name: str, keys: Sequence[bytes]) -> dict[str, set[bytes]]:
        """The keys of the records that refer to records of a table, by the names of their
        tables."""
        session = self._db._session

        def read(connection: Connection, bound: BoundTable) -> tuple[None, dict[str, set[bytes]]]:
            found = dict[str, set[bytes]]()
            for incoming in bound.incoming_references:
                other = session.bind_referring(incoming)
                stored = find_referrers(connection, bound, keys, other, incoming, sys.maxsize)
                found.setdefault(other.schema.name, set()).update(key for key, _ in stored)
            return None, found

        _, keys_by_table = self._db.table(name)._read_active(read)
        return keys_by_table

    def _delete_tied(self, tied: dict[str, list[bytes]]) -> int:
        """Delete records that refer to each other, of whatever tables, in one transaction. Other
        records that still refer to them are deleted with them, and brought again."""
        every = {name: set(keys) for name, keys in tied.items()}
        looking = dict(every)
        while looking:
            further = dict[str, set[bytes]]()
            for name, keys in looking.items():
                for other, found in self._find_referring(name, sorted(keys)).items():
                    if self._plan_of(other) is not None:
                        further.setdefault(other, set()).update(found - every.get(other, set()))
            looking = {name: keys for name, keys in further.items() if keys}
            for name, keys in looking.items():
                every.setdefault(name, set()).update(keys)
                self._bring_all_again()
        session = self._db._session

        def delete() -> int:
            with session.writing() as connection:
                bound = [(self._db.table(name)._current(), sorted(every[name])) for name in every]
                return remove_together(session, connection, bound)

        return session.run(delete)

    def _bring_all_again(self) -> None:
        """Have this pass bring all rows, and the next one, if it does not come to its end."""
        if not self._checkpoint.state.get("brings_all"):
            self._save({**self._checkpoint.state, "brings_all": True})

    def _plan_of(self, name: str) -> CopyPlan | None:
        return next((plan for plan in self._plans if plan.name == name), None)

    # The switch

    def switch(self, meanwhile: Callable[[], object] = lambda: None) -> SwitchReport:
        """A last pass while no one can write to the source's tables, then all rows and records are
        compared. `meanwhile` is called when they are equal, and before writers may go on: there the
        application is switched over.

        From then on nothing follows any more, unless `meanwhile` raises an `Exception`. A switch
        that was interrupted there is only compared again: what differs may be the application's.

        Raises `StorageError` if the lock can't be had, or if the tables are not equal in the end;
        `UsageError` if they are not after an interrupted switch.
        """
        locked = [plan.inferred.source for plan in self._plans]
        self._job.note(0)
        with self._source.reading(locked) as connection, self._hurrying():
            if self.is_switching:
                last, repaired = PassReport(0, 0, 0.0, compared_keys=False), 0
                compared = [self._compare(connection, plan) for plan in self._plans]
                if not all(one.is_equal for one in compared):
                    self._require_following()
            else:
                last = self._bring_all(connection, is_last=True)
                repaired, compared = self._repair_all(connection)
                _require_equal(compared)
            self._hand_over(meanwhile)
        self._checkpoint.forget()
        self._checkpoint.state = _ENDED
        return SwitchReport(last, compared, repaired)

    @property
    def is_switching(self) -> bool:
        """Whether the application was, or may have been, switched over."""
        return bool(self._checkpoint.state.get("is_switching"))

    def _require_following(self) -> None:
        if self.is_switching:
            raise UsageError(
                "the source is followed no more: its switch was interrupted while the application "
                "was switched over",
                source=self._source.shown,
                hint="if the application writes here now, all is done; if it writes to the source, "
                "empty these tables, and follow it anew; if neither, run --switch again",
            )

    def _hand_over(self, meanwhile: Callable[[], object]) -> None:
        """Have the application switched over; what dies meanwhile leaves the mark."""
        before = self._checkpoint.state
        self._save({**before, "is_switching": True})
        try:
            meanwhile()
        except Exception:
            self._save(before)
            raise

    def _repair_all(self, connection: sa.Connection) -> tuple[int, list[ComparedTable]]:
        """Compare all tables, and write the rows that differ; returns how many did."""
        repaired, compared = 0, list[ComparedTable]()
        for _ in range(COMPARED_TWICE):
            compared = [self._compare(connection, plan) for plan in self._plans]
            differing = sum(len(one.differing) for one in compared)
            if not differing:
                break
            repaired += differing
            try:
                for plan, one in zip(self._plans, compared, strict=True):
                    self._repair(plan, one)
            except ConstraintViolation:
                self._bring_apart(connection)
        return repaired, compared

    def _compare(self, connection: sa.Connection, plan: CopyPlan) -> ComparedTable:
        rows = self._rows(connection, plan, (*plan.fields, *plan.later))

        def progress(_: int) -> None:
            self._renew()
            self._keep_pace(0)

        return compare_table(rows, self._table(plan), progress)

    def _repair(self, plan: CopyPlan, found: ComparedTable) -> None:
        def require(_: Connection, refused: Any) -> None:
            for one in refused:
                raise one.error

        for start in range(0, len(found.differing), PAGE_RECORDS_MAX):
            some = found.differing[start : start + PAGE_RECORDS_MAX]
            write_batch(self._db._session, self._table(plan), some, "upsert", require)

    # Its job

    @contextmanager
    def _hurrying(self) -> Iterator[None]:
        """Under the lock of the source the job is not held back."""
        self._is_locked = True
        try:
            yield
        finally:
            self._is_locked = False

    def _keep_pace(self, read: int, written: int = 0) -> None:
        note = self._job.count if self._is_locked else self._job.note
        note(read, written)

    # How far it has come

    def _since(self) -> SourceMoment:
        return SourceMoment.from_plain(self._checkpoint.state["moment"])

    def _save(self, state: dict[str, Any]) -> None:
        with self._db._storage.transaction(TransactionMode.CATALOG) as connection:
            self._checkpoint.save(connection, state, 0, 0)
        self._checkpoint.state = state
        self._renewed = time.monotonic()

    def _renew(self) -> None:
        if time.monotonic() - self._renewed >= RENEW_SECONDS:
            self._save(self._checkpoint.state)


class _HurriedPace(ProgressReporter):
    """Counts for a job that is not held back."""

    def __init__(self, job: ProgressReporter) -> None:
        super().__init__()
        self._job = job

    def note(self, read: int, written: int = 0, size_bytes: int = 0) -> None:
        self._job.count(read, written)


_ENDED: Final[dict[str, Any]] = {}
"""The state of a checkpoint that was forgotten."""


def _count_rows(connection: sa.Connection, plan: CopyPlan) -> int:
    counted = plan.inferred.select(sa.func.count())
    return int(connection.execute(counted).scalar_one())


def _as_given(table: Table, key: bytes) -> Any:
    values = table._current().adapter.codec.decode_key(key)
    return values if len(values) > 1 else values[0]


def _pages(keys: Sequence[bytes]) -> Iterator[Sequence[bytes]]:
    for start in range(0, len(keys), PAGE_RECORDS_MAX):
        yield keys[start : start + PAGE_RECORDS_MAX]


def _key_pages(table: Table) -> Iterator[list[bytes]]:
    after = b""
    while page := _read_keys(table, after):
        yield page
        after = page[-1]


def _read_keys(table: Table, after: bytes) -> list[bytes]:
    _, page = table._read_active(lambda c, bound: bound.records.scan_page(c, after))
    return [key for key, _ in page]


def _require_equal(compared: list[ComparedTable]) -> None:
    for one in compared:
        if not one.is_equal:
            raise StorageError(
                "a table is not equal to that of the source",
                table=one.table,
                differing=len(one.differing),
                rows=one.rows,
                records=one.records,
                hint="somebody else writes to it here: stop that, and switch again",
            )


COMPARED_ROWS: Final = 500
"""Rows that are compared at a time."""


@dataclass(slots=True)
class ComparedTable:
    """The rows of a source's table, in the order of their keys, and the digests of their values and
    of those of the records with the same keys. `differing` rows have another record here, or
    none. There are `records` here: more than rows, if some have no row."""

    table: str
    rows: int = 0
    records: int = 0
    digest: str = ""
    digest_here: str = ""
    differing: list[SourceRow] = field(default_factory=list)

    @property
    def is_equal(self) -> bool:
        """Whether each row has an equal record, and each record a row."""
        return self.digest == self.digest_here and self.rows == self.records


def compare_table(
    rows: TableRows, table: Table, progress: Callable[[int], object]
) -> ComparedTable:
    """Raises the error of a row that can't be read."""
    bound = table._current()
    fields = [bound.adapter.schema.field_named(name) for name in rows.field_names]
    encode = _Encoder([f for f in fields if f is not None])
    found = ComparedTable(bound.schema.name)
    source, here = hashlib.sha256(), hashlib.sha256()
    stream = rows.rows()
    while page := list(islice(stream, COMPARED_ROWS)):
        for row in page:
            if row.error is not None:
                raise rows.place(row.error, row.number)
        keys = [tuple(row.values[name] for name in bound.adapter.key_names) for row in page]
        records = table.get_many([key if len(key) > 1 else key[0] for key in keys])
        for row, record in zip(page, records, strict=True):
            expected = encode(row.values)
            stored = b"" if record is None else encode(asdict(record))
            source.update(expected)
            here.update(stored)
            if expected != stored:
                found.differing.append(row)
        found.rows += len(page)
        progress(found.rows)
    found.digest, found.digest_here = source.hexdigest(), here.hexdigest()
    found.records = table.count()
    return found


class _Encoder:
    """The values of a record as bytes that are equal where the values are."""

    def __init__(self, fields: Sequence[Field]) -> None:
        self._fields = fields

    def __call__(self, values: Mapping[str, Any]) -> bytes:
        return b"".join(self._encode(field, values[field.name]) for field in self._fields)

    def _encode(self, field: Field, value: Any) -> bytes:
        if value is None and not (field.type.holds_null and not field.optional):
            return b"\0"
        return b"\1" + field.type.encode(field.type.check(value, field.name))
