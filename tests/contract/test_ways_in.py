"""An import changes the form of a value, never its meaning: each value type × each way in × the
awkward values, exact or refused. A type, a format or a kind of source without its row here is named
by `test_every_type_format_and_source_has_its_row`.
"""

from __future__ import annotations

import csv
import datetime
import enum
import json
import sqlite3
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

import numpy
import pandas
import psycopg
import pyarrow
import pytest
from pyarrow import ipc, parquet

from tests.support import ROOT, PostgresServer, Workspace
from zapdb import asdict
from zapdb.cli.program import run_program
from zapdb.database import Database
from zapdb.errors import InvalidValue
from zapdb.imports import SkippedRow
from zapdb.imports.file_formats import FILE_FORMATS
from zapdb.migrations.boundary_values import field_values
from zapdb.transfer.inference.database_import import import_database
from zapdb.transfer.inference.source_database import _DRIVERS
from zapdb.values import VALUE_TYPES, to_json

UTC = datetime.UTC
TOKEN = uuid.UUID("0190163d-8694-739b-aea5-966c26f8ad90")
MOMENT = datetime.datetime(2024, 5, 31, 10, tzinfo=UTC)
MIDNIGHT = datetime.datetime(2024, 5, 31)
DAY = MIDNIGHT.date()
NANOSECONDS = 1_717_149_600_000_000_001
"""A moment with a nanosecond more than a microsecond has."""
LONG = 2**53 + 1
VIENNA = "2024-05-31T12:00:00 Europe/Vienna"

DEFINITIONS = (
    "create_type: {type: kind, enum: [small, large]}",
    "create_type: {type: parts, struct: [{name: a, type: decimal, scale: 2}]}",
    "create_table: {table: targets, key: [id], fields: [{name: id, type: integer}]}",
)
TYPES: Final[dict[str, str]] = {
    "integer": "type: integer",
    "decimal": "type: decimal, scale: 2",
    "boolean": "type: boolean",
    "date": "type: date",
    "timestamp": "type: timestamp",
    "zoned_timestamp": "type: zoned_timestamp",
    "binary": "type: binary",
    "string": "type: string",
    "json": "type: json",
    "uuid": "type: uuid",
    "float": "type: float",
    "reference": "type: reference, to: targets",
    "enum": "type: kind",
    "struct": "type: parts",
    "list": "type: list, of: {type: decimal, scale: 2}",
}
"""A field of each value type, which is optional and called `v_` and the type's name."""
CELLS = "create_table: {{table: {}, key: [id], fields: [{{name: id, type: integer}}, {}]}}".format(
    "cells",
    ", ".join(f"{{name: v_{name}, {kind}, optional: true}}" for name, kind in TYPES.items()),
)


class Outcome(enum.Enum):
    REFUSED = "refused"
    NULL = "a null"


REFUSED, NULL = Outcome.REFUSED, Outcome.NULL


@dataclass(frozen=True)
class Given:
    """A value in one form, and what it is in fields of some types; in all others it is refused."""

    form: str
    value: Any
    becomes: Mapping[str, Any] = field(default_factory=dict)

    def expect(self, kind: str, way: Way) -> Any:
        if way.nan_is_null and self.value != self.value:
            return NULL
        if kind == "json" and self.form == "text" and not way.json_is_text:
            return self.value
        if kind == "timestamp" and way.time_zone is not None and "as_utc" in self.becomes:
            return self.becomes["as_utc"]
        if kind == "zoned_timestamp" and way.name in PUTS and self.form == "moment":
            return f"{self.value.replace(tzinfo=None).isoformat()} UTC"
        return self.becomes.get(kind, REFUSED)


def given(form: str, value: Any, **becomes: Any) -> Given:
    return Given(form, value, becomes)


def text(value: str, **becomes: Any) -> Given:
    return Given("text", value, {"string": value, **becomes})


def whole(number: int, **more: Any) -> dict[str, Any]:
    """What a whole number is in fields of exact numbers."""
    return {"integer": number, "decimal": Decimal(number), "reference": number, **more}


