"""Stamps: on PostgreSQL, the logical timestamps of the change log, each a stored snapshot.

A transaction of the log has the first stamp whose snapshot shows it. A stamp also keeps what its
transactions add up to: the number of the tenant's moments up to its end, and when the last of them
became visible.

A moment is a transaction of the log, and moments are numbered in its order. A moment is visible
from the latest of these times on: when the moment before it was, when it was made, and when the
stamp before its own was added. So the time never decreases from moment to moment, and nothing that
commits later can get a time before the newest stamp's `stamped_at`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final, Self

from zapdb.errors import CorruptCatalog
from zapdb.log.incarnations import FIRST_NUMBER_SQL
from zapdb.log.pending_changes import MOVED_HINT
from zapdb.storage.cells import as_number, as_text, reading
from zapdb.storage.connection import Connection
from zapdb.storage.fixed_tables import STAMPS

STAMPS_LOCK: Final = 0x7A617073  # the first number of advisory locks: "zaps"
LOCK_NUMBERS: Final = 2**31
STAMP_COLUMNS: Final = "number, snapshot, stamped_at, moment, visible_at"


@dataclass(frozen=True, slots=True)
class LogSnapshot:
    """The transactions that have ended: those below `xmax` that are not `running`."""

    xmax: int
    running: tuple[int, ...]

    @classmethod
    def parse(cls, text: str) -> LogSnapshot:
        """Read PostgreSQL's text form, `xmin:xmax:running,running,…`."""
        _, xmax, running = text.split(":")
        return cls(int(xmax), tuple(int(number) for number in running.split(",") if number))

    @classmethod
    def here(cls, text: str, first: int, asking: int | None = None) -> LogSnapshot:
        """Read what this server says of its transactions; `first` is what their numbers are above,
        `asking` the transaction that asks. The server doesn't name that one, though it is running:
        transactions that began later may have ended."""
        found = cls.parse(text)
        running = set(found.running)
        if asking is not None and asking < found.xmax:
            running.add(asking)
        return cls(first + found.xmax, tuple(first + number for number in sorted(running)))

    @property
    def lowest(self) -> int:
        """The lowest transaction that has not ended in it."""
        return min((self.xmax, *self.running))

    def shows_all_of(self, other: LogSnapshot) -> bool:
        """Whether all transactions that have ended in another one have ended in this one."""
        running = {number for number in self.running if number < other.xmax}
        return self.xmax >= other.xmax and running <= {*other.running}

    def __str__(self) -> str:
        """PostgreSQL's text form."""
        return f"{self.lowest}:{self.xmax}:{','.join(map(str, sorted(self.running)))}"

    def shows(self, number: int) -> bool:
        """Return whether it shows what a transaction did."""
        return number < self.xmax and number not in self.running

    def hides_sql(self, column: str) -> str:
        """Return the condition for the transactions that it does not show, by their number."""
        hidden = f"{column} >= {int(self.xmax)}"
        if not self.running:
            return f"({hidden})"
        running = ", ".join(str(int(number)) for number in self.running)
        return f"({hidden} OR {column} IN ({running}))"


NUMBERS_END: Final = 1 << 62
"""No stamp has this or a higher one for a number, a moment or a time: there is room for what is
added to it in SQL."""
EMPTY_SNAPSHOT: Final = LogSnapshot(0, ())


@dataclass(frozen=True, slots=True)
class Stamp:
    """A stamp: the transactions that are visible in `snapshot`, and not in `before`, that of the
    stamp before.

    `moment` is the number of the last moment up to its end, and `visible_at` the time from which
    that one is visible. Its own moments come after `moment_before`, and none of them is visible
    before `first_visible_at`. Times in microseconds since 1970-01-01 UTC by the database's clock.
    """

    number: int
    snapshot: LogSnapshot
    stamped_at: int
    moment: int
    visible_at: int
    before: LogSnapshot = EMPTY_SNAPSHOT
    moment_before: int = 0
    first_visible_at: int = 0

    @classmethod
    def from_row(cls, row: Any, earlier: Stamp | None) -> Self:
        """Make it of `STAMP_COLUMNS` and the stamp before."""
        number, text, stamped_at, moment, visible_at = row
        with reading(STAMPS.name):
            made = cls(
                as_number(number),
                LogSnapshot.parse(as_text(text)),
                as_number(stamped_at),
                as_number(moment),
                as_number(visible_at),
            )
            for held in (made.number, made.moment, made.stamped_at, made.visible_at):
                if not 0 <= held < NUMBERS_END:
                    raise ValueError(held)
        return made if earlier is None else made.after(earlier)

    def after(self, earlier: Stamp) -> Self:
        """The same, with what it needs of the stamp before."""
        return replace(
            self,
            before=earlier.snapshot,
            moment_before=earlier.moment,
            first_visible_at=max(earlier.visible_at, earlier.stamped_at),
        )

    @property
    def is_empty(self) -> bool:
        """Whether it has no transactions, and this is known: the stamp before may be pruned."""
        return self.number > 0 and self.moment == self.moment_before

    @property
    def condition(self) -> tuple[str, list[Any]]:
        """The condition for its rows of `zapdb_transactions`, with parameters."""
        condition, parameters = not_in(self.before)
        return (
            f"{condition} AND number < %s AND number <> ALL(%b::bigint[])",
            [*parameters, self.snapshot.xmax, list(self.snapshot.running)],
        )


