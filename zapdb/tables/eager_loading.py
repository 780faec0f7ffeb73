"""Loading records together with the records that they refer to, some hundred with one statement.

Included records are attached to the record (`Record.follow`). Records of one chunk that refer to
the same record share it. The references of a chunk are read after its records: as of the same
moment only inside `db.snapshot()` or `db.transaction()`. In a transaction that is the moment at
which the query began, whatever the transaction writes while its records are taken.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice

from zapdb.errors import UsageError
from zapdb.limits import INCLUDE_RECORDS_MAX, PAGE_RECORDS_FIRST
from zapdb.records import Record
from zapdb.records.record import include as hang_on
from zapdb.schema import TableSchema
from zapdb.storage import Connection
from zapdb.tables.bulk import KEYS_PER_STATEMENT
from zapdb.tables.indexes import BoundTable
from zapdb.tables.indexes.predicates import find_field
from zapdb.tables.indexes.spans import Span
from zapdb.tables.iteration import (
    Iteration,
    KeyBranch,
    begin_iteration,
    is_inside_writing,
)
from zapdb.tables.queries.fields import as_field
from zapdb.tables.session import Session
from zapdb.tables.write_back import write_back_page
from zapdb.values import Reference


@dataclass(frozen=True, slots=True)
class Include:
    """A reference, by the number of its field, and what is loaded with its targets."""

    field: int
    name: str
    within: tuple[Include, ...] = ()


def add_include(
    session: Session, table: TableSchema, includes: tuple[Include, ...], path: Sequence[str]
) -> tuple[Include, ...]:
    """The includes with one more, several references deep.

    Raises `UnknownField`, and `UsageError` for a field that is no reference.
    """
    name, *rest = path
    field, _ = as_field(table, name)
    if not isinstance(field.type, Reference):
        raise UsageError(
            "only references can be included", field=f"{table.name}.{name}", type=field.type
        )
    known = next((i for i in includes if i.field == field.number), None)
    include = known or Include(field.number, name)
    if rest:
        target = _target_of(session, field.type).adapter.schema
        include = replace(include, within=add_include(session, target, include.within, rest))
    if known is None:
        return (*includes, include)
    return tuple(include if i is known else i for i in includes)


def load_included(
    session: Session, bound: BoundTable, includes: tuple[Include, ...], records: Iterator[Record]
) -> Iterator[Record]:
    """Return the same records with the records that they refer to, in chunks, a small one first."""
    if not includes:
        return records
    then: Then = {}
    if is_inside_writing(session):
        _begin(session, bound, includes, then)
    return _load_chunks(session, bound, includes, records, then)


Then = dict[int, Iteration]
"""What the records of tables were when the query began, by the tables' numbers."""


def _begin(session: Session, bound: BoundTable, includes: Iterable[Include], then: Then) -> None:
    for include in includes:
        table = session.rebind(bound).adapter.schema
        kind = find_field(table, include.field, include.name).type
        assert isinstance(kind, Reference)
        target = _target_of(session, kind)
        if kind.number not in then:
            then[kind.number] = Iteration([KeyBranch(target, Span(None, None))])
            begin_iteration(session, target, then[kind.number])
        _begin(session, target, include.within, then)


def _load_chunks(
    session: Session,
    bound: BoundTable,
    includes: tuple[Include, ...],
    records: Iterator[Record],
    then: Then,
) -> Iterator[Record]:
    size = PAGE_RECORDS_FIRST
    while chunk := list(islice(records, size)):
        _load(session, bound, includes, chunk, then)
        yield from chunk
        size = INCLUDE_RECORDS_MAX


def _load(
    session: Session,
    bound: BoundTable,
    includes: Iterable[Include],
    records: Sequence[Record],
    then: Then,
) -> None:
    found = [dict[str, Record | None]() for _ in records]
    for include in includes:
        table = session.rebind(bound).adapter.schema
        field = find_field(table, include.field, include.name)
        kind = field.type
        assert isinstance(kind, Reference)
        # A record that was read before the field was renamed has it under its older name.
        names = (field.name, include.name)
        values = [next(getattr(r, n) for n in names if n in r._fields) for r in records]
        keys = [None if value is None else kind.encode(value) for value in values]
        target, loaded = _fetch(session, _target_of(session, kind), keys, then.get(kind.number))
        if include.within:
            _load(session, target, include.within, list(loaded.values()), then)
        for mine, record, key in zip(found, records, keys, strict=True):
            name = field.name if field.name in record._fields else include.name
            mine[name] = None if key is None else loaded.get(key)
    for record, mine in zip(records, found, strict=True):
        hang_on(record, mine)


def _fetch(
    session: Session, bound: BoundTable, keys: Iterable[bytes | None], then: Iteration | None
) -> tuple[BoundTable, dict[bytes, Record]]:
    """Return the existing records with these keys; of those that were written since the query
    began in a transaction, what they were `then`."""
    unique = list(dict.fromkeys(key for key in keys if key is not None))
    loaded = dict[bytes, Record]()
    for start in range(0, len(unique), KEYS_PER_STATEMENT):
        some = unique[start : start + KEYS_PER_STATEMENT]

        def fetch(
            connection: Connection, bound: BoundTable, some: Sequence[bytes] = some
        ) -> tuple[int | None, dict[bytes, bytes]]:
            return bound.records.find_many(connection, some)

        bound, stored = session.read_active(bound, fetch)
        write_back_page(session, bound, stored.items())
        reader = bound.adapter.reader
        found = {} if then is None else then.find_at(some)
        loaded |= {
            key: reader.read(key, value) for key, value in stored.items() if key not in found
        }
        loaded |= {key: one.read(bound, reader) for key, one in found.items() if one is not None}
    return bound, loaded


def _target_of(session: Session, kind: Reference) -> BoundTable:
    return session.bind_numbered(kind.number, kind.table)


def names_of(includes: Iterable[Include], before: str = "") -> Iterator[str]:
    """The paths of all that is included, with dots."""
    for include in includes:
        path = f"{before}{include.name}"
        yield from chain((path,), names_of(include.within, f"{path}."))
