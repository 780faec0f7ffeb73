"""A database that was tampered with: what is read of it is right, or refused by an error of zapdb's
that says so; never by an error of Python's or of a driver's own."""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
import traceback
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import cbor2
import psycopg
import pytest

import zapdb
from tests import forms
from tests.contract.stored_pasts import begin, flush
from tests.mutations import CELLS, mutants
from tests.support import Workspace, error_of
from tests.unit.migrations.kept import write
from zapdb.errors import CorruptionError, IncompatibleVersion, StorageError, ZapdbError
from zapdb.jobs.tenant_verification import verify_tenant
from zapdb.migrations import digest_of, load_directory, read_stored
from zapdb.storage import connect
from zapdb.storage.fixed_tables import METADATA
from zapdb.values.json import dumps

KEPT = load_directory(write.KEPT)
MET = datetime(2026, 7, 1, 12, tzinfo=ZoneInfo("Europe/Berlin"))

ITEMS = """\
create_table: {table: items, key: [id], fields: [
      {name: id, type: integer}, {name: title, type: string}, {name: size, type: integer},
      {name: fax, type: string}, {name: town, type: reference, to: towns, optional: true},
      {name: at, type: zoned_timestamp, optional: true}]}"""
FIRST = (
    "create_table: {table: towns, key: [id], fields: [{name: id, type: integer},"
    " {name: serial, type: integer, generated: sequence}]}",
    ITEMS,
    "create_index: {table: items, index: by_size, fields: [{field: size}]}",
    "create_index: {table: items, index: one_title, unique: true, fields: [{field: title}]}",
    "create_index: {table: items, index: by_town, fields: [{field: town}]}",
    "add_reference: {table: items, field: town, on_delete: restrict}",
    'add_check: {table: items, check: positive, expression: "size >= 0"}',
)
SECOND = (
    "add_field: {table: items, field: {name: age, type: integer, default: 7}}",
    "drop_field: {table: items, field: fax, restore: {archive: true, otherwise: {value: ''}}}",
)


def fill(workspace: Workspace, past: Path) -> None:
    """Records of two layouts, large ones, archived values, a change log and its follower, a history
    store with an erased record, and a job."""
    workspace.write(1, *FIRST)
    with workspace.open() as db:
        db.admin.set_setting("change_log", "on")
        db.table("towns").insert(id=1)
        for number in range(3):
            db.table("items").insert(
                id=number, title=f"t{number}" * 3_000, size=number, fax="1", town=1
            )
    workspace.write(2, *SECOND)
    with workspace.open() as db:
        db.table("items").update(0, age=8)
        db.table("items").insert(id=9, title="t9", size=9, age=3, at=MET)
        db.table("items").insert(id=10, title="gone", size=9, age=3)
        begin(db, past)
        db.table("items").delete(10)
        flush(db)
        db.history.erase("items", 10)
        db.change_log.follower("reader").advance(next(iter(db.change_log.read())).bookmark)
        db.run(lambda tx: tx.table("towns").insert(id=2), token=True)


def look_at_all(address: str) -> Generator[Callable[[], object]]:
    """What a program does with a database, one after the other."""
    with contextlib.closing(connect(address)) as storage:
        yield lambda: verify_tenant(storage, 1)
    for read_only in (True, False):
        with zapdb.open(address, read_only=read_only) as db:
            items, towns = db.table("items"), db.table("towns")
            yield lambda towns=towns: list(towns.scan())
            yield lambda items=items: [
                getattr(record, name) for record in items.scan() for name in items.field_names
            ]
            yield lambda items=items: items.get_many([0, 1, 9])
            yield lambda items=items: list(items.order_by("size"))
            yield lambda items=items: list(items.order_by("title"))
            yield lambda items=items: items.order_by("size").page(2)
            yield lambda items=items: items.count()
            yield lambda db=db: list(db.change_log.read())
            yield lambda db=db: db.admin.metrics()
            yield lambda db=db: [repr(one) for one in db.change_log.read()]
            yield lambda db=db: [repr(one) for one in db.moments()]
            yield lambda db=db: [repr(one) for one in db.audit()]
            yield lambda db=db: [repr(one) for one in db.jobs.list()]
            yield lambda db=db: [repr(one) for one in db.change_log.followers()]
            yield lambda db=db: [repr(one) for one in db.admin.schema_history("items")]
            yield lambda db=db: [repr(one) for one in db.admin.tenants()]
            yield lambda items=items: [repr(one) for one in items.history(1)]
            for moment in (2, 9, 11):  # in front of the history store, in its files, behind them
                yield lambda db=db, at=moment: list(db.at(at).table("items").scan())
            yield lambda db=db: list(db.diff(9, 11))
            yield lambda db=db: repr(db.change_log.status())
            yield lambda db=db: repr(db.history.status())
            yield lambda db=db: db.history.verify()
            if not read_only:
                yield lambda items=items: items.update(1, size=77)
                yield lambda items=items: items.delete(2)


