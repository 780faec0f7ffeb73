"""The past as the history store has it: `db.at` and `past.sql` against every past state."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from uuid import uuid4

import pytest
from pyarrow import parquet

import zapdb
from tests.contract.every_type import make_shop
from tests.contract.history_oracle import check_reconstruction
from tests.contract.stored_pasts import (
    begin,
    flush,
    read_little_at_a_time,
    read_manifest,
    write_some,
)
from tests.contract.tables import ADD_COLOR, DROP_NOTE, INDEX_SIZE, ITEMS, RENAME_SIZE
from tests.forms import cases
from tests.support import Workspace
from zapdb.activation.rollback import roll_back
from zapdb.database import Database
from zapdb.errors import (
    HistoryBehind,
    HistoryDamaged,
    HistoryGap,
    HistoryNotStored,
    HistoryPurged,
    HistoryUnavailable,
    HistoryUnreachable,
    InvalidValue,
    MomentInFuture,
    UnknownName,
)

Rows = list[dict[str, Any]]
State = dict[str, Rows]
"""By table, its records in the order of keys."""

LATER = (
    "create_table: {table: owners, key: [name], fields: [{name: name, type: string},"
    " {name: item, type: integer, optional: true}]}",
    RENAME_SIZE,
    INDEX_SIZE.replace("size", "extent"),
    ADD_COLOR,
    "rename_table: {table: owners, to: persons}",
    DROP_NOTE,
    "reorder_field: {table: items, field: color, position: 1}",
    "change_type: {table: items, field: extent, type: string, default: '0', up: 'text(extent)',"
    " down: 'length(extent)', reversibility: lossy, because: a test}",
    "drop_table: {table: persons, records: archive}",
    "create_table: {table: persons, key: [id], fields: [{name: id, type: integer}]}",
)


def read_state(source: Any) -> State:
    return {
        name: [zapdb.asdict(record) for record in source.table(name).scan()]
        for name in source.tables
    }


def read_stored(past: Any, name: str) -> Rows | None:
    """The records of a table from the store, even where they could be rewound; None without one."""
    session = past._session
    stored = session._open_stored(session.then.find(name))
    if stored is None:
        return None
    connection = session.storage.connection()
    found, after = [], b""
    while page := stored.records.scan_page(connection, after)[1]:
        found += [zapdb.asdict(stored.adapter.reader.read(*row)) for row in page]
        after = page[-1][0]
    return found


def ask_sql(past: Any, name: str, rows: Rows) -> Rows:
    """The records of a table by SQL, in the order of its key."""
    schema = past.schema(name)
    key = ", ".join(field.name for field in schema.key_fields)
    answer = past.sql(f"SELECT * FROM {name} ORDER BY {key}")
    assert answer.columns == tuple(field.name for field in schema.fields)
    return [dict(zip(answer.columns, row, strict=True)) for row in answer]


@dataclass
class Life:
    """A database that is changed at random, with every state that it had, by moment."""

    workspace: Workspace
    rnd: random.Random
    directory: Path
    later: list[str]
    number: int = 1
    states: dict[int, State] = field(default_factory=dict)
    has_store: bool = False

    def __post_init__(self) -> None:
        self.workspace.write(1, ITEMS)
        self.db = self.workspace.open()
        self.db.admin.set_setting("change_log", "on")
        self.note()

    def note(self) -> None:
        self.states[next(self.db.moments()).number] = read_state(self.db)

    def step(self) -> None:
        chance = self.rnd.random()
        if chance < 0.12 and self.later:
            self.migrate()
        elif chance < 0.3 and self.has_store:
            flush(self.db)
        else:
            self.write()
        self.note()

    def migrate(self) -> None:
        self.number += 1
        self.workspace.write(self.number, self.later.pop(0))
        self.db.close()
        self.db = self.workspace.open()
        if self.rnd.random() < 0.5:
            self.note()
            self.db.admin.run_jobs()

    def write(self) -> None:
        write_some(self.db, self.rnd)
        if self.rnd.random() < 0.3:
            self.db.change_log.end()

    def begin(self) -> None:
        begin(self.db, self.directory)
        self.has_store = True
        self.note()


@pytest.mark.parametrize("seed", range(cases(4)))
def test_every_moment_is_what_it_was(
    workspace: Workspace, tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """H1, H2, H4, H5, H9: by rewinding, by the store and by its tail, records and SQL alike."""
    life = Life(workspace, random.Random(seed), tmp_path / "store", list(LATER))
    for _ in range(4):
        life.step()
    life.begin()
    is_merged = (seed + (workspace.engine == "sqlite")) % 2 == 1
    if is_merged:  # and new eras begin
        read_little_at_a_time(monkeypatch)
        life.db.admin.set_setting("history_store_flush_changes", "20")
    began = max(life.states)
    for _ in range(cases(4)):
        life.step()
    while life.later:
        life.migrate()
        life.write()
        life.note()
    flush(life.db)
    for _ in range(3):
        life.write()
        life.note()
    counted = check_life(life, began)
    assert counted["stored"] > 15
    assert counted["tail"] > 2
    assert counted["rewound"] > 2
    flush(life.db)
    kinds = {file.kind for file in read_manifest(life.db)[2]}
    assert ("ended" in kinds) == is_merged
    counted = check_life(life, began)
    assert counted["refused"] == 0
    assert counted["tail"] == 0
    kept = {moment: state for moment, state in life.states.items() if moment >= began}
    assert check_reconstruction(life.db, kept) > 10
    check_differences(life, list(kept))


def check_differences(life: Life, moments: list[int]) -> None:
    """Of moments before and after migrations, which the log alone does not tell."""
    db, rnd = life.db, random.Random(6)
    for _ in range(6):
        first, second = rnd.sample(moments, 2)
        told: dict[tuple[int, Any], Any] = {}
        for one in db.diff(first, second):
            schema = one.schema_after or one.schema_before
            assert schema is not None
            pair = [None if r is None else zapdb.asdict(r) for r in (one.before, one.after)]
            told[schema.number, one.key] = pair
        assert told == expect_differences(life, first, second), (first, second)


def expect_differences(life: Life, first: int, second: int) -> dict[tuple[int, Any], Any]:
    sides: list[dict[int, Any]] = []
    for moment in (first, second):
        past, side = life.db.at(moment), dict[int, Any]()
        for name, rows in life.states[moment].items():
            schema = past.schema(name)
            keys = [one.name for one in schema.key_fields]
            numbers = {one.name: one.number for one in schema.fields}
            types = {one.number: one.type for one in schema.fields}
            held = {tuple(row[key] for key in keys): row for row in rows}
            side[schema.number] = (numbers, held, types)
        sides.append(side)
    found = {}
    for table in sides[0].keys() | sides[1].keys():
        (named, before, types), (names, after, kinds) = (
            side.get(table, ({}, {}, {})) for side in sides
        )
        for key in before.keys() | after.keys():
            one, other = before.get(key), after.get(key)
            if one is not None and other is not None:
                was = {named[name]: value for name, value in one.items()}
                now = {names[name]: value for name, value in other.items()}
                if all(
                    was[number] == now[number] and types[number] == kinds[number]
                    for number in was.keys() & now.keys()
                ):
                    continue
            found[table, key] = [one, other]
    return found


def check_life(life: Life, began: int) -> dict[str, int]:
    db, rnd = life.db, random.Random(5)
    counted = {"stored": 0, "tail": 0, "rewound": 0, "refused": 0}
    store, _, _ = read_manifest(db)
    for moment, state in life.states.items():
        if moment < began:
            continue
        past = db.at(moment)
        assert set(past.tables) == set(state), moment
        for name, rows in state.items():
            try:
                told = [zapdb.asdict(record) for record in past.table(name).scan()]
            except HistoryBehind:  # a migration behind the files has made its values
                assert moment > store.ends
                counted["refused"] += 1
                continue
            assert told == rows, (moment, name)
            counted["tail" if moment > store.ends else "stored"] += 1
            if past._session.then.find(name).obstacle is None:
                counted["rewound"] += 1
                assert read_stored(past, name) in (rows, None), (moment, name)
            for row in rnd.sample(rows, min(2, len(rows))):
                key = [row[one.name] for one in past.schema(name).key_fields]
                assert zapdb.asdict(past.table(name).get(*key)) == row
            if rnd.random() < 0.2:
                assert ask_sql(past, name, rows) == rows, (moment, name)
        assert past.exact
    return counted


# What is read of it


BIG = {"id": 3, "title": "big" * 4_000, "size": 2**70, "note": None}


def keep(workspace: Workspace, directory: Path) -> tuple[Database, int]:
    """A store of which a migration has made rewinding impossible; returns the moment before."""
    workspace.write(1, ITEMS, INDEX_SIZE)
    db = workspace.open()
    db.admin.set_setting("change_log", "on")
    items = db.table("items")
    items.insert_many([{"id": n, "title": f"t{n}", "size": n} for n in range(4, 10)])
    begin(db, directory)
    items.insert(**BIG)
    items.update(4, note="n", size=40)
    moment = next(db.moments()).number
    items.delete(5)
    items.update(3, title="small", size=0)
    flush(db)
    workspace.write(2, ADD_COLOR, "rename_table: {table: items, to: goods}")
    db.close()
    return workspace.open(), moment


def test_queries_arrow_and_sql(workspace: Workspace, tmp_path: Path) -> None:
    db, moment = keep(workspace, tmp_path / "store")
    past = db.at(moment)
    items = past.table("items")
    assert items.count() == 7
    assert [r.id for r in items.scan()] == [3, 4, 5, 6, 7, 8, 9]
    assert [r.id for r in items.order_by("-id").limit(3)] == [9, 8, 7]
    assert [r.id for r in items.where(items.f.id > 4, items.f.id < 7)] == [5, 6]
    assert [r.id for r in items.order_by("-size").limit(2)] == [3, 4]
    assert [r.id for r in items.using("by_size").reverse()][:2] == [3, 4]
    page = items.order_by("id").page(4)
    assert [r.id for r in items.order_by("id").page(4, page.cursor)] == [7, 8, 9]
    assert zapdb.asdict(items.get(3)) == BIG
    assert zapdb.asdict(next(items.scan())) == BIG
    assert [r and r.id for r in items.get_many([9, 1, 3])] == [9, None, 3]
    assert (items.exists(5), items.exists(1), items.exists()) == (True, False, True)
    assert items.where(items.f.note == "n").count() == 1
    assert items.open(3, field="title").read() == BIG["title"].encode()
    assert items.to_arrow(["id", "title"]).read_all().column("title")[0].as_py() == BIG["title"]
    assert past.table(like=db.table("goods")).get(4).note == "n"
    assert past.tables == ("items",)
    with pytest.raises(UnknownName, match="items"):
        past.table("goods")
    assert past.sql("SELECT count(*), max(length(title)) FROM items").fetchall() == [(7, 12_000)]
    assert past.sql(
        "SELECT a.id FROM items a JOIN items b ON a.id = b.id + 1 WHERE b.title = ?", ["t5"]
    ).fetchall() == [(6,)]
    sizes = "SELECT size FROM items ORDER BY id LIMIT 1"
    assert past.sql(sizes, as_text=["items.size"]).fetchone() == (str(2**70),)
    with pytest.raises(InvalidValue, match="too large") as caught:
        past.sql(sizes)
    assert "items.size" in caught.value.hint
    assert past.sql("show tables").fetchall()[0] == ("items",)
    with db.snapshot():
        assert past.table("items").count() == 7
        assert past.sql("SELECT count(*) FROM items").fetchone() == (7,)


def test_differences_have_the_schemas_of_their_moments(
    workspace: Workspace, tmp_path: Path
) -> None:
    """Of a field that was gone and came back in between, and of a table that was made there."""
    workspace.write(1, ITEMS)
    db = workspace.open()
    db.admin.set_setting("change_log", "on")
    db.table("items").insert(id=1, title="t", note="n")
    begin(db, tmp_path / "store")
    states = {next(db.moments()).number: read_state(db)}
    steps = (LATER[0], DROP_NOTE, None, ADD_COLOR.replace("items", "owners"))
    for number, operation in zip((2, 3, 3, 3), steps, strict=True):
        db.close()
        if operation is None:
            workspace.remove(3)
            roll_back(workspace.control)
        else:
            workspace.write(number, operation)
        db = workspace.open()
        if operation == LATER[0]:
            db.table("owners").insert(name="o", item=1)
        elif operation == DROP_NOTE:
            db.table("items").update(1, title="u")
        flush(db)
    moments = [*states, next(db.moments()).number]
    states[moments[1]] = read_state(db)
    for pair in (moments, moments[::-1]):
        told = {one.table: (one.before, one.after) for one in db.diff(*pair)}
        made = {name: [one and zapdb.asdict(one) for one in sides] for name, sides in told.items()}
        wanted = [[states[moment].get(name, [None])[0] for moment in pair] for name in made]
        assert made == dict(zip(("items", "owners"), wanted, strict=True))


def test_what_the_store_has_not_is_refused(workspace: Workspace, tmp_path: Path) -> None:
    """H6, H7: each with what there is instead."""
    db, moment = keep(workspace, tmp_path / "store")
    store, _, _ = read_manifest(db)
    with pytest.raises(HistoryNotStored, match=f"begins: {store.begins}"):
        db.at(store.begins - 1).table("items")
    with pytest.raises(MomentInFuture):
        db.at(10**9)
    goods = db.table("goods")
    db.admin.set_setting("change_log", "off")
    goods.update(6, title="unseen")
    flush(db)
    db.admin.set_setting("change_log", "on")
    gap = next(db.moments()).number
    flush(db)
    goods.update(6, title="seen")
    for number in (moment, next(db.moments()).number):
        assert db.at(number).table(like=goods).get(6).id == 6
    with pytest.raises(HistoryGap, match="not recorded"):
        db.at(gap - 1).table("goods")
    workspace.execute("UPDATE zapdb_history_stores SET purged_before = ?", [moment + 1])
    for refused in (
        lambda: db.at(moment).table("items"),
        lambda: db.at(moment).sql("SELECT 1 FROM items"),
    ):
        with pytest.raises(HistoryPurged, match=f"kept_from: {moment + 1}"):
            refused()


def test_h7_changes_behind_the_files_are_not_read_over_a_gap(
    workspace: Workspace, tmp_path: Path
) -> None:
    workspace.write(1, ITEMS)
    db = workspace.open()
    db.admin.set_setting("change_log", "on")
    db.table("items").insert(id=1, title="t")
    begin(db, tmp_path / "store")
    db.admin.set_setting("change_log", "off")
    db.table("items").insert(id=2, title="unseen")
    db.admin.set_setting("change_log", "on")
    db.table("items").insert(id=3, title="t")
    moment = next(db.moments()).number
    assert db.at(moment).sql("SELECT count(*) FROM items").fetchone() == (3,)
    workspace.write(2, ADD_COLOR)
    db.close()
    db = workspace.open()
    with pytest.raises(HistoryBehind, match="not recorded all the time"):
        db.at(moment).table("items").count()
    flush(db)
    with pytest.raises(HistoryGap):
        db.at(moment).table("items").count()


@pytest.mark.parametrize("engine", ["sqlite"])  # which one does not matter here
@pytest.mark.parametrize(
    "damage", ["missing", "cut", "other bytes", "another file", "another name", "one byte"]
)
def test_a_damaged_file_is_named_and_other_eras_answer(
    workspace: Workspace, tmp_path: Path, damage: str
) -> None:
    db, moment = keep(workspace, tmp_path / "store")
    db.table("goods").update(6, color="blue")
    flush(db)
    newest = next(db.moments()).number
    told = read_state(db.at(newest))
    past = db.at(moment)  # whose files are open already
    assert past.table("items").count() == 7
    store, _, files = read_manifest(db)
    wanted = next(file for file in files if file.kind == "segment" and file.era == 1)
    path = Path(store.directory) / wanted.path
    other = next(file for file in files if file.kind == "checkpoint" and file.era == 1)
    data = path.read_bytes()
    if damage == "missing":
        path.unlink()
    elif damage == "cut":
        path.write_bytes(data[: len(data) // 2])
    elif damage == "other bytes":
        path.write_bytes(data[:4] + bytes(len(data) // 2) + data[4 + len(data) // 2 :])
    elif damage == "another file":
        path.write_bytes((Path(store.directory) / other.path).read_bytes())
    elif damage == "one byte":
        at = data.index(b"small")  # a value of a page
        path.write_bytes(data[:at] + b"S" + data[at + 1 :])
        with pytest.raises(OSError, match="CRC"):
            parquet.read_table(path, page_checksum_verification=True)
        assert parquet.read_table(path).num_rows == wanted.rows  # wrong, and nobody would know
    else:
        statement = "UPDATE zapdb_history_files SET id = ? WHERE id = ?"
        workspace.execute(statement, ["f" * 32, wanted.id])
    reads = [
        lambda: list(db.at(moment).table("items").scan()),
        lambda: db.at(moment).sql("SELECT max(title) FROM items"),
    ]
    if damage != "another name":
        reads.append(lambda: past.sql("SELECT max(title) FROM items"))
    for read in reads:
        with pytest.raises(HistoryDamaged) as caught:
            read()
        assert wanted.path in caught.value.context["path"] or damage == "another name"
        assert caught.value.context["table"] == wanted.table_number
        assert "to" in caught.value.context["moments"]
    assert read_state(db.at(newest)) == told


def test_replaced_files_are_found_anew(workspace: Workspace, tmp_path: Path) -> None:
    """Files are retired and deleted while a past is read: it goes on with those of now (H2)."""
    db, moment = keep(workspace, tmp_path / "store")
    past = db.at(moment)
    scan = past.table("items").scan()
    told = [zapdb.asdict(next(scan))]
    assert past.sql("SELECT count(*) FROM items").fetchone() == (7,)
    store, _, files = read_manifest(db)
    for file in files:
        if file.kind == "moments":
            continue
        path = Path(store.directory) / file.path
        name = uuid4().hex
        path.rename(path.with_name(path.name.replace(file.id, name)))
        workspace.execute("UPDATE zapdb_history_files SET id = ? WHERE id = ?", [name, file.id])
    directory = Path(store.directory)
    directory.rename(directory.with_name("elsewhere"))
    with pytest.raises(HistoryUnreachable, match="is not there"):
        db.at(moment).table("items").get(3)
    directory.with_name("elsewhere").rename(directory)
    told += [zapdb.asdict(record) for record in scan]
    assert [row["id"] for row in told] == [3, 4, 5, 6, 7, 8, 9]
    assert past.sql("SELECT count(*) FROM items").fetchone() == (7,)
    assert zapdb.asdict(past.table("items").get(3)) == BIG


def test_it_is_read_only_and_reads_with_a_read_only_process(
    workspace: Workspace, tmp_path: Path
) -> None:
    db, moment = keep(workspace, tmp_path / "store")
    reader = workspace.open(apply="never", read_only=True)
    assert reader.at(moment).table("items").count() == 7
    assert reader.at(moment).sql("SELECT count(*) FROM items").fetchone() == (7,)
    with pytest.raises(zapdb.errors.UsageError, match="the past can't be changed"):
        db.at(moment).table("items").where().delete()
    with pytest.raises(HistoryUnavailable):
        reader.at(zapdb_now(db))


def zapdb_now(db: Database) -> Any:
    """A time that is over, above the log's watermark."""
    from tests.contract.test_past import later

    return later(db)


