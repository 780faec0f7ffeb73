"""The catalog's own state: one row per (kind, key), and the counters.

Every change draws a rising seq, so the rows are a feed compacted by key (rule 30). The counter of
seqs is locked until the change commits, so seqs rise in the order of commits. A deletion leaves a
row without a value, a tombstone, for the readers of the feed (`feed`).
"""

from __future__ import annotations

from typing import Any, Final, Literal

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from zapdb import release
from zapdb.catalog.kinds import CatalogRow, LevelRow, row_key
from zapdb.catalog.row_values import R, dump_row, load_row
from zapdb.errors import CorruptCatalog
from zapdb.storage import Connection, DuplicateKey
from zapdb.storage.cells import wrong_counter
from zapdb.storage.fixed_tables import CATALOG, COUNTERS

CounterName = Literal[
    "seq",
    "tenant",
    "migration",
    "table",
    "field",
    "index",
    "type",
    "check",
    "entry_table",
    "index_build",
    "zone",
]

INSERT: Final[dict[str, Any]] = {"sqlite": sqlite.insert, "postgresql": postgresql.insert}


def draw(connection: Connection, counter: CounterName, count: int = 1) -> int:
    """Draw `count` numbers that were never drawn before; returns the first."""
    row = connection.core_execute(
        sa.update(COUNTERS)
        .where(COUNTERS.c.name == counter)
        .values(value=COUNTERS.c.value + count)
        .returning(COUNTERS.c.value)
    ).one_or_none()
    last = None if row is None else row[0]
    if type(last) is not int:
        raise wrong_counter(counter)
    return last - count + 1


def _write(connection: Connection, statement: sa.Executable) -> Any:
    """Write a row with a newly drawn seq."""
    try:
        return connection.core_execute(statement)
    except DuplicateKey:
        raise CorruptCatalog(
            "a counter allocated a number that is already in use",
            table="zapdb_counters",
            counter="seq",
            hint="zapdb_counters was tampered with: restore it from a backup",
        ) from None


def get(connection: Connection, kind: type[R], *key: object, lock: bool = False) -> R | None:
    """Return the row, or None; `lock` locks it until the transaction ends."""
    name = row_key(*key)
    query = sa.select(CATALOG.c.value).where(CATALOG.c.kind == kind.KIND, CATALOG.c.key == name)
    row = connection.core_execute(query.with_for_update() if lock else query).one_or_none()
    return None if row is None or row[0] is None else load_row(kind, name, row[0])


def put(connection: Connection, row: CatalogRow) -> int:
    """Write the row; returns the change's seq."""
    insert, written = _prepare(connection, row)
    _write(connection, insert.on_conflict_do_update(index_elements=["kind", "key"], set_=written))
    return int(written["seq"])


def put_if_absent(connection: Connection, row: CatalogRow) -> bool:
    """Write the row unless there is one; returns whether it was written."""
    insert, written = _prepare(connection, row)
    # SQLAlchemy does not pass on the row count of an INSERT, but it does the returned row.
    statement = insert.on_conflict_do_update(
        index_elements=["kind", "key"], set_=written, where=CATALOG.c.value.is_(None)
    ).returning(CATALOG.c.key)
    return _write(connection, statement).first() is not None


def _prepare(connection: Connection, row: CatalogRow) -> tuple[Any, dict[str, Any]]:
    """Return the INSERT of a row, and the columns that it writes in addition to kind and key."""
    level = release.LEVEL if row.FORMAT == 1 else level_to_write(connection)
    written = {"seq": draw(connection, "seq"), "value": dump_row(row, level)}
    insert = INSERT[connection.storage.dialect](CATALOG)
    return insert.values(kind=row.KIND, key=row.key, **written), written


def level_to_write(connection: Connection) -> int:
    """Return the cluster level, which decides the formats of rows."""
    row = get(connection, LevelRow)
    return 1 if row is None else row.level


def delete(connection: Connection, kind: type[CatalogRow], *key: object) -> int:
    """Replace the row, if it exists, by a tombstone; returns the change's seq."""
    seq = draw(connection, "seq")
    _write(
        connection,
        sa.update(CATALOG)
        .where(
            CATALOG.c.kind == kind.KIND,
            CATALOG.c.key == row_key(*key),
            CATALOG.c.value.is_not(None),
        )
        .values(seq=seq, value=None),
    )
    return seq


def list_rows(connection: Connection, kind: type[R], *within: object) -> list[R]:
    """Return all rows of a kind in the order of their keys; `within` are the first key parts."""
    query = (
        sa.select(CATALOG.c.key, CATALOG.c.value)
        .where(
            CATALOG.c.kind == kind.KIND,
            CATALOG.c.key.startswith(row_key(*within, ""), autoescape=True),
            CATALOG.c.value.is_not(None),
        )
        .order_by(CATALOG.c.key)
    )
    return [load_row(kind, key, value) for key, value in connection.core_execute(query)]
