"""Running one statement: its tables are found, offered to DuckDB, and read as of one moment."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

import duckdb

from zapdb.catalog import View
from zapdb.database.session import Session
from zapdb.database.sql.engine import (
    BIND,
    check_statement,
    explain_error,
    has_place,
    open_cursor,
)
from zapdb.database.sql.relations import RELATIONS
from zapdb.database.sql.result import Result
from zapdb.database.sql.sources import TableSource
from zapdb.database.sql.types import view_sql
from zapdb.errors import InvalidValue, SqlError, UnknownName
from zapdb.indexes import LiveTable

Parameters = Sequence[Any] | Mapping[str, Any] | None

WORD: Final = re.compile(r"[a-z0-9_]+")
SHOW_TABLES: Final = re.compile(r"\s*show\s+(all\s+)?tables\s*;?\s*", re.IGNORECASE)


def run_sql(
    session: Session, statement: str, parameters: Parameters, as_text: Collection[str]
) -> Result:
    """The answer of a statement, held in memory as a whole; its tables are streams.

    Raises `SqlError`, `UsageError` for what is no SELECT, and whatever reading a table raises.
    """
    if not isinstance(statement, str):
        raise InvalidValue.of("statement", "the text of an SQL statement", statement)
    if isinstance(parameters, str | bytes):
        raise InvalidValue.of("params", "a list of values, or a mapping of names", parameters)
    if SHOW_TABLES.fullmatch(statement):
        statement = "SELECT unnest($1) AS name"
        parameters = [[*list_tables(session), *RELATIONS]]
    check_statement(statement)
    with _as_of_one_moment(session), _Offer(session, as_text) as offer:
        return offer.answer(statement, parameters)


@contextmanager
def _as_of_one_moment(session: Session) -> Iterator[None]:
    """The snapshot or transaction that the thread is in, or a snapshot of its own."""
    if session.storage.is_in_transaction:
        yield
        return
    with session.snapshot():
        yield


class _Offer:
    """A cursor with the tables that one statement names."""

    def __init__(self, session: Session, as_text: Collection[str]) -> None:
        self._session = session
        self._as_text = as_text
        self._sources: list[TableSource] = []
        self._tables = list_tables(session)
        self._check_as_text()

    def __enter__(self) -> _Offer:
        self._cursor = open_cursor()
        return self

    def __exit__(self, *_: object) -> None:
        self._cursor.close()

    def answer(self, statement: str, parameters: Parameters) -> Result:
        given = dict(parameters) if isinstance(parameters, Mapping) else parameters
        try:
            for name in self._names_in(statement):
                self._offer(name)
            return Result.read(self._cursor.sql(statement, params=given))
        except (duckdb.Error, RuntimeError) as error:
            # An error of ours that came through DuckDB came as one of its own.
            failure = next((s.failure for s in self._sources if s.failure is not None), None)
            if failure is not None:
                raise failure from None
            if not isinstance(error, duckdb.Error):
                if "interrupted" in str(error):  # by Ctrl-C, which DuckDB took
                    raise KeyboardInterrupt from None
                raise
            raise self._explain(error, statement, given) from None

    def _explain(self, error: duckdb.Error, statement: str, parameters: Any) -> SqlError:
        """What is wrong with the statement; where is found out, if DuckDB left it out."""
        tables = (*self._tables, *RELATIONS)
        if not has_place(error):
            try:
                self._cursor.execute(BIND + statement, parameters)
            except duckdb.Error as again:
                if has_place(again):
                    return explain_error(again, BIND + statement, tables, lead=len(BIND))
        return explain_error(error, statement, tables)

    def _names_in(self, statement: str) -> list[str]:
        """The tables whose names are among the statement's words: what it reads, and more at times.

        What is offered and not read costs nothing but the making of its columns.
        """
        words = set(WORD.findall(statement.lower()))
        return [name for name in (*self._tables, *RELATIONS) if name in words]

    def _offer(self, name: str) -> None:
        source = f"zapdb_source_{name}"
        if name in RELATIONS:
            relation, connection = RELATIONS[name], self._session.storage.connection()
            self._cursor.register(source, relation.to_arrow(connection, self._view))
            columns = [(column, kind, False) for column, kind in relation.columns.items()]
        else:
            live = self._session.live(name)
            texts = self._texts_of(live)
            table = TableSource(self._session, live, texts)
            self._sources.append(table)
            self._cursor.register(source, table)
            columns = [(f.name, f.type, f.name in texts) for f in live.shape.table.fields]
        self._cursor.execute(view_sql(name, source, columns))

    @property
    def _view(self) -> View:
        return self._session.view

    def _texts_of(self, live: LiveTable) -> list[str]:
        """The fields of a table that `as_text` names, as `table.field`."""
        prefix = f"{live.shape.table.name}."
        return [path.removeprefix(prefix) for path in self._as_text if path.startswith(prefix)]

    def _check_as_text(self) -> None:
        for path in self._as_text:
            table, _, field = path.partition(".")
            names = [f.name for f in self._session.live(table).shape.table.fields]
            if field not in names:
                raise UnknownName(
                    "as_text names a field as `table.field`", field=path, fields=", ".join(names)
                )


def list_tables(session: Session) -> tuple[str, ...]:
    """The names of the tables, in the shapes that the application works with."""
    view, serves = session.view, session.serves
    if serves is None or serves >= view.position:
        return tuple(view.tables)
    return tuple(table.name for table in view.chain.schema_at(serves))
