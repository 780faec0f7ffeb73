"""SQL over the current state: as of one moment, lazily, with right types, and nothing else."""

from __future__ import annotations

import datetime
import sys
import threading
import uuid
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from tests.contract.tables import ADD_COLOR, ITEMS
from tests.support import Workspace
from zapdb.database import Database
from zapdb.errors import InvalidValue, MissingExtra, SqlError, UnknownName, UsageError
from zapdb.limits import PAGE_RECORDS_MAX
from zapdb.sql.sources import TableSource

ORDERS = (
    "create_type: {type: state, enum: [open, shipped, lost]}",
    """\
create_type: {type: place, struct: [
      {name: city, type: string},
      {name: token, type: uuid, optional: true},
      {name: state, type: state}]}""",
    "create_table: {table: shops, key: [id], fields: [{name: id, type: uuid}]}",
    """\
create_table: {table: lines, key: [order, number], fields: [
      {name: order, type: integer}, {name: number, type: integer}]}""",
    """\
create_table: {table: orders, key: [id], fields: [
      {name: id, type: integer},
      {name: shop, type: reference, to: shops},
      {name: line, type: reference, to: lines},
      {name: title, type: string},
      {name: total, type: decimal, scale: 2},
      {name: rate, type: float, optional: true},
      {name: paid, type: timestamp, optional: true},
      {name: made, type: zoned_timestamp},
      {name: day, type: date},
      {name: raw, type: binary},
      {name: ok, type: boolean},
      {name: details, type: json},
      {name: state, type: state},
      {name: place, type: place},
      {name: tokens, type: list, of: uuid},
      {name: small, type: integer, optional: true},
      {name: long, type: integer}]}""",
)
MADE = datetime.datetime(2024, 5, 31, 12, 30, tzinfo=ZoneInfo("Europe/Vienna"))
NAN = float("nan")

engine_does_not_matter = pytest.mark.parametrize("engine", ["sqlite"])


def order(number: int) -> dict[str, Any]:
    return {
        "id": number,
        "shop": uuid.UUID(int=number),
        "line": (number, number % 7),
        "title": f"Größe {number}",
        "total": (Decimal(number) / 4).quantize(Decimal("0.01")),
        "rate": (None, NAN, 1.5, -2.0, 3.0, float("inf"))[number % 6],
        "paid": None if number % 3 else MADE.astimezone(datetime.UTC),
        "made": MADE,
        "day": datetime.date(2024, 1, 1 + number % 28),
        "raw": bytes([number % 256]) * (number % 3),
        "ok": number % 2 == 0,
        "details": (None, {"a": [number, 1.5]}, "text", [])[number % 4],
        "state": ("open", "shipped", "lost")[number % 3],
        "place": {"city": "Bern", "token": uuid.UUID(int=5), "state": "lost"},
        "tokens": [uuid.UUID(int=1), uuid.UUID(int=number)],
        "small": None if number % 5 == 0 else 2**60 + number,
        "long": number,
    }


@pytest.fixture
def db(workspace: Workspace) -> Database:
    workspace.write(1, *ORDERS)
    opened = workspace.open()
    opened.table("orders").insert_many(map(order, range(30)))
    return opened


def too_long(db: Database, number: int) -> None:
    db.table("orders").insert(**order(number) | {"long": 2**70})


