"""Hints for a name that is unknown at a moment and was known at another one: what the table or
field was called then, or which migration made or dropped it."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import Final, NamedTuple

from zapdb.catalog.schema_history import RevisionEntry, read_entries
from zapdb.errors import SqlError, UnknownField, UnknownName
from zapdb.past.reading.past_session import CurrentSchemaSession, PastSession
from zapdb.past.reading.schema_at import TableAt
from zapdb.storage.cells import as_time
from zapdb.tables.changes import within_snapshot
from zapdb.tables.session import Session

_NO_TABLE: Final = re.compile(r"no such table: (\w+)")
_NO_FIELD: Final = re.compile(r"(?:[Cc]olumn|column named) \"(\w+)\"")


class _Time(NamedTuple):
    """The names of the tables at a time, by number; in microseconds, None for now."""

    tables: dict[int, str]
    time_us: int | None

    def tell(self, number: int) -> str:
        if self.time_us is None:
            return f"the table is called {self.tables[number]!r} now"
        return f"at that moment, the table was called {self.tables[number]!r}"


def explain_table_now(session: Session, error: UnknownName) -> None:
    """Give the error for a table that there is not now the hint what became of it."""
    names = {table.schema.number: name for name, table in session.catalog.tables.items()}
    hint = _hint_table(_read_entries(session), _Time(names, None), str(error.context.get("table")))
    error.hint = hint or error.hint


def explain_name(session: PastSession, error: UnknownName) -> None:
    """Give the error for a table or a field that there was not at the moment its hint."""
    table, hint = str(error.context.get("table")), ""
    if isinstance(error, UnknownField):
        hint = _hint_field(session, table, str(error.context.get("field")))
    elif table not in session.then.tables:
        hint = _hint_table(_read_entries(session), _time_of(session), table)
    error.hint = hint or error.hint


def explain_sql(
    session: PastSession, words: Collection[str], versions: str, error: SqlError
) -> None:
    """The same for a statement that names tables or columns which there were not: `words` are those
    of the statement, `versions` is the prefix of the relations with all versions of tables."""
    problem, hint = str(error.context.get("problem")), ""
    if missing := _NO_TABLE.match(problem):
        name = missing[1].lower().removeprefix(versions)
        hint = _hint_table(_read_entries(session), _time_of(session), name)
    elif missing := _NO_FIELD.search(problem):
        named = (name for name in session.then.tables if {name, versions + name} & {*words})
        hints = (_hint_field(session, name, missing[1].lower()) for name in named)
        hint = next(filter(None, hints), "")
    error.hint = hint or error.hint


def _read_entries(session: Session) -> list[RevisionEntry]:
    with within_snapshot(session) as connection:
        return list(read_entries(connection, session.catalog.tenant))


def _time_of(session: PastSession) -> _Time:
    names = {table.schema.number: name for name, table in session.then.tables.items()}
    return _Time(names, session.moment.visible_at)


def _hint_table(entries: Sequence[RevisionEntry], at: _Time, name: str) -> str:
    named = dict.fromkeys(e.table_number for e in reversed(entries) if e.schema.name == name)
    for number in named:
        if number in at.tables:
            return at.tell(number)
    for number in named:
        mine = [entry for entry in entries if entry.table_number == number]
        earlier = [e for e in mine if at.time_us is None or e.migrated_at <= at.time_us]
        if earlier:
            last = max(earlier, key=lambda entry: entry.revision)
            return f"the table was dropped {_tell(last)}: ask for a moment before it"
        return f"the table was created later, {_tell(mine[0])}: ask for a moment after it"
    return ""


def _hint_field(session: PastSession, table: str, name: str) -> str:
    then: TableAt | None = session.then.tables.get(table)
    if then is None or isinstance(session, CurrentSchemaSession):
        return ""
    number = then.schema.number
    entries = [entry for entry in _read_entries(session) if entry.table_number == number]
    named = {f.number for entry in entries for f in entry.schema.fields if f.name == name}
    called = next((f.name for f in then.schema.fields if f.number in named), None)
    if called is not None:
        return f"at that moment, the field was called {called!r}"
    return _tell_field(entries, named, then.revision)


def _tell_field(entries: Sequence[RevisionEntry], numbers: set[int], revision: int) -> str:
    """Tell how fields came or went that a table did not have at a revision; entries are in
    order."""
    has = [any(field.number in numbers for field in entry.schema.fields) for entry in entries]
    for at, entry in enumerate(entries):
        if has[at] and entry.revision > revision:
            return f"the field was added later, {_tell(entry)}: ask for a moment after it"
    for at in range(len(entries) - 1, 0, -1):
        if has[at - 1]:
            return f"the field was dropped {_tell(entries[at])}: ask for a moment before it"
    return ""


def _tell(entry: RevisionEntry) -> str:
    what = "by a rollback" if entry.event == "rollback" else f"by migration {entry.position}"
    if not entry.migrated_at:
        return what
    return f"{what} at {as_time(entry.migrated_at):%Y-%m-%dT%H:%M:%S}Z"
