"""A process that writes nothing reads the change log: up to the newest stamp that a node gave, as
each node does with its heartbeats and when it closes (rule 29)."""

from __future__ import annotations

import asyncio
import json
import logging
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import make_url

import zapdb
import zapdb.aio
from tests.cli.program import Project
from tests.contract.tables import ITEMS
from tests.support import PostgresServer, Workspace, count_statements
from zapdb.catalog.cluster.node_registration import Heartbeat
from zapdb.database import Database, RecordChange, SchemaEvent
from zapdb.errors import HistoryBehind, WritesRefused
from zapdb.limits import NODE_HEARTBEAT_SECONDS
from zapdb.log.change_log import START
from zapdb.storage import TransactionMode
from zapdb.storage.cells import as_time


@pytest.fixture
def place(workspace: Workspace) -> Workspace:
    workspace.write(1, ITEMS)
    return workspace


def open_logged(place: Workspace) -> Database:
    db = place.open()
    db.admin.set_setting("change_log", "on")
    return db


def beat(db: Database) -> None:
    """What the thread of the heartbeat does by itself every some seconds."""
    heartbeat = db._heartbeat
    assert isinstance(heartbeat, Heartbeat)
    heartbeat.beat()


def stop_beating(db: Database) -> None:
    """From now on its heart beats only when a test says so."""
    assert db._heartbeat is not None
    db._heartbeat.stop()


def kill(place: Workspace, db: Database) -> None:
    """End a process that says nothing more: its lease expires, its changes have no stamp."""
    db._node_context.watcher.stop()
    stop_beating(db)
    db._storage.close()


def read_all(db: Database) -> dict[str, Any]:
    """Every way in which a process reads the log, as what it says of the table."""
    return {
        "read": [made.key for made in db.change_log.read() if isinstance(made, RecordChange)],
        "read_back": [m.key for m in db.change_log.read_back() if isinstance(m, RecordChange)][
            ::-1
        ],
        "moments": sum(one.inserted for m in db.moments() for one in m.changes),
        "history": [version.operation for version in db.table("items").history(1)],
        "audit": [one.key for one in db.audit(table="items") if one.key][::-1],
        "sql": [
            key
            for (key,) in db.sql(
                "SELECT DISTINCT key FROM zapdb_audit WHERE operation = 'insert' ORDER BY key"
            )
        ],
        "at": sorted(r.id for r in db.at(next(db.moments())).table("items")),
    }


def list_keys(changes: Iterator[RecordChange | SchemaEvent]) -> list[Any]:
    return [made.key for made in changes if isinstance(made, RecordChange)]


def everything(*ids: int) -> dict[str, Any]:
    keys = [(number,) for number in ids]
    return {
        "read": keys,
        "read_back": keys,
        "moments": len(ids),
        "history": ["insert"],
        "audit": keys,
        "sql": [[number] for number in ids],
        "at": list(ids),
    }


def test_rule_29_a_heartbeat_lets_those_who_only_read_see_the_newest_changes(
    place: Workspace, engine: str
) -> None:
    db = open_logged(place)
    reader = zapdb.open(place.address, read_only=True)
    with reader:
        db.table("items").insert(id=1, title="a")
        age_stamps(place)
        beat(db)
        assert read_all(reader) == everything(1)
        db.table("items").insert(id=2, title="b")
        seen = read_all(reader)
        status = reader.change_log.status()
        if engine == "sqlite":  # whatever is committed has its place
            assert (seen, status.waiting.changes) == (everything(1, 2), 0)
        else:
            assert seen == everything(1)
            assert status.waiting.changes == 1
            assert status.watermark is not None
        age_stamps(place)
        beat(db)
        assert read_all(reader) == everything(1, 2)
        assert reader.change_log.status().waiting.changes == 0


