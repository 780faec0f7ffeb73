"""The last number of each sequence, and the blocks of numbers that are drawn from it.

On SQLite, which has one writer, the transaction that writes the records draws their numbers, and
its rollback takes them back. On PostgreSQL a block belongs to the process that drew it, and is
never drawn again, so rolling back an insertion must not undo the drawing. It is drawn in a separate
transaction where that is possible; else it is drawn again behind the rollback (`DrawnInside`).

The last number only rises. An explicit number above it raises it, and the next block begins after
that number. Each tenant has a row for each sequence, by the field's number, which a renamed or
restored field keeps.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from zapdb.errors import ZapdbError
from zapdb.limits import SEQUENCE_MAX
from zapdb.storage.cells import as_number
from zapdb.storage.statements import catalog_version_sql

if TYPE_CHECKING:
    from zapdb.storage.connection import Connection
    from zapdb.storage.own_lease import OwnLease


class NumberBlock(NamedTuple):
    """The numbers above `after`, up to and including `last`; none if they are equal."""

    after: int
    last: int


_BEHIND: Final = (
    "CASE WHEN zapdb_sequences.last > excluded.block_after THEN zapdb_sequences.last"
    " ELSE excluded.block_after END"
)


def _draw_sql(tenant: int, field: int, condition: str, mark: str) -> str:
    """Return the statement that draws a block after `after` and the last block; its parameters are
    (after, last of a first block, count)."""
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
) -> NumberBlock | None:
    """Draw `count` numbers above `after` and above all that were drawn before; fewer at the end of
    all numbers. None if the tenant's catalog version is not `version` any more."""
    mark = connection.storage.placeholder
    condition = f"({catalog_version_sql(tenant)}) = {int(version)}"
    sql = _draw_sql(tenant, field, condition, f"CAST({mark} AS bigint)")
    rows = connection.fetch_all(sql, (after, min(after + count, SEQUENCE_MAX), count, count))
    return NumberBlock(as_number(rows[0][0]), as_number(rows[0][1])) if rows else None


@lru_cache(maxsize=256)
def _draw_next_sql(tenant: int, field: int) -> str:
    return (
        "UPDATE zapdb_sequences SET block_after = max(last, ?),"
        f" last = min(max(last, ?), {SEQUENCE_MAX} - ?) + ?"
        f" WHERE tenant = {int(tenant)} AND field = {int(field)} AND (? > 0 OR last < ?)"
        " RETURNING block_after, last"
    )


def draw_next(
    connection: Connection, tenant: int, field: int, above: int, count: int
) -> NumberBlock | None:
    """Draw on SQLite, in a transaction that writes and has compared the catalog version; None if
    nothing was ever drawn, or if no number is wanted and the last one is not below `above`."""
    rows = connection.fetch_all(
        _draw_next_sql(tenant, field), (above, above, count, count, count, above)
    )
    return NumberBlock(as_number(rows[0][0]), as_number(rows[0][1])) if rows else None


def read_last_number(connection: Connection, tenant: int, field: int) -> int | None:
    """Return the last number drawn from a sequence; None if none ever was."""
    sql = f"SELECT last FROM zapdb_sequences WHERE tenant = {int(tenant)} AND field = {int(field)}"
    row = connection.fetch_one(sql)
    return None if row is None else as_number(row[0])


def move_on(connection: Connection, tenant: int, field: int, last: int) -> None:
    """Raise a sequence's last number to a number, unless it is higher already."""
    mark = connection.storage.placeholder
    sql = _draw_sql(tenant, field, "true", f"CAST({mark} AS bigint)")
    connection.fetch_all(sql, (last, last, 0, 0))


def read_last_numbers(connection: Connection, tenant: int) -> dict[int, int]:
    """Return the last number drawn from each sequence of a tenant, by the field's number."""
    sql = f"SELECT field, last FROM zapdb_sequences WHERE tenant = {int(tenant)} ORDER BY field"
    return {as_number(field): as_number(last) for field, last in connection.fetch_all(sql)}


def delete_sequence(connection: Connection, tenant: int, field: int) -> None:
    """Forget what was drawn of a sequence whose field is gone for good."""
    sql = f"DELETE FROM zapdb_sequences WHERE tenant = {int(tenant)} AND field = {int(field)}"
    connection.run(sql)


class DrawnInside:
    """The blocks that a transaction drew itself, until it ends."""

    def __init__(self, own: OwnLease) -> None:
        self._own = own
        self._last: dict[tuple[int, int], int] = {}
        self.hands: dict[tuple[int, int], Any] = {}
        """The numbers of each tenant and field that the transaction has in hand."""
        self.is_open = True
        self.is_kept = False
        """Whether the transaction has ended, and the blocks stay drawn."""
        self.is_confirmed = False
        """Whether the epoch of the process's lease has risen since: then the process does not give
        what is left of them where a backup from before is restored (`storage.own_lease`)."""

    def add(self, tenant: int, field: int, block: NumberBlock) -> None:
        self._last[tenant, field] = block.last

    def again(self, mark: str) -> list[tuple[str, tuple[int, ...]]]:
        """Return the statements, with parameters, that raise the last numbers to the ends of the
        blocks again, after a rollback."""
        number = f"CAST({mark} AS bigint)"
        return [
            (_draw_sql(tenant, field, "true", number), (last, last, 0, 0))
            for (tenant, field), last in self._last.items()
        ]

    def draw_again(self, driver: Any, mark: str) -> None:
        for sql, parameters in self.again(mark):
            driver.execute(sql, parameters).fetchall()

    def confirm_or_discard(self, connection: Connection) -> None:
        """Raise the epoch after the end of a transaction; if that is not possible, what is left of
        the blocks is thrown away."""
        if not self.is_kept or self.is_confirmed:
            return
        try:
            self._own.note(self._own.rise(connection))
            self.is_confirmed = True
        except ZapdbError:
            pass
        finally:
            self.is_kept = self.is_confirmed
