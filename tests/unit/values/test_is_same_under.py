"""Values of two revisions of one type: what the change of the type does not touch is the same."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from zapdb.values import Enum, Float, Integer, List, Reference, String, Struct, ValueType
from zapdb.values.struct import Member

COLOR = Enum("color", 1, ((1, "red"), (2, "green")))
RENAMED_COLOR = Enum("color", 1, ((2, "verde"), (1, "red")))
OTHER_COLOR = Enum("colour", 2, ((1, "red"), (2, "green")))
PLACE = Struct("place", 3, (Member(1, "nr", Integer()), Member(2, "shade", COLOR, optional=True)))
RENAMED_PLACE = Struct(
    "spot", 3, (Member(2, "tone", RENAMED_COLOR, optional=True), Member(1, "number", Integer()))
)
GROWN_PLACE = replace(PLACE, members=(*PLACE.members, Member(3, "note", String())))
OTHER_PLACE = replace(PLACE, members=(PLACE.members[0], replace(PLACE.members[1], number=4)))
BY_COLOR = Reference("calendar", 5, (COLOR, Integer()))
BY_RENAMED_COLOR = Reference("dates", 5, (RENAMED_COLOR, Integer()))

HERE: Any = {"nr": 7, "shade": "green"}
SAME_HERE: Any = {"number": 7, "tone": "verde"}


@pytest.mark.parametrize(
    ("kind", "value", "other_kind", "other"),
    [
        (COLOR, "green", RENAMED_COLOR, "verde"),
        (PLACE, HERE, RENAMED_PLACE, SAME_HERE),
        (PLACE, {"nr": 7, "shade": None}, RENAMED_PLACE, {"number": 7, "tone": None}),
        (List(PLACE), [HERE, HERE], List(RENAMED_PLACE), [SAME_HERE, SAME_HERE]),
        (List(PLACE), [], List(GROWN_PLACE), []),
        (BY_COLOR, ("green", 1), BY_RENAMED_COLOR, ("verde", 1)),
        (Float(), float("nan"), Float(), float("nan")),
    ],
)
def test_the_same(kind: ValueType, value: Any, other_kind: ValueType, other: Any) -> None:
    left, right = kind.check(value, "left"), other_kind.check(other, "right")
    assert kind.is_same_under(left, other_kind, right)
    assert other_kind.is_same_under(right, kind, left)


@pytest.mark.parametrize(
    ("kind", "value", "other_kind", "other"),
    [
        (COLOR, "green", RENAMED_COLOR, "red"),
        (COLOR, "green", OTHER_COLOR, "green"),
        (COLOR, "green", String(), "green"),
        (PLACE, HERE, RENAMED_PLACE, {"number": 7, "tone": "red"}),
        (PLACE, HERE, RENAMED_PLACE, {"number": 7, "tone": None}),
        (PLACE, HERE, GROWN_PLACE, HERE | {"note": ""}),
        (PLACE, HERE, OTHER_PLACE, HERE),
        (PLACE, HERE, replace(PLACE, number=4), HERE),
        (List(PLACE), [HERE], List(RENAMED_PLACE), []),
        (List(PLACE), [], String(), ""),
        (BY_COLOR, ("green", 1), BY_RENAMED_COLOR, ("red", 1)),
        (BY_COLOR, ("green", 1), Reference("calendar", 5, (COLOR, Float())), ("green", 1.0)),
        (Integer(), 1, Float(), 1.0),
    ],
)
def test_another(kind: ValueType, value: Any, other_kind: ValueType, other: Any) -> None:
    left, right = kind.check(value, "left"), other_kind.check(other, "right")
    assert not kind.is_same_under(left, other_kind, right)
    assert not other_kind.is_same_under(right, kind, left)
