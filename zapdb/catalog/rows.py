"""The catalog's own state: one row per (kind, key), and the counters.

Every change draws a rising seq, so the rows are a feed compacted by key (rule 30). The counter of
seqs is locked until the change commits, so seqs rise in the order of commits. A deletion leaves a
row without a value, a tombstone, for the readers of the feed (`feed`).

Opening a database runs dozens of these statements. They are written for the driver, since
SQLAlchemy takes longer to make and compile one than the database to run it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Literal

from zapdb import release
from zapdb.catalog.kinds import CatalogRow, LevelRow, row_key
from zapdb.catalog.row_values import R, dump_row, load_row
from zapdb.errors import CorruptCatalog
from zapdb.storage import Connection, DuplicateKey
from zapdb.storage.cells import checked, wrong_counter
from zapdb.storage.fixed_tables import CATALOG

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


_VALUE: Final = (CATALOG.c.value,)
_KEY_AND_VALUE: Final = (CATALOG.c.key, CATALOG.c.value)


def draw(connection: Connection, counter: CounterName, count: int = 1) -> int:
    """Draw `count` numbers that were never drawn before; returns the first."""
    mark = connection.storage.placeholder
    found = connection.fetch_all(
        f"UPDATE zapdb_counters SET value = value + {mark} WHERE name = {mark} RETURNING value",
        (count, counter),
    )
    last = found[0][0] if found else None
    if type(last) is not int:
        raise wrong_counter(counter)
    return last - count + 1


def _write(connection: Connection, sql: str, parameters: Sequence[Any]) -> int:
    """Write a row with a newly drawn seq; returns how many rows were written."""
    try:
        return connection.run(sql, parameters)
    except DuplicateKey:
        raise CorruptCatalog(
            "a counter allocated a number that is already in use",
            table="zapdb_counters",
            counter="seq",
            hint="zapdb_counters was tampered with: restore it from a backup",
        ) from None


def get(connection: Connection, kind: type[R], *key: object, lock: bool = False) -> R | None:
    """Return the row, or None; `lock` locks it until the transaction ends."""
    name, storage = row_key(*key), connection.storage
    found = connection.fetch_all(
        f"SELECT value FROM zapdb_catalog WHERE kind = {storage.placeholder}"
        f" AND key = {storage.placeholder}{storage.lock_rows_sql if lock else ''}",
        (kind.KIND, name),
    )
    for (text,) in checked(_VALUE, found):
        return None if text is None else load_row(kind, name, text)
    return None


def put(connection: Connection, row: CatalogRow) -> int:
    """Write the row; returns the change's seq."""
    sql, parameters = _prepare(connection, row)
    _write(connection, sql, parameters)
    return int(parameters[2])


def put_if_absent(connection: Connection, row: CatalogRow) -> bool:
    """Write the row unless there is one; returns whether it was written."""
    sql, parameters = _prepare(connection, row)
    return _write(connection, f"{sql} WHERE zapdb_catalog.value IS NULL", parameters) > 0


def _prepare(connection: Connection, row: CatalogRow) -> tuple[str, tuple[str, str, int, str]]:
    """Return the statement that writes a row, and its kind, key, seq and value."""
    level = release.LEVEL if row.FORMAT == 1 else level_to_write(connection)
    marks = ", ".join([connection.storage.placeholder] * 4)
    return (
        f"INSERT INTO zapdb_catalog (kind, key, seq, value) VALUES ({marks})"
        " ON CONFLICT (kind, key) DO UPDATE SET seq = excluded.seq, value = excluded.value",
        (row.KIND, row.key, draw(connection, "seq"), dump_row(row, level)),
    )


def level_to_write(connection: Connection) -> int:
    """Return the cluster level, which decides the formats of rows."""
    row = get(connection, LevelRow)
    return 1 if row is None else row.level


def delete(connection: Connection, kind: type[CatalogRow], *key: object) -> int:
    """Replace the row, if it exists, by a tombstone; returns the change's seq."""
    seq, mark = draw(connection, "seq"), connection.storage.placeholder
    _write(
        connection,
        f"UPDATE zapdb_catalog SET seq = {mark}, value = NULL WHERE kind = {mark} AND key = {mark}"
        " AND value IS NOT NULL",
        (seq, kind.KIND, row_key(*key)),
    )
    return seq


def list_rows(connection: Connection, kind: type[R], *within: object) -> list[R]:
    """Return all rows of a kind in the order of their keys; `within` are the first key parts."""
    prefix, mark = row_key(*within, ""), connection.storage.placeholder
    for special in "/%_":
        prefix = prefix.replace(special, f"/{special}")
    found = connection.fetch_all(
        f"SELECT key, value FROM zapdb_catalog WHERE kind = {mark} AND key LIKE {mark} ESCAPE '/'"
        " AND value IS NOT NULL ORDER BY key",
        (kind.KIND, f"{prefix}%"),
    )
    return [load_row(kind, key, value) for key, value in checked(_KEY_AND_VALUE, found)]
