"""Fields as type checkers see them through generated models.

These are only protocols: at run time a field is always a `FieldExpression`. By the functions at the
end, mypy checks that it satisfies them. A test checks that no public method is missing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Protocol, SupportsIndex, TypeAlias, TypeVar, overload

from zapdb.datasets import Strength
from zapdb.tables.indexes.predicates import Predicate
from zapdb.tables.queries.fields import FieldExpression, FieldOrder

V = TypeVar("V", contravariant=True)
"""The values of a field."""
Item = TypeVar("Item", covariant=True)
BytesLike: TypeAlias = bytes | bytearray | memoryview


class ListLike(Protocol[Item]):
    """A list or a tuple; no string, whose `in` takes strings alone."""

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[Item]: ...

    def __getitem__(self, place: SupportsIndex, /) -> Item: ...

    def __contains__(self, value: object, /) -> bool: ...


class TypedField(Protocol[V]):
    """A field whose values have no order: lists and JSON."""

    def __eq__(self, value: V | None, /) -> Predicate:  # type: ignore[override]  # a condition, not a bool
        """Equal: the same value, to the last character of a string; None is null."""
        ...

    def __ne__(self, value: V | None, /) -> Predicate:  # type: ignore[override]  # a condition, not a bool
        """Not equal; a null is not equal to any value, and so among them."""
        ...

    def in_(self, values: Iterable[V]) -> Predicate:
        """Equal to one of the values."""
        ...

    def is_null(self) -> Predicate: ...


class TypedOrderedField(TypedField[V], Protocol[V]):
    """A field that can be compared by order, and ordered by."""

    def __lt__(self, value: V, /) -> Predicate: ...

    def __le__(self, value: V, /) -> Predicate: ...

    def __gt__(self, value: V, /) -> Predicate: ...

    def __ge__(self, value: V, /) -> Predicate: ...

    def between(self, low: V, high: V) -> Predicate:
        """From `low` to `high`, both included."""
        ...

    def descending(self) -> FieldOrder:
        """The order from the largest to the smallest, nulls last."""
        ...

    def nulls_last(self) -> FieldOrder:
        """The order from the smallest to the largest, and nulls behind them."""
        ...

    def __neg__(self) -> FieldOrder: ...


class TypedStringField(TypedOrderedField[str], Protocol):
    """A field of strings."""

    def startswith(self, prefix: str) -> Predicate:
        """Strings that begin with the prefix, as `str.startswith` says."""
        ...

    def matches(self, value: str) -> Predicate:
        """Strings that are equal under the collation of the field's index: see `collated`."""
        ...

    def collated(
        self, locale: str | None = None, strength: Strength = "tertiary", *, numeric: bool = False
    ) -> TypedStringField:
        """The same field, compared and ordered under a collation: without a locale, under that of
        the table's indexes on the field."""
        ...


F = TypeVar("F", covariant=True)
"""A field, for conditions."""
H = TypeVar("H")
"""What a record holds."""


class FieldOf(Protocol[F, H]):
    """An attribute of a generated class of records: of the class a field, of a record a value."""

    @overload
    def __get__(self, record: None, owner: type[Any], /) -> F: ...

    @overload
    def __get__(self, record: object, owner: type[Any] | None = None, /) -> H: ...

    def __set__(self, record: object, value: H, /) -> None: ...


AnyField = FieldExpression
"""A field that is not known until the program runs."""


if TYPE_CHECKING:

    def _check_field(field: FieldExpression) -> TypedStringField:
        return field

    def _check_any_field(field: FieldExpression) -> TypedOrderedField[Any]:
        return field
