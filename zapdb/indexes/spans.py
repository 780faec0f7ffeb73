"""The part of a predicate that a path answers: the spans of its keys that are read.

Leading components that the predicate fixes to values, then one component within bounds, make the
spans. The rest of the predicate is compared record by record.

Spans are of full keys. Entries of an index are in the order of full keys, except truncated keys. In
a unique index only the first 992 bytes are in this order, and an entry with a null has its record's
key after the full key. Full keys don't begin with one another, so bounds of at most 992 bytes hold
for entries as they do for full keys.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from zapdb.indexes.keys import (
    PRESENT,
    UNIQUE_ORDERED_SIZE_BYTES,
    Interval,
    encode_component_prefix,
    is_truncated,
    prefix_end,
    truncate_key,
)
from zapdb.indexes.paths import Path
from zapdb.indexes.predicates import Comparison, Not, Predicate
from zapdb.limits import INDEX_KEY_SIZE_BYTES_MAX, PLAN_SPANS_MAX
from zapdb.records import Record
from zapdb.schema import IndexComponent

Entry = tuple[bytes, bytes, Record]
"""A record with its full key on a path and its own key: entries are in the order of these two."""


@dataclass(frozen=True, slots=True)
class Span:
    """The records with lower ≤ full key < upper; None is no bound."""

    lower: bytes | None
    upper: bytes | None

    def holds(self, key: bytes) -> bool:
        """Return whether the span contains a full key."""
        return (self.lower is None or key >= self.lower) and (
            self.upper is None or key < self.upper
        )

    def entry_bounds(self, *, unique: bool) -> tuple[bytes | None, bytes | None]:
        """Return the same bounds for the keys of an index's entries; they include entries tied with
        them."""
        if unique:
            ordered = UNIQUE_ORDERED_SIZE_BYTES
            low = None if self.lower is None else self.lower[:ordered]
            if self.upper is None or len(self.upper) <= ordered:
                return low, self.upper
            return low, prefix_end(self.upper[:ordered])
        low = None if self.lower is None else truncate_key(self.lower)
        if self.upper is None or not is_truncated(self.upper):
            return low, self.upper
        return low, prefix_end(truncate_key(self.upper))


def sort_ties(
    entries: Iterable[Entry], span: Span, *, unique: bool, descending: bool
) -> Iterator[Entry]:
    """Yield entries, given in the order of their entry keys, in the order of their full keys.

    Only truncated keys tie; in a unique index, the keys that agree in their ordered part. Runs of
    ties are sorted, and entries beyond the bounds of the span are left out.
    """
    limit = UNIQUE_ORDERED_SIZE_BYTES if unique else INDEX_KEY_SIZE_BYTES_MAX
    shared, run = b"", list[Entry]()
    for entry in entries:
        # With the record's key, entries with nulls run as they are stored; all others differ in
        # the index key already.
        key = entry[0] + entry[1] if unique else entry[0]
        ties = len(key) >= limit
        if run and not (ties and key.startswith(shared)):
            yield from _sort_run(run, span, descending)
            run = []
        if not ties:
            yield entry
        else:
            shared = key[:limit]
            run.append(entry)
    yield from _sort_run(run, span, descending)


def _sort_run(run: list[Entry], span: Span, descending: bool) -> Iterator[Entry]:
    for entry in sorted(run, key=lambda entry: entry[:2], reverse=descending):
        if span.holds(entry[0]):
            yield entry


@dataclass(slots=True)
class SpanBuilder:
    """The parts of a predicate that a path answers, collected component by component."""

    prefixes: list[bytes]
    index_conditions: list[Predicate]
    rechecked: list[Predicate]
    points: int = 0
    """Leading components with one value."""
    fixed: int = 0
    """Leading components with one value or several."""
    limits: int = 0
    """Bounds of the component behind them."""


def _find_equalities(component: IndexComponent, parts: Sequence[Predicate]) -> list[Comparison]:
    """Return the equalities that may fix a component, the best first."""
    found = [
        part
        for part in parts
        if isinstance(part, Comparison)
        and part.field == component.field
        and part.op in ("==", "in")
        and part.collation in (None, component.collation)
    ]
    # One value before several; where keys say all before where they don't.
    return sorted(found, key=lambda c: (c.op == "in", c.collation != component.collation))


def fix_component(path: Path, at: int, parts: Sequence[Predicate], builder: SpanBuilder) -> bool:
    """Fix a component to the values of an equality; returns whether there is one."""
    field, component = path.fields[at], path.components[at]
    for comparison in _find_equalities(component, parts):
        values = comparison.value if comparison.op == "in" else (comparison.value,)
        checked = [None if v is None else field.type.check(v, field.name) for v in values]
        encoded = {path.encode(at, value) for value in checked} - {None}
        if len(builder.prefixes) * len(encoded) > PLAN_SPANS_MAX:
            continue
        some = sorted(key for key in encoded if key is not None)
        builder.prefixes = [prefix + key for prefix in builder.prefixes for key in some]
        builder.index_conditions.append(comparison)
        tells_all = field.type.index_key_is_exact or path.keys is None
        is_exact = tells_all and comparison.collation == component.collation
        if not is_exact and any(value is not None for value in checked):
            builder.rechecked.append(comparison)
        if comparison.op == "==" and builder.points == at:
            builder.points += 1
        builder.fixed += 1
        return True
    return False


def limit_component(
    path: Path, at: int, parts: Sequence[Predicate], builder: SpanBuilder
) -> list[Span] | None:
    """Return the spans within the bounds of a component, if it has bounds."""
    if not path.has_order(at):
        return None
    lower, upper = b"", None
    for part in parts:
        interval = _interval(path, at, part)
        if interval is None:
            continue
        lower = max(lower, interval[0])
        upper = _least(upper, interval[1])
        builder.index_conditions.append(part)
        builder.limits += 1
        component = path.components[at]
        is_prefix = isinstance(part, Comparison) and part.op == "starts with"
        if is_prefix and component.collation is not None:
            builder.rechecked.append(part)
    if upper is not None and lower >= upper:
        return []
    return (
        [make_span(prefix, lower, upper) for prefix in builder.prefixes] if builder.limits else None
    )


def _interval(path: Path, at: int, part: Predicate) -> Interval | None:
    """Return the bytes that a component has if a condition is true; None if the path can't tell."""
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
            shared = encode_component_prefix(field, component, value)[len(PRESENT) :]
        else:
            shared = path.keys.encode_component_prefix(at, value)
        return shared, prefix_end(shared)
    if part.op in ("==", "in") or part.collation != component.collation:
        return None
    key = path.encode(at, field.type.check(part.value, field.name))
    assert key is not None, "None has no bounds"
    return _bound_side(part, key, path.present(at), is_descending=component.descending)


def _bound_side(
    part: Comparison, key: bytes, present: Interval, *, is_descending: bool
) -> Interval:
    """Return the bytes below or above a value's, among all that are `present`."""
    first, end = present
    includes, rises = part.op in ("<=", ">="), part.op in (">", ">=")
    if rises != is_descending:  # from the value on
        if not includes and (after := prefix_end(key)) is None:
            return first, first
        return (key if includes else after or first), end
    return first, (prefix_end(key) or end if includes else key)


def make_span(prefix: bytes, lower: bytes, upper: bytes | None) -> Span:
    end = prefix_end(prefix) if upper is None else prefix + upper
    return Span(prefix + lower or None, end)


def _least(left: bytes | None, right: bytes | None) -> bytes | None:
    if left is None or right is None:
        return right if left is None else left
    return min(left, right)
