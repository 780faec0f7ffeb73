"""The best plan for a query, by one path or by several together.

Each condition under `|` may have its own ranges. Ranges of one path become its spans, in order and
disjoint. Ranges of several paths become a `UnionPlan`: each of its plans leaves out the records of
the plans before it, by comparing values. So no record comes twice, and none has to be remembered.
If an order is requested, the values of `in` are alternatives, too: the entries of one value are in
an order that the entries of several values do not have. If nulls come last, values and nulls are
also alternatives: entries have nulls first.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, assert_never

import msgspec

from zapdb.limits import PLAN_BRANCHES_MAX, PLAN_SPANS_MAX, PLANS_KEPT_MAX
from zapdb.schema import TableSchema
from zapdb.tables.indexes.keys import KeyBuilder
from zapdb.tables.indexes.ordering import Ordering, TotalOrder
from zapdb.tables.indexes.path_planning import PathFit, QueryPlan, fit_path, is_among, plan_path
from zapdb.tables.indexes.paths import Path, list_paths
from zapdb.tables.indexes.predicates import (
    And,
    Comparison,
    Not,
    Or,
    Predicate,
    comparisons_in,
    compile_predicate,
    parts_of,
)
from zapdb.tables.indexes.sorting import SORTING_SCORES, Sorting
from zapdb.tables.indexes.spans import Span


@dataclass(frozen=True, slots=True)
class UnionPlan:
    """Several plans with disjoint results: exactly one of them returns each matching record.

    With a requested order, all have the same `order.fields`; with sorting `none` each is in this
    order. If they are merged, records are taken from all of them in turn; else one is read after
    the other.
    """

    branches: tuple[QueryPlan, ...]
    is_merged: bool
    sorting: Sorting
    score: tuple[int, ...]

    is_scan = False

    @property
    def order(self) -> TotalOrder:
        return self.branches[0].order


@dataclass(frozen=True, slots=True)
class GenericPlan:
    """A plan of alternatives, without the query's values; `_bind_values` adds them.

    The alternatives are those of the part at `split`, else the values and then the nulls of the
    first field of an order with nulls last.
    Alternatives on one path are united; several paths have one alternative each.
    """

    paths: tuple[Path, ...]
    split: int | None
    kind: Literal["united", "apart", "nulls last"]


class Planner:
    """Plans queries of one table by some paths: first the table by its keys, or a single path.

    Which path is best depends on fields and operators, and not on values (except for long lists).
    So a chosen plan is kept for other queries of the same shape. Safe to share between threads.
    """

    def __init__(self, table: TableSchema, paths: Iterable[Path]) -> None:
        self._table = table
        self._paths = tuple(paths)
        self._generic_plans: dict[Hashable, PathFit | GenericPlan] = {}
        self._in_order: dict[Hashable, PathFit | None] = {}

    def plan(self, predicate: Predicate, ordering: Ordering | None) -> QueryPlan | UnionPlan:
        """Return the best plan. With None for the ordering, records come in the order of the path.

        More fields fixed by equality come first, then a bound on the next one, then an order that
        needs no sorting, then the table itself, then the shorter index. Conditions under `|`, and
        the values of `in`, are read separately if each of them then does better in the first three
        points.
        """
        parts = parts_of(predicate, And)
        shape = shape_of(parts)
        known = None if shape is None else self._generic_plans.get((ordering, shape))
        if isinstance(known, PathFit):
            return known.bind(parts)
        if known is not None:
            plan = self._bind_values(known, parts, ordering)
            assert plan is not None
            return plan
        generic, plan = self._choose(parts, ordering)
        if shape is not None:
            if len(self._generic_plans) >= PLANS_KEPT_MAX:
                self._generic_plans.clear()
            self._generic_plans[ordering, shape] = generic
        return plan

    def fit(self, parts: tuple[Predicate, ...], ordering: Ordering | None) -> PathFit | None:
        """Return how the best path answers all queries with such parts; None if several paths do,
        or if that depends on values."""
        shape = shape_of(parts)
        if shape is None:
            return None
        if (ordering, shape) not in self._generic_plans:
            self.plan(And(parts), ordering)
        known = self._generic_plans.get((ordering, shape))
        return known if isinstance(known, PathFit) else None

    def plan_in_order(self, predicate: Predicate, ordering: Ordering) -> QueryPlan | None:
        """Return the best plan that sorts nothing, even if it compares many records one by one;
        None if no path has the order."""
        parts = parts_of(predicate, And)
        shape = shape_of(parts)
        if shape is not None and (ordering, shape) in self._in_order:
            known = self._in_order[ordering, shape]
            return None if known is None else known.bind(parts)
        fits = (fit_path(self._table, path, parts, ordering) for path in self._paths)
        ordered = [fit for fit in fits if fit.sorting == "none"]
        best = max(ordered, key=lambda fit: fit.score, default=None)
        if shape is not None:
            if len(self._in_order) >= PLANS_KEPT_MAX:
                self._in_order.clear()
            self._in_order[ordering, shape] = best
        return None if best is None else best.bind(parts)

    def _choose(
        self, parts: tuple[Predicate, ...], ordering: Ordering | None
    ) -> tuple[PathFit | GenericPlan, QueryPlan | UnionPlan]:
        paths = self._find_paths(parts, ordering)
        fits = (fit_path(self._table, path, parts, ordering) for path in paths)
        best = max(fits, key=lambda fit: fit.score)
        better = [
            (generic, plan)
            for generic in self._list_generic_plans(paths, parts, ordering)
            if (plan := self._bind_values(generic, parts, ordering)) is not None
            and plan.score[:3] > best.score[:3]
        ]
        if better:
            return max(better, key=lambda found: found[1].score)
        return best, best.bind(parts)

    def _find_paths(
        self, parts: Sequence[Predicate], ordering: Ordering | None
    ) -> tuple[Path, ...]:
        """Return the first path, and the paths that may be better; the others answer no
        condition."""
        fields = {comparison.field for part in parts for comparison in comparisons_in(part)}
        fields.update(order.field for order in (ordering.fields if ordering else ()))
        first, *others = self._paths
        return (first, *(path for path in others if path.components[0].field in fields))

    def _list_generic_plans(
        self, paths: Sequence[Path], parts: Sequence[Predicate], ordering: Ordering | None
    ) -> Iterator[GenericPlan]:
        """Return generic plans that read alternatives separately, on one path and on several."""
        for at, part in enumerate(parts):
            either = _alternatives_of(part, ordering)
            if not either or len(either) > PLAN_SPANS_MAX:
                continue
            for path in paths:
                yield GenericPlan((path,), at, "united")
            if len(either) <= PLAN_BRANCHES_MAX:
                common = _without(parts, at)
                wholes = [(*common, *parts_of(one, And)) for one in either]
                best = (self._find_best(paths, whole, common, ordering) for whole in wholes)
                yield GenericPlan(tuple(best), at, "apart")
        if ordering is not None and ordering.fields and ordering.fields[0].nulls_last:
            for path in paths:
                yield GenericPlan((path,), None, "nulls last")

    def _find_best(
        self,
        paths: Sequence[Path],
        whole: tuple[Predicate, ...],
        common: tuple[Predicate, ...],
        ordering: Ordering | None,
    ) -> Path:
        fits = (fit_path(self._table, path, whole, ordering, common) for path in paths)
        return max(fits, key=lambda fit: fit.score).path

    def _bind_values(
        self, generic: GenericPlan, parts: tuple[Predicate, ...], ordering: Ordering | None
    ) -> QueryPlan | UnionPlan | None:
        """Return the plan; None if this generic plan can't answer the query."""
        if generic.kind == "nulls last":
            assert ordering is not None
            return self._part_nulls(generic.paths[0], parts, ordering)
        assert generic.split is not None
        common = _without(parts, generic.split)
        either = _alternatives_of(parts[generic.split], ordering)
        wholes = [(*common, *parts_of(one, And)) for one in either]
        match generic.kind:
            case "united":
                paths = generic.paths * len(either)
            case "apart":
                paths = generic.paths
            case _:
                assert_never(generic.kind)
        branches = [
            plan_path(self._table, path, whole, ordering, common)
            for path, whole in zip(paths, wholes, strict=True)
        ]
        if generic.kind == "apart":
            return self._set_apart(branches, wholes, either, ordering)
        base = plan_path(self._table, generic.paths[0], common, ordering)
        return _unite(base, parts, parts[generic.split], either, branches)

    def _set_apart(
        self,
        branches: Sequence[QueryPlan],
        wholes: Sequence[tuple[Predicate, ...]],
        either: tuple[Predicate, ...],
        ordering: Ordering | None,
    ) -> UnionPlan | None:
        """Plan several paths: each leaves out the records of the paths before it."""
        if not all(map(_has_ranges, branches)):
            return None
        if sum(len(branch.spans) for branch in branches) > PLAN_SPANS_MAX:
            return None
        is_sorted = ordering is None or all(branch.sorting != "all" for branch in branches)
        sorting: Sorting = "none" if is_sorted else "all"
        fixed, limits = min(branch.score[:2] for branch in branches)
        apart = list[QueryPlan]()
        for at, (branch, whole) in enumerate(zip(branches, wholes, strict=True)):
            met = tuple(one for one in either[:at] if not self._exclude(whole, one))
            residual = (*branch.residual, Not(_either(met))) if met else branch.residual
            apart.append(branch._replace(residual=residual))
        size = sum(len(branch.path.components) for branch in branches)
        score = (fixed, limits, SORTING_SCORES[sorting], False, -size)
        return UnionPlan(tuple(apart), ordering is not None, sorting, score)

    def _exclude(self, whole: Sequence[Predicate], other: Predicate) -> bool:
        """Return whether the fixed values of a branch show that none of its records match
        `other`."""
        for part in whole:
            if not isinstance(part, Comparison) or part.op != "==" or part.collation is not None:
                continue
            mine = [p for p in parts_of(other, And) if _fields_of(p) == {part.field}]
            if mine:
                matches = compile_predicate(And(tuple(mine)), self._table)
                if not matches(_Only(part.value)):  # type: ignore[arg-type]  # the only field read
                    return True
        return False

    def _part_nulls(
        self, path: Path, parts: tuple[Predicate, ...], ordering: Ordering
    ) -> UnionPlan | None:
        """Plan one path twice: first the values of the order's first field, then its nulls."""
        first = ordering.fields[0]
        is_null = Comparison(first.field, first.name, "==", None)
        branches = tuple(
            plan_path(self._table, path, (*parts, part), ordering, parts)
            for part in (Not(is_null), is_null)
        )
        base = plan_path(self._table, path, parts, ordering)
        if base.sorting != "all" or any(branch.sorting == "all" for branch in branches):
            return None
        fixed, limits = base.score[:2]
        score = (fixed, limits, SORTING_SCORES["none"], False, -len(path.components))
        return UnionPlan(branches, False, "none", score)


