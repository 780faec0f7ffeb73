"""What a mirror keeps in its target beside the tables, in the transactions that write these.

So a mirror that was killed, or whose COMMIT is unknown, reads there what it has done.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from zapdb.storage.change_log import Bookmark, LogSnapshot

FORMAT: Final = 1
STATE_TABLE: Final = "zapdb_mirror"
TABLES_TABLE: Final = "zapdb_mirror_tables"
OWN_TABLES: Final = frozenset({STATE_TABLE, TABLES_TABLE})


@dataclass(frozen=True, slots=True)
class MirrorSource:
    """Which database, by its id, and which of its tenants, by number, is mirrored."""

    database: str
    tenant: int


@dataclass(frozen=True, slots=True)
class MirroredTable:
    """One table of the mirror.

    `shape` identifies the schema that the rows are of. `baseline` says which transactions the rows
    were read with: their changes come again in the log, and are skipped. `rows` is how many rows
    there must be, `columns` what the target said of the columns when the table was made. `long`
    names fields whose numbers exceed the usual type.
    """

    number: int
    name: str
    shape: str
    baseline: LogSnapshot
    rows: int
    columns: str
    long: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class MirrorState:
    """All changes up to `bookmark` are in the tables; times in microseconds."""

    source: MirrorSource
    bookmark: Bookmark
    updated_at: int
    tables: dict[int, MirroredTable]


def format_snapshot(snapshot: LogSnapshot) -> str:
    """The text that `LogSnapshot.parse` reads."""
    running = ",".join(map(str, snapshot.running))
    return f"{snapshot.lowest}:{snapshot.xmax}:{running}"


def sees(snapshot: LogSnapshot, transaction: int) -> bool:
    """Whether a transaction was over when the snapshot began."""
    return transaction < snapshot.xmax and transaction not in snapshot.running