def test_rule_29_a_time_that_is_over_can_be_asked_for_once_a_node_has_lived_then(
    place: Workspace,
) -> None:
    db = open_logged(place)
    db.table("items").insert(id=1, title="a")
    age_stamps(place)
    beat(db)
    with zapdb.open(place.address, read_only=True) as reader:
        age_stamps(place)
        before = reader.change_log.status().watermark
        beat(db)  # nothing happened, and time went on
        after = reader.change_log.status().watermark
        assert before is not None
        assert after is not None
        assert reader.change_log.status().end.time == reader.change_log.end().time
        assert reader.change_log.end().time > 0  # by which a restored backup is noticed
        assert before < after
        assert [r.id for r in reader.at(after).table("items")] == [1]
        with pytest.raises(HistoryBehind, match="has not reached this time"):
            reader.at(as_time(place.control.now_us(place.control.connection())))


def test_rule_29_who_closes_leaves_no_change_without_a_stamp(place: Workspace) -> None:
    db = open_logged(place)
    db.admin.create_tenant("second")
    db.table("items").insert(id=1, title="a")
    second = db.for_tenant("second")
    second.admin.set_setting("change_log", "on", tenant="second")
    second.table("items").insert(id=1, title="a")
    with db.transaction() as tx:
        tx.for_tenant("second").table("items").insert(id=2, title="b")
    db.close()
    with zapdb.open(place.address, read_only=True) as reader:
        assert read_all(reader) == everything(1)
        assert read_all(reader.for_tenant("second")) == everything(1, 2)


@pytest.mark.parametrize("engine", ["postgresql"])
def test_rule_29_what_has_no_stamp_is_told_and_never_passed_over(place: Workspace) -> None:
    db = open_logged(place)
    db.table("items").insert(id=1, title="a")
    kill(place, db)
    with zapdb.open(place.address, read_only=True) as reader:
        for ask in (
            lambda: list(reader.change_log.read()),
            lambda: list(reader.change_log.read_back()),
            reader.change_log.end,
            lambda: list(reader.moments()),
            lambda: list(reader.audit()),
            lambda: reader.table("items").history(1),
            lambda: reader.at(0),
            lambda: reader.sql("SELECT * FROM zapdb_audit"),
        ):
            with pytest.raises(HistoryBehind, match="no place in its order yet") as caught:
                ask()
            assert caught.value.context["changes_waiting"] == 2  # the switch, and a record
        status = reader.change_log.status()
        assert (status.end, status.watermark, status.waiting.changes) == (START, None, 2)
        with pytest.raises(HistoryBehind), reader.snapshot():
            list(reader.change_log.read())

        async def ask_async() -> None:
            async with zapdb.aio.open(place.address, read_only=True) as other:
                assert (await other.change_log.status()).waiting.changes == 2
                with pytest.raises(HistoryBehind):
                    [made async for made in other.change_log.read()]

        asyncio.run(ask_async())
        beat(place.open())  # whoever is a node does it for the dead
        assert read_all(reader) == everything(1)


@pytest.mark.parametrize("engine", ["postgresql"])
def test_a_log_that_is_damaged_keeps_no_node_from_its_lease(
    place: Workspace, caplog: pytest.LogCaptureFixture
) -> None:
    db = open_logged(place)
    db.table("items").insert(id=1, title="a")
    db.change_log.end()
    place.execute("UPDATE zapdb_stamps SET snapshot = '999999999:999999999:', stamped_at = 0")
    db.table("items").insert(id=2, title="b")
    beat(db)
    assert "changes of tenant 1 got no stamp, which is tried again" in caplog.text
    db.table("items").insert(id=3, title="c")


def age_stamps(place: Workspace) -> None:
    """Let stamps be as old as those that a heartbeat leaves as they are no longer."""
    if place.engine == "sqlite":
        place.execute("UPDATE zapdb_counters SET value = value - 6000000 WHERE name = 'change_at'")
        return
    place.execute("UPDATE zapdb_stamps SET stamped_at = stamped_at - 6000000")


