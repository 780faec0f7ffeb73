"""The kinds of transactions, and how each takes the gate (rule 7).

READ      one snapshot, read-only
SERIAL    the same, of a moment that fits into an order of all transactions
WRITE     an application's: takes the gate shared before its first query
NOWAIT    the same for what is not worth waiting for: gives up where it would wait (rule 16)
JOB       a job's: takes the gate shared, and each statement sees what is committed (rule 17)
DDL       a schema change: takes the gate exclusively, briefly
CATALOG   small writes to the catalog that concern no record, such as a heartbeat
"""

from __future__ import annotations

import enum
from typing import Final


class TransactionMode(enum.Enum):
    """The kinds of transactions."""

    READ = "read"
    SERIAL = "serial"
    WRITE = "write"
    NOWAIT = "nowait"
    JOB = "job"
    DDL = "ddl"
    CATALOG = "catalog"

    only_reads: bool

    def __init__(self, name: str) -> None:
        self.only_reads = name in ("read", "serial")


GATES: Final = {
    TransactionMode.WRITE: "shared",
    TransactionMode.NOWAIT: "shared",
    TransactionMode.JOB: "shared",
    TransactionMode.DDL: "exclusive",
}
"""How the kinds of transactions take the gate; all other kinds do not take it."""
PIPELINED_MODES: Final = frozenset({TransactionMode.WRITE, TransactionMode.JOB})
"""Transactions whose statements are queued, if the engine can send several at once."""
