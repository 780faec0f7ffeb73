"""Running one statement: its tables are found, offered to DuckDB, and read as of one moment."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Final

from zapdb.database.session import Session
from zapdb.database.sql.allowance import Allowance
from zapdb.database.sql.asking import ask
from zapdb.database.sql.parameters import Parameters, check_parameters, check_text
from zapdb.database.sql.relations import RELATIONS
from zapdb.database.sql.result import Result
from zapdb.database.sql.sandbox.wire import pack_schema
from zapdb.database.sql.sources import HeldSource, Source, TableSource
from zapdb.database.sql.types import view_sql
from zapdb.errors import UnknownName
from zapdb.indexes import BoundTable

_WORD: Final = re.compile(r"[a-z0-9_]+")
SHOW_TABLES: Final = re.compile(r"\s*show\s+(all\s+)?tables\s*;?\s*", re.IGNORECASE)


def run_sql(
    session: Session,
    statement: str,
    parameters: Parameters,
    as_text: Collection[str],
    allowance: Allowance,
) -> Result:
    """The answer of a statement, held in memory as a whole; its tables are streams.

    Raises `SqlError`, `UsageError` for a statement other than SELECT, and the errors of reading a
    table.
    """
    check_text(statement, "statement")
    values = check_parameters(parameters)
    if SHOW_TABLES.fullmatch(statement):
        statement = "SELECT unnest($1) AS name"
        values = [[*session.table_names, *list_relations(session)]]
    with _as_of_one_moment(session):
        offer = _Offer(session, as_text)
        offer.offer(statement)
        return ask(statement, values, offer, allowance)


@contextmanager
def _as_of_one_moment(session: Session) -> Iterator[None]:
    """The snapshot or transaction that the thread is in, or a snapshot of its own."""
    if session.storage.is_in_transaction:
        yield
        return
    with session.snapshot():
        yield


class _Offer:
    """The tables that one statement names, and views that give them the types of SQL."""

    def __init__(self, session: Session, as_text: Collection[str]) -> None:
        self._session = session
        self._as_text = as_text
        self._relations = list_relations(session)
        self._check_as_text()
        self.names = (*session.table_names, *self._relations)
        self.sources: list[Source] = []
        self.offered: list[tuple[str, bytes, str]] = []
        """Name, schema and view of each source."""

    def offer(self, statement: str) -> None:
        """Those whose names are among the statement's words: what it reads, and more at times.

        What is offered and not read costs nothing but the making of its columns.
        """
        words = set(_WORD.findall(statement.lower()))
        for name in self.names:
            if name in words:
                self._offer(name)

    def _offer(self, name: str) -> None:
        source: Source
        if name in self._relations:
            relation, connection = RELATIONS[name], self._session.storage.connection()
            source = HeldSource(relation.to_arrow(connection, self._session.catalog))
            columns = [(column, kind, False) for column, kind in relation.columns.items()]
        else:
            bound = self._session.bind_served(name)
            texts = self._fields_as_text(bound)
            source = TableSource(self._session, bound, texts)
            columns = [(f.name, f.type, f.name in texts) for f in bound.adapter.schema.fields]
        offered = f"zapdb_source_{name}"
        self.sources.append(source)
        self.offered.append((offered, pack_schema(source.schema), view_sql(name, offered, columns)))

    def _fields_as_text(self, bound: BoundTable) -> list[str]:
        """The fields of a table that `as_text` names, as `table.field`."""
        prefix = f"{bound.adapter.schema.name}."
        return [path.removeprefix(prefix) for path in self._as_text if path.startswith(prefix)]

    def _check_as_text(self) -> None:
        for path in self._as_text:
            table, _, field = path.partition(".")
            names = [f.name for f in self._session.bind_served(table).adapter.schema.fields]
            if field not in names:
                raise UnknownName(
                    "as_text takes fields as `table.field`", field=path, fields=", ".join(names)
                )


def list_relations(session: Session) -> Collection[str]:
    """Return the names of the catalog's relations, if the session shows it."""
    return RELATIONS if session.shows_catalog else ()