@contextmanager
def as_reader(place: Workspace, postgres: PostgresServer) -> Iterator[str]:
    """The address for a role that may only read."""
    postgres.execute("DROP ROLE IF EXISTS zapdb_log_reader")
    postgres.execute("CREATE ROLE zapdb_log_reader LOGIN")
    try:
        place.execute("GRANT SELECT ON ALL TABLES IN SCHEMA public TO zapdb_log_reader")
        url = make_url(place.address).set(username="zapdb_log_reader")
        yield url.render_as_string(hide_password=False)
    finally:
        place.execute("DROP OWNED BY zapdb_log_reader")
        postgres.execute("DROP ROLE zapdb_log_reader")


@pytest.mark.parametrize("engine", ["postgresql"])
def test_commands_of_a_role_that_may_only_read_say_of_when_they_answer(
    place: Workspace, postgres: PostgresServer, tmp_path: Path
) -> None:
    db = open_logged(place)
    db.table("items").insert(id=1, title="a")
    with as_reader(place, postgres) as address:
        commands = [
            ["changes", "list"],
            ["history", "moments"],
            ["history", "audit"],
            ["history", "row", "items", "1"],
            ["sql", "SELECT * FROM zapdb_audit"],
        ]
        for command in commands:
            for options in ([], ["--json"]):
                found = Project(tmp_path).run(*command, *options, "--database", address)
                assert found.status == 1, command
                assert "no place in its order yet" in found.err
        with pytest.raises(WritesRefused):
            zapdb.open(address)
        next(db.moments())
        db.table("items").insert(id=2, title="b")
        for command in commands:
            for options in ([], ["--json"]):
                found = Project(tmp_path).run(*command, *options, "--database", address)
                assert found.status == 0, found.err
                assert found.out
                said = r"as of .*, as this process may only read: 1 change behind it wait"
                assert re.search(said, found.err), command
        found = Project(tmp_path).run("changes", "followers", "--json", "--database", address)
        document = json.loads(found.out)
        assert document["changes_waiting"] == 1
        assert document["watermark"] is not None


@pytest.mark.on_each_engine
def test_a_standby_reads_the_change_log_up_to_the_newest_stamp(tmp_path: Path) -> None:
    (tmp_path / "migrations").mkdir()
    with (
        PostgresServer.start(has_standby=True) as server,
        server.fresh_database() as address,
        Workspace("postgresql", address, tmp_path / "migrations") as place,
    ):
        place.write(1, ITEMS)
        db = open_logged(place)
        db.table("items").insert(id=1, title="a")
        with server.standby() as standby:
            name = make_url(address).database
            assert name is not None
            there = standby.address(name)
            server.wait_for(standby)
            with zapdb.open(there, read_only=True) as reader:
                with pytest.raises(HistoryBehind, match="no place in its order yet"):
                    list(reader.change_log.read())
                beat(db)
                server.wait_for(standby)
                assert read_all(reader) == everything(1)
                db.table("items").insert(id=2, title="b")
                server.wait_for(standby)
                assert read_all(reader) == everything(1)
                assert reader.change_log.status().waiting.changes == 1
            with pytest.raises(WritesRefused, match="takes no writes"):
                zapdb.open(there)
            found = Project(tmp_path).run("changes", "list", "--json", "--database", there)
            assert found.status == 0
            assert "1 change behind it" in found.err


@pytest.mark.parametrize("engine", ["sqlite"])
def test_commands_read_a_file_that_they_may_not_write(place: Workspace, tmp_path: Path) -> None:
    with open_logged(place) as db:
        db.table("items").insert(id=1, title="a")
    file = place.address.removeprefix("sqlite:///")
    address = f"sqlite:///file:{file}?mode=ro&uri=true"
    with pytest.raises(WritesRefused):
        zapdb.open(address)
    found = Project(tmp_path).run("changes", "list", "--json", "--database", address)
    assert (found.status, len(found.out.splitlines())) == (0, 2)


