"""The lease of this process's node, and how the process notices that a backup was restored under it
(rules 7 and 9).

The epoch of a node's lease rises with each heartbeat, and on PostgreSQL whenever the process has
drawn a block of a sequence. It is never lower than the process knows it to be, unless the row is of
a backup: then others may be given what this process has in hand, so it must not write. Only this
process raises it. So a transaction that compares it with what was known before it began is right,
whatever the other threads of the process do meanwhile.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from zapdb.errors import LeaseLost
from zapdb.storage.cells import as_number

if TYPE_CHECKING:
    from zapdb.storage.connection import Connection


class OwnLease:
    """Thread-safe; one per node."""

    def __init__(self, name: str, epoch: int) -> None:
        self.epoch_sql = f"SELECT epoch FROM zapdb_leases WHERE name = '{name}'"
        self._where = f"WHERE name = '{name}' AND epoch >="
        self._lock = threading.Lock()
        self.epoch = epoch
        """What the stored epoch is at least."""

    def note(self, epoch: int) -> None:
        """Note an epoch that was committed."""
        with self._lock:
            self.epoch = max(self.epoch, epoch)

    def rise(self, connection: Connection, columns: str = "") -> int:
        """Raise the stored epoch, and return it, to be noted when it is committed; raises
        `LeaseLost`. `columns` are set, too."""
        rows = connection.fetch_all(self._raise_sql(columns))
        if not rows:
            raise self.lost(connection.fetch_one(self.epoch_sql))
        return as_number(rows[0][0])

    def _raise_sql(self, columns: str) -> str:
        return (
            f"UPDATE zapdb_leases SET epoch = epoch + 1{columns} {self._where} {self.epoch}"
            " RETURNING epoch"
        )

    def lost(self, found: Any) -> LeaseLost:
        """Return the error for a stored epoch that is lower than it was, or gone."""
        if found is None:
            return LeaseLost(
                "this process was evicted, or a backup from before it opened the database was "
                "restored",
                hint="nothing was written; close the database and open it again",
            )
        return LeaseLost(
            "a backup was restored under this process",
            hint="nothing was written; close the database and open it again",
        )
