"""The two ways to read all of a past table give the same records; the cheaper one is taken, by
counts, and `explain` says which."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

import zapdb
from tests.contract.stored_pasts import (
    WAYS,
    begin,
    flush,
    forcing,
    read_little_at_a_time,
    read_manifest,
    write_some,
)
from tests.contract.tables import INDEX_SIZE, ITEMS
from tests.support import GUARD_SECONDS, Workspace
from zapdb.database import Database
from zapdb.log.rewound_records import RewoundStatements
from zapdb.tables.queries.past_ways import FILES_LOOKUPS, Way, choose_way, most_lookups


@pytest.fixture
def db(workspace: Workspace) -> Database:
    workspace.write(1, ITEMS, INDEX_SIZE)
    db = workspace.open()
    db.admin.set_setting("change_log", "on")
    return db


@pytest.mark.parametrize(
    ("lookups", "rows", "held", "way"),
    [
        (0, 0, 0, "rewound"),
        (FILES_LOOKUPS, 0, 0, "rewound"),
        (FILES_LOOKUPS + 1, 0, 0, "files"),
        (1_000_000, 1_000, 1_000, "files"),
        (1_000_000, 1_000_000, 1_000_000, "rewound"),
        (1_000_000, 1_000_000, 1_000, "files"),  # most of them have passed
        (1_000, 200_000, 1_000, "rewound"),
        (11_000, 21_000, 1_000, "files"),  # a queue
    ],
)
def test_the_way_follows_from_counts(lookups: int, rows: int, held: int, way: Way) -> None:
    assert choose_way(lookups, most_lookups(rows, held)) == way


def test_more_rows_of_files_never_speak_for_files() -> None:
    for rows in range(0, 100_000, 777):
        for held in (0, rows // 3, rows):
            most = most_lookups(rows, held)
            assert most <= most_lookups(rows + 1, held)
            assert most <= most_lookups(rows + 1, held + 1)
            assert most <= most_lookups(rows, held + 1)


def read_all(past: Any, name: str) -> dict[str, Any]:
    """What is read of all of a table, in each manner."""
    table = past.table(name)
    scanned = [zapdb.asdict(one) for one in table.scan()]
    key = table._bound.adapter.key_names[0]
    return {
        "scan": scanned,
        "backwards": [zapdb.asdict(one) for one in table.order_by(f"-{key}")][::-1],
        "count": table.count(),
        "where count": table.where().count(),
        "to_arrow": table.to_arrow([key]).read_all()[key].to_pylist(),
        "max": table.max(key),
        "get": [zapdb.asdict(table.get(one[key])) for one in scanned],
        "iterated": [zapdb.asdict(one) for one in table],
    }


@pytest.mark.parametrize("seed", [1, 2])
def test_both_ways_give_the_same_records(
    db: Database, tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    read_little_at_a_time(monkeypatch)
    rnd, states = random.Random(seed), dict[int, list[dict[str, Any]]]()
    write_some(db, rnd)
    begin(db, tmp_path / "store")
    for _ in range(25):
        write_some(db, rnd)
        if rnd.random() < 0.3:
            flush(db)
        states[next(db.moments()).number] = [zapdb.asdict(one) for one in db.table("items").scan()]
    begins = read_manifest(db)[0].begins
    for moment, state in states.items():
        told = dict[str, Any]()
        for way in WAYS:
            with forcing(way) as wanted:
                past = db.at(moment)
                told[way] = read_all(past, "items")
                reading = past.table("items").where().explain().past
                assert reading is not None
                assert reading.way == (wanted if moment >= begins else "rewound")
            assert told[way] == told[WAYS[0]], way
        assert told[WAYS[0]]["scan"] == state
        with forcing("files"):
            both = db.at(moment)._session.bind_both("items")
        if moment >= begins:
            assert both is not None
            assert both[1].held_count >= 0
            assert moment > begins or both[1].held_count == len(state)


def test_a_table_that_has_grown_is_read_from_files(db: Database, tmp_path: Path) -> None:
    items = db.table("items")
    items.insert_many([{"id": n, "title": f"t{n}"} for n in range(20)])
    begin(db, tmp_path / "store")
    moment = next(db.moments())
    small = db.at(moment).table("items").where().explain()
    assert small.past is not None
    assert (small.past.way, small.past.lookups, small.past.rows) == ("rewound", 20, None)
    assert "rewound (20 records to look up in the change log)" in str(small)

    items.insert_many([{"id": n, "title": "new"} for n in range(100, 100 + FILES_LOOKUPS + 300)])
    past = db.at(moment).table("items")
    grown = past.where().explain()
    assert grown.past is not None
    assert (grown.past.way, grown.past.rows) == ("files", 20)
    assert "from files (20 rows), since rewinding would look up at least 2,061 records" in str(
        grown
    )
    assert grown.to_json()["past"] == {"way": "files", "lookups": 2_061, "rows": 20}
    assert [one.id for one in past.scan()] == list(range(20))
    assert past.count() == 20

    part = past.where(past.f.id >= 15)
    assert "rewound: each record is looked up in the change log" in str(part.explain())
    assert [one.id for one in part] == list(range(15, 20))
    assert past.get(3).title == "t3"
    assert "past" not in str(items.where().explain())
    assert items.where().explain().past is None


WHOLE: dict[str, Callable[[Any], object]] = {
    "scan": lambda items: list(items.scan()),
    "iterate": list,
    "all": lambda items: items.where().all(),
    "order_by": lambda items: list(items.order_by("-id")),
    "condition": lambda items: items.where(items.f.title == "t3").all(),
    "count": lambda items: items.count(),
    "count of a condition": lambda items: items.where(items.f.title == "t3").count(),
    "sum": lambda items: items.sum("size"),
    "max": lambda items: items.max("title"),
    "to_arrow": lambda items: items.to_arrow().read_all(),
    "to_arrow of a condition": lambda items: items.where(title="t3").to_arrow().read_all(),
}


@pytest.mark.parametrize("name", WHOLE)
def test_whatever_reads_all_of_a_table_takes_the_way_that_is_chosen(
    db: Database, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    items, calls = db.table("items"), Counter[str]()
    items.insert_many([{"id": n, "title": f"t{n}", "size": n} for n in range(20)])
    begin(db, tmp_path / "store")
    moment = next(db.moments())
    items.where().update(title="new")
    methods = ("page", "scan_page", "joined_page", "count_range")
    made = {method: getattr(RewoundStatements, method) for method in methods}
    for method in methods:

        def note(self: Any, *given: Any, method: str = method, **named: Any) -> Any:
            calls[method] += 1
            return made[method](self, *given, **named)

        monkeypatch.setattr(RewoundStatements, method, note)
    told = list[str]()
    for way, is_rewound in (("looked up", True), ("files", False)):
        with forcing(way):
            calls.clear()
            told.append(repr(WHOLE[name](db.at(moment).table("items"))))
        assert bool(calls) == is_rewound
    assert told[0] == told[1]


def test_files_that_fail_are_not_missed(db: Database, tmp_path: Path) -> None:
    """A moment to which the log leads back is read without them, also from the middle on."""
    items = db.table("items")
    items.insert_many([{"id": n, "title": f"t{n}"} for n in range(3_000)])
    begin(db, tmp_path / "store")
    moment = next(db.moments())
    items.where(items.f.id < 10).update(title="new")
    with forcing("files"):
        past = db.at(moment).table("items")
        found = past.scan()
        assert next(found).title == "t0"
        for path in (tmp_path / "store").rglob("*.parquet"):
            path.unlink()
        assert [one.id for one in found] == list(range(1, 3_000))
        assert db.at(moment).table("items").count() == 3_000
        reading = db.at(moment).table("items").where().explain().past
        assert reading is not None
        assert reading.way == "rewound"


@pytest.mark.parametrize("engine", ["postgresql"])
@pytest.mark.parametrize("is_deleted_first", [False, True], ids=["before both", "between them"])
def test_a_past_is_the_same_in_a_snapshot_that_is_older_than_one_read_before(
    workspace: Workspace, is_deleted_first: bool
) -> None:
    """One past, two threads: what a reader has held of changes that another one does not see yet
    tells that one nothing. The record is inserted with the lower number, behind its deletion."""
    workspace.write(1, ITEMS)
    db = workspace.open()
    db.admin.set_setting("change_log", "on")
    items, wanted = db.table("items"), list(range(1, 600))
    items.insert_many([{"id": n, "title": f"t{n}"} for n in wanted])
    past = db.at(next(db.moments()))
    has_number, may_go_on, is_snap, is_read = (threading.Event() for _ in range(4))
    found = list[list[int]]()

    def insert_late() -> None:
        with db.transaction() as tx:
            tx.table("items").insert(id=50_000, title="first")
            tx.table("items").find(50_000)  # it is sent
            has_number.set()
            assert may_go_on.wait(GUARD_SECONDS)
            tx.table("items").insert(id=200, title="again")
            tx.table("items").insert_many(
                [{"id": 10_000 + n, "title": "more"} for n in range(2_500)]
            )

    def read_older() -> None:
        with db.snapshot() as snapshot:
            snapshot.table("items").count()
            is_snap.set()
            assert is_read.wait(GUARD_SECONDS)
            found.append([record.id for record in past.table("items").scan()])

    with ThreadPoolExecutor(2) as pool:
        writer = pool.submit(insert_late)
        assert has_number.wait(GUARD_SECONDS)
        if is_deleted_first:
            items.delete(200)
        reader = pool.submit(read_older)
        assert is_snap.wait(GUARD_SECONDS)
        if not is_deleted_first:
            items.delete(200)
        may_go_on.set()
        writer.result()
        assert len(list(islice(past.table("items").scan(), 320))) == 320
        is_read.set()
        reader.result()
    found.append([record.id for record in past.table("items").scan()])
    assert found == [wanted, wanted]
