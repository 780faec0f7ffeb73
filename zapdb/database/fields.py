"""Fields of a table as applications write conditions with them: `items.due < today`.

Values are checked when a condition is made: what does not fit its field raises `InvalidValue`
there, and a field that the table does not have raises `UnknownField` with the closest name.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from zapdb.datasets import STRENGTHS, Collation, Strength, is_known_locale
from zapdb.errors import InvalidValue, UnknownField, UsageError
from zapdb.indexes.ordering import Order
from zapdb.indexes.predicates import And, Comparison, Not, Operator, Predicate
from zapdb.schema import Field, Table
from zapdb.values import String


class FieldExpression:
    """A field of a table, maybe under a collation; comparing it makes a condition.

    `== != < <= > >=`, `between`, `in_`, `startswith`, `is_null` and `matches` make conditions;
    `-field`, `descending()` and `nulls_last()` make an order.
    """

    __slots__ = ("_collation", "_field", "_table")

    def __init__(self, table: Table, field: Field, collation: Collation | None = None) -> None:
        self._table = table
        self._field = field
        self._collation = collation

    def __repr__(self) -> str:
        under = "" if self._collation is None else f" under {self._collation}"
        return f"<field {self._path}{under} ({self._field.type})>"

    __hash__ = None  # type: ignore[assignment]  # == makes a condition

    def __bool__(self) -> bool:
        raise UsageError(
            "a field is neither true nor false by itself",
            field=self._path,
            hint="compare it: == True, is_null(), …",
        )

    def __eq__(self, value: object) -> Predicate:  # type: ignore[override]  # a condition, not a bool
        """Equal: the same value, to the last character of a string; None is null."""
        return self._compare("==", value)

    def __ne__(self, value: object) -> Predicate:  # type: ignore[override]  # a condition, not a bool
        """Not equal; a null is not equal to any value, and so among them."""
        return Not(self._compare("==", value))

    def __lt__(self, value: Any) -> Predicate:
        return self._compare("<", value)

    def __le__(self, value: Any) -> Predicate:
        return self._compare("<=", value)

    def __gt__(self, value: Any) -> Predicate:
        return self._compare(">", value)

    def __ge__(self, value: Any) -> Predicate:
        return self._compare(">=", value)

    def between(self, low: Any, high: Any) -> Predicate:
        """From `low` to `high`, both included."""
        return And((self._compare(">=", low), self._compare("<=", high)))

    def in_(self, values: Iterable[Any]) -> Predicate:
        """Equal to one of the values."""
        if isinstance(values, str | bytes) or not isinstance(values, Iterable):
            raise InvalidValue.of(self._path, "a list of values", values)
        checked = tuple(self._check(value) for value in values)
        if self._field.type.has_python_order:
            checked = tuple(dict.fromkeys(checked))
        if len(checked) == 1:
            return self._compare("==", checked[0])
        return Comparison(self._field.number, self._field.name, "in", checked, self._collation)

    def startswith(self, prefix: str) -> Predicate:
        """Strings that begin with the prefix, as `str.startswith` says."""
        if not isinstance(self._field.type, String) or self._collation is not None:
            raise UsageError(
                "only strings have prefixes, and those by code points", field=self._path
            )
        if prefix is None:
            raise self._field.type.refuse(None, self._path)
        return self._compare("starts with", prefix)

    def is_null(self) -> Predicate:
        return self._compare("==", None)

    def matches(self, value: str) -> Predicate:
        """Strings that are equal under the collation of the field's index: see `collated`."""
        return self.collated() == value

    def collated(
        self, locale: str | None = None, strength: Strength = "tertiary", *, numeric: bool = False
    ) -> FieldExpression:
        """The same field, compared and ordered under a collation.

        Without a locale it is the collation of the table's indexes on the field, built or not:
        raises `UsageError` if they have none, or several. `strength` and `numeric` belong to the
        locale. Raises `InvalidValue` for a locale or strength that is not known.
        """
        if not isinstance(self._field.type, String):
            raise UsageError("only strings have a collation", field=self._path)
        if locale is None:
            return FieldExpression(self._table, self._field, self._declared_collation())
        if not isinstance(locale, str) or not is_known_locale(locale):
            raise InvalidValue.of("locale", "a locale that the collation data know", locale)
        if strength not in STRENGTHS:
            raise InvalidValue.of("strength", ", ".join(STRENGTHS), strength)
        return FieldExpression(self._table, self._field, Collation(locale, strength, numeric))

    def descending(self) -> Order:
        """The order from the largest to the smallest, nulls last."""
        return replace(as_order(self._table, self), descending=True)

    def nulls_last(self) -> Order:
        """The order from the smallest to the largest, and nulls behind them."""
        return replace(as_order(self._table, self), nulls_last=True)

    def __neg__(self) -> Order:
        return self.descending()

    @property
    def _path(self) -> str:
        return f"{self._table.name}.{self._field.name}"

    def _declared_collation(self) -> Collation:
        components = [c for index in self._table.indexes for c in index.components]
        mine = {c.collation for c in components if c.field == self._field.number and c.collation}
        if len(mine) != 1:
            raise UsageError(
                "the indexes on the field do not say which collation is meant",
                field=self._path,
                collations=", ".join(sorted(map(str, mine))) or "(none)",
                hint="name it: .collated('en'), or .collated('en', 'primary') == value",
            )
        return mine.pop()

    def _check(self, value: Any) -> Any:
        if isinstance(value, FieldExpression):
            raise UsageError("a field is compared with a value, not with a field", field=self._path)
        return None if value is None else self._field.type.check(value, self._path)

    def _compare(self, op: Operator, value: Any) -> Comparison:
        checked, kind = self._check(value), self._field.type
        if op not in ("==", "starts with"):
            if not kind.indexable:
                raise UsageError("values of this type have no order", field=self._path, type=kind)
            if checked is None:
                raise kind.refuse(None, self._path)
        return Comparison(self._field.number, self._field.name, op, checked, self._collation)

    def _as_order(self) -> Order:
        kind = self._field.type
        if not kind.indexable:
            raise UsageError("values of this type have no order", field=self._path, type=kind)
        return Order(self._field.number, self._field.name, self._collation)


