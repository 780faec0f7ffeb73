"""Attacks on the switch of tenants between lines of migrations."""

from __future__ import annotations

import shutil
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

import zapdb
from tests.contract.mirrors import Place, check, keep, place
from tests.contract.tables import ADD_COLOR, ADD_WEIGHT, ITEMS
from tests.support import Workspace
from zapdb.activation import load_tenant_catalog, rollback
from zapdb.activation.up import MigrationChoice, migrate_all_tenants, migrate_up
from zapdb.catalog import DEFAULT_TENANT
from zapdb.database import Database
from zapdb.errors import (
    ConcurrencyError,
    HistoryBehind,
    HistoryGap,
    HistoryUnavailable,
    PendingMigrations,
    UsageError,
    ZapdbError,
)
from zapdb.jobs.archive_pruning import list_archived, prune_archives
from zapdb.records import asdict
from zapdb.storage import TransactionMode

__all__ = ["place"]
COUNT = 30


class Interrupted(Exception):
    pass


def contents(db: Database, table: str = "items") -> list[dict[str, Any]]:
    return [asdict(record) for record in db.table(table).scan()]


def interrupted_rollback(place: Workspace, **options: Any) -> None:
    storage = place.connect()
    with (
        patch.object(rollback, "migrate_each_tenant", side_effect=Interrupted),
        pytest.raises(Interrupted),
    ):
        rollback.roll_back(storage, **options)


def up(place: Workspace, *, again: bool = False) -> None:
    storage = place.connect()
    migrate_up(storage, DEFAULT_TENANT, place.directory, MigrationChoice(again=again))


def fill(db: Database) -> list[dict[str, Any]]:
    db.table("items").insert_many(
        {"id": at, "title": f"title {at}", "size": at % 7, "note": None if at % 2 else "n"}
        for at in range(COUNT)
    )
    return contents(db)


@pytest.fixture
def two(workspace: Workspace) -> Workspace:
    """Two tenants at 2, which adds `color`; half of the records of each are converted."""
    workspace.write(1, ITEMS)
    with workspace.open() as db:
        db.admin.create_tenant("acme")
        fill(db)
        fill(db.for_tenant("acme"))
    workspace.write(2, ADD_COLOR)
    with workspace.open() as db:
        for one in (db, db.for_tenant("acme")):
            for at in range(0, COUNT, 2):
                one.table("items").update(at, color="blue")
    return workspace


def refuse_changes(place: Workspace, tenant: str) -> None:
    with place.follow() as db:
        db.admin.set_setting("schema_changes", "refuse", tenant=tenant)


def replace_second(place: Workspace) -> None:
    """The default tenant is at another migration 2, and acme is due, and may not follow."""
    interrupted_rollback(place)
    refuse_changes(place, "acme")
    place.write(2, ADD_WEIGHT)
    up(place)


@pytest.mark.parametrize("read_only", [False, True])
def test_a_process_is_never_served_another_migration_than_its_file(
    two: Workspace, read_only: bool
) -> None:
    replace_second(two)
    with two.open(apply="never") as db:
        assert "weight" in db.table("items").field_names
    try:
        db = two.open(apply="never", tenant="acme", read_only=read_only)
    except ZapdbError:
        return
    assert "weight" in db.table("items").field_names


def test_a_tenant_of_an_open_process_is_never_served_another_migration(two: Workspace) -> None:
    replace_second(two)
    with two.open(apply="never") as db:
        try:
            acme = db.for_tenant("acme")
        except ZapdbError:
            return
        assert "weight" in acme.table("items").field_names


def test_a_due_tenant_that_refuses_does_not_keep_the_others_from_following(
    two: Workspace,
) -> None:
    with two.open() as db:
        db.admin.create_tenant("zeta")
        fill(db.for_tenant("zeta"))
    interrupted_rollback(two)
    refuse_changes(two, "acme")
    rollback.roll_back(two.connect())
    positions = {t.name: t.position for t in two.follow().admin.tenants()}
    assert positions == {"default": 1, "acme": 2, "zeta": 1}


