"""Generated models beside a database: the same records, and refused where they don't fit."""

from __future__ import annotations

import copy
import datetime
import importlib.util
import pickle
import sys
from decimal import Decimal
from pathlib import Path
from types import ModuleType
from typing import Any
from zoneinfo import ZoneInfo

import pytest

import zapdb
from tests import processes
from tests.contract.tables import ADD_COLOR, INDEX_SIZE, ITEMS
from tests.support import Workspace
from zapdb import asdict
from zapdb.datasets import zone
from zapdb.errors import ModelsMismatch, UsageError
from zapdb.migrations import load_directory
from zapdb.typed.model_text import write_module
from zapdb.values import Blob

EVERYTHING = (
    "create_type: {type: state, enum: [open, done]}",
    """create_type: {type: address, struct: [
      {name: street, type: string}, {name: zip, type: string, optional: true}]}""",
    """\
create_table: {table: things, key: [id], fields: [
      {name: id, type: integer},
      {name: state, type: state, default: open},
      {name: home, type: address, optional: true},
      {name: homes, type: list, of: address, default: []},
      {name: due, type: zoned_timestamp, optional: true},
      {name: made, type: timestamp, optional: true},
      {name: day, type: date, optional: true},
      {name: price, type: decimal, scale: 2, optional: true},
      {name: extra, type: json, optional: true},
      {name: weight, type: float, optional: true},
      {name: text, type: string, optional: true},
      {name: data, type: binary, optional: true}]}""",
)
FULL: dict[str, Any] = {
    "state": "done",
    "home": {"street": "Rue"},
    "homes": [{"street": "Rue", "zip": "1"}],
    "due": datetime.datetime(2026, 10, 25, 2, 30, tzinfo=ZoneInfo("Europe/Berlin"), fold=1),
    "made": datetime.datetime(2026, 10, 25, tzinfo=datetime.UTC),
    "day": datetime.date(2026, 10, 25),
    "price": Decimal("1.50"),
    "extra": {"a": [1, None, True]},
    "weight": 0.5,
    "text": "long " * 2_000,
    "data": bytes(range(256)) * 40,
}


def load_models(place: Workspace, name: str = "models") -> ModuleType:
    """The module for the files as they are, imported."""
    chain = load_directory(place.directory)
    path = place.directory.parent / f"{name}.py"
    path.write_text(write_module(chain, chain.end, {}), encoding="utf-8")
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def open_with(place: Workspace, models: ModuleType | None, **options: Any) -> zapdb.Database:
    options = {"migrations": place.directory, "apply": "auto"} | options
    return zapdb.open(place.address, models=models, **options)


def test_records_are_instances_of_their_models(workspace: Workspace) -> None:
    workspace.write(1, *EVERYTHING)
    models = load_models(workspace)
    with open_with(workspace, models) as db:
        things = db.table(models.Thing)
        made = things.insert(id=1, **FULL)
        read = db.table("things").get(1)
        assert type(made) is type(read) is models.Thing
        assert type(read.home) is type(read.homes[0]) is models.Address
        assert read == made == models.Thing(1, *(getattr(made, name) for name in FULL))
        assert [item.id for item in things.where(things.f.state == "done")] == [1]
        assert "things" in (models.Thing.__doc__ or "")


@pytest.mark.on_each_engine
def test_all_kinds_of_values_are_copied_and_pickled(workspace: Workspace, tmp_path: Path) -> None:
    """A process without the database, and without the models, gets the whole record."""
    workspace.write(1, *EVERYTHING)
    with open_with(workspace, None) as db:
        db.table("things").insert(id=1, **FULL)
        copied = copy.deepcopy(db.table("things").get(1))
        read = db.table("things").get(1)
        dumped = pickle.dumps(read)
        whole = asdict(read)
        assert copied == copy.copy(read) == read
        lazy = db.table("things").get(1)
    # To Python, an ambiguous local time differs from the same one by another object for the zone.
    due = FULL["due"].replace(tzinfo=zone("Europe/Berlin"))
    assert whole == {"id": 1} | FULL | {"home": {"street": "Rue", "zip": None}, "due": due}
    assert whole["due"].fold == 1
    loaded = pickle.loads(dumped)
    assert loaded == read
    assert type(loaded) is type(read)
    assert not isinstance(loaded.text, Blob)

    path = tmp_path / "record.pickle"
    path.write_bytes(dumped)
    program = f"""
import pickle
from zapdb import asdict
record = pickle.load(open({str(path)!r}, "rb"))
print(repr(record))
print(record.due.isoformat(), record.due.fold, len(record.text), len(record.data))
print(asdict(record)["homes"])
"""
    ran = processes.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout.splitlines() == [
        repr(loaded),
        "2026-10-25T02:30:00+01:00 1 10000 10240",
        "[{'street': 'Rue', 'zip': '1'}]",
    ]
    # A record whose large values were not looked at before the database was closed has none.
    with pytest.raises(UsageError, match="closed"):
        pickle.dumps(lazy)


