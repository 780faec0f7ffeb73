"""Rows of a source's tables, in the order of their keys, into tables that are here.

Tables are copied after those that they refer to. An optional reference that can't be followed at
once, to the table itself or in a circle, is set in a second pass, when all records are there. A
table that was copied to its end is remembered until the whole source is.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import sqlalchemy as sa

from zapdb.database import Database
from zapdb.errors import ZapdbError
from zapdb.imports import Checkpoint, Importer, ImportMode, ImportReport
from zapdb.imports.importer import Skipped
from zapdb.jobs.exclusive import ProgressReporter
from zapdb.transfer.inference.copy_plans import CopyPlan, plan_tables
from zapdb.transfer.inference.inferred import Inference, InferredField
from zapdb.transfer.inference.source_database import SourceDatabase
from zapdb.transfer.inference.table_rows import TableRows


@dataclass(frozen=True, slots=True)
class CopyOptions:
    """`time_zone` is the zone of times without one. `skipped` takes wrong rows; without it, the
    first one ends the copy."""

    time_zone: datetime.tzinfo = datetime.UTC
    mode: ImportMode = "append"
    batch_records: int | None = None
    skipped: Skipped | None = None
    anew: bool = False
    progress: Callable[[int], object] = field(default=lambda _: None)
    pace: ProgressReporter | None = None


@dataclass(frozen=True, slots=True)
class TableCopy:
    """What became of one table: its rows in the source, its records here, and the skipped rows."""

    source: str
    table: str
    rows: int
    records: int
    skipped: int

    @property
    def is_complete(self) -> bool:
        return self.rows == self.records + self.skipped


def copy_tables(
    source: SourceDatabase,
    found: Inference,
    db: Database,
    options: CopyOptions,
    kept: list[Checkpoint],
) -> list[TableCopy]:
    """Copy all inferred tables, then compare counts; a run that was interrupted is gone on with.

    Adds the checkpoints to `kept`; the caller forgets them once it is known that all is copied.
    Raises `UsageError` if a table or field is missing here, before anything is copied.
    """
    plans = plan_tables(found, db)
    with source.reading() as connection:
        copier = Copier(connection, source, db, options)
        copier.count(plans)
        reports = dict[str, ImportReport]()
        for plan in plans:
            with _telling_of(reports):
                reports[plan.inferred.name] = copier.copy(plan)
        for plan in plans:
            if plan.later:
                copier.set_references(plan, reports[plan.inferred.name])
        copies = [_compare(connection, db, plan, reports[plan.inferred.name]) for plan in plans]
    kept += copier.checkpoints
    return copies


@contextmanager
def _telling_of(copied: Mapping[str, ImportReport]) -> Iterator[None]:
    """Add to an error of a table how many rows of those before it are there."""
    try:
        yield
    except ZapdbError as error:
        if "imported" in error.context and copied:
            rows = sum(report.written + report.resumed_after for report in copied.values())
            tables = "table" if len(copied) == 1 else "tables"
            error.context["imported"] += f", and {rows:,} of {len(copied)} {tables} before"
        raise


def _compare(
    connection: sa.Connection, db: Database, plan: CopyPlan, report: ImportReport
) -> TableCopy:
    rows = connection.execute(plan.inferred.select(sa.func.count())).scalar_one()
    records = db.table(plan.inferred.name).count()
    return TableCopy(
        plan.inferred.source_name, plan.inferred.name, int(rows), records, report.skipped
    )


class Copier:
    """Copies one table after the other, from one transaction of the source."""

    def __init__(
        self,
        connection: sa.Connection,
        source: SourceDatabase,
        db: Database,
        options: CopyOptions,
    ) -> None:
        self.checkpoints = list[Checkpoint]()
        self._connection = connection
        self._source = source
        self._db = db
        self._options = options
        self._skipped_to = 0
        self._expected = dict[str, int]()
        """How many rows there are from the beginning of a part on, by its identity."""

    def count(self, plans: Sequence[CopyPlan]) -> None:
        """Count all rows that are to be copied, of which the job tells how many are left."""
        if self._options.pace is None or not self._options.pace.is_job:
            return
        parts = [self._rows(plan, plan.fields) for plan in plans]
        parts += [self._later_rows(plan) for plan in plans if plan.later]
        expected = 0
        for part in reversed(parts):
            expected += part.count()
            self._expected[part.identity] = expected

    def copy(self, plan: CopyPlan) -> ImportReport:
        """All rows of a table, without the references that are set later."""
        rows = self._rows(plan, plan.fields)
        report = self._importer(plan, self._options.mode).run_and_keep(rows, self.checkpoints)
        self._skipped_to = report.skipped_to
        return report

    def set_references(self, plan: CopyPlan, copied: ImportReport) -> None:
        """The references that could not be set at once; rows that were skipped have no record."""
        rows = self._later_rows(plan)
        if copied.skipped:
            table = self._db.table(plan.inferred.name)
            rows.keep = lambda values: table.exists(**{name: values[name] for name in plan.key})
        report = self._importer(plan, "upsert").run_and_keep(rows, self.checkpoints)
        self._skipped_to = report.skipped_to

    def _later_rows(self, plan: CopyPlan) -> TableRows:
        """The rows that have references which are set later."""
        key = tuple(f for f in plan.inferred.fields if f.name in plan.inferred.key)
        rows = self._rows(plan, (*key, *plan.later))
        later = [plan.inferred.source.c[f.columns[0]] for f in plan.later]
        rows.condition = sa.or_(*(column.is_not(None) for column in later))
        return rows

    def _rows(self, plan: CopyPlan, fields: tuple[InferredField, ...]) -> TableRows:
        rows = TableRows(self._connection, self._source, plan, fields, self._options.time_zone)
        rows.expected = self._expected.get(rows.identity)
        return rows

    def _importer(self, plan: CopyPlan, mode: ImportMode) -> Importer:
        options = self._options
        return Importer(
            self._db._session,
            self._db.table(plan.inferred.name),
            mode,
            options.batch_records,
            options.skipped,
            skipped_from=self._skipped_to,
            resumable=True,
            anew=options.anew,
            progress=options.progress,
            pace=options.pace or ProgressReporter(),
        )
