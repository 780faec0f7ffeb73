"""How a query is answered: by which index, what of it is read, and what is left to do.

Pure: from a table, the indexes that can be read, a predicate and an order, to a `Plan`. Reading it
is another module's. A path is the table itself, in the order of its keys, or an index. Leading
components that the predicate fixes to values, then one component within bounds, make the spans
that are read; the rest of the predicate is compared record by record.

The total order of a query: the fields it names, then the record's key, downwards where the first
named field goes downwards. An index that has exactly this order is read without sorting; one that
has the named fields in order, but not the ties, needs runs of ties sorted; any other, everything.
A query that names no field takes its records as the path that is read has them.

Which path is best, and what becomes of conditions under `|`, is `choosing`'s.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from zapdb.datasets import Collation
from zapdb.indexes.keys import (
    INVERTED,
    NULL,
    PRESENT,
    UNIQUE_ORDERED_SIZE_BYTES,
    KeyBuilder,
    encode_component,
    encode_component_stem,
    is_cut,
    successor,
)
from zapdb.indexes.predicates import And, Comparison, Not, Predicate
from zapdb.limits import PLAN_SPANS_MAX
from zapdb.schema import Field, Index, IndexComponent, Table
from zapdb.values import ValueType

Sorting = Literal["none", "ties", "all"]
Interval = tuple[bytes, bytes | None]
"""lower ≤ component bytes < upper; None is no bound."""

KEY_NAME: Final = "(key)"
SORTING_SCORES: Final[dict[Sorting, int]] = {"none": 2, "ties": 1, "all": 0}


@dataclass(frozen=True, slots=True)
class Order:
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


@dataclass(frozen=True, slots=True)
class Ordering:
    """What a query is ordered by: fields, then the record's key, which may fall."""

    fields: tuple[Order, ...] = ()
    tie_descends: bool = False
    is_of_index: bool = False
    """The fields are all components of an index, whose keys tell a place without the record's."""

    @classmethod
    def by(cls, orders: Sequence[Order]) -> Ordering:
        """Records that are equal in all fields come in falling order where the first field does."""
        return cls(tuple(orders), bool(orders) and orders[0].descending)


BY_KEY: Final = Ordering()


@dataclass(frozen=True, slots=True)
class Span:
    """The records with lower ≤ full key < upper; None is no bound."""

    lower: bytes | None
    upper: bytes | None


@dataclass(frozen=True, slots=True)
class Path:
    """A way to the records in an order: an index, or the table by its keys (`keys` is None)."""

    keys: KeyBuilder | None
    fields: tuple[Field, ...]
    components: tuple[IndexComponent, ...]

    @classmethod
    def by_key(cls, table: Table) -> Path:
        fields = table.key_fields
        return cls(None, fields, tuple(IndexComponent(f.number) for f in fields))

    @classmethod
    def by_index(cls, keys: KeyBuilder) -> Path:
        return cls(keys, keys.fields, keys.index.components)

    @property
    def name(self) -> str:
        return KEY_NAME if self.keys is None else self.keys.index.name

    def has_order(self, at: int) -> bool:
        """Whether a component is in the order of its field: key bytes of an enum are not."""
        return self.keys is not None or _keys_are_ordered(self.fields[at].type)

    def encode(self, at: int, value: Any) -> bytes | None:
        """The bytes of a component; None if no record can have the value there."""
        if self.keys is not None:
            return encode_component(self.fields[at], self.components[at], value)
        return None if value is None else self.fields[at].type.encode_key(value)

    def present(self, at: int) -> Interval:
        """All values of a component that are not null."""
        if self.keys is None:
            return b"", None
        if self.components[at].descending:
            return PRESENT.translate(INVERTED), NULL.translate(INVERTED)
        return PRESENT, successor(PRESENT)

    def may_be_cut(self, key: bytes | None) -> bool:
        if key is None or self.keys is None:
            return False
        return len(key) > UNIQUE_ORDERED_SIZE_BYTES if self.keys.index.unique else is_cut(key)