def test_a_mismatch_is_an_error_at_open(workspace: Workspace) -> None:
    workspace.write(1, ITEMS, *EVERYTHING)
    models = load_models(workspace)
    open_with(workspace, models).close()
    workspace.write(
        2,
        ADD_COLOR,
        "rename_field: {table: items, field: note, to: remark}",
        "create_index: {table: things, index: by_day, fields: [{field: day}]}",
    )
    for options in ({"apply": "auto"}, {"apply": "never"}, {"apply": "never", "read_only": True}):
        with pytest.raises(ModelsMismatch) as caught:
            open_with(workspace, models, **options)
        error = caught.value
        assert error.context["made_of"] == "0001_test"
        assert error.context["schema"] == "0002_test"
        assert error.context["differences"].split("\n    ")[1:] == [
            "items.note: not there, in the models string, optional",
            "items.remark: string, optional, in the models not there",
            "items.color: string, has a default, in the models not there",
        ]
        assert error.hint == f"run `zapdb codegen models --output {models.__file__}`"
    # The models are those of the shapes that the process works with, and not of what is in force.
    open_with(workspace, models, apply="never", serve_as=1).close()
    with pytest.raises(ModelsMismatch, match="do not match the schema"):
        open_with(workspace, load_models(workspace, "newer"), apply="never", serve_as=1)
    open_with(workspace, load_models(workspace, "newer"), apply="never").close()


def test_what_the_models_do_not_say_is_no_mismatch(workspace: Workspace) -> None:
    workspace.write(1, ITEMS)
    models = load_models(workspace)
    workspace.write(2, INDEX_SIZE, *EVERYTHING)
    open_with(workspace, models).close()


@pytest.mark.parametrize("engine", ["sqlite"])
def test_tables_that_are_gone_and_changed_types_are_named(workspace: Workspace) -> None:
    workspace.write(1, ITEMS, *EVERYTHING)
    models = load_models(workspace)
    workspace.write(
        2,
        "alter_type: {type: state, add: [{name: later, back: open}]}",
        "rename_table: {table: items, to: articles}",
    )
    with pytest.raises(ModelsMismatch) as caught:
        open_with(workspace, models)
    assert caught.value.context["differences"].split("\n    ")[1:] == [
        "items: there is no such table",
        "state.later: there, in the models not there",
    ]
    assert pickle.loads(pickle.dumps(caught.value)).context == caught.value.context


@pytest.mark.parametrize("engine", ["sqlite"])
def test_models_are_a_generated_module_with_migration_files(workspace: Workspace) -> None:
    workspace.write(1, ITEMS)
    with pytest.raises(UsageError, match="zapdb codegen models"):
        open_with(workspace, datetime)
    with pytest.raises(UsageError, match="str"):
        open_with(workspace, "models")
    models = load_models(workspace)
    with pytest.raises(UsageError, match="none were given"):
        zapdb.open(workspace.address, models=models)
    workspace.open().close()  # nothing of that has made the database


@pytest.mark.parametrize("engine", ["sqlite"])
def test_a_table_is_not_opened_by_a_class_of_another_shape(workspace: Workspace) -> None:
    workspace.write(1, ITEMS)
    models = load_models(workspace)
    workspace.write(2, ADD_COLOR)
    with open_with(workspace, None) as db:
        with pytest.raises(ModelsMismatch) as caught:
            db.table(models.Item)
        assert caught.value.context == {
            "table": "items",
            "fields": "id, title, size, note, color",
            "model": "id, title, size, note",
        }
        assert db.table(load_models(workspace, "newer").Item).name == "items"
        for wrong in (models, 3, None, dict):
            with pytest.raises(zapdb.ZapdbError):
                db.table(wrong)
