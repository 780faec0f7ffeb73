"""Index entries that were damaged behind zapdb's back are repaired, and nothing else is changed."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from tests.contract.tables import INDEX_SIZE, ITEMS
from tests.support import Workspace, finish, wait_until
from zapdb import Database
from zapdb.errors import JobError, LeaseHeld, UniqueViolation, UsageError
from zapdb.jobs import repair as repairing
from zapdb.jobs.exclusive import ExclusiveJob
from zapdb.jobs.tenant_verification import TableReport

UNIQUE_TITLE = (
    "create_index: {table: items, index: by_title, unique: true, fields: [{field: title}]}"
)
COUNT = 40
BY_SIZE, BY_TITLE = "zapdb_entries_1", "zapdb_entries_2"


@pytest.fixture
def place(workspace: Workspace) -> Workspace:
    workspace.write(1, ITEMS, INDEX_SIZE, UNIQUE_TITLE)
    with workspace.open() as db:
        db.table("items").insert_many(
            {"id": n, "title": f"title {n}", "size": n % 4} for n in range(COUNT)
        )
    return workspace


def verify(db: Database) -> TableReport:
    (report,) = db.admin.verify()
    return report


def entries(place: Workspace, name: str) -> list[tuple[bytes, bytes]]:
    rows = place.execute(f"SELECT key, record FROM {name} ORDER BY key, record")
    return [(bytes(key), bytes(record)) for key, record in rows]


def records(place: Workspace) -> list[tuple[bytes, bytes]]:
    rows = place.execute("SELECT key, value FROM zapdb_records_1 ORDER BY key")
    return [(bytes(key), bytes(value)) for key, value in rows]


def test_what_is_whole_is_not_touched(place: Workspace) -> None:
    with place.open() as db:
        assert db.admin.repair() == []


@pytest.mark.parametrize("batch", [3, 1_000])
def test_damaged_entries_are_repaired(
    place: Workspace, batch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(repairing, "PAGE_RECORDS_MAX", batch)
    monkeypatch.setattr(repairing, "BATCH_RECORDS_MAX", batch)
    whole = {name: entries(place, name) for name in (BY_SIZE, BY_TITLE)}
    before = records(place)
    (first, *_, last) = [record for record, _ in before]
    # Eight records have no entry; one has an entry of another record's key; one has none that is
    # right and three that are not; an entry belongs to no record; two titles are exchanged.
    place.execute(
        f"DELETE FROM {BY_SIZE} WHERE record > ? AND record < ?", (before[3][0], before[12][0])
    )
    place.execute(f"UPDATE {BY_SIZE} SET key = ? WHERE record = ?", (b"\x01\x7f", first))
    for wrong in (b"\x01", b"\x01\x80\x80", b"\xff" * 40):
        place.execute(f"INSERT INTO {BY_SIZE} VALUES (1, ?, ?)", (wrong, last))
    place.execute(f"DELETE FROM {BY_TITLE} WHERE record = ?", (last,))
    place.execute(f"INSERT INTO {BY_TITLE} VALUES (1, ?, ?)", (b"\x01nobody\x00\x00", b"\xff\xff"))
    one, other = whole[BY_TITLE][5], whole[BY_TITLE][6]
    place.execute(f"UPDATE {BY_TITLE} SET record = ? WHERE key = ?", (b"?", one[0]))
    place.execute(f"UPDATE {BY_TITLE} SET record = ? WHERE key = ?", (one[1], other[0]))
    place.execute(f"UPDATE {BY_TITLE} SET record = ? WHERE key = ?", (other[1], one[0]))

    with place.open() as db:
        assert verify(db).problem_count > 10
        by_size, by_title = db.admin.repair(dry_run=True)
        assert entries(place, BY_SIZE) != whole[BY_SIZE]
        assert (by_size.index, by_size.missing, by_size.wrong) == ("by_size", 9, 4)
        assert (by_title.index, by_title.missing, by_title.wrong) == ("by_title", 3, 3)
        assert db.admin.repair() == [by_size, by_title]
        assert {name: entries(place, name) for name in (BY_SIZE, BY_TITLE)} == whole
        assert records(place) == before
        assert verify(db).problems == ()
        assert db.admin.repair() == []


@pytest.mark.on_each_engine
def test_what_is_not_understood_stays(place: Workspace) -> None:
    """Entries of a record that can't be read, and a unique key that two records have."""
    before = records(place)
    (torn, _), (doubled, value), (_, other) = before[0], before[1], before[2]
    place.execute("UPDATE zapdb_records_1 SET value = ? WHERE key = ?", (b"\x40\xff", torn))
    place.execute("UPDATE zapdb_records_1 SET value = ? WHERE key = ?", (other, doubled))
    assert value != other
    with place.open() as db:
        by_size, by_title = db.admin.repair()
        assert (by_size.missing, by_size.wrong, by_size.refused) == (1, 1, [])
        assert (by_title.missing, by_title.wrong, by_title.refused_count) == (0, 1, 1)
        assert by_title.refused == [
            f"record {doubled.hex()}: record {before[2][0].hex()} has the same unique key; "
            "change or delete one of them"
        ]
        assert torn in {record for _, record in entries(place, BY_SIZE)}
        # Changing one of the two gives both their entries back.
        db.table("items").update(1, title="another")
        assert [(one.index, one.missing) for one in db.admin.repair()] == []
        with pytest.raises(UniqueViolation):
            db.table("items").insert(id=99, title="title 2")


