"""Tables as they were at a past moment."""

from __future__ import annotations

from collections.abc import Callable, Collection
from copy import copy
from typing import Any, Self

from zapdb.errors import UnknownName
from zapdb.past.reading.names_at import explain_name
from zapdb.past.reading.past_session import PastSession
from zapdb.past.reading.rewound import RewoundTable
from zapdb.past.reading.versions import Version, list_record_versions
from zapdb.records import Record
from zapdb.storage import MissingTable
from zapdb.storage.transaction_owners import has_begun
from zapdb.tables.indexes.predicates import Predicate
from zapdb.tables.queries.fields import FieldExpression, FieldOrder, Fields
from zapdb.tables.queries.query import Query
from zapdb.tables.queries.typed_fields import TypedOrderedField
from zapdb.tables.table_reading import ReadableTable


class explaining_names:
    """Say of a name that is unknown in the block what was called so at another time."""

    __slots__ = ("_session",)

    def __init__(self, session: PastSession) -> None:
        self._session = session

    def __enter__(self) -> None:
        """Nothing is to be done."""

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if isinstance(error, UnknownName):
            explain_name(self._session, error)


class FieldsAt(Fields, frozen=True, eq=False):
    """The fields of a past table, by their names of then."""

    _find_session: Callable[[], PastSession]

    def __getattribute__(self, name: str) -> FieldExpression:
        if name.startswith("_"):
            return super().__getattribute__(name)
        return self[name]

    def __getitem__(self, name: str) -> FieldExpression:
        find: Any = object.__getattribute__(self, "_find_session")
        with explaining_names(find()):
            return super().__getitem__(name)


class PastTable(ReadableTable[Record]):
    """A table as it was at a past moment, under its schema of then; read-only.

    Queries scan it: indexes have the entries of now. A record is found by its key without a scan.
    """

    _session: PastSession

    def __init__(self, session: PastSession, name: str) -> None:
        with explaining_names(session):
            super().__init__(session, name)
        self._moment = session.moment.number

    def count(self) -> int:
        return super(PastTable, self._as_whole()).count()

    def to_arrow(self, fields: Collection[str] | None = None, as_text: Collection[str] = ()) -> Any:
        return super(PastTable, self._as_whole()).to_arrow(fields, as_text)

    def _as_whole(self) -> Self:
        """Return the same table, by the way in which all of it is read."""
        made = copy(self)
        made._bound = self._session.bind_whole(self._current())
        return made

    def history(self, /, *key: Any, **named: Any) -> list[Version]:
        """Return all versions of the record with this key, those after the moment, too; see
        `zapdb.Table.history`."""
        return list_record_versions(self, key, named)

    def where(self, /, *predicates: Predicate, **values: Any) -> Query:
        with explaining_names(self._session):
            return super().where(*predicates, **values)

    def order_by(self, *fields: str | FieldOrder | TypedOrderedField[Any]) -> Query:
        with explaining_names(self._session):
            return super().order_by(*fields)

    @property
    def f(self) -> Fields:
        return FieldsAt(self._current, lambda: self._session)

    def __getitem__(self, name: str) -> FieldExpression:
        with explaining_names(self._session):
            return super().__getitem__(name)

    def find(self, /, *key: Any, **named: Any) -> Record | None:
        if named:
            key = self._join_key(key, named)
        bound = self._bound
        if not isinstance(bound, RewoundTable) or self._session.is_read_only or has_begun():
            return self._find_in_full(key)
        encoded = self._encode_key(bound, key)
        try:
            version, stored = bound.records.find(self._session.storage.own_connection(), encoded)
        except MissingTable:
            return self._find_in_full(key)
        if version != bound.catalog.version:
            return self._find_in_full(key)
        return None if stored is None else bound.adapter.reader.read(encoded, stored)

    def __repr__(self) -> str:
        return f"<table {self.name!r} at moment {self._moment} ({', '.join(self.field_names)})>"