class _Only:
    """A record of one value for every field's name."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        object.__setattr__(self, "value", value)

    def __getattr__(self, name: str) -> Any:
        return self.value


def make_plan(
    table: TableSchema,
    indexes: Iterable[KeyBuilder],
    predicate: Predicate,
    ordering: Ordering | None,
) -> QueryPlan | UnionPlan:
    """Return the best plan by the indexes that can be read now: see `Planner.plan`."""
    return Planner(table, list_paths(table, indexes)).plan(predicate, ordering)


def shape_of(parts: Sequence[Predicate]) -> Hashable:
    """Return what conditions have in common that differ in their values alone: one plan answers
    them all. None if the plan depends on the values."""
    ranges = 1
    shapes: list[Hashable] = []
    for part in parts:
        shape, count = part.describe()
        shapes.append(shape)
        ranges *= count
    return None if ranges > PLAN_SPANS_MAX else tuple(shapes)


def _without(parts: Sequence[Predicate], at: int) -> tuple[Predicate, ...]:
    return (*parts[:at], *parts[at + 1 :])


def _fields_of(predicate: Predicate) -> set[int]:
    return {comparison.field for comparison in comparisons_in(predicate)}


def _alternatives_of(part: Predicate, ordering: Ordering | None) -> tuple[Predicate, ...]:
    if isinstance(part, Or):
        return part.parts
    # One range for each value is what `in` makes anyhow; their entries are in order only by value.
    if ordering is None or not isinstance(part, Comparison) or part.op != "in":
        return ()
    if len(part.value) > PLAN_BRANCHES_MAX:
        return ()
    return tuple(msgspec.structs.replace(part, op="==", value=value) for value in part.value)


def without_ties(plan: QueryPlan | UnionPlan) -> QueryPlan | UnionPlan:
    """Return the plan without an order among records that are equal in all its fields."""
    if plan.sorting == "all":
        return plan
    if isinstance(plan, UnionPlan):
        branches = tuple(b._replace(sorting="none") for b in plan.branches)
        return replace(plan, branches=branches)
    return plan._replace(sorting="none")


def _unite(
    base: QueryPlan,
    parts: Sequence[Predicate],
    split: Predicate,
    either: tuple[Predicate, ...],
    branches: Sequence[QueryPlan],
) -> QueryPlan | None:
    """Unite plans on one path; `base` is the plan for their common conditions."""
    spans = _merge_spans(span for branch in branches for span in branch.spans)
    if not all(map(_has_ranges, branches)) or len(spans) > PLAN_SPANS_MAX:
        return None
    index_conditions, rechecked, residual = list[Predicate](), list[Predicate](), list[Predicate]()
    for part in parts:
        mine = [
            (branch, piece)
            for branch, one in zip(branches, either, strict=True)
            for piece in (parts_of(one, And) if part is split else (part,))
        ]
        if not all(is_among(piece, branch.index_conditions) for branch, piece in mine):
            residual.append(part)
            continue
        index_conditions.append(part)
        if any(is_among(piece, branch.rechecked) for branch, piece in mine):
            rechecked.append(part)
    fixed, limits = min(branch.score[:2] for branch in branches)
    return base._replace(
        spans=spans,
        index_conditions=tuple(index_conditions),
        rechecked=tuple(rechecked),
        residual=tuple(residual),
        score=(fixed, limits, *base.score[2:]),
    )


def _merge_spans(spans: Iterable[Span]) -> tuple[Span, ...]:
    """Return rising, disjoint spans of the same keys."""
    merged = list[Span]()
    for span in sorted(spans, key=lambda span: span.lower or b""):
        last = merged[-1] if merged else None
        if last is None or (last.upper is not None and (span.lower or b"") > last.upper):
            merged.append(span)
        elif last.upper is not None and (span.upper is None or span.upper > last.upper):
            merged[-1] = Span(last.lower, span.upper)
    return tuple(merged)


def _has_ranges(plan: QueryPlan) -> bool:
    return plan.score[:2] > (0, 0)


def _either(parts: tuple[Predicate, ...]) -> Predicate:
    return parts[0] if len(parts) == 1 else Or(parts)