def test_opening_goes_on_where_discarded_records_were_not_swept(workspace: Workspace) -> None:
    workspace.write(1, ITEMS, ITEMS.replace("items", "others"))
    with workspace.open() as db:
        fill(db)
    workspace.write(2, "drop_table: {table: items, records: discard}")
    with (
        patch("zapdb.activation.up.sweep_retired"),
        patch("zapdb.database.opening.sweep_retired"),
        workspace.open(),
    ):
        pass
    with patch.object(rollback, "sweep_retired"):
        interrupted_rollback(workspace)
    workspace.remove(2)
    with workspace.open() as db:
        assert contents(db) == []


def test_a_rehearsal_is_of_its_own_files(two: Workspace) -> None:
    """A program from what was rolled back leads to this file, not to one of its number before."""
    rollback.roll_back(two.connect())
    with two.follow() as db:
        for field, expression in (
            ("{name: width, type: integer, default: 1}", "width == 1"),
            ("{name: word, type: string, default: long enough}", "word == 'long enough'"),
        ):
            two.write(
                2,
                f"add_field: {{table: items, field: {field}}}",
                f'add_check: {{table: items, check: c, expression: "{expression}"}}',
            )
            found = db.admin.rehearse(two.directory, all_records=True)
            assert (found.refused, found.tables[0].unreadable_count) == (False, 0)


LOSE_NOTE = "drop_field: {table: items, field: note, restore: {value: lost}}"


@pytest.mark.parametrize("next", [None, ADD_COLOR])
@pytest.mark.parametrize("place", ["sqlite"], indirect=True)
def test_a_mirror_that_missed_the_way_forth_and_back_has_the_records(
    workspace: Workspace, place: Place, next: str | None
) -> None:
    """What was converted in between is not what it was, and the mirror has the rows of before."""
    workspace.write(1, ITEMS)
    with workspace.open() as db:
        fill(db)
        keep(db, place)
    workspace.write(2, LOSE_NOTE)
    with workspace.open() as db:
        db.admin.run_jobs()
    rollback.roll_back(workspace.connect())
    workspace.remove(2)
    if next is not None:
        workspace.write(2, next)
    with workspace.open() as db:
        assert {record["note"] for record in contents(db)} == {"lost"}
        keep(db, place)
        check(db, place)


def test_a_snapshot_that_holds_a_discarded_table_does_not_keep_a_tenant_from_opening(
    workspace: Workspace,
) -> None:
    workspace.write(1, ITEMS, ITEMS.replace("items", "others"))
    reader = None
    with workspace.open() as db:
        fill(db)
    reader = workspace.follow()
    with reader.snapshot() as snap:
        assert snap.table("items").count() == COUNT
        workspace.write(2, "drop_table: {table: items, records: discard}")
        workspace.open().close()
        rollback.roll_back(workspace.connect())
        workspace.remove(2)
        with workspace.open() as db:
            assert contents(db) == []


@pytest.mark.parametrize("follower", ["beside", "late", "last"])
@pytest.mark.parametrize("converts", [False, True])
@pytest.mark.parametrize("second", [LOSE_NOTE, ADD_COLOR])
def test_moments_of_before_between_and_after(
    workspace: Workspace, tmp_path: Path, follower: str, converts: bool, second: str
) -> None:
    """A moment has what was read then, or there is a gap: never another value."""
    workspace.write(1, ITEMS)
    moments: list[tuple[Any, list[dict[str, Any]]]] = []
    may_have_gaps = (HistoryGap,) if follower == "last" else ()

    def note(db: Database) -> None:
        if follower == "beside":
            db.history.flush()
        moments.append((db.change_log.end(), contents(db)))
        if follower == "beside":
            db.history.flush()

    def ask(db: Database) -> None:
        for moment, expected in moments:
            with suppress(HistoryBehind, *may_have_gaps):
                assert contents(db.at(moment)) == expected

    with workspace.open() as db:
        db.admin.set_setting("change_log", "on")
        fill(db)
        db.history.start(tmp_path / "store")
        db.history.flush()
        note(db)
    workspace.write(2, second)
    with workspace.open() as db:
        note(db)
        for at in range(0, COUNT, 2):
            db.table("items").update(at, size=100)
        note(db)
        if converts:
            db.admin.run_jobs()
            note(db)
    interrupted_rollback(workspace)
    with workspace.follow() as db:
        db.table("items").update(1, size=100)
        note(db)
        ask(db)
    workspace.remove(2)
    with workspace.open() as db:
        note(db)
        db.table("items").update(3, size=100, note="mine")
        db.table("items").delete(4)
        note(db)
        if follower == "late":
            db.history.flush()
        ask(db)
        db.admin.run_jobs()
        note(db)
        ask(db)
    workspace.write(2, ADD_WEIGHT)
    with workspace.open() as db:
        db.admin.run_jobs()
        note(db)
        ask(db)
        db.history.flush()
        for moment, expected in moments:
            with suppress(*may_have_gaps):
                assert contents(db.at(moment)) == expected
        assert not db.history.verify(sample=3).problems
        db.change_log.prune(db.change_log.end())
        for moment, expected in moments:
            with suppress(*may_have_gaps):
                assert contents(db.at(moment)) == expected