def make_field(table: Table, name: str) -> FieldExpression:
    """The field of this name; raises `UnknownField`, which names the closest one."""
    found = table.field_named(name) if isinstance(name, str) else None
    if found is not None:
        return FieldExpression(table, found)
    raise UnknownField.named(table.name, name, [f.name for f in table.fields])


def hint_at_hidden(table: Table, given: object) -> str:
    """The way to fields that are called as something that every table has, where what was given may
    come of one: `tags.name == "x"` is a bool, `tags.count` a method."""
    from zapdb.database.table import Table as ApiTable  # it imports this module

    name = getattr(given, "__name__", None)
    hidden = [f.name for f in table.fields if hasattr(ApiTable, f.name)]
    if not isinstance(given, bool):
        hidden = [found for found in hidden if found == name]
    if not hidden:
        return ""
    ways = " or ".join(f'{table.name}["{found}"]' for found in hidden)
    is_are = "a field that is" if len(hidden) == 1 else "fields that are"
    return f"{is_are} called as something that every table has: write {ways}"


def as_field(table: Table, given: Any) -> tuple[Field, Collation | None]:
    """A field that is given by itself or by its name, and the collation it is under."""
    if isinstance(given, str):
        given = make_field(table, given)
    if not isinstance(given, FieldExpression):
        raise UsageError(
            "a field or its name is expected",
            got=type(given).__name__,
            table=table.name,
            hint=hint_at_hidden(table, given),
        )
    _refuse_other(table, given)
    return given._field, given._collation


def _refuse_other(table: Table, given: FieldExpression) -> None:
    if given._table.number != table.number:
        raise UsageError("a field of another table", table=table.name, field=given._path)


def as_order(table: Table, given: Any) -> Order:
    """What `order_by` takes: a field, its name, either with a minus, or an order."""
    if isinstance(given, Order):
        return given
    if isinstance(given, FieldExpression):
        _refuse_other(table, given)
        return given._as_order()
    if not isinstance(given, str):
        raise UsageError(
            "an order is a field or its name",
            got=type(given).__name__,
            table=table.name,
            hint=hint_at_hidden(table, given),
        )
    order = make_field(table, given.removeprefix("-"))._as_order()
    return replace(order, descending=True) if given.startswith("-") else order