NO_STAMP: Final = Stamp(0, EMPTY_SNAPSHOT, 0, 0, 0)
"""What comes before the first stamp."""


def not_in(snapshot: LogSnapshot) -> tuple[str, list[Any]]:
    """Return the condition for rows that a snapshot does not show; the first part is for the
    index."""
    return (
        "number >= %s AND (number >= %s OR number = ANY(%b::bigint[]))",
        [snapshot.lowest, snapshot.xmax, list(snapshot.running)],
    )


def read_stamp(connection: Connection, tenant: int, number: int | None = None) -> Stamp | None:
    """Return the last stamp, or the last one up to a number; None if there is none."""
    until = "" if number is None else f" AND number <= {int(number)}"
    rows = connection.fetch_all(
        f"SELECT {STAMP_COLUMNS} FROM zapdb_stamps WHERE tenant = {int(tenant)}{until}"
        " ORDER BY number DESC LIMIT 2"
    )
    if not rows:
        return None
    return Stamp.from_row(rows[0], Stamp.from_row(rows[1], None) if rows[1:] else None)


def needs_stamp(connection: Connection, tenant: int) -> bool:
    """Return whether there are transactions without a stamp."""
    last = read_stamp(connection, tenant)
    condition, parameters = not_in(EMPTY_SNAPSHOT if last is None else last.snapshot)
    sql = f"SELECT 1 FROM zapdb_transactions WHERE tenant = {int(tenant)} AND {condition} LIMIT 1"
    return connection.fetch_one(sql, parameters) is not None


def add_stamp(connection: Connection, tenant: int, *, may_be_empty: bool = False) -> None:
    """Add a stamp for the transactions that became visible since the last one, inside a JOB
    or NOWAIT transaction; without any, only if it `may_be_empty`.

    Where the last one is empty, too, that becomes the new one: so there is at most one empty stamp
    behind each that has transactions, however many times are asked for.
    """
    storage = connection.storage
    # One after the other: so the snapshot is younger than the last stamp's.
    connection.fetch_one(
        f"SELECT pg_advisory_xact_lock({STAMPS_LOCK}, {int(tenant) % LOCK_NUMBERS})"
    )
    last = read_stamp(connection, tenant) or NO_STAMP
    text, first, asking, now = connection.fetch_one(
        f"SELECT pg_current_snapshot()::text, {FIRST_NUMBER_SQL},"
        f" pg_current_xact_id_if_assigned()::text::bigint, ({storage.dialect.clock_sql})"
    )
    snapshot = LogSnapshot.here(text, first, asking)
    if snapshot.xmax < last.snapshot.xmax:
        raise CorruptCatalog(
            "the server's transaction numbers are lower than those of the change log",
            database=storage.shown_url,
            number=snapshot.xmax,
            stored=last.snapshot.xmax,
            hint=MOVED_HINT,
        )
    made = Stamp(last.number + 1, snapshot, max(last.stamped_at, now), 0, 0).after(last)
    condition, parameters = made.condition
    count, made_at = connection.fetch_one(
        f"SELECT count(*), max(made_at) FROM zapdb_transactions WHERE tenant = {int(tenant)}"
        f" AND {condition}",
        parameters,
    )
    if count:
        visible_at = max(made.first_visible_at, as_number(made_at))
    elif may_be_empty:
        visible_at = last.visible_at
    else:
        return
    mark = storage.placeholder
    if not count and last.is_empty:
        connection.run(
            f"UPDATE zapdb_stamps SET snapshot = {mark}, stamped_at = {mark}"
            f" WHERE tenant = {int(tenant)} AND number = {last.number}",
            (str(snapshot), made.stamped_at),
        )
        return
    connection.run(
        f"INSERT INTO zapdb_stamps (tenant, {STAMP_COLUMNS})"
        f" VALUES ({int(tenant)}, {mark}, {mark}, {mark}, {mark}, {mark})",
        (made.number, str(snapshot), made.stamped_at, last.moment + count, visible_at),
    )
