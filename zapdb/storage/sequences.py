"""The last number of each sequence, and the blocks of numbers that processes draw from it.

A block belongs to the process that drew it, and is never drawn again. So drawing must not be undone
with what the numbers were drawn for. PostgreSQL draws in a transaction of its own. SQLite has one
writer: inside a transaction that writes, the block is drawn by that transaction; whatever of it is
rolled back, the drawing is done again before another transaction can write (`DrawnInside`).

The last number only rises, and an explicit number above it moves it on: then the block begins
behind that number. A tenant's sequences have rows of their own, by the field's number, which a
renamed or restored field keeps.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from zapdb.limits import SEQUENCE_MAX
from zapdb.storage.cells import as_number
from zapdb.storage.statements import catalog_version_sql

if TYPE_CHECKING:
    from zapdb.storage.connection import Connection


class Block(NamedTuple):
    """The numbers above `after`, up to and including `last`; none if they are equal."""

    after: int
    last: int


_BEHIND: Final = (
    "CASE WHEN zapdb_sequences.last > excluded.block_after THEN zapdb_sequences.last"
    " ELSE excluded.block_after END"
)


def _draw_sql(tenant: int, field: int, condition: str, mark: str) -> str:
    """For (after, last of a first block, count): draws a block behind `after` and the last one."""
    return (
        "INSERT INTO zapdb_sequences (tenant, field, block_after, last)"
        f" SELECT {int(tenant)}, {int(field)}, {mark}, {mark} WHERE {condition}"
        " ON CONFLICT (tenant, field) DO UPDATE SET"
        f" block_after = {_BEHIND}, last = CASE WHEN {_BEHIND} > {SEQUENCE_MAX} - {mark}"
        f" THEN {SEQUENCE_MAX} ELSE {_BEHIND} + {mark} END"
        " RETURNING block_after, last"
    )


def draw_block(
    connection: Connection, tenant: int, field: int, version: int, after: int, count: int
) -> Block | None:
    """Draw `count` numbers above `after` and above all that were drawn before; fewer at the end of
    all numbers. None if the tenant's catalog version is not `version` any more."""
    mark = connection.storage.placeholder
    condition = f"({catalog_version_sql(tenant)}) = {int(version)}"
    sql = _draw_sql(tenant, field, condition, f"CAST({mark} AS bigint)")
    rows = connection.fetch_all(sql, (after, min(after + count, SEQUENCE_MAX), count, count))
    return Block(as_number(rows[0][0]), as_number(rows[0][1])) if rows else None


def is_drawn_from(connection: Connection, tenant: int, field: int) -> bool:
    """Whether anything was ever drawn from a sequence."""
    sql = f"SELECT 1 FROM zapdb_sequences WHERE tenant = {int(tenant)} AND field = {int(field)}"
    return connection.fetch_one(sql) is not None


def move_on(connection: Connection, tenant: int, field: int, last: int) -> None:
    """Have a sequence go on behind a number, unless it is behind it already."""
    mark = connection.storage.placeholder
    sql = _draw_sql(tenant, field, "true", f"CAST({mark} AS bigint)")
    connection.fetch_all(sql, (last, last, 0, 0))


def read_last_numbers(connection: Connection, tenant: int) -> dict[int, int]:
    """The last number that was drawn of each sequence of a tenant, by the number of its field."""
    sql = f"SELECT field, last FROM zapdb_sequences WHERE tenant = {int(tenant)} ORDER BY field"
    return {as_number(field): as_number(last) for field, last in connection.fetch_all(sql)}


class DrawnInside:
    """The blocks that a transaction of SQLite drew itself, until it has ended."""

    def __init__(self) -> None:
        self._last: dict[tuple[int, int], int] = {}
        self.is_kept = False
        """Whether the transaction has ended, and the blocks stay drawn."""

    def add(self, tenant: int, field: int, block: Block) -> None:
        self._last[tenant, field] = block.last

    def draw_again(self, driver: Any) -> None:
        """After a rollback that undid some of it: move the sequences on behind the blocks."""
        for (tenant, field), last in self._last.items():
            driver.execute(_draw_sql(tenant, field, "true", "?"), (last, last, 0, 0)).fetchall()