GIVEN: Final = (
    text("2.0", **whole(2), float=2.0, json=2.0),
    text("007", **whole(7), float=7.0),
    text("1", **whole(1), float=1.0, json=1, boolean=True),
    text(str(LONG), **whole(LONG), json=LONG, binary=bytes.fromhex(str(LONG))),
    text("9007199254740993.0", **whole(LONG)),
    text("90071992547409.93", decimal=Decimal("90071992547409.93")),
    text("0.10000000000000001", float=0.1, json=0.1),
    text("1e23", decimal=Decimal(10**23), float=1e23, json=1e23, binary=b"\x1e\x23"),
    text("1e400"),
    text("1e-400"),
    text("nan", float=float("nan")),
    text("-inf", float=float("-inf")),
    text("true", boolean=True, json=True),
    text("2024-05-31", date=DAY, as_utc=MIDNIGHT.replace(tzinfo=UTC)),
    text("2024-05-31 00:00:00", date=DAY, as_utc=MIDNIGHT.replace(tzinfo=UTC)),
    text("2024-05-31T00:00:00+02:00", timestamp=MOMENT - datetime.timedelta(hours=12)),
    text("2024-05-31T10:00:00.000000001Z"),
    text("2024-05-31T10:00:00.000000000Z", timestamp=MOMENT),
    text(VIENNA, zoned_timestamp=VIENNA),
    text("00ff", binary=b"\0\xff"),
    text(str(TOKEN), uuid=TOKEN),
    text("small", enum="small"),
    text('{"a": 1.10}', struct={"a": Decimal("1.10")}, json={"a": 1.1}),
    text('{"a": 90071992547409.93}', struct={"a": Decimal("90071992547409.93")}),
    text('{"a": 1, "a": 2}'),
    text('{"a": 1e400}'),
    text("[90071992547409.93, 1]", list=[Decimal("90071992547409.93"), Decimal("1.00")]),
    text("[NaN]"),
    # Numbers as JSON writes them.
    given("number", "1", **whole(1), float=1.0, json=1, boolean=True),
    given("number", str(LONG), **whole(LONG), json=LONG),
    given("number", "9007199254740993.0", **whole(LONG)),
    given("number", "1e23", **whole(10**23), float=1e23, json=1e23),
    given("number", "90071992547409.93", decimal=Decimal("90071992547409.93")),
    given("number", "0.1", decimal=Decimal("0.10"), float=0.1, json=0.1),
    given("number", "1e400"),
    given("number", "1e-400"),
    given("number", "1e99999999"),
    given("number", "1e9999999999999999999"),
    given(
        "number", "[0.1, 90071992547409.93]", list=[Decimal("0.10"), Decimal("90071992547409.93")]
    ),
    given("number", '{"a": 90071992547409.93}', struct={"a": Decimal("90071992547409.93")}),
    given("number", '{"a": 0.1}', struct={"a": Decimal("0.10")}, json={"a": 0.1}),
    given("number", '[[1e22, {"b": 1e400}]]'),
    # Values that have a type where they come from.
    given("float", 2.0, **whole(2), float=2.0, json=2.0),
    given("float", float(2**53), float=float(2**53), json=float(2**53)),
    given("float", 90071992547409.94, float=90071992547409.94, json=90071992547409.94),
    given("float", 0.1, decimal=Decimal("0.10"), float=0.1, json=0.1),
    given("float", 1e23, float=1e23, json=1e23),
    given("float", float("nan"), float=float("nan")),
    given("float", float("inf"), float=float("inf")),
    given("integer", 1, **whole(1), float=1.0, json=1, boolean=True),
    given("integer", 2, **whole(2), float=2.0, json=2),
    given("integer", LONG, **whole(LONG), json=LONG),
    given("integer", 2**60, **whole(2**60), float=2.0**60, json=2**60),
    given("boolean", True, boolean=True, json=True),
    given("decimal", Decimal("1.50"), decimal=Decimal("1.50"), float=1.5, json=1.5),
    given("decimal", Decimal("2.00"), **whole(2), float=2.0, json=2.0),
    given("decimal", Decimal("9007199254740993.00"), **whole(LONG)),
    given("decimal", Decimal("90071992547409.93"), decimal=Decimal("90071992547409.93")),
    given("nan", Decimal("NaN"), float=float("nan")),
    given("date", DAY, date=DAY, as_utc=MIDNIGHT.replace(tzinfo=UTC), string="2024-05-31"),
    given(
        "naive",
        MIDNIGHT,
        date=DAY,
        as_utc=MIDNIGHT.replace(tzinfo=UTC),
        string="2024-05-31 00:00:00",
    ),
    given("naive", MIDNIGHT.replace(hour=10), as_utc=MOMENT, string="2024-05-31 10:00:00"),
    given("moment", MOMENT, timestamp=MOMENT, string="2024-05-31 10:00:00+00:00"),
    given(
        "moment",
        MOMENT.replace(hour=0),
        timestamp=MOMENT.replace(hour=0),
        string="2024-05-31 00:00:00+00:00",
    ),
    given("nanoseconds", NANOSECONDS, string="2024-05-31 10:00:00.000000001Z"),
    given("late", 2**61),  # a time in the year 75,000
    given("late_date", 2**30),
    given("date_of_milliseconds", 1_717_149_600_000),  # and ten hours
    given("time_of_nanoseconds", 1, string="00:00:00.000000001"),
    given("bytes", b"\xff", binary=b"\xff"),
    given("bytes", TOKEN.bytes, binary=TOKEN.bytes, uuid=TOKEN),
    given("decimals", [Decimal("90071992547409.93")], list=[Decimal("90071992547409.93")]),
    given("floats", [0.1, 90071992547409.94], json=[0.1, 90071992547409.94]),
    given("floats", [0.1], json=[0.1], list=[Decimal("0.10")]),
    given("parts", {"a": Decimal("90071992547409.93")}, struct={"a": Decimal("90071992547409.93")}),
    given("missing", "NaT"),
    given("lists_of_nanoseconds", [NANOSECONDS]),
)

