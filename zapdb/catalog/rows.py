"""The catalog's own state: one row per (kind, key), and the counters.

Every change draws a rising seq, so the rows are a feed compacted by key (rule 30). The counter of
seqs is locked until the change commits, so seqs rise in the order of commits. A seq is an identity
(`storage.identities`): it names one change, also where a backup was restored. A deletion leaves a
row without a value, a tombstone, for the readers of the feed (`feed`).

Opening a database runs dozens of these statements. They are written for the driver, since
SQLAlchemy takes longer to make and compile one than the database to run it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, Literal

from zapdb import release
from zapdb.catalog.row_kinds import CatalogRow, ChainState, LevelRow, Tenant, row_key
from zapdb.catalog.row_values import R, dump_row, load_row
from zapdb.errors import CorruptCatalog
from zapdb.storage import Connection, DuplicateKey
from zapdb.storage.cells import as_number, checked, wrong_counter
from zapdb.storage.fixed_tables import CATALOG
from zapdb.storage.identities import draw_random_part, next_identity_sql
from zapdb.storage.statements import catalog_version_sql

CounterName = Literal[
    "tenant",
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
_KIND_KEY_AND_VALUE: Final = (CATALOG.c.kind, CATALOG.c.key, CATALOG.c.value)
STATE_KINDS: Final = (Tenant.KIND, ChainState.KIND, LevelRow.KIND)


_LOCK_SEQ: Final = "UPDATE zapdb_counters SET value = value WHERE name = 'seq'"


def lock_seq(connection: Connection) -> None:
    """Block other changes until the transaction ends."""
    connection.run(_LOCK_SEQ)


IdentityName = Literal["seq", "migration"]


def draw_identity(connection: Connection, counter: IdentityName) -> int:
    """Draw a number above all that were drawn before, which no other history draws."""
    sql = _draw_identity_sql(connection.storage.placeholder)
    return _require_drawn(counter, connection.fetch_all(sql, (draw_random_part(), counter)))


def _draw_identity_sql(mark: str) -> str:
    return (
        f"UPDATE zapdb_counters SET value = {next_identity_sql('value', mark)}"
        f" WHERE name = {mark} RETURNING value"
    )


def _require_drawn(counter: str, found: list[Any]) -> int:
    last = found[0][0] if found else None
    if type(last) is not int:
        raise wrong_counter(counter)
    return last


def draw(connection: Connection, counter: CounterName, count: int = 1) -> int:
    """Draw `count` numbers that were never drawn before; returns the first."""
    mark = connection.storage.placeholder
    found = connection.fetch_all(
        f"UPDATE zapdb_counters SET value = value + {mark} WHERE name = {mark} RETURNING value",
        (count, counter),
    )
    return _require_drawn(counter, found) - count + 1


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
    seq = _put(connection, row)
    if seq is None:
        raise wrong_counter("seq")
    return seq


def put_if_absent(connection: Connection, row: CatalogRow) -> bool:
    """Write the row unless there is one; returns whether it was written."""
    return _put(connection, row, " WHERE zapdb_catalog.value IS NULL") is not None


def _put(connection: Connection, row: CatalogRow, condition: str = "") -> int | None:
    """Write the row with a newly drawn seq, which is returned; None if it was not written."""
    level = release.LEVEL if row.FORMAT == 1 else level_to_write(connection)
    mark = connection.storage.placeholder
    written: list[Any] = [row.KIND, row.key, dump_row(row, level)]
    if connection.storage.has_writes_in_queries:
        start = f"WITH drawn AS ({_draw_identity_sql(mark)}) "
        written[:0] = [draw_random_part(), "seq"]
        values = f"SELECT {mark}, {mark}, {mark}, value FROM drawn"
    else:
        start, values = "", f"VALUES ({mark}, {mark}, {mark}, {mark})"
        written.append(draw_identity(connection, "seq"))
    with _drawing_seqs():
        found = connection.fetch_all(
            f"{start}INSERT INTO zapdb_catalog (kind, key, value, seq) {values}"
            " ON CONFLICT (kind, key) DO UPDATE SET seq = excluded.seq, value = excluded.value"
            f"{condition} RETURNING seq",
            written,
        )
    return as_number(found[0][0]) if found else None


@contextmanager
def _drawing_seqs() -> Iterator[None]:
    """Raise `CorruptCatalog` if the block writes a row with a seq that another row has."""
    try:
        yield
    except DuplicateKey:
        raise CorruptCatalog(
            "a counter allocated a number that is already in use",
            table="zapdb_counters",
            counter="seq",
            hint="zapdb_counters was tampered with: restore it from a backup",
        ) from None


def level_to_write(connection: Connection) -> int:
    """Return the cluster level, which decides the formats of rows."""
    row = get(connection, LevelRow)
    return 1 if row is None else row.level


def delete(connection: Connection, kind: type[CatalogRow], *key: object) -> int:
    """Replace the row, if it exists, by a tombstone; returns the change's seq."""
    # Two statements: the first waits for other changes, and the second sees what they wrote.
    seq, mark = draw_identity(connection, "seq"), connection.storage.placeholder
    with _drawing_seqs():
        connection.run(
            f"UPDATE zapdb_catalog SET seq = {mark}, value = NULL WHERE kind = {mark}"
            f" AND key = {mark} AND value IS NOT NULL",
            (seq, kind.KIND, row_key(*key)),
        )
    return seq