@engine_does_not_matter
def test_values_have_their_types(db: Database) -> None:
    result = db.sql("SELECT * FROM orders ORDER BY id")
    assert dict(zip(result.columns, result.types, strict=True)) == {
        "id": "BIGINT",
        "shop": "UUID",
        "line": "STRUCT(key_0 BIGINT, key_1 BIGINT)",
        "title": "VARCHAR",
        "total": "DECIMAL(38,2)",
        "rate": "DOUBLE",
        "paid": "TIMESTAMP WITH TIME ZONE",
        "made": 'STRUCT("local" TIMESTAMP, fold TINYINT, "zone" VARCHAR, '
        "instant TIMESTAMP WITH TIME ZONE)",
        "day": "DATE",
        "raw": "BLOB",
        "ok": "BOOLEAN",
        "details": "JSON",
        "state": "ENUM('open', 'shipped', 'lost')",
        "place": "STRUCT(city VARCHAR, token UUID, state ENUM('open', 'shipped', 'lost'))",
        "tokens": "UUID[]",
        "small": "BIGINT",
        "long": "BIGINT",
    }
    assert len(result) == 30
    for number, row in enumerate(result.fetchall()):
        found, wanted = dict(zip(result.columns, row, strict=True)), order(number)
        wanted["line"] = {"key_0": number, "key_1": number % 7}
        instant = MADE.astimezone(datetime.UTC)
        local = {"local": MADE.replace(tzinfo=None), "fold": 0, "zone": "Europe/Vienna"}
        wanted["made"] = local | {"instant": instant}
        assert repr(found) == repr(wanted)  # NaN, and 1 beside 1.0
    assert db.sql("SELECT sum(id), max(state), min(total) FROM orders").fetchone() == (
        435,
        "lost",
        Decimal("0.00"),
    )
    assert db.sql("SELECT 1, 2 AS x, 3 AS x WHERE false").to_pandas().shape == (0, 3)


@engine_does_not_matter
def test_a_result_as_arrow_as_pandas_and_shown(
    db: Database, capfd: pytest.CaptureFixture[str]
) -> None:
    result = db.sql("SELECT id, shop, small, state, tokens, sum(id) AS n FROM orders GROUP BY ALL")
    assert result.to_arrow().num_rows == len(list(result)) == 30
    frame = result.to_pandas().sort_values("id", ignore_index=True)
    assert [str(kind) for kind in frame.dtypes] == [
        *("Int64", "object", "Int64", "category", "object", "Int64")
    ]
    assert frame["small"][7] == 2**60 + 7
    assert frame["small"].isna().sum() == 6
    assert frame["shop"][3] == uuid.UUID(int=3)
    assert frame["tokens"][3] == [uuid.UUID(int=1), uuid.UUID(int=3)]
    assert list(frame["state"].cat.categories) == ["open", "shipped", "lost"]
    assert db.sql("SELECT sum(2::HUGEINT ** 70)::HUGEINT AS n").to_pandas()["n"][0] == 2**70
    db.sql("SELECT id AS number, shop, state FROM orders WHERE id < 2 ORDER BY id").show()
    shown = capfd.readouterr().out
    for part in ("number", "uuid", "enum", str(uuid.UUID(int=1)), "shipped"):
        assert part in shown
    assert repr(result) == "<30 rows of id, shop, small, state, tokens, n; show() prints them>"


@engine_does_not_matter
def test_tables_and_queries_as_pandas(db: Database) -> None:
    orders = db.table("orders")
    whole = orders.to_pandas()
    for name, values in whole.items():
        wanted = [getattr(record, name) for record in orders.scan()]
        found = [None if v is None or v is whole["small"][0] else v for v in values.tolist()]
        if name == "paid":
            found = [None if str(v) == "NaT" else v.to_pydatetime() for v in values]
            found = [v and v.astimezone(datetime.UTC) for v in found]
        if name == "rate":  # no float is null and NaN at once: pandas has one for both
            found = [None if w is None else v for v, w in zip(found, wanted, strict=True)]
        assert repr(found) == repr(wanted), name
    assert str(whole["small"].dtype) == "Int64"
    assert str(whole["long"].dtype) == "int64"
    query = orders.where(orders.f.ok == True, orders.f.id < 12).order_by("-id").limit(4)
    part = query.to_pandas(["made", "id", "long"], as_text=["long"])
    assert part.to_dict("list") == {
        "id": [10, 8, 6, 4],
        "made": [record.made for record in query],
        "long": ["10", "8", "6", "4"],
    }
    assert orders.where(orders.f.id < 0).to_pandas().shape == (0, 17)


def test_a_query_as_arrow_has_large_values_and_its_order(db: Database) -> None:
    orders = db.table("orders")
    for number in range(30, 34):
        orders.insert(**order(number) | {"title": f"{number}" * 4_000, "raw": b"ab" * 9_000})
    query = orders.where(orders.f.id > 28).order_by("-id")
    reader = query.to_arrow(["id", "title", "raw"])
    assert reader.schema.names == ["id", "title", "raw"]
    assert reader.read_all().to_pylist() == [
        {"id": record.id, "title": record.title, "raw": record.raw} for record in query
    ]
    with db.snapshot():
        within = query.to_arrow()
    with pytest.raises(UsageError, match="read outside it"):
        within.read_all()