def outcomes(address: str) -> Counter[str]:
    """How often something was read, or refused; raises what is no error of zapdb's.

    An error of storage would mean that the driver, or Python, stumbled over the row.
    """
    with contextlib.closing(look_at_all(address)) as steps:
        return count_outcomes(steps)


def count_outcomes(steps: Iterator[Callable[[], object]]) -> Counter[str]:
    found = Counter[str]()
    while True:
        refused = error_of(lambda: found.update([next_of(steps, found)]))
        if refused is not None:
            assert type(refused) is not StorageError, refused
            found[type(refused).__name__] += 1
            found["corrupt"] += isinstance(refused, CorruptionError)
        if found["ended"] or (refused is not None and not found["read"]):
            return found


def next_of(steps: Iterator[Callable[[], object]], found: Counter[str]) -> str:
    step = next(steps, None)
    if step is None:
        return "ended"
    step()
    return "read"


def test_a_stored_structure_that_was_changed_is_corrupt_or_holds() -> None:
    """With a digest of its own, so that nothing but the reader can notice."""
    seen = Counter[str]()
    for migration in KEPT.migrations:
        for mutant in [*mutants(cbor2.loads(migration.structure))][:: 1 if forms.is_long else 5]:
            refused = error_of(lambda mutant=mutant, m=migration: _read(m, mutant))
            if isinstance(refused, IncompatibleVersion):  # the mutant is of a later version
                seen["later"] += 1
                continue
            assert refused is None or isinstance(refused, CorruptionError)
            assert refused is None or (refused.hint and "\n" not in refused.context["cause"])
            seen["read" if refused is None else "corrupt"] += 1
    assert seen["corrupt"] > 5 * seen["read"] > 0
    assert seen["later"] <= len(KEPT.migrations)


def _read(migration: Any, structure: Any) -> None:
    drawn, before = migration.drawn, migration.before
    read_stored(dumps(structure), migration.name, "", drawn, before).check()


def test_a_database_with_a_changed_structure_is_refused_or_read(
    workspace: Workspace, tmp_path: Path
) -> None:
    fill(workspace, tmp_path / "past")
    number, structure, digest = workspace.execute(
        "SELECT number, structure, digest FROM zapdb_migrations ORDER BY number LIMIT 1"
    )[0]
    every = 1 if forms.is_long else 60
    seen = Counter[str]()
    for mutant in [*mutants(cbor2.loads(structure))][::every]:
        changed = dumps(mutant)
        set_structure(workspace, number, changed, digest_of(changed))
        refused = error_of(lambda: zapdb.open(workspace.address, read_only=True).close())
        with contextlib.closing(connect(workspace.address)) as storage:
            found = error_of(lambda storage=storage: verify_tenant(storage, 1))
        assert refused is None  # what the tables are stands apart from the migrations
        if isinstance(found, IncompatibleVersion):  # the mutant is of a later version
            seen["later"] += 1
            continue
        assert found is None or isinstance(found, CorruptionError)
        seen[type(found).__name__] += 1
    set_structure(workspace, number, structure, digest)
    assert error_of(lambda: zapdb.open(workspace.address, read_only=True).close()) is None
    assert seen["CorruptCatalog"] > 5
    assert seen["later"] <= 1


def set_structure(workspace: Workspace, number: int, structure: bytes, digest: str) -> None:
    workspace.execute(
        "UPDATE zapdb_migrations SET structure = ?, digest = ? WHERE number = ?",
        (structure, digest, number),
    )


@pytest.fixture
def template(workspace: Workspace, tmp_path: Path) -> Path:
    """A closed file of SQLite, whole without others beside it."""
    fill(workspace, tmp_path / "past")
    copy = tmp_path / "template.db"
    workspace.execute(f"VACUUM INTO '{copy}'")
    return copy


def tampered(template: Path) -> Iterator[tuple[str, str, tuple[Any, ...], tuple[str, ...], Any]]:
    """Every column of the first and the last row of every table, with each cell that SQLite takes:
    table, column, row, columns, cell."""
    with contextlib.closing(sqlite3.connect(template)) as connection:
        names = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
        for (name,) in names:
            columns = tuple(row[1] for row in connection.execute(f"PRAGMA table_info({name})"))
            rows = connection.execute(f"SELECT * FROM {name}").fetchall()
            for row in rows if name == "zapdb_catalog" else {*rows[:1], *rows[-1:]}:
                yield from (
                    (name, column, row, columns, cell) for column in columns for cell in CELLS
                )