Fill = Callable[["Place", "Way", str, Sequence[tuple[int, str, Given]]], None]


@dataclass(frozen=True)
class Way:
    """A way in: the forms that it can carry, and what puts rows of one form into the table."""

    name: str
    forms: frozenset[str]
    fill: Fill
    covers: frozenset[str]
    """The names of formats and sources that it stands for."""
    json_is_text: bool = True
    nan_is_null: bool = False
    time_zone: datetime.tzinfo | None = None
    of_numbers: frozenset[str] = frozenset(TYPES)
    """Types for which numbers are numbers, and not a text of JSON."""
    leaves_out: frozenset[str] = frozenset()
    """Types that it has other rules for, which are tested where those are."""


@dataclass(frozen=True)
class Place:
    db: Database
    address: str
    directory: Path
    postgres: PostgresServer

    def import_file(self, name: str, write: Callable[[Path], object]) -> None:
        path = self.directory / name
        write(path)
        self.db.table("cells").import_file(path, skipped=list[SkippedRow](), from_start=True)


# --- files -------------------------------------------------------------------


def fill_csv(place: Place, way: Way, form: str, rows: Sequence[tuple[int, str, Given]]) -> None:
    def write(path: Path) -> None:
        with path.open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["id", *(f"v_{name}" for name in TYPES)])
            for number, kind, one in rows:
                cells = [one.value if name == kind else "\\N" for name in TYPES]
                writer.writerow([number, *cells])

    place.import_file(f"{form}.csv", write)


def objects(form: str, rows: Sequence[tuple[int, str, Given]]) -> Iterator[str]:
    for number, kind, one in rows:
        raw = one.value if form == "number" else json.dumps(one.value)
        yield f'{{"id": {number}, "v_{kind}": {raw}}}'


def fill_ndjson(place: Place, way: Way, form: str, rows: Sequence[tuple[int, str, Given]]) -> None:
    lines = "\n".join(objects(form, rows))
    place.import_file(f"{form}.ndjson", lambda path: path.write_text(lines))


def fill_json(place: Place, way: Way, form: str, rows: Sequence[tuple[int, str, Given]]) -> None:
    array = f"[{','.join(objects(form, rows))}]"
    place.import_file(f"{form}.json", lambda path: path.write_text(array))


