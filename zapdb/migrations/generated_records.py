"""Records to try a conversion on: an ordinary one, and what differs from it.

One field at a time, then fields that meet in one expression, by twos and all at once. A bounded
number, always the same ones.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from math import isqrt
from typing import Any, Final

from zapdb.limits import INLINE_SIZE_BYTES_MAX
from zapdb.migrations.boundary_values import ExpressionLiterals, field_values, values_of
from zapdb.records import Computed, ConversionPlan, Restored, SourceField
from zapdb.records.derivation import inputs_of, subderivations
from zapdb.schema import TableSchema
from zapdb.values import Zones

SINGLES_MAX: Final = 1_000
"""Records that differ from the ordinary one in one field."""
ARCHIVED_MAX: Final = 20
"""Values tried for one archived field."""


def generate_records(
    table: TableSchema, plan: ConversionPlan, back: ConversionPlan, most: int
) -> Iterator[dict[str, Any]]:
    """Yield up to `most` records of `table`, values by name, to test a conversion from it and
    back."""
    literals = _literals_of(plan, back)
    varied = _touched_fields(table, plan, back)
    each = max(3, SINGLES_MAX // max(1, len(varied)))
    choices = {f.number: field_values(f, literals)[:each] for f in table.fields}
    names = {f.number: f.name for f in table.fields}
    made = _vary(choices, varied, _groups(plan, back, varied), most)
    for values in itertools.islice(made, most):
        yield {names[number]: value for number, value in values.items()}


def generate_archives(plan: ConversionPlan, zones: Zones) -> Iterator[Mapping[int, bytes]]:
    """Archived values, of an earlier migration, that a plan takes back."""
    slots = {
        part.slot.number: part.slot
        for derivation in plan.derivations.values()
        for part in subderivations(derivation)
        if isinstance(part, Restored)
    }
    for number, slot in slots.items():
        if slot.optional:
            yield {number: b""}
        kind = slot.type.bind(zones)
        for value in values_of(slot.type)[:ARCHIVED_MAX]:
            encoded = kind.encode(value)
            if len(encoded) < INLINE_SIZE_BYTES_MAX:
                yield {number: encoded}


def _literals_of(*plans: ConversionPlan) -> ExpressionLiterals:
    return ExpressionLiterals.of(
        part.expression
        for plan in plans
        for derivation in plan.derivations.values()
        for part in subderivations(derivation)
        if isinstance(part, Computed)
    )


def _touched_fields(table: TableSchema, plan: ConversionPlan, back: ConversionPlan) -> list[int]:
    """The fields that are not merely copied there and back, by number."""
    read = frozenset[int]().union(
        *(inputs_of(d) for d in plan.derivations.values() if not isinstance(d, SourceField))
    )
    found = []
    for f in table.fields:
        there, home = plan.derivations.get(f.number), back.derivations.get(f.number)
        is_copied = isinstance(there, SourceField) and isinstance(home, SourceField)
        if not is_copied or f.number in read:
            found.append(f.number)
    return found


def _groups(plan: ConversionPlan, back: ConversionPlan, varied: list[int]) -> list[tuple[int, ...]]:
    """Fields that meet in one expression, there or on the way back."""
    found: dict[tuple[int, ...], None] = {}
    for derivation in (*plan.derivations.values(), *plan.archives.values()):
        found[tuple(sorted(inputs_of(derivation)))] = None
    for derivation in back.derivations.values():
        read = (plan.derivations[n] for n in inputs_of(derivation) if n in plan.derivations)
        together = frozenset[int]().union(*map(inputs_of, read))
        found[tuple(sorted(together))] = None
    return [group for group in found if len(group) > 1 and set(group) & set(varied)]


def _vary(
    choices: Mapping[int, list[Any]],
    varied: list[int],
    groups: list[tuple[int, ...]],
    most: int,
) -> Iterator[dict[int, Any]]:
    """An ordinary record; one field at a time; fields that meet, by twos and all at once."""
    base = {number: values[0] for number, values in choices.items()}
    yield base
    count = 1
    for number in varied:
        for value in choices[number][1:]:
            yield base | {number: value}
            count += 1
    rest = [number for number in choices if number not in set(varied)]
    for turn in (1, 2, 3):
        yield base | {n: choices[n][turn % len(choices[n])] for n in rest}
    pairs = list(dict.fromkeys(p for group in groups for p in itertools.combinations(group, 2)))
    each = max(2, isqrt(max(0, most - count) // max(1, len(pairs) + len(groups))))
    for group in groups:
        for turn in range(1, each * 2):
            at = enumerate(group, 1)
            yield base | {n: choices[n][turn * step % len(choices[n])] for step, n in at}
    for left, right in pairs:
        for one, other in itertools.product(choices[left][:each], choices[right][:each]):
            yield base | {left: one, right: other}