@pytest.mark.long_on("postgresql")
@pytest.mark.parametrize("long", [False, True])
def test_values_of_every_type(workspace: Workspace, tmp_path: Path, long: bool) -> None:
    """As they were, from a checkpoint, a segment and the tail; also numbers of any length."""
    shop = make_shop(workspace, orders=24, long=long)
    shop.admin.set_setting("change_log", "on")
    begin(shop, tmp_path / "store")
    orders = list(shop.table("orders").scan())
    for order in orders[:8]:
        shop.table("orders").update(order.id, weight=0.5)
    flush(shop)
    for order in orders[4:12]:
        shop.table("orders").update(order.id, weight=1.5)
    told, moment = read_state(shop), next(shop.moments()).number
    asked = "SELECT CAST(COLUMNS(*) AS VARCHAR) FROM orders ORDER BY orders.id"
    texts = ["orders.amount", "orders.price", "orders.prices", "orders.id"] if long else []
    rows = shop.sql(asked, as_text=texts).fetchall()
    past = shop.at(moment)
    for flushed in (False, True):
        if flushed:
            flush(shop)
        past = shop.at(moment)
        assert repr(read_stored(past, "orders")) == repr(told["orders"])  # with NaN
        assert repr(read_stored(past, "customers")) == repr(told["customers"])
        assert past._session.open_columns("orders") is not None
        assert past.sql(asked, as_text=texts).fetchall() == rows
        with TemporaryDirectory() as spill:
            assert past.sql(asked, as_text=texts, spill_to=spill).fetchall() == rows


