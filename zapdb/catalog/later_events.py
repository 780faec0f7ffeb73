"""What became of a tenant's schemas after a moment, by the events of the change log.

The log has an event for each entry of a recorded table's schema history, in one order with the
changes of records. So the entry at a moment is the last one whose event is not after it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, get_args

from zapdb.catalog.schema_events import TenantEvent
from zapdb.catalog.schema_history import RevisionEntry, RevisionEvent
from zapdb.log.moments import LaterSql
from zapdb.log.pending_changes import CHANGE_LOG_OFF, CHANGE_LOG_ON, OF_TENANT
from zapdb.records import decode_prefix
from zapdb.storage import Connection
from zapdb.storage.cells import as_bytes, as_number, as_text

SWITCHES: Final = frozenset({CHANGE_LOG_OFF, CHANGE_LOG_ON})
"""Events that say where the recording of changes begins or ends."""
REVISIONS: Final = frozenset(get_args(RevisionEvent))
"""Events of a table's new revision."""
POSITIONS: Final = frozenset(get_args(TenantEvent))
"""Events of a tenant's new position."""


EventRow = tuple[int, str, Any, Any]
"""Table, event, before and after, as the log has them."""


@dataclass(frozen=True, slots=True)
class LaterEvents:
    """The events after a moment: the first new revision of each table, and the tables (0: all)
    whose recording was switched on or off."""

    revisions: dict[int, int]
    switched: frozenset[int]
    position: int | None
    """The tenant's position at the moment, if it changed since."""

    def list_earlier(self, table: int, entries: Sequence[RevisionEntry]) -> list[RevisionEntry]:
        """Return those entries of a table that it had at the moment; the last one counts."""
        limit = self.revisions.get(table)
        return [entry for entry in entries if limit is None or entry.revision < limit]

    def find_position(self, now: int) -> int:
        """Return the tenant's position at the moment, given that of now."""
        return now if self.position is None else self.position

    def switches(self, table: int) -> bool:
        """Whether the recording of a table's changes was switched on or off."""
        return not self.switched.isdisjoint((table, OF_TENANT))


def read_later_events(
    connection: Connection, tenant: int, later_sql: LaterSql, stored: Iterable[EventRow] = ()
) -> LaterEvents:
    """Read the events of the transactions of a condition; `stored` are known ones before them."""
    rows = connection.fetch_all(
        "SELECT table_number, event, before, after FROM zapdb_changes"
        f" WHERE tenant = {int(tenant)} AND event IS NOT NULL AND {later_sql('transaction_number')}"
        " ORDER BY transaction_number"
    )
    revisions: dict[int, int] = {}
    switched, positions = set[int](), list[int]()
    for table, named, before, after in (*stored, *rows):
        number, event = as_number(table), as_text(named)
        if event in SWITCHES:
            switched.add(number)
        elif number == OF_TENANT and event in POSITIONS:
            positions.append(decode_prefix(as_bytes(before), 0)[0])
        elif number != OF_TENANT and event in REVISIONS:
            revision, _ = decode_prefix(as_bytes(after), 0)
            revisions[number] = min(revision, revisions.get(number, revision))
    return LaterEvents(revisions, frozenset(switched), positions[0] if positions else None)


def makes_other_bytes(then: RevisionEntry, entry: RevisionEntry) -> bool:
    """Whether a later entry is in the way of rewinding records to the bytes of `then`."""
    return entry.revision > then.revision and (
        entry.layout_revision != then.layout_revision or entry.event in ("drop", "recovered")
    )