@dataclass(frozen=True, slots=True)
class TotalOrder:
    """The order of the records, and how it lies on the path that is read.

    `fields` are those that decide: without those that the predicate fixes, and without the key at
    the end, which decides ties anyhow.
    """

    fields: tuple[Order, ...]
    tie_descends: bool
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


ANY_ORDER: Final = TotalOrder((), tie_descends=False, is_reversed=False, lead=None)


@dataclass(frozen=True, slots=True)
class Plan:
    """How a query is answered.

    Every record that is meant lies in one of the spans, which are in rising order and disjoint.
    `bounds` are the conditions that the spans answer; `rechecked` those of them that the keys may
    leave open for these values (rule 24); `residual` those that the spans know nothing of.
    """

    path: Path
    spans: tuple[Span, ...]
    bounds: tuple[Predicate, ...]
    rechecked: tuple[Predicate, ...]
    residual: tuple[Predicate, ...]
    order: TotalOrder
    sorting: Sorting
    score: tuple[int, ...]

    @property
    def is_scan(self) -> bool:
        """Whether all records of the table are read."""
        return self.spans == (Span(None, None),)

    @property
    def branches(self) -> tuple[Plan, ...]:
        """The plan as a union of one."""
        return (self,)

    @property
    def filter(self) -> Predicate:
        """What is compared record by record."""
        return And((*self.rechecked, *self.residual))


def order_of_index(fields: Sequence[Field], components: Sequence[IndexComponent]) -> Ordering:
    """The order of an index's entries: its components, then the record's key."""
    orders = (
        Order(field.number, field.name, component.collation, component.descending)
        for field, component in zip(fields, components, strict=True)
    )
    return Ordering(tuple(orders), is_of_index=True)


@dataclass(slots=True)
class _Fit:
    """What of a predicate a path answers, as it is found component by component."""

    prefixes: list[bytes]
    bounds: list[Predicate]
    rechecked: list[Predicate]
    points: int = 0
    """Leading components with one value."""
    fixed: int = 0
    """Leading components with one value or several."""
    limits: int = 0
    """Bounds of the component behind them."""


def is_among(part: Predicate, others: Iterable[Predicate]) -> bool:
    """Whether it is this very part of a predicate, and not only an equal one."""
    return any(part is other for other in others)


def plan_path(
    table: Table,
    path: Path,
    parts: tuple[Predicate, ...],
    ordering: Ordering | None,
    common: tuple[Predicate, ...] | None = None,
) -> Plan:
    """The plan by one path; `common` are the parts that hold for all branches of a union."""
    fit = _Fit([b""], [], [])
    spans: list[Span] | None = None
    for at in range(len(path.components)):
        if not _fix(path, at, parts, fit):
            spans = _limit(path, at, parts, fit)
            break
    if spans is None:
        spans = [_span(prefix, b"", None) for prefix in fit.prefixes]
    is_cut_anywhere = any(path.may_be_cut(s.lower) or path.may_be_cut(s.upper) for s in spans)
    rechecked = fit.bounds if is_cut_anywhere else fit.rechecked
    sorting: Sorting = "none"
    order = ANY_ORDER
    if ordering is not None:
        essential = _essential_orders(table, parts if common is None else common, ordering)
        sorting, order = _fit_order(table, path, parts, essential, ordering.tie_descends, fit)
    score = (
        fit.fixed,
        fit.limits,
        SORTING_SCORES[sorting],
        path.keys is None,
        -len(path.components),
    )
    return Plan(
        path,
        tuple(spans),
        tuple(fit.bounds),
        tuple(rechecked),
        tuple(part for part in parts if not is_among(part, fit.bounds)),
        order,
        sorting,
        score,
    )