def test_snapshots_and_iterations_go_on_over_a_rollback(two: Workspace) -> None:
    with two.follow() as db:
        before = contents(db)
        with db.snapshot() as snap:
            reading = iter(snap.table("items").scan())
            first = [asdict(next(reading))]
            rollback.roll_back(two.connect())
            two.remove(2)
            with two.open() as other:
                other.admin.run_jobs()
            two.write(2, ADD_WEIGHT)
            with two.open() as other:
                other.admin.run_jobs()
            assert [*first, *map(asdict, reading)] == before
            assert contents(snap) == before


def test_an_iteration_outside_of_a_snapshot_goes_on_over_a_rollback(two: Workspace) -> None:
    with two.follow() as db, patch("zapdb.limits.PAGE_RECORDS_MAX", 4):
        before = contents(db)
        reading = iter(db.table("items").scan())
        first = [asdict(next(reading))]
        rollback.roll_back(two.connect())
        two.write(2, ADD_WEIGHT)
        with two.open() as other:
            other.admin.run_jobs()
        rest = [*first, *map(asdict, reading)]
        assert [r["id"] for r in rest] == [r["id"] for r in before]


def test_a_due_tenant_is_looked_at(two: Workspace) -> None:
    db = two.follow()
    interrupted_rollback(two)
    two.remove(2)
    before = contents(db)
    assert before[0]["color"] == "blue"
    for report in db.admin.verify():
        assert report.problems == ()
    db.admin.run_jobs()
    assert contents(db) == before
    db.admin.repair()
    db.admin.sweep(older_than_seconds=0)
    db.admin.metrics()
    db.admin.catalog()
    db.admin.schema_history("items")
    with zapdb.open(two.address, migrations=two.directory, preview=True) as seen:
        assert contents(seen) == [
            {n: v for n, v in record.items() if n != "color"} for record in before
        ]
    two.write(2, ADD_WEIGHT)
    with zapdb.open(two.address, migrations=two.directory, preview=True) as seen:
        assert {record["weight"] for record in contents(seen)} == {7}
        assert "color" not in contents(seen)[0]
    two.remove(2)
    with zapdb.open(two.address, migrations=two.directory, read_only=True) as reader:
        assert "color" not in reader.table("items").field_names
    db.table("items").insert(id=1000, title="new", color="green")
    assert db.table("items").get(1000).color == "green"
    db.admin.remove_tenant("acme")
    with two.open() as now:
        assert now.position == 1
        assert "color" not in now.table("items").field_names
        assert now.table("items").count() == COUNT + 1
        assert "color" not in [asdict(db.table("items").get(1))][0]


def test_a_due_tenant_has_to_follow_before_a_rehearsal(two: Workspace) -> None:
    db = two.follow()
    interrupted_rollback(two)
    two.write(2, ADD_WEIGHT)
    with pytest.raises(PendingMigrations, match="that was rolled back"):
        db.admin.rehearse(two.directory, all_records=True)


COMMANDS = {
    "status": ("migrate", "status"),
    "plan": ("migrate", "plan"),
    "rehearse": ("migrate", "rehearse"),
    "diff": ("migrate", "diff"),
    "convert status": ("convert", "status"),
    "convert run": ("convert", "run"),
    "verify": ("verify",),
    "cluster status": ("cluster", "status"),
    "revisions": ("catalog", "revisions", "--table", "items"),
    "tenants": ("tenant", "list"),
    "rollback": ("migrate", "rollback", "--yes"),
    "rollback to": ("migrate", "rollback", "--yes", "--to", "0"),
    "prune": ("migrate", "prune-archive", "--yes"),
    "jobs": ("jobs", "list"),
    "export": ("export", "TARGET"),
    "export sql": ("export", "TARGET.sql"),
    "up": ("migrate", "up"),
}


