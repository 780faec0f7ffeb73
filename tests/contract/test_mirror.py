"""Mirrors: plain tables of the current state, compared with the records themselves."""

from __future__ import annotations

import io
import itertools
import os
import random
import shutil
import sqlite3
import sys
import threading
import time
import urllib.parse
from collections.abc import Callable, Iterator
from contextlib import closing, redirect_stdout
from functools import partial
from pathlib import Path

import duckdb
import psycopg
import pytest

from tests import forms, processes
from tests.contract.every_type import fill, make_shop
from tests.contract.mirrors import Place, check, in_pairs, keep, place
from tests.contract.tables import ADD_COLOR, DROP_NOTE, ITEMS, RENAME_SIZE
from tests.support import GUARD_SECONDS, ROOT, Workspace, error_of, wait_until, writing
from zapdb.activation.rollback import roll_back
from zapdb.cli.program import run_program
from zapdb.database import Database
from zapdb.errors import StorageError, UsageError
from zapdb.storage import TransactionMode
from zapdb.transfer.mirror import mirror as mirrors_module
from zapdb.transfer.mirror.keeping import keep_mirror
from zapdb.transfer.mirror.mirror import Mirror
from zapdb.transfer.mirror.mirror_run import run_mirror
from zapdb.transfer.mirror.mirror_status import read_mirror_status
from zapdb.transfer.mirror.target_opening import open_target

__all__ = ["place"]

ADD_MORE = """\
add_field: {table: items, field: {name: more, type: integer}, fill: {expression: size + one}}"""


def test_a_mirror_follows_records(workspace: Workspace, place: Place) -> None:
    workspace.write(1, ITEMS)
    db = workspace.open()
    items = db.table("items")
    items.insert_many({"id": at, "title": f"Item {at}"} for at in range(2_500))
    assert keep(db, place).report.made == ["items"]
    check(db, place)
    items.delete(7)
    items.update(8, title="eight", note="new")
    with db.transaction() as tx:
        tx.table("items").insert(id=-1, title="first")
        tx.table("items").delete(9)
        tx.table("items").insert(id=9, title="again", size=10**15)
    items.insert(id=10_000, title="gone")
    items.delete(10_000)
    done = keep(db, place).report
    assert (done.made, done.broken, done.changes) == ([], [], 6)
    check(db, place)
    assert keep(db, place).report.changes == 0


@in_pairs
def test_every_type_is_mirrored(workspace: Workspace, place: Place) -> None:
    db = make_shop(workspace)
    keep(db, place)
    check(db, place)
    fill(db, range(120, 180), long=True)
    keep(db, place)
    check(db, place)


@in_pairs
def test_changes_of_schemas_are_followed(workspace: Workspace, place: Place) -> None:
    workspace.write(1, ITEMS)
    db = workspace.open()
    db.table("items").insert_many({"id": at, "title": "a", "note": "b"} for at in range(5))
    keep(db, place)
    more = ITEMS.replace("table: items", "table: more")
    steps = [
        (ADD_COLOR, RENAME_SIZE),
        (DROP_NOTE,),
        (more,),
        ("rename_table: {table: items, to: things}",),
        ("drop_table: {table: more, records: discard}",),
    ]
    for number, operations in enumerate(steps, 2):
        workspace.write(number, *operations)
        db.close()
        db = workspace.open()
        table = "things" if number >= 5 else "items"
        db.table(table).insert(id=number * 100, title="new")
        keep(db, place)
        check(db, place)
    assert place.execute("SELECT color, extent FROM things WHERE id = 200") == [("red", 0)]


@in_pairs
def test_a_mirror_that_was_broken_is_made_again(workspace: Workspace, place: Place) -> None:
    workspace.write(1, ITEMS)
    db = workspace.open()
    db.table("items").insert_many({"id": at, "title": "a"} for at in range(10))
    keep(db, place)
    damage = [
        "DELETE FROM items WHERE id = 3",
        "INSERT INTO items VALUES (77, 'foreign', 0, NULL)",
        "DELETE FROM items",
        "ALTER TABLE items ADD COLUMN mine INTEGER",
        "DROP TABLE items",
    ]
    for statement in damage:
        place.execute(statement)
        with closing(open_target(place.address, db._storage)) as target:
            status = read_mirror_status(db, target)
        assert [(table.name, table.is_broken) for table in status.tables] == [("items", True)]
        assert keep(db, place).report.broken == ["items"]
        check(db, place)
    # What the new baseline has seen comes again in the log, and is skipped.
    db.table("items").insert(id=50, title="b")
    db.table("items").delete(5)
    place.execute("DELETE FROM items WHERE id = 1")
    done = keep(db, place).report
    assert (done.broken, done.repaired, done.made) == (["items"], 1, [])
    check(db, place)
    # While it runs: the row that a batch changes is gone.
    with closing(open_target(place.address, db._storage)) as target:
        mirror = Mirror(db, target)
        run_mirror(mirror, once=True)
        target.close()
        place.execute("DELETE FROM items WHERE id = 4")
        db.table("items").update(4, title="b")
        run_mirror(mirror, once=True)
        assert mirror.report.broken == ["items"]
    check(db, place)


