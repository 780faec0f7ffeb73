"""Data in and out: a Parquet file into a table, beside COPY and `executemany`; a table into a
Parquet file, beside pandas. Processor time of client and server; wall time for information."""

from __future__ import annotations

import io
import itertools
import sqlite3
import uuid
from contextlib import closing
from pathlib import Path
from typing import Any

import pandas
import pyarrow
import sqlalchemy as sa
from pyarrow import csv, parquet

from tests.bench.databases import TITLES, Bench, Engine, opened
from tests.bench.measure import Reach, Row
from tests.bench.people import CREATE, CREATE_INDEX, make_people
from tests.bench.processor import Spent, spend_turns
from tests.blobs import NO_BLOBS
from zapdb.database import Database
from zapdb.imports import Coercion, Importer
from zapdb.imports.arrow_rows import ArrowFileSource
from zapdb.records.arrow import GivenColumn, column_encoder
from zapdb.schema import Field, TableSchema
from zapdb.transfer.export.directory import export_directory
from zapdb.values import Boolean, Decimal, Integer, String, Timestamp, Uuid

ROUNDS = 3
BATCH = 20_000
CREATE_WITHOUT_JSON = CREATE.replace("\n      {name: extra, type: json},", "")
SCHEMA = pyarrow.schema(
    {
        "id": pyarrow.int64(),
        "number": pyarrow.int64(),
        "name": pyarrow.string(),
        "city": pyarrow.string(),
        "active": pyarrow.bool_(),
        "balance": pyarrow.decimal128(12, 2),
        "met": pyarrow.timestamp("us", "UTC"),
        "token": pyarrow.string(),
    }
)
TYPES = (Integer(), Integer(), String(), String(), Boolean(), Decimal(2), Timestamp(), Uuid())
PLAIN = (
    "CREATE TABLE people (id bigint PRIMARY KEY, number bigint NOT NULL, name text NOT NULL,"
    " city text NOT NULL, active boolean NOT NULL, balance numeric(12, 2) NOT NULL,"
    " met timestamptz NOT NULL, token uuid NOT NULL)"
)
PLAIN_INDEX = "CREATE INDEX by_number ON people (number)"


def run_import(bench: Bench) -> list[Row]:
    path = _write_file(bench)
    return [*_import(bench, "postgresql", path), *_import(bench, "sqlite", path)]


def _write_file(bench: Bench) -> Path:
    path = bench.directory / "people.parquet"
    if not path.exists():
        with parquet.ParquetWriter(path, SCHEMA) as file:
            for first in range(0, bench.many, 50_000):
                rows = [
                    {**person, "token": str(person["token"])}
                    for person in make_people(first, min(50_000, bench.many - first))
                ]
                file.write_table(pyarrow.Table.from_pylist(rows, SCHEMA))
    return path


def run_export(bench: Bench) -> list[Row]:
    path = _write_file(bench)
    return [*_export(bench, "postgresql", path), *_export(bench, "sqlite", path)]


def _import_file(db: Database, path: Path) -> int:
    table = db.table("people")
    source = ArrowFileSource(str(path), table._current().adapter.schema, {}, Coercion())
    return Importer(db._session, table, resumable=True).run(source).written


def _export(bench: Bench, engine: Engine, path: Path) -> list[Row]:
    migrations = bench.migrations(f"export-{engine}", CREATE_WITHOUT_JSON, CREATE_INDEX)
    numbers = itertools.count()
    plain = bench.address(engine, f"export-{engine}-plain")
    (_copy_plain if engine == "postgresql" else _execute_many)(plain, path)
    with opened(bench.address(engine, f"export-{engine}"), migrations) as db:
        _import_file(db, path)

        def export() -> None:
            made = export_directory(db, bench.directory / f"export-{engine}-{next(numbers)}")
            assert [table.records for table in made.tables] == [bench.many]

        def read_sql() -> None:
            with closing(_reader(plain)) as reader:
                frame = pandas.read_sql("SELECT * FROM people ORDER BY id", reader)
            frame.to_parquet(bench.directory / f"plain-{engine}.parquet")

        server = bench.server_directory if engine == "postgresql" else None
        ours, theirs = spend_turns(ROUNDS, server, export, read_sql)
    title = f"export to Parquet, {TITLES[engine]}, {bench.many:,} records"
    return compare(title, "pandas", ours, theirs, ("≥", 1.0))


