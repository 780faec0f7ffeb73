"""Rows of a source's tables, in the order of their keys, into tables that are here.

Tables are copied after those that they refer to. An optional reference that can't be followed at
once, to the table itself or in a circle, is set in a second pass, when all records are there. A
table that was copied to its end is remembered until the whole source is.
"""

from __future__ import annotations

import base64
import datetime
import decimal
import json
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

import sqlalchemy as sa

from zapdb.database import Database
from zapdb.database.imports import (
    Checkpoint,
    Coerce,
    Coercion,
    Importer,
    ImportMode,
    ImportReport,
    RowSource,
    SourceRow,
    make_coercer,
)
from zapdb.database.imports.run import Skipped
from zapdb.errors import UsageError, ZapdbError
from zapdb.inference.inferred import Inference, InferredField, InferredTable
from zapdb.inference.source import SourceDatabase
from zapdb.limits import INSERT_BATCH_RECORDS
from zapdb.schema import TableSchema
from zapdb.values import Reference

SOURCE_PAGE_ROWS: Final = 5_000


@dataclass(frozen=True, slots=True)
class CopyOptions:
    """`time_zone` is the zone of times without one. `skipped` takes wrong rows; without it, the
    first one ends the copy."""

    time_zone: datetime.tzinfo = datetime.UTC
    mode: ImportMode = "append"
    batch_records: int = INSERT_BATCH_RECORDS
    skipped: Skipped | None = None
    anew: bool = False
    progress: Callable[[int], object] = field(default=lambda _: None)


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
    source: SourceDatabase, found: Inference, db: Database, options: CopyOptions
) -> list[TableCopy]:
    """Copy all inferred tables, then compare counts; a run that was interrupted is gone on with.

    Raises `UsageError` if a table or field is missing here, before anything is copied.
    """
    plans = _sort([_plan(table, db) for table in found.tables])
    with source.reading() as connection:
        copier = _Copier(connection, source, db, options)
        reports = {plan.inferred.name: copier.copy(plan) for plan in plans}
        for plan in plans:
            if plan.later:
                copier.set_references(plan, reports[plan.inferred.name])
        copies = [_compare(connection, db, plan, reports[plan.inferred.name]) for plan in plans]
    for checkpoint in copier.checkpoints:
        checkpoint.forget()
    return copies


def _compare(
    connection: sa.Connection, db: Database, plan: _Plan, report: ImportReport
) -> TableCopy:
    table = plan.inferred.source
    rows = connection.execute(sa.select(sa.func.count()).select_from(table)).scalar_one()
    records = db.table(plan.inferred.name).count()
    return TableCopy(table.name, plan.inferred.name, int(rows), records, report.skipped)


@dataclass(frozen=True, slots=True)
class _Plan:
    """The fields of a table that are filled at once, and those that are set `later`."""

    inferred: InferredTable
    schema: TableSchema
    fields: tuple[InferredField, ...]
    later: tuple[InferredField, ...]

    @property
    def name(self) -> str:
        return self.schema.name

    @property
    def key(self) -> tuple[str, ...]:
        return self.inferred.key

    def target_of(self, given: InferredField) -> str | None:
        """The table that a field refers to here."""
        field = self.schema.field_named(given.name)
        return field.type.table if field and isinstance(field.type, Reference) else None

    def is_optional(self, given: InferredField) -> bool:
        field = self.schema.field_named(given.name)
        return field is not None and field.optional

    @property
    def targets(self) -> set[str]:
        """The tables that the fields refer to which are filled at once."""
        return {target for f in self.fields if (target := self.target_of(f)) is not None}


def _plan(table: InferredTable, db: Database) -> _Plan:
    schema = db.table(table.name)._current().adapter.schema
    by_name = {f.name: f for f in schema.fields}
    missing = [f.name for f in table.fields if f.name not in by_name]
    if missing:
        raise UsageError(
            "the table here lacks fields of the source's table",
            table=table.name,
            fields=", ".join(missing),
            hint="add them, or write the migration anew with --infer",
        )
    return _Plan(table, schema, tuple(table.fields), ())


def _sort(plans: list[_Plan]) -> list[_Plan]:
    """The tables, each behind those that it refers to here, whatever the source declares.

    Optional references to the table itself, and those that break a circle, are set later. Raises
    `UsageError` for a circle of required references.
    """
    left, order = {plan.schema.name: _set_later(plan, {plan.schema.name}) for plan in plans}, []
    while left:
        free = [plan for plan in left.values() if not plan.targets & (left.keys() - {plan.name})]
        if not free:
            broken = [_set_later(plan, left.keys()) for plan in left.values()]
            free = [plan for plan in broken if not plan.targets & (left.keys() - {plan.name})][:1]
        if not free:
            raise UsageError(
                "required references of these tables make a circle",
                tables=", ".join(left),
                hint="make one of them optional; it can be required after the import",
            )
        for plan in free:
            del left[plan.name]
        order += free
    return order


def _set_later(plan: _Plan, targets: Collection[str]) -> _Plan:
    """The plan with its optional references to these tables among what is set later."""
    moved = tuple(f for f in plan.fields if plan.target_of(f) in targets and plan.is_optional(f))
    kept = tuple(f for f in plan.fields if f not in moved)
    return replace(plan, fields=kept, later=(*plan.later, *moved))


