"""Squashes: databases that store what one replaces, and databases that begin with it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import zapdb
from tests.contract.tables import (
    ADD_COLOR,
    ADD_WEIGHT,
    DROP_NOTE,
    INDEX_TITLE,
    ITEMS,
    RENAME_SIZE,
)
from tests.support import Workspace, dump, error_of
from zapdb.activation import rollback
from zapdb.cli.program import run_program
from zapdb.errors import EXIT_PENDING, InvalidMigration, MigrationConflict, UsageError
from zapdb.migrations.directory import FILE, read_lock
from zapdb.records import asdict
from zapdb.schema import bytes_without_numbers

TYPES = "create_type: {type: mood, enum: [good, bad]}"
ADD_MOOD = "add_field: {table: items, field: {name: mood, type: mood, default: bad}}"
OTHERS = """\
create_table: {table: others, key: [id], fields: [
      {name: id, type: integer}, {name: item, type: reference, to: items}]}"""
INDEX_ITEM = "create_index: {table: others, index: by_item, fields: [{field: item}]}"
REFERENCE = "add_reference: {table: others, field: item, on_delete: restrict}"
CHECK = "add_check: {table: items, check: positive, expression: extent >= 0}"
CHAIN = ((ITEMS,), (TYPES, ADD_MOOD, INDEX_TITLE), (RENAME_SIZE, DROP_NOTE, CHECK),
         (OTHERS, INDEX_ITEM, REFERENCE))  # fmt: skip


@pytest.fixture
def place(workspace: Workspace) -> Workspace:
    for number, operations in enumerate(CHAIN, 1):
        workspace.write(number, *operations)
    return workspace


def squash(place: Workspace, to: int) -> None:
    assert run_program(["migrate", "check", "--write", "-m", str(place.directory)]) == 0
    assert (
        run_program(["migrate", "squash", "--to", str(to), "--yes", "-m", str(place.directory)])
        == 0
    )


def files(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.glob("*.yaml"))


def contents(db: Any) -> list[dict[str, Any]]:
    return [asdict(record) for record in db.table("items").scan()]


def test_rule_06_a_database_that_stores_what_it_replaces_goes_on(place: Workspace) -> None:
    with place.open() as db:
        db.table("items").insert_many({"id": at, "title": f"t{at}"} for at in range(5))
        held, digests = contents(db), [m.digest for m in db._catalog.chain.migrations]
    before = dump(place)["zapdb_migrations"]
    squash(place, 3)
    assert files(place.directory) == ["0003_squashed.yaml", "0004_test.yaml"]
    with place.open("never") as db:
        assert contents(db) == held
        assert [m.digest for m in db._catalog.chain.migrations] == digests
    assert dump(place)["zapdb_migrations"] == before
    place.write(5, ADD_COLOR)
    with place.open() as db:
        assert {record.color for record in db.table("items").scan()} == {"red"}
        assert db.position == 5


def test_rule_06_a_new_database_begins_with_it(place: Workspace, tmp_path: Path) -> None:
    with place.open() as db:
        wanted = {t.name: bytes_without_numbers(t) for t in db._catalog.chain.schema_at(4)}
    squash(place, 3)
    address = f"sqlite:///{tmp_path / 'new.db'}"
    with zapdb.open(address, migrations=place.directory, apply="auto") as db:
        assert db.position == 4
        assert {t.name: bytes_without_numbers(t) for t in db._catalog.chain.schema_at(4)} == wanted
        assert [m.number for m in db._catalog.chain.migrations] == [3, 4]
        db.table("items").insert(id=1, title="a")
        assert [entry.position for entry in db.admin.schema_history("items")] == [3]
    place.write(5, ADD_WEIGHT)
    with zapdb.open(address, migrations=place.directory, apply="auto") as db:
        assert db.table("items").get(1).weight == 7
        db.admin.run_jobs()
        for report in db.admin.verify():
            assert report.problems == ()
    for number in (5, 4):
        roll_back(address, number)
    with pytest.raises(UsageError, match="a squash cannot be rolled back"):
        roll_back(address, 3)


def roll_back(address: str, number: int) -> None:
    storage = zapdb.storage.connect(address)
    try:
        assert rollback.roll_back(storage).migrations[0].number == number
    finally:
        storage.close()


def test_rule_06_older_files_open_a_database_that_began_with_it(
    place: Workspace, tmp_path: Path
) -> None:
    """A process of before the squash, on a database that was made after it."""
    older = {path.name: path.read_text() for path in place.directory.glob("*.yaml")}
    squash(place, 3)
    address = f"sqlite:///{tmp_path / 'new.db'}"
    zapdb.open(address, migrations=place.directory, apply="auto").close()
    directory = tmp_path / "older"
    directory.mkdir()
    for name, text in older.items():
        (directory / name).write_text(text)
    with zapdb.open(address, migrations=directory) as db:
        assert db.position == 4
    changed = directory / "0002_test.yaml"
    changed.write_text(changed.read_text().replace("default: bad", "default: good"))
    with pytest.raises(MigrationConflict, match="squashed from different migrations"):
        zapdb.open(address, migrations=directory)


def test_rule_06_a_database_with_a_part_of_them_is_refused(place: Workspace) -> None:
    for number in (3, 4):
        place.remove(number)
    place.open().close()
    for number in (3, 4):
        place.write(number, *CHAIN[number - 1])
    squash(place, 3)
    before = dump(place)
    error = error_of(lambda: place.open())
    assert isinstance(error, MigrationConflict)
    assert "a squash of more migrations than the database stores" in str(error)
    assert dump(place) == before


def test_rule_06_a_database_with_other_migrations_is_a_conflict(place: Workspace) -> None:
    place.open().close()
    place.write(2, TYPES, ADD_MOOD.replace("bad", "good"), INDEX_TITLE)
    squash(place, 3)
    error = error_of(lambda: place.open())
    assert isinstance(error, MigrationConflict)
    assert "first_difference: migration 2" in str(error)


def test_rule_06_a_squash_of_a_squash_replaces_all_of_them(place: Workspace) -> None:
    place.open().close()
    squash(place, 2)
    squash(place, 4)
    assert files(place.directory) == ["0004_squashed.yaml"]
    with place.open("never") as db:
        assert db.position == 4


def test_rule_06_files_before_a_squash_are_refused(place: Workspace) -> None:
    text = (place.directory / "0001_test.yaml").read_text()
    squash(place, 3)
    (place.directory / "0001_again.yaml").write_text(text)
    error = error_of(lambda: place.open())
    assert isinstance(error, InvalidMigration)
    assert "migration 2 is missing" in str(error)


# --- a directory that begins after a squash ------------------------------------------------------


@pytest.fixture
def behind_squash(place: Workspace, tmp_path: Path) -> tuple[Workspace, str]:
    """Files that begin after a squash, which their lock file names; a database that stores what it
    replaces one by one, with the migration after it, and the address of one that began with it."""
    place.open().close()
    squash(place, 3)
    address = f"sqlite:///{tmp_path / 'new.db'}"
    zapdb.open(address, migrations=place.directory, apply="auto").close()
    place.remove(3)
    place.write(5, ADD_COLOR)
    return place, address


@pytest.mark.on_each_engine
def test_rule_06_files_after_a_squash_are_for_databases_with_what_it_replaces(
    behind_squash: tuple[Workspace, str],
) -> None:
    place, squashed = behind_squash
    for address in (place.address, squashed):
        for command in ("plan", "rehearse", "up", "status", "diff", "check"):
            write = ["--write"] if command == "check" else []
            given = [*write, "-d", address, "-m", str(place.directory)]
            assert run_program(["migrate", command, *given]) in (0, EXIT_PENDING)
        with zapdb.open(address, migrations=place.directory) as db:
            assert db.position == 5
            assert not db._catalog.stored.is_read
    lines = read_lock(place.directory) or []
    assert [line.label for line in lines] == ["0003_squashed", "0004_test", "0005_test"]


def test_rule_06_files_after_a_squash_of_others_are_refused(
    behind_squash: tuple[Workspace, str], tmp_path: Path
) -> None:
    """A squash is one of certain migrations, also if the last one of others is the same."""
    place, _ = behind_squash
    for number in (4, 5):
        place.remove(number)
    for number, operations in enumerate(CHAIN[:3], 1):
        place.write(number, *operations)
    place.write(2, TYPES, ADD_MOOD.replace("bad", "good"), INDEX_TITLE)
    lock = (place.directory / FILE).read_text()
    squash(place, 3)
    address = f"sqlite:///{tmp_path / 'other.db'}"
    zapdb.open(address, migrations=place.directory, apply="auto").close()
    place.remove(3)
    place.write(4, *CHAIN[3])
    (place.directory / FILE).write_text(lock)
    with pytest.raises(MigrationConflict, match="begin after another migration") as caught:
        zapdb.open(address, migrations=place.directory, apply="auto")
    assert "0003_squashed" in str(caught.value.context["stored"])


def test_rule_06_files_that_begin_within_a_squash_are_told_what_to_do(
    place: Workspace, tmp_path: Path
) -> None:
    place.open().close()
    assert run_program(["migrate", "check", "--write", "-m", str(place.directory)]) == 0
    older = tmp_path / "older"
    older.mkdir()
    for name in ("0003_test.yaml", "0004_test.yaml", FILE):
        (older / name).write_bytes((place.directory / name).read_bytes())
    squash(place, 3)
    address = f"sqlite:///{tmp_path / 'new.db'}"
    zapdb.open(address, migrations=place.directory, apply="auto").close()
    with pytest.raises(MigrationConflict, match="stored as one squash") as caught:
        zapdb.open(address, migrations=older)
    assert "delete the files up to 0003" in caught.value.hint
    (older / "0003_test.yaml").unlink()
    with zapdb.open(address, migrations=older) as db:
        assert db.position == 4
