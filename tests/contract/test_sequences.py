"""Sequences: numbers of new records, in blocks or one by one; and the moment of the insert."""

from __future__ import annotations

import asyncio
import datetime
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, TypeVar
from zoneinfo import ZoneInfo

import pyarrow
import pytest

import zapdb
import zapdb.aio
from tests import forms, processes
from tests.contract.numbering import EXPLICIT
from tests.support import ROOT, Workspace, error_of, finish
from zapdb.activation.rollback import roll_back
from zapdb.database import (
    Database,
    Table,
)
from zapdb.errors import (
    ConstraintViolation,
    InvalidValue,
    RecordExists,
    SequenceExhausted,
    StorageError,
    TransactionConflict,
    UniqueViolation,
)
from zapdb.imports import SkippedRow
from zapdb.limits import SEQUENCE_BLOCK_NUMBERS_MAX, SEQUENCE_MAX
from zapdb.tables import (
    generated_values,
)

ORDERS = """\
create_table: {table: orders, key: [id], fields: [
      {name: id, type: integer, generated: sequence},
      {name: number, type: integer, generated: sequence},
      {name: text, type: string, optional: true}]}"""
MADE = """\
create_table: {table: visits, key: [id], fields: [
      {name: id, type: integer},
      {name: at, type: timestamp, default: now},
      {name: there, type: zoned_timestamp, default: now Europe/Vienna},
      {name: maybe, type: timestamp, optional: true, default: now},
      {name: text, type: string, optional: true}]}"""


T = TypeVar("T")


class Undone(Exception):
    pass


@pytest.fixture
def db(workspace: Workspace) -> Database:
    workspace.write(1, ORDERS)
    return workspace.open()


def numbers_of(db: Database) -> list[tuple[int, int]]:
    return [(order.id, order.number) for order in db.table("orders")]


def insert_undone(db: Database, insert: Callable[[Table], T]) -> T:
    """Insert in a transaction, or savepoint, that is rolled back."""
    made: T | None = None
    try:
        with db.transaction() as tx:
            made = insert(tx.table("orders"))
            raise Undone
    except Undone:
        assert made is not None
        return made


def insert_some(count: int) -> Callable[[Table], list[int]]:
    return lambda orders: [orders.insert().id for _ in range(count)]


