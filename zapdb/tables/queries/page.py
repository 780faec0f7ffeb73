"""Pages of queries: some records, and the cursor of the next page."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from zapdb.errors import InvalidCursor, InvalidValue
from zapdb.tables.indexes import BoundTable
from zapdb.tables.indexes.ordering import Ordering, order_of_index

if TYPE_CHECKING:
    from typing_extensions import TypeVar as DefaultedTypeVar

    from zapdb.records import Record

    R = DefaultedTypeVar("R", default=Record)
else:
    R = TypeVar("R")
    """The records of a table: those of a model, else any."""


@dataclass(frozen=True, slots=True, repr=False)
class Page(Generic[R]):
    """Some records of a query in order, and the cursor of the next page; None on the last one."""

    records: tuple[R, ...]
    cursor: str | None

    def __iter__(self) -> Iterator[R]:
        return iter(self.records)

    def __len__(self) -> int:
        return len(self.records)

    def __repr__(self) -> str:
        more = "the last one" if self.cursor is None else "more behind it"
        return f"<page of {len(self)} records, {more}>"


def order_of_pages(bound: BoundTable, number: int) -> Ordering:
    """Return the order of an index by its number; raises `InvalidCursor` if it was dropped."""
    for index in bound.adapter.indexes:
        if index.descriptor.index.number == number:
            return order_of_index(index.keys.fields, index.keys.index.components)
    raise InvalidCursor(
        "the index that orders the pages was dropped",
        table=bound.adapter.schema.name,
        hint="begin again without a cursor, or use order_by, which needs no index",
    )


def check_count(count: Any, name: str, least: int) -> int:
    """Check a number of records; raises `InvalidValue`."""
    if not isinstance(count, int) or isinstance(count, bool) or count < least:
        raise InvalidValue.of(name, f"a number of records, at least {least}", count)
    return count
