"""Fields of a table as applications write conditions with them: `items.f.due < today`.

A field of a table (`items.f.due`), or of a generated model (`Item.due`), is only its name:
comparing it makes an unchecked condition. `bind` checks the condition for a table: a field that the
table does not have raises `UnknownField` with the closest name, and a value that does not fit its
field `InvalidValue`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, Literal, NoReturn, assert_never

import msgspec

from zapdb.datasets import STRENGTHS, Collation, Strength, is_known_locale
from zapdb.errors import InvalidValue, UnknownField, UnsupportedOperation, UsageError
from zapdb.limits import QUERY_CONDITION_DEPTH_MAX, QUERY_CONDITIONS_MAX
from zapdb.schema import Field, TableSchema
from zapdb.tables.did_you_mean import hint_for_field, in_python, no_field_attribute
from zapdb.tables.indexes import BoundTable
from zapdb.tables.indexes.ordering import Order
from zapdb.tables.indexes.predicates import (
    And,
    Comparison,
    Not,
    Operator,
    Or,
    Predicate,
    Unbound,
    find_field,
    is_predicate,
    parts_of,
    shorten_value,
)
from zapdb.values import String, ValueType

_DECLARED: Final = "declared"
"""Stands for the collation of the table's indexes on the field."""
PARENTHESES: Final = (
    "& and | bind more tightly than ==: put parentheses around each comparison, "
    "(items.f.done == True) | (items.f.due < 3)"
)


