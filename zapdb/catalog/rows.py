"""The catalog's own state: one JSON value per (kind, key), and the counters.

Every change draws a rising token, so that the rows are a changelog compacted by key (rule 30). The
token's counter is locked until the change commits: tokens rise in the order of commits. A key that
is deleted leaves a row without a value, a tombstone, so that followers see it (`changelog`).
"""

from __future__ import annotations

from typing import Any, Final, Literal

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from zapdb.catalog.kinds import KindName, Value, dump_value, load_value
from zapdb.errors import CorruptCatalog
from zapdb.storage import Connection, DuplicateKey
from zapdb.storage.tables import CATALOG, COUNTERS

Kind = KindName
Counter = Literal[
    "token",
    "tenant",
    "migration",
    "table",
    "field",
    "index",
    "type",
    "check",
    "physical",
    "zone",
]

INSERT: Final[dict[str, Any]] = {"sqlite": sqlite.insert, "postgresql": postgresql.insert}


def draw(connection: Connection, counter: Counter, count: int = 1) -> int:
    """Draw `count` numbers that were never drawn before; returns the first."""
    row = connection.core_execute(
        sa.update(COUNTERS)
        .where(COUNTERS.c.name == counter)
        .values(value=COUNTERS.c.value + count)
        .returning(COUNTERS.c.value)
    ).one_or_none()
    last = None if row is None else row[0]
    if type(last) is not int:
        raise CorruptCatalog(
            "a counter is missing, or no number",
            table="zapdb_counters",
            counter=counter,
            hint="restore the row from a backup",
        )
    return last - count + 1


def _write(connection: Connection, statement: sa.Executable) -> Any:
    """Write a row under a token that was just drawn."""
    try:
        return connection.core_execute(statement)
    except DuplicateKey:
        raise CorruptCatalog(
            "a counter gave out a number that is in use",
            table="zapdb_counters",
            counter="token",
            hint="zapdb_counters was tampered with: restore it from a backup",
        ) from None


def get(connection: Connection, kind: Kind, key: str, *, lock: bool = False) -> Value | None:
    """The value, or None; with `lock` the row stays as it is until the transaction ends."""
    found = get_leased(connection, kind, key, lock=lock)
    return None if found is None else found[0]


def get_leased(
    connection: Connection, kind: Kind, key: str, *, lock: bool = False
) -> tuple[Value, int, int] | None:
    """The value, when it expires, and under which epoch: 0 where that was never said."""
    query = sa.select(CATALOG.c.value, CATALOG.c.expires_at, CATALOG.c.epoch).where(
        CATALOG.c.kind == kind, CATALOG.c.key == key
    )
    row = connection.core_execute(query.with_for_update() if lock else query).one_or_none()
    if row is None or row[0] is None:
        return None
    return load_value(kind, key, row[0]), row[1] or 0, row[2] or 0


def put(
    connection: Connection,
    kind: Kind,
    key: str,
    value: Value,
    *,
    expires_at: int | None = None,
    epoch: int | None = None,
) -> int:
    """Write the value; returns the change's token."""
    token = draw(connection, "token")
    written = {
        "token": token,
        "value": dump_value(kind, value),
        "expires_at": expires_at,
        "epoch": epoch,
    }
    insert = INSERT[connection.storage.dialect](CATALOG).values(kind=kind, key=key, **written)
    _write(connection, insert.on_conflict_do_update(index_elements=["kind", "key"], set_=written))
    return token


def put_if_absent(
    connection: Connection,
    kind: Kind,
    key: str,
    value: Value,
    *,
    expires_at: int | None = None,
    epoch: int | None = None,
) -> bool:
    """Write the value unless there is one; returns whether it was written."""
    written = {
        "token": draw(connection, "token"),
        "value": dump_value(kind, value),
        "expires_at": expires_at,
        "epoch": epoch,
    }
    insert = INSERT[connection.storage.dialect](CATALOG).values(kind=kind, key=key, **written)
    # The driver's row count of an INSERT is not passed on by SQLAlchemy; the returned row is.
    statement = insert.on_conflict_do_update(
        index_elements=["kind", "key"], set_=written, where=CATALOG.c.value.is_(None)
    ).returning(CATALOG.c.key)
    return _write(connection, statement).first() is not None


def touch(connection: Connection, kind: Kind, key: str, expires_at: int) -> None:
    """Set when the value expires: no change to anybody, and without a token."""
    connection.core_execute(
        sa.update(CATALOG)
        .where(CATALOG.c.kind == kind, CATALOG.c.key == key, CATALOG.c.value.is_not(None))
        .values(expires_at=expires_at)
    )


def delete(connection: Connection, kind: Kind, key: str) -> int:
    """Leave a tombstone in the place of the value, if there is one; returns the change's token."""
    token = draw(connection, "token")
    _write(
        connection,
        sa.update(CATALOG)
        .where(CATALOG.c.kind == kind, CATALOG.c.key == key, CATALOG.c.value.is_not(None))
        .values(token=token, value=None, expires_at=None, epoch=None),
    )
    return token


def list_rows(connection: Connection, kind: Kind, prefix: str = "") -> dict[str, Value]:
    """All values of a kind by key, in key order."""
    query = (
        sa.select(CATALOG.c.key, CATALOG.c.value)
        .where(
            CATALOG.c.kind == kind,
            CATALOG.c.key.startswith(prefix, autoescape=True),
            CATALOG.c.value.is_not(None),
        )
        .order_by(CATALOG.c.key)
    )
    return {key: load_value(kind, key, value) for key, value in connection.core_execute(query)}
