"""A past moment as applications read it: `db.at(moment)`."""

from __future__ import annotations

from typing import Any

from zapdb.database.access import ReadAccess
from zapdb.database.history.moment import Moment, to_moment
from zapdb.database.history.rewound import PastSession
from zapdb.database.session import Session
from zapdb.database.table_reading import ReadableTable
from zapdb.errors import UsageError
from zapdb.schema import TableSchema
from zapdb.storage.moments import LoggedMoment


class PastTable(ReadableTable):
    """A table as it was at a past moment, under its schema of then; read-only.

    Queries scan it: indexes have the entries of now.
    """

    def __init__(self, session: PastSession, name: str) -> None:
        super().__init__(session, name)
        self._moment = session.moment.number

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

    def schema(self, table: str) -> TableSchema:
        """Return the schema of a table at the moment; raises `UnknownName`."""
        return self._session.then.find(table).schema

    def table(self, name: str | None = None, *, like: ReadableTable | None = None) -> PastTable:
        """Return a table by its name at the moment, or the one that `like` is, whatever its name.

        Raises `UnknownName`; `HistoryGap` if its changes were not recorded all the time since, and
        `HistoryNotStored` if a migration has changed its stored values since.
        """
        if (name is None) == (like is None):
            raise UsageError(
                "a table of the past is given by its name, or by a table that it is like",
                hint="past.table('items'), or past.table(like=db.table('goods'))",
            )
        if like is not None:
            name = self._find_name(like)
        assert name is not None
        return PastTable(self._session, name)

    def _find_name(self, like: Any) -> str:
        if not isinstance(like, ReadableTable):
            raise UsageError(
                "like is a table",
                got=type(like).__name__,
                hint="past.table(like=db.table('goods'))",
            )
        number = like._bound.schema.number
        return self._session.then.table_numbered(number, like.name).schema.name