class FieldExpression(msgspec.Struct, frozen=True, eq=False):
    """A field of a table, maybe under a collation; comparing it makes a condition.

    `== != < <= > >=`, `between`, `in_`, `startswith`, `is_null` and `matches` make conditions;
    `-field`, `descending()` and `nulls_last()` make an order.
    """

    _table: str
    _name: str
    _known: tuple[TableSchema, Field] | None = None
    """The table and the field that it was taken from; it is found by the field's number from then
    on."""
    _collation: Collation | Literal["declared"] | None = None

    def __repr__(self) -> str:
        kind = "" if self._known is None else f" ({self._known[1].type})"
        return f"<field {self}{kind}>"

    def __str__(self) -> str:
        path = f"{self._table}.{self._name}"
        match self._collation:
            case None:
                return path
            case Collation(locale, strength, numeric):
                numeric_too = ", numeric=True" * numeric
                return f"{path}.collated({locale!r}, {strength!r}{numeric_too})"
        return f"{path}.collated()"

    __hash__ = None  # type: ignore[assignment]  # == makes a condition

    def __bool__(self) -> bool:
        raise UsageError(
            "a field is neither true nor false by itself",
            field=self,
            hint="compare it, for example == True or is_null()",
        )

    def __eq__(self, value: object) -> Predicate:  # type: ignore[override]  # a condition, not a bool
        """Return the condition that the field equals a value, with all characters of a string; None
        is null."""
        return self._compare("==", value)

    def __ne__(self, value: object) -> Predicate:  # type: ignore[override]  # a condition, not a bool
        """Return the condition that the field does not equal a value; true for a null, unless the
        value is None."""
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
        """Return the condition that the value is from `low` to `high`, both included."""
        return And((self._compare(">=", low), self._compare("<=", high)))

    def in_(self, values: Iterable[Any]) -> Predicate:
        """Return the condition that the field equals one of the values."""
        if isinstance(values, str | bytes) or not isinstance(values, Iterable):
            raise InvalidValue.of(str(self), "a list of values", values)
        given = tuple(values)
        for one in given:
            self._compare("==", one)  # each is refused as it is alone
        return Condition(self, "in", given)

    def startswith(self, prefix: str) -> Predicate:
        """Return the condition that a string begins with the prefix, as `str.startswith`."""
        return self._compare("starts with", prefix)

    def is_null(self) -> Predicate:
        return self._compare("==", None)

    def matches(self, value: str) -> Predicate:
        """Return the condition that a string is equal under the collation of the field's index: see
        `collated`."""
        return self.collated() == value

    def collated(
        self, locale: str | None = None, strength: Strength = "tertiary", *, numeric: bool = False
    ) -> FieldExpression:
        """Return the same field, compared and ordered under a collation.

        Without a locale, it is the collation of the table's indexes on the field, built or not; a
        query raises `UsageError` if they have none, or several. `strength` and `numeric` belong to
        the locale. Raises `InvalidValue` for a locale or strength that is not known.
        """
        if locale is None:
            return FieldExpression(self._table, self._name, self._known, _DECLARED)
        if not isinstance(locale, str) or not is_known_locale(locale):
            raise InvalidValue.of("locale", "a locale that the collation data know", locale)
        if strength not in STRENGTHS:
            raise InvalidValue.of("strength", ", ".join(STRENGTHS), strength)
        collation = Collation(locale, strength, numeric)
        return FieldExpression(self._table, self._name, self._known, collation)

    def descending(self) -> FieldOrder:
        """Return the order from the largest to the smallest value, nulls last."""
        return FieldOrder(self, descending=True)

    def nulls_last(self) -> FieldOrder:
        """Return the order from the smallest to the largest value, nulls last."""
        return FieldOrder(self, nulls_last=True)

    def __neg__(self) -> FieldOrder:
        return self.descending()

    def _compare(self, op: Operator, value: Any) -> Condition:
        if isinstance(value, msgspec.Struct):  # as fields and conditions are, and no value is
            raise UsageError(
                "a field can only be compared with a value, not with a field or a condition",
                field=self,
                hint=PARENTHESES
                if is_predicate(value)
                else "compare two fields in Python, or by db.sql('SELECT … WHERE …')",
            )
        if value is None and op != "==":
            raise InvalidValue(
                "null cannot be compared by order or prefix",
                field=self,
                hint="use is_null(), or != None",
            )
        return Condition(self, op, value)

    # Python calls these for `a == 1 | b == 2`, `a | b` and `1 in a`, which are not conditions.

    def _refuse(self, _: object = None) -> NoReturn:
        raise UsageError("a field alone is not a condition", field=self, hint=PARENTHESES)

    __and__ = __or__ = __rand__ = __ror__ = _refuse

    def __invert__(self) -> NoReturn:
        raise UsageError(
            "a field alone is not a condition",
            field=self,
            hint=f"write {in_python(self)} == False, or ~(…) around a comparison",
        )

    def _refuse_to_compute(self, _: object = None) -> NoReturn:
        raise UnsupportedOperation(
            "fields of a query cannot be computed with",
            field=self,
            hint="in one transaction, read the record and write the new value: "
            "db.run(lambda tx: …)",
        )

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = _refuse_to_compute
    __truediv__ = __rtruediv__ = __floordiv__ = __mod__ = _refuse_to_compute

    def __getitem__(self, part: object) -> NoReturn:
        raise UnsupportedOperation(
            "conditions are about whole fields, not about parts of one",
            field=self,
            part=part,
            hint="choose in Python, or by db.sql('SELECT …'), which sees parts",
        )

    if not TYPE_CHECKING:  # to a type checker, a class with `__getattr__` has every attribute

        def __getattr__(self, name: str) -> NoReturn:
            if name.startswith("_"):
                raise AttributeError(name)
            names = [one for one in dir(type(self)) if not one.startswith("_")]
            raise no_field_attribute(self, name, names)

    def __contains__(self, value: object) -> bool:
        raise UsageError(
            "`in` cannot be used with a field",
            field=self,
            hint="use in_([…]) for one of several values, startswith('…') for a prefix",
        )


class Condition(Unbound, frozen=True, eq=False):
    """An unchecked comparison of a field with a value; with a tuple for `in`."""

    field: FieldExpression
    op: Operator
    value: Any

    def __str__(self) -> str:
        match self.op:
            case "in":
                return f"{self.field}.in_({shorten_value(list(self.value))})"
            case "starts with":
                return f"{self.field}.startswith({shorten_value(self.value)})"
            case "==" | "<" | "<=" | ">" | ">=" as op:
                return f"{self.field} {op} {shorten_value(self.value)}"
            case op:
                assert_never(op)


class FieldOrder(msgspec.Struct, frozen=True, eq=False):
    """A field to order by, descending or with nulls last."""

    field: FieldExpression
    descending: bool = False
    nulls_last: bool = False

    def __repr__(self) -> str:
        return f"{'-' * self.descending}{self.field}{'.nulls_last()' * self.nulls_last}"


