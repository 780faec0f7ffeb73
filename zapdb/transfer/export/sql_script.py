"""A whole tenant as a script of plain SQL: tables with keys, references, indexes and rows."""

from __future__ import annotations

import datetime
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC
from itertools import islice
from os.path import realpath
from pathlib import Path
from tempfile import SpooledTemporaryFile
from typing import IO, Any, Final, Literal, cast

from zapdb.activation import TableDescriptor, TenantCatalog
from zapdb.database import Database, Table
from zapdb.errors import UsageError
from zapdb.files import writing_file
from zapdb.jobs.exclusive import ProgressReporter, noted_as_job
from zapdb.release import __version__
from zapdb.schema import Field, Index, Now, TableSchema
from zapdb.schema.model import free_name
from zapdb.storage.sequences import read_last_numbers
from zapdb.transfer.export.plain_checks import check_sql
from zapdb.transfer.export.snapshots import naming_table, read_catalog
from zapdb.transfer.plain_tables import (
    SYSTEM_COLUMNS,
    LongNumber,
    PlainColumn,
    PlainTable,
    copy_text,
    define_columns,
    list_references,
    plan_plain_table,
    postgresql_literal,
    quote_name,
    quote_names,
    quote_text,
    sqlite_literal,
)
from zapdb.values import Enum, ZonedTimestamp
from zapdb.values.plain_kinds import Engine

ScriptEngine = Literal["postgresql", "sqlite"]

ROWS_PER_INSERT: Final = 100
PREFIX_CHARS: Final = 58
"""Of a table's name before what its key or sequence is called by."""
KEPT_SIZE_BYTES: Final = 16 * 1024 * 1024
"""How much of a table for a pipe is kept in memory; more is in a temporary file."""
INDEXED_SIZE_BYTES_MAX: Final = 2_000
"""PostgreSQL refuses rows of an index that exceed about 2,700 bytes."""
INDEXED_TOGETHER: Final = "an index on values of more than 2,000 bytes is left out"


@dataclass(frozen=True, slots=True)
class Script:
    """What was written: how many records of each table, and what has no equivalent."""

    records: dict[str, int]
    omitted: tuple[str, ...]


def export_sql(
    db: Database,
    path: str | Path,
    engine: ScriptEngine,
    *,
    progress: Callable[[int], object] = lambda _: None,
    pace: ProgressReporter | None = None,
) -> Script:
    """Write all tables of a database's tenant, as of one moment, as a script for `psql` or
    `sqlite3`; a file, which is replaced, gets its name when it is whole; a pipe is written into.

    Defaults and checks that SQL has, too, go with the tables; what has no equivalent is a comment,
    and in `omitted`. It is a job of `db.jobs`, unless the
    database was opened read-only; `pace` is the job of a caller that has its own. Raises
    `JobError` if the job is cancelled.
    """
    target = Path(path)
    if target.is_dir():
        raise UsageError("this is a directory", path=target, hint="give the name of a file")
    with (
        noted_as_job(db._session, "export", realpath(target), given=pace) as job,
        db.snapshot() as snap,
        writing_file(target, db._storage.engine.file_mode) as stream,
    ):
        job.on_read = progress
        catalog = read_catalog(snap._session)
        with snap._session.connected() as connection:
            last = read_last_numbers(connection, catalog.tenant)
        writer = _ScriptWriter(engine, catalog, stream, job, last)
        writer.begin(db)
        for name in writer.catalog.tables:
            with naming_table(name):
                writer.write_table(snap.table(name))
        writer.finish()
    return Script(writer.records, tuple(writer.omitted))


