"""A past moment as applications read it: `db.at(moment)`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Literal, Self

from zapdb.database.access import ReadAccess
from zapdb.database.fields import FieldExpression, Fields
from zapdb.database.history.current_schema_session import CurrentSchemaSession
from zapdb.database.history.moment import Moment, to_moment
from zapdb.database.history.names_then import explain_name
from zapdb.database.history.past_session import PastSession
from zapdb.database.history.pin import FilesPin
from zapdb.database.history.rewound import RewoundTable
from zapdb.database.query import Query
from zapdb.database.session import Session
from zapdb.database.table_reading import ReadableTable
from zapdb.errors import UnknownName, UsageError
from zapdb.indexes.predicates import Predicate
from zapdb.records import Record
from zapdb.schema import TableSchema
from zapdb.storage import MissingTable
from zapdb.storage.history_manifest import Doubt
from zapdb.storage.moments import LoggedMoment
from zapdb.storage.transaction_owners import has_begun


@contextmanager
def explaining_names(session: PastSession) -> Iterator[None]:
    """Say of a name that is unknown in the block what was called so at another time."""
    try:
        yield
    except UnknownName as error:
        explain_name(session, error)
        raise


class FieldsThen(Fields, frozen=True, eq=False):
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


class PastTable(ReadableTable):
    """A table as it was at a past moment, under its schema of then; read-only.

    Queries scan it: indexes have the entries of now. A record is found by its key without a scan.
    """

    _session: PastSession

    def __init__(self, session: PastSession, name: str) -> None:
        with explaining_names(session):
            super().__init__(session, name)
        self._moment = session.moment.number

    def where(self, /, *predicates: Predicate, **values: Any) -> Query:
        with explaining_names(self._session):
            return super().where(*predicates, **values)

    def order_by(self, *fields: Any) -> Query:
        with explaining_names(self._session):
            return super().order_by(*fields)

    @property
    def f(self) -> Fields:
        return FieldsThen(self._current, lambda: self._session)

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


class Past(ReadAccess):
    """The database as it was at a moment: `db.at(moment)` returns it.

    It holds no transaction and no connection: each call reads in a snapshot of its own, and always
    gives the same answer, or an error if it no longer can.
    """

    _session: PastSession

    def __init__(self, session: Session, moment: LoggedMoment) -> None:
        self._session = PastSession(session, moment)

    def __enter__(self) -> Self:
        """Keep the files that it is read from until the end of the block, for many calls over a
        long time. If an erasure deletes them all the same, what reads files in the block raises
        `HistoryErased` from then on."""
        self._session.file_pins.append(FilesPin.take(self._session))
        return self

    def __exit__(self, *_: object) -> None:
        pin = self._session.file_pins.pop()
        if pin is not None:
            pin.release()

    def __repr__(self) -> str:
        return f"<zapdb database {self._session.storage.shown_url} at {self.moment!r}>"

    @property
    def moment(self) -> Moment:
        """The moment that is read."""
        return to_moment(self._session.moment)

    @property
    def position(self) -> int:
        """The number of the newest migration that was active."""
        return self._session.then.position

    @property
    def exact(self) -> bool:
        """Whether all values are those that were read then; `doubts` says of which tables not, and
        why."""
        return not self.doubts

    @property
    def doubts(self) -> Mapping[str, Doubt]:
        """The tables whose values may not be those that were read then, each with the reason.

        There is one, `archive_pruning`: archived values were restored while
        `zapdb migrate prune-archive` was deleting them, which was interrupted, and another
        migration changed their table before the history store came to it.
        """
        return self._session.list_doubts()

    def schema(self, table: str) -> TableSchema:
        """Return the schema of a table at the moment; raises `UnknownName`."""
        with explaining_names(self._session):
            return self._session.then.find(table).schema

    def table(
        self,
        name: str | None = None,
        *,
        like: ReadableTable | None = None,
        schema: Literal["then", "now"] = "then",
    ) -> PastTable:
        """Return a table by its name at the moment, or the one that `like` is, whatever its name.

        With `schema="now"`, its records of then have the schema of now: they are converted as the
        migrations since would have done it. Raises `UsageError` where these do not lead there.

        Raises `UnknownName`; and, if neither the change log leads back to the moment nor the
        history store has it, `HistoryGap` for changes that were not recorded, `HistoryPurged` for
        what was deleted, `HistoryNotStored` where a migration has changed stored values since.
        """
        if (name is None) == (like is None):
            raise UsageError(
                "a table of the past is given by its name, or by a table that it is like",
                hint="past.table('items'), or past.table(like=db.table('goods'))",
            )
        if like is not None:
            name = self._find_name(like)
        assert name is not None
        if schema not in ("then", "now"):
            raise UsageError("schema is 'then' or 'now'", got=schema)
        if schema == "now":
            return PastTable(CurrentSchemaSession(self._session, self._session.moment), name)
        return PastTable(self._session, name)

    def _find_name(self, like: Any) -> str:
        if not isinstance(like, ReadableTable):
            raise UsageError(
                "like is a table",
                got=type(like).__name__,
                hint="past.table(like=db.table('goods'))",
            )
        number = like._bound.schema.number
        return self._session.then.find_numbered(number, like.name).schema.name