@pytest.mark.parametrize("engine", ["sqlite"])
def test_a_cell_of_any_type_is_refused_or_read(template: Path, tmp_path: Path) -> None:
    cases = list(tampered(template))
    step = 1 if forms.is_long else len(cases) // 40
    seen, raw = Counter[str](), list[str]()
    for table, column, row, columns, cell in cases[:: step + (step % len(CELLS) == 0)]:
        file = tmp_path / "tampered.db"
        for old in tmp_path.glob("tampered.db*"):
            old.unlink()
        shutil.copy(template, file)
        with contextlib.closing(sqlite3.connect(file)) as connection, connection:
            same = " AND ".join(f"{name} IS ?" for name in columns)
            try:
                connection.execute(f"UPDATE {table} SET {column} = ? WHERE {same}", (cell, *row))
            except sqlite3.IntegrityError:  # the column takes no null, or the key is there
                continue
        try:
            seen.update(outcomes(f"sqlite:///{file}"))
        except Exception as error:
            at = traceback.extract_tb(error.__traceback__)[-1]
            raw.append(
                f"{table}.{column} = {cell!r:.40}: {error!r:.200} in {at.filename}:{at.lineno}"
            )
    assert raw == []
    assert seen["read"] > 10
    assert seen["corrupt"] > 3


@pytest.mark.parametrize("engine", ["sqlite"])
@pytest.mark.parametrize("last", ["min", "max"])
def test_a_transaction_of_the_last_number_that_there_is_is_read(template: Path, last: str) -> None:
    """Nothing is asked for behind it: SQLite takes no larger number."""
    with contextlib.closing(sqlite3.connect(template)) as connection, connection:
        connection.execute(
            "UPDATE zapdb_transactions SET number = ?"
            f" WHERE number = (SELECT {last}(number) FROM zapdb_transactions)",
            ((1 << 63) - 1,),
        )
    assert outcomes(f"sqlite:///{template}")["read"] > 10


@pytest.mark.parametrize("engine", ["postgresql"])
def test_wrong_bytes_in_any_cell_are_refused_or_read(workspace: Workspace, tmp_path: Path) -> None:
    fill(workspace, tmp_path / "past")
    cells = workspace.execute(
        "SELECT table_name, column_name FROM information_schema.columns"
        " WHERE table_schema = 'public' AND data_type = 'bytea' ORDER BY 1, 2"
    )
    every = [b"", b"\0", b"\xff" * 9, b"x" * 100_000]
    for at, (table, column) in enumerate(cells):
        wrong = every if forms.is_long else every[at % len(every) :][:1]
        for cell in wrong:
            workspace.execute(f"CREATE TABLE kept_rows AS SELECT * FROM {table}")
            place = f"ctid = (SELECT min(ctid) FROM {table})"
            workspace.execute(f"UPDATE {table} SET {column} = ? WHERE {place}", (cell,))
            for look in look_read_only(workspace.address):
                refused = error_of(look)
                assert type(refused) is not StorageError
            workspace.execute(f"TRUNCATE {table}")
            workspace.execute(f"INSERT INTO {table} SELECT * FROM kept_rows")
            workspace.execute("DROP TABLE kept_rows")
    assert [error_of(look) for look in look_read_only(workspace.address)] == [None, None]


OF_LOG = ("zapdb_stamps", "zapdb_transactions", "zapdb_followers")
WRONG: dict[str, list[Any]] = {
    "text": ["", "zz", "1:2", "x:y:z", "5:1:9,", "1.2.3", "{}", "[1]", "null", "ä" * 5_000],
    "bigint": [0, -1, (1 << 63) - 1, -(1 << 63), 1 << 62],
    "bytea": [b"", b"\0", b"\xff" * 9, b"x" * 100_000],
    "boolean": [True, False],
}