NS = pyarrow.timestamp("ns", "UTC")
ARROW: Final[dict[str, Any]] = {
    "text": pyarrow.string(),
    "float": pyarrow.float64(),
    "integer": pyarrow.int64(),
    "boolean": pyarrow.bool_(),
    "decimal": pyarrow.decimal128(30, 2),
    "date": pyarrow.date32(),
    "naive": pyarrow.timestamp("us"),
    "moment": pyarrow.timestamp("us", "UTC"),
    "nanoseconds": NS,
    "late": pyarrow.timestamp("us", "UTC"),
    "late_date": pyarrow.date32(),
    "date_of_milliseconds": pyarrow.date64(),
    "time_of_nanoseconds": pyarrow.time64("ns"),
    "bytes": pyarrow.binary(),
    "decimals": pyarrow.list_(pyarrow.decimal128(30, 2)),
    "floats": pyarrow.list_(pyarrow.float64()),
    "parts": pyarrow.struct({"a": pyarrow.decimal128(30, 2)}),
    "lists_of_nanoseconds": pyarrow.list_(NS),
}


def to_arrow(form: str, rows: Sequence[tuple[int, str, Given]]) -> Any:
    columns: dict[str, Any] = {"id": pyarrow.array([n for n, _, _ in rows], pyarrow.int64())}
    for name in TYPES:
        values = [one.value if kind == name else None for _, kind, one in rows]
        if form in ("date_of_milliseconds", "late", "late_date"):
            plain = pyarrow.int32() if form == "late_date" else pyarrow.int64()
            columns[f"v_{name}"] = pyarrow.array(values, plain).view(ARROW[form])
        else:
            columns[f"v_{name}"] = pyarrow.array(values, ARROW[form])
    return pyarrow.table(columns)


def fill_parquet(place: Place, way: Way, form: str, rows: Sequence[tuple[int, str, Given]]) -> None:
    table = to_arrow(form, rows)
    place.import_file(f"{form}.parquet", lambda path: parquet.write_table(table, path))


def fill_arrow(place: Place, way: Way, form: str, rows: Sequence[tuple[int, str, Given]]) -> None:
    table = to_arrow(form, rows)

    def write(path: Path) -> None:
        with ipc.new_file(path, table.schema) as file:
            file.write_table(table)

    place.import_file(f"{form}.arrow", write)


# --- frames ------------------------------------------------------------------


def import_frame(place: Place, frame: Any) -> None:
    place.db.table("cells").import_from(frame, skipped=list[SkippedRow]())


def fill_pyarrow(place: Place, way: Way, form: str, rows: Sequence[tuple[int, str, Given]]) -> None:
    import_frame(place, to_arrow(form, rows))


def fill_pandas(place: Place, way: Way, form: str, rows: Sequence[tuple[int, str, Given]]) -> None:
    columns: dict[str, Any] = {"id": [n for n, _, _ in rows]}
    for name in TYPES:
        values = [one.value if kind == name else None for _, kind, one in rows]
        dtype = "float64" if form == "float" else "Int64" if form == "integer" else object
        columns[f"v_{name}"] = pandas.Series(values, dtype=dtype)
        if form == "nanoseconds":
            columns[f"v_{name}"] = pandas.to_datetime(columns[f"v_{name}"], utc=True)
    import_frame(place, pandas.DataFrame(columns))


def fill_polars(place: Place, way: Way, form: str, rows: Sequence[tuple[int, str, Given]]) -> None:
    """As polars gives its frames: a stream of large lists and views."""
    table = to_arrow(form, rows)
    schema = pyarrow.schema([one.with_type(as_polars(one.type)) for one in table.schema])
    import_frame(place, table.cast(schema).to_reader())


def as_polars(kind: Any) -> Any:
    if pyarrow.types.is_list(kind):
        return pyarrow.large_list(as_polars(kind.value_type))
    views = {pyarrow.string(): pyarrow.string_view(), pyarrow.binary(): pyarrow.binary_view()}
    return views.get(kind, kind)


# --- databases ---------------------------------------------------------------


def fill_sqlite(place: Place, way: Way, form: str, rows: Sequence[tuple[int, str, Given]]) -> None:
    path = place.directory / f"{form}.db"
    connection = sqlite3.connect(path)
    columns = ", ".join(f"v_{name}" for name in TYPES)
    connection.execute(f"CREATE TABLE cells (id INTEGER PRIMARY KEY, {columns})")
    for number, kind, one in rows:
        connection.execute(f"INSERT INTO cells (id, v_{kind}) VALUES (?, ?)", (number, one.value))
    connection.commit()
    connection.close()
    import_database(place.db, str(path), skipped=[], from_start=True)


