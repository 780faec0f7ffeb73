"""Lost connections: after a loss, the pool hands out no connection that is older.

When a server is restarted, all its connections are lost, and each thread notices it when it uses
its own connection. The replacement must work, but a connection in the pool that is just as old is
lost, too. So every connection stores how many losses came before it, and a connection that is older
than the last loss is replaced when it leaves the pool. The server is never asked whether a
connection is alive.
"""

from __future__ import annotations

from typing import Any, Final

import sqlalchemy

_CONNECTED_AFTER: Final = "zapdb connected after"
"""The key of the number of losses in the pool's notes on a connection."""


class PoolInvalidation:
    """The number of times that a pool lost connections; a restart of the server counts once."""

    def __init__(self, engine: sqlalchemy.Engine) -> None:
        self._count = 0
        sqlalchemy.event.listen(engine, "connect", self._mark)
        sqlalchemy.event.listen(engine, "checkout", self._require_current)

    def connected_after(self, core: sqlalchemy.Connection) -> int:
        """Return the number of losses before a connection was made that has just left the pool."""
        connected_after: int = core.info[_CONNECTED_AFTER]
        return connected_after

    def is_older(self, connected_after: int) -> bool:
        """Return whether a connection is older than the last loss, by the number of losses before
        it."""
        return connected_after < self._count

    def note(self, connected_after: int) -> None:
        """Note the loss of a connection, and so of all connections of its age, by the number of
        losses before it."""
        self._count = max(self._count, connected_after + 1)

    def _mark(self, _driver: object, record: Any) -> None:
        record.info[_CONNECTED_AFTER] = self._count

    def _require_current(self, _driver: object, record: Any, _handed_out: object) -> None:
        if record.info[_CONNECTED_AFTER] < self._count:
            raise sqlalchemy.exc.DisconnectionError  # the pool makes another one
