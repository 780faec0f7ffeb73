"""Backups by PostgreSQL's own programs; those of SQLite are in the guide, which is run."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import zapdb
from tests import processes
from tests.contract.every_type import make_shop
from tests.contract.tables import ITEMS
from tests.support import OLDEST_POSTGRESQL, PostgresServer, Workspace
from zapdb.database import Database, RecordChange
from zapdb.errors import TransactionConflict
from zapdb.log.incarnations import ID_BITS, ensure_incarnation
from zapdb.records import asdict

COUNT_UP = (
    "DO $$ BEGIN FOR i IN 1..3000 LOOP PERFORM pg_current_xact_id(); COMMIT; END LOOP; END $$"
)
"""Uses transaction ids."""


def run(server: PostgresServer, program: str, *arguments: str) -> None:
    command = [str(server.programs / program), *arguments]
    done = processes.run(command, capture_output=True, text=True, timeout=300)
    assert not done.returncode, done.stderr[:1_500]


def dsn_of(server: PostgresServer, address: str) -> str:
    name = address.partition("@/")[2].partition("?")[0]
    return f"host={server.directory} user=postgres dbname={name}"


def copy_to(server: PostgresServer, source: str, target: str, file: Path) -> None:
    """With the programs of a server: those of a later release restore into that one only."""
    run(server, "pg_dump", "--format=custom", f"--file={file}", f"--dbname={source}")
    run(server, "pg_restore", "--no-owner", "--exit-on-error", f"--dbname={target}", str(file))


@pytest.mark.parametrize("engine", ["postgresql"])
def test_a_dump_is_restored_and_verified(
    workspace: Workspace, postgres: PostgresServer, tmp_path: Path
) -> None:
    db = make_shop(workspace)
    db.admin.set_setting("change_log", "on")
    db.table("orders").update(1, color="blue")
    with postgres.fresh_database() as address:
        source, target = dsn_of(postgres, workspace.address), dsn_of(postgres, address)
        copy_to(postgres, source, target, tmp_path / "backup.dump")
        with zapdb.open(address) as copy:
            assert [report.problem_count for report in copy.admin.verify()] == [0, 0]
            for name in db.tables:
                wanted = [asdict(record) for record in db.table(name).scan()]
                found = [asdict(record) for record in copy.table(name).scan()]
                assert repr(found) == repr(wanted)
            copy.table("orders").update(1, color="green")
            made = [m for m in copy.change_log.read() if isinstance(m, RecordChange)]
            assert [change.operation for change in made] == ["update", "update"]


@pytest.mark.parametrize("engine", ["postgresql"])
def test_rule_29_a_dump_keeps_its_log_and_its_past_on_another_server(
    workspace: Workspace, postgres: PostgresServer, tmp_path: Path
) -> None:
    """The other one is new, so that its transaction ids are lower; and back again, where those of
    the log are higher by then."""
    workspace.write(1, ITEMS)
    workspace.execute(COUNT_UP)
    with workspace.open() as db:
        db.admin.set_setting("change_log", "on")
        for number in range(4):
            db.table("items").upsert(id=number % 3, title=f"first {number}")
            list(db.change_log.read())  # gives it a stamp
        follower = db.change_log.follower("reader")
        follower.advance(list(db.change_log.read())[2].bookmark)
        end, stamped = db.change_log.end(), len(list(db.change_log.read()))
        db.table("items").delete(2)  # has none yet
        db.table("items").insert(id=9, title="last")
    is_oldest = postgres.programs == OLDEST_POSTGRESQL
    with PostgresServer.start(is_oldest=is_oldest) as other, other.fresh_database() as address:
        source, there = dsn_of(postgres, workspace.address), dsn_of(other, address)
        copy_to(postgres, source, there, tmp_path / "there.dump")
        told, states = _write_more(workspace.address, "first")
        moved, later = _write_more(address, "there")
        assert moved[:stamped] == told[:stamped]
        assert [m.transaction for m in moved[:-2]] == [m.transaction for m in told[:-2]]
        assert later[:4] == states[:4]
        assert [one[-1] for one in later[:6]] == [one[-1] for one in states[:6]]
        assert moved[-1].transaction >> ID_BITS == 1
        with zapdb.open(address) as copy:
            assert list(copy.change_log.follower("reader").changes()) == moved[3:]
            assert list(copy.change_log.read(end)) == [m for m in moved if m.bookmark > end]
            times = [moment.visible_at for moment in copy.moments()]
            assert times == sorted(times, reverse=True)
        with postgres.fresh_database() as back:
            copy_to(postgres, there, dsn_of(postgres, back), tmp_path / "back.dump")
            again, last = _write_more(back, "back")
            assert (again[: len(moved)], last[: len(later)]) == (moved, later)
            assert again[-1].transaction >> ID_BITS == 2
            with zapdb.open(back) as copy:
                copy.change_log.follower("reader").advance(moved[-1].bookmark)
                copy.change_log.prune(moved[-1].bookmark)
                assert list(copy.change_log.read()) == again[len(moved) :]


def _write_more(address: str, title: str) -> tuple[list[Any], list[Any]]:
    """Write in two transactions; return all changes and, for each moment, the past."""
    with zapdb.open(address) as db:
        db.table("items").upsert(id=1, title=title)
        db.table("items").upsert(id=2, title=title)
        moments = list(db.moments())[::-1]
        return list(db.change_log.read()), [_tell(db, moment) for moment in moments[1:]]


def _tell(db: Database, moment: Any) -> tuple[Any, ...]:
    records = [(record.id, record.title) for record in db.at(moment).table("items").scan()]
    return moment.number, moment.visible_at, moment.changes, records


@pytest.mark.parametrize("engine", ["postgresql"])
def test_rule_29_a_process_that_was_there_when_the_server_was_exchanged_goes_on(
    workspace: Workspace, postgres: PostgresServer, tmp_path: Path
) -> None:
    workspace.write(1, ITEMS)
    db = workspace.open()
    db.admin.set_setting("change_log", "on")
    db.table("items").insert(id=1, title="a")
    for maintenance in ("VACUUM (FREEZE)", "VACUUM (FULL)", "CLUSTER"):  # keep who wrote a row
        by = " USING zapdb_incarnations_pkey" if maintenance == "CLUSTER" else ""
        workspace.execute(f"{maintenance} zapdb_incarnations{by}")
    db.table("items").insert(id=2, title="b")
    here, dump = dsn_of(postgres, workspace.address), str(tmp_path / "backup.dump")
    run(postgres, "pg_dump", "--format=custom", f"--file={dump}", f"--dbname={here}")
    run(
        postgres, "pg_restore", "--clean", "--exit-on-error", f"--dbname={here}", dump
    )  # beneath it
    with pytest.raises(TransactionConflict, match="has not numbered transactions yet"):
        db.table("items").insert(id=3, title="c")
    assert db.table("items").count() == 2
    ensure_incarnation(db._storage)  # as each heartbeat does
    db.table("items").insert(id=3, title="c")
    numbers = [m.transaction for m in db.change_log.read() if isinstance(m, RecordChange)]
    assert [number >> ID_BITS for number in numbers] == [0, 0, 1]
    workspace.execute("UPDATE zapdb_incarnations SET server = 'another' WHERE number = 1")
    with workspace.open() as again:
        again.table("items").insert(id=4, title="d")
    assert [m.transaction >> ID_BITS for m in db.change_log.read()][-1] == 2


HEADER = "zapdb: 1\nsummary: s\nrollback: inferred\nchanges:\n"
ADD_A = "add_field: {table: t, field: {name: a, type: integer}, fill: {value: %d}}"
ADD = "add_field: {table: t, field: {name: %s, type: integer, default: 7}}"


def test_a_process_reads_the_whole_chain_of_a_restored_database(tmp_path: Path) -> None:
    """Two histories have other migrations under one number: none of the former stays in the chain
    that the process converts by."""

    def write(name: str, *operations: str) -> Path:
        directory = tmp_path / name
        directory.mkdir()
        for number, operation in enumerate(operations, 1):
            file = directory / f"{number:04d}_m{number}.yaml"
            file.write_text(f"{HEADER}  - {operation}\n")
        return directory

    table = "create_table: {table: t, key: [id], fields: [{name: id, type: integer}]}"
    address, file = f"sqlite:///{tmp_path}/test.db", tmp_path / "test.db"
    with zapdb.open(address, migrations=write("first", table), apply="auto") as db:
        db.table("t").insert_many({"id": key} for key in range(3))
    former = write("former", table, ADD_A % 5, ADD % "c")
    other = write("other", table, ADD_A % 9, ADD % "c", ADD % "d")
    with zapdb.open(address) as old, closing(sqlite3.connect(":memory:")) as backup:
        with closing(sqlite3.connect(file)) as source:
            source.backup(backup)
        zapdb.open(address, migrations=former, apply="auto").close()
        assert old.table("t").get(1).a == 5
        with closing(sqlite3.connect(file)) as target:
            backup.backup(target)
        zapdb.open(address, migrations=other, apply="auto").close()
        assert old.table("t").get(1).a == 9