class Fields(msgspec.Struct, frozen=True, eq=False):
    """The fields of a table: `items.f.due`, or `items.f["class"]` for a word of Python's own.

    It has no other attributes, so a field can have any name.
    """

    _find_bound: Callable[[], BoundTable]

    def __getattribute__(self, name: str) -> FieldExpression:
        # `__getattr__` would be called once Python has made an error that there is no attribute.
        if name.startswith("_"):
            found: FieldExpression = object.__getattribute__(self, name)
            return found
        return make_field(object.__getattribute__(self, "_find_bound")().adapter.schema, name)

    def __getitem__(self, name: str) -> FieldExpression:
        return make_field(self._find_bound().adapter.schema, name)

    def __iter__(self) -> Iterator[FieldExpression]:
        table = self._find_bound().adapter.schema
        return (FieldExpression(table.name, field.name, (table, field)) for field in table.fields)

    def __dir__(self) -> list[str]:
        return [field.name for field in self._find_bound().adapter.schema.fields]

    def __repr__(self) -> str:
        table = self._find_bound().adapter.schema
        return f"<fields of {table.name!r}: {', '.join(f.name for f in table.fields)}>"


def make_field(table: TableSchema, name: str) -> FieldExpression:
    """Return the field of this name; raises `UnknownField`, which suggests the closest name."""
    return FieldExpression(table.name, name, (table, _find_named(table, name)))


def _find_named(table: TableSchema, name: object) -> Field:
    found = table.field_named(name) if isinstance(name, str) else None
    if found is None:
        names = [f.name for f in table.fields]
        error = UnknownField.named(table.name, name, names)
        error.hint = hint_for_field(table.name, name, names)
        raise error
    return found


# --- binding to a table --------------------------------------------------------------------


def bind_all(table: TableSchema, predicates: Iterable[Any], values: Mapping[str, Any]) -> And:
    """Return the condition that all of some are true, and that fields have the values: see
    `bind`."""
    parts: tuple[Predicate, ...] = ()
    for one in predicates:
        parts += parts_of(bind(table, one), And)
    for name, value in values.items():
        parts += (bind(table, make_field(table, name) == value),)
    return And(parts)


def bind(table: TableSchema, given: Any) -> Predicate:
    """Return the condition with its fields found in a table, and its values checked.

    Raises `UnknownField`, `InvalidValue`, and `UsageError` for an argument that is not a condition
    on this table.
    """
    if isinstance(given, Condition):  # nearly always
        return _bind_condition(table, given)
    _require_bounded(table, given)
    return _bind(table, given)


def _require_bounded(table: TableSchema, given: Any) -> None:
    """Raise `UsageError` for a condition with too many comparisons, or one that is nested too
    deep."""
    level, comparisons, depth = [given], 0, 0
    while level:
        depth += 1
        parts = list[Any]()
        for one in level:
            match one:
                case And(several) | Or(several):
                    parts += several
                case Not(part):
                    parts.append(part)
                case _:
                    comparisons += 1
        level = parts
        if comparisons + len(level) > QUERY_CONDITIONS_MAX:
            raise UsageError(
                "the condition has too many comparisons",
                table=table.name,
                comparisons_max=QUERY_CONDITIONS_MAX,
                hint="give many values of one field together: "
                f"{table.name}.f.{table.fields[0].name}.in_([…])",
            )
        if depth > QUERY_CONDITION_DEPTH_MAX:
            raise UsageError(
                "the condition is nested too deep",
                table=table.name,
                depth_max=QUERY_CONDITION_DEPTH_MAX,
                hint="write it flatter: a | b | c nests no deeper than a | b",
            )


def _bind(table: TableSchema, given: Any) -> Predicate:
    if isinstance(given, Condition):
        return _bind_condition(table, given)
    match given:
        case Comparison():
            return given
        case And(parts):
            return And(tuple(_bind(table, part) for part in parts))
        case Or(parts):
            return Or(tuple(_bind(table, part) for part in parts))
        case Not(part):
            return Not(_bind(table, part))
    hint = f"compare a field of the table: {table.name}.f.{table.fields[0].name} == …"
    if isinstance(given, FieldExpression):
        hint = f"compare it: {in_python(given)} == True"
    elif isinstance(given, Mapping):
        hint = "write two asterisks before a dict: where(**values)"
    raise UsageError(
        "this is not a condition on records",
        got=given if isinstance(given, bool) else type(given).__name__,
        table=table.name,
        hint=hint,
    )