def _reader(address: str) -> Any:
    """What pandas reads a plain table by in the least time."""
    if address.startswith("sqlite"):
        return sqlite3.connect(address.removeprefix("sqlite:///"))
    return sa.create_engine(address).connect()


def _import(bench: Bench, engine: Engine, path: Path) -> list[Row]:
    migrations = bench.migrations(f"import-{engine}", CREATE_WITHOUT_JSON, CREATE_INDEX)

    def encode() -> None:
        table = TableSchema(
            1,
            "people",
            (1,),
            tuple(Field(n, *f) for n, f in enumerate(zip(SCHEMA.names, TYPES, strict=True), 1)),
        )
        encoder = column_encoder(table)
        for batch in parquet.ParquetFile(path).iter_batches(BATCH):
            given = {
                name: GivenColumn(batch.column(name), batch.column(name).to_pylist)
                for name in SCHEMA.names
            }
            token = [uuid.UUID(text).bytes for text in batch.column("token").to_pylist()]
            given["token"] = GivenColumn(pyarrow.array(token, pyarrow.binary()), list)
            encoder.encode_keys(given, batch.num_rows, NO_BLOBS)
            encoder.encode_records(b"\x81", given, batch.num_rows, NO_BLOBS)

    def import_file() -> None:
        assert _import_file(next(ours_empty), path) == bench.many

    def copy() -> None:
        (_copy_plain if engine == "postgresql" else _execute_many)(next(theirs_empty), path)

    names = [f"import-{engine}-{number}" for number in range(ROUNDS + 1)]
    theirs_empty = iter([bench.address(engine, f"{name}-plain") for name in names])
    stack = bench.cleanup
    ours_empty = iter(
        [stack.enter_context(opened(bench.address(engine, name), migrations)) for name in names]
    )
    server = bench.server_directory if engine == "postgresql" else None
    encoded, ours, theirs = spend_turns(ROUNDS, server, encode, import_file, copy)
    title = f"import of Parquet, {TITLES[engine]}, {bench.many:,} rows"
    against = "COPY of CSV" if engine == "postgresql" else "executemany"
    reach: Reach | None = ("≥", 0.5) if engine == "postgresql" else None
    return [
        *compare(title, against, ours, theirs, reach),
        Row("  of it encoding", "the whole", encoded.client, ours.processor, None),
    ]


def compare(title: str, against: str, ours: Spent, theirs: Spent, reach: Reach | None) -> list[Row]:
    """The rows of two contestants; without a reach they are information."""
    return [
        Row(f"{title}: processor", against, ours.processor, theirs.processor, reach),
        Row("  the client's", against, ours.client, theirs.client, None),
        Row("  the server's", against, ours.server, theirs.server or 1e-9, None),
        Row("  wall time", against, ours.wall, theirs.wall, None),
    ]


def _copy_plain(address: str, path: Path) -> None:
    import psycopg

    with psycopg.connect(address.replace("+psycopg", "")) as connection:
        connection.execute(PLAIN)
        connection.execute(PLAIN_INDEX)
        connection.commit()
        for batch in parquet.ParquetFile(path).iter_batches(BATCH):
            lines = io.BytesIO()
            csv.write_csv(batch, lines, csv.WriteOptions(include_header=False))
            with connection.cursor().copy("COPY people FROM STDIN (FORMAT csv)") as given:
                given.write(lines.getvalue())
            connection.commit()


def _execute_many(address: str, path: Path) -> None:
    with closing(sqlite3.connect(address.removeprefix("sqlite:///"))) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute(PLAIN)
        connection.execute(PLAIN_INDEX)
        marks = ", ".join("?" * len(SCHEMA.names))
        for batch in parquet.ParquetFile(path).iter_batches(BATCH):
            columns = [_plain(batch.column(name)) for name in SCHEMA.names]
            connection.executemany(
                f"INSERT INTO people VALUES ({marks})", zip(*columns, strict=True)
            )
            connection.commit()


def _plain(column: Any) -> list[Any]:
    """Values that SQLite takes."""
    if pyarrow.types.is_timestamp(column.type):
        return list(column.view(pyarrow.int64()).to_pylist())
    if pyarrow.types.is_decimal(column.type):
        return list(column.cast(pyarrow.float64()).to_pylist())
    return list(column.to_pylist())
