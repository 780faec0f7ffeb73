"""Foreign keys of other databases whose tables are in circles: which of them are references here.

Every foreign key is one, with its records set, whatever is in a circle; what has to give way is
that a column is required, and that is said.
"""

from __future__ import annotations

import contextlib

import pytest

from tests.contract.test_import_databases import Place
from tests.contract.test_import_databases import place as place
from zapdb.errors import ReferenceViolation

SHOP = (
    "CREATE TABLE stores (id INTEGER PRIMARY KEY, manager INTEGER NOT NULL)",
    "CREATE TABLE staff (id INTEGER PRIMARY KEY, store INTEGER NOT NULL REFERENCES stores,"
    " boss INTEGER REFERENCES staff, home INTEGER NOT NULL REFERENCES staff)",
    "CREATE TABLE devices (id INTEGER PRIMARY KEY, store INTEGER NOT NULL REFERENCES stores,"
    " primary_port INTEGER)",
    "CREATE TABLE ports (id INTEGER PRIMARY KEY, device INTEGER NOT NULL REFERENCES devices"
    " ON DELETE CASCADE)",
    "CREATE TABLE cables (id INTEGER PRIMARY KEY, port INTEGER NOT NULL REFERENCES ports)",
)
CLOSING = (
    "stores ADD FOREIGN KEY (manager) REFERENCES staff DEFERRABLE INITIALLY DEFERRED",
    "devices ADD FOREIGN KEY (primary_port) REFERENCES ports DEFERRABLE INITIALLY DEFERRED",
)
ROWS = (
    "INSERT INTO stores VALUES (1, 2), (2, 1)",
    # Each row refers to itself or to one before it: so this reference can stay required.
    "INSERT INTO staff VALUES (1, 1, 2, 1), (2, 2, NULL, 1), (3, 1, 1, 3)",
    "INSERT INTO devices VALUES (1, 1, 2), (2, 2, NULL)",
    "INSERT INTO ports VALUES (1, 1), (2, 1), (3, 2)",
    "INSERT INTO cables VALUES (1, 3)",
)
REFERENCES = {
    "stores": {"manager"},
    "staff": {"store", "boss", "home"},
    "devices": {"store", "primary_port"},
    "ports": {"device"},
    "cables": {"port"},
}


@pytest.fixture
def shop(place: Place) -> Place:
    tables = list(SHOP)
    if "sqlite" in place.source:  # which lets a key lead to a table that is not there yet
        tables[0] = tables[0].replace(
            "manager INTEGER NOT NULL", "manager INTEGER NOT NULL REFERENCES staff"
        )
        tables[2] = tables[2].replace(
            "primary_port INTEGER", "primary_port INTEGER REFERENCES ports"
        )
        place.execute(*tables, *ROWS)
    else:
        place.execute(*tables, *(f"ALTER TABLE {text}" for text in CLOSING), *ROWS)
    return place


def test_every_foreign_key_is_a_reference_here(shop: Place) -> None:
    inferred = shop.infer("--json")
    assert (inferred.status, inferred.err) == (0, "")
    assert inferred.json["carried"]["references"] == 8
    (cut,) = [note for note in inferred.json["changed"] if "closes a circle" in note["text"]]
    assert cut["subject"] == "stores.manager"
    assert "it is optional here" in cut["text"]
    shop.migrate()
    copied = shop.copy()
    assert (copied.status, copied.err) == (0, "")
    with contextlib.closing(shop.workspace.follow()) as db:
        found = {name: db.table(name)._current().schema for name in db.tables}
        for name, wanted in REFERENCES.items():
            fields = {
                found[name].field_numbered(key.field).name for key in found[name].foreign_keys
            }
            assert fields == wanted, name
        required = {f.name for f in found["staff"].fields if not f.optional}
        assert required == {"id", "store", "home"}
        assert [r.manager for r in db.table("stores")] == [2, 1]
        assert [(r.boss, r.home) for r in db.table("staff")] == [(2, 1), (None, 1), (1, 3)]
        assert [r.primary_port for r in db.table("devices")] == [2, None]
        assert sum(report.problem_count for report in db.admin.verify()) == 0
        with pytest.raises(ReferenceViolation):
            db.table("staff").delete(2)
        db.table("cables").delete(1)
        db.table("devices").delete(2)
        assert [r.id for r in db.table("ports")] == [1, 2]  # not left behind
    again = shop.infer("--json", "-m", str(shop.directory / "again"))
    assert again.json["changed"] == inferred.json["changed"]


def test_a_required_reference_to_rows_that_come_later_is_set_later(place: Place) -> None:
    place.execute(
        "CREATE TABLE nodes (a INTEGER, b INTEGER, up_a INTEGER NOT NULL, up_b INTEGER NOT NULL,"
        " PRIMARY KEY (a, b), FOREIGN KEY (up_a, up_b) REFERENCES nodes (a, b))",
        # Each refers to the one behind it, over more than a batch.
        "INSERT INTO nodes WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n"
        " WHERE i < 40) SELECT i / 7, i, (CASE i WHEN 40 THEN 40 ELSE i + 1 END) / 7,"
        " CASE i WHEN 40 THEN 40 ELSE i + 1 END FROM n",
    )
    inferred = place.infer()
    assert "some refer to rows behind them: it is optional here" in inferred.out
    place.migrate()
    copied = place.copy("--batch", "10")
    assert (copied.status, copied.err) == (0, "")
    found = [tuple(record.values()) for record in place.records("nodes")]
    assert found == [(n // 7, n, (min(n + 1, 40) // 7, min(n + 1, 40))) for n in range(1, 41)]


def test_keys_that_refer_to_each_other_are_no_references(place: Place) -> None:
    place.execute(
        "CREATE TABLE a (id INTEGER PRIMARY KEY REFERENCES a)",
        "CREATE TABLE b (id INTEGER PRIMARY KEY)",
        "INSERT INTO a VALUES (1)",
    )
    if "sqlite" not in place.source:
        place.execute(
            "CREATE TABLE c (id INTEGER PRIMARY KEY REFERENCES b)",
            "ALTER TABLE b ADD FOREIGN KEY (id) REFERENCES c",
        )
    else:
        place.execute(
            "DROP TABLE b",
            "CREATE TABLE b (id INTEGER PRIMARY KEY REFERENCES c)",
            "CREATE TABLE c (id INTEGER PRIMARY KEY REFERENCES b)",
        )
    inferred = place.infer()
    assert inferred.status == 0, inferred.err
    assert "a.id: the reference to a: keys that refer to each other in a circle" in inferred.out
    assert inferred.out.count("keys that refer to each other") == 2
    place.migrate()
    assert place.copy().status == 0
    assert place.records("a") == [{"id": 1}]
