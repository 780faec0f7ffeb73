"""Many processes at one SQLite file, or server, at once; threads are in test_transactions.py."""

from __future__ import annotations

import json

from tests import forms
from tests.contract.tables import INDEX_SIZE, ITEMS
from tests.support import Workspace

READERS, WRITERS = 8, 2
SECONDS, SECONDS_LONG = 0.8, 30


def test_rule_15_no_lock_error_reaches_an_application_of_many_processes(
    workspace: Workspace,
) -> None:
    """8 that read and 2 that write; functions are repeated, and blocks on SQLite need not be."""
    workspace.write(1, ITEMS, INDEX_SIZE)
    db = workspace.open()
    items = db.table("items")
    items.insert_many({"id": n, "title": "x", "size": n} for n in range(200))
    seconds = SECONDS_LONG if forms.is_long else SECONDS
    ran = workspace.run("crowd", str(READERS), str(WRITERS), str(seconds))
    assert ran.returncode == 0, ran.stderr
    told = {line["number"]: line for line in map(json.loads, ran.stdout.splitlines())}
    assert {line["error"] for line in told.values()} == {None}, ran.stdout
    assert len(told) == READERS + WRITERS
    assert all(line["rounds"] > 0 for line in told.values())
    for number in range(READERS, READERS + WRITERS):
        assert items.get(number).size == number + told[number]["rounds"]
    rounds = sum(told[number]["rounds"] for number in range(READERS, READERS + WRITERS))
    assert items.count() == 200 + rounds
    (report,) = db.admin.verify()
    assert report.problems == ()
