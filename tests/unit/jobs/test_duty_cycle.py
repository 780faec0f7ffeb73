"""The share of the time that a job with a ceiling of latency may work."""

from __future__ import annotations

import random

from zapdb.jobs.latency import DutyCycle
from zapdb.limits import SHARE_FIRST, SHARE_LEAST


def test_it_is_halved_above_the_ceiling_and_rises_slowly_below() -> None:
    cycle = DutyCycle()
    assert cycle.share == SHARE_FIRST
    cycle.take_in(0.011, ceiling_seconds=0.010)
    assert cycle.share == SHARE_FIRST / 2
    cycle.take_in(0.010, ceiling_seconds=0.010)
    assert SHARE_FIRST / 2 < cycle.share < SHARE_FIRST


def test_it_stays_between_the_least_and_all_of_the_time() -> None:
    cycle = DutyCycle()
    for _ in range(100):
        cycle.take_in(1.0, ceiling_seconds=0.010)
    assert cycle.share == SHARE_LEAST
    for _ in range(200):
        cycle.take_in(0.001, ceiling_seconds=0.010)
    assert cycle.share == 1.0


def test_it_settles_where_few_queries_are_above_the_ceiling() -> None:
    """A query that meets the job takes longer than the ceiling, and it meets it the more often the
    more the job works."""
    draw, cycle, above = random.Random(1), DutyCycle(), 0
    for _ in range(5_000):
        is_slow = draw.random() < cycle.share
        cycle.take_in(0.020 if is_slow else 0.001, ceiling_seconds=0.010)
        above += is_slow
    assert 0.03 < above / 5_000 < 0.08