def _fix(path: Path, at: int, parts: Sequence[Predicate], fit: _Fit) -> bool:
    """Fix a component to the values of an equality, if there is one."""
    field, component = path.fields[at], path.components[at]
    found = [
        part
        for part in parts
        if isinstance(part, Comparison)
        and part.field == component.field
        and part.op in ("==", "in")
        and part.collation in (None, component.collation)
    ]
    # One value before several; where keys say all before where they don't.
    found.sort(key=lambda c: (c.op == "in", c.collation != component.collation))
    for comparison in found:
        values = comparison.value if comparison.op == "in" else (comparison.value,)
        checked = [None if v is None else field.type.check(v, field.name) for v in values]
        encoded = {path.encode(at, value) for value in checked} - {None}
        if len(fit.prefixes) * len(encoded) > PLAN_SPANS_MAX:
            continue
        some = sorted(key for key in encoded if key is not None)
        fit.prefixes = [prefix + key for prefix in fit.prefixes for key in some]
        fit.bounds.append(comparison)
        is_exact = field.type.index_key_is_exact or path.keys is None
        is_exact = is_exact and comparison.collation == component.collation
        if not is_exact and any(value is not None for value in checked):
            fit.rechecked.append(comparison)
        if comparison.op == "==" and fit.points == at:
            fit.points += 1
        fit.fixed += 1
        return True
    return False


def _limit(path: Path, at: int, parts: Sequence[Predicate], fit: _Fit) -> list[Span] | None:
    """The spans within the bounds of a component, if there are any bounds."""
    if not path.has_order(at):
        return None
    lower, upper = b"", None
    for part in parts:
        interval = _interval(path, at, part)
        if interval is None:
            continue
        lower = max(lower, interval[0])
        upper = _least(upper, interval[1])
        fit.bounds.append(part)
        fit.limits += 1
        component = path.components[at]
        is_stem = isinstance(part, Comparison) and part.op == "starts with"
        if is_stem and component.collation is not None:
            fit.rechecked.append(part)
    if upper is not None and lower >= upper:
        return []
    return [_span(prefix, lower, upper) for prefix in fit.prefixes] if fit.limits else None


def _interval(path: Path, at: int, part: Predicate) -> Interval | None:
    """The bytes that a component has where a condition is true; None: the path can't tell."""
    field, component = path.fields[at], path.components[at]
    if isinstance(part, Not) and isinstance(part.part, Comparison):
        inner = part.part
        is_null = inner.field == component.field and inner.op == "==" and inner.value is None
        return path.present(at) if is_null and path.keys is not None else None
    if not isinstance(part, Comparison) or part.field != component.field:
        return None
    if part.op == "starts with":
        value = field.type.check(part.value, field.name)
        if path.keys is None:
            stem = encode_component_stem(field, component, value)[len(PRESENT) :]
        else:
            stem = encode_component_stem(field, component, value)
        return stem, successor(stem)
    if part.op in ("==", "in") or part.collation != component.collation:
        return None
    key = path.encode(at, field.type.check(part.value, field.name))
    assert key is not None, "None has no bounds"
    first, end = path.present(at)
    includes, rises = part.op in ("<=", ">="), part.op in (">", ">=")
    if rises != component.descending:  # from the value on
        if not includes and (after := successor(key)) is None:
            return first, first
        return (key if includes else after or first), end
    return first, (successor(key) or end if includes else key)


def _span(prefix: bytes, lower: bytes, upper: bytes | None) -> Span:
    end = successor(prefix) if upper is None else prefix + upper
    return Span(prefix + lower or None, end)


def _least(left: bytes | None, right: bytes | None) -> bytes | None:
    if left is None or right is None:
        return right if left is None else left
    return min(left, right)


