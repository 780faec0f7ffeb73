"""Rows of a source's table as a source of records."""

from __future__ import annotations

import base64
import datetime
import decimal
import json
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.dialects import mysql

from zapdb.errors import InvalidValue, ZapdbError
from zapdb.imports import Coerce, Coercion, RowSource, SourceRow, make_coercer
from zapdb.limits import EXCERPT_LENGTH_MAX
from zapdb.printing import one_line
from zapdb.schema import Field
from zapdb.transfer.inference.column_reading import UndecodedText, decode_text, read_column
from zapdb.transfer.inference.column_types import DeclaredType
from zapdb.transfer.inference.copy_plans import CopyPlan
from zapdb.transfer.inference.inferred import InferredField
from zapdb.transfer.inference.source_database import SourceDatabase
from zapdb.values import Json, String

SOURCE_PAGE_ROWS: Final = 5_000
NO_DATE: Final = "0000-00-00"
"""What MySQL stores where a date is wrong or missing."""


class TableRows(RowSource):
    """The rows of a source's table, page by page behind the last key.

    They are as `column_reading` has them.
    """

    seeks = True

    def __init__(
        self,
        connection: sa.Connection,
        source: SourceDatabase,
        plan: CopyPlan,
        fields: tuple[InferredField, ...],
        time_zone: datetime.tzinfo,
    ) -> None:
        self.name = plan.inferred.source.name
        part = "" if fields == plan.fields else "#references"
        self.identity = f"{source.shown}#{self.name}{part}"
        self.condition: sa.ColumnElement[bool] | None = None
        """Which rows are wanted; None: all."""
        self.keep: Callable[[dict[str, Any]], bool] | None = None
        """Whether a row with these values is wanted."""
        self.expected: int | None = None
        """How many rows there are, those of the tables behind this one included."""
        self._connection = connection
        self._plan = plan
        table = plan.inferred.source
        self._key = [
            column
            for name in plan.inferred.key
            for column in next(f for f in plan.inferred.fields if f.name == name).columns
        ]
        self._time_zone = time_zone
        self.field_names = tuple(f.name for f in fields)
        by_name = {f.name: f for f in plan.schema.fields}
        kinds = {c: by_name[f.name].type for f in fields for c in f.columns}
        wanted = dict.fromkeys([*self._key, *kinds])
        self._read_as = {
            name: read_column(connection, table.c[name], kinds.get(name)) for name in wanted
        }
        self._selected = [read.selected.label(name) for name, read in self._read_as.items()]
        how = Coercion(time_zone, is_text=True)
        self._readers: list[tuple[str, tuple[str, ...], Coerce]] = [
            (f.name, f.columns, self._make_reader(by_name[f.name], table.c[f.columns[0]], how))
            for f in fields
        ]
        self._undecoded = [name for name, read in self._read_as.items() if read.is_undecoded]

    def _make_reader(self, field: Field, column: sa.Column[Any], how: Coercion) -> Coerce:
        if isinstance(column.type, mysql.TIMESTAMP):  # whose session is in UTC
            how = replace(how, time_zone=datetime.UTC)
        coerce = make_coercer(field, f"{self._plan.schema.name}.{field.name}", how)
        if isinstance(field.type, Json) and how.is_text:
            # SQLite makes numbers of the JSON texts of numbers.
            return lambda value: value if type(value) in (int, float) else coerce(value)
        is_declared = isinstance(column.type, DeclaredType)  # of which any value may be any text
        is_sqlite = self._connection.dialect.name == "sqlite"
        has_equivalent = is_sqlite or isinstance(column.type, sa.String | sa.Enum)
        if not isinstance(field.type, String) or (has_equivalent and not is_declared):
            return coerce
        return lambda value: coerce(foreign_text(value))

    def rows(self, after: str = "") -> Iterator[SourceRow]:
        number = 0
        key = [self._read_as[name] for name in self._key]
        order = [read.order for read in key]
        query = self._plan.inferred.select(*self._selected).order_by(*order).limit(SOURCE_PAGE_ROWS)
        if self.condition is not None:
            query = query.where(self.condition)
        last = _read_position(after) if after else None
        while True:
            page = query
            if last is not None:
                bound = [column.bind(value) for column, value in zip(key, last, strict=True)]
                page = query.where(sa.tuple_(*order) > sa.tuple_(*bound))
            found = self._connection.execute(page).mappings().all()
            for row in found:
                number += 1
                read = self._read(number, dict(row))
                if self.keep is None or (read.error is None and self.keep(dict(read.values))):
                    yield read
            if len(found) < SOURCE_PAGE_ROWS:
                return
            last = [read.given[name] for name in self._key]

    def find(self, keys: Sequence[tuple[Any, ...]]) -> Iterator[SourceRow]:
        """The rows with these keys, which are values of the key's fields; those that are not there
        are left out."""
        columns = [self._plan.inferred.source.c[name] for name in self._key]
        read = [self._read_as[column.name] for column in columns]
        compared = [one.order if one.is_text else c for c, one in zip(columns, read, strict=True)]
        wanted = [
            tuple(map(self._to_source, columns, _flatten(self._plan.inferred.key, key)))
            for key in keys
        ]
        query = self._plan.inferred.select(*self._selected)
        query = query.where(sa.tuple_(*compared).in_(wanted))
        for row in self._connection.execute(query).mappings():
            yield self._read(0, dict(row))

    def _to_source(self, column: sa.Column[Any], value: Any) -> Any:
        if isinstance(value, datetime.datetime) and not getattr(column.type, "timezone", False):
            return value.astimezone(self._time_zone).replace(tzinfo=None)
        return value

    def _read(self, number: int, given: dict[str, Any]) -> SourceRow:
        values = {}
        for name in self._undecoded:
            if given[name] is not None:
                given[name] = decode_text(given[name])
        try:
            for name, columns, coerce in self._readers:
                parts = [given[column] for column in columns]
                if any(isinstance(part, UndecodedText) for part in parts):
                    raise self._refuse_text(name, parts)
                whole: Any = parts[0] if len(parts) == 1 else parts
                if len(parts) > 1 and None in parts:
                    whole = None  # SQL follows no reference of which a part is null
                values[name] = coerce(whole)
        except ZapdbError as error:
            if str(error.context.get("value", "")).startswith(NO_DATE):
                error.hint = "a date of zeros is none: make it NULL in the source"
            shown = ", ".join(f"{column} {given[column]!s}" for column in self._key)
            error.context["key"] = one_line(shown, EXCERPT_LENGTH_MAX)
            return SourceRow(number, {}, given, error)
        return SourceRow(number, values, given)

    def _refuse_text(self, field: str, parts: Sequence[Any]) -> InvalidValue:
        raw = next(part for part in parts if isinstance(part, UndecodedText))
        return InvalidValue(
            "a text of the source is not UTF-8",
            hint="correct it in the source, or skip the row",
            field=f"{self._plan.schema.name}.{field}",
            expected="text in UTF-8",
            value=one_line(ascii(bytes(raw)), EXCERPT_LENGTH_MAX),
        )

    def count(self) -> int:
        """How many rows there are, if all are kept."""
        query = self._plan.inferred.select(sa.func.count())
        if self.condition is not None:
            query = query.where(self.condition)
        return int(self._connection.execute(query).scalar_one())

    def estimate_rows(self, read: int) -> int | None:
        return self.expected

    def position_of(self, row: SourceRow) -> str:
        return json.dumps([_write_part(row.given[name]) for name in self._key])

    def place(self, error: ZapdbError, number: int) -> ZapdbError:
        error.context.setdefault("source", self.name)
        return super().place(error, number)


def foreign_text(value: Any) -> str | None:
    """What stands for a value of a type that has no equivalent; bytes are their digits."""
    match value:
        case None | str():
            return value
        case bytes():
            return value.hex()
        case datetime.timedelta():  # a time of MySQL, which may be negative or longer than a day
            sign, seconds = "-" if value.days < 0 else "", abs(value)
            whole = seconds // datetime.timedelta(seconds=1)
            shown = f"{sign}{whole // 3600:02}:{whole // 60 % 60:02}:{whole % 60:02}"
            return f"{shown}.{seconds.microseconds:06}" if seconds.microseconds else shown
    return str(value)


def _flatten(names: Sequence[str], key: tuple[Any, ...]) -> Iterator[Any]:
    """The values of a key's columns: a reference to a key of several fields has several."""
    for _, value in zip(names, key, strict=True):
        yield from value if isinstance(value, tuple) else (value,)


_WRITE: Final[Mapping[type, tuple[str, Callable[[Any], Any]]]] = {
    UndecodedText: ("undecoded", lambda value: base64.b64encode(value).decode()),
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
    "undecoded": lambda text: UndecodedText(base64.b64decode(text)),
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
