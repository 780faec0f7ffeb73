"""A mirror in a schema of a PostgreSQL database."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final

import psycopg
from psycopg import sql as sqls

from zapdb.transfer.mirror.state import OWN_TABLES
from zapdb.transfer.mirror.target import (
    KEY_PREFIX,
    Addition,
    ConstraintChange,
    KeysViolated,
    MirrorTarget,
    PlainForeignKey,
    Row,
    Staged,
    TargetBlocked,
    TargetBusy,
    TargetFailed,
    TargetRefused,
    TargetSession,
)
from zapdb.transfer.plain_tables import (
    PlainColumn,
    PlainTable,
    quote_name,
    quote_names,
)

LOCK_CLASS: Final = 8723
KEY_NAME_LENGTH_MAX: Final = 58
"""Of what stands before `_pkey` in a name."""
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

_ROLE: Final = "CASE grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(grantee)) END"
_OPTION: Final = "CASE WHEN is_grantable THEN ' WITH GRANT OPTION' ELSE '' END"
_READERS: Final = (
    f"SELECT DISTINCT {_ROLE} FROM pg_namespace, aclexplode(nspacl)"
    " WHERE nspname = %s AND privilege_type = 'USAGE' AND grantee <> nspowner"
)
"""Who may read a schema."""
# Those of the new table are taken away first: default privileges may have given what was revoked.
_RIGHTS: Final = (
    f"SELECT 'REVOKE ALL ON {{table}} FROM ' || {_ROLE}"
    " FROM pg_class, pg_default_acl, aclexplode(defaclacl)"
    " WHERE pg_class.oid = to_regclass(%s) AND relacl IS NOT NULL AND grantee <> relowner"
    " AND defaclobjtype = 'r' AND defaclnamespace IN (0, relnamespace)"
    f" UNION ALL SELECT 'GRANT ' || privilege_type || ' ON {{table}} TO ' || {_ROLE} || {_OPTION}"
    " FROM pg_class, aclexplode(relacl)"
    " WHERE pg_class.oid = to_regclass(%s) AND grantee <> relowner"
)
_COLUMN_RIGHTS: Final = (
    "SELECT 'rights on ' || attname, 'GRANT ' || privilege_type || ' (' || quote_ident(attname)"
    f" || ') ON {{table}} TO ' || {_ROLE} || {_OPTION}, attname"
    " FROM pg_attribute, aclexplode(attacl) WHERE attrelid = to_regclass(%s)"
    " AND attnum > 0 AND NOT attisdropped"
)
_COMMENTS: Final = (
    "SELECT CASE objsubid WHEN 0 THEN 'the comment' ELSE 'the comment on ' || attname END,"
    " CASE objsubid WHEN 0 THEN 'COMMENT ON TABLE {table}'"
    " ELSE 'COMMENT ON COLUMN {table}.' || quote_ident(attname) END"
    " || ' IS ' || quote_literal(description), coalesce(attname::text, '')"
    " FROM pg_description LEFT JOIN pg_attribute ON attrelid = objoid AND attnum = objsubid"
    " AND objsubid > 0 WHERE classoid = 'pg_class'::regclass AND objoid = to_regclass(%s)"
)
_INDEXES: Final = (
    "SELECT relname, indisunique, pg_get_indexdef(indexrelid) FROM pg_index"
    " JOIN pg_class ON pg_class.oid = indexrelid WHERE indrelid = to_regclass(%s)"
    " AND NOT EXISTS (SELECT 1 FROM pg_constraint WHERE conindid = indexrelid AND contype <> 'f')"
)
_PRIMARY_KEY: Final = (
    "SELECT conname::text FROM pg_constraint WHERE conrelid = to_regclass(%s) AND contype = 'p'"
)
_NAMES: Final = (
    "(SELECT array_agg(attname::text ORDER BY place) FROM unnest({numbers})"
    " WITH ORDINALITY AS key (number, place)"
    " JOIN pg_attribute ON attrelid = {relation} AND attnum = number)"
)
_INDEXED: Final = (
    "SELECT "
    + _NAMES.format(numbers="indkey::smallint[]", relation="indrelid")
    + " FROM pg_index WHERE indexrelid = to_regclass(%s) AND indrelid = to_regclass(%s)"
)
_FOREIGN_KEYS: Final = (
    "SELECT own.relname::text, "
    + _NAMES.format(numbers="conkey", relation="conrelid")
    + ", target.relname::text, "
    + _NAMES.format(numbers="confkey", relation="confrelid")
    + ", conname::text FROM pg_constraint JOIN pg_class AS own ON own.oid = conrelid"
    " JOIN pg_class AS target ON target.oid = confrelid WHERE contype = 'f'"
    f" AND connamespace = to_regnamespace(%s) AND starts_with(conname, '{KEY_PREFIX}')"
)
_SECURED: Final = (
    "SELECT text FROM pg_class, LATERAL (VALUES"
    " (relrowsecurity, 'ALTER TABLE {table} ENABLE ROW LEVEL SECURITY'),"
    " (relforcerowsecurity, 'ALTER TABLE {table} FORCE ROW LEVEL SECURITY')) AS v (is_on, text)"
    " WHERE pg_class.oid = to_regclass(%s) AND is_on"
)
_POLICIES: Final = (
    "SELECT 'policy ' || policyname, 'CREATE POLICY ' || quote_ident(policyname)"
    " || ' ON {table} AS ' || permissive || ' FOR ' || cmd || ' TO '"
    " || (SELECT string_agg(CASE r WHEN 'public' THEN 'PUBLIC' ELSE quote_ident(r) END, ', ')"
    " FROM unnest(roles) AS r)"
    " || coalesce(' USING (' || qual || ')', '')"
    " || coalesce(' WITH CHECK (' || with_check || ')', '')"
    " FROM pg_policies WHERE format('%%I.%%I', schemaname, tablename)::regclass = to_regclass(%s)"
)
_TRIGGERS: Final = (
    "SELECT tgname FROM pg_trigger WHERE tgrelid = to_regclass(%s) AND NOT tgisinternal"
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
        except psycopg.errors.ForeignKeyViolation as error:
            self.close()
            raise KeysViolated(_one_line(error)) from error
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
        if parameters:  # with which a % of a name would be a placeholder
            schema = quote_name(self._schema)
            sql = sql.replace(schema, schema.replace("%", "%%"))
        return self._connection.execute(sql.encode(), tuple(parameters) or None)

    def read_additions(self, name: str) -> list[Addition]:
        place = (self.qualify(name),)
        found = list[Addition]()
        for shown, query in (("rights", _RIGHTS), ("row-level security", _SECURED)):
            statements = tuple(text for (text,) in self.run(query, place * query.count("%s")))
            if statements:
                found.append(Addition(shown, statements))
        for shown, text, columns in self.run(_COLUMN_RIGHTS, place):
            found.append(Addition(shown, (text,), columns=(columns,)))
        for shown, text, column in self.run(_COMMENTS, place):
            found.append(Addition(shown, (text,), columns=(column,) if column else ()))
        for own, is_unique, definition in self.run(_INDEXES, place):
            kind = "CREATE UNIQUE INDEX" if is_unique else "CREATE INDEX"
            using = definition.partition(" USING ")[2]
            statement = f"{kind} {{name}} ON {{table}} USING {using}"
            found.append(Addition(f"index {own}", (statement,), renames=own))
        for shown, text in self.run(_POLICIES, place):
            found.append(Addition(shown, (text,)))
        for (own,) in self.run(_TRIGGERS, place):
            found.append(Addition(f"trigger {own}", ()))
        return found

    def tries(self, statements: Sequence[str]) -> bool:
        try:
            with self._connection.transaction():
                for statement in statements:
                    self.run(statement)
        except psycopg.OperationalError:
            raise
        except psycopg.Error:
            return False
        return True

    def rename(self, name: str, to: str) -> None:
        """Rename the constraint of its primary key, too, which others see in errors and plans."""
        super().rename(name, to)
        table = self.qualify(to)
        for (key,) in self.run(_PRIMARY_KEY, (table,)):
            named = quote_name(f"{to[:KEY_NAME_LENGTH_MAX]}_pkey")  # as PostgreSQL would name it
            self.tries([f"ALTER TABLE {table} RENAME CONSTRAINT {quote_name(key)} TO {named}"])

    def admit_readers(self, name: str) -> None:
        for (role,) in self.run(_READERS, (self._schema,)):
            self.run(f"GRANT SELECT ON {self.qualify(name)} TO {role}")

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

    def constrain(self, name: str, change: ConstraintChange) -> None:
        words = ((change.optional, "DROP"), (change.required, "SET"))
        parts = [f"ALTER COLUMN {quote_name(c)} {word} NOT NULL" for cs, word in words for c in cs]
        if parts:
            self.run(f"ALTER TABLE {self.qualify(name)} {', '.join(parts)}")
        for key in change.dropped:
            self._drop_foreign_key(key)
        for key in change.added:
            self._add_foreign_key(key)

    def read_foreign_keys(self, names: Collection[str]) -> list[PlainForeignKey]:
        return [
            PlainForeignKey(table, tuple(columns), target, tuple(target_columns), name)
            for table, columns, target, target_columns, name in self.run(
                _FOREIGN_KEYS, (quote_name(self._schema),)
            )
            if table in names
        ]

    def _add_foreign_key(self, key: PlainForeignKey) -> None:
        """Each deleted row looks for rows that refer to it, so the columns have an index. One of
        others that has its name is in the way."""
        table, name = self.qualify(key.table), quote_name(key.name)
        columns = quote_names(key.columns)
        if not self._has_index_of(key):
            self.run(f"CREATE INDEX {name} ON {table} ({columns})")
        self.run(
            f"ALTER TABLE {table} ADD CONSTRAINT {name} FOREIGN KEY ({columns}) REFERENCES"
            f" {self.qualify(key.target)} ({quote_names(key.target_columns)})"
            " DEFERRABLE INITIALLY DEFERRED"
        )

    def _drop_foreign_key(self, key: PlainForeignKey) -> None:
        self.run(f"ALTER TABLE {self.qualify(key.table)} DROP CONSTRAINT {quote_name(key.name)}")
        if self._has_index_of(key):
            self.run(f"DROP INDEX {self.qualify(key.name)}")

    def _has_index_of(self, key: PlainForeignKey) -> bool:
        """Whether an index with the name of a foreign key is on its columns, too."""
        found = self.run(_INDEXED, (self.qualify(key.name), self.qualify(key.table)))
        return [tuple(columns or ()) for (columns,) in found] == [key.columns]

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