def _fit_order(
    table: Table,
    path: Path,
    parts: Sequence[Predicate],
    orders: tuple[Order, ...],
    tie_descending: bool,
    fit: _Fit,
) -> tuple[Sorting, TotalOrder]:
    """What is left to sort, and how the order lies on the path."""
    left = list(orders)
    flips: set[bool] = set()
    is_whole = True  # the path has no order of its own between the named fields and the ties
    before: int | None = None  # components before the first of the order
    last = -1
    is_contiguous = True
    ties = list(table.key)  # what of the key entries with equal fields are not yet ordered by
    for at, component in enumerate(path.components):
        if left and _same_order(left[0], path, at, parts) and path.has_order(at):
            flips.add(left.pop(0).descending != component.descending)
            before = at if before is None else before
            is_contiguous = is_contiguous and last in (-1, at - 1)
            last = at
        elif _is_fixed(parts, component.field, component.collation):
            continue
        elif left or not _goes_on(path, at, ties, component.descending != tie_descending, flips):
            is_whole = not left and path.keys is None
            break
    if left or len(flips) > 1:
        return "all", TotalOrder(orders, tie_descending, is_reversed=False, lead=None)
    # Where no field decides, only ties do.
    descending = flips.pop() if flips else tie_descending
    lead = None
    if before is None:
        before, last = len(path.components), len(path.components) - 1
    if is_contiguous and before <= fit.points:
        lead = _common(path, before, parts)
    is_sorted = is_whole and descending == tie_descending
    is_full = is_sorted and lead is not None and last == len(path.components) - 1
    is_of_nulls = bool(orders) and orders[0].nulls_last and _is_null(parts, orders[0].field)
    order = TotalOrder(orders, tie_descending, descending, lead, is_full, is_of_nulls)
    if is_sorted:
        return "none", order
    return ("ties" if orders else "all"), order


def _common(path: Path, count: int, parts: Sequence[Predicate]) -> bytes:
    """The bytes of leading components that have one value each."""
    fit = _Fit([b""], [], [])
    for at in range(count):
        _fix(path, at, parts, fit)
    return fit.prefixes[0] if fit.prefixes else b""


def _same_order(order: Order, path: Path, at: int, parts: Sequence[Predicate]) -> bool:
    """Whether a component has the order of a field: with nulls last, if it is null in none or all
    of what is read."""
    component = path.components[at]
    if order.field != component.field or order.collation != component.collation:
        return False
    if not order.nulls_last or not path.fields[at].optional or _is_null(parts, order.field):
        return True
    return any(_excludes_nulls(part, order.field) for part in parts)


def _is_null(parts: Sequence[Predicate], field: int) -> bool:
    """Whether the field is null in all records that are meant."""
    return any(
        isinstance(p, Comparison) and p.op == "==" and p.field == field and p.value is None
        for p in parts
    )


def _excludes_nulls(part: Predicate, field: int) -> bool:
    """Whether a condition holds for no record in which the field is null."""
    if isinstance(part, Not):
        return _is_null((part.part,), field)
    if not isinstance(part, Comparison) or part.field != field:
        return False
    return None not in part.value if part.op == "in" else part.value is not None


def _is_fixed(parts: Sequence[Predicate], field: int, collation: Collation | None) -> bool:
    """Whether all records that are meant have one key in this field."""
    return any(
        isinstance(part, Comparison)
        and part.op == "=="
        and part.field == field
        and part.collation in (None, collation)
        for part in parts
    )


def _goes_on(path: Path, at: int, ties: list[int], flip: bool, flips: set[bool]) -> bool:
    """Whether a component is the next field of the key, in the order that ties have anyhow."""
    component = path.components[at]
    if not ties or component.field != ties[0] or component.collation is not None:
        return False
    if path.keys is None or not _keys_are_ordered(path.fields[at].type) or not flips <= {flip}:
        return False
    ties.pop(0)
    flips.add(flip)
    return True


def _essential_orders(
    table: Table, parts: Sequence[Predicate], ordering: Ordering
) -> tuple[Order, ...]:
    """The orders that decide anything: see `TotalOrder`."""
    left = [o for o in ordering.fields if not _is_fixed(parts, o.field, o.collation)]
    if ordering.is_of_index:
        return tuple(left)
    count = len(table.key)
    tail = [(o.field, o.collation, o.descending) for o in left[-count:]]
    key = [(number, None, ordering.tie_descends) for number in table.key]
    if tail == key and all(_keys_are_ordered(f.type) for f in table.key_fields):
        return tuple(left[:-count])
    return tuple(left)


def _keys_are_ordered(kind: ValueType) -> bool:
    """Whether record keys hold the type as index keys do."""
    return type(kind).encode_index_key is ValueType.encode_index_key
