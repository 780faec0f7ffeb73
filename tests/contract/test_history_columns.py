"""The columns of history files: names of the era's beginning, by which others read; field ids, by
which zapdb reads."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from pyarrow import parquet

import zapdb
from tests.contract.stored_pasts import (
    begin,
    flush,
    read_little_at_a_time,
    read_manifest,
)
from tests.support import Workspace
from zapdb.database import Database
from zapdb.errors import HistoryDamaged
from zapdb.past.files.file_columns import FIELD_ID
from zapdb.past.files.history_file import read_digest

PEOPLE = """\
create_table: {table: people, key: [id], fields: [
      {name: id, type: integer},
      {name: first, type: string},
      {name: last, type: string},
      {name: note, type: string, optional: true}]}"""
SWAP = [
    f"rename_field: {{table: people, field: {old}, to: {new}}}"
    for old, new in (("first", "other"), ("last", "first"), ("other", "last"))
]
"""Two fields of one type take each other's name: who reads by names takes one for the other."""
NAMES = ({1: "id", 2: "first", 3: "last", 4: "note"}, {1: "id", 2: "last", 3: "first", 4: "note"})
ODD = ("select", "order", "filename", "file_row_number", "rowid", "ctid", "at", "f1", "f2", "key")
"""Words of SQL, names that engines give columns of files, and the names of columns in memory."""


def write_some(db: Database, rnd: random.Random, states: dict[int, Any]) -> None:
    people = db.table("people")
    for _ in range(3):
        with db.transaction() as tx:
            mine = tx.table("people")
            for _ in range(4):
                values = {name: f"{name} {rnd.random()}" for name in people.field_names[1:]}
                mine.upsert(id=rnd.randint(1, 12), **values)
            mine.where(mine.f.id == rnd.randint(1, 12)).delete()
        states[next(db.moments()).number] = [zapdb.asdict(one) for one in people.scan()]


def list_names(db: Database) -> dict[int, set[tuple[tuple[int, str], ...]]]:
    """The names of fields by their ids in the files of each era."""
    store, _, files = read_manifest(db)
    found: dict[int, set[tuple[tuple[int, str], ...]]] = {}
    for file in files:
        if file.table_number:
            schema = parquet.read_schema(file.place_in(store.directory))
            named = [(int(one.metadata[FIELD_ID]), one.name) for one in schema if one.metadata]
            assert [one.name for one in schema if not one.metadata] == schema.names[:5]
            found.setdefault(file.era, set()).add(tuple(sorted(named)))
    return found


def check_states(db: Database, states: dict[int, Any]) -> None:
    """Every way to read a past tells what there was."""
    for number, rows in states.items():
        past = db.at(number)
        people = past.table("people")
        assert [zapdb.asdict(one) for one in people.scan()] == rows
        if rows:
            assert zapdb.asdict(people.get(rows[-1]["id"])) == rows[-1]
        assert people.to_arrow().read_all().to_pylist() == rows
        names = ", ".join(people.field_names)
        held = past.sql(f"SELECT {names} FROM people ORDER BY id").fetchall()
        assert [dict(zip(people.field_names, row, strict=True)) for row in held] == rows
        versions = past.sql(
            f"SELECT {names} FROM zapdb_versions_people"
            " WHERE _until IS NULL AND _operation <> 'delete' ORDER BY id"
        ).fetchall()
        assert versions == held


