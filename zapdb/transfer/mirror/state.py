"""What a mirror keeps in its target beside the tables, in the transactions that write these, in two
tables of its own.

So a mirror that was killed, or whose COMMIT is unknown, reads there what it has done.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import msgspec

from zapdb.errors import UsageError
from zapdb.log.change_log import START, Bookmark
from zapdb.log.stamps import LogSnapshot
from zapdb.transfer.mirror.target import TargetSession

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


def read_state(session: TargetSession) -> MirrorState | None:
    """The state; None in an empty place. Raises `UsageError` for one with other tables."""
    there = set(session.list_tables())
    if not there >= OWN_TABLES:
        _refuse_foreign(there)
        return None
    found = session.run(
        "SELECT format, source, tenant, follower, bookmark, stamped_at, updated_at, foreign_keys"
        " FROM " + session.qualify(STATE_TABLE)
    )
    if len(found) != 1 or found[0][0] != FORMAT:
        _refuse_foreign(there)
    ((_, database, tenant, follower, bookmark, stamped_at, updated_at, has_keys),) = found
    rows = session.run(f"SELECT number, state FROM {session.qualify(TABLES_TABLE)}")
    try:
        tables = {number: msgspec.json.decode(state, type=MirroredTable) for number, state in rows}
    except msgspec.MsgspecError:
        _refuse_foreign(there)
        raise
    source = MirrorSource(database, tenant)
    return MirrorState(
        source,
        follower,
        Bookmark.parse(bookmark),
        stamped_at,
        updated_at,
        tables,
        foreign_keys=bool(has_keys),
    )


def _refuse_foreign(there: set[str]) -> None:
    if there:
        raise UsageError(
            "the target has tables that are no mirror's",
            tables=", ".join(sorted(there)[:10]),
            hint="give the mirror a schema or a file of its own",
        )


def begin_state(session: TargetSession, state: MirrorState) -> None:
    """Make the mirror's own tables in an empty place."""
    session.run(
        f"CREATE TABLE {session.qualify(STATE_TABLE)} (format BIGINT NOT NULL,"
        " source TEXT NOT NULL, tenant BIGINT NOT NULL, follower TEXT NOT NULL, bookmark TEXT"
        " NOT NULL, stamped_at BIGINT NOT NULL, updated_at BIGINT NOT NULL,"
        " foreign_keys BOOLEAN NOT NULL)"
    )
    session.run(
        f"CREATE TABLE {session.qualify(TABLES_TABLE)} (number BIGINT NOT NULL,"
        " name TEXT NOT NULL, state TEXT NOT NULL)"
    )
    cells = (
        *(FORMAT, state.source.database, state.source.tenant, state.follower),
        *(str(state.bookmark), state.stamped_at, state.updated_at, state.foreign_keys),
    )
    marks = ", ".join([session.mark] * len(cells))
    session.run(f"INSERT INTO {session.qualify(STATE_TABLE)} VALUES ({marks})", cells)


def save_bookmark(
    session: TargetSession, state: MirrorState, bookmark: Bookmark, stamped_at: int, now: int
) -> None:
    state.bookmark, state.stamped_at, state.updated_at = bookmark, stamped_at, now
    session.run(
        f"UPDATE {session.qualify(STATE_TABLE)} SET bookmark = {session.mark},"
        f" stamped_at = {session.mark}, updated_at = {session.mark}",
        (str(bookmark), stamped_at, now),
    )


def save_foreign_keys(session: TargetSession, state: MirrorState, wanted: bool) -> None:
    """Store whether the tables are to have foreign keys."""
    state.foreign_keys = wanted
    session.run(
        f"UPDATE {session.qualify(STATE_TABLE)} SET foreign_keys = {session.mark}", (wanted,)
    )


def save_table(session: TargetSession, state: MirrorState, table: MirroredTable) -> None:
    """Store what there is of a table, in place of what was."""
    state.tables[table.number] = table
    mark, values = session.mark, (table.name, msgspec.json.encode(table).decode(), table.number)
    stored = session.change(
        f"UPDATE {session.qualify(TABLES_TABLE)} SET name = {mark}, state = {mark}"
        f" WHERE number = {mark}",
        values,
    )
    if not stored:
        session.run(
            f"INSERT INTO {session.qualify(TABLES_TABLE)} (name, state, number)"
            f" VALUES ({mark}, {mark}, {mark})",
            values,
        )


def forget_table(session: TargetSession, state: MirrorState, number: int) -> None:
    state.tables.pop(number, None)
    session.run(
        f"DELETE FROM {session.qualify(TABLES_TABLE)} WHERE number = {session.mark}", (number,)
    )