@pytest.mark.on_each_engine
def test_writers_go_on_meanwhile(place: Workspace) -> None:
    """What they have just written is never taken for a fault, and what is repaired stays right."""
    place.execute(f"DELETE FROM {BY_SIZE} WHERE record > ?", (records(place)[10][0],))
    with place.open() as db:
        items, ended = db.table("items"), threading.Event()

        def write(first: int) -> None:
            at = first
            while not ended.is_set():
                items.insert(id=at, title=f"new {at}", size=at % 5)
                items.update(at, size=at % 7)
                if at % 3:
                    items.delete(at)
                at += 1

        threads = [threading.Thread(target=write, args=(n * 100_000,)) for n in (1, 2)]
        for thread in threads:
            thread.start()
        repaired = [db.admin.repair() for _ in range(4)]
        ended.set()
        finish(*threads)
        assert [one.missing for one in repaired[0]] == [COUNT - 11]
        assert repaired[1:] == [[]] * 3
        assert verify(db).problems == ()


def test_a_database_that_is_read_only_is_looked_at(place: Workspace) -> None:
    place.execute(f"DELETE FROM {BY_SIZE}")
    with place.open("never", read_only=True) as db:
        assert [one.missing for one in db.admin.repair(dry_run=True)] == [COUNT]
        with pytest.raises(UsageError, match="read-only"):
            db.admin.repair()
    assert entries(place, BY_SIZE) == []


@pytest.mark.on_each_engine
def test_what_changes_between_finding_and_repairing_is_seen(
    place: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second, third = (record for record, _ in records(place)[:3])
    place.execute(f"DELETE FROM {BY_SIZE} WHERE record IN (?, ?)", (first, second))
    place.execute(f"UPDATE {BY_SIZE} SET key = ? WHERE record = ?", (b"\x01\x7f", third))
    find_missing, find_wrong = repairing._find_missing, repairing._find_wrong
    with place.open() as db:
        done = set[Callable[..., object]]()

        def elsewhere(find: Callable[..., object], action: Callable[[], object]) -> None:
            monkeypatch.undo()
            if find in done:  # of the next page
                return
            done.add(find)
            thread = threading.Thread(target=action)
            thread.start()
            finish(thread)

        def repair_beside() -> None:
            """As a process does that has lost its lease, and has not noticed."""
            with pytest.raises(LeaseHeld, match="another process is at work on the same repair"):
                db.admin.repair()
            repairing._repair_all(
                db._storage, 1, lambda _read, _written, _size: None, dry_run=False
            )

        def then_change(*given: Any) -> Any:
            found = find_missing(*given)
            elsewhere(
                find_missing,
                lambda: (db.table("items").delete(0), db.table("items").update(1, size=3)),
            )
            return found

        def then_repair(*given: Any) -> Any:
            found = find_wrong(*given)
            elsewhere(find_wrong, repair_beside)
            return found

        monkeypatch.setattr(repairing, "_find_wrong", then_repair)
        assert [(one.missing, one.wrong) for one in db.admin.repair()] == []
        place.execute(f"DELETE FROM {BY_SIZE} WHERE record IN (?, ?)", (first, second))
        monkeypatch.setattr(repairing, "_find_missing", then_change)
        assert [(one.missing, one.wrong) for one in db.admin.repair()] == []
        assert verify(db).problems == ()


@pytest.mark.on_each_engine
def test_rule_17_a_repair_is_a_job_that_is_paused_and_cancelled(
    place: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(repairing, "PAGE_RECORDS_MAX", 2)
    place.execute(f"DELETE FROM {BY_TITLE}")
    with place.open() as db:
        assert sum(one.missing for one in db.admin.repair(dry_run=True)) == COUNT
        assert db.jobs.list(kind="repair") == []
        failed = list[JobError]()

        def repair() -> None:
            try:
                db.admin.repair()
            except JobError as error:
                failed.append(error)

        # In its midst it waits until it has noticed the pause.
        note, in_midst = ExclusiveJob.note, threading.Event()

        def note_slowly(job: ExclusiveJob, read: int, *others: int) -> None:
            note(job, read, *others)
            if entries(place, BY_TITLE) and not in_midst.is_set():
                in_midst.set()
                wait_until(lambda: job.held or job.ended, "the pause is noticed")

        monkeypatch.setattr(ExclusiveJob, "note", note_slowly)
        run = threading.Thread(target=repair)
        run.start()
        wait_until(in_midst.is_set, "it is in its midst")
        db.jobs.pause("repair")
        assert db.jobs.get("repair").job.state == "paused"
        db.jobs.cancel("repair")
        finish(run)
        assert "`zapdb verify --repair`, run again, looks at all entries" in failed[0].hint
        assert 0 < len(entries(place, BY_TITLE)) < COUNT
        db.admin.repair()
        assert [job.state for job in db.jobs.list(kind="repair")] == ["done"]
        assert len(entries(place, BY_TITLE)) == COUNT
        assert verify(db).problem_count == 0
