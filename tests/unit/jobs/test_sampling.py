"""Drawing places at random: different ones, each as likely as any other, the same by a seed."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from zapdb.jobs.sampling import draw_places


@pytest.mark.parametrize(("count", "sample"), [(0, 5), (1, 1), (5, 0), (5, 5), (5, 9), (100, 10)])
def test_places_are_different_and_in_order(count: int, sample: int) -> None:
    places = draw_places(count, sample, random.Random(1).random)
    assert len(places) == min(count, sample)
    assert places == sorted(set(places))
    assert all(0 <= place < count for place in places)


def test_each_place_and_each_pair_is_as_likely_as_any_other() -> None:
    draw = random.Random(7).random
    singles, pairs = Counter[int](), Counter[tuple[int, ...]]()
    for _ in range(7_000):
        places = draw_places(7, 2, draw)
        singles.update(places)
        pairs[tuple(places)] += 1
    assert set(singles) == set(range(7))
    assert all(1_800 < count < 2_200 for count in singles.values()), singles
    assert len(pairs) == 21
    assert all(260 < count < 410 for count in pairs.values()), pairs


def test_a_seed_draws_the_same_on_every_python() -> None:
    assert draw_places(1_000, 5, random.Random("1/2").random) == [88, 430, 518, 551, 820]
