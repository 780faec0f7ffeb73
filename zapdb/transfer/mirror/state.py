"""What a mirror keeps in its target beside the tables, in the transactions that write these.

So a mirror that was killed, or whose COMMIT is unknown, reads there what it has done.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import msgspec

from zapdb.log.change_log import START, Bookmark
from zapdb.log.stamps import LogSnapshot

FORMAT: Final = 1
STATE_TABLE: Final = "zapdb_mirror"
TABLES_TABLE: Final = "zapdb_mirror_tables"
OWN_TABLES: Final = frozenset({STATE_TABLE, TABLES_TABLE})

AT_ONCE: Final = 0
"""As `checked_at`: the rows are to be compared before others."""


@dataclass(frozen=True, slots=True)
class MirrorSource:
    """Which database, by its id, and which of its tenants, by number, is mirrored."""

    database: str
    tenant: int


@dataclass(frozen=True, slots=True)
class Filling:
    """Columns that get their values batch by batch: done for the records up to a key."""

    columns: tuple[str, ...]
    after: bytes = b""


@dataclass(frozen=True, slots=True)
class MirroredTable:
    """One table of the mirror.

    The rows are those of the table's schema at `revision`. `baseline` says which transactions they
    were read with: their changes come again in the log, and are skipped. `rows` is how many rows
    there must be, `columns` what the target said of the columns when the mirror last changed them;
    nothing if the table could not be made. `long` names fields whose numbers exceed the usual type.

    Rows may be newer than the mirror's bookmark until that has come to `consistent_at`. With
    `is_stale`, all rows are to be read again. `problem` says why the table is not kept.
    `checked_at` is when all rows were last compared with the records, in microseconds.
    """

    number: int
    name: str
    revision: int
    baseline: LogSnapshot
    rows: int = 0
    columns: str = ""
    long: tuple[str, ...] = ()
    filling: Filling | None = None
    consistent_at: Bookmark = START
    is_stale: bool = False
    problem: str = ""
    checked_at: int = AT_ONCE

    @property
    def is_kept(self) -> bool:
        """Whether changes are applied to it; otherwise its rows are read again later."""
        return not self.problem and not self.is_stale


@dataclass(slots=True)
class MirrorState:
    """All changes up to `bookmark` are in the tables; times in microseconds.

    `stamped_at` is the time of the bookmark's stamp in the source (`ChangeLog.read_time`), 0 if it
    has none. `follower` is the name of its follower of the change log: one target has one, whatever
    address it is reached by.
    """

    source: MirrorSource
    follower: str
    bookmark: Bookmark
    stamped_at: int
    updated_at: int
    tables: dict[int, MirroredTable]
    foreign_keys: bool = True
    """Whether the tables are to have foreign keys."""


def encode_table(table: MirroredTable) -> str:
    """The text that `decode_table` reads."""
    return msgspec.json.encode(table).decode()


def decode_table(text: str) -> MirroredTable:
    """Raises `msgspec.MsgspecError`."""
    return msgspec.json.decode(text, type=MirroredTable)