@pytest.mark.parametrize("engine", ["sqlite"])
@pytest.mark.parametrize("command", COMMANDS)
def test_commands_on_a_due_tenant(two: Workspace, tmp_path: Path, command: str) -> None:
    interrupted_rollback(two)
    two.remove(2)
    words = [word.replace("TARGET", str(tmp_path / "exported")) for word in COMMANDS[command]]
    takes_files = words[:2] in (
        ["migrate", "status"],
        ["migrate", "plan"],
        ["migrate", "rehearse"],
        ["migrate", "diff"],
        ["migrate", "up"],
    )
    files = ["--migrations", str(two.directory)] if takes_files else []
    done = subprocess.run(
        [sys.executable, "-m", "zapdb", *words, "-d", two.address, *files],
        capture_output=True,
        text=True,
        check=False,
    )
    print(done.returncode, done.stdout, done.stderr)
    for wrong in ("Traceback", "the database is closed", "-1 behind", "no such option"):
        assert wrong not in done.stdout + done.stderr


OTHERS = ITEMS.replace("items", "others")


def discard_what_was_restored(place: Workspace) -> None:
    """Records are archived by 2, come back by 3, and are discarded by 4."""
    place.write(1, ITEMS, OTHERS)
    with place.open() as db:
        fill(db)
    place.write(2, "drop_table: {table: items, records: archive}")
    place.open().close()
    place.write(3, "restore_table: {table: items, archived_by: 2}")
    place.open().close()
    place.write(4, "drop_table: {table: items, records: discard}")


def test_a_table_that_comes_back_archived_can_be_restored(workspace: Workspace) -> None:
    discard_what_was_restored(workspace)
    workspace.open().close()
    rollback.roll_back(workspace.connect(), 2)
    workspace.remove(4)
    workspace.remove(3)
    workspace.write(3, ADD_COLOR.replace("items", "others"))
    workspace.open().close()
    workspace.write(4, "restore_table: {table: items, archived_by: 2}")
    with workspace.open() as db:
        assert contents(db) == []
        db.table("items").insert(id=1, title="new")


def test_a_table_that_comes_back_archived_can_be_rolled_back(workspace: Workspace) -> None:
    discard_what_was_restored(workspace)
    workspace.open().close()
    rollback.roll_back(workspace.connect(), 2)
    rollback.roll_back(workspace.connect(), 1)
    for number in (4, 3, 2):
        workspace.remove(number)
    with workspace.open() as db:
        assert contents(db) == []
        db.table("items").insert(id=1, title="new")


def test_a_table_that_comes_back_archived_can_be_looked_at(workspace: Workspace) -> None:
    discard_what_was_restored(workspace)
    workspace.open().close()
    rollback.roll_back(workspace.connect(), 2)
    workspace.remove(4)
    workspace.remove(3)
    with workspace.open() as db:
        for report in db.admin.verify():
            assert report.problems == ()
        storage = workspace.connect()
        with storage.transaction(TransactionMode.READ) as connection:
            list_archived(connection, load_tenant_catalog(connection, DEFAULT_TENANT))
        prune_archives(storage, DEFAULT_TENANT)


def test_a_table_that_was_made_and_archived_at_once_can_be_restored(workspace: Workspace) -> None:
    workspace.write(1, OTHERS)
    workspace.open().close()
    workspace.write(2, ITEMS, "drop_table: {table: items, records: archive}")
    workspace.open().close()
    workspace.write(3, "restore_table: {table: items, archived_by: 2}")
    with workspace.open() as db:
        db.table("items").insert(id=1, title="new")


def test_records_of_a_table_that_was_restored_are_not_swept(workspace: Workspace) -> None:
    """It does not come back, archived, before its discarded records are swept."""
    discard_what_was_restored(workspace)
    with patch("zapdb.catalog.retired_tables._sweep_one", side_effect=ConcurrencyError("in use")):
        workspace.open().close()
        with pytest.raises(ConcurrencyError, match="still being deleted"):
            rollback.roll_back(workspace.connect(), 2)
    rollback.roll_back(workspace.connect(), 2)
    workspace.remove(4)
    workspace.remove(3)
    workspace.write(3, ADD_COLOR.replace("items", "others"))
    workspace.open().close()
    workspace.write(4, "restore_table: {table: items, archived_by: 2}")
    with workspace.open() as db:
        db.table("items").insert(id=1000, title="new")
    with workspace.open() as db:
        assert db.table("items").get(1000).title == "new"


