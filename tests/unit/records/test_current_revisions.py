"""Which revisions are current, told alike by a revision, by a record's bytes, and by SQL."""

from __future__ import annotations

import sqlite3

from hypothesis import given
from hypothesis import strategies as st

from zapdb.records import CurrentRevisions, encode_prefix

LAYOUTS = st.lists(st.integers(0, 3), min_size=1, max_size=40)


@given(LAYOUTS, st.integers(1, 200))
def test_rule_01_stale_is_what_has_another_layout(choices: list[int], begins: int) -> None:
    """A log as random layouts: `choices` number them, and each has the revision it came with."""
    first: dict[int, int] = {}
    log = [
        (revision, first.setdefault(choice, revision))
        for revision, choice in enumerate(choices, begins)
    ]
    newest, layout = log[-1]
    current = CurrentRevisions.of(layout, [one for one in log if one[0] > layout])
    database = sqlite3.connect(":memory:")
    condition, parameters = current.stale_sql("?")
    for revision, has in log:
        is_stale = has != layout
        value = encode_prefix(revision) + b"\x00rest"
        assert current.has(revision) != is_stale
        assert current.is_stale(value) == is_stale
        sql = f"SELECT count(*) FROM (SELECT ? AS value) WHERE {condition}"
        (found,) = database.execute(sql, (value, *parameters)).fetchone()
        assert bool(found) == is_stale
    since = [revision for revision, has in log if has != layout and revision > layout]
    assert current.since == (layout if not since else max(since) + 1)
    assert current.has(newest)


def test_nearly_always_one_comparison_tells() -> None:
    current = CurrentRevisions.of(3, [(4, 3), (5, 3)])
    assert (current.others, current.since) == ((), 3)
    assert current.stale_sql("?") == ("value < ?", [encode_prefix(3)])


def test_a_layout_that_comes_back_leaves_stale_ones_between() -> None:
    current = CurrentRevisions.of(1, [(2, 2), (3, 3), (4, 1), (5, 1), (6, 6), (9, 1)])
    assert current.others == ((2, 4), (6, 9))
    assert current.since == 9
    assert [revision for revision in range(1, 12) if not current.has(revision)] == [2, 3, 6, 7, 8]