@in_pairs
def test_a_foreign_target_is_refused(workspace: Workspace, place: Place) -> None:
    workspace.write(1, ITEMS)
    db = workspace.open()
    if place.kind == "postgresql":
        place.execute("CREATE SCHEMA reporting")
    place.execute("CREATE TABLE mine (id INTEGER)")
    error = error_of(lambda: keep(db, place))
    assert isinstance(error, UsageError)
    assert error.context["tables"] == "mine"
    place.execute("DROP TABLE mine")
    keep(db, place)
    db.admin.create_tenant("other")
    error = error_of(lambda: keep(db.for_tenant("other"), place))
    assert isinstance(error, UsageError)
    assert "another tenant" in error.message


@pytest.mark.parametrize("engine", ["postgresql"])
def test_a_schema_of_the_same_database(workspace: Workspace) -> None:
    workspace.write(1, ITEMS)
    db = workspace.open()
    db.table("items").insert(id=1, title="a")
    keep(db, Place("postgresql", "schema:reporting"))
    assert workspace.execute("SELECT title FROM reporting.items") == [("a",)]
    error = error_of(lambda: keep(db, Place("postgresql", "schema:public")))
    assert isinstance(error, UsageError)


@pytest.mark.parametrize("engine", ["postgresql"])
def test_a_role_with_a_schema_needs_no_right_to_make_schemas(workspace: Workspace) -> None:
    workspace.write(1, ITEMS)
    db = workspace.open()
    role = f"mirror_{os.getpid()}"
    workspace.execute(f"CREATE ROLE {role} LOGIN")
    workspace.execute(f"CREATE SCHEMA reporting AUTHORIZATION {role}")
    workspace.execute("CREATE SCHEMA given")
    workspace.execute(f"GRANT USAGE ON SCHEMA given TO {role}")
    try:
        address = workspace.address.replace("postgres@", f"{role}@")
        for schema in ("missing", "given"):
            refused = Place("postgresql", f"{address}&schema={schema}")
            error = error_of(partial(keep, db, refused))
            assert isinstance(error, StorageError)
            assert error.message == "the mirror's target refuses the mirror's role"
            assert "permission denied for" in error.context["cause"]
            assert "GRANT USAGE, CREATE ON SCHEMA" in error.hint
        keep(db, Place("postgresql", f"{address}&schema=reporting"))
        assert workspace.execute("SELECT count(*) FROM reporting.items") == [(0,)]
    finally:
        workspace.execute(f"DROP OWNED BY {role}")
        workspace.execute(f"DROP ROLE {role}")


@in_pairs
def test_what_was_pruned_or_switched_off_is_read_again(workspace: Workspace, place: Place) -> None:
    workspace.write(1, ITEMS)
    db = workspace.open()
    items = db.table("items")
    items.insert(id=1, title="a")
    keep(db, place)
    db.admin.set_setting("change_log", "off", table="items")
    items.insert(id=2, title="not in the log")
    db.admin.set_setting("change_log", "on", table="items")
    assert keep(db, place).report.made == ["items"]
    check(db, place)
    items.insert(id=3, title="pruned")
    for status in db.change_log.followers():
        db.change_log.follower(status.name).remove()
    db.change_log.prune(db.change_log.end())
    assert keep(db, place).report.made == ["items"]
    check(db, place)


