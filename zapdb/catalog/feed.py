"""The catalog feed: the rows that changed after a seq, compacted by key (rule 30).

A reader that has all rows up to a seq asks for the rows with later seqs: the newest value of each
changed key, and a tombstone for each deleted key. Tombstones are purged after a number of changes;
the seq up to which they are purged is stored as the *horizon*. A reader behind the horizon can't
know which keys were deleted, so it loads all rows. The feed is never longer than the live keys and
the changes since the last purge, and no statement is replayed.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import sqlalchemy as sa

from zapdb.catalog.row_kinds import KINDS
from zapdb.catalog.rows import dump_row, level_to_write, load_row, lock_seq, put
from zapdb.errors import CatalogChangesPurged
from zapdb.limits import TOMBSTONES_KEPT
from zapdb.storage import Connection, Storage, TransactionMode
from zapdb.storage.cells import as_number, wrong_counter
from zapdb.storage.fixed_tables import CATALOG, COUNTERS
from zapdb.storage.identities import count_of, lowest_of

SEQ_SQL = "SELECT value FROM zapdb_counters WHERE name = 'seq'"
HORIZON_SQL = "SELECT value FROM zapdb_counters WHERE name = 'horizon'"


@dataclass(frozen=True, slots=True)
class FeedRow:
    """One entry: the stored text of a key's newest value, or None for a tombstone."""

    kind: str
    key: str
    seq: int
    text: str | None


def read_seq(connection: Connection, *, lock: bool = False) -> int:
    """Return the seq of the newest change; with `lock` there is no newer one until the transaction
    ends."""
    row = connection.fetch_one(SEQ_SQL + (connection.storage.dialect.lock_rows_sql if lock else ""))
    if row is None:
        raise wrong_counter("seq")
    return as_number(row[0])


def read_horizon(connection: Connection) -> int:
    """Return the newest seq up to which tombstones may have been purged."""
    row = connection.fetch_one(HORIZON_SQL)
    if row is None:
        raise wrong_counter("horizon")
    return as_number(row[0])


def read_changed_rows(
    connection: Connection, after: int, kinds: Collection[str] | None = None
) -> list[FeedRow]:
    """Return the newest change of each row that has changed after a seq, in the order of their
    seqs, inside a transaction that reads one snapshot; only rows of some kinds, if they are given.

    To go on, give the seq of the last one; if kinds are chosen, better that of `read_seq` in the
    same snapshot, which does not fall behind while other rows change. 0 asks for all rows. Raises
    `CatalogChangesPurged` if deletions after the seq are not kept any more, or if the database
    never had it: a backup was restored.
    """
    seq, horizon = read_seq(connection), read_horizon(connection)
    if after and not horizon <= after <= seq:
        raise CatalogChangesPurged(
            "the catalog's changes since this seq are not kept",
            after=after,
            oldest=horizon,
            newest=seq,
            hint="read the whole catalog (after seq 0), and go on from its newest seq",
        )
    query = (
        sa.select(CATALOG.c.kind, CATALOG.c.key, CATALOG.c.seq, CATALOG.c.value)
        .where(CATALOG.c.seq > after)
        .order_by(CATALOG.c.seq)
    )
    if kinds is not None:
        query = query.where(CATALOG.c.kind.in_(kinds))
    return [FeedRow(*row) for row in connection.core_execute(query)]


def read_newest_up_to(connection: Connection, seq: int) -> int | None:
    """Return the highest seq of a row that is not above a seq; None if there is none."""
    mark = connection.storage.placeholder
    row = connection.fetch_one(f"SELECT max(seq) FROM zapdb_catalog WHERE seq <= {mark}", (seq,))
    return None if row[0] is None else as_number(row[0])


def purge(storage: Storage, kept: int = TOMBSTONES_KEPT) -> int:
    """Delete the tombstones that are older than the last `kept` changes; returns how many."""
    with storage.transaction(TransactionMode.CATALOG) as connection:
        # Writers of rows lock it first, too: else each may hold a row that the other one wants.
        seq = read_seq(connection, lock=True)
        horizon = min(seq, lowest_of(count_of(seq) - kept + 1) - 1)
        if horizon <= read_horizon(connection):
            return 0
        connection.core_execute(
            sa.update(COUNTERS)
            .where(COUNTERS.c.name == "horizon", COUNTERS.c.value < horizon)
            .values(value=horizon)
        )
        purged = connection.core_execute(
            sa.delete(CATALOG)
            .where(CATALOG.c.value.is_(None), CATALOG.c.seq <= horizon)
            .returning(CATALOG.c.key)
        )
        return len(purged.fetchall())


def _count_since_purge(connection: Connection) -> int:
    """Return how many changes were made since the horizon, by one statement."""
    seq, horizon = connection.fetch_one(f"SELECT ({SEQ_SQL}), ({HORIZON_SQL})")
    if seq is None or horizon is None:
        raise wrong_counter("seq" if seq is None else "horizon")
    return count_of(as_number(seq)) - count_of(as_number(horizon))


def purge_if_long(storage: Storage) -> int:
    """Purge tombstones if there are enough of them for a transaction; called by the sweep."""
    if _count_since_purge(storage.connection()) <= 2 * TOMBSTONES_KEPT:
        return 0
    return purge(storage)


def upgrade_row_formats(connection: Connection) -> int:
    """Write all values in the newest formats that the cluster level allows, inside a CATALOG
    transaction; returns how many had older formats. Called when the level has risen.
    """
    rewritten, level = 0, level_to_write(connection)
    for kind in KINDS.values():
        if kind.FORMAT == 1:
            continue
        lock_seq(connection)
        query = sa.select(CATALOG.c.key, CATALOG.c.value).where(
            CATALOG.c.kind == kind.KIND, CATALOG.c.value.is_not(None)
        )
        for key, text in connection.core_execute(query).fetchall():
            row = load_row(kind, key, text)
            if dump_row(row, level) != text:
                put(connection, row)
                rewritten += 1
    return rewritten
