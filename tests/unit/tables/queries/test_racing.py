from collections.abc import Iterator

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.forms import cases
from zapdb.limits import RACE_HEAD_START_RECORDS, RACE_TURN_RECORDS
from zapdb.tables.queries.plan_execution import Candidate, race


def looks(places: list[int | None], looked: list[int]) -> Iterator[Candidate[int]]:
    for place in places:
        looked[0] += 1
        yield None if place is None else (place.to_bytes(4, "big"), place)


@settings(max_examples=cases(400), deadline=None)
@given(
    st.lists(st.integers(0, 20_000), unique=True, max_size=50),
    st.integers(0, 3_000),
    st.integers(0, 3_000),
    st.integers(1, 60),
    st.randoms(use_true_random=False),
)
def test_the_first_of_an_order_are_found_by_twice_the_shorter_way_at_most(
    meant: list[int], unordered_passed: int, ordered_passed: int, limit: int, random_: object
) -> None:
    unordered = [*meant, *[None] * unordered_passed]
    random_.shuffle(unordered)
    rising = iter(sorted(meant))
    is_meant = [True] * len(meant) + [False] * ordered_passed
    random_.shuffle(is_meant)
    in_order = [next(rising) if it_is else None for it_is in is_meant]
    looked, looked_in_order = [0], [0]
    found = race(looks(unordered, looked), looks(in_order, looked_in_order), limit)
    assert found == sorted(meant)[:limit]
    wanted = sorted(meant)[limit - 1] if limit <= len(meant) else None
    by_order = in_order.index(wanted) + 1 if wanted is not None else len(in_order)
    shorter = min(len(unordered), by_order)
    slack = RACE_HEAD_START_RECORDS + RACE_TURN_RECORDS
    assert looked[0] + looked_in_order[0] <= 2 * shorter + slack