def _bind_condition(table: TableSchema, condition: Condition) -> Comparison:
    field, collation = as_field(table, condition.field)
    op, value, kind = condition.op, condition.value, field.type
    path = f"{table.name}.{field.name}"
    _require_comparable(op, kind, collation, path)
    if op == "in":
        several = tuple([None if one is None else kind.check(one, path) for one in value])
        if kind.has_python_order:
            several = tuple(dict.fromkeys(several))
        elif all(one is None for one in several):
            several = several[:1]
        if len(several) == 1:
            return Comparison(field.number, field.name, "==", several[0], collation)
        return Comparison(field.number, field.name, "in", several, collation)
    try:
        checked = None if value is None else kind.check(value, path)
    except InvalidValue as error:
        if op == "==" and isinstance(value, list | tuple | set | frozenset):
            error.hint = f"for one of several values: {in_python(path)}.in_([…])"
        raise
    return Comparison(field.number, field.name, op, checked, collation)


def _require_comparable(
    op: Operator, kind: ValueType, collation: Collation | None, path: str
) -> None:
    """Raise `UsageError` for an operator that values of a type do not have."""
    match op:
        case "==" | "in":
            pass
        case "<" | "<=" | ">" | ">=":
            if not kind.indexable:
                raise UsageError("values of this type have no order", field=path, type=kind)
        case "starts with":
            if not isinstance(kind, String) or collation is not None:
                raise UsageError("only strings compared by code points have prefixes", field=path)
        case _:
            assert_never(op)


def as_field(table: TableSchema, given: Any) -> tuple[Field, Collation | None]:
    """Return a field, given as such or by its name, and its collation.

    Raises `UnknownField`, and `UsageError` for an argument that is not a field of this table.
    """
    if isinstance(given, str):
        return _find_named(table, given), None
    if not isinstance(given, FieldExpression):
        raise UsageError(
            "this is neither a field nor its name",
            got=type(given).__name__,
            table=table.name,
            hint=f"fields are {table.name}.f.{table.fields[0].name}, …",
        )
    known, collation = given._known, given._collation
    field = known[1] if known is not None and known[0] is table else _find_again(table, given)
    if collation is None:
        return field, None
    if not isinstance(field.type, String):
        raise UsageError("only strings have a collation", field=given)
    return field, _declared_collation(table, field) if collation == _DECLARED else collation


def _find_again(table: TableSchema, given: FieldExpression) -> Field:
    """Return a field that was taken from another schema of the table, or that is only a name."""
    known = given._known
    is_ours = given._table == table.name if known is None else known[0].number == table.number
    if not is_ours:
        raise UsageError(
            "this is a condition on, or a field of, another table",
            table=table.name,
            field=given,
            hint="query the other table first, and give its keys to in_([…])",
        )
    if known is None:
        return _find_named(table, given._name)
    return find_field(table, known[1].number, given._name)


def _declared_collation(table: TableSchema, field: Field) -> Collation:
    components = [c for index in table.indexes for c in index.components]
    mine = {c.collation for c in components if c.field == field.number and c.collation}
    if len(mine) != 1:
        raise UsageError(
            "the indexes on the field have several collations"
            if mine
            else "no index on the field has a collation",
            field=f"{table.name}.{field.name}",
            collations=", ".join(sorted(map(str, mine))) or "(none)",
            hint="name it: .collated('en'), or .collated('en', 'primary') == value",
        )
    return mine.pop()


def as_order(table: TableSchema, given: Any) -> Order:
    """Return an argument of `order_by` as an order: a field, its name, either with a minus, or
    `nulls_last()`."""
    order = given
    if isinstance(given, str):
        name = given.removeprefix("-")
        order = FieldOrder(make_field(table, name), descending=name != given)
    elif isinstance(given, FieldExpression):
        order = FieldOrder(given)
    if not isinstance(order, FieldOrder):
        raise UsageError(
            "this is not an order: give a field or its name",
            got=type(given).__name__,
            table=table.name,
            hint="give several one after the other: order_by('due', '-name')"
            if isinstance(given, list | tuple)
            else f"for example -{table.name}.f.{table.fields[0].name}",
        )
    field, collation = as_field(table, order.field)
    if not field.type.indexable:
        path = f"{table.name}.{field.name}"
        raise UsageError("values of this type have no order", field=path, type=field.type)
    return Order(field.number, field.name, collation, order.descending, order.nulls_last)