CONDITIONS = [
    "id > 3 AND id <= 17",
    "rate > 1",
    "rate < 1",
    "rate = 'nan'::DOUBLE",
    "rate IS NULL OR rate >= 3",
    "title LIKE 'Größe 1%'",
    "title IN ('Größe 3', 'Größe 5') OR title IS NULL",
    "total BETWEEN 1.5 AND 4.25",
    "NOT (total > 2)",
    "paid >= '2024-05-31 10:30:00+00'",
    "day <> '2024-01-03'",
    "raw = '\\x05\\x05'::BLOB",
    "NOT ok AND state = 'lost'",
    "state > 'open'",
    "small IS NOT NULL AND small % 2 = 1",
    "line.key_1 = 3",
    "shop = '00000000-0000-0000-0000-000000000003'",
    "details IS NULL",
    "place.state = 'lost' AND id = 4",
    "id IN (SELECT number FROM lines)",
]


@engine_does_not_matter
def test_a_filter_that_is_pushed_down_finds_what_it_finds_elsewhere(db: Database) -> None:
    db.table("lines").insert_many({"order": 1, "number": n} for n in (2, 9))
    some = 0
    for condition in CONDITIONS:
        for columns in ("id", "count(*)"):
            pushed = db.sql(f"SELECT {columns} FROM orders WHERE {condition}").fetchall()
            apart = f"WITH t AS MATERIALIZED (SELECT * FROM orders) SELECT {columns} FROM t"
            assert pushed == db.sql(f"{apart} WHERE {condition}").fetchall(), condition
            some += len(pushed)
    assert some > 100


def test_only_what_is_used_is_decoded_and_read(db: Database) -> None:
    db.table("orders").insert_many(map(order, range(30, 3 * PAGE_RECORDS_MAX)))
    too_long(db, 3 * PAGE_RECORDS_MAX)
    count = 3 * PAGE_RECORDS_MAX + 1
    assert db.sql("SELECT count(*), count(title) FROM orders").fetchall() == [(count, count)]
    # The number that is too long is on a page that is never read.
    assert db.sql("SELECT long FROM orders LIMIT 1").fetchall() == [(0,)]
    with pytest.raises(InvalidValue, match="too large for its Arrow column") as caught:
        db.sql("SELECT max(long) FROM orders")
    assert caught.value.hint == "as_text=['orders.long'] makes a column of strings"
    found = db.sql("SELECT max(long::HUGEINT) FROM orders", as_text=["orders.long"])
    assert found.fetchall() == [(2**70,)]
    with pytest.raises(UnknownName, match="takes fields as") as unknown:
        db.sql("SELECT 1", as_text=["orders.lang"])
    assert unknown.value.context["field"] == "orders.lang"


@engine_does_not_matter
def test_tables_are_joined_with_others_and_with_themselves(db: Database) -> None:
    joined = db.sql(
        "SELECT a.id, b.id FROM Orders a JOIN main.orders b ON b.id = a.id + 1 WHERE a.id < 2"
    )
    assert sorted(joined) == [(0, 1), (1, 2)]
    counted = "WITH orders AS (SELECT 7 AS x) SELECT x FROM orders"
    assert db.sql(counted).fetchall() == [(7,)]
    assert db.sql("SELECT (SELECT count(*) FROM lines), count(*) FROM orders").fetchall() == [
        (0, 30)
    ]


@engine_does_not_matter
def test_parameters_are_values_and_nothing_else(db: Database) -> None:
    hostile = "x'; DROP TABLE orders; --"
    db.table("orders").insert(**order(99) | {"title": hostile})
    assert db.sql("SELECT id FROM orders WHERE title = ?", [hostile]).fetchall() == [(99,)]
    named = {"shop": uuid.UUID(int=4), "day": datetime.date(2024, 1, 5), "made": MADE}
    found = db.sql(
        "SELECT id FROM orders WHERE shop = $shop AND day = $day AND made.instant = $made", named
    )
    assert found.fetchall() == [(4,)]
    with pytest.raises(SqlError, match="not provided"):
        db.sql("SELECT id FROM orders WHERE id = $id")
    with pytest.raises(InvalidValue, match="params"):
        db.sql("SELECT ?", "a")


