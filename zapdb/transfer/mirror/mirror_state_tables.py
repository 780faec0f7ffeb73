"""The two tables of a target that hold a mirror's state."""

from __future__ import annotations

from typing import Final

import msgspec

from zapdb.errors import UsageError
from zapdb.log.change_log import Bookmark
from zapdb.transfer.mirror.state import (
    FORMAT,
    OWN_TABLES,
    STATE_TABLE,
    TABLES_TABLE,
    MirroredTable,
    MirrorSource,
    MirrorState,
    decode_table,
    encode_table,
)
from zapdb.transfer.mirror.target import TargetSession

_TYPES: Final = {"duckdb": "VARCHAR"}


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
        tables = {number: decode_table(state) for number, state in rows}
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
    text = _TYPES.get(session.engine, "TEXT")
    session.run(
        f"CREATE TABLE {session.qualify(STATE_TABLE)} (format BIGINT NOT NULL,"
        f" source {text} NOT NULL, tenant BIGINT NOT NULL, follower {text} NOT NULL,"
        f" bookmark {text} NOT NULL,"
        " stamped_at BIGINT NOT NULL, updated_at BIGINT NOT NULL, foreign_keys BOOLEAN NOT NULL)"
    )
    session.run(
        f"CREATE TABLE {session.qualify(TABLES_TABLE)} (number BIGINT NOT NULL,"
        f" name {text} NOT NULL, state {text} NOT NULL)"
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
    mark, values = session.mark, (table.name, encode_table(table), table.number)
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
