"""The part of a predicate that a path answers: the spans of its keys that are read.

Leading components that the predicate fixes to values, then one component within bounds, make the
spans. The rest of the predicate is compared record by record.

Spans are of full keys. Entries of an index are in the order of full keys, except truncated keys. In
a unique index only the first 992 bytes are in this order, and an entry with a null has its record's
key after the full key. Full keys don't begin with one another, so bounds of at most 992 bytes hold
for entries as they do for full keys.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, NamedTuple, assert_never

import msgspec

from zapdb.limits import INDEX_KEY_SIZE_BYTES_MAX, PLAN_SPANS_MAX
from zapdb.records import PagedRows
from zapdb.schema import IndexComponent
from zapdb.tables.indexes.keys import (
    PRESENT,
    UNIQUE_ORDERED_SIZE_BYTES,
    encode_component_prefix,
    is_truncated,
    prefix_end,
    truncate_key,
)
from zapdb.tables.indexes.paths import Path
from zapdb.tables.indexes.predicates import And, Bound, Comparison, Not, Or, Predicate, Unbound


class Span(msgspec.Struct, frozen=True):
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


class Ties:
    """Puts entries with full keys, given page by page in the order of their entry keys, into the
    order of their full keys.

    Only truncated keys tie; in a unique index, the keys that agree in their ordered part. Runs of
    ties are sorted, and entries beyond the bounds of the span are left out.
    """

    __slots__ = ("_descending", "_limit", "_run", "_shared", "_span", "_unique")

    def __init__(self, span: Span, *, unique: bool, descending: bool) -> None:
        self._span, self._unique, self._descending = span, unique, descending
        self._limit = UNIQUE_ORDERED_SIZE_BYTES if unique else INDEX_KEY_SIZE_BYTES_MAX
        self._shared, self._run = b"", PagedRows()

    def sort(self, page: PagedRows, *, is_last: bool) -> PagedRows:
        """Return the entries whose place is known now; a run that may go on waits."""
        unique, limit = self._unique, self._limit
        # With the record's key, entries with nulls run as they are stored; all others differ in
        # the index key already.
        sizes = [len(key) + len(record) if unique else len(key) for key, record, _ in page]
        if not self._run and max(sizes, default=0) < limit:
            return page
        found = PagedRows()
        for entry, size in zip(page, sizes, strict=True):
            key = entry[0] + entry[1] if unique else entry[0]
            if self._run and not (size >= limit and key.startswith(self._shared)):
                found += self._end_run()
            if size < limit:
                found.append(entry)
            else:
                self._shared = key[:limit]
                self._run.append(entry)
        return found + self._end_run() if is_last else found

    def _end_run(self) -> PagedRows:
        run, self._run = self._run, []
        ordered = sorted(run, key=itemgetter(0, 1), reverse=self._descending)
        return [entry for entry in ordered if self._span.holds(entry[0])]


class Fixed(NamedTuple):
    """A leading component that an equality fixes."""

    place: int
    """Where the equality is among the parts of the predicate."""
    is_exact: bool
    """Whether equal keys have equal values."""
    encode: Callable[[Any], bytes | None]
    """A value, which is checked → the bytes of the component: see `Path.encoder`."""


@dataclass(frozen=True, slots=True)
class Match:
    """The parts of a predicate that a path answers, by their places, whatever their values are."""

    fixed: tuple[Fixed, ...]
    """Of leading components, one after the other."""
    limits: tuple[int, ...]
    """The bounds of the component behind them."""
    points: int
    """How many leading components are fixed to one value."""
    places: tuple[int, ...]
    """All of these parts."""
    inexact: tuple[int, ...]
    """Those of them that may be false of records in the spans, though no key is truncated."""


def match_parts(path: Path, parts: Sequence[Predicate]) -> Match:
    """Find the parts that a path answers. Their values count only where an `in` has too many."""
    fixed, limits, ranges, points = list[Fixed](), list[int](), 1, 0
    for at, component in enumerate(path.components):
        encode = path.encoder(at)
        counted = (
            (place, found, len(_encode_values(encode, found)) if found.op == "in" else 1)
            for place, found in _find_equalities(component, parts)
        )
        best = next((one for one in counted if ranges * one[2] <= PLAN_SPANS_MAX), None)
        if best is None:
            if path.has_order(at):
                limits = [n for n, part in enumerate(parts) if _find_limit(path, at, part)]
            break
        place, found, count = best
        tells_all = path.fields[at].type.index_key_is_exact or path.keys is None
        is_exact = tells_all and found.collation == component.collation
        fixed.append(Fixed(place, is_exact, encode))
        ranges *= count
        points += found.op == "==" and points == at
    places = (*(found.place for found in fixed), *limits)
    inexact = [
        one.place for one in fixed if not one.is_exact and not _has_no_value(parts[one.place])
    ]
    for place in limits:
        limit = _find_limit(path, len(fixed), parts[place])
        if limit is not None and not limit[2]:
            inexact.append(place)
    return Match(tuple(fixed), tuple(limits), points, places, tuple(inexact))


def _has_no_value(part: Predicate) -> bool:
    """Return whether a condition allows a field no value, or only null, as all of its shape do."""
    if not isinstance(part, Comparison):
        return False
    return part.value == () if part.op == "in" else part.op == "==" and part.value is None


def _find_equalities(
    component: IndexComponent, parts: Sequence[Predicate]
) -> list[tuple[int, Comparison]]:
    """Return the equalities that may fix a component with their places, the best first."""
    found = [
        (place, part)
        for place, part in enumerate(parts)
        if isinstance(part, Comparison)
        and part.field == component.field
        and part.op in ("==", "in")
        and part.collation in (None, component.collation)
    ]
    # One value before several; where keys say all before where they don't.
    return sorted(found, key=lambda f: (f[1].op == "in", f[1].collation != component.collation))


def _encode_values(
    encode: Callable[[Any], bytes | None], comparison: Comparison
) -> Sequence[bytes]:
    """Return the different keys that a component has if an equality is true, in order."""
    if comparison.op == "==":
        key = encode(comparison.value)
        return () if key is None else (key,)
    return sorted(key for key in {encode(value) for value in comparison.values} if key is not None)


def bind_match(
    path: Path, match: Match, parts: Sequence[Predicate], lead_components: int
) -> tuple[tuple[Span, ...], tuple[Predicate, ...], bytes]:
    """Return what a path reads for the values of a predicate: the spans, the parts that their keys
    may leave open, and the leading components that have one value each."""
    prefixes, lead = [b""], b""
    for at, (place, _, encode) in enumerate(match.fixed):
        comparison = parts[place]
        assert isinstance(comparison, Comparison)
        some = _encode_values(encode, comparison)
        prefixes = [prefix + key for prefix in prefixes for key in some]
        if at < lead_components:
            lead = prefixes[0] if prefixes else b""
    if match.limits:
        spans = _limit_spans(path, match, parts, prefixes)
    else:
        spans = tuple([make_span(prefix, b"", None) for prefix in prefixes])
    for span in spans:
        if path.may_truncate(span.lower) or path.may_truncate(span.upper):
            return spans, tuple([parts[place] for place in match.places]), lead
    return spans, tuple([parts[place] for place in match.inexact]), lead


def _limit_spans(
    path: Path, match: Match, parts: Sequence[Predicate], prefixes: Sequence[bytes]
) -> tuple[Span, ...]:
    """Return the spans within the bounds of the component behind the fixed ones."""
    lower, upper = b"", None
    for place in match.limits:
        limit = _find_limit(path, len(match.fixed), parts[place])
        assert limit is not None
        lower, upper = max(lower, limit[0]), _least(upper, limit[1])
    if upper is not None and lower >= upper:
        return ()
    return tuple([make_span(prefix, lower, upper) for prefix in prefixes])


Limit = tuple[bytes, bytes | None, bool]
"""The bytes that a component has if a condition is true, an `Interval`, and whether the condition
is true of all records whose component has such bytes."""


def _find_limit(path: Path, at: int, part: Predicate) -> Limit | None:
    """Return what a condition says of a component's bytes; None if the path can't tell."""
    match part:
        case Comparison():
            return _limit_by(path, at, part)
        case Not(Comparison() as inner):
            is_null = inner.field == path.components[at].field and inner.op == "=="
            if is_null and inner.value is None and path.keys is not None:
                return (*path.present(at), True)
            return None
        case Not() | And() | Or():
            return None
        case Unbound():
            raise TypeError(part)
        case _:
            assert_never(part)


def _limit_by(path: Path, at: int, part: Comparison) -> Limit | None:
    component = path.components[at]
    if part.field != component.field:
        return None
    match part.op:
        case "==" | "in":
            return None  # they fix it, or nothing
        case "<" | "<=" | ">" | ">=" as op:
            if part.collation != component.collation:
                return None
            key = path.encoder(at)(part.value)
            assert key is not None, "None has no bounds"
            first, end = path.present(at)
            includes, rises = _read_bound(op)
            if rises != component.descending:  # from the value on
                if not includes and (after := prefix_end(key)) is None:
                    return first, first, True
                return (key if includes else after or first), end, True
            return first, (prefix_end(key) or end if includes else key), True
        case "starts with":
            field = path.fields[at]
            value = field.type.check(part.value, field.name)
            if path.keys is None:
                shared = encode_component_prefix(field, component, value)[len(PRESENT) :]
            else:
                shared = path.keys.encode_component_prefix(at, value)
            return shared, prefix_end(shared), component.collation is None
        case op:
            assert_never(op)


def _read_bound(op: Bound) -> tuple[bool, bool]:
    """Return whether a bound includes the value, and whether values above it are meant."""
    match op:
        case "<":
            return False, False
        case "<=":
            return True, False
        case ">":
            return False, True
        case ">=":
            return True, True
        case _:
            assert_never(op)


def make_span(prefix: bytes, lower: bytes, upper: bytes | None) -> Span:
    end = prefix_end(prefix) if upper is None else prefix + upper
    return Span(prefix + lower or None, end)


def _least(left: bytes | None, right: bytes | None) -> bytes | None:
    if left is None or right is None:
        return right if left is None else left
    return min(left, right)