POSTGRESQL: Final = {
    "text": "text",
    "float": "double precision",
    "integer": "bigint",
    "boolean": "boolean",
    "decimal": "numeric(30, 2)",
    "nan": "numeric(30, 2)",
    "date": "date",
    "naive": "timestamp",
    "moment": "timestamptz",
    "bytes": "bytea",
    "decimals": "numeric(30, 2)[]",
    "floats": "double precision[]",
    "number": "json",
}


def fill_postgresql(
    place: Place, way: Way, form: str, rows: Sequence[tuple[int, str, Given]]
) -> None:
    columns = ", ".join(f"v_{name} {POSTGRESQL[form]}" for name in TYPES)
    with place.postgres.fresh_database() as address:
        with psycopg.connect(address.replace("+psycopg", "")) as connection:
            connection.execute(f"CREATE TABLE cells (id bigint PRIMARY KEY, {columns})")
            for number, kind, one in rows:
                connection.execute(
                    f"INSERT INTO cells (id, v_{kind}) VALUES (%s, %s)", (number, one.value)
                )
        import_database(place.db, address, skipped=[], from_start=True)


# --- Spark and Python ---------------------------------------------------------


def fill_spark(place: Place, way: Way, form: str, rows: Sequence[tuple[int, str, Given]]) -> None:
    """By what a task does with each batch of its rows."""
    from zapdb.spark.writing import _read_values

    table = place.db.table("cells")
    bound = table._current()
    for number, kind, one in rows:
        batch = to_arrow(form, [(number, kind, one)]).select(["id", f"v_{kind}"])
        try:
            (values,) = _read_values(
                bound.adapter.schema, batch.to_batches()[0], bound.catalog.zones
            )
            table.insert(**values)
        except InvalidValue:
            pass


class Price(Decimal):
    """A subclass of decimals."""


class Size(enum.IntEnum):
    TWO = 2


def python_values(form: str, value: Any) -> Iterator[Any]:
    """A value, and the same as others have it."""
    match form:
        case "integer":
            yield from (value, numpy.int64(value))
            if value == Size.TWO:
                yield Size.TWO
        case "float":
            yield from (value, numpy.float64(value))
        case "boolean":
            yield from (value, numpy.bool_(value))
        case "decimal" | "nan":
            yield from (value, Price(value))
        case "naive" | "moment":
            yield from (
                value,
                pandas.Timestamp(value),
                numpy.datetime64(value.replace(tzinfo=None)),
            )
        case "nanoseconds":
            yield pandas.Timestamp(value, tz="UTC")
        case "text":
            yield from (value, numpy.str_(value))
        case "bytes":
            yield from (value, bytearray(value), numpy.bytes_(value))
        case "missing":
            yield from (pandas.NaT, pandas.NA, numpy.datetime64("NaT"))
        case _:
            yield value


def fill_python(put: Callable[[Any, dict[str, Any]], object]) -> Fill:
    def fill(place: Place, way: Way, form: str, rows: Sequence[tuple[int, str, Given]]) -> None:
        table = place.db.table("cells")
        for number, kind, one in rows:
            found = list[Any]()
            for value in python_values(form, one.value):
                try:
                    put(table, {"id": number, f"v_{kind}": value})
                except InvalidValue:
                    continue
                record = table.get(number)
                stored = getattr(record, f"v_{kind}")
                found.append(stored)
                table.delete(number)
            if found:
                assert all(is_same(kind, one, found[0]) for one in found), (one, kind)
                table.insert(id=number, **{f"v_{kind}": found[0]})

    return fill


def put_update(table: Any, values: dict[str, Any]) -> None:
    key = values.pop("id")
    table.insert(id=key)
    try:
        table.update(key, **values)
    except InvalidValue:
        table.delete(key)
        raise


def put_query(table: Any, values: dict[str, Any]) -> None:
    """A condition takes what an insertion takes."""
    key = values.pop("id")
    ((name, value),) = values.items()
    if name.removeprefix("v_") not in ("json", "struct", "list", "zoned_timestamp"):
        list(table.where(table[name] == value))
    table.insert(id=key, **values)