@pytest.mark.parametrize("engine", ["postgresql"])
def test_rule_29_one_node_gives_stamps_for_all_and_another_takes_over(
    place: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others send no more with a heartbeat, however many tenants there are."""
    first, second, third = open_logged(place), place.open(), place.open()
    for db in (first, second, third):
        stop_beating(db)
    tenants = [f"t{number}" for number in range(6)]
    for name in tenants:
        first.admin.create_tenant(name)
        first.for_tenant(name).table("items").insert(id=1, title="a")

    def change_all() -> None:
        age_stamps(place)
        for name in tenants:
            first.for_tenant(name).table("items").update(1, title="b")

    def count_waiting() -> int:
        with zapdb.open(place.address, read_only=True) as reader:
            statuses = [reader.for_tenant(name).change_log.status() for name in tenants]
        return sum(status.waiting.changes > 0 for status in statuses)

    def count_beat(db: Database) -> int:
        with monkeypatch.context() as patched:
            sent = count_statements(patched, db._storage, of_this_thread=True)
            beat(db)
            return sent()

    change_all()
    working = count_beat(first)
    assert count_waiting() == 0
    change_all()
    looking = count_beat(second)
    assert count_waiting() == len(tenants)
    assert working > looking + 3 * len(tenants)
    for name in tenants:
        second.admin.create_tenant(f"more-{name}")
        second.for_tenant(f"more-{name}").table("items").insert(id=1, title="a")
    assert count_beat(second) == looking
    assert list(second.change_log.read())  # what it needs itself is met at once

    kill(place, first)  # without a word
    still_held = "UPDATE zapdb_leases SET expires_at = since + {} WHERE name = 'stamps'"
    place.execute(still_held.format(30_000_000))
    count_beat(second)
    assert count_waiting() == len(tenants)
    place.execute(still_held.format(1))
    count_beat(second)
    assert count_waiting() == 0
    assert count_beat(third) == looking
    second.close()  # gives it back
    age_stamps(place)
    assert count_beat(third) > looking


@pytest.mark.parametrize("engine", ["postgresql"])
def test_a_log_that_is_damaged_keeps_no_other_one_from_its_stamp(
    place: Workspace, caplog: pytest.LogCaptureFixture
) -> None:
    db = open_logged(place)
    db.table("items").insert(id=1, title="a")
    db.change_log.end()
    place.execute("UPDATE zapdb_stamps SET snapshot = '999999999:999999999:', stamped_at = 0")
    db.admin.create_tenant("other")
    db.for_tenant("other").table("items").insert(id=1, title="a")
    beat(db)
    assert "changes of tenant 1 got no stamp" in caplog.text
    with zapdb.open(place.address, read_only=True) as reader:
        assert reader.for_tenant("other").change_log.status().waiting.changes == 0


@pytest.mark.parametrize("engine", ["postgresql"])
def test_a_heartbeat_does_not_wait_for_a_schema_change(
    place: Workspace, caplog: pytest.LogCaptureFixture
) -> None:
    """Its node would look dead before; the logs get their stamps with the next one."""
    caplog.set_level(logging.INFO, "zapdb.nodes")
    db, other = open_logged(place), place.connect()
    stop_beating(db)
    for name in ("one", "two"):
        db.admin.create_tenant(name)
        db.for_tenant(name).table("items").insert(id=1, title="a")
    age_stamps(place)
    with other.transaction(TransactionMode.DDL):
        beating = threading.Thread(target=beat, args=(db,))
        beating.start()
        beating.join(NODE_HEARTBEAT_SECONDS)
        is_waiting = beating.is_alive()
    beating.join()
    assert not is_waiting
    told = [one for one in caplog.records if "got no stamp" in one.getMessage()]
    assert {one.levelname for one in told} == {"INFO"}
    beat(db)
    with zapdb.open(place.address, read_only=True) as reader:
        for name in ("one", "two"):
            assert reader.for_tenant(name).change_log.status().waiting.changes == 0