class _Copier:
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

    def copy(self, plan: _Plan) -> ImportReport:
        """All rows of a table, without the references that are set later."""
        rows = self._rows(plan, plan.fields)
        report = self._importer(plan, self._options.mode).run_and_keep(rows, self.checkpoints)
        self._skipped_to = report.skipped_to
        return report

    def set_references(self, plan: _Plan, copied: ImportReport) -> None:
        """The references that could not be set at once; rows that were skipped have no record."""
        key = tuple(f for f in plan.inferred.fields if f.name in plan.inferred.key)
        rows = self._rows(plan, (*key, *plan.later))
        rows.where_not_null = plan.later
        if copied.skipped:
            table = self._db.table(plan.inferred.name)
            rows.keep = lambda values: table.exists(**{name: values[name] for name in plan.key})
        report = self._importer(plan, "upsert").run_and_keep(rows, self.checkpoints)
        self._skipped_to = report.skipped_to

    def _rows(self, plan: _Plan, fields: tuple[InferredField, ...]) -> TableRows:
        return TableRows(self._connection, self._source, plan, fields, self._options.time_zone)

    def _importer(self, plan: _Plan, mode: ImportMode) -> Importer:
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
        )


class TableRows(RowSource):
    """The rows of a source's table, page by page behind the last key.

    They are as the driver has them: SQLite's values need not have the type of their column.
    """

    seeks = True

    def __init__(
        self,
        connection: sa.Connection,
        source: SourceDatabase,
        plan: _Plan,
        fields: tuple[InferredField, ...],
        time_zone: datetime.tzinfo,
    ) -> None:
        self.name = plan.inferred.source.name
        part = "" if fields == plan.fields else "#references"
        self.identity = f"{source.shown}#{self.name}{part}"
        self.where_not_null: tuple[InferredField, ...] = ()
        """Of these one must not be null."""
        self.keep: Callable[[dict[str, Any]], bool] | None = None
        """Whether a row with these values is wanted."""
        self._connection = connection
        self._plan = plan
        table = plan.inferred.source
        self._key = [
            column
            for name in plan.inferred.key
            for column in next(f for f in plan.inferred.fields if f.name == name).columns
        ]
        wanted = dict.fromkeys([*self._key, *(c for f in fields for c in f.columns)])
        self._columns = list(wanted)
        raw = sa.types.NullType()
        self._selected = [sa.type_coerce(table.c[name], raw).label(name) for name in wanted]
        how = Coercion(time_zone, is_text=source.dialect == "sqlite")
        by_name = {f.name: f for f in plan.schema.fields}
        self._readers: list[tuple[str, tuple[str, ...], Coerce]] = [
            (f.name, f.columns, make_coercer(by_name[f.name], f"{plan.schema.name}.{f.name}", how))
            for f in fields
        ]

    def rows(self, after: str = "") -> Iterator[SourceRow]:
        table, number = self._plan.inferred.source, 0
        order = [table.c[name] for name in self._key]
        raw = [sa.type_coerce(column, sa.types.NullType()) for column in order]
        is_sqlite = self._connection.dialect.name == "sqlite"
        kinds = [sa.types.NullType() if is_sqlite else column.type for column in order]
        query = sa.select(*self._selected).order_by(*order).limit(SOURCE_PAGE_ROWS)
        if self.where_not_null:
            later = [table.c[f.columns[0]] for f in self.where_not_null]
            query = query.where(sa.or_(*(column.is_not(None) for column in later)))
        last = _read_position(after) if after else None
        while True:
            page = query
            if last is not None:
                bound = [sa.literal(v, kind) for v, kind in zip(last, kinds, strict=True)]
                page = query.where(sa.tuple_(*raw) > sa.tuple_(*bound))
            found = self._connection.execute(page).mappings().all()
            for row in found:
                number += 1
                read = self._read(number, dict(row))
                if self.keep is None or (read.error is None and self.keep(dict(read.values))):
                    yield read
            if len(found) < SOURCE_PAGE_ROWS:
                return
            last = [found[-1][name] for name in self._key]

    def _read(self, number: int, given: dict[str, Any]) -> SourceRow:
        values = {}
        try:
            for name, columns, coerce in self._readers:
                parts = [given[column] for column in columns]
                whole: Any = parts[0] if len(parts) == 1 else parts
                if len(parts) > 1 and None in parts:
                    whole = None  # SQL follows no reference of which a part is null
                values[name] = coerce(whole)
        except ZapdbError as error:
            return SourceRow(number, {}, given, error)
        return SourceRow(number, values, given)

    def position_of(self, row: SourceRow) -> str:
        return json.dumps([_write_part(row.given[name]) for name in self._key])

    def place(self, error: ZapdbError, number: int) -> ZapdbError:
        error.context.setdefault("source", self.name)
        return super().place(error, number)


_WRITE: Final[Mapping[type, tuple[str, Callable[[Any], Any]]]] = {
    decimal.Decimal: ("decimal", str),
    uuid.UUID: ("uuid", str),
    datetime.datetime: ("datetime", datetime.datetime.isoformat),
    datetime.date: ("date", datetime.date.isoformat),
    bytes: ("bytes", lambda value: base64.b64encode(value).decode()),
}
_READ: Final[Mapping[str, Callable[[Any], Any]]] = {
    "decimal": decimal.Decimal,
    "uuid": uuid.UUID,
    "datetime": datetime.datetime.fromisoformat,
    "date": datetime.date.fromisoformat,
    "bytes": base64.b64decode,
}


def _write_part(value: Any) -> Any:
    """A part of a key as JSON; a type that is not in the list is its text."""
    if isinstance(value, str | int | float):
        return value
    name, write = _WRITE.get(type(value), ("text", str))
    return {name: write(value)}


def _read_position(text: str) -> list[Any]:
    return [_read_part(part) for part in json.loads(text)]


def _read_part(part: Any) -> Any:
    if not isinstance(part, dict):
        return part
    ((name, value),) = part.items()
    return _READ.get(name, str)(value)
