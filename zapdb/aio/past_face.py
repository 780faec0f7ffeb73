"""What of the asynchronous face of the past is no copy of the synchronous one."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal, Self

from zapdb.aio.face import Face
from zapdb.database.past import Past

if TYPE_CHECKING:
    from zapdb.aio import faces


class PastFace(Face[Past]):
    """The database as it was at a moment."""

    _table_face: ClassVar[type[faces.PastTable]]
    """What is made of a table; the generated class has it."""

    async def __aenter__(self) -> Self:
        await self._done("task", lambda past: past.__enter__())
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._done("task", lambda past: past.__exit__())

    async def table(
        self,
        name: str | None = None,
        *,
        like: faces.Table | faces.PastTable | None = None,
        schema: Literal["then", "now"] = "then",
    ) -> faces.PastTable:
        """Return a table by its name at the moment, or the one that `like` is, whatever its name.

        With `schema="now"`, its records of then have the schema of now: they are converted as the
        migrations since would have done it. Raises `UsageError` where these do not lead there.

        Raises `UnknownName`; and, if neither the change log leads back to the moment nor the
        history store has it, `HistoryGap` for changes that were not recorded, `HistoryPurged` for
        what was deleted, `HistoryNotStored` where a migration has changed stored values since.
        """
        known = None if like is None else like._sync
        made = await self._done("task", lambda past: past.table(name, like=known, schema=schema))
        return self._table_face(self._runtime, made)