def count_draws(monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    made = list[int]()
    drawn = zapdb.tables.generated_values.draw_block

    def draw(*arguments: Any) -> Any:
        made.append(1)
        return drawn(*arguments)

    monkeypatch.setattr(zapdb.tables.generated_values, "draw_block", draw)
    return lambda: len(made)


# Numbers


def test_numbers_begin_at_1_and_rise_whatever_inserts(db: Database) -> None:
    orders = db.table("orders")
    assert orders.insert().id == 1
    assert orders.insert(text="b").number == 2
    orders.insert_many([{"text": "c"}, {}, {"text": "d"}])
    assert orders.upsert(text="e").id == 6
    with db.transaction() as tx:
        assert tx.table("orders").insert().id == 7
        tx.table("orders").insert_many([{}] * 3)
    assert numbers_of(db) == [(n, n) for n in range(1, 11)]


@pytest.mark.on_each_engine
def test_a_process_that_inserts_little_leaves_no_gaps(workspace: Workspace, db: Database) -> None:
    for _ in range(3):
        with workspace.open() as other:
            other.table("orders").insert()
    assert numbers_of(db) == [(1, 1), (2, 2), (3, 3)]


@pytest.mark.parametrize("engine", ["postgresql"])
def test_blocks_grow_and_one_draw_serves_a_thousand_inserts(
    workspace: Workspace, db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace.write(2, "drop_field: {table: orders, field: number, restore: {value: 0}}")
    db.close()
    orders, draws = workspace.open().table("orders"), count_draws(monkeypatch)
    for _ in range(40):
        orders.insert()
    assert draws() == 7  # 1, 1, 2, 4, 8, 16, 32
    orders.insert_many({} for _ in range(3 * SEQUENCE_BLOCK_NUMBERS_MAX))
    assert draws() <= 10
    assert orders.insert().id == 3 * SEQUENCE_BLOCK_NUMBERS_MAX + 41
    assert orders.count() == 3 * SEQUENCE_BLOCK_NUMBERS_MAX + 41
    before = draws()
    for _ in range(50):
        orders.insert()
    assert draws() <= before + 1


@pytest.mark.on_each_engine
def test_numbers_are_drawn_again_where_the_catalog_has_changed_meanwhile(
    workspace: Workspace, db: Database
) -> None:
    orders = db.table("orders")
    for number in range(1, 5):
        with workspace.open() as other:
            other.admin.set_setting("change_log", "on" if number % 2 else "off")
            other.table("orders").insert(id=10 * number, number=10 * number)
        assert orders.insert().id > 10 * (number - 1)


@pytest.mark.on_each_engine
def test_processes_have_blocks_of_their_own(workspace: Workspace, db: Database) -> None:
    mine, others = db.table("orders"), workspace.open().table("orders")
    drawn = [(table.insert().id, table) for _ in range(20) for table in (mine, others)]
    assert len({number for number, _ in drawn}) == 40
    for table in (mine, others):
        rising = [number for number, of in drawn if of is table]
        assert rising == sorted(rising)


@pytest.mark.on_each_engine
def test_threads_of_a_process_never_get_one_number_twice(db: Database) -> None:
    found = list[int]()

    def insert() -> None:
        found.extend([db.table("orders").insert().id for _ in range(25)])

    threads = [threading.Thread(target=insert) for _ in range(4)]
    for thread in threads:
        thread.start()
    finish(*threads)
    assert len(set(found)) == len(found) == db.table("orders").count() == 100


def test_tenants_count_for_themselves(workspace: Workspace, db: Database) -> None:
    db.table("orders").insert_many([{}] * 5)
    db.admin.create_tenant("second")
    second = workspace.open(tenant="second")
    assert second.table("orders").insert().id == 1
    assert db.table("orders").insert().id == 6
    second.close()
    db.admin.remove_tenant("second")
    assert {tenant for (tenant,) in workspace.execute("SELECT tenant FROM zapdb_sequences")} == {1}


@pytest.mark.on_each_engine
def test_asynchronous_calls_draw_from_the_same_sequence(workspace: Workspace, db: Database) -> None:
    async def insert() -> list[int]:
        opened = zapdb.aio.open(workspace.address, migrations=workspace.directory)
        async with await opened as other:
            orders = other.table("orders")
            made = await asyncio.gather(*[orders.insert() for _ in range(10)])
            async with other.transaction() as tx:
                made.append(await tx.table("orders").insert())
            return [order.id for order in made]

    found = asyncio.run(insert())
    assert len(set(found)) == 11
    assert found[-1] == max(found) < db.table("orders").insert().id


# Explicit numbers


def test_an_explicit_number_moves_the_sequence_on(workspace: Workspace, db: Database) -> None:
    orders, other = db.table("orders"), workspace.open().table("orders")
    orders.insert(id=41)
    assert orders.insert().id == 42
    assert other.insert().id > 42
    orders.insert_many([{"id": 100, "text": "a"}, {"text": "b"}, {"id": 90}])
    assert orders.where(text="b").one().id == 101
    orders.upsert(id=200)
    assert orders.insert().id == 201
    orders.update(201, number=300)
    assert orders.insert().number == 301
    orders.where(orders.f.id == 201).update(number=400)
    assert orders.insert().number == 401
    orders.insert(id=-7, number=0)
    orders.insert(id=7)
    assert (orders.insert().id, other.insert().number > 402) == (204, True)


@pytest.mark.on_each_engine
def test_an_explicit_number_of_a_short_process_leaves_no_gap(
    workspace: Workspace, db: Database
) -> None:
    for given in ({"id": 50}, {}, {"id": 70, "number": 70}, {}):
        with workspace.open() as other:
            other.table("orders").insert(**given)
    assert [number for number, _ in numbers_of(db)] == [50, 51, 70, 71]


@pytest.mark.parametrize("engine", ["postgresql"])
def test_what_moved_a_sequence_on_need_not_be_committed(db: Database) -> None:
    orders = db.table("orders")
    insert_undone(db, lambda orders: orders.insert(id=50))
    assert orders.insert().id == 51


@pytest.mark.parametrize("engine", ["postgresql"])
def test_a_stream_of_explicit_numbers_draws_seldom(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    orders, draws = db.table("orders"), count_draws(monkeypatch)
    for number in range(1, 201):
        orders.insert(id=number, number=number)
    assert draws() <= 2 * 9
    assert (orders.insert().id, orders.count()) == (201, 201)


@pytest.mark.parametrize("engine", ["postgresql"])
def test_a_number_in_hand_that_was_used_explicitly_is_passed_over(
    workspace: Workspace, db: Database
) -> None:
    orders, other = db.table("orders"), workspace.open().table("orders")
    orders.insert_many([{}] * 4)
    orders.insert()  # 6 to 8 are in hand now
    for taken in (6, 7):
        other.insert(id=taken, text="explicit")
    drawn = orders.insert(text="drawn").id
    assert drawn > 8
    assert other.get(6).text == "explicit"
    other.insert(id=drawn + 1, text="explicit")
    with db.transaction() as tx:
        tx.table("orders").insert_many([{}, {}])
        assert tx.table("orders").upsert(text="new").text == "new"
    assert orders.get(drawn + 1).text == "explicit"
    assert len({order.id for order in orders}) == orders.count() == 12


@pytest.mark.parametrize("engine", ["postgresql"])
def test_a_number_of_a_unique_index_that_was_used_is_passed_over(
    workspace: Workspace, db: Database
) -> None:
    index = "table: orders, index: by_number, fields: [{field: number}], unique: true"
    workspace.write(2, f"create_index: {{{index}}}")
    db.close()
    db = workspace.open()
    db.admin.run_jobs()
    orders, other = db.table("orders"), workspace.open().table("orders")
    orders.insert_many([{}] * 4)
    orders.insert()
    other.insert(id=1_000, number=6)
    assert orders.insert().number > 8
    with pytest.raises(UniqueViolation, match="same values in a unique index"):
        orders.insert(number=6)


def test_an_explicit_key_that_is_there_is_the_callers_mistake(db: Database) -> None:
    orders = db.table("orders")
    orders.insert()
    with pytest.raises(RecordExists):
        orders.insert(id=1)
    with pytest.raises(RecordExists):
        orders.insert_many([{}, {"id": 1}])
    assert orders.count() == 1


def test_rows_that_are_refused_give_their_numbers_back(workspace: Workspace) -> None:
    """A batch with wrong rows is tried again in halves, many times: each took other numbers, and
    began anew when its block had no more."""
    check = "check: known, expression: \"text is None or text != 'wrong'\""
    workspace.write(1, ORDERS, f"add_check: {{table: orders, {check}}}")
    orders = workspace.open().table("orders")
    for number in range(1, 4):
        with pytest.raises(ConstraintViolation):
            orders.insert(text="wrong")
        assert orders.insert().id == number
    rows = pyarrow.table({"text": ["wrong" if n % 7 == 0 else "right" for n in range(150)]})
    skipped = list[SkippedRow]()
    report = orders.import_from(rows, skipped=skipped)
    assert (report.written, len(skipped)) == (128, 22)
    assert sorted(order.id for order in orders) == list(range(1, 132))
    report = orders.import_from(pyarrow.table({"id": [131, 132]}), skipped=skipped)
    assert (report.written, len(skipped)) == (1, 1)


@pytest.mark.parametrize("wrong", ["7", 7.0, True, None])
def test_what_is_no_number_is_refused_and_moves_nothing(db: Database, wrong: object) -> None:
    orders = db.table("orders")
    with pytest.raises(InvalidValue):
        orders.insert(id=wrong)
    assert orders.insert().number <= 2


# The end


def test_the_last_number_is_given_and_then_none(workspace: Workspace, db: Database) -> None:
    orders = db.table("orders")
    orders.insert(id=SEQUENCE_MAX - 2)
    assert [orders.insert().id for _ in range(2)] == [SEQUENCE_MAX - 1, SEQUENCE_MAX]
    for table in (orders, workspace.open().table("orders")):
        with pytest.raises(SequenceExhausted) as caught:
            table.insert()
        assert caught.value.context == {"field": "orders.id", "last": SEQUENCE_MAX}
    assert orders.insert(id=5).id == 5
    orders.insert(id=SEQUENCE_MAX + 1)
    with pytest.raises(SequenceExhausted):
        orders.insert_many([{}])
    assert orders.count() == 5


def test_numbers_beyond_the_end_do_not_move_the_sequence(db: Database) -> None:
    orders = db.table("orders")
    orders.insert(id=2**70, number=-(2**70))
    assert (orders.insert().id, last_number(db)) == (1, 2**70)


def last_number(db: Database) -> Any:
    return db.table("orders").max("id")


def test_a_batch_at_the_end_takes_what_there_is_or_nothing(db: Database) -> None:
    orders = db.table("orders")
    orders.insert(id=SEQUENCE_MAX - 3)
    with pytest.raises(SequenceExhausted):
        orders.insert_many([{}] * 4)
    orders.insert_many([{}] * 3)
    assert last_number(db) == SEQUENCE_MAX


# Rollbacks


@pytest.mark.parametrize("engine", ["postgresql"])
def test_a_number_of_a_transaction_that_was_rolled_back_is_never_given_again(
    workspace: Workspace, db: Database
) -> None:
    given, others = list[int](), workspace.open().table("orders")
    for count in (1, 5, 2, 30):
        given += insert_undone(db, insert_some(count))
        given += [others.insert().id, db.table("orders").insert().id]
    assert len(set(given)) == len(given)


@pytest.mark.parametrize("engine", ["postgresql"])
@pytest.mark.parametrize("options", ["", "&prepared_statements=off"])
def test_what_is_left_of_a_block_is_thrown_away_with_a_rollback(
    workspace: Workspace, db: Database, options: str
) -> None:
    """Another process may have drawn the same block between ROLLBACK and moving the row on."""
    workspace.address += options
    other = workspace.open()
    insert_undone(other, insert_some(3))
    found = workspace.execute("SELECT last FROM zapdb_sequences ORDER BY field")
    order = other.table("orders").insert()
    assert [n > int(last) for n, (last,) in zip((order.id, order.number), found, strict=True)] == [
        True,
        True,
    ]


NOT_MOVED_ON = (
    "CREATE TABLE stopped ()",
    "CREATE FUNCTION stop() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
    " IF EXISTS (SELECT FROM stopped) THEN RAISE 'not now'; END IF; RETURN NEW; END $$",
    "CREATE TRIGGER stop BEFORE INSERT OR UPDATE ON zapdb_sequences"
    " FOR EACH ROW EXECUTE FUNCTION stop()",
)


@pytest.mark.parametrize("engine", ["postgresql"])
@pytest.mark.parametrize("options", ["", "&prepared_statements=off"])
@pytest.mark.parametrize("is_savepoint", [False, True])
def test_numbers_are_drawn_another_time_where_a_rollback_can_not_move_the_row_on(
    workspace: Workspace, db: Database, options: str, is_savepoint: bool
) -> None:
    for statement in NOT_MOVED_ON:
        workspace.execute(statement)
    workspace.address += options
    own, others = workspace.open(), db.table("orders")

    def insert(orders: Table) -> list[int]:
        given = insert_some(3)(orders)
        workspace.execute("INSERT INTO stopped DEFAULT VALUES")
        return given

    if is_savepoint:
        with own.transaction(), suppress(TransactionConflict):
            insert_undone(own, insert)
    else:
        insert_undone(own, insert)
    with pytest.raises(StorageError, match="not now"):
        others.insert()
    workspace.execute("DELETE FROM stopped")
    given = [orders.insert().id for _ in range(60) for orders in (own.table("orders"), others)]
    assert len(set(given)) == len(given) == others.count()


@pytest.mark.parametrize("engine", ["postgresql"])
def test_numbers_outlive_the_savepoint_that_drew_them(workspace: Workspace, db: Database) -> None:
    orders, given = db.table("orders"), list[int]()
    with db.transaction() as tx:
        table = tx.table("orders")
        given.append(table.insert().id)
        given += insert_undone(db, insert_some(20))
        given.append(table.insert().id)
        with pytest.raises(InvalidValue):
            table.insert_many([{"text": "x"}] * 50 + [{"text": 5}])
        given.append(table.insert().id)
    assert given == sorted(set(given))
    given += [workspace.open().table("orders").insert().id, orders.insert().id]
    assert len(set(given)) == len(given)
    assert orders.count() == 5


@pytest.mark.parametrize("engine", ["postgresql"])
def test_a_savepoint_that_is_rolled_back_leaves_its_block_drawn(
    workspace: Workspace, db: Database
) -> None:
    with db.transaction():
        given = insert_undone(db, insert_some(20))
    given += insert_some(20)(workspace.open().table("orders"))
    given += insert_some(20)(db.table("orders"))
    assert len(set(given)) == len(given)


# Without gaps


@pytest.mark.parametrize("engine", ["sqlite"])
def test_on_sqlite_committed_numbers_have_no_gaps_and_rise_with_commits(
    workspace: Workspace, db: Database
) -> None:
    """Whatever was rolled back, in whole or in part, or refused, in whichever process."""
    found, databases = list[int](), (db, workspace.open())
    drawn = random.Random(34)
    for turn in range(80):
        own = drawn.choice(databases)
        orders = own.table("orders")
        match drawn.choice(("one", "many", "undone", "inside", "refused", "closed")):
            case "one":
                found.append(orders.insert().id)
            case "many":
                orders.insert_many([{"text": f"{turn}"}] * 3)
                found += sorted(order.id for order in orders.where(text=f"{turn}"))
            case "undone":
                insert_undone(own, insert_some(4))
            case "inside":
                with own.transaction() as tx:
                    found.append(tx.table("orders").insert().id)
                    insert_undone(own, insert_some(2))
                    with pytest.raises(InvalidValue):
                        tx.table("orders").insert_many([{"text": "x"}, {"text": 5}])
                    found.append(tx.table("orders").insert().id)
            case "refused":
                with pytest.raises(InvalidValue):
                    orders.insert(text=5)
            case "closed":
                with workspace.open() as short:
                    found.append(short.table("orders").insert().id)
    assert found == list(range(1, len(found) + 1))
    assert numbers_of(db) == [(n, n) for n in found]


@pytest.mark.parametrize("engine", ["sqlite"])
def test_on_sqlite_a_number_that_a_record_has_already_is_passed_over(
    workspace: Workspace, db: Database
) -> None:
    """A sequence whose row is behind, as nothing but a foreign program leaves it."""
    orders = db.table("orders")
    orders.insert_many([{}] * 5)
    workspace.execute("UPDATE zapdb_sequences SET last = 2, block_after = 2")
    assert orders.insert().id == 6
    assert orders.insert().id == 7


@pytest.mark.parametrize("engine", ["sqlite"])
def test_on_sqlite_no_connection_is_waited_for(workspace: Workspace, db: Database) -> None:
    db.close()
    with workspace.open(max_connections=1) as alone, alone.transaction() as tx:
        assert [tx.table("orders").insert().id for _ in range(5)] == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("engine", ["postgresql"])
def test_who_lacks_numbers_waits_for_a_transaction_that_drew_and_not_for_ever(
    workspace: Workspace, db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The transaction may wait for the very thread that lacks them: nobody but this can end it."""
    monkeypatch.setattr(generated_values, "SEQUENCE_LOCK_TIMEOUT_MS", 10)
    orders, other = db.table("orders"), workspace.open().table("orders")
    with db.transaction() as tx:
        tx.table("orders").count()
        mine = [tx.table("orders").insert().id for _ in range(3)]
        with ThreadPoolExecutor(1) as threads:
            error = threads.submit(lambda: error_of(orders.insert)).result()
        assert isinstance(error, TransactionConflict)
        assert error.context["cause"] == "LockNotAvailable"
        mine += [tx.table("orders").insert().id for _ in range(30)]
    with ThreadPoolExecutor(4) as threads:
        found = [made.result().id for made in [threads.submit(orders.insert) for _ in range(9)]]
    found += [other.insert().id for _ in range(5)]
    assert mine == sorted(mine)
    assert len({*mine, *found}) == len(mine) + len(found) == orders.count()
    assert max(mine) < min(found)  # also what its block has left rises


# Migrations


@pytest.mark.on_each_engine
def test_rule_18_records_that_are_older_than_a_sequence_get_a_constant(
    workspace: Workspace,
) -> None:
    fields = "{name: id, type: integer}, {name: text, type: string, optional: true}"
    workspace.write(1, f"create_table: {{table: orders, key: [id], fields: [{fields}]}}")
    db = workspace.open()
    db.table("orders").insert_many([{"id": 1}, {"id": 70}])
    number = "{name: number, type: integer, generated: sequence}"
    workspace.write(2, f"add_field: {{table: orders, field: {number}, fill: {{value: 5}}}}")
    maybe = "{name: maybe, type: integer, generated: sequence, optional: true}"
    workspace.write(3, f"add_field: {{table: orders, field: {maybe}}}")
    of_id = "{name: of_id, type: integer, generated: sequence}"
    of_id = f"{{table: orders, field: {of_id}, fill: {{expression: id * 10}}}}"
    workspace.write(4, f"add_field: {of_id}")
    newer = workspace.open().table("orders")
    assert [(o.number, o.maybe, o.of_id) for o in newer] == [(5, None, 10), (5, None, 700)]
    made = newer.insert(id=2)
    assert (made.number, made.maybe, made.of_id) == (6, 1, 701)  # above all that is there


@pytest.mark.on_each_engine
def test_rule_11_older_processes_draw_numbers_that_they_do_not_see(workspace: Workspace) -> None:
    fields = "{name: id, type: integer}, {name: text, type: string, optional: true}"
    workspace.write(1, f"create_table: {{table: orders, key: [id], fields: [{fields}]}}")
    older = workspace.open()
    number = "{name: number, type: integer, generated: sequence}"
    at = "{name: at, type: timestamp, default: now}"
    then = "fill: {value: '2000-01-01T00:00:00+00:00'}"
    workspace.write(
        2,
        f"add_field: {{table: orders, field: {number}, fill: {{value: 0}}}}",
        f"add_field: {{table: orders, field: {at}, {then}}}",
    )
    older.table("orders").insert(id=1)
    newer = workspace.open().table("orders")
    newer.insert(id=2)
    older.table("orders").insert(id=3)
    older.table("orders").insert_many([{"id": 4}, {"id": 5}])
    with older.transaction() as tx:
        tx.table("orders").insert(id=6)
    older.table("orders").update(3, text="changed")
    found = newer.order_by("id").all()
    assert found[0].number == 0
    assert len({order.number for order in found}) == 6
    assert [order.at.year == 2000 for order in found] == [True] + [False] * 5


@pytest.mark.on_each_engine
def test_a_sequence_goes_on_where_it_was_when_its_field_comes_back(workspace: Workspace) -> None:
    workspace.write(1, ORDERS)
    db = workspace.open()
    db.table("orders").insert_many([{}] * 9)
    drop = "drop_field: {table: orders, field: number, restore: {archive: true, otherwise: %s}}"
    workspace.write(2, drop % "{value: 0}")
    db.close()
    db = workspace.open()
    db.table("orders").insert()
    restore = "{table: orders, field: number, archived_by: 2, otherwise: {value: 0}}"
    workspace.write(3, f"restore_field: {restore}")
    db.close()
    orders = workspace.open().table("orders")
    assert [order.number for order in orders] == [*range(1, 10), 0]
    assert orders.insert().number == 10


def test_a_sequence_goes_with_its_field_when_that_is_rolled_back(workspace: Workspace) -> None:
    workspace.write(1, ORDERS)
    workspace.write(
        2,
        "add_field: {table: orders, field: {name: gone, type: integer, generated: sequence,"
        " optional: true}}",
        "create_table: {table: others, key: [id], fields: [{name: id, type: integer,"
        " generated: sequence}]}",
    )
    with workspace.open() as db:
        db.table("orders").insert()
        db.table("others").insert()
        schemas = [descriptor.schema for descriptor in db._session.catalog.tables.values()]
    names = {f.number: f"{schema.name}.{f.name}" for schema in schemas for f in schema.fields}
    workspace.write(
        3,
        "drop_field: {table: orders, field: number, restore: {archive: true,"
        " otherwise: {value: 0}}}",
    )
    workspace.open().close()

    def sequences() -> set[str]:
        rows = workspace.execute("SELECT field FROM zapdb_sequences")
        return {names[field] for (field,) in rows}

    every = {"orders.id", "orders.number", "orders.gone", "others.id"}
    assert sequences() == every
    for left in (every, {"orders.id", "orders.number"}):
        roll_back(workspace.control)
        assert sequences() == left


# Several processes


def start(workspace: Workspace, seed: int, operations: int) -> subprocess.Popen[str]:
    given = [workspace.address, str(workspace.directory), str(seed), str(operations)]
    command = [sys.executable, "-m", "tests.contract.numbering", *given]
    return processes.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)


def read_told(process: subprocess.Popen[str]) -> list[tuple[str, int, int]]:
    assert process.stdout is not None
    with process.stdout:
        told = [line.split() for line in process.stdout.read().splitlines(keepends=True)]
    process.wait()
    return [(line[0], int(line[1]), int(line[2])) for line in told if len(line) == 3]


@pytest.mark.on_each_engine
def test_numbers_of_several_processes_under_kills(workspace: Workspace, db: Database) -> None:
    """No number is drawn twice, whatever becomes of transactions and processes, but on SQLite those
    of transactions that were rolled back."""
    counted = "+" if workspace.engine == "sqlite" else "+-"
    given, rising = list[tuple[str, int, int]](), True
    for turn in range(6 if forms.is_long else 1):
        processes = [start(workspace, turn * 10 + n, 25 + 10_000 * (n % 2)) for n in range(4)]
        for process in processes:
            assert process.stdout is not None
            assert process.stdout.readline() == "open\n"
        told = {n: read_told(processes[n]) for n in (0, 2)}  # they end by themselves
        time.sleep(0.03 * turn)
        for n in (1, 3):
            processes[n].kill()
            told[n] = read_told(processes[n])
        for lines in told.values():
            given += lines
            drawn = [number for sign, number, _ in lines if sign in counted]
            rising = rising and drawn == sorted(drawn)
    drawn = [number for sign, number, _ in given if sign in counted]
    assert rising
    assert len(set(drawn)) == len(drawn) > 50
    stored = {order.id: order for order in db.table("orders")}
    for sign, key, number in given:
        if sign != "-":
            assert stored[key].number == number
        else:
            is_given_again = workspace.engine == "sqlite"
            assert is_given_again or key not in stored or stored[key].text == EXPLICIT
    (report,) = db.admin.verify()
    assert report.problems == ()


# The moment of the insert


@pytest.mark.on_each_engine
def test_a_new_record_has_the_moment_of_its_insert(workspace: Workspace) -> None:
    workspace.write(1, MADE)
    visits = workspace.open().table("visits")
    before = datetime.datetime.now(datetime.UTC)
    first = visits.insert(id=1)
    after = datetime.datetime.now(datetime.UTC)
    assert before <= first.at <= after
    assert first.at == first.maybe == first.there
    assert first.there.utcoffset() == after.astimezone(ZoneInfo("Europe/Vienna")).utcoffset()
    given = datetime.datetime(2020, 2, 2, tzinfo=datetime.UTC)
    second = visits.insert(id=2, at=given, maybe=None)
    assert (second.at, second.maybe) == (given, None)
    visits.insert_many([{"id": 3}, {"id": 4, "at": given}])
    assert visits.get(3).at >= after
    assert visits.get(4).at == given
    assert visits.get(3).there == visits.get(4).there


def test_an_update_makes_no_value(workspace: Workspace) -> None:
    key = "{name: key, type: uuid, generated: true}"
    workspace.write(1, MADE.replace("{name: text", f"{key}, {{name: text"))
    visits = workspace.open().table("visits")
    first = visits.insert(id=1)
    assert visits.update(1, text="a").at == first.at
    changed = visits.upsert(id=1, text="b")
    assert (changed.at, changed.key) == (first.at, first.key)
    assert visits.upsert(id=2).at > first.at


@pytest.mark.on_each_engine
def test_rule_18_older_records_get_the_fill_and_new_ones_the_moment(workspace: Workspace) -> None:
    workspace.write(1, "create_table: {table: t, key: [id], fields: [{name: id, type: integer}]}")
    db = workspace.open()
    db.table("t").insert(id=1)
    at = "{name: at, type: timestamp, default: now}"
    maybe = "{name: maybe, type: timestamp, default: now, optional: true}"
    then = datetime.datetime(2000, 1, 1, tzinfo=datetime.UTC)
    workspace.write(
        2,
        f"add_field: {{table: t, field: {at}, fill: {{value: '{then.isoformat()}'}}}}",
        f"add_field: {{table: t, field: {maybe}}}",
    )
    db.close()
    db = workspace.open()
    found = db.table("t").get(1)
    assert (found.at, found.maybe) == (then, None)
    made = db.table("t").insert(id=2)
    assert made.at == made.maybe > then
    workspace.write(3, "change_default: {table: t, field: at, remove: true}")
    db.close()
    with pytest.raises(InvalidValue, match="a required field is missing"):
        workspace.open().table("t").insert(id=3)
