"""The order of a query: the fields that it names, then the record's key.

Ties are in rising order of their keys, or in falling order if the first named field falls. A query
that names no field takes its records as the path that is read has them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from zapdb.datasets import Collation
from zapdb.errors import UsageError
from zapdb.schema import Field, Index, IndexComponent


class Order(msgspec.Struct, frozen=True):
    """One field that a query is ordered by, by its number; nulls first, or last if descending or
    if that is said."""

    field: int
    name: str
    collation: Collation | None = None
    descending: bool = False
    nulls_last: bool = False

    def __str__(self) -> str:
        text = self.name if self.collation is None else f"{self.name} under {self.collation}"
        return f"{text}{' descending' * self.descending}{' nulls last' * self.nulls_last}"


class Ordering(msgspec.Struct, frozen=True):
    """What a query is ordered by: fields, then the record's key, which may fall."""

    fields: tuple[Order, ...] = ()
    key_descending: bool = False
    is_of_index: bool = False
    """The fields are all components of an index, whose keys tell a place without the record's."""

    @classmethod
    def by(cls, orders: Sequence[Order]) -> Ordering:
        """Records that are equal in all fields come in falling order if the first field does."""
        return cls(tuple(orders), bool(orders) and orders[0].descending)

    def reversed(self) -> Ordering:
        """The same from its end; raises `UsageError` if nulls would come first in falling
        order, which no order of a field says."""
        if any(order.nulls_last for order in self.fields):
            raise UsageError(
                "an order with nulls last cannot be reversed",
                hint="write the reversed order itself: order_by('-due') has nulls last",
            )
        fields = (
            msgspec.structs.replace(order, descending=not order.descending) for order in self.fields
        )
        return Ordering(tuple(fields), not self.key_descending, self.is_of_index)


BY_KEY: Final = Ordering()


def order_of_index(fields: Sequence[Field], components: Sequence[IndexComponent]) -> Ordering:
    """The order of an index's entries: its components, then the record's key."""
    orders = (
        Order(field.number, field.name, component.collation, component.descending)
        for field, component in zip(fields, components, strict=True)
    )
    return Ordering(tuple(orders), is_of_index=True)


class TotalOrder(msgspec.Struct, frozen=True):
    """The order of the records, and its relation to the order of the path that is read.

    `fields` are the fields that decide the order. They exclude the fields that the predicate fixes,
    and the key at the end, which decides ties anyhow.
    """

    fields: tuple[Order, ...]
    key_descending: bool
    """Records that are equal in these fields come in falling order of their keys."""
    is_reversed: bool
    """The path is read backwards."""
    lead: bytes | None
    """What the full keys of the path begin with before these fields; None if the fields are not in
    one piece there."""
    is_full: bool = False
    """The lead and these fields are all of the full keys, and the path has the order of ties."""
    is_of_nulls: bool = False
    """What is read has nulls in the first of the fields, which come last."""

    @property
    def index(self) -> Index:
        """The fields as the components of an index: its keys are what records are sorted by."""
        components = (IndexComponent(o.field, o.collation, o.descending) for o in self.fields)
        return Index(0, "order", tuple(components))


ANY_ORDER: Final = TotalOrder((), key_descending=False, is_reversed=False, lead=None)
