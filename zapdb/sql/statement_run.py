"""Running one statement: its tables are found, offered to DuckDB, and read as of one moment."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from zapdb.errors import SqlError, UnknownName
from zapdb.past.files.file_columns import column_name
from zapdb.past.reading.names_at import explain_sql
from zapdb.past.reading.past_session import PastSession
from zapdb.past.reading.replaced_files import retry_if_compacted
from zapdb.past.reading.stored_files import RelationFiles
from zapdb.past.reading.stored_versions import OWN_COLUMNS, StoredVersions
from zapdb.schema import TableSchema
from zapdb.sql.allowance import StatementLimits
from zapdb.sql.asking import FilesUnread, run_in_sandbox
from zapdb.sql.audit_relation import AUDIT, AUDIT_COLUMNS, AuditSource, give_stamps
from zapdb.sql.catalog_at import read_relation_at
from zapdb.sql.duckdb_types import stored_view_sql, view_sql
from zapdb.sql.parameters import Parameters, check_parameters, check_text
from zapdb.sql.past_relations import (
    MOMENTS,
    MOMENTS_COLUMNS,
    VERSIONS,
    MomentsSource,
    list_past_relations,
)
from zapdb.sql.relations import RELATIONS
from zapdb.sql.result import Result
from zapdb.sql.sources import HeldSource, Source, TableSource
from zapdb.tables.session import Session

if TYPE_CHECKING:
    from zapdb.past.reading.stored_columns import StoredColumns

_WORD: Final = re.compile(r"[a-z0-9_]+")
SHOW_TABLES: Final = re.compile(r"\s*show\s+(all\s+)?tables\s*;?\s*", re.IGNORECASE)


def run_sql(
    session: Session,
    statement: str,
    parameters: Parameters,
    as_text: Collection[str],
    allowance: StatementLimits,
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
    if AUDIT in _find_words(statement) and session.shows_catalog:
        give_stamps(session)

    def run() -> Result:
        with as_of_one_moment(session):
            for turn in (1, 2):
                offer = _Inputs(session, as_text)
                offer.offer(statement)
                try:
                    return run_in_sandbox(statement, values, offer, allowance)
                except FilesUnread as unread:
                    error = unread.error
                if turn == 1 and not (isinstance(session, PastSession) and session.renew_columns()):
                    break
            offer.require_whole()
            raise error

    try:
        return retry_if_compacted(session, run)
    except SqlError as error:
        if isinstance(session, PastSession):
            explain_sql(session, _find_words(statement), VERSIONS, error)
        raise


@contextmanager
def as_of_one_moment(session: Session) -> Iterator[None]:
    """The snapshot or transaction that the thread is in, or a snapshot of its own."""
    if session.storage.is_in_transaction:
        yield
        return
    with session.snapshot():
        yield


class _Inputs:
    """The tables that one statement names, and views that give them the types of SQL."""

    def __init__(self, session: Session, as_text: Collection[str]) -> None:
        self._session = session
        self._as_text = as_text
        self._relations = list_relations(session)
        self._check_as_text()
        self.names = (*session.table_names, *self._relations)
        self.sources: list[tuple[str, Source]] = []
        self.files: dict[str, RelationFiles] = {}
        self.large: list[str] = []
        self.views: list[str] = []
        self._versions: list[StoredVersions] = []

    def require_whole(self) -> None:
        """Raise `HistoryDamaged` if a file with versions is not what was written."""
        for stored in self._versions:
            damage = stored.find_damage()
            if damage is not None:
                raise damage

    def offer(self, statement: str) -> None:
        """Those whose names are among the statement's words: what it reads, and more at times.

        What is offered and not read costs nothing but the making of its columns.
        """
        words = _find_words(statement)
        for name in self.names:
            if name in words:
                self._offer(name)

    def _offer(self, name: str) -> None:
        offered = f"zapdb_source_{name}"
        source: Source
        if name == MOMENTS and isinstance(self._session, PastSession):
            source = MomentsSource(self._session)
            columns = [(column, kind, False) for column, kind in MOMENTS_COLUMNS.items()]
        elif name.startswith(VERSIONS) and isinstance(self._session, PastSession):
            self._offer_versions(name, self._session)
            return
        elif name == AUDIT:
            source = AuditSource(self._session)
            columns = [(column, kind, False) for column, kind in AUDIT_COLUMNS.items()]
        elif name in self._relations:
            relation, connection = RELATIONS[name], self._session.storage.connection()
            if isinstance(self._session, PastSession):
                held = read_relation_at(self._session, connection, relation)
            else:
                held = relation.to_arrow(connection, self._session.catalog)
            source = HeldSource(held)
            columns = [(column, kind, False) for column, kind in relation.columns.items()]
        else:
            if isinstance(self._session, PastSession):
                stored = self._session.open_columns(name)
                if stored is not None:
                    self._offer_stored(name, stored)
                    return
            bound = self._session.bind_served(name)
            texts = self._fields_as_text(bound.adapter.schema)
            source = TableSource(self._session, bound, texts)
            columns = [(f.name, f.type, f.name in texts) for f in bound.adapter.schema.fields]
        self.sources.append((offered, source))
        self.views.append(view_sql(name, offered, columns))

    def _offer_stored(self, name: str, stored: StoredColumns) -> None:
        """A table at a moment, most of which is in files."""
        texts = self._fields_as_text(stored.schema)
        sql, files, sources = stored.offer(self._session.storage.connection(), texts)
        self.files |= files
        self.sources += sources.items()
        self.large += [f"{name}.{field}" for field in stored.large if field not in texts]
        columns = [(f.name, column_name(f), f.type, f.name in texts) for f in stored.schema.fields]
        self.views.append(stored_view_sql(name, sql, columns))

    def _offer_versions(self, name: str, session: PastSession) -> None:
        """All versions of a table up to a moment."""
        stored = StoredVersions(session, session.then.find(name.removeprefix(VERSIONS)))
        texts = self._fields_as_text(stored.schema)
        sql, files, tables = stored.offer()
        self._versions.append(stored)
        self.files |= files
        self.sources += [(relation, HeldSource(rows)) for relation, rows in tables.items()]
        columns = [(f.name, column_name(f), f.type, f.name in texts) for f in stored.schema.fields]
        columns += [(own, own, kind, False) for own, kind in OWN_COLUMNS]
        self.views.append(stored_view_sql(name, sql, columns))

    def _fields_as_text(self, schema: TableSchema) -> list[str]:
        """The fields of a table that `as_text` names, as `table.field`."""
        prefix = f"{schema.name}."
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
    """Return the names of the relations of the catalog and of the change log, if the session shows
    them; those of a past."""
    if isinstance(session, PastSession):
        return list_past_relations(session)
    return (*RELATIONS, AUDIT) if session.shows_catalog else ()


def _find_words(statement: str) -> set[str]:
    return set(_WORD.findall(statement.lower()))
