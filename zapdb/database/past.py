"""A past moment as applications read it: `db.at(moment)`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, Self

from zapdb.database.table_access import ReadAccess
from zapdb.errors import UsageError
from zapdb.log.moments import LoggedMoment
from zapdb.past.files.history_manifest import Doubt
from zapdb.past.reading.moment import Moment, to_moment
from zapdb.past.reading.past_session import CurrentSchemaSession, PastSession
from zapdb.past.reading.past_table import PastTable, explaining_names
from zapdb.past.reading.replaced_files import FilesPin
from zapdb.schema import TableSchema
from zapdb.tables.session import Session
from zapdb.tables.table_reading import ReadableTable


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
