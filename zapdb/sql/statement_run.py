"""Running one statement: its tables are found, offered to DuckDB, and read as of one moment.

Columns come to DuckDB as Arrow has them (see `records.arrow.columns`): a UUID is 16 bytes, JSON is
text, a member of an enum its name. A view casts them to their types. Only values that DuckDB takes
exactly are accepted as parameters.
"""

from __future__ import annotations

import datetime
import decimal
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from zapdb.errors import InvalidValue, SqlError, UnknownName
from zapdb.limits import JSON_DEPTH_MAX
from zapdb.past.files.file_columns import column_name
from zapdb.past.reading.names_at import explain_sql
from zapdb.past.reading.past_session import PastSession
from zapdb.past.reading.replaced_files import retry_if_compacted
from zapdb.past.reading.stored_versions import OWN_COLUMNS, StoredVersions
from zapdb.sandbox.inside.carried import quote_identifier
from zapdb.schema import TableSchema
from zapdb.sql.past_relations import (
    AUDIT,
    AUDIT_COLUMNS,
    MOMENTS,
    MOMENTS_COLUMNS,
    VERSIONS,
    AuditSource,
    MomentsSource,
    give_stamps,
    list_past_relations,
    read_relation_at,
)
from zapdb.sql.relations import RELATIONS
from zapdb.sql.result import Result
from zapdb.sql.sandboxed_statement import (
    FilesUnread,
    StatementLimits,
    StatementTables,
    run_in_sandbox,
)
from zapdb.sql.sources import HeldSource, Source, TableSource
from zapdb.tables.session import Session
from zapdb.values import Decimal, Enum, Integer, List, Reference, Struct, ValueType, ZonedTimestamp
from zapdb.values.plain_kinds import DECIMAL_DIGITS_MAX, sql_name

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
                offer = _Offer(session, as_text)
                offer.add_named(statement)
                try:
                    return run_in_sandbox(statement, values, offer.tables, allowance)
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


class _Offer:
    """Collects the tables that one statement names."""

    def __init__(self, session: Session, as_text: Collection[str]) -> None:
        self._session = session
        self._as_text = as_text
        self._relations = list_relations(session)
        self._check_as_text()
        self.tables = StatementTables((*session.table_names, *self._relations))
        self._versions: list[StoredVersions] = []

    def require_whole(self) -> None:
        """Raise `HistoryDamaged` if a file with versions is not what was written."""
        for stored in self._versions:
            damage = stored.find_damage()
            if damage is not None:
                raise damage

    def add_named(self, statement: str) -> None:
        """Add those whose names are among the statement's words: what it reads, and more at times.

        What is offered and not read costs nothing but the making of its columns.
        """
        words = _find_words(statement)
        for name in self.tables.names:
            if name in words:
                self._add(name)

    def _add(self, name: str) -> None:
        offered = f"zapdb_source_{name}"
        source: Source
        if name == MOMENTS and isinstance(self._session, PastSession):
            source = MomentsSource(self._session)
            columns = [(column, kind, False) for column, kind in MOMENTS_COLUMNS.items()]
        elif name.startswith(VERSIONS) and isinstance(self._session, PastSession):
            self._add_versions(name, self._session)
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
                    self._add_stored(name, stored)
                    return
            bound = self._session.bind_served(name)
            texts = self._fields_as_text(bound.adapter.schema)
            source = TableSource(self._session, bound, texts)
            columns = [(f.name, f.type, f.name in texts) for f in bound.adapter.schema.fields]
        self.tables.sources.append((offered, source))
        self.tables.views.append(view_sql(name, offered, columns))

    def _add_stored(self, name: str, stored: StoredColumns) -> None:
        """A table at a moment, most of which is in files."""
        texts = self._fields_as_text(stored.schema)
        sql, files, sources = stored.offer(self._session.storage.connection(), texts)
        self.tables.files.update(files)
        self.tables.sources.extend(sources.items())
        self.tables.large.extend(f"{name}.{field}" for field in stored.large if field not in texts)
        columns = [(f.name, column_name(f), f.type, f.name in texts) for f in stored.schema.fields]
        self.tables.views.append(stored_view_sql(name, sql, columns))

    def _add_versions(self, name: str, session: PastSession) -> None:
        """All versions of a table up to a moment."""
        stored = StoredVersions(session, session.then.find(name.removeprefix(VERSIONS)))
        texts = self._fields_as_text(stored.schema)
        sql, files, tables = stored.offer()
        self._versions.append(stored)
        self.tables.files.update(files)
        self.tables.sources.extend(
            (relation, HeldSource(rows)) for relation, rows in tables.items()
        )
        columns = [(f.name, column_name(f), f.type, f.name in texts) for f in stored.schema.fields]
        columns += [(own, own, kind, False) for own, kind in OWN_COLUMNS]
        self.tables.views.append(stored_view_sql(name, sql, columns))

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


def sql_type(kind: ValueType, *, as_text: bool = False) -> str:
    """The type of a column; with `as_text` all numbers in it are strings."""
    match kind:
        case Integer() | Decimal() if as_text or _is_long(kind):
            return sql_name("text", "duckdb")
        case Decimal(scale):
            return sql_name("decimal", "duckdb", scale)
        case ZonedTimestamp():
            return "STRUCT(local TIMESTAMP, fold TINYINT, zone VARCHAR, instant TIMESTAMPTZ)"
        case Enum(members=members):
            names = (name.replace("'", "''") for _, name in members)
            return "ENUM('" + "', '".join(names) + "')"
        case Reference(key=(only,)):
            return sql_type(only, as_text=as_text)
        case Reference(key=key):
            shown = (sql_type(part, as_text=as_text) for part in key)
            return f"STRUCT({', '.join(f'key_{at} {part}' for at, part in enumerate(shown))})"
        case List(items):
            return f"{sql_type(items, as_text=as_text)}[]"
        case Struct(members=parts):
            named = (
                f"{quote_identifier(m.name)} {sql_type(m.type, as_text=as_text)}" for m in parts
            )
            return f"STRUCT({', '.join(named)})"
    return sql_name(kind.plain_kind, "duckdb")


