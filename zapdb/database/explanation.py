"""How a query is answered, said to people and programs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from zapdb.database.session import Session
from zapdb.indexes import LiveTable, Search
from zapdb.indexes.planning import Plan, Sorting
from zapdb.limits import ESTIMATE_RECORDS_MAX
from zapdb.storage import Connection

SORTINGS: dict[Sorting, str] = {
    "none": "they come in order",
    "ties": "they come in order but for ties, which are sorted by their keys",
    "all": "all that match are sorted in memory",
}


@dataclass(frozen=True, slots=True)
class Explanation:
    """A plan in words (`str()`) and as data (`to_json()`).

    `index` is None where the table itself is read: all of it if `is_scan`, else by its keys.
    `passed_over` are the indexes that can't be read now: they are built, or made with other
    collation or time zone data. `records_read` is how many records are looked at, counted up to
    10,000 and None beyond.
    """

    table: str
    index: str | None
    is_scan: bool
    ranges: int
    answered: tuple[str, ...]
    """Conditions that the ranges answer."""
    rechecked: tuple[str, ...]
    """Those of them that are compared again, since equal keys may mean unequal values."""
    residual: tuple[str, ...]
    """Conditions that are compared record by record."""
    order: tuple[str, ...]
    sorting: Sorting
    is_reversed: bool
    limit: int | None
    records_read: int | None
    passed_over: tuple[str, ...]

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> list[str]:
        count = (
            f"more than {ESTIMATE_RECORDS_MAX:,}"
            if self.records_read is None
            else f"{self.records_read:,}"
        )
        what = f"the index {self.index}" if self.index else "the table by its keys"
        if self.is_scan:
            what = "all of the table, since no index fits" if not self.index else f"all of {what}"
        way = ", backwards" if self.is_reversed else ""
        ranges = "" if self.is_scan else f", {self.ranges} range{'' if self.ranges == 1 else 's'}"
        lines = [f"{self.table}: reads {what}{ranges}{way} ({count} records)"]
        named = (
            ("answered by it", self.answered),
            ("compared again", self.rechecked),
            ("compared record by record", self.residual),
            ("can't be read now", self.passed_over),
        )
        lines += [f"  {title}: {'; '.join(texts)}" for title, texts in named if texts]
        if self.order:
            lines.append(f"  ordered by {', '.join(self.order)}: {SORTINGS[self.sorting]}")
        elif self.sorting != "none":
            lines.append(f"  in the order of keys: {SORTINGS[self.sorting]}")
        if self.limit is not None:
            lines.append(f"  at most {self.limit:,}")
        return lines

    def to_json(self) -> dict[str, Any]:
        """All members under their names, lists for tuples."""
        return {
            name: list(value) if isinstance(value := getattr(self, name), tuple) else value
            for name in self.__slots__
        }


def explain_plan(
    session: Session, live: LiveTable, plan: Plan, orders: tuple[str, ...], limit: int | None
) -> Explanation:
    unreadable = (index.name for index in live.shape.indexes if not index.is_readable)
    return Explanation(
        live.shape.table.name,
        None if plan.path.keys is None else plan.path.name,
        plan.is_scan,
        len(plan.spans),
        tuple(map(str, plan.bounds)),
        tuple(map(str, plan.rechecked)),
        tuple(map(str, plan.residual)),
        orders,
        plan.sorting,
        plan.order.is_reversed,
        limit,
        _count_read(session, live, plan),
        tuple(unreadable),
    )


def _count_read(session: Session, live: LiveTable, plan: Plan) -> int | None:
    counted = count_spans(session, live, plan, ESTIMATE_RECORDS_MAX + 1)
    return None if counted is None or counted > ESTIMATE_RECORDS_MAX else counted


def count_spans(session: Session, live: LiveTable, plan: Plan, limit: int | None) -> int | None:
    """How many entries or records lie in the spans, up to a number; None if the table moved."""
    index = None if plan.path.keys is None else live.shape.index(plan.path.name)
    rows = live.records if index is None else index.entries
    counted = 0
    for span in plan.spans:
        lower, upper = span.lower, span.upper
        if index is not None:
            search = Search(lower, upper, None, unique=index.state.index.unique)
            lower, upper = search.entry_bounds
        left = None if limit is None else limit - counted
        if left is not None and left <= 0:
            break
        count = partial(rows.count_range, lower=lower, upper=upper, limit=left)
        moved, found = session.ask(live, partial(_count_if_still, live, count))
        if moved is not live:
            return None
        counted += found
    return counted


def _count_if_still(
    live: LiveTable,
    count: Callable[[Connection], tuple[int, int]],
    connection: Connection,
    now: LiveTable,
) -> tuple[int | None, int]:
    return count(connection) if now is live else (None, 0)
