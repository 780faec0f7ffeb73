"""Files of the history store: every type goes in and comes out, and damage is told."""

from __future__ import annotations

import dataclasses
import os
import random
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from pyarrow import parquet

from tests.contract.every_type import make_shop
from tests.contract.stored_pasts import begin, flush
from tests.contract.tables import ITEMS
from tests.support import Workspace
from zapdb.database import Database
from zapdb.errors import HistoryDamaged
from zapdb.past.files import (
    history_file,
    states,
    working_store,
)
from zapdb.past.files.file_columns import (
    HistoryRows,
    MadeRow,
    RowOperation,
    column_name,
    rows_schema,
)
from zapdb.past.files.history_file import FileFooter, read_digest, read_footer, write_file
from zapdb.past.files.history_manifest import HistoryFile
from zapdb.past.files.states import EraContents
from zapdb.storage import Connection

FOOTER = FileFooter(
    1, "db", 1, "a" * 32, "segment", 7, "orders", 1, 1, 9, "1.9.0.9.7.", 3, 3, 1 << 28, 1
)


def held() -> None:
    """The lease of who writes."""


def read_stored(db: Database, table: str) -> tuple[Any, list[tuple[bytes, bytes]]]:
    bound = db.table(table)._bound

    def read(connection: Connection, bound: Any) -> tuple[None, Any]:
        return None, bound.records.scan_page(connection, b"")[1]

    return db._session.read_active(bound, read)


def test_every_value_of_every_type_comes_out_as_it_went_in(
    workspace: Workspace, tmp_path: Path
) -> None:
    db = make_shop(workspace)
    bound, rows = read_stored(db, "orders")
    assert len(rows) == 120
    made = HistoryRows(bound.schema, db._catalog.zones)
    attach, reader = bound.make_attachments, bound.reader
    all_rows = [MadeRow(*row, 5, RowOperation.CHECKPOINT) for row in rows]
    made.add_records(bound.schema, all_rows, attach, reader)
    # One with small numbers alone, so that columns of two kinds are joined.
    made.add_records(bound.schema, [MadeRow(*rows[0], 7, RowOperation.UPDATE)], attach, reader)
    made.add_deletions([MadeRow(rows[at][0], b"", 9, RowOperation.DELETE) for at in (0, 3)])
    written = write_file(tmp_path, (FOOTER, bound.schema), [made.take()], held)

    path = tmp_path / written.path
    assert (written.rows, written.size_bytes) == (123, path.stat().st_size)
    assert (written.key_lower, written.key_upper) == (rows[0][0], rows[-1][0])
    assert read_digest(path) == written.sha256
    assert read_footer(path) == (FOOTER, bound.schema)
    metadata = parquet.read_metadata(path).metadata
    assert all(key.decode() and value.decode() for key, value in metadata.items())
    found = parquet.read_table(path)
    assert [field.name for field in found.schema][:4] == ["_key", "_from", "_until", "_operation"]
    assert found.column("_key").to_pylist() == sorted(found.column("_key").to_pylist())
    first = found.slice(0, 3).select(["_from", "_until", "_operation"]).to_pylist()
    assert [tuple(row.values()) for row in first] == [(5, 7, 3), (7, 9, 1), (9, None, 2)]

    numbers = {one.name: int(one.metadata[b"PARQUET:field_id"]) for one in list(found.schema)[5:]}
    assert numbers == {f.name: f.number for f in bound.schema.fields}
    types = rows_schema(bound.schema)
    long = [
        f.name
        for f in bound.schema.fields
        if found.schema.field(f.name).type != types.field(column_name(f)).type
    ]
    assert {"amount", "price", "prices"} >= set(long) >= {"amount"}
    wanted = db.table("orders").to_arrow(as_text=long).read_all()
    checkpoint = found.filter(pyarrow.compute.equal(found.column("_operation"), 3))
    for field in bound.schema.fields:
        column = checkpoint.column(field.name)
        given = wanted.column(field.name)
        if pyarrow.types.is_floating(given.type):  # no NaN equals itself
            column, given = column.cast("string"), given.cast("string")
        assert column.equals(given), field.name
    gone = found.filter(pyarrow.compute.equal(found.column("_operation"), 2))
    assert all(gone.column(name).null_count == 2 for name in found.column_names[4:])


