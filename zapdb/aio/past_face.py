"""What of the asynchronous face of the past is no copy of the synchronous one."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from zapdb.aio.face import Face
from zapdb.database.history.past import Past

if TYPE_CHECKING:
    from zapdb.aio import faces


class PastFace(Face[Past]):
    """The database as it was at a moment."""

    _table_face: ClassVar[type[faces.PastTable]]
    """What is made of a table; the generated class has it."""

    async def table(
        self, name: str | None = None, *, like: faces.Table | faces.PastTable | None = None
    ) -> faces.PastTable:
        """Return a table by its name at the moment, or the one that `like` is, whatever its name.

        Raises `UnknownName`; `HistoryGap` if its changes were not recorded all the time since, and
        `HistoryNotStored` if a migration has changed its stored values since.
        """
        known = None if like is None else like._sync
        made = await self._done("task", lambda past: past.table(name, like=known))
        return self._table_face(self._runtime, made)