@pytest.mark.parametrize("engine", ["postgresql"])
def test_a_long_snapshot_does_not_make_new_records_be_swept(workspace: Workspace) -> None:
    """As above, where a snapshot that has read the table keeps it from being dropped."""
    discard_what_was_restored(workspace)
    reader = workspace.follow()
    with reader.snapshot() as snap:
        assert snap.table("items").count() == COUNT
        workspace.open().close()
        rollback.roll_back(workspace.connect(), 2)
        workspace.remove(4)
        workspace.remove(3)
        workspace.write(3, ADD_COLOR.replace("items", "others"))
        workspace.open().close()
        workspace.write(4, "restore_table: {table: items, archived_by: 2}")
        with workspace.open() as db:
            db.table("items").insert(id=1000, title="new")
    with workspace.open() as db:
        assert db.table("items").get(1000).title == "new"


def older(place: Workspace) -> Path:
    return place.directory.parent / "older"


def test_a_process_with_older_files_goes_on_over_rollbacks(workspace: Workspace) -> None:
    """What it wrote is what it reads, whatever was rolled back, stored again and converted."""
    workspace.write(1, ITEMS)
    with workspace.open() as db:
        fill(db)
    shutil.copytree(workspace.directory, older(workspace))
    drop = (
        "drop_field: {table: items, field: title, restore: {archive: true, otherwise: {value: o}}}"
    )
    change = (
        "change_type: {table: items, field: size, type: string, default: '0',"
        " up: 'text(size)', down: 'integer(size, else=0)'}"
    )
    steps = [(drop,), (change, ADD_COLOR), (drop, change), (change,), (drop,)]
    with zapdb.open(workspace.address, migrations=older(workspace)) as old:
        expected = {record["id"]: record for record in contents(old)}
        at = 0

        def write(place: Database) -> None:
            nonlocal at
            for values in ({"title": f"w{at}"}, {"size": at}, {"note": f"n{at}"}):
                at += 1
                place.table("items").update(at % COUNT, **values)
                expected[at % COUNT] |= values

        def look() -> None:
            assert contents(old) == [expected[key] for key in sorted(expected)]

        for turn, operations in enumerate(steps):
            write(old)
            workspace.write(2, *operations)
            up(workspace, again=True)
            look()
            write(old)
            look()
            if turn % 2:
                old.admin.run_jobs()
                look()
            workspace.write(3, ADD_WEIGHT)
            up(workspace, again=True)
            write(old)
            look()
            if turn % 3 == 0:
                interrupted_rollback(workspace, to=1)
            else:
                rollback.roll_back(workspace.connect())
                workspace.remove(3)
                write(old)
                look()
                interrupted_rollback(workspace, to=1)
            workspace.remove(3)
            workspace.remove(2)
            look()
            write(old)
            look()
            if turn != 2:
                rollback.roll_back(workspace.connect())
                look()
                write(old)
                look()
            if turn == 3:
                old.admin.run_jobs()
                look()
        rollback_left = {t.name: t.position for t in old.admin.tenants()}
        assert rollback_left["default"] == 1
        old.admin.run_jobs()
        look()
        for report in old.admin.verify():
            assert report.problems == ()


