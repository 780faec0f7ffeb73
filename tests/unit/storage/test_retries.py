"""Policies: how often, for how long, with which pauses; and what is raised in the end."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import pytest

import zapdb.aio.proxies
from zapdb import limits
from zapdb.errors import CatalogChanged, LeaseHeld, TransactionConflict
from zapdb.limits import RetryPolicy
from zapdb.metrics import RETRIES, RETRIES_EXHAUSTED
from zapdb.storage.interruption import CallInterrupted, InterruptibleCall
from zapdb.storage.retries import Again, attempts, pauses, retry

QUICK = RetryPolicy("quick", seconds=30, tries=5, pause_seconds=0.0)
POLICIES = [value for value in vars(limits).values() if isinstance(value, RetryPolicy)]


def failing(times: int, error: Callable[[], Exception]) -> tuple[list[int], Callable[[], int]]:
    """The calls made, and a function that fails so often before it returns how often it was."""
    calls: list[int] = []

    def act() -> int:
        calls.append(1)
        if len(calls) <= times:
            raise error()
        return len(calls)

    return calls, act


def conflict() -> TransactionConflict:
    return TransactionConflict("made by a test")


def retry_async(policy: RetryPolicy, act: Callable[[], int]) -> int:
    async def act_later() -> int:
        return act()

    return asyncio.run(zapdb.aio.proxies.retry_in_task(policy, act_later))


BOTH = pytest.mark.parametrize("repeat", [retry, retry_async])


@BOTH
def test_a_conflict_is_tried_again_until_there_is_none(repeat: Any) -> None:
    for times in range(QUICK.tries or 0):
        calls, act = failing(times, conflict)
        assert repeat(QUICK, act) == times + 1 == len(calls)


@BOTH
def test_after_the_last_try_its_error_is_raised_with_how_many_there_were(repeat: Any) -> None:
    calls, act = failing(5, conflict)
    with pytest.raises(TransactionConflict, match="made by a test") as caught:
        repeat(QUICK, act)
    assert (len(calls), caught.value.context) == (5, {"tries": 5})
    with pytest.raises(TransactionConflict) as caught:
        repeat(QUICK._replace(tries=1), failing(5, conflict)[1])
    assert caught.value.context == {}


@BOTH
def test_after_the_deadline_nothing_is_tried_again(repeat: Any) -> None:
    calls, act = failing(1, conflict)
    with pytest.raises(TransactionConflict):
        repeat(QUICK.within(0), act)
    assert len(calls) == 1


@BOTH
def test_other_errors_are_raised_at_once(repeat: Any) -> None:
    calls, act = failing(1, lambda: LeaseHeld("another process holds the lease"))
    with pytest.raises(LeaseHeld):
        repeat(QUICK, act)
    assert len(calls) == 1


def test_which_errors_are_tried_again_can_be_said() -> None:
    kinds = iter([LeaseHeld("one"), CatalogChanged("two")])
    calls, act = failing(2, lambda: next(kinds))
    assert retry(QUICK, act, on=(LeaseHeld, CatalogChanged)) == 3
    calls, act = failing(1, conflict)
    with pytest.raises(TransactionConflict):
        retry(QUICK, act, on=CatalogChanged)
    assert len(calls) == 1


def test_before_each_further_try_it_is_told_how_many_there_were() -> None:
    told: list[int] = []
    retry(QUICK, failing(3, conflict)[1], before_again=told.append)
    assert told == [1, 2, 3]
    told.clear()
    with pytest.raises(TransactionConflict):
        retry(QUICK, failing(9, conflict)[1], before_again=told.append)
    assert told == [1, 2, 3, 4]  # there was no fifth


def test_an_error_before_a_further_try_ends_all() -> None:
    """Also one that is tried again when a try raises it: what is waited for has waited itself."""
    calls, act = failing(9, lambda: LeaseHeld("by the try"))

    def await_lease(_: int) -> None:
        raise LeaseHeld("in vain")

    with pytest.raises(LeaseHeld, match="in vain"):
        retry(QUICK, act, on=LeaseHeld, before_again=await_lease)
    assert len(calls) == 1


def test_pauses_are_random_and_grow_up_to_the_longest() -> None:
    policy = RetryPolicy("test", 1e6, tries=200, pause_seconds=0.5, pause_seconds_max=4.0)
    found = list(pauses(policy, time.monotonic()))
    assert len(found) == 199
    for pause, longest in zip(found, (0.5, 1.0, 2.0), strict=False):
        assert 0 <= pause <= longest
    later = found[3:]
    assert 0 <= min(later) < 1 < 3 < max(later) <= 4
    assert len(set(later)) == len(later)


def test_no_pause_goes_beyond_the_deadline() -> None:
    policy = RetryPolicy("test", 0.05, pause_seconds=1e6, pause_seconds_max=1e6)
    for _ in range(20):
        assert 0 < next(pauses(policy, time.monotonic())) <= 0.05
    assert list(pauses(policy, time.monotonic() - 0.05)) == []


def test_tries_can_be_counted_in_a_loop() -> None:
    assert list(attempts(QUICK)) == [0, 1, 2, 3, 4]


def test_metrics_count_tries_by_their_policy() -> None:
    def read() -> list[float]:
        return [counter.read().get((QUICK.name,), 0) for counter in (RETRIES, RETRIES_EXHAUSTED)]

    before = read()
    retry(QUICK, failing(2, conflict)[1])
    assert read() == [before[0] + 2, before[1]]
    with pytest.raises(TransactionConflict):
        retry(QUICK, failing(9, conflict)[1])
    assert read() == [before[0] + 6, before[1] + 1]


def test_a_call_that_was_interrupted_tries_nothing_again() -> None:
    call = InterruptibleCall()

    def act() -> None:
        call.is_interrupted = True
        raise conflict()

    with call, pytest.raises(CallInterrupted):
        retry(QUICK, act)


def test_an_error_that_was_overcome_is_not_kept() -> None:
    """What it refers to, such as a handle in a frame of its traceback, is let go at once."""
    gone = list[int]()

    class Held(TransactionConflict):
        def __del__(self) -> None:
            gone.append(1)

    retry(QUICK, failing(1, lambda: Held("made by a test"))[1])
    assert gone == [1]


class Later(Again):
    def __init__(self, prepare: Callable[[], object]) -> None:
        super().__init__("made by a test")
        self.act = prepare

    def prepare(self) -> None:
        self.act()


def test_what_is_to_be_done_before_a_try_is_a_part_of_it() -> None:
    prepared, prepare = failing(2, conflict)
    calls, act = failing(3, lambda: Later(prepare))
    assert retry(QUICK, act) == 4
    assert (len(calls), len(prepared)) == (4, 3)
    _, act = failing(1, lambda: Later(failing(9, conflict)[1]))
    with pytest.raises(TransactionConflict) as raised:
        retry(QUICK, act, on=())
    assert "tries" not in raised.value.context


def test_what_can_not_be_done_before_a_try_ends_it() -> None:
    def refuse() -> None:
        raise later

    later = Later(refuse)
    calls, act = failing(9, lambda: later)
    with pytest.raises(Later):
        retry(QUICK, act)
    assert len(calls) == 1


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: policy.name)
def test_each_policy_ends(policy: RetryPolicy) -> None:
    assert 0 < policy.seconds <= 900
    assert policy.tries is None or policy.tries > 1
    assert 0 <= policy.pause_seconds <= policy.pause_seconds_max <= 1
    assert [other.name for other in POLICIES].count(policy.name) == 1
