"""Files of the history store in Polars and DataFusion: what they read is what `db.at` tells.

Neither knows of zapdb: fields are called as they were when the era began.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from pyarrow import parquet

from tests.contract.every_type import fill, make_shop
from tests.contract.stored_pasts import begin, flush, read_manifest
from tests.support import Workspace
from zapdb.database import Database
from zapdb.past.files import rewriting
from zapdb.schema import read_canonical_bytes

RENAMED = (
    "rename_field: {table: orders, field: color, to: paint}",
    "rename_field: {table: orders, field: note, to: color}",
)
Rows = list[dict[str, Any]]


def read_by_polars(paths: Sequence[Path], moment: int) -> Any:
    polars = pytest.importorskip("polars", reason="Polars is not installed")
    rows = polars.concat([polars.read_parquet(path) for path in paths], how="diagonal")
    at = rows.filter(polars.col("_from") <= moment).sort("_key", "_from")
    last = at.unique("_key", keep="last", maintain_order=True)
    return last.filter(polars.col("_operation") != 2).to_arrow()


def read_by_datafusion(paths: Sequence[Path], moment: int) -> Any:
    datafusion = pytest.importorskip("datafusion", reason="DataFusion is not installed")
    context = datafusion.SessionContext()
    for at, path in enumerate(paths):
        context.register_parquet(f"file_{at}", str(path))
    every = " UNION ALL BY NAME ".join(f"SELECT * FROM file_{at}" for at in range(len(paths)))
    return context.sql(
        f"WITH ranked AS (SELECT *, row_number() OVER (PARTITION BY _key ORDER BY _from DESC)"
        f" AS age FROM ({every}) WHERE _from <= {moment})"
        " SELECT * FROM ranked WHERE age = 1 AND _operation <> 2 ORDER BY _key"
    ).to_arrow_table()


READERS = {"Polars": read_by_polars, "DataFusion": read_by_datafusion}


def find_files(db: Database, name: str, moment: int) -> tuple[int, list[Path]]:
    """The files of the era of a table that holds a moment, and the moment that it begins with."""
    store, eras, files = read_manifest(db)
    table = db.table(name)._bound.schema.number
    (era,) = (one for one in eras if one.table_number == table and one.holds(moment))
    return era.first_moment, [
        file.place_in(store.directory)
        for file in files
        if (file.table_number, file.era) == (table, era.era)
    ]


def in_order(table: Any) -> list[str]:
    """Rows whose values can be compared: no NaN, and no datetime, which not all instants are."""
    return sorted(map(repr, _plain(table).to_pylist()))


def _plain(table: Any) -> Any:
    columns = [_plain_array(pyarrow.chunked_array(one).combine_chunks()) for one in table.columns]
    return pyarrow.Table.from_arrays(columns, table.column_names)


def _plain_array(array: Any) -> Any:
    if pyarrow.types.is_timestamp(array.type):
        return array.cast(pyarrow.int64())
    if pyarrow.types.is_struct(array.type):
        parts = [_plain_array(part) for part in array.flatten()]
        names = [array.type.field(at).name for at in range(array.type.num_fields)]
        return pyarrow.StructArray.from_arrays(parts, names, mask=array.is_null())
    return array


@pytest.mark.parametrize("engine", ["sqlite"])  # files do not depend on it
@pytest.mark.parametrize("reader", READERS)
def test_other_engines_read_the_past_by_the_names_of_fields(
    workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reader: str
) -> None:
    """All types, in checkpoints, ended rows and segments, in two eras, through a rename."""
    monkeypatch.setattr(rewriting, "HISTORY_FILE_SIZE_BYTES", 1)
    db = make_shop(workspace, orders=60, long=False)
    db.admin.set_setting("change_log", "on")
    begin(db, tmp_path / "store")
    orders, moments = db.table("orders"), list[int]()
    for color in ("blue", "green"):
        orders.where(orders.f.id < 20).update(color=color)
        flush(db)
        moments.append(next(db.moments()).number)
    db.close()
    workspace.write(4, *RENAMED)
    db = workspace.open()
    db.table("orders").update(1, paint="red")
    moments.append(next(db.moments()).number)
    fill(db, range(60, 90), long=False)
    db.table("orders").delete(59)
    flush(db)
    moments.append(next(db.moments()).number)
    db.admin.set_setting("history_store_flush_changes", "30")
    db.table("orders").where(db.table("orders").f.id < 80).update(paint="black")
    flush(db)  # it is merged, and another era begins
    moments.append(next(db.moments()).number)
    db.change_log.prune(db.change_log.end())

    eras = {(one.table_number, one.era) for one in read_manifest(db)[1]}
    assert len(eras) > len({table for table, _ in eras})
    renamed = 0
    for moment in moments:
        for name in ("orders", "customers"):
            begins, paths = find_files(db, name, moment)
            schema, began = db.at(moment).schema(name), db.at(begins).schema(name)
            names = {one.number: one.name for one in began.fields}
            renamed += [one.name for one in schema.fields] != [*names.values()]
            wanted = db.at(moment).table(name).to_arrow().read_all()
            fields = [names[one.number] for one in schema.fields]
            read = READERS[reader](paths, moment).select(fields)
            read = read.rename_columns(wanted.column_names).cast(wanted.schema)
            assert in_order(read) == in_order(wanted)
            assert read.num_rows > 0
    assert renamed > 0


@pytest.mark.parametrize("engine", ["sqlite"])
def test_other_engines_read_the_footer(workspace: Workspace, tmp_path: Path) -> None:
    """It tells what a file is, so that a store can be read without its database."""
    polars = pytest.importorskip("polars", reason="Polars is not installed")
    datafusion = pytest.importorskip("datafusion", reason="DataFusion is not installed")
    db = make_shop(workspace, orders=10, long=False)
    db.admin.set_setting("change_log", "on")
    begin(db, tmp_path / "store")
    db.table("orders").delete(5)
    store, _, files = read_manifest(db)
    for file in files:
        path = file.place_in(store.directory)
        context = datafusion.SessionContext()
        schema = context.read_parquet(str(path), skip_metadata=False).schema()
        told = {key.decode(): value.decode() for key, value in (schema.metadata or {}).items()}
        for footer in (polars.read_parquet_metadata(path), told):
            assert json.loads(footer["zapdb.history"])["kind"] == file.kind
            if file.table_number:
                table = read_canonical_bytes(base64.b64decode(footer["zapdb.schema"]))
                assert [one.name for one in table.fields] == parquet.read_schema(path).names[5:]
