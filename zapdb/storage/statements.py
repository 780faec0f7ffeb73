"""The common parts of the statements on records and on index entries.

Reads carry the tenant's catalog version, so that a process notices a change with the first
statement after it (rule 8).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from zapdb.storage.cells import as_number
from zapdb.storage.connection import Connection
from zapdb.storage.identities import draw_random_part, next_identity_sql

VALUES_PER_STATEMENT: Final = 500


def fetch_in(connection: Connection, sql: str, values: Sequence[bytes]) -> Iterator[Any]:
    """Yield the rows of a statement that ends in `IN`, which is run for some of the values at a
    time."""
    for start in range(0, len(values), VALUES_PER_STATEMENT):
        some = values[start : start + VALUES_PER_STATEMENT]
        marks = ", ".join([connection.storage.placeholder] * len(some))
        yield from connection.fetch_all(f"{sql} ({marks})", some)


def prefix_sql(mark: str, column: str) -> str:
    """The revision of a record in a column, encoded; with `PREFIX_PARAMETERS`."""
    # It is one byte up to revision 63, then two, then three (65,535 and beyond: four).
    first = f"substr({column}, 1, 1)"
    size = (
        f"CASE WHEN {first} < {mark} THEN 1 WHEN {first} = {mark} THEN 2"
        f" WHEN {first} = {mark} THEN 3 ELSE 4 END"
    )
    return f"substr({column}, 1, {size})"


PREFIX_PARAMETERS: Final = (b"\xc0", b"\xc0", b"\xc1")


def catalog_version_sql(tenant: int) -> str:
    return f"SELECT version FROM zapdb_catalog_versions WHERE tenant = {int(tenant)}"


def raise_catalog_version(connection: Connection, tenant: int | None = None) -> None:
    """Give a tenant another catalog version, or all of them: every process that uses it reloads the
    tenant catalog."""
    mark = connection.storage.placeholder
    where = "" if tenant is None else f" WHERE tenant = {int(tenant)}"
    connection.run(
        f"UPDATE zapdb_catalog_versions SET version = {next_identity_sql('version', mark)}{where}",
        (draw_random_part(),),
    )


def in_range(mark: str, lower: bytes | None, upper: bytes | None) -> tuple[str, list[Any]]:
    """A condition on keys, lower < key ≤ upper, that begins with AND, and its parameters."""
    condition, parameters = "", []
    for operator, bound in ((">", lower), ("<=", upper)):
        if bound is not None:
            condition += f" AND key {operator} {mark}"
            parameters.append(bound)
    return condition, parameters


def find_middle(
    connection: Connection, columns: str, source: str, parameters: Sequence[Any], limit: int
) -> tuple[int, Any]:
    """How many rows `source`, a table with a condition, has, up to `limit`; and of these, in the
    order of the columns, the one in the middle: None if there are none."""
    (count,) = connection.fetch_one(
        f"SELECT count(*) FROM (SELECT 1 FROM {source} LIMIT {int(limit)}) AS counted",
        parameters,
    )
    row = connection.fetch_one(
        f"SELECT {columns} FROM {source} ORDER BY {columns} LIMIT 1"
        f" OFFSET {max(0, int(count) - 1) // 2}",
        parameters,
    )
    return int(count), row


def bounds_behind(
    lower: bytes | None, upper: bytes | None, after: tuple[bytes, bytes] | None, *, descending: bool
) -> tuple[bytes | None, bytes | None]:
    """Return the bounds of the keys that come behind the last (key, key) of a page; `lower` is
    inclusive, `upper` exclusive."""
    if after is None:
        return lower, upper
    if descending:
        return lower, after[0] if upper is None else min(upper, after[0])
    behind = after[0] + b"\x00"
    return behind if lower is None else max(lower, behind), upper


def between(
    mark: str, tenant: int, lower: bytes | None, upper: bytes | None
) -> tuple[str, list[bytes]]:
    """Return a condition on a tenant's keys, lower ≤ key < upper, and its parameters."""
    conditions, parameters = [f"tenant = {int(tenant)}"], []
    for operator, bound in ((">=", lower), ("<", upper)):
        if bound is not None:
            conditions.append(f"key {operator} {mark}")
            parameters.append(bound)
    return " AND ".join(conditions), parameters


def count_rows(
    connection: Connection,
    version_sql: str,
    name: str,
    where: str,
    parameters: Sequence[bytes],
    limit: int | None,
) -> tuple[int, int]:
    """Return the catalog version and the number of rows, at most `limit`."""
    rows = f"SELECT 1 FROM {name} WHERE {where}"
    if limit is not None:
        rows += f" LIMIT {int(limit)}"
    row = connection.fetch_one(
        f"SELECT ({version_sql}), count(*) FROM ({rows}) AS found", parameters
    )
    return (0, 0) if row[0] is None else (as_number(row[0]), as_number(row[1]))