@dataclass
class _ScriptWriter:
    engine: ScriptEngine
    catalog: TenantCatalog
    stream: IO[bytes]
    job: ProgressReporter
    last: Mapping[int, int]
    """The last numbers of sequences, by the number of the field."""
    records: dict[str, int] = field(default_factory=dict)
    omitted: list[str] = field(default_factory=list)
    _plain: dict[str, PlainTable] = field(default_factory=dict)
    """The tables by their names here."""
    _taken: set[str] = field(default_factory=set)
    """Names of tables, keys, sequences and indexes, which share one namespace."""
    _large: set[tuple[str, str]] = field(default_factory=set)
    """Columns with values that an index has no room for."""

    def __post_init__(self) -> None:
        for name in sorted(self.catalog.tables, key=self._is_reserved):
            plain = plan_plain_table(self.catalog.table(name).schema, self.engine)
            taken = self._take(f"its_{name}" if self._is_reserved(name) else name)
            self._plain[name] = replace(plain, name=taken)
            if taken != name:
                self.omitted.append(f"the name of {name}; it is {taken}")

    def _is_reserved(self, name: str) -> bool:
        return self.engine == "sqlite" and name.startswith("sqlite_")

    def _take(self, wanted: str) -> str:
        name = free_name(wanted, self._taken)
        self._taken.add(name)
        return name

    def line(self, text: str = "") -> None:
        self.stream.write(f"{text}\n".encode())

    def begin(self, db: Database) -> None:
        made_at = datetime.datetime.now(UTC).isoformat(timespec="seconds")
        self.line(f"-- zapdb {__version__}: {len(self.catalog.tables)} tables as of {made_at}")
        self.line(f"-- migration {self.catalog.position} of {db._storage.dialect.name}")
        if self.engine == "postgresql":
            self.line("SET client_encoding = 'UTF8';")
            self.line("SET DateStyle = 'ISO';")
        else:
            self.line("PRAGMA foreign_keys = OFF;")
        self.line("BEGIN;")

    def write_table(self, table: Table) -> None:
        """Its definition and rows; again where a number turns out to be too long."""
        descriptor, long = self.catalog.table(table.name), list[str]()
        with self._rewindable():
            place = self.stream.tell()
            while not self._try_table(table, descriptor, long):
                self.stream.seek(place)
                self.stream.truncate()

    @contextmanager
    def _rewindable(self) -> Iterator[None]:
        """What is written in the block can be taken back: of a pipe or a device, which can't be
        read, it is kept aside until then."""
        stream = self.stream
        if stream.readable():
            yield
            return
        with SpooledTemporaryFile(max_size=KEPT_SIZE_BYTES) as kept:
            self.stream = cast("IO[bytes]", kept)
            yield
            kept.seek(0)
            shutil.copyfileobj(kept, stream)
        self.stream = stream

    def _try_table(self, table: Table, descriptor: TableDescriptor, long: list[str]) -> bool:
        schema = descriptor.schema
        plain = plan_plain_table(schema, self.engine, long)
        plain = self._plain[schema.name] = replace(plain, name=self._plain[schema.name].name)
        taken, omitted = {*self._taken}, [*self.omitted]
        try:
            self._define(descriptor, plain)
            rows = map(plain.rows_of, table.scan())
            write = self._copy if self.engine == "postgresql" else self._insert
            self.records[schema.name] = write(plain, rows)
            self._go_on_behind(schema, plain)
        except LongNumber as found:
            long.append(found.field)
            self._taken, self.omitted = taken, omitted
            return False
        return True

    def _define(self, descriptor: TableDescriptor, plain: PlainTable) -> None:
        schema = descriptor.schema
        parts = self._define_columns(schema, plain)
        names = set[str]()
        if not self._numbers_itself(schema, plain):
            key = quote_names([column.name for column in plain.key_columns])
            named = ""
            if self.engine == "postgresql":  # else it is an index with a name of the server's
                name = self._take(f"{plain.name[:PREFIX_CHARS]}_pkey")
                named, names = f"CONSTRAINT {quote_name(name)} ", {name}
            parts.append(f"{named}PRIMARY KEY ({key})")
        parts += self._enum_checks(schema, plain)
        self.line()
        for check in schema.checks:
            self.line(f"-- check {check.name}: {check.expression}")
        parts += self._checks(descriptor, plain, names)
        if self.engine == "sqlite":
            parts += [text for text, is_valid in self._references(descriptor) if is_valid]
        joined = ",\n    ".join(parts)
        self.line(f"CREATE TABLE {quote_name(plain.name)} (\n    {joined}\n);")

    def _checks(
        self, descriptor: TableDescriptor, plain: PlainTable, names: set[str]
    ) -> Iterator[str]:
        """Those that all records satisfy, and that SQL can ask."""
        states = {c.number: c.is_validated for c in descriptor.constraints if c.kind == "check"}
        for check in descriptor.schema.checks:
            condition = check_sql(check.expression, plain, self.engine)
            place = f"{descriptor.schema.name}.{check.name}"
            if condition is None:
                self.omitted.append(f"{place}: a check without equivalent")
            elif not states.get(check.number, False):
                self.omitted.append(f"{place}: a check that is not validated")
            else:
                name = free_name(check.name, names)
                names.add(name)
                yield f"CONSTRAINT {quote_name(name)} CHECK ({condition})"

    def _define_columns(self, schema: TableSchema, plain: PlainTable) -> list[str]:
        """The columns with their defaults; numbers of a sequence are made by the database from then
        on."""
        parts = define_columns(plain, self.engine)
        for declared in schema.fields:
            columns = plain.columns_of(declared.name)
            if declared.name in SYSTEM_COLUMNS[self.engine]:
                place = f"{schema.name}.{declared.name}"
                self.omitted.append(f"the name of {place}; it is {columns[0].name}")
            if declared.is_sequence:
                self._define_numbers(schema, plain, columns[0], parts)
                continue
            defaults = defaults_of(declared, columns, self.engine)
            if defaults is None:
                self.omitted.append(f"{schema.name}.{declared.name}: its default")
            for column, default in zip(columns, defaults or (), strict=False):
                parts[plain.columns.index(column)] += f" DEFAULT {default}"
        return parts

    def _define_numbers(
        self, schema: TableSchema, plain: PlainTable, column: PlainColumn, parts: list[str]
    ) -> None:
        at = plain.columns.index(column)
        if column.kind != "integer" or column.optional:
            self._omit_numbers(schema, column)
        elif self.engine == "postgresql":
            wanted = f"{plain.name[: PREFIX_CHARS // 2]}_{column.name[: PREFIX_CHARS // 2]}_seq"
            name = quote_name(self._take(wanted))
            parts[at] += f" GENERATED BY DEFAULT AS IDENTITY (SEQUENCE NAME {name})"
        elif self._numbers_itself(schema, plain) and at in plain.key:
            parts[at] = f"{quote_name(column.name)} INTEGER PRIMARY KEY AUTOINCREMENT"
        else:
            self._omit_numbers(schema, column)

    def _omit_numbers(self, schema: TableSchema, column: PlainColumn) -> None:
        what = f"{schema.name}.{column.name}: the numbers of its sequence"
        if what not in self.omitted:
            self.omitted.append(what)

    def _numbers_itself(self, schema: TableSchema, plain: PlainTable) -> bool:
        """Whether SQLite numbers the rows: its only such column is the whole key."""
        if self.engine != "sqlite" or len(plain.key) != 1:
            return False
        column = plain.columns[plain.key[0]]
        declared = next(one for one in schema.fields if one.name == column.field)
        return declared.is_sequence and column.kind == "integer"

    def _go_on_behind(self, schema: TableSchema, plain: PlainTable) -> None:
        """Have the numbers that the database makes begin behind the last one that was drawn."""
        for declared in schema.fields:
            last = self.last.get(declared.number)
            if not declared.is_sequence or last is None or last < 1:
                continue
            (column,) = plain.columns_of(declared.name)
            if column.kind != "integer" or column.optional:
                continue
            if self.engine == "postgresql":
                table = quote_text(quote_name(plain.name))
                sequence = f"pg_get_serial_sequence({table}, {quote_text(column.name)})"
                self.line(f"SELECT setval({sequence}, {last});")
            elif self._numbers_itself(schema, plain) and plain.columns.index(column) in plain.key:
                name = quote_text(plain.name)
                self.line(f"DELETE FROM sqlite_sequence WHERE name = {name};")
                self.line(f"INSERT INTO sqlite_sequence VALUES ({name}, {last});")

    def _enum_checks(self, schema: TableSchema, plain: PlainTable) -> Iterator[str]:
        for declared in schema.fields:
            if isinstance(declared.type, Enum):
                (column,) = plain.columns_of(declared.name)
                names = ", ".join(f"'{name}'" for _, name in declared.type.members)
                yield f"CHECK ({quote_name(column.name)} IN ({names}))"

    # Rows

    def _copy(self, plain: PlainTable, rows: Iterator[tuple[Any, ...]]) -> int:
        names = quote_names([column.name for column in plain.columns])
        self.line(f"COPY {quote_name(plain.name)} ({names}) FROM stdin;")
        count = 0
        for row in rows:
            self._note_large(plain, row)
            text = "\t".join(map(copy_text, row))
            self.line(text)
            self.job.note_one(len(text))
            count += 1
        self.job.flush()
        self.line("\\.")
        return count

    def _insert(self, plain: PlainTable, rows: Iterator[tuple[Any, ...]]) -> int:
        count = 0
        while some := list(islice(rows, ROWS_PER_INSERT)):
            texts = [", ".join(map(sqlite_literal, plain.columns, row)) for row in some]
            joined = "),\n(".join(texts)
            self.line(f"INSERT INTO {quote_name(plain.name)} VALUES\n({joined});")
            self.job.note(len(some), 0, len(joined))
            count += len(some)
        return count

    def _note_large(self, plain: PlainTable, row: tuple[Any, ...]) -> None:
        for column, value in zip(plain.columns, row, strict=True):
            if isinstance(value, str | bytes) and len(value) * 4 > INDEXED_SIZE_BYTES_MAX:
                size = len(value.encode() if isinstance(value, str) else value)
                if size > INDEXED_SIZE_BYTES_MAX:
                    self._large.add((plain.name, column.name))

    # Indexes and references

    def finish(self) -> None:
        self.line()
        for descriptor in self.catalog.tables.values():
            for index in descriptor.schema.indexes:
                self._write_index(descriptor.schema, index)
        for descriptor in self.catalog.tables.values():
            for text, is_valid in self._references(descriptor):
                if not is_valid:
                    what = f"the reference of {descriptor.schema.name} is not validated"
                    self._omit(what, text)
                elif self.engine == "postgresql":
                    name = quote_name(self._plain[descriptor.schema.name].name)
                    self.line(f"ALTER TABLE {name} ADD {text};")
        self.line("COMMIT;")

    def _omit(self, why: str, text: str) -> None:
        self.omitted.append(why)
        self.line(f"-- {why}: {text}")

    def _write_index(self, schema: TableSchema, index: Index) -> None:
        plain, parts, names = self._plain[schema.name], list[str](), list[str]()
        for component in index.components:
            declared = schema.field_numbered(component.field)
            columns = plain.columns_of(declared.name)
            if isinstance(declared.type, ZonedTimestamp):
                columns = columns[:1]
            way = " DESC" if component.descending else ""
            parts += [f"{quote_name(column.name)}{way}" for column in columns]
            names += [column.name for column in columns]
        unique = "UNIQUE " if index.unique else ""
        name = quote_name(self._take(f"{plain.name}_{index.name}"))
        text = f"CREATE {unique}INDEX {name} ON {quote_name(plain.name)} ({', '.join(parts)});"
        if any((plain.name, name) in self._large for name in names):
            self._omit(f"{schema.name}.{index.name}: {INDEXED_TOGETHER}", text)
            return
        collations = {str(c.collation) for c in index.components if c.collation is not None}
        if collations:
            self.line(f"-- {schema.name}.{index.name} is by collation {', '.join(collations)}")
        self.line(text)

    def _references(self, descriptor: TableDescriptor) -> Iterator[tuple[str, bool]]:
        """The reference constraints, and whether all records satisfy them."""
        plain = self._plain[descriptor.schema.name]
        for one in list_references(descriptor, plain, self._plain):
            columns = quote_names([column.name for column in one.columns])
            keys = quote_names([column.name for column in one.target.key_columns])
            action = one.on_delete.replace("_", " ").upper()
            yield (
                f"FOREIGN KEY ({columns}) REFERENCES {quote_name(one.target.name)} ({keys})"
                f" ON DELETE {action}",
                one.is_validated,
            )


