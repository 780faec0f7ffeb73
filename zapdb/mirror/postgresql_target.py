"""A mirror in a schema of a PostgreSQL database."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import psycopg
from psycopg import sql as sqls

from zapdb.errors import UsageError
from zapdb.export.plain_tables import PlainTable, quote_name, quote_names
from zapdb.mirror.target import MirrorTarget, Row, TargetBusy, TargetFailed, TargetSession

_LOCK: Final = "SELECT pg_advisory_xact_lock(hashtext('zapdb mirror'), hashtext(%s))"


class PostgresqlTarget(MirrorTarget):
    """One schema, which is made if it is missing."""

    engine = "postgresql"

    def __init__(self, dsn: str, schema: str, shown: str) -> None:
        self.schema = schema
        self.shown = shown
        self._dsn = dsn
        self._connection: psycopg.Connection[Any] | None = None

    @contextmanager
    def transaction(self) -> Iterator[TargetSession]:
        try:
            connection = self._connect()
            connection.execute(sqls.SQL("CREATE SCHEMA IF NOT EXISTS {}").format(self._name))
            # One mirror at a time, and the state is what the one before has left.
            connection.execute(
                "SELECT pg_advisory_xact_lock(%s, hashtext(%s))", (8723, self.schema)
            )
        except psycopg.OperationalError as error:
            self.close()
            raise TargetBusy(str(error).strip()) from error
        except psycopg.Error as error:
            self.close()
            raise TargetFailed(str(error).strip()) from error
        try:
            yield PostgresqlSession(connection, self.schema)
            connection.commit()
        except psycopg.errors.DependentObjectsStillExist as error:
            self.close()
            raise UsageError(
                "views rest on a table of the mirror that has to be made again",
                target=self.shown,
                detail=error.diag.message_detail or "",
                hint="drop the views, and create them again after the mirror has gone on",
            ) from error
        except psycopg.OperationalError as error:
            self.close()
            raise TargetBusy(str(error).strip()) from error
        except psycopg.Error as error:
            self.close()
            raise TargetFailed(str(error).strip()) from error
        except BaseException:
            self.close()  # which rolls back
            raise

    @property
    def _name(self) -> sqls.Identifier:
        return sqls.Identifier(self.schema)

    def _connect(self) -> psycopg.Connection[Any]:
        if self._connection is None:
            self._connection = psycopg.connect(self._dsn, application_name="zapdb mirror")
        return self._connection

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


class PostgresqlSession(TargetSession):
    engine = "postgresql"
    mark = "%s"

    def __init__(self, connection: psycopg.Connection[Any], schema: str) -> None:
        self._connection = connection
        self._schema = schema

    def qualify(self, name: str) -> str:
        return f"{quote_name(self._schema)}.{quote_name(name)}"

    def run(self, sql: str, parameters: Sequence[Any] = ()) -> list[Row]:
        cursor = self._connection.execute(sql.encode(), tuple(parameters) or None)
        return cursor.fetchall() if cursor.description else []

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
        columns, count = quote_names([column.name for column in table.columns]), 0
        copy_in = f"COPY {self.qualify(name)} ({columns}) FROM STDIN"
        with self._connection.cursor() as cursor, cursor.copy(copy_in.encode()) as copy:
            for row in rows:
                copy.write_row(row)
                count += 1
        return count

    def delete(self, name: str, table: PlainTable, keys: Sequence[Row]) -> int:
        columns = [table.columns[at] for at in table.key]
        arrays = ", ".join(f"%s::{column.sql_type('postgresql')}[]" for column in columns)
        names = [f"k{at}" for at in range(len(columns))]
        condition = " AND ".join(
            f"t.{quote_name(column.name)} = k.{name}"
            for column, name in zip(columns, names, strict=True)
        )
        sql = (
            f"DELETE FROM {self.qualify(name)} AS t USING unnest({arrays})"
            f" AS k({', '.join(names)}) WHERE {condition}"
        )
        lists = [list(values) for values in zip(*keys, strict=True)]
        return self._connection.execute(sql.encode(), lists).rowcount if keys else 0