def test_unique_values_and_references_over_a_rollback(workspace: Workspace) -> None:
    """What a constraint refuses is refused behind the way back, too, once it is built again."""
    workspace.write(
        1,
        ITEMS,
        "create_table: {table: parts, key: [id], fields: [{name: id, type: integer},"
        " {name: item, type: reference, to: items}]}",
        "create_index: {table: items, index: by_title, unique: true, fields: [{field: title}]}",
        "add_check: {table: items, check: small, expression: 'size < 100'}",
        "create_index: {table: parts, index: by_item, fields: [{field: item}]}",
        "add_reference: {table: parts, field: item, on_delete: restrict}",
    )
    with workspace.open() as db:
        fill(db)
        db.table("parts").insert(id=1, item=1)
    workspace.write(
        2,
        "drop_check: {table: items, check: small}",
        "drop_index: {table: items, index: by_title}",
        "drop_reference: {table: parts, field: item}",
    )
    with workspace.open() as db:
        db.table("items").update(2, size=1000)
        db.table("items").update(3, title="title 4")
        db.table("items").delete(1)
    rollback.roll_back(workspace.connect())
    workspace.remove(2)
    with workspace.open() as db:
        items = db.table("items")
        assert "by_title" not in items.readable_indexes()
        with suppress(ZapdbError):
            db.admin.run_jobs()
        assert items.get(3).title == items.get(4).title
        assert "by_title" not in items.readable_indexes()
        items.update(2, size=1)
        items.update(3, title="title 3")
        items.insert(id=1, title="back")
        db.admin.run_jobs()
        assert "by_title" in items.readable_indexes()
        with pytest.raises(ZapdbError):
            items.update(3, title="title 4")
        with pytest.raises(ZapdbError):
            items.update(3, size=1000)
        with pytest.raises(ZapdbError):
            items.delete(1)
        for report in db.admin.verify():
            assert report.problems == ()


def test_writers_and_readers_go_on_while_migrations_go_forth_and_back(two: Workspace) -> None:
    """Nothing is refused, and no value is lost."""
    rollback.roll_back(two.connect())
    two.remove(2)
    stop = threading.Event()
    written: list[dict[int, int]] = [{}, {}]
    errors = list[BaseException]()
    tools = [two.follow(), zapdb.open(two.address, tenant="acme")]

    def write(at: int) -> None:
        count = 0
        try:
            while not stop.is_set():
                count += 1
                tools[at].table("items").update(count % COUNT, size=count)
                written[at][count % COUNT] = count
                found = tools[at].table("items").get(count % COUNT)
                assert found.size == count, (found, count)
                if count % 10 == 0:
                    records = {r.id: r.size for r in tools[at].table("items").scan()}
                    assert records | written[at] == records
                if count % 50 == 0:
                    tools[at].admin.run_jobs()
        except BaseException as error:
            errors.append(error)
        finally:
            tools[at]._storage.release_connection()

    threads = [threading.Thread(target=write, args=(at,)) for at in (0, 1)]
    for thread in threads:
        thread.start()
    try:
        for turn in range(8):
            two.write(2, [ADD_COLOR, LOSE_NOTE, ADD_WEIGHT][turn % 3])
            two.write(3, "create_index: {table: items, index: by_size, fields: [{field: size}]}")
            up(two, again=True)
            if turn % 2:
                migrate_all_tenants(two.connect())
            if turn % 3 == 0:
                interrupted_rollback(two, to=1)
            rollback.roll_back(two.connect(), 1)
            if errors:
                break
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert errors == []
    two.remove(3)
    two.remove(2)
    with two.open() as db:
        for at, one in enumerate((db, db.for_tenant("acme"))):
            found = {record["id"]: record["size"] for record in contents(one)}
            assert found | written[at] == found
            for report in one.admin.verify():
                assert report.problems == ()
    tools[1].close()


def test_what_a_tenant_that_may_not_follow_can_do(two: Workspace) -> None:
    """It stays where it is, entirely, for processes whose files end before."""
    before = contents(two.follow().for_tenant("acme"))
    interrupted_rollback(two)
    refuse_changes(two, "acme")
    two.remove(2)
    with two.open(tenant="acme") as db:
        assert db.position == 2
        assert "color" not in db.table("items").field_names
        db.table("items").update(3, title="changed")
        db.table("items").insert(id=1000, title="new")
        db.admin.run_jobs()
        for report in db.admin.verify():
            assert report.problems == ()
        assert db.table("items").get(3).title == "changed"
    with two.follow() as db:
        found = contents(db.for_tenant("acme"))
        before[3]["title"] = "changed"
        assert found[:-1] == before
        db.admin.set_setting("schema_changes", "allow", tenant="acme")
    with two.open(tenant="acme") as db:
        assert db.position == 1


def test_a_due_tenant_that_refuses_keeps_no_other_migration_from_being_rolled_back(
    two: Workspace,
) -> None:
    """It is off the chain already, and nothing is done to it."""
    replace_second(two)
    rollback.roll_back(two.connect(), 1)
    assert {t.name: t.position for t in two.follow().admin.tenants()} == {"default": 1, "acme": 2}


ARCHIVE_NOTE = (
    "drop_field: {table: items, field: note, restore: {archive: true, otherwise: {value: gone}}}"
)