def test_a_migration_behind_the_files_converts_what_is_in_them(
    workspace: Workspace, tmp_path: Path
) -> None:
    """D5, and a table that is younger than the files; where nobody can tell yet, it is refused."""
    workspace.write(1, ITEMS)
    db = workspace.open()
    db.admin.set_setting("change_log", "on")
    db.table("items").insert_many([{"id": n, "title": f"t{n}"} for n in range(6)])
    begin(db, tmp_path / "store")
    db.table("items").update(1, size=1)
    states = dict[int, State]()
    for number, operation in enumerate((*LATER[:4], DROP_NOTE), 2):
        db.close()
        workspace.write(number, operation)
        db = workspace.open()
        states[next(db.moments()).number] = read_state(db)
        db.table("items").update(number - 1, title="u")
        if "owners" in db.tables:
            db.table("owners").upsert(name="o", item=number)
        states[next(db.moments()).number] = read_state(db)
    found = set()
    for moment, state in states.items():
        past = db.at(moment)
        assert read_state(past) == state
        for name, rows in state.items():
            assert read_stored(past, name) == rows
            assert ask_sql(past, name, rows) == rows
            found.add(past._session.then.find(name).obstacle is None)
            found.add((name, past._session.open_columns(name) is None))
    assert found == {True, False, ("items", True), ("items", False), ("owners", False)}
    flush(db)  # takes all of these migrations into files at once (H2)
    for moment, state in states.items():
        past = db.at(moment)
        assert (read_state(past), past.exact) == (state, True)
        for name, rows in state.items():
            assert read_stored(past, name) == rows
            assert ask_sql(past, name, rows) == rows
    workspace.write(7, "drop_table: {table: items, records: archive}")
    db.close()
    db = workspace.open()
    workspace.write(8, "restore_table: {table: items, archived_by: 7}")
    db.close()
    db = workspace.open()
    moment = next(db.moments()).number
    assert len(read_state(db.at(moment))["items"]) == 6  # rewound
    with pytest.raises(HistoryBehind, match="not come to yet"):
        read_stored(db.at(moment), "items")