def _is_long(kind: ValueType) -> bool:
    return isinstance(kind, Decimal) and kind.scale > DECIMAL_DIGITS_MAX


def needs_cast(kind: ValueType) -> bool:
    """Whether the type has values that Arrow brings as something else."""
    match kind:
        case Enum():
            return True
        case ZonedTimestamp():
            return False
        case Reference(key=targets):
            return any(map(needs_cast, targets))
        case List(items):
            return needs_cast(items)
        case Struct(members=members):
            return any(needs_cast(member.type) for member in members)
    return kind.plain_kind in ("uuid", "json")


def view_sql(name: str, source: str, columns: Iterable[tuple[str, ValueType, bool]]) -> str:
    """Return the view of this name: the columns (name, type, as_text) of a source, cast to their
    types."""
    parts = []
    for column, kind, as_text in columns:
        part = quote_identifier(column)
        if needs_cast(kind):
            part = f"CAST({part} AS {sql_type(kind, as_text=as_text)}) AS {part}"
        parts.append(part)
    view, scanned = quote_identifier(name), quote_identifier(source)
    return f"CREATE TEMP VIEW {view} AS SELECT {', '.join(parts)} FROM {scanned}"


def stored_view_sql(
    name: str, select: str, columns: Iterable[tuple[str, str, ValueType, bool]]
) -> str:
    """Return the view of this name: columns (name, column, type, as_text) of a SELECT, each cast to
    its type: a file may have numbers as text."""
    parts = [
        f"CAST({quote_identifier(column)} AS {sql_type(kind, as_text=as_text)})"
        f" AS {quote_identifier(field)}"
        for field, column, kind, as_text in columns
    ]
    return f"CREATE TEMP VIEW {quote_identifier(name)} AS SELECT {', '.join(parts)} FROM ({select})"


_INTEGER_MIN: Final = -(1 << 127)
INTEGER_END: Final = 1 << 128
_DIGITS: Final = 38
AS_THEY_ARE: Final = (bool, float, bytes, datetime.date, datetime.timedelta, UUID)

Parameters = Sequence[Any] | Mapping[str, Any] | None


def check_parameters(parameters: Any) -> list[Any] | dict[str, Any] | None:
    """They, as plain values; raises `InvalidValue`, which names the first that is none."""
    if parameters is None:
        return None
    if isinstance(parameters, Mapping):
        return {
            check_text(name, "params"): _check(value, f"params.{name!s:.40}", 1)
            for name, value in parameters.items()
        }
    if isinstance(parameters, str | bytes) or not isinstance(parameters, Sequence):
        raise InvalidValue.of("params", "a list of values, or a mapping of names", parameters)
    return [_check(value, f"params[{at}]", 1) for at, value in enumerate(parameters)]


def check_text(text: Any, path: str) -> str:
    """Text that UTF-8 has."""
    if not isinstance(text, str):
        raise InvalidValue.of(path, "text", text)
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InvalidValue.of(path, "text without lone surrogates", text) from None
    return str(text)


def _check(value: Any, path: str, depth: int) -> Any:
    if depth > JSON_DEPTH_MAX:
        raise InvalidValue.of(path, f"a value of no more than {JSON_DEPTH_MAX} levels", "deeper")
    kind = type(value)
    if value is None or kind in AS_THEY_ARE:
        return value
    if isinstance(value, str):
        return check_text(value, path)
    if kind in _CHECKS:
        return _CHECKS[kind](value, path)
    if isinstance(value, Mapping):
        return {
            check_text(name, path): _check(part, f"{path}.{name!s:.40}", depth + 1)
            for name, part in value.items()
        }
    if kind in (list, tuple):
        return [_check(part, f"{path}[{at}]", depth + 1) for at, part in enumerate(value)]
    raise InvalidValue.of(
        path,
        "None, or a bool, int, float, Decimal, str, bytes, date, datetime, UUID, list or dict",
        value,
    )


def _check_integer(value: int, path: str) -> int:
    if _INTEGER_MIN <= value < INTEGER_END:
        return value
    raise InvalidValue.of(path, "an integer of up to 128 bits", value)


def _check_time_of_day(value: datetime.time, path: str) -> datetime.time:
    if value.tzinfo is None:
        return value
    raise InvalidValue.of(path, "a time without a zone", value)


def _check_time(value: datetime.datetime, path: str) -> datetime.datetime:
    """One with a zone goes as an instant: the process of the statement has no zones."""
    if value.tzinfo is None:
        return value
    try:
        return value.astimezone(datetime.UTC)
    except OverflowError:
        raise InvalidValue.of(path, "a time in the years 1 to 9999 of UTC", value) from None


def _check_decimal(value: decimal.Decimal, path: str) -> decimal.Decimal:
    _, digits, exponent = value.as_tuple()
    if (
        isinstance(exponent, int)
        and exponent >= -_DIGITS
        and len(digits) + max(exponent, 0) <= _DIGITS
    ):
        return value
    raise InvalidValue.of(path, "a decimal of up to 38 digits", value)


_CHECKS: Final[Mapping[type, Callable[[Any, str], Any]]] = {
    int: _check_integer,
    decimal.Decimal: _check_decimal,
    datetime.datetime: _check_time,
    datetime.time: _check_time_of_day,
}
"""What checks a value of exactly this type, whose place is given as a path."""
