"""A rolling deployment: processes with old and new files, traffic on all, and deaths on the way.

`make soak` runs rounds of it for as long as `ZAPDB_SOAK_SECONDS` says; one round by default.
"""

from __future__ import annotations

import os
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.contract.tables import ITEMS
from tests.contract.traffic import RECORDS, Ledger, start_traffic
from tests.documents import document
from tests.support import Workspace, count_stale, wait_until
from zapdb.activation.rollback import roll_back
from zapdb.catalog.tenants import find_tenant
from zapdb.database import Database

pytestmark = pytest.mark.long_on("sqlite")


SOAK_SECONDS = float(os.environ.get("ZAPDB_SOAK_SECONDS", "0"))
OLD = {"parts": 2, "fields": ["size", "note"]}
NEW = {"part": 0, "parts": 1, "fields": ["color"], "apply": "auto", "converts": True}
FIRST = {"size": 0, "note": "first"}


def write_new(place: Workspace, directory: Path, turn: int) -> Path:
    """The files of the new processes: another migration each time, since a forgotten one is not
    applied again by itself."""
    directory.mkdir()
    for path in place.directory.iterdir():
        (directory / path.name).write_bytes(path.read_bytes())
    (directory / "0002_test.yaml").write_text(
        document(
            f"add_field: {{table: items, field: {{name: color, type: string, default: c{turn}}}}}",
            "drop_field: {table: items, field: note,"
            " restore: {archive: true, otherwise: {value: lost}}}",
        )
    )
    return directory


def test_rule_11_a_rolling_deployment_with_deaths_at_each_phase(
    workspace: Workspace, tmp_path: Path
) -> None:
    """No read fails, no write is lost, fields survive writers that don't know them, and what takes
    force does so once."""
    workspace.write(1, ITEMS)
    with workspace.open() as db:
        db.table("items").insert_many(
            {"id": at, "title": f"title {at}", **FIRST} for at in range(RECORDS)
        )
    deadline, rounds, writes = time.monotonic() + SOAK_SECONDS, 0, 0
    with ExitStack() as stack:
        old = [
            stack.enter_context(
                start_traffic(workspace, part=part, path=str(tmp_path / f"old{part}"), **OLD)
            )
            for part in range(2)
        ]
        for process in old:
            process.wait_for_writes(3)
        while not rounds or time.monotonic() < deadline:
            writes += run_round(workspace, tmp_path, rounds)
            rounds += 1
            for process in old:
                process.wait_for_writes(3)
        ledger = Ledger()
        for process in old:
            process.end()
            ledger.take(process)
    with workspace.open() as db:
        assert_written(db, ledger, FIRST)
        assert [entry.event for entry in db.admin.schema_history("items")] == [
            "create",
            *["change", "rollback"] * rounds,
        ]
        assert all(report.problems == () for report in db.admin.verify())
        db.admin.run_jobs()
        assert_written(db, ledger, FIRST)
    assert workspace.execute("SELECT count(*) FROM zapdb_archives") == [(0,)]
    assert ledger.writes > 10
    print(f"{rounds} rounds: {ledger.writes} writes of old processes, {writes} of new ones")


def run_round(workspace: Workspace, tmp_path: Path, turn: int) -> int:
    """Migrate to 2, with deaths, and take it back, with one more."""
    directory = write_new(workspace, tmp_path / f"new{turn}", turn)
    ledger = Ledger()
    deaths = [
        (("up", "store", 1), False),
        (("up", "switch", 1), False),
        (("range_work", "send_progress", 1), True),  # while it converts in the background
    ]
    for number, (die, has_taken_force) in enumerate(deaths):
        path = tmp_path / f"new{turn}-{number}"
        options = {**NEW, "directory": str(directory), "path": str(path), "die": die}
        with start_traffic(workspace, **options) as dying:
            dying.wait_for_death()
            ledger.take(dying)
        assert position(workspace) == (2 if has_taken_force else 1)
    path = tmp_path / f"new{turn}-last"
    options = {**NEW, "directory": str(directory), "path": str(path)}
    with workspace.follow() as tool, start_traffic(workspace, **options) as new:
        new.wait_for_writes(10)
        wait_until(lambda: is_converted(tool), "all was converted")
        new.wait_for_writes(5)
        new.end()
        ledger.take(new)
        assert_written(tool, ledger, {"color": f"c{turn}"})
        (report,) = tool.admin.verify()
        assert report.problems == ()
        assert tool.admin.schema_history("items")[-1].event == "change"
    killed = workspace.run("rollback_dying", "rollback", "migrate_each_tenant", "1")
    assert killed.returncode == -9, killed.stderr
    assert position(workspace) == 2
    assert roll_back(workspace.connect()).migrations == ()
    assert position(workspace) == 1
    return ledger.writes


def position(place: Workspace) -> int:
    return find_tenant(place.control.connection(), "default").position


def is_converted(tool: Database) -> bool:
    return count_stale(tool._storage, tool._catalog, "items") == 0


def assert_written(db: Database, ledger: Ledger, first: dict[str, object]) -> None:
    """Every record has what was written to it last."""
    wrong = [
        (record.id, name, getattr(record, name))
        for record in db.table("items").scan()
        for name in first
        if not ledger.allows(record.id, name, getattr(record, name), first[name])
    ]
    assert wrong == []
    assert db.table("items").count() == RECORDS