@pytest.mark.parametrize("large", [False, True])
def test_archived_values_of_another_line_come_back_with_their_table(
    workspace: Workspace, large: bool
) -> None:
    workspace.write(1, ITEMS, OTHERS)
    with workspace.open() as db:
        fill(db)
        if large:
            for at in range(0, COUNT, 3):
                db.table("items").update(at, note="x" * 9000 + str(at))
        before = contents(db)
    workspace.write(2, ARCHIVE_NOTE)
    with workspace.open() as db:
        db.admin.run_jobs()
    rollback.roll_back(workspace.connect())
    workspace.write(2, "drop_table: {table: items, records: archive}")
    with workspace.open() as db:
        db.admin.run_jobs()
        db.admin.sweep(older_than_seconds=0)
        for report in db.admin.verify():
            assert report.problems == ()
    workspace.write(3, "restore_table: {table: items, archived_by: 2}")
    with workspace.open() as db:
        assert contents(db) == before
        db.admin.run_jobs()
        db.admin.sweep(older_than_seconds=0)
        assert contents(db) == before
        for report in db.admin.verify():
            assert report.problems == ()


@pytest.mark.parametrize("stored", [False, True])
def test_a_moment_of_another_line_of_a_table_that_was_dropped_since(
    workspace: Workspace, tmp_path: Path, stored: bool
) -> None:
    workspace.write(1, ITEMS, OTHERS)
    with workspace.open() as db:
        db.admin.set_setting("change_log", "on")
        fill(db)
        if stored:
            db.history.start(tmp_path / "store")
            db.history.flush()
    workspace.write(2, ARCHIVE_NOTE, ADD_COLOR)
    moments: list[tuple[Any, list[dict[str, Any]]]] = []
    with workspace.open() as db:
        db.admin.run_jobs()
        db.table("items").update(1, color="blue")
        moments.append((db.change_log.end(), contents(db)))
        db.table("items").update(2, color="green")
        moments.append((db.change_log.end(), contents(db)))
        if stored:
            db.history.flush()
    rollback.roll_back(workspace.connect())
    workspace.remove(2)
    with workspace.open() as db:
        moments.append((db.change_log.end(), contents(db)))
        db.table("items").update(2, note="mine")
        moments.append((db.change_log.end(), contents(db)))
    workspace.write(2, "drop_table: {table: items, records: archive}")
    with workspace.open() as db:
        for moment, expected in moments:
            with suppress(HistoryUnavailable):
                assert contents(db.at(moment)) == expected
                list(db.at(moment).table("items").history(2))
        if stored:
            db.history.flush()
            for moment, expected in moments:
                with suppress(HistoryGap):
                    assert contents(db.at(moment)) == expected
            assert not db.history.verify(sample=3).problems


@pytest.mark.parametrize("stored", [False, True])
def test_a_moment_seen_by_the_schema_of_now_over_lines(
    workspace: Workspace, tmp_path: Path, stored: bool
) -> None:
    moments: list[tuple[Any, list[dict[str, Any]]]] = []

    def look(db: Database, more: dict[str, Any]) -> None:
        for moment, records in moments:
            wanted = [{n: v for n, v in r.items() if n != "color"} | more for r in records]
            with suppress(HistoryUnavailable, UsageError):
                past = db.at(moment).table("items", schema="now")
                assert [asdict(record) for record in past.scan()] == wanted

    def note(db: Database) -> None:
        moments.append((db.change_log.end(), contents(db)))
        db.table("items").update(1, title="later")
        if stored:
            db.history.flush()

    workspace.write(1, ITEMS)
    with workspace.open() as db:
        db.admin.set_setting("change_log", "on")
        fill(db)
        if stored:
            db.history.start(tmp_path / "store")
        note(db)
    workspace.write(2, ADD_COLOR)
    with workspace.open() as db:
        db.table("items").update(1, color="blue")
        note(db)
    rollback.roll_back(workspace.connect())
    workspace.remove(2)
    with workspace.open() as db:
        look(db, {})
        note(db)
        look(db, {})
    workspace.write(2, ADD_WEIGHT)
    with workspace.open() as db:
        look(db, {"weight": 7})
        note(db)
        db.admin.run_jobs()
        moments.pop()
        look(db, {"weight": 7})
