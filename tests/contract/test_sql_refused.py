"""What `db.sql` refuses, and how it says so."""

from __future__ import annotations

import pytest

from tests.contract.test_sql import ORDERS, order
from tests.support import Workspace
from zapdb.database import Database
from zapdb.errors import InvalidValue, SqlError, UsageError

pytestmark = pytest.mark.parametrize("engine", ["sqlite"])  # which one does not matter here


@pytest.fixture
def db(workspace: Workspace) -> Database:
    workspace.write(1, *ORDERS)
    opened = workspace.open()
    opened.table("orders").insert_many(map(order, range(30)))
    return opened


WRITES = [
    ("INSERT INTO orders VALUES (1)", "INSERT"),
    ("CREATE TABLE x (a INT)", "CREATE"),
    ("UPDATE orders SET id = 1", "UPDATE"),
    ("DELETE FROM orders", "DELETE"),
    ("DROP TABLE orders", "DROP"),
    ("EXPLAIN ANALYZE CREATE TABLE x (a INT)", "CREATE"),
    ("COPY orders TO 'stolen.csv'", "COPY"),
    ("ATTACH 'other.db'", "ATTACH"),
    ("INSTALL httpfs", "LOAD"),
    ("LOAD httpfs", "LOAD"),
    ("SET enable_external_access = true", "SET"),
    ("PRAGMA database_list", "PRAGMA"),
    ("CALL pragma_version()", "CALL"),
    ("BEGIN", "TRANSACTION"),
]


def test_nothing_is_written(db: Database) -> None:
    for statement, kind in WRITES:
        with pytest.raises(UsageError, match="only reads") as caught:
            db.sql(statement)
        assert caught.value.context["statement"] == kind
        assert caught.value.hint
    with pytest.raises(SqlError) as caught_name:
        db.sql("SELECT * FROM statement")  # a variable of the program that asks DuckDB
    assert caught_name.value.context["problem"] == "no such table: statement"
    assert db.sql("SELECT count(*) FROM orders").fetchall() == [(30,)]


def test_errors_have_a_place_and_a_hint(db: Database) -> None:
    cases = [
        ("SELEC 1", 1, 1, 'syntax error at or near "SELEC"'),
        ("SELECT tital FROM orders", 1, 8, 'Referenced column "tital" not found'),
        ("SELECT id,\n  nope($1)\nFROM orders", 2, 3, "nope"),
        (f"SELECT {'1, ' * 99} nix FROM orders", 1, 306, '"nix" not found'),
        ("SELECT * FROM ordres", 1, 15, "no such table: ordres"),
    ]
    for statement, line, column, problem in cases:
        with pytest.raises(SqlError) as caught:
            db.sql(statement, [1] if "$1" in statement else None)
        context = caught.value.context
        assert (context["line"], context["column"]) == (line, column), statement
        assert problem in context["problem"]
    assert caught.value.hint == "did you mean orders?"
    assert caught.value.context["tables"] == "shops, lines, orders"
    with pytest.raises(SqlError) as told:  # and no value of a record
        db.sql("SELECT title::INT FROM orders")
    assert "Größe" not in repr(told.value.context)
    for statement, count in (("SELECT 1; SELECT 2", 2), (" -- nothing", 0)):
        with pytest.raises(UsageError, match="one statement") as several:
            db.sql(statement)
        assert several.value.context["statements"] == count
    with pytest.raises(InvalidValue, match="statement"):
        db.sql(b"SELECT 1")