# Defaults of fields as SQL: constants, the moment of an insert, a generated UUID.

SQLITE_NOW: Final = "(strftime('%Y-%m-%d %H:%M:%f000', 'now'))"
"""In UTC, with as many digits as the values that are there."""


def defaults_of(field: Field, columns: Sequence[PlainColumn], engine: Engine) -> list[str] | None:
    """The default of each column of a field, as SQL after DEFAULT has it; nothing for a field
    without one, or with null, and None where there is no equivalent.

    Raises `LongNumber`. The numbers of a sequence are no default.
    """
    if field.generated == "uuid":
        return ["gen_random_uuid()"] if engine == "postgresql" else None
    if isinstance(field.default, Now):
        return _now(field.default, columns, engine)
    if not field.has_constant or field.default is None:
        return []
    values = [column.read(field.default) for column in columns]
    if engine == "postgresql":
        return [postgresql_literal(value) for value in values]
    return [f"({sqlite_literal(*one)})" for one in zip(columns, values, strict=True)]


def _now(now: Now, columns: Sequence[PlainColumn], engine: Engine) -> list[str] | None:
    if engine == "postgresql":
        zone = quote_text(now.zone)
        by_kind = {"instant": "now()", "local": f"(now() AT TIME ZONE {zone})", "text": zone}
        return [by_kind[column.kind] for column in columns]
    if now.zone not in ("", "UTC"):
        return None  # whose rules SQLite does not have
    return [SQLITE_NOW if column.kind != "text" else quote_text(now.zone) for column in columns]
