"""Databases with random tables, odd names, defaults, checks, and references in circles: inferred,
copied, written as SQL and loaded again. Every value, key, reference and NOT NULL is compared with
the source, which is read by its own driver."""

from __future__ import annotations

import contextlib
import datetime
import decimal
import json
import random
import sqlite3
import subprocess
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.contract.test_import_databases import Place
from tests.contract.test_sql_script import PSQL
from tests.support import PostgresServer, Workspace
from zapdb.transfer.inference import SourceDatabase, infer_tables
from zapdb.transfer.inference.inferred import Inference

NAMES = (
    "orders", "Order Lines", "select", "UserGroups", "a" * 61 + "-x", "a" * 61 + " x", "ctid",
    "xmin", "größe", "1st", "table", "sqlite_x", "x_pkey", "x", "_under", "ÄÖ", "the.dot", 'q"uote',
)  # fmt: skip
WORDS = ("", "a", "ä'\"\\", "long " * 30, "\n\t", "\N{GRINNING FACE}", "NULL", "\\N", "0")


@dataclass(frozen=True)
class Kind:
    """A type of column, as both engines declare it, with a default and a check, as far as it has
    them."""

    sqlite: str
    postgresql: str
    default: str = ""
    check: str = ""


KINDS = {
    "int": Kind("INTEGER", "integer", "7", "{0} > -1000"),
    "text": Kind("TEXT", "text", "'it''s'", "{0} <> 'never'"),
    "code": Kind("VARCHAR(300)", "varchar(300)", "'x'", "{0} IN ('x', 'y', 'z')"),
    "num": Kind("NUMERIC(12, 2)", "numeric(12, 2)", "1.5", "{0} >= 0"),
    "float": Kind("REAL", "double precision"),
    "bool": Kind("BOOLEAN", "boolean", "true"),
    "date": Kind("DATE", "date", "'2024-02-29'"),
    "moment": Kind("TIMESTAMP", "timestamp", "CURRENT_TIMESTAMP"),
    "blob": Kind("BLOB", "bytea"),
    "uuid": Kind("UUID", "uuid"),
    "json": Kind("JSON", "jsonb"),
}
KEYS = ("int", "code", "date", "int")


@dataclass
class Column:
    name: str
    kind: str
    required: bool
    has_default: bool = False
    has_check: bool = False


@dataclass
class Reference:
    columns: list[str]
    target: int
    required: bool
    on_delete: str


@dataclass
class Table:
    name: str
    key: list[Column]
    columns: list[Column] = field(default_factory=list)
    references: list[Reference] = field(default_factory=list)
    rows: list[dict[str, Any]] = field(default_factory=list)


