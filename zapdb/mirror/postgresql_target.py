"""A mirror in a schema of a PostgreSQL database."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final

import psycopg
from psycopg import sql as sqls

from zapdb.export.plain_tables import PlainColumn, PlainTable, quote_name, quote_names
from zapdb.mirror.state import OWN_TABLES
from zapdb.mirror.target import (
    MirrorTarget,
    Row,
    Staged,
    TargetBlocked,
    TargetBusy,
    TargetFailed,
    TargetRefused,
    TargetSession,
)

LOCK_CLASS: Final = 8723
LOCK_WAIT: Final = "2s"
"""How long a change of a table waits for its readers, since others wait behind it meanwhile."""
SETTLES_SECONDS: Final = 3.0
"""A server process reports what it wrote about once a second."""
FLUSH_SERVER_VERSION: Final = 150_000
"""From this version on, it reports that when it is asked to, and else up to ten seconds later."""
_BLOCKED: Final = (psycopg.errors.DependentObjectsStillExist, psycopg.errors.FeatureNotSupported)
_WRITES: Final = (
    "SELECT count(*)::bigint, sum(n_tup_ins + n_tup_upd + n_tup_del)::bigint"
    " FROM pg_stat_all_tables WHERE schemaname = %s AND relname <> ALL(%s)"
)


class PostgresqlTarget(MirrorTarget):
    """One schema, which is made if it is missing."""

    engine = "postgresql"
    unreachable_hint = "see that the address is right, the server runs, and its disk has room"

    def __init__(self, dsn: str, schema: str, shown: str) -> None:
        self.schema = schema
        self.shown = shown
        self._dsn = dsn
        self._connection: psycopg.Connection[Any] | None = None
        self._quiet_from = 0.0
        self._counted: tuple[Any, ...] | None = None

    @contextmanager
    def transaction(self) -> Iterator[TargetSession]:
        with self._named_errors():
            connection = self._connect()
            # One mirror at a time, and the state is what the one before has left.
            connection.execute(
                "SELECT pg_advisory_xact_lock(%s, hashtext(%s)),"
                " set_config('lock_timeout', %s, true)",
                (LOCK_CLASS, self.schema, LOCK_WAIT),
            )
            self._counted = None
            yield PostgresqlSession(connection, self.schema)
            connection.commit()
            self._quiet_from = time.monotonic() + SETTLES_SECONDS

    @contextmanager
    def _named_errors(self) -> Iterator[None]:
        """Every error closes the connection, which rolls back."""
        try:
            yield
        except _BLOCKED as error:
            self.close()
            raise TargetBlocked(error.diag.message_detail or str(error).strip()) from error
        except psycopg.errors.InsufficientPrivilege as error:
            self.close()
            name = quote_name(self.schema)
            raise TargetRefused(
                error.diag.message_primary or _one_line(error),
                f"run CREATE SCHEMA {name} AUTHORIZATION the role, or GRANT USAGE, CREATE ON SCHEMA"
                f" {name} TO it; the tables in it must be the role's own",
            ) from error
        except psycopg.OperationalError as error:
            self.close()
            raise TargetBusy(_one_line(error)) from error
        except psycopg.Error as error:
            self.close()
            raise TargetFailed(_one_line(error)) from error
        except BaseException:
            self.close()
            raise

    def is_there(self) -> bool:
        with self._named_errors(), psycopg.connect(self._dsn) as connection:
            names = quote_name(self.schema)
            found = connection.execute("SELECT to_regnamespace(%s)::text", (names,)).fetchone()
        return found is not None and found[0] is not None

    def look(self) -> None:
        """The server counts the rows that were written. What the mirror wrote itself is counted a
        little later, so it looks only when it has been quiet."""
        if time.monotonic() < self._quiet_from:
            return
        with suppress(TargetBusy, TargetFailed), self._named_errors():
            connection = self._connect()
            if connection.info.server_version >= FLUSH_SERVER_VERSION:
                connection.execute("SELECT pg_stat_force_next_flush()")  # of what it wrote itself
                connection.commit()
            found = connection.execute(_WRITES, (self.schema, list(OWN_TABLES))).fetchone()
            connection.commit()
            self._is_touched |= self._counted not in (None, found)
            self._counted = found

    def _connect(self) -> psycopg.Connection[Any]:
        if self._connection is None:
            made = psycopg.connect(self._dsn, application_name="zapdb mirror")
            self._connection = made
            # PostgreSQL asks for the right to make schemas, even if this one exists.
            exists = "SELECT 1 FROM pg_catalog.pg_namespace WHERE nspname = %s"
            if made.execute(exists, (self.schema,)).fetchone() is None:
                name = sqls.Identifier(self.schema)
                made.execute(sqls.SQL("CREATE SCHEMA IF NOT EXISTS {}").format(name))
        return self._connection

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


class PostgresqlSession(TargetSession):
    engine = "postgresql"
    mark = "%s"
    fills_aside = True

    def __init__(self, connection: psycopg.Connection[Any], schema: str) -> None:
        self._connection = connection
        self._schema = schema

    def qualify(self, name: str) -> str:
        return f"{quote_name(self._schema)}.{quote_name(name)}"

    def run(self, sql: str, parameters: Sequence[Any] = ()) -> list[Row]:
        cursor = self._execute(sql, parameters)
        return cursor.fetchall() if cursor.description else []

    def change(self, sql: str, parameters: Sequence[Any] = ()) -> int:
        return self._execute(sql, parameters).rowcount

    def _execute(self, sql: str, parameters: Sequence[Any]) -> psycopg.Cursor[Any]:
        return self._connection.execute(sql.encode(), tuple(parameters) or None)

    def list_tables(self) -> list[str]:
        names = "SELECT relname FROM pg_class WHERE relnamespace = to_regnamespace(%s)"
        kinds = " AND relkind IN ('r', 'p', 'v', 'm', 'f')"
        return [name for (name,) in self.run(names + kinds, (quote_name(self._schema),))]

    def describe_columns(self, name: str) -> list[Row]:
        return self.run(
            "SELECT attname, format_type(atttypid, atttypmod), attnotnull FROM pg_attribute"
            " WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped"
            " ORDER BY attnum",
            (self.qualify(name),),
        )

    def insert(self, name: str, table: PlainTable, rows: Iterable[Row]) -> int:
        return self._copy(self.qualify(name), table.columns, rows)

    def _copy(self, name: str, columns: Sequence[PlainColumn], rows: Iterable[Row]) -> int:
        names, count = quote_names([column.name for column in columns]), 0
        copy_in = f"COPY {name} ({names}) FROM STDIN"
        with self._connection.cursor() as cursor, cursor.copy(copy_in.encode()) as copy:
            for row in rows:
                copy.write_row(row)
                count += 1
        return count

    def delete(self, name: str, table: PlainTable, keys: Sequence[Row]) -> int:
        if not keys:
            return 0
        columns = [table.columns[at] for at in table.key]
        staged = _unnest(columns, keys)
        return self.change(
            f"DELETE FROM {self.qualify(name)} AS t USING {staged.sql} WHERE {self._join(columns)}",
            staged.parameters,
        )

    @contextmanager
    def stage(self, columns: Sequence[PlainColumn], rows: Iterable[Row]) -> Iterator[Staged]:
        if isinstance(rows, list):
            yield _unnest(columns, rows)
            return
        types = [f"{quote_name(c.name)} {c.sql_type('postgresql')}" for c in columns]
        self.run(f"CREATE TEMPORARY TABLE zapdb_staged ({', '.join(types)}) ON COMMIT DROP")
        self._copy("pg_temp.zapdb_staged", columns, rows)
        self.run("ANALYZE pg_temp.zapdb_staged")
        yield Staged("pg_temp.zapdb_staged AS s")
        self.run("DROP TABLE pg_temp.zapdb_staged")

    def add_column(self, name: str, column: PlainColumn, value: Any) -> bool:
        table, made = self.qualify(name), quote_name(column.name)
        kind = column.sql_type("postgresql")
        text = sqls.Literal(value).as_string(self._connection)
        self.run(f"ALTER TABLE {table} ADD COLUMN {made} {kind} DEFAULT {text}::{kind}")
        self.run(f"ALTER TABLE {table} ALTER COLUMN {made} DROP DEFAULT")
        return True


def _unnest(columns: Sequence[PlainColumn], rows: Sequence[Row]) -> Staged:
    names = quote_names([column.name for column in columns])
    if not rows:
        nothing = ", ".join(f"NULL::{column.sql_type('postgresql')}" for column in columns)
        return Staged(f"(SELECT {nothing} WHERE false) AS s({names})")
    arrays = ", ".join(f"%s::{column.sql_type('postgresql')}[]" for column in columns)
    lists = tuple(list(values) for values in zip(*rows, strict=True))
    return Staged(f"unnest({arrays}) AS s({names})", lists)


def _one_line(error: psycopg.Error) -> str:
    return " ".join(str(error).split())