@in_pairs
@pytest.mark.parametrize("backed_up", ["before the mirror", "behind it"])
def test_a_mirror_ahead_of_a_restored_copy_is_read_again(
    workspace: Workspace, place: Place, backed_up: str
) -> None:
    """Also where the copy has as many changes by now as the mirror knew."""
    workspace.write(1, ITEMS)
    with workspace.open() as db:
        db.admin.set_setting("change_log", "on")
        items = db.table("items")
        items.insert(id=1, title="a")
        if backed_up == "behind it":
            keep(db, place)
    copy = take_copy(workspace)
    with workspace.open() as db:
        for number in range(2, 6):
            db.table("items").insert(id=number, title="lost")
        keep(db, place)
        check(db, place)
    copy()
    with workspace.open() as db:
        for number in range(12, 18):
            db.table("items").insert(id=number, title="new")
            db.change_log.end()  # a stamp for each
        assert keep(db, place).report.made == ["items"]
        check(db, place)
        db.table("items").insert(id=30, title="later")
        assert keep(db, place).report.made == []
        check(db, place)


def take_copy(workspace: Workspace) -> Callable[[], None]:
    """Copy all tables of a database that nobody has open; returns what puts them back."""
    if workspace.engine == "sqlite":
        path = workspace.address.removeprefix("sqlite:///").partition("?")[0]
        copied = Path(shutil.copy(path, f"{path}.copy"))

        def put_back() -> None:
            for suffix in ("-wal", "-shm"):
                Path(path + suffix).unlink(missing_ok=True)
            copied.replace(path)

        return put_back
    tables = "SELECT tablename FROM pg_tables WHERE schemaname = 'public'"
    kept = {
        name: workspace.execute(f"SELECT * FROM {name}") for (name,) in workspace.execute(tables)
    }

    def put_rows_back() -> None:
        for (name,) in workspace.execute(tables):
            workspace.execute(f"DELETE FROM {name}")
            for row in kept.get(name, ()):
                marks = ", ".join("?" * len(row))
                workspace.execute(f"INSERT INTO {name} VALUES ({marks})", row)

    return put_rows_back


@in_pairs
@pytest.mark.on_each_engine
def test_rule_29_a_mirror_beside_writers_and_kills(workspace: Workspace, place: Place) -> None:
    workspace.write(1, ITEMS)
    db = workspace.open()
    db.table("items").insert_many({"id": at, "title": "a"} for at in range(300))
    ended = threading.Event()
    errors = list[BaseException]()

    def write_one(chance: random.Random) -> None:
        key = chance.randrange(400)
        if chance.random() < 0.3:
            db.run(lambda tx: tx.table("items").delete_many([key]))
        else:
            db.table("items").upsert(id=key, title=f"{chance.random()}")

    def write(seed: int) -> None:
        chance = random.Random(seed)
        try:
            while not ended.is_set():
                write_one(chance)
                time.sleep(0.002)
        except BaseException as error:
            errors.append(error)

    def change_schema(turn: int) -> None:
        if turn % 4 == 0:
            workspace.write(2, ADD_COLOR, ADD_MORE.replace("one", str(turn)))
            workspace.open().close()
        if turn % 4 == 2:
            workspace.remove(2)
            roll_back(workspace.connect())

    threads = [threading.Thread(target=write, args=(seed,)) for seed in (1, 2)]
    for thread in threads:
        thread.start()
    chance = random.Random(7)
    command = [sys.executable, "-m", "zapdb", "mirror", "run", "--to", place.address]
    try:
        for kill in range(21 if forms.is_long else 3):
            with processes.Popen([*command, "-d", workspace.address], cwd=ROOT) as process:
                try:
                    time.sleep(1.5 + chance.random() * 1.5)
                    change_schema(kill)
                    time.sleep(chance.random() * 0.2)
                finally:
                    process.kill()
    finally:
        ended.set()
        for thread in threads:
            thread.join(GUARD_SECONDS)
    assert errors == []
    follower = workspace.follow()
    assert keep(follower, place).report.broken == []
    assert ("color" in follower.table("items").field_names) == forms.is_long
    check(follower, place)


@pytest.mark.parametrize("place", ["sqlite"], indirect=True)
@pytest.mark.on_each_engine
def test_a_mirror_follows_a_roll_back_to_what_was_not_converted(
    workspace: Workspace, place: Place
) -> None:
    """A record that was converted has what the way back makes of it, another one what it had."""
    workspace.write(1, ITEMS)
    with workspace.open() as older:
        older.admin.set_setting("change_log", "on")
        older.table("items").insert_many(
            {"id": at, "title": "a", "note": f"note {at}"} for at in range(4)
        )
    keep(workspace.follow(), place)
    workspace.write(2, "drop_field: {table: items, field: note, restore: {value: lost}}")
    with workspace.open() as newer:
        keep(newer, place)
        newer.table("items").update(1, title="b")
        if forms.is_long:
            keep(newer, place)
    workspace.remove(2)
    db = workspace.follow()
    roll_back(workspace.connect())
    db.table("items").update(2, title="c")
    keep(db, place)
    check(db, place)
    assert [record.note for record in db.table("items").scan()] == [
        "note 0",
        "lost",
        "note 2",
        "note 3",
    ]
    db.admin.run_jobs()
    assert keep(db, place).report.broken == []
    check(db, place)


