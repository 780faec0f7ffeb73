"""Behind PgBouncer, whose sessions are shared by transactions of all its clients."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

import zapdb
import zapdb.aio
from tests.contract.tables import ADD_COLOR
from tests.documents import document
from tests.pooler import pooling
from tests.support import PostgresServer, Workspace
from zapdb.activation.rollback import roll_back
from zapdb.database import Database

ORDERS = """\
create_table: {table: orders, key: [id], fields: [
      {name: id, type: integer, generated: sequence},
      {name: number, type: integer, generated: sequence},
      {name: title, type: string},
      {name: local, type: zoned_timestamp, optional: true},
      {name: note, type: string, optional: true}]}"""
BY_TITLE = "create_index: {table: orders, index: by_title, fields: [{field: title}], unique: true}"
LINES = """\
create_table: {table: lines, key: [id], fields: [
      {name: id, type: integer, generated: sequence},
      {name: order_id, type: reference, to: orders}]}"""
REFERENCE = "add_reference: {table: lines, field: order_id, on_delete: cascade}"
INDEX = "create_index: {table: lines, index: by_order, fields: [{field: order_id}]}"

pytestmark = pytest.mark.parametrize("engine", ["postgresql"])


@pytest.fixture
def pooled(workspace: Workspace, postgres: PostgresServer) -> Iterator[Workspace]:
    """The database behind a pool of one session."""
    workspace.write(1, ORDERS, BY_TITLE, LINES, INDEX, REFERENCE)
    with (
        pooling(postgres, workspace.address, 1) as address,
        Workspace("postgresql", address, workspace.directory) as place,
    ):
        yield place


def open_logged(place: Workspace) -> Database:
    db = place.open()
    db.admin.set_setting("change_log", "on")
    return db


@pytest.mark.parametrize("is_open", [True, False])
def test_an_open_transaction_needs_no_second_connection_behind_a_rollback(
    pooled: Workspace, is_open: bool
) -> None:
    """Of a migration that another database applied, and that records may have the revision of."""
    db = open_logged(pooled)
    order = db.table("orders").insert(title="a")
    if not is_open:
        db.close()
    with Workspace("postgresql", pooled.address, pooled.directory.with_name("other")) as other:
        other.directory.mkdir()
        for path in pooled.directory.iterdir():
            (other.directory / path.name).write_bytes(path.read_bytes())
        other.write(2, "add_field: {table: lines, field: {name: color, type: string, default: r}}")
        with other.open() as newer:
            line = newer.table("lines").insert(order_id=order.id)
        roll_back(other.connect())
    if is_open:
        db.admin.wait_for_catalog(db.admin.catalog_seq())
    else:
        db = pooled.open()
    with db.transaction() as tx:
        made = tx.table("lines").insert(order_id=order.id)
        tx.table("lines").delete(made.id)
        assert tx.table("lines").get(line.id).order_id == order.id
        tx.table("orders").delete(order.id)
    assert db.table("lines").count() == 0


def test_processes_of_both_sides_go_on_behind_a_rollback(pooled: Workspace) -> None:
    """What they need to know of the other side, they read by the transaction at hand."""
    with zapdb.open(pooled.address, migrations=pooled.directory, apply="auto") as first:
        first.table("orders").insert(title="a")
    active = zapdb.open(pooled.address)
    pooled._opened.append(active)
    pooled.write(
        2,
        "add_field: {table: orders, field: {name: size, type: integer}, fill: "
        "{expression: length(title)}}",
    )
    kept = pooled.open()
    assert kept.table("orders").get(1).size == 1  # it knows what a stale record is
    kept.table("orders").update(1, size=100)
    roll_back(pooled.connect())
    with kept.transaction() as tx:
        tx.table("orders").update(1, number=7)
        assert tx.table("orders").get(1).size == 100
    with active.transaction() as tx:
        tx.table("orders").update(1, title="abc")
        assert tx.table("orders").get(1).number == 7
    with kept.snapshot() as snap:
        assert snap.table("orders").get(1).size == 3


def test_an_open_transaction_needs_no_second_connection(pooled: Workspace) -> None:
    """The pool has one: whoever waits for another while it has this is refused."""
    db = open_logged(pooled)
    orders = db.table("orders")
    with db.transaction() as tx:  # its first statement
        assert tx.table("orders").insert(title="a").id == 1
    with db.transaction() as tx:  # behind others
        assert tx.table("orders").count() == 1
        made = [tx.table("orders").insert(title=f"b{n}").id for n in range(40)]
        assert made == sorted(made)
        tx.table("orders").insert(id=5_000, number=7_000, title="explicit")
        assert tx.table("orders").insert(title="c").id == 5_001
        tx.table("orders").insert_many([{"title": f"d{n}"} for n in range(3_000)])
    with db.transaction(token=True) as tx:
        assert tx.table("orders").get(1).title == "a"
        local = datetime(2026, 1, 1, tzinfo=ZoneInfo("Pacific/Chatham"))
        one = tx.table("orders").insert(title="zone", local=local, note="large " * 3_000)
        tx.table("lines").insert(order_id=one.id)
        tx.table("orders").update(one.id, note="larger " * 3_000, title="zones")
        tx.table("orders").delete(one.id)
        assert tx.table("lines").count() == 0
        with pytest.raises(zapdb.errors.UniqueViolation), db.transaction():
            tx.table("orders").insert(title="a")
        tx.table("orders").insert(title="after")
    assert len(list(db.change_log.read())) > 3_000
    with db.snapshot() as snap:
        assert snap.table("orders").count() == 3_044
        assert len(list(snap.sql("SELECT id FROM orders"))) == 3_044
        assert len(list(db.change_log.read())) > 3_000
    db.run(lambda tx: tx.table("orders").insert(title="run"))
    numbers = [r.number for r in orders]
    assert len(set(numbers)) == len(numbers)


def test_threads_come_through_a_pool_of_one(pooled: Workspace) -> None:
    """The case: each has a session, reads, and draws a block for what it inserts."""
    db = pooled.open()

    def work(worker: int) -> list[int]:
        made = list[int]()
        for turn in range(5):

            def insert(tx: zapdb.database.Transaction, turn: int = turn) -> list[int]:
                tx.table("orders").count()
                titles = [f"{worker}.{turn}.{n}" for n in range(4)]
                return [tx.table("orders").insert(title=title).id for title in titles]

            made += db.run(insert)
        return made

    with ThreadPoolExecutor(4) as threads:
        found = [number for made in threads.map(work, range(4)) for number in made]
    assert len(set(found)) == 80
    assert sorted(found) == [r.id for r in db.table("orders")]


def test_tasks_come_through_a_pool_of_one(pooled: Workspace) -> None:
    pooled.open().close()

    async def work() -> list[int]:
        async with zapdb.aio.open(pooled.address) as db:

            async def insert(worker: int) -> int:
                async def attempt(tx: zapdb.aio.AsyncTransaction) -> int:
                    await tx.table("orders").count()
                    return int((await tx.table("orders").insert(title=f"{worker}")).id)

                return await db.run(attempt)

            return list(await asyncio.gather(*(insert(n) for n in range(6))))

    assert len(set(asyncio.run(work()))) == 6


def test_clients_in_several_schemas_share_the_sessions(pooled: Workspace, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "0001_other.yaml").write_text(document(ORDERS))
    given = {"migrations": tmp_path / "other", "apply": "auto"}
    with (
        zapdb.open(pooled.address, schema="one", **given) as one,
        zapdb.open(pooled.address, schema="two", **given) as two,
        pooled.open() as here,
    ):
        for turn in range(3):
            for name, db in (("one", one), ("two", two), ("here", here)):
                with db.transaction() as tx:
                    tx.table("orders").insert(title=f"{name} {turn}")
                assert db.table("orders").get(turn + 1).title == f"{name} {turn}"
        pooled.write(2, ADD_COLOR.replace("items", "orders"))
        with pooled.open() as newer:
            newer.table("orders").insert(title="new", color="blue")
        assert (one.table("orders").count(), here.table("orders").count()) == (3, 4)


def test_a_session_stays_as_the_server_made_it(pooled: Workspace, postgres: PostgresServer) -> None:
    """Others get it next: no setting of zapdb's may stay in it."""
    with zapdb.open(pooled.address, migrations=pooled.directory, apply="auto") as db:
        db.table("orders").insert(title="a")
    with zapdb.open(pooled.address, read_only=True) as db:
        assert db.table("orders").count() == 1
    changed = pooled.execute(
        "SELECT name FROM pg_settings WHERE source = 'session' AND name NOT IN"
        " ('application_name', 'client_encoding', 'DateStyle', 'TimeZone')"
    )
    assert changed == []
