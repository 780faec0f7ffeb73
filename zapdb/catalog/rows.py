"""The catalog's own state: one JSON value per (kind, key), and the counters.

Every change draws a rising token, so that the rows are a changelog compacted by key (rule 30). The
token's counter is locked until the change commits: tokens rise in the order of commits.
"""

from __future__ import annotations

import json
from typing import Any, Final, Literal

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from zapdb.storage import Connection
from zapdb.storage.tables import CATALOG, COUNTERS

Kind = Literal[
    "database",
    "level",
    "tenant",
    "node",
    "lease",
    "index",
    "constraint",
    "retired",
    "job",
    "finding",
    "setting",
]
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
    (last,) = connection.core_execute(
        sa.update(COUNTERS)
        .where(COUNTERS.c.name == counter)
        .values(value=COUNTERS.c.value + count)
        .returning(COUNTERS.c.value)
    ).one()
    return int(last) - count + 1


def get(
    connection: Connection, kind: Kind, key: str, *, lock: bool = False
) -> dict[str, Any] | None:
    """The value, or None; with `lock` the row stays as it is until the transaction ends."""
    query = sa.select(CATALOG.c.value).where(CATALOG.c.kind == kind, CATALOG.c.key == key)
    row = connection.core_execute(query.with_for_update() if lock else query).one_or_none()
    return None if row is None else _load(row[0])


def put(connection: Connection, kind: Kind, key: str, value: dict[str, Any]) -> int:
    """Write the value; returns the change's token."""
    token = draw(connection, "token")
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    insert = INSERT[connection.storage.dialect](CATALOG).values(
        kind=kind, key=key, token=token, value=text
    )
    connection.core_execute(
        insert.on_conflict_do_update(
            index_elements=["kind", "key"], set_={"token": token, "value": text}
        )
    )
    return token


def put_if_absent(connection: Connection, kind: Kind, key: str, value: dict[str, Any]) -> bool:
    """Write the value unless there is one; returns whether it was written."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    insert = INSERT[connection.storage.dialect](CATALOG).values(
        kind=kind, key=key, token=draw(connection, "token"), value=text
    )
    # The driver's row count of an INSERT is not passed on by SQLAlchemy; the returned row is.
    statement = insert.on_conflict_do_nothing().returning(CATALOG.c.key)
    return connection.core_execute(statement).first() is not None


def touch(connection: Connection, kind: Kind, key: str, value: dict[str, Any]) -> None:
    """Write a value that is no change to anybody (a renewed expiry): without a token."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    connection.core_execute(
        sa.update(CATALOG).where(CATALOG.c.kind == kind, CATALOG.c.key == key).values(value=text)
    )


def delete(connection: Connection, kind: Kind, key: str) -> None:
    draw(connection, "token")
    connection.core_execute(sa.delete(CATALOG).where(CATALOG.c.kind == kind, CATALOG.c.key == key))


def list_rows(connection: Connection, kind: Kind, prefix: str = "") -> dict[str, dict[str, Any]]:
    """All values of a kind by key, in key order."""
    query = (
        sa.select(CATALOG.c.key, CATALOG.c.value)
        .where(CATALOG.c.kind == kind, CATALOG.c.key.startswith(prefix, autoescape=True))
        .order_by(CATALOG.c.key)
    )
    return {key: _load(value) for key, value in connection.core_execute(query)}


def _load(text: str) -> dict[str, Any]:
    value: dict[str, Any] = json.loads(text)
    return value