PYTHON_FORMS = frozenset(
    [
        "text",
        "float",
        "integer",
        "boolean",
        "decimal",
        "nan",
        "date",
        "naive",
        "moment",
        "nanoseconds",
        "bytes",
        "decimals",
        "floats",
        "parts",
        "missing",
    ]
)
PUTS: Final[dict[str, Callable[[Any, dict[str, Any]], object]]] = {
    "insert": lambda table, values: table.insert(**values),
    "insert_many": lambda table, values: table.insert_many([values]),
    "upsert": lambda table, values: table.upsert(**values),
    "update": put_update,
    "query": put_query,
}
IN_FRAMES = frozenset(ARROW)
IN_FILES = IN_FRAMES - {"date_of_milliseconds"}
"""Parquet has none, and a file of Arrow is refused for one that is no whole day."""
NOT_IN_DATABASES = frozenset(["string"])
"""A type of a database without an equal is a text by rules of its own."""
WAYS: Final = {
    way.name: way
    for way in (
        Way("csv", frozenset(["text"]), fill_csv, frozenset(["csv"])),
        Way("ndjson", frozenset(["text", "number"]), fill_ndjson, frozenset(["ndjson"]), False),
        Way("json", frozenset(["text", "number"]), fill_json, frozenset(["json"]), False),
        Way("parquet", IN_FILES, fill_parquet, frozenset(["parquet"])),
        Way("arrow", IN_FILES, fill_arrow, frozenset(["arrow"])),
        Way("pyarrow", IN_FRAMES, fill_pyarrow, frozenset()),
        Way(
            "pandas",
            frozenset(["text", "float", "integer", "nanoseconds", "bytes", "decimal"]),
            fill_pandas,
            frozenset(),
            nan_is_null=True,
        ),
        Way(
            "polars",
            IN_FRAMES - {"late", "late_date"},
            fill_polars,
            frozenset(),
        ),
        Way(
            "sqlite",
            frozenset(["text", "float", "integer", "bytes"]),
            fill_sqlite,
            frozenset(["sqlite"]),
            nan_is_null=True,  # SQLite stores it so
            time_zone=UTC,
            leaves_out=NOT_IN_DATABASES,
        ),
        Way(
            "postgresql",
            frozenset(POSTGRESQL),
            fill_postgresql,
            frozenset(["postgres", "postgresql", "mysql", "mariadb"]),
            time_zone=UTC,
            of_numbers=frozenset(["json", "struct", "list"]),
            leaves_out=NOT_IN_DATABASES,
        ),
        Way("spark", IN_FRAMES, fill_spark, frozenset(["spark"])),
        *(
            Way(name, PYTHON_FORMS, fill_python(put), frozenset(), False)
            for name, put in PUTS.items()
        ),
    )
}
STRICT = frozenset(["spark", *PUTS])
"""What they take without a form of their own, they need not take: they may refuse it."""
OWN: Final[dict[str, frozenset[str]]] = {
    "integer": frozenset(["integer"]),
    "decimal": frozenset(["decimal", "integer"]),
    "boolean": frozenset(["boolean"]),
    "date": frozenset(["date"]),
    "timestamp": frozenset(["moment"]),
    "zoned_timestamp": frozenset(),
    "binary": frozenset(["bytes"]),
    "string": frozenset(["text"]),
    "json": frozenset(),
    "uuid": frozenset(),
    "float": frozenset(["float"]),
    "reference": frozenset(["integer"]),
    "enum": frozenset(),
    "struct": frozenset(["parts"]),
    "list": frozenset(["decimals"]),
}
"""The forms that are of a type itself, which every way takes."""


@pytest.fixture
def place(workspace: Workspace, tmp_path: Path, postgres: PostgresServer) -> Iterator[Place]:
    workspace.write(1, *DEFINITIONS, CELLS)
    with workspace.open() as db:
        yield Place(db, workspace.address, tmp_path, postgres)


def is_same(kind: str, left: Any, right: Any) -> bool:
    return comparable(kind, left) == comparable(kind, right)


def comparable(kind: str, value: Any) -> Any:
    match kind:
        case _ if value is NULL or value is REFUSED:
            return value
        case "zoned_timestamp":
            is_text = isinstance(value, str)
            return value if is_text else f"{value.replace(tzinfo=None).isoformat()} {value.tzinfo}"
        case "decimal":
            return format(value, ".2f")
        case "struct":
            return to_json(value if isinstance(value, dict) else asdict(value))
        case "json":
            return json.dumps(value, sort_keys=True)
    return repr(value)  # which tells 1 from 1.0 and True