@pytest.mark.parametrize("engine", ["postgresql"])
@pytest.mark.parametrize("table", OF_LOG)
def test_wrong_texts_and_numbers_of_the_log_are_refused_or_read(
    workspace: Workspace, tmp_path: Path, table: str
) -> None:
    fill(workspace, tmp_path / "past")
    columns = workspace.execute(
        "SELECT column_name, data_type FROM information_schema.columns"
        " WHERE table_schema = 'public' AND table_name = ? ORDER BY 1",
        [table],
    )
    for at, (column, kind) in enumerate(columns):
        wrong = WRONG[kind] if forms.is_long else [*WRONG[kind], *WRONG[kind]][at % 3 :][:2]
        for cell in wrong:
            workspace.execute(f"CREATE TABLE kept_rows AS SELECT * FROM {table}")
            one = f"ctid = (SELECT max(ctid) FROM {table})"
            with contextlib.suppress(StorageError, ZapdbError, psycopg.Error):
                workspace.execute(f"UPDATE {table} SET {column} = ? WHERE {one}", (cell,))
            with zapdb.open(workspace.address, migrations=workspace.directory) as db:
                for look in (
                    lambda db=db: [repr(change) for change in db.change_log.read()],
                    lambda db=db: [repr(moment) for moment in db.moments()],
                    lambda db=db: [repr(one) for one in db.change_log.followers()],
                    lambda db=db: repr(db.change_log.status()),
                    lambda db=db: list(db.at(2).table("items").scan()),
                    lambda db=db: db.table("items").upsert(id=1, title="t", size=1, age=1),
                ):
                    error = error_of(look)
                    assert type(error) is not StorageError, (column, cell, str(error))
            workspace.execute(f"TRUNCATE {table}")
            workspace.execute(f"INSERT INTO {table} SELECT * FROM kept_rows")
            workspace.execute("DROP TABLE kept_rows")


EMPTY = {
    "zapdb_calls": "of a service",
    "zapdb_requests": "of a service",
    "zapdb_gate": "it never has a row",
    "zapdb_probes": "of processes that work on a job",
    "zapdb_quarantine": "of jobs that met damaged records",
    "zapdb_range_revisions": "of conversions, after which there are no records of two layouts",
    "zapdb_ranges": "of jobs that are not done",
}
"""The fixed tables that have no rows here, and why."""
MET_RAW = {"zapdb_history_eras": "revision", "zapdb_incarnations": "number"}
"""Columns whose last number once raised an error that was none of zapdb's."""


def damage(workspace: Workspace) -> Iterator[str]:
    """For each cell of the first and last rows of each fixed table, while it is another one of its
    type: what was done. It is each seventh case, and in the short form one of each table."""
    execute, most = workspace.execute, None if forms.is_long else 1
    types = "SELECT column_name, data_type FROM information_schema.columns WHERE table_name = ?"
    empty = set()
    for at, name in enumerate(sorted(METADATA.tables)):
        columns = execute(f"{types} AND table_schema = 'public' ORDER BY 1", [name])
        ((count,),) = execute(f"SELECT count(*) FROM {name}")
        if not count:
            empty.add(name)
            continue
        places = ("min", "max")[: min(count, 2)]
        cases = [(c, w, place) for c, kind in columns for w in WRONG[kind] for place in places]
        met = [(MET_RAW[name], (1 << 63) - 1, places[-1])] if name in MET_RAW else []
        for column, wrong, place in (*met, *cases[at % 7 % len(cases) :: 7])[:most]:
            one = f"ctid = (SELECT {place}(ctid) FROM {name})"
            execute(f"CREATE TABLE kept_rows AS SELECT * FROM {name}")
            with contextlib.suppress(psycopg.IntegrityError):  # its key is there
                execute(f"UPDATE {name} SET {column} = ? WHERE {one}", (wrong,))
                yield f"{name}.{column} = {wrong!r:.40} in the {place} row"
            execute(f"TRUNCATE {name}")
            execute(f"INSERT INTO {name} SELECT * FROM kept_rows")
            execute("DROP TABLE kept_rows")
    assert empty == {*EMPTY}


@pytest.mark.parametrize("engine", ["postgresql"])
def test_a_cell_of_another_value_is_refused_or_read(workspace: Workspace, tmp_path: Path) -> None:
    fill(workspace, tmp_path / "past")
    seen, raw = Counter[str](), list[str]()
    for done in damage(workspace):
        try:
            seen.update(outcomes(workspace.address))
        except Exception as error:
            at = traceback.extract_tb(error.__traceback__)[-1]
            raw.append(f"{done}: {error!r:.300} in {at.filename}:{at.lineno}")
    assert raw == []
    assert seen["read"] > 10
    assert seen["corrupt"] > 3


def look_read_only(address: str) -> list[Callable[[], object]]:
    def read() -> None:
        with zapdb.open(address, read_only=True) as db:
            items = db.table("items")
            for record in (*items.scan(), *items.order_by("size"), *items.order_by("title")):
                [getattr(record, name) for name in items.field_names]
            list(db.change_log.read())

    def check() -> None:
        with contextlib.closing(connect(address)) as storage:
            verify_tenant(storage, 1)

    return [read, check]
