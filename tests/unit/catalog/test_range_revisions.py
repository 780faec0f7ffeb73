"""Facts about key ranges say together what each of them says, in as few ranges as possible."""

from __future__ import annotations

import itertools

from hypothesis import given, settings
from hypothesis import strategies as st

from zapdb.catalog.range_revisions import Bounds, RangeRevision, intersect, unite

KEYS = [bytes([n]) for n in range(1, 8)]
BOUNDS = st.tuples(st.none() | st.sampled_from(KEYS), st.none() | st.sampled_from(KEYS)).filter(
    lambda pair: None in pair or pair[0] < pair[1]
)
FACTS = st.builds(lambda pair, r: RangeRevision(*pair, r), BOUNDS, st.integers(1, 4))
POINTS = [*KEYS, b"\x01\x01", b"\x08"]


def holds(lower: bytes | None, upper: bytes | None, key: bytes) -> bool:
    return (lower is None or key > lower) and (upper is None or key <= upper)


@settings(deadline=None)
@given(st.lists(FACTS, max_size=8), st.integers(0, 2))
def test_facts_united_say_of_each_key_the_highest_revision(
    facts: list[RangeRevision], first: int
) -> None:
    united = list(unite(facts, first))
    assert (united[0].lower, united[-1].upper) == (None, None)
    for one, next_one in itertools.pairwise(united):
        assert one.upper == next_one.lower
        assert one.revision != next_one.revision
    for key in POINTS:
        said = [fact.revision for fact in facts if holds(fact.lower, fact.upper, key)]
        (found,) = [one.revision for one in united if holds(one.lower, one.upper, key)]
        assert found == max(said, default=0) or found == first > max(said, default=0)


@settings(deadline=None)
@given(st.data())
def test_an_intersection_has_the_keys_of_both(data: st.DataObject) -> None:
    one, other = (draw_ranges(data) for _ in range(2))
    found = intersect(one, other)
    for key in POINTS:
        wanted = any(holds(*r, key) for r in one) and any(holds(*r, key) for r in other)
        assert sum(holds(*r, key) for r in found) == wanted


def draw_ranges(data: st.DataObject) -> list[Bounds]:
    """Ranges that are in order, and disjoint."""
    cuts = sorted(data.draw(st.sets(st.sampled_from(KEYS))))
    pairs = list(itertools.pairwise([None, *cuts, None]))
    return [pair for pair in pairs if data.draw(st.booleans())]