def list_rows(connection: Connection, kind: type[R], *within: object) -> list[R]:
    """Return all rows of a kind in the order of their keys; `within` are the first key parts."""
    mark = connection.storage.placeholder
    found = connection.fetch_all(
        f"SELECT key, value FROM zapdb_catalog WHERE kind = {mark} AND key LIKE {mark} ESCAPE '/'"
        " AND value IS NOT NULL ORDER BY key",
        (kind.KIND, _pattern(within)),
    )
    return [load_row(kind, key, value) for key, value in checked(_KEY_AND_VALUE, found)]


Texts = dict[tuple[str, str], str]
"""The stored texts of rows, by their kinds and keys."""


def read_texts(
    connection: Connection, kinds: Iterable[type[CatalogRow]], within: Iterable[object] = ()
) -> Texts:
    """Return the rows of some kinds, by one statement: those whose keys begin with one of some
    parts, if there are any."""
    mark, names = connection.storage.placeholder, [kind.KIND for kind in kinds]
    patterns = [_pattern((part,)) for part in within]
    keys = " OR ".join([f"key LIKE {mark} ESCAPE '/'"] * len(patterns))
    found = connection.fetch_all(
        f"SELECT kind, key, value FROM zapdb_catalog WHERE kind IN ({_marks(mark, names)})"
        f"{f' AND ({keys})' if keys else ''} AND value IS NOT NULL",
        (*names, *patterns),
    )
    return _as_texts(found)


def read_tenant_state(connection: Connection, tenant: int) -> tuple[Any, Texts]:
    """Return a tenant's stored catalog version, None if there is none, its row, and the rows of the
    chain and the level, by one statement."""
    mark, kinds, keys = connection.storage.placeholder, STATE_KINDS, ("", str(tenant))
    found = connection.fetch_all(
        f"SELECT a.version, c.kind, c.key, c.value FROM (SELECT ({catalog_version_sql(tenant)})"
        " AS version) AS a LEFT JOIN zapdb_catalog AS c"
        f" ON c.kind IN ({_marks(mark, kinds)}) AND c.key IN ({_marks(mark, keys)})",
        (*kinds, *keys),
    )
    version = found[0][0]
    texts = _as_texts(row[1:] for row in found if row[1] is not None)
    return None if version is None else as_number(version), texts


def _as_texts(found: Iterable[Any]) -> Texts:
    rows = checked(_KIND_KEY_AND_VALUE, list(found))
    return {(kind, key): text for kind, key, text in rows if text is not None}


def _marks(mark: str, values: Sequence[object]) -> str:
    return ", ".join([mark] * len(values))


def _pattern(within: Iterable[object]) -> str:
    """Return the pattern of LIKE for the keys that begin with some parts."""
    prefix = row_key(*within, "")
    for special in "/%_":
        prefix = prefix.replace(special, f"/{special}")
    return f"{prefix}%"