@in_pairs
@pytest.mark.on_each_engine
def test_a_running_mirror_is_about_a_second_behind(workspace: Workspace, place: Place) -> None:
    workspace.write(1, ITEMS)
    db = workspace.open()
    items, stop = db.table("items"), threading.Event()
    target = open_target(place.address, db._storage)
    mirror = Mirror(db, target)
    mirror.switch_on()
    runner = threading.Thread(target=run_mirror, args=(mirror,), kwargs={"stop": stop})
    runner.start()
    try:
        for number in range(3):
            items.insert(id=number, title="a")
            wait_until(
                lambda number=number: _has(place, number) or not runner.is_alive(),
                "the mirror had it",
                pause_seconds=0.05,
            )
            assert runner.is_alive()
    finally:
        stop.set()
        runner.join(GUARD_SECONDS)
        target.close()
    check(db, place)


@pytest.mark.parametrize("place", ["duckdb"], indirect=True)
@pytest.mark.parametrize("engine", ["sqlite"])
def test_a_reader_in_the_same_process_does_not_end_a_mirror(
    workspace: Workspace, place: Place
) -> None:
    workspace.write(1, ITEMS)
    db = workspace.open()
    items, target = db.table("items"), open_target(place.address, db._storage)
    mirror, refused = Mirror(db, target), list[Exception]()
    mirror.switch_on()

    def read(seed: int, is_over: Callable[[], bool]) -> None:
        while not is_over():
            try:
                place.execute("SELECT count(*) FROM items")
            except duckdb.Error as error:
                refused.append(error)

    with closing(target), writing(read, 1):
        deadline = time.monotonic() + GUARD_SECONDS
        for number in itertools.count():
            items.insert(id=number, title="a")
            run_mirror(mirror, once=True)
            if number > 4 and any(isinstance(e, duckdb.ResourceInUseException) for e in refused):
                break
            assert time.monotonic() < deadline, "reader and mirror never met"
    check(db, place)


def _has(place: Place, number: int) -> bool:
    try:
        return bool(place.execute(f"SELECT 1 FROM items WHERE id = {number}"))
    except (duckdb.Error, sqlite3.Error, psycopg.Error):
        return False


@pytest.mark.parametrize("place", ["postgresql"], indirect=True)
@pytest.mark.parametrize("engine", ["sqlite"])
def test_a_mirror_goes_on_after_its_connection_was_lost(workspace: Workspace, place: Place) -> None:
    workspace.write(1, ITEMS)
    db = workspace.open()
    items, stop, waited = db.table("items"), threading.Event(), list[str]()
    target = open_target(place.address, db._storage)
    mirror = Mirror(db, target)
    mirror.switch_on()
    named = {"stop": stop, "wait": waited.append}
    runner = threading.Thread(target=run_mirror, args=(mirror,), kwargs=named)
    runner.start()
    try:
        for number in range(2):
            items.insert(id=number, title="a")
            wait_until(lambda number=number: _has(place, number), "the mirror had it")
            place.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE application_name = 'zapdb mirror' AND datname = current_database()"
            )
        items.insert(id=9, title="a")
        wait_until(lambda: _has(place, 9), "the mirror had it")
    finally:
        stop.set()
        runner.join(GUARD_SECONDS)
        target.close()
    assert waited != []
    check(db, place)