def in_thread(function: Any) -> None:
    thread = threading.Thread(target=function)
    thread.start()
    thread.join()


def test_rule_08_all_tables_are_read_as_of_one_moment(db: Database) -> None:
    orders, lines = db.table("orders"), db.table("lines")
    seen: list[Any] = []
    both = "SELECT (SELECT count(*) FROM orders), (SELECT count(*) FROM lines)"

    def write() -> None:
        orders.delete(0)
        lines.insert(order=1, number=1)

    with db.snapshot():
        assert db.sql(both).fetchall() == [(30, 0)]
        in_thread(write)
        assert db.sql(both).fetchall() == [(30, 0)]
    assert db.sql(both).fetchall() == [(29, 1)]

    with db.transaction():
        orders.delete(1)
        assert db.sql(both).fetchall() == [(28, 1)]
        in_thread(lambda: seen.append(db.sql(both).fetchone()))
    assert seen == [(29, 1)]


def test_rule_08_a_statement_alone_is_as_of_one_moment(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    orders, lines = db.table("orders"), db.table("lines")
    read, written = TableSource.read, []

    def write() -> None:
        orders.delete(0)
        lines.insert(order=1, number=1)
        written.append(True)

    def read_and_be_overtaken(self: TableSource, names: Any) -> Any:
        yield from read(self, names)
        if not written:
            in_thread(write)

    monkeypatch.setattr(TableSource, "read", read_and_be_overtaken)
    both = "SELECT (SELECT count(*) FROM orders), (SELECT count(*) FROM lines)"
    assert db.sql(both).fetchall() == [(30, 0)]
    assert db.sql(both).fetchall() == [(29, 1)]


def test_rule_11_a_process_asks_in_its_own_shape(workspace: Workspace) -> None:
    workspace.write(1, ITEMS)
    old = workspace.open()
    old.table("items").insert(id=1, title="a")
    workspace.write(2, ADD_COLOR)
    new = workspace.open()
    new.table("items").insert(id=2, title="b", color="blue")
    assert new.sql("SELECT id, color FROM items").fetchall() == [(1, "red"), (2, "blue")]
    assert old.sql("SELECT * FROM items").columns == ("id", "title", "size", "note")
    assert len(old.sql("SELECT * FROM items")) == 2


@pytest.mark.on_each_engine
def test_threads_ask_at_once_and_each_its_own_tenant(db: Database) -> None:
    db.admin.create_tenant("other")
    other = db.for_tenant("other")
    other.table("orders").insert(**order(5))
    found: dict[int, set[int]] = {}

    def ask(number: int, asked: Database) -> None:
        answers = [asked.sql("SELECT count(*) FROM orders").fetchall()[0][0] for _ in range(5)]
        found[number] = set(answers)

    threads = [threading.Thread(target=ask, args=(at, (db, other)[at % 2])) for at in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {0: {30}, 1: {1}, 2: {30}, 3: {1}}


def test_a_read_only_process_asks_too(workspace: Workspace, db: Database) -> None:
    read_only = workspace.open(apply="never", read_only=True)
    assert read_only.sql("SELECT count(*) FROM orders").fetchall() == [(30,)]
    db.close()
    with pytest.raises(UsageError, match="closed"):
        db.sql("SELECT 1 FROM orders")


@engine_does_not_matter
@pytest.mark.parametrize(("package", "extra"), [("duckdb", "sql"), ("pandas", "pandas")])
def test_a_missing_extra_is_named(
    db: Database, monkeypatch: pytest.MonkeyPatch, package: str, extra: str
) -> None:
    for module in list(sys.modules):
        if module.startswith(("zapdb.sql", "zapdb.tables.pandas_frames")):
            monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtra) as caught:
        db.sql("SELECT 1") if extra == "sql" else db.table("orders").to_pandas()
    assert caught.value.hint == f"pip install 'zapdb[{extra}]'"