def quote(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def make_value(choose: random.Random, kind: str, number: int) -> Any:
    day = datetime.date(2024, 1, 1) + datetime.timedelta(days=number * 37)
    return {
        "int": choose.randint(-999, 2**31 - 1),
        "text": choose.choice(WORDS),
        "code": choose.choice("xyz"),
        "num": decimal.Decimal(choose.randint(0, 10**9)) / 100,
        "float": choose.choice((0.1, -1e300, 5e-324, 3.0, 1 / 3)),
        "bool": choose.random() < 0.5,
        "date": day,
        "moment": datetime.datetime.combine(
            day, datetime.time(1, 2, 3, choose.randint(0, 999_999))
        ),
        "blob": choose.randbytes(choose.randint(0, 9)),
        "uuid": uuid.UUID(int=choose.getrandbits(128)),
        "json": choose.choice(({"a": [1, None, "ü"]}, [], 1.5, 7, ["x", True])),
    }[kind]


def make_key(kind: str, number: int) -> Any:
    if kind == "date":
        return datetime.date(2000, 1, 1) + datetime.timedelta(days=number)
    return f"k{number}" if kind == "code" else number


def generate(seed: int, engine: str) -> list[Table]:
    choose = random.Random(seed)
    names = choose.sample(NAMES, len(NAMES))
    if engine == "sqlite":
        names = [name for name in names if not name.startswith("sqlite_")]
    tables = list[Table]()
    for _ in range(choose.randint(2, 5)):
        columns = choose.sample(NAMES, len(NAMES))
        if engine == "postgresql":
            columns = [name for name in columns if name not in ("ctid", "xmin")]
        key = [
            Column(columns.pop(), choose.choice(KEYS), True)
            for _ in range(choose.choice((1, 1, 1, 2)))
        ]
        table = Table(names.pop(), key)
        for _ in range(choose.randint(1, 5)):
            kind, required = choose.choice(list(KINDS)), choose.random() < 0.5
            one = KINDS[kind]
            has_default = bool(one.default) and choose.random() < 0.5
            has_check = bool(one.check) and choose.random() < 0.5
            table.columns.append(
                Column(
                    columns.pop(),
                    kind,
                    required,
                    has_default,
                    has_check,
                )
            )
        tables.append(table)
    for table in tables:
        used = {column.name.lower() for column in (*table.key, *table.columns)}
        for number in range(choose.randint(0, 3)):
            target = choose.randrange(len(tables))
            required = choose.random() < 0.5
            own = [f"ref {number} {at}" for at in range(len(tables[target].key))]
            assert not used & set(own)
            on_delete = choose.choice(("NO ACTION", "CASCADE", "RESTRICT", "SET NULL"))
            table.references.append(Reference(own, target, required, on_delete))
    counts = [choose.randint(3, 12) for _ in tables]
    for table, count in zip(tables, counts, strict=True):
        for number in range(1, count + 1):
            row = {column.name: make_key(column.kind, number) for column in table.key}
            for column in table.columns:
                is_null = not column.required and choose.random() < 0.3
                row[column.name] = None if is_null else make_value(choose, column.kind, number)
            for reference in table.references:
                is_null = not reference.required and choose.random() < 0.3
                to = choose.randint(1, counts[reference.target])
                for name, part in zip(reference.columns, tables[reference.target].key, strict=True):
                    row[name] = None if is_null else make_key(part.kind, to)
            table.rows.append(row)
    return tables


def definitions(tables: list[Table], engine: str) -> tuple[list[str], list[str]]:
    """The statements that make the tables, and those that add the foreign keys behind the rows."""
    made, added = [], []
    for table in tables:
        parts = []
        for column in (*table.key, *table.columns):
            kind = KINDS[column.kind]
            text = f"{quote(column.name)} {getattr(kind, engine)}"
            text += " NOT NULL" * column.required
            text += f" DEFAULT {kind.default}" * column.has_default
            if column.has_check:
                text += f" CHECK ({kind.check.format(quote(column.name))})"
            parts.append(text)
        for reference in table.references:
            keys = tables[reference.target].key
            for name, part in zip(reference.columns, keys, strict=True):
                kind = KINDS[part.kind]
                parts.append(
                    f"{quote(name)} {getattr(kind, engine)}" + " NOT NULL" * reference.required
                )
        key = ", ".join(quote(column.name) for column in table.key)
        # Else the server takes a name that another table may have.
        parts.append(f"CONSTRAINT {quote(f'key of {tables.index(table)}')} PRIMARY KEY ({key})")
        keys_of = []
        for reference in table.references:
            target = tables[reference.target]
            columns = ", ".join(map(quote, reference.columns))
            keys = ", ".join(quote(column.name) for column in target.key)
            keys_of.append(
                f"FOREIGN KEY ({columns}) REFERENCES {quote(target.name)} ({keys})"
                f" ON DELETE {reference.on_delete}"
            )
        if engine == "sqlite":
            parts += keys_of
        else:
            added += [f"ALTER TABLE {quote(table.name)} ADD {text}" for text in keys_of]
        made.append(f"CREATE TABLE {quote(table.name)} ({', '.join(parts)})")
    return made, added


def fill_sqlite(path: Path, tables: list[Table]) -> None:
    def adapt(value: Any) -> Any:
        match value:
            case decimal.Decimal() | uuid.UUID() | datetime.date():
                return str(value)
            case dict() | list():
                return json.dumps(value)
        return value

    with contextlib.closing(sqlite3.connect(path)) as connection:
        for statement in definitions(tables, "sqlite")[0]:
            connection.execute(statement)
        for table in tables:
            kinds = {column.name: column.kind for column in table.columns}
            for row in table.rows:
                names = ", ".join(map(quote, row))
                marks = ", ".join("?" for _ in row)
                values = [
                    json.dumps(v) if kinds.get(n) == "json" and v is not None else adapt(v)
                    for n, v in row.items()
                ]
                connection.execute(
                    f"INSERT INTO {quote(table.name)} ({names}) VALUES ({marks})", values
                )
        connection.commit()


def fill_postgresql(dsn: str, tables: list[Table]) -> None:
    made, added = definitions(tables, "postgresql")
    with psycopg.connect(dsn) as connection:
        for statement in made:
            connection.execute(statement.encode())
        for table in tables:
            kinds = {column.name: column.kind for column in table.columns}
            for row in table.rows:
                names = ", ".join(map(quote, row))
                marks = ", ".join("%s" for _ in row)
                values = [
                    json.dumps(v) if kinds.get(n) == "json" and v is not None else v
                    for n, v in row.items()
                ]
                text = f"INSERT INTO {quote(table.name)} ({names}) VALUES ({marks})"
                connection.execute(text.encode(), values)
        for statement in added:
            connection.execute(statement.encode())


def canonical(kind: str, value: Any) -> Any:
    """The value of a column, whatever reads it."""
    if value is None:
        return None
    match kind:
        case "num":
            return decimal.Decimal(str(value))
        case "bool":
            return bool(value)
        case "date":
            return str(value)[:10]
        case "moment":
            moment = datetime.datetime.fromisoformat(value) if isinstance(value, str) else value
            is_zoned = moment.tzinfo is not None
            moment = moment.astimezone(datetime.UTC).replace(tzinfo=None) if is_zoned else moment
            return moment.isoformat(" ", "microseconds")
        case "json":
            plain = json.loads(value) if isinstance(value, str | bytes) else value
            return json.dumps(plain, sort_keys=True, default=str)
        case "uuid":
            return str(value)
        case "blob":
            return bytes(value)
    return value


@dataclass
class Compared:
    """A source's tables beside what was inferred of them."""

    tables: list[Table]
    found: Inference

    def __post_init__(self) -> None:
        self.inferred = {table.source_name: table for table in self.found.tables}
        assert self.inferred.keys() == {table.name for table in self.tables}

    def kinds(self, table: Table) -> dict[str, str]:
        kinds = {column.name: column.kind for column in (*table.key, *table.columns)}
        for reference in table.references:
            parts = self.tables[reference.target].key
            kinds |= {n: p.kind for n, p in zip(reference.columns, parts, strict=True)}
        return kinds

    def expected(self, table: Table) -> list[tuple[Any, ...]]:
        """The rows by the columns of the fields, in their order here."""
        kinds = self.kinds(table)
        columns = [c for f in self.inferred[table.name].fields for c in f.columns]
        assert sorted(columns) == sorted(kinds)
        rows = [tuple(canonical(kinds[c], row[c]) for c in columns) for row in table.rows]
        return sorted(rows, key=repr)

    def of_values(self, table: Table, rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
        """Rows of single values in the order of the columns, made comparable."""
        kinds = self.kinds(table)
        columns = [c for f in self.inferred[table.name].fields for c in f.columns]
        made = [
            tuple(canonical(kinds[c], v) for c, v in zip(columns, row, strict=True)) for row in rows
        ]
        return sorted(made, key=repr)


def require_records(place: Place, compared: Compared) -> None:
    with contextlib.closing(place.workspace.follow()) as db:
        for table in compared.tables:
            inferred = compared.inferred[table.name]
            rows = []
            for record in db.table(inferred.name):
                row = list[Any]()
                for one in inferred.fields:
                    value = getattr(record, one.name)
                    missing = [None] * len(one.columns)
                    row += [value] if len(one.columns) == 1 else (value or missing)
                rows.append(tuple(row))
            assert compared.of_values(table, rows) == compared.expected(table), table.name
            schema = db.table(inferred.name)._current().schema
            assert len(schema.foreign_keys) == len(table.references)
        assert sum(report.problem_count for report in db.admin.verify()) == 0


def script_names(compared: Compared, omitted: list[str]) -> dict[str, str]:
    renamed = dict(
        text.removeprefix("the name of ").split("; it is ")
        for text in omitted
        if "; it is " in text
    )
    return {
        t.name: renamed.get(compared.inferred[t.name].name, compared.inferred[t.name].name)
        for t in compared.tables
    }


def load(place: Place, engine: str, server: PostgresServer, address: str) -> tuple[Any, list[str]]:
    """A connection to a database with what `export --sql` has written."""
    path = place.directory / f"{engine}.sql"
    made = place.run("export", str(path), "--sql", engine, "-d", place.target, "--json")
    assert made.status == 0, made.err
    if engine == "sqlite":
        connection: Any = sqlite3.connect(":memory:")
        connection.executescript(path.read_text())
        assert connection.execute("PRAGMA foreign_key_check").fetchall() == []
        return connection, made.json["omitted"]
    name = address.partition("@/")[2].partition("?")[0]
    dsn = f"host={server.directory} user=postgres dbname={name}"
    options = ("-X", "-q", "-v", "ON_ERROR_STOP=1", "-f", str(path), dsn)
    done = subprocess.run([PSQL, *options], capture_output=True, text=True, timeout=300)
    assert not done.returncode, done.stderr[:1_500]
    return psycopg.connect(dsn), made.json["omitted"]


def require_loaded(connection: Any, names: dict[str, str], compared: Compared, engine: str) -> None:
    for table in compared.tables:
        name = names[table.name]
        cursor = connection.execute(f"SELECT * FROM {quote(name)}")
        rows = [tuple(row) for row in cursor.fetchall()]
        assert compared.of_values(table, rows) == compared.expected(table), name
        if engine == "sqlite":
            keys = connection.execute(f"PRAGMA foreign_key_list({quote(name)})").fetchall()
            count = len({row[0] for row in keys})
            described = connection.execute(f"PRAGMA table_info({quote(name)})").fetchall()
            not_null = [bool(row[3] or row[5]) for row in described]
            defaults = [row[4] is not None for row in described]
        else:
            (count,) = connection.execute(
                "SELECT count(*) FROM pg_constraint WHERE contype = 'f'"
                " AND conrelid = %s::regclass",
                (quote(name),),
            ).fetchone()
            described = connection.execute(
                "SELECT attnotnull, atthasdef FROM pg_attribute WHERE attrelid = %s::regclass"
                " AND attnum > 0 ORDER BY attnum",
                (quote(name),),
            ).fetchall()
            not_null, defaults = [row[0] for row in described], [row[1] for row in described]
        assert count == len(table.references), name
        columns = [c for f in compared.inferred[table.name].fields for c in f.columns]
        there = {c.name: c for c in (*table.key, *table.columns)}
        for column, is_required, has_default in zip(columns, not_null, defaults, strict=True):
            if column in there:
                assert is_required == there[column].required, (name, column)
                assert has_default == there[column].has_default, (name, column)


def go_through(place: Place, tables: list[Table], engine: str, server: PostgresServer) -> None:
    inferred = place.infer("--json")
    assert (inferred.status, inferred.err) == (0, "")
    carried = inferred.json["carried"]
    assert carried.get("references", 0) == sum(len(table.references) for table in tables)
    assert carried.get("defaults", 0) == sum(c.has_default for t in tables for c in t.columns)
    assert carried.get("checks", 0) == sum(c.has_check for t in tables for c in t.columns)
    checked = place.run("migrate", "check", "--write", "-m", place.migrations)
    assert checked.status == 0, checked.err
    place.migrate()
    copied = place.copy("--batch", "4")
    assert (copied.status, copied.err) == (0, "")
    with SourceDatabase.opened(place.source) as source:
        compared = Compared(tables, infer_tables(source))
    require_records(place, compared)
    with server.fresh_database() as address:
        connection, omitted = load(place, engine, server, address)
        with contextlib.closing(connection):
            require_loaded(connection, script_names(compared, omitted), compared, engine)
            assert not [text for text in omitted if "check" in text and engine == "postgresql"]


@pytest.mark.on_each_engine
@pytest.mark.parametrize("engine_of_source", ["sqlite", "postgresql"])
@pytest.mark.parametrize("seed", range(4))
def test_a_random_database_goes_in_and_out(
    workspace: Workspace, postgres: PostgresServer, tmp_path: Path, engine_of_source: str, seed: int
) -> None:
    in_and_out(workspace, postgres, tmp_path, engine_of_source, seed)


@pytest.mark.long
@pytest.mark.parametrize("engine", ["sqlite"])
@pytest.mark.parametrize("engine_of_source", ["sqlite", "postgresql"])
@pytest.mark.parametrize("seed", range(4, 60))
def test_many_random_databases_go_in_and_out(
    workspace: Workspace, postgres: PostgresServer, tmp_path: Path, engine_of_source: str, seed: int
) -> None:
    in_and_out(workspace, postgres, tmp_path, engine_of_source, seed)


def in_and_out(
    workspace: Workspace, server: PostgresServer, directory: Path, engine: str, seed: int
) -> None:
    tables = generate(seed, engine)
    if engine == "sqlite":
        path = directory / "source.db"
        fill_sqlite(path, tables)
        go_through(Place(workspace, f"sqlite:///{path}", directory), tables, engine, server)
        return
    with server.fresh_database() as address:
        name = address.partition("@/")[2].partition("?")[0]
        fill_postgresql(f"host={server.directory} user=postgres dbname={name}", tables)
        go_through(Place(workspace, address, directory), tables, engine, server)
