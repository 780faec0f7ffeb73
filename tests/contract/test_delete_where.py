"""Deleting what a query has: all or nothing, and what refers to it as the references say."""

from __future__ import annotations

import random
import tracemalloc
from contextlib import suppress
from typing import Any

import pytest

from tests.contract.test_references import assert_clean, ids, make
from tests.support import Faults, Way, Workspace, dump, error_of
from zapdb.errors import CommitUnknown, ReferenceViolation, StorageError

Rows = dict[str, dict[int, Any]]
"""Of the model: by table and id, what a record refers to."""


class Undo(Exception):
    """Ends a transaction that nothing is left of."""


def fill(db: Any, seed: int) -> Rows:
    """Owners 0 … 9, pets with owners and friends, toys with pets; friends go in circles."""
    choice = random.Random(seed).choice
    rows: Rows = {
        "owners": dict.fromkeys(range(10)),
        "pets": {n: (choice([None, *range(7)]), choice([None, *range(60)])) for n in range(60)},
        "toys": {n: choice([None, *range(60)]) for n in range(40)},
    }
    db.table("owners").insert_many({"id": n, "name": "x"} for n in rows["owners"])
    db.table("pets").insert_many(
        {"id": n, "owner": None if owner is None else (owner, "x"), "friend": friend}
        for n, (owner, friend) in rows["pets"].items()
    )
    db.table("toys").insert_many({"id": n, "pet": pet} for n, pet in rows["toys"].items())
    return rows


def delete_pets(rows: Rows, gone: set[int], friend: str) -> Rows:
    """What is left; toys go with their pets, friends as said."""
    pets = rows["pets"]
    while friend == "cascade":
        more = {n for n, (_, f) in pets.items() if f in gone and n not in gone}
        if not more:
            break
        gone = gone | more
    return {
        "owners": rows["owners"],
        "pets": {
            n: (owner, None if f in gone else f) for n, (owner, f) in pets.items() if n not in gone
        },
        "toys": {n: pet for n, pet in rows["toys"].items() if pet not in gone},
    }


def stored(db: Any) -> Rows:
    return {
        "owners": {r.id: None for r in db.table("owners").scan()},
        "pets": {r.id: (r.owner and r.owner[0], r.friend) for r in db.table("pets").scan()},
        "toys": {r.id: r.pet for r in db.table("toys").scan()},
    }


@pytest.mark.parametrize("friend", ["cascade", "set_null"])
def test_rule_25_references_are_kept_as_a_model_says(workspace: Workspace, friend: str) -> None:
    db = make(workspace, "restrict", friend)
    rows, random_ = fill(db, seed=2), random.Random(3)
    pets, owners = db.table("pets"), db.table("owners")
    for _ in range(12):
        some = random_.sample(range(60), random_.choice([1, 3, 20]))
        condition = random_.choice(
            [pets.f.id.in_(some), pets.f.friend.is_null(), pets.f.id > some[0]]
        )
        gone = {record.id for record in pets.where(condition)}
        with suppress(Undo), db.transaction():
            assert pets.delete_where(condition) == len(gone)
            assert stored(db) == delete_pets(rows, gone, friend)
            raise Undo
    low = random_.randrange(1, 9)
    kept = {owner for owner, _ in rows["pets"].values() if owner is not None and owner >= low}
    assert kept
    with pytest.raises(ReferenceViolation):
        owners.delete_where(owners.f.id >= low)
    assert stored(db) == rows
    assert owners.delete_where(owners.f.id >= 7) == 3
    assert_clean(db)


def test_records_of_several_batches_may_refer_to_each_other(workspace: Workspace) -> None:
    db = make(workspace, "cascade", friend="restrict")
    pets = db.table("pets")
    count = 1_200
    pets.insert_many({"id": n, "friend": (n + 700) % count} for n in range(count))
    with pytest.raises(ReferenceViolation) as caught:
        pets.delete_where(pets.f.id != 3)
    assert caught.value.context["example"] == "3"
    assert pets.count() == count
    pets.update(3, friend=None)
    assert pets.delete_where(pets.f.id != 3) == count - 1
    assert ids(db, "pets") == [3]
    assert_clean(db)


def test_each_batch_takes_few_statements(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    db = make(workspace, "restrict", friend="set_null")
    pets = db.table("pets")
    pets.insert_many({"id": 3 * n} for n in range(3_000))  # not one range of the index
    faults = Faults(workspace, db._storage, "before", lasting=False)
    faults.install(monkeypatch)
    sent = []
    for first, count in ((0, 20), (20, 480), (500, 2_500)):
        faults.arm(0)
        condition = (pets.f.id >= 3 * first) & (pets.f.id < 3 * (first + count))
        assert pets.delete_where(condition) == count
        sent.append(faults.calls)
    assert sent[1] <= sent[0] + 10
    assert sent[2] <= 5 * sent[1]
    for batch, most in ((range(0, 60, 3), sent[0]), (range(0, 1_200, 3), sent[1])):
        pets.insert_many({"id": n, "friend": n} for n in batch)
        faults.arm(0)
        assert pets.delete_many(batch) == len(batch)
        assert faults.calls <= most
    assert_clean(db)


POINTS = (2, 3, 5, 9, 30)


@pytest.mark.parametrize(
    ("way", "points"),
    [("before", POINTS), ("after", POINTS), *(("drop", (point,)) for point in POINTS)],
)
@pytest.mark.on_each_engine
def test_an_error_leaves_everything_or_nothing(
    workspace: Workspace, way: Way, points: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    db = make(workspace, "cascade", friend="cascade")
    fill(db, seed=4)
    pets, before = db.table("pets"), dump(workspace)
    faults = Faults(workspace, db._session.storage, way, lasting=False)
    faults.install(monkeypatch)
    deleted = 0
    for at in points:
        faults.arm(at)
        error = error_of(lambda: pets.delete_where(pets.f.id < 30))
        struck = faults.struck
        faults.arm(0)
        if error is None:
            # The session was lost before COMMIT, and all of it was done in another one.
            assert way == "drop"
            assert struck
            deleted = 30
            continue
        assert isinstance(error, StorageError)
        assert not isinstance(error, CommitUnknown)
        assert dump(workspace) == before
    assert pets.delete_where(pets.f.id < 30) == 30 - deleted
    assert pets.where(pets.f.id < 30).count() == 0
    assert_clean(db)


@pytest.mark.long
def test_many_records_are_deleted_in_little_memory(workspace: Workspace) -> None:
    db = make(workspace, "cascade")
    pets = db.table("pets")
    pets.insert_many({"id": n} for n in range(20_000))
    tracemalloc.start()
    try:
        assert pets.where().delete() == 20_000
        assert tracemalloc.get_traced_memory()[1] < 6_000_000
    finally:
        tracemalloc.stop()
    assert pets.count() == 0