@pytest.mark.parametrize("place", ["duckdb"], indirect=True)
@pytest.mark.parametrize("engine", ["postgresql"])
def test_a_mirror_goes_on_after_the_database_ended_a_transaction(
    workspace: Workspace, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when a server ends all sessions, since one of them was killed."""
    workspace.write(1, ITEMS)
    db = workspace.open()
    db.table("items").insert(id=1, title="a")
    step, stop, waited = Mirror.step, threading.Event(), list[str]()

    def lose(mirror: Mirror) -> bool:
        if not waited:
            with db._storage.transaction(TransactionMode.CATALOG) as connection:
                backend = connection.driver.info.backend_pid
                workspace.execute("SELECT pg_terminate_backend(?)", (backend,))
                connection.fetch_one("SELECT count(*) FROM zapdb_catalog")
        return step(mirror)

    monkeypatch.setattr(Mirror, "step", lose)
    with closing(open_target(place.address, db._storage)) as target:
        mirror = Mirror(db, target)
        mirror.switch_on()
        run_mirror(mirror, stop=stop, report=lambda _: stop.set(), wait=waited.append)
    assert [reason.splitlines()[0] for reason in waited] == [
        "the connection was lost inside a transaction"
    ]
    check(db, place)


ADDED = {
    "sqlite": (
        "CREATE INDEX by_title ON items (title)",
        "CREATE INDEX by_mine ON items (mine)",
        "CREATE TRIGGER watched AFTER INSERT ON items BEGIN SELECT 1; END",
    ),
    "duckdb": (
        "CREATE INDEX by_title ON items (title)",
        "CREATE INDEX by_mine ON items (mine)",
        "COMMENT ON TABLE items IS 'It''s {table}, 100%'",
        "COMMENT ON COLUMN items.title IS 'a title'",
    ),
    "postgresql": (
        "CREATE INDEX by_title ON items (lower(title)) WHERE id > 3",
        "CREATE UNIQUE INDEX by_mine ON items (mine)",
        "COMMENT ON TABLE items IS 'It''s {table}, 100%'",
        "COMMENT ON COLUMN items.title IS 'a title'",
        "GRANT SELECT, UPDATE ON items TO {role} WITH GRANT OPTION",
        "GRANT SELECT (title) ON items TO PUBLIC",
        "ALTER TABLE items ENABLE ROW LEVEL SECURITY",
        "CREATE POLICY few ON items FOR SELECT TO {role} USING (id < 5)",
    ),
}
SHOWN = {
    "sqlite": "SELECT sql FROM sqlite_schema WHERE type <> 'table' AND sql IS NOT NULL ORDER BY 1",
    "duckdb": "SELECT sql FROM duckdb_indexes() UNION SELECT comment FROM duckdb_tables()"
    " UNION SELECT comment FROM duckdb_columns() ORDER BY 1",
    "postgresql": "SELECT relacl::text, relrowsecurity::text, (SELECT string_agg(indexdef, ';'"
    " ORDER BY indexdef) FROM pg_indexes WHERE tablename = 'items'), (SELECT"
    " string_agg(description, ';' ORDER BY description) FROM pg_description WHERE objoid = c.oid),"
    " (SELECT string_agg(attacl::text, ';') FROM pg_attribute WHERE attrelid = c.oid),"
    " (SELECT string_agg(p::text, ';') FROM pg_policies p WHERE tablename = 'items')"
    " FROM pg_class c WHERE c.oid = 'items'::regclass",
}


@pytest.fixture
def role(place: Place) -> Iterator[str]:
    name = f"reader_{os.getpid()}"
    if place.kind == "postgresql":
        place.execute(f"CREATE ROLE {name}")
    yield name
    if place.kind == "postgresql":
        place.execute(f"DROP OWNED BY {name}")
        place.execute(f"DROP ROLE {name}")


@in_pairs
def test_what_others_added_to_a_table_stays_when_it_is_made_again(
    workspace: Workspace, place: Place, role: str
) -> None:
    workspace.write(1, ITEMS)
    db = workspace.open()
    db.table("items").insert_many({"id": at, "title": "a"} for at in range(10))
    keep(db, place)
    *added, title = (one.replace("{role}", role) for one in ADDED[place.kind][::-1])
    for statement in (title, *added):
        if "mine" not in statement:
            place.execute(statement)
    before = place.execute(SHOWN[place.kind])
    assert before
    place.execute("ALTER TABLE items ADD COLUMN mine INTEGER")
    place.execute(next(one for one in ADDED[place.kind] if "mine" in one))
    done = keep(db, place).report
    assert (done.made, done.lost) == (["items"], ["index by_mine of items"])
    assert place.execute(SHOWN[place.kind]) == before
    check(db, place)
    db.table("items").update(4, title="b")
    keep(db, place)
    check(db, place)


@pytest.mark.parametrize("place", ["postgresql"], indirect=True)
@pytest.mark.parametrize("engine", ["sqlite"])
def test_who_may_read_the_schema_may_read_the_tables(
    workspace: Workspace, place: Place, role: str
) -> None:
    workspace.write(1, ITEMS)
    db = workspace.open()
    place.execute("CREATE SCHEMA reporting")
    place.execute(f"GRANT USAGE ON SCHEMA reporting TO {role}")
    keep(db, place)
    workspace.write(2, ADD_OTHER)
    db.close()
    db = workspace.open()
    keep(db, place)
    for name in db.tables:
        granted = f"SELECT has_table_privilege('{role}', 'reporting.{name}', 'SELECT')"
        assert place.execute(granted) == [(True,)]
    assert place.execute(
        f"SELECT has_table_privilege('{role}', 'reporting.zapdb_mirror', 'SELECT')"
    ) == [(False,)]


ADD_OTHER = "create_table: {table: others, key: [id], fields: [{name: id, type: integer}]}"


@pytest.mark.parametrize("engine", ["postgresql"])
def test_one_target_has_one_follower_however_it_is_spelled(
    workspace: Workspace, tmp_path: Path
) -> None:
    """Also a schema with a name that SQL and addresses have other meanings for."""
    workspace.write(1, ITEMS)
    db = workspace.open()
    address, odd = workspace.address, '100% "a".b'
    quoted = urllib.parse.quote(odd)
    spelled = [
        f"schema:{odd}",
        f"{address}&schema={quoted}",
        f"{address}&schema={quoted}&application_name=x",
        address.replace("postgresql+psycopg", "postgresql") + f"&schema={quoted}",
    ]
    named = '"' + odd.replace('"', '""').replace("%", "%%") + '"'  # for the driver
    for number, one in enumerate([*spelled, *spelled]):
        db.table("items").insert(id=number, title="a")
        db.table("items").upsert(id=0, title=f"100% {number}")
        keep(db, Place("postgresql", one))
        rows = workspace.execute(f"SELECT id, title FROM {named}.items ORDER BY id")
        assert rows == [(0, f"100% {number}"), *((n, "a") for n in range(1, number + 1))]
        assert len(db.change_log.followers()) == 1
    workspace.write(2, "add_field: {table: items, field: {name: f, type: string, default: '50%'}}")
    db.close()
    db = workspace.open()
    keep(db, Place("postgresql", spelled[0]))
    assert workspace.execute(f"SELECT DISTINCT f FROM {named}.items") == [("50%",)]
    link, file = tmp_path / "link", tmp_path / "mirror.db"
    for path in (file, link):
        keep(db, Place("sqlite", f"sqlite:///{path}"))
        if path is file:
            link.symlink_to(file)
    assert len(db.change_log.followers()) == 2
    file.unlink()  # dropped, and begun again
    keep(db, Place("sqlite", f"sqlite:///{file}"))
    assert len(db.change_log.followers()) == 2


@pytest.mark.parametrize("place", ["postgresql"], indirect=True)
@pytest.mark.parametrize("engine", ["sqlite"])
def test_a_table_that_is_not_kept_is_told_by_metrics_and_status(
    workspace: Workspace, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mirrors_module, "PROBLEM_RETRY_SECONDS", 0.2)
    workspace.write(1, ITEMS)
    db = workspace.open()
    keep(db, place)
    place.execute("CREATE VIEW sizes AS SELECT size FROM items")
    workspace.write(2, "drop_field: {table: items, field: size, restore: {value: 0}}")
    db.close()
    db = workspace.open()
    stop = threading.Event()
    keeper = threading.Thread(target=lambda: keep_mirror(db, place.address, stop=stop))
    keeper.start()
    try:
        wait_until(lambda: waits_of(db) == "1.0", "it says that a table is not kept", 0.2)
        (job,) = db.jobs.list(kind="mirror")
        assert "tables are not kept: items: " in job.waits_for
        out = io.StringIO()
        with redirect_stdout(out):
            address = ("--to", place.address, "-d", workspace.address)
            assert run_program(("mirror", "status", *address)) == 1
        assert "1 table behind" in out.getvalue()
        place.execute("DROP VIEW sizes")
        wait_until(lambda: waits_of(db) == "0.0", "it goes on", 0.2)
    finally:
        stop.set()
        keeper.join(GUARD_SECONDS)


def waits_of(db: Database) -> str:
    lines = [one for one in db.admin.metrics().splitlines() if "zapdb_job_waits{" in one]
    assert len(lines) <= 1
    return lines[0].rpartition(" ")[2] if lines else ""