@pytest.mark.parametrize("engine", ["sqlite"])
def test_h10_two_fields_swap_their_names_inside_an_era(
    workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rename begins no era, and changes no name in its files, whatever makes them anew."""
    read_little_at_a_time(monkeypatch)
    place, rnd, states = tmp_path / "store", random.Random(33), dict[int, Any]()
    workspace.write(1, PEOPLE)
    db = workspace.open()
    db.admin.set_setting("change_log", "on")
    begin(db, place)
    write_some(db, rnd, states)
    flush(db)
    db.close()
    workspace.write(2, *SWAP)
    db = workspace.open()
    write_some(db, rnd, states)
    flush(db)
    assert list_names(db) == {1: {tuple(NAMES[0].items())}}
    db.change_log.prune(db.change_log.end())
    write_some(db, rnd, states)  # which only the log has
    check_states(db, states)
    flush(db)

    # It is merged, and another era begins.
    db.admin.set_setting("history_store_flush_changes", "10")
    for _ in range(2):
        write_some(db, rnd, states)
        flush(db)
    db.change_log.prune(db.change_log.end())
    assert {one.kind for one in read_manifest(db)[2]} >= {"checkpoint", "ended"}
    named = list_names(db)
    assert named.pop(1) == {tuple(NAMES[0].items())}
    assert named
    assert set[Any]().union(*named.values()) == {tuple(NAMES[1].items())}
    check_states(db, states)
    assert db.history.verify(sample=0).problems == ()

    # What is erased is the field that has the name now.
    now = {row["id"]: row["last"] for row in states[max(states)]}
    db.history.erase_fields("people", "last", now=True)
    erased = 0
    for number, rows in states.items():
        past = db.at(number)
        name = next(one.name for one in past.schema("people").fields if one.number == 2)
        for row, one in zip(rows, map(zapdb.asdict, past.table("people").scan()), strict=True):
            assert {**one, name: ""} == {**row, name: ""}
            assert one[name] in ("", now.get(row["id"]))
            erased += one[name] != row[name]
            row[name] = one[name]
    assert erased > 10
    check_states(db, states)

    # The end of the era alone, written anew; and the rows of the database, made anew from files.
    first = sorted(states)[4]
    states = {number: rows for number, rows in states.items() if number >= first}
    db.history.purge(first, exact=True)
    assert list_names(db)[1] == {tuple(NAMES[0].items())}
    check_states(db, states)
    wanted = read_manifest(db)
    for name in ("stores", "files", "eras"):
        workspace.execute(f"DELETE FROM zapdb_history_{name}")
    db.history.rebuild_manifest(place)
    assert read_manifest(db) == wanted
    check_states(workspace.open(), states)
    assert db.history.verify(sample=0).problems == ()


@pytest.mark.parametrize("engine", ["sqlite"])
def test_fields_have_whatever_names_engines_know(workspace: Workspace, tmp_path: Path) -> None:
    """A field may be called as another one's column is in memory, or as what DuckDB gives files."""
    fields = ", ".join(f"{{name: {name}, type: string}}" for name in ODD)
    workspace.write(1, f"create_table: {{table: odd, key: [key], fields: [{fields}]}}")
    db = workspace.open()
    db.admin.set_setting("change_log", "on")
    odd, rows = db.table("odd"), list[dict[str, str]]()
    begin(db, tmp_path / "store")
    for at in range(3):
        rows.append({name: f"{name} {at}" for name in ODD})
        odd.insert(**rows[-1])
    flush(db)
    moment = next(db.moments())
    db.change_log.prune(db.change_log.end())
    for number in (moment, moment.number - 1):
        past, wanted = db.at(number), rows[: 3 - (number is not moment)]
        assert [zapdb.asdict(one) for one in past.table("odd").scan()] == wanted
        for source in ("odd", "zapdb_versions_odd"):
            listed = ", ".join(f'"{name}"' for name in ODD)
            found = past.sql(f'SELECT {listed} FROM {source} ORDER BY "key"').fetchall()
            assert [dict(zip(ODD, row, strict=True)) for row in found] == wanted


Rewrite = Callable[[Sequence[Any]], Sequence[Any]]


def with_ids(*numbers: int | None) -> Rewrite:
    """Give the fields other ids; None takes one away."""

    def rewrite(columns: Sequence[Any]) -> Sequence[Any]:
        named = [None if number is None else {FIELD_ID: str(number)} for number in numbers]
        own, fields = columns[:5], columns[5:]
        given = [
            one.remove_metadata().with_metadata(ids) for one, ids in zip(fields, named, strict=True)
        ]
        return [*own, *given]

    return rewrite


FAULTS: dict[str, tuple[Rewrite, str]] = {
    "missing": (with_ids(1, 2, None, 4), "column 'last' has no field id"),
    "all missing": (with_ids(*[None] * 4), "column 'id' has no field id"),
    "double": (with_ids(1, 2, 2, 4), "columns 'first' and 'last' have one field id, 2"),
    "of no field": (with_ids(1, 2, 9, 4), "none of its columns has the field id 3"),
    "of another type": (with_ids(2, 1, 3, 4), "column 'id' has another type than the field"),
    "own": (
        lambda columns: [columns[0].with_metadata({FIELD_ID: "7"}), *columns[1:]],
        "lacks a column '_key' without field id",
    ),
    "names": (lambda columns: [*columns[:-1], columns[-1].with_name("last")], "have one name"),
}


@pytest.mark.parametrize("engine", ["sqlite"])
@pytest.mark.parametrize("fault", FAULTS)
def test_a_file_whose_ids_are_missing_or_double_is_refused(
    workspace: Workspace, tmp_path: Path, fault: str
) -> None:
    """Though its digest is the one that its row has; every way to read it names what is wrong."""
    place = tmp_path / "store"
    workspace.write(1, PEOPLE)
    db = workspace.open()
    db.admin.set_setting("change_log", "on")
    begin(db, place)
    write_some(db, random.Random(1), {})
    flush(db)
    moment = next(db.moments()).number - 1  # behind which the log begins
    rewrite, problem = FAULTS[fault]
    file = next(one for one in read_manifest(db)[2] if one.kind == "segment")
    path = file.place_in(place)
    read = parquet.read_table(path, partitioning=None)
    columns = pyarrow.schema(rewrite(list(read.schema)), metadata=read.schema.metadata)
    parquet.write_table(pyarrow.Table.from_arrays(read.columns, schema=columns), path)
    digest = read_digest(path)
    workspace.execute("UPDATE zapdb_history_files SET sha256 = ? WHERE id = ?", [digest, file.id])
    db = workspace.open()
    db.change_log.prune(db.change_log.end())
    ways: list[Callable[[], object]] = [
        lambda: list(db.at(moment).table("people").scan()),
        lambda: db.at(moment).sql("SELECT * FROM people"),
        lambda: db.at(moment).sql("SELECT * FROM zapdb_versions_people"),
        lambda: db.history.erase_fields("people", "note", now=True),
    ]
    for way in ways:
        with pytest.raises(HistoryDamaged) as raised:
            way()
        assert problem in str(raised.value), str(raised.value)
        assert str(path) in str(raised.value)
    found = db.history.verify(sample=0).problems
    assert any(str(path) in one and problem in one for one in found), found