@pytest.mark.parametrize("engine", ["sqlite"])
def test_h3_files_are_on_the_disk_before_their_rows(
    workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bytes before their name, and that before the transaction that counts them."""
    workspace.write(1, ITEMS)
    db, place, seen = workspace.open(), tmp_path / "store", list[tuple[str, int]]()
    db.admin.set_setting("change_log", "on")
    begin(db, place)
    fsync, rename, insert = os.fsync, Path.rename, working_store.insert_files

    def flushed(descriptor: int) -> None:
        seen.append(("flushed", os.fstat(descriptor).st_ino))
        fsync(descriptor)

    def named(path: Path, target: Path) -> Path:
        seen.append(("named", path.stat().st_ino))
        return rename(path, target)

    def counted(connection: Connection, made: list[HistoryFile]) -> None:
        paths = [file.place_in(place) for file in made]
        for path in (
            *paths,
            max(place.glob("1/manifest-*"), key=lambda path: path.stat().st_mtime_ns),
        ):
            inside = path.parent.stat().st_ino
            steps = [step for step in seen if step[1] in (path.stat().st_ino, inside)]
            at = steps.index(("named", path.stat().st_ino))
            assert ("flushed", path.stat().st_ino) in steps[:at]
            assert ("flushed", inside) in steps[at:]
            seen.append(("counted", path.stat().st_ino))
        insert(connection, made)

    monkeypatch.setattr(os, "fsync", flushed)
    monkeypatch.setattr(Path, "rename", named)
    monkeypatch.setattr(working_store, "insert_files", counted)
    db.table("items").insert(id=1, title="t")
    flush(db)
    assert sum(step == "counted" for step, _ in seen) >= 3


def test_no_unfinished_file_is_left_and_a_strange_one_is_refused(tmp_path: Path) -> None:
    def fail() -> Any:
        yield pyarrow.table({"moment": [1]})
        raise OSError("disk full")

    footer = dataclasses.replace(FOOTER, kind="moments", table=0, name="")
    with pytest.raises(OSError, match="disk full"):
        write_file(tmp_path, (footer, None), fail(), held)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []

    parquet.write_table(pyarrow.table({"a": [1]}), tmp_path / "strange.parquet")
    with pytest.raises(HistoryDamaged, match="not a file of a history store"):
        read_footer(tmp_path / "strange.parquet")
    newer = dataclasses.replace(footer, format=2)
    written = write_file(tmp_path, (newer, None), [pyarrow.table({"moment": [1]})], held)
    with pytest.raises(HistoryDamaged, match="newer format"):
        read_footer(tmp_path / written.path)


@pytest.mark.parametrize("engine", ["sqlite"])
def test_files_are_read_by_ranges_of_keys_each_row_once(
    workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Row groups go on in the next range; those with long keys do not say how far they go."""
    monkeypatch.setattr(history_file, "ROW_GROUP_ROWS", 7)
    workspace.write(1, ITEMS)
    schema, rnd = workspace.open()._catalog.table("items").schema, random.Random(5)
    for ranges_of, is_long in ((11, False), (20, True), (10**9, False)):
        monkeypatch.setattr(states, "RANGE_ROWS", ranges_of)
        stored, wanted = [], list[tuple[bytes, int]]()
        for first in range(4):
            made = HistoryRows(schema, None)
            keys = {rnd.randbytes(rnd.randint(1, 2)) for _ in range(60)}
            if is_long:
                keys |= {b"\x70" * 5_000, b"\x90" * 6_000}
            at = first + 1
            made.add_deletions([MadeRow(key, b"", at, RowOperation.DELETE) for key in keys])
            rows = made.take()
            parts = [rows.slice(start, 10) for start in range(0, rows.num_rows, 10)]
            stored.append(write_file(tmp_path, (FOOTER, schema), parts, held))
            metadata = parquet.read_metadata(tmp_path / stored[-1].path)
            assert [metadata.row_group(at).num_rows for at in range(8)] == [7] * 8
            wanted += [(key, at) for key in keys]
        contents = EraContents(tmp_path, stored, schema)
        assert (len(contents.list_ranges()) > 5) == (ranges_of < 100)
        found = list[tuple[bytes, int]]()
        for rows in contents.read_all():
            found += zip(
                *(rows.column(name).to_pylist() for name in ("_key", "_from")), strict=True
            )
        assert found == sorted(wanted)
        assert all(one._kept is None for one in contents._sorted)
        # in any order
        for within in reversed(contents.list_ranges()):
            keys_read = contents.read(within).column("_key").to_pylist()
            lower, upper = within
            expected = [k for k, _ in sorted(wanted) if k > lower and (upper is None or k <= upper)]
            assert keys_read == expected
