"""The schema of a PostgreSQL database that zapdb's tables are in, and their names in statements.

The law: no statement depends on a session's search path. That begins with `"$user"`, so a schema
with the role's name that somebody makes later would hide the tables; and behind a pooler that gives
each transaction another session, nothing that was set in one holds for the next.

So the schema is found once: it is the one that the address names, or else the one on the search
path that has the table of the storage version. All statements are written without it, and every
one gets it on its way to the driver: by `HomeCursor`, which SQLAlchemy and Alembic use, too, and in
`pipeline`, which has no cursor.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any, Final

import psycopg
from sqlalchemy.engine import URL

from zapdb.errors import UsageError
from zapdb.limits import NAME_LENGTH_MAX, STATEMENTS_NAMED_MAX
from zapdb.storage.fixed_tables import METADATA, VERSION_TABLE

SCHEMA: Final = "schema"
"""An option of zapdb's in an address; libpq does not know it."""

SCRATCH: Final = "zapdb_scratch"
"""A table on which the features of a server are tried."""

_OTHERS: Final = (VERSION_TABLE, SCRATCH, "zapdb_commit_order")
_ENDS: Final = "|".join(name.removeprefix("zapdb_") for name in (*METADATA.tables, *_OTHERS))
# It begins with what it looks for: then most of a long statement is passed over ten times faster.
OWN_NAMES: Final = re.compile(
    rf'zapdb_(?<![\w."]zapdb_)(?<!RENAME TO zapdb_)(?:{_ENDS}|records_[0-9]+|entries_[0-9]+)(?!\w)'
)
"""The names of zapdb's tables and sequences in a statement, where no schema stands before them:
also as a text, which the server reads as the name of a table (`regclass`). A table keeps its schema
when it is renamed, so the new name has none."""

_REFUSED: Final = re.compile(r"['\"%\\\x00-\x1f\x7f]")
_FIND: Final = (
    "SELECT n.nspname::text FROM pg_catalog.pg_class AS c JOIN pg_catalog.pg_namespace AS n"
    " ON n.oid = c.relnamespace WHERE c.relname = %s AND c.relkind IN ('r', 'p')"
)
_ON_PATH: Final = (
    " AND n.nspname = ANY (current_schemas(false))"
    " ORDER BY array_position(current_schemas(false), n.nspname)"
)


class HomeSchema:
    """The schema, once it is known. Thread-safe: all threads find the same one."""

    def __init__(self, given: str | None = None) -> None:
        self.given = given
        """The schema that the address names."""
        self.name = given
        self._qualify: Callable[[str], str] | None = None
        if given is not None:
            self._know(given)

    def qualify(self, sql: str, driver: Any) -> str:
        """Return a statement with the schema before each name of zapdb's; the schema is looked for
        first, on the driver's connection, if that was not done yet."""
        if self._qualify is None:
            if OWN_NAMES.search(sql) is None or self.find(driver) is None:
                return sql
            assert self._qualify is not None
        return self._qualify(sql)

    def find(self, driver: Any) -> str | None:
        """Return the schema that has the table of the storage version; None if there is none.

        Raises `UsageError` if several schemas of the search path have it.
        """
        with psycopg.Cursor(driver) as cursor:
            if self.name is not None:
                found = cursor.execute(f"{_FIND} AND n.nspname = %s", (VERSION_TABLE, self.name))
                return None if found.fetchone() is None else self.name
            rows = cursor.execute(_FIND + _ON_PATH, (VERSION_TABLE,)).fetchall()
        names = [str(name) for (name,) in rows]
        if len(names) > 1:
            raise UsageError(
                "several schemas of the search path have zapdb's tables",
                schemas=", ".join(names),
                hint=f"name one in the address: …?{SCHEMA}={names[-1]}",
            )
        if names:
            self._know(names[0])
        return self.name

    def find_elsewhere(self, driver: Any) -> list[str]:
        """Return the schemas that have zapdb's tables, wherever they are."""
        with psycopg.Cursor(driver) as cursor:
            rows = cursor.execute(_FIND + " ORDER BY 1", (VERSION_TABLE,)).fetchall()
        return [str(name) for (name,) in rows]

    def settle(self, driver: Any) -> None:
        """Choose the schema in which tables are to be made; one that the address names is made if
        it is missing. Raises `UsageError` if there is none."""
        with psycopg.Cursor(driver) as cursor:
            if self.name is not None:
                asked = "SELECT 1 FROM pg_catalog.pg_namespace WHERE nspname = %s"
                if cursor.execute(asked, (self.name,)).fetchone() is None:
                    cursor.execute(f'CREATE SCHEMA "{self.name}"')
                return
            found = cursor.execute("SELECT current_schema()::text").fetchone()
        if found is None or found[0] is None:
            raise UsageError(
                "no schema of the search path exists",
                hint=f"name one in the address: …?{SCHEMA}=NAME",
            )
        self._know(str(found[0]))

    def unsettle(self) -> None:
        """Forget a schema that was chosen, and in which nothing was made."""
        if self.given is None:
            self.name = self._qualify = None

    def _know(self, name: str) -> None:
        whole = partial(OWN_NAMES.sub, rf'"{name}".\g<0>')
        self._qualify = lru_cache(STATEMENTS_NAMED_MAX)(whole)
        self.name = name


def split_schema(url: URL) -> tuple[URL, str | None]:
    """Return the address for libpq, and the schema that it names; raises `UsageError`."""
    name = url.query.get(SCHEMA)
    if name is None:
        return url, None
    if not isinstance(name, str) or not name or _REFUSED.search(name):
        raise UsageError(
            "this is not the name of a schema",
            option=SCHEMA,
            hint="give one name, without quotes, % and backslashes",
        )
    if len(name.encode()) > NAME_LENGTH_MAX:
        raise UsageError(
            "the name of the schema is too long",
            option=SCHEMA,
            longest=NAME_LENGTH_MAX,
            hint="PostgreSQL cuts longer names",
        )
    return url.difference_update_query([SCHEMA]), name


def make_cursor_class(home: HomeSchema) -> type[psycopg.Cursor[Any]]:
    """Return the class of the cursors of an engine's connections."""

    class HomeCursor(psycopg.Cursor[Any]):
        def execute(self, query: Any, *args: Any, **options: Any) -> Any:
            return super().execute(_qualified(query, self), *args, **options)

        def executemany(self, query: Any, *args: Any, **options: Any) -> Any:
            return super().executemany(_qualified(query, self), *args, **options)

        def copy(self, statement: Any, *args: Any, **options: Any) -> Any:
            return super().copy(_qualified(statement, self), *args, **options)

    def _qualified(query: Any, cursor: psycopg.Cursor[Any]) -> Any:
        return home.qualify(query, cursor.connection) if isinstance(query, str) else query

    return HomeCursor
