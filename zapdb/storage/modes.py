"""The kinds of transactions, and how each takes the gate (rule 7).

READ      one snapshot, read-only
SERIAL    the same, of a moment that fits into an order of all transactions
WRITE     an application's: takes the gate shared before its first query
ASIDE     the same for what is not worth waiting for: gives up where it would wait (rule 16)
TASK      a job's: the gate shared, and each statement sees what is committed (rule 17)
CHANGE    a change of state: takes the gate exclusively, briefly
CATALOG   small writes to the catalog that concern no record, such as a heartbeat
"""

from __future__ import annotations

import enum
from typing import Final


class Mode(enum.Enum):
    """The kinds of transactions."""

    READ = "read"
    SERIAL = "serial"
    WRITE = "write"
    ASIDE = "aside"
    TASK = "task"
    CHANGE = "change"
    CATALOG = "catalog"

    @property
    def only_reads(self) -> bool:
        return self in (Mode.READ, Mode.SERIAL)


GATES: Final = {
    Mode.WRITE: "shared",
    Mode.ASIDE: "shared",
    Mode.TASK: "shared",
    Mode.CHANGE: "exclusive",
}
"""How the kinds of transactions take the gate; those that aren't here don't."""