@pytest.mark.parametrize("name", WAYS)
def test_each_value_by_each_way_is_exact_or_refused(place: Place, name: str) -> None:
    way, problems = WAYS[name], list[str]()
    assert way.forms
    for form in sorted(way.forms):
        rows = [
            (number, kind, one)
            for number, (kind, one) in enumerate(
                (kind, one) for one in GIVEN for kind in TYPES if one.form == form
            )
            if kind not in way.leaves_out and (form != "number" or kind in way.of_numbers)
        ]
        way.fill(place, way, form, rows)
        found = {record.id: record for record in place.db.table("cells")}
        for number, kind, one in rows:
            stored = REFUSED
            if number in found:
                value = getattr(found[number], f"v_{kind}")
                stored = NULL if value is None else value
            expected = one.expect(kind, way)
            if comparable(kind, stored) == comparable(kind, expected):
                continue
            if stored is REFUSED and name in STRICT and form not in OWN[kind]:
                continue
            problems.append(f"{form} {one.value!r} in {kind}: {stored!r}, expected {expected!r}")
        place.db.table("cells").where().delete()
    assert not problems, "\n".join([name, *problems])


def test_every_type_format_and_source_has_its_row() -> None:
    assert set(TYPES) == set(VALUE_TYPES) == set(OWN), "a value type has no row"
    covered = frozenset[str]().union(*(way.covers for way in WAYS.values()))
    assert covered == {*FILE_FORMATS, *_DRIVERS, "sqlite", "spark"}, "a way in has no row"
    tried = {kind for one in GIVEN for kind in one.becomes}
    assert set(TYPES) <= tried, "a type is never given a value that it takes"
    carried = frozenset[str]().union(*(way.forms for way in WAYS.values()))
    assert {one.form for one in GIVEN} <= carried, "a value goes by no way"


def test_the_guide_has_a_row_for_every_type() -> None:
    guide = (ROOT / "docs/guides/import.md").read_text()
    _, _, rules = guide.partition("| field | takes |")
    cells = [line.split("|")[1] for line in rules.splitlines() if line.startswith("| ")]
    assert {*VALUE_TYPES} <= {name.strip(" `") for cell in cells for name in cell.split(",")}


@pytest.mark.parametrize("form", ["csv", "ndjson", "parquet", "arrow", "pandas"])
def test_what_is_exported_comes_back_as_it_was(place: Place, form: str) -> None:
    """The boundary values of every type, and what no other test stores: exact, by every format."""
    table = place.db.table("cells")
    fields = [f for f in table._current().adapter.schema.fields if f.name != "id"]
    rows = [
        {"id": number, name: value}
        for number, (name, value) in enumerate(
            (f.name, value)
            for f in fields
            # Of pandas' objects pyarrow makes no column with values of several types, or structs,
            # and one zone of several.
            if form != "pandas" or f.name not in ("v_json", "v_struct", "v_zoned_timestamp")
            for value in field_values(f)
            if fits(value, form)
        )
    ]
    table.insert_many(rows)
    before = {record.id: asdict(record) for record in table}
    path = place.directory / f"cells.{form}"
    if form == "pandas":
        frame = table.to_pandas()
    elif form in ("parquet", "arrow"):
        frame = table.to_arrow().read_all()
    else:
        run_program(["data", "export", "cells", "-f", form, "-o", str(path), "-d", place.address])
    table.where().delete()
    if form == "parquet":
        parquet.write_table(frame, path)
    is_file = form in ("csv", "ndjson", "parquet")
    report = table.import_file(path) if is_file else table.import_from(frame)
    assert report.written == len(rows)
    after = {record.id: asdict(record) for record in table}
    for number, values in before.items():
        assert {n: repr(v) for n, v in after[number].items()} == {
            n: repr(v) for n, v in values.items()
        }


def fits(value: Any, form: str) -> bool:
    """Whether Arrow has room for a number; to pandas NaN is a null."""
    parts = value if isinstance(value, list) else [value]
    numbers = [one for one in parts if isinstance(one, int | Decimal)]
    is_in_arrow = all(abs(one) < 2**63 for one in numbers) and (form != "pandas" or value == value)
    return form in ("csv", "ndjson") or is_in_arrow
