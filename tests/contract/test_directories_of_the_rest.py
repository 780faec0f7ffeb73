"""A directory that begins after a stored migration, which its lock file names: what is stored is
applied no second time, and anything that does not fit is refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import zapdb
from tests.contract.tables import ADD_COLOR, ADD_WEIGHT, DROP_NOTE, INDEX_SIZE, ITEMS, RENAME_SIZE
from tests.support import Workspace, are_schemas_whole, dump
from zapdb.activation.inspection import list_migration_states
from zapdb.errors import InvalidMigration, MigrationConflict, UsageError, ZapdbError
from zapdb.migrations import list_files, load_directory
from zapdb.migrations.directory import FILE, read_lock
from zapdb.migrations.lockfile import lock_lines, write_lock

pytestmark = pytest.mark.empty

CHAIN = (ITEMS, ADD_COLOR, ADD_WEIGHT, INDEX_SIZE)
LATER = (DROP_NOTE, RENAME_SIZE)


@pytest.fixture
def rest(workspace: Workspace) -> Workspace:
    """Four stored migrations, of which the directory has the last two; its lock has all."""
    for number, operation in enumerate(CHAIN, 1):
        workspace.write(number, operation)
    with workspace.open() as db:
        db.table("items").insert(id=1, title="Milk", size=2)
    write_lock(workspace.directory, lock_lines(load_directory(workspace.directory)))
    workspace.remove(1)
    workspace.remove(2)
    return workspace


def set_lock(place: Workspace, change: Callable[[list[str]], list[str]]) -> None:
    file = place.directory / FILE
    file.write_text("".join(change(file.read_text().splitlines(keepends=True))))


@pytest.mark.on_each_engine
@pytest.mark.parametrize("apply", ["auto", "never"])
def test_rule_06_what_is_stored_is_applied_no_second_time(rest: Workspace, apply: str) -> None:
    before = dump(rest)["zapdb_migrations"]
    with zapdb.open(rest.address, migrations=rest.directory, apply=apply) as db:  # type: ignore[arg-type]  # of the two
        assert db.position == 4
        assert db.applied == ()
        assert not db._catalog.stored.is_read  # only those from the one before the files on
        assert db.table("items").get(1).weight == 7
    assert dump(rest)["zapdb_migrations"] == before


@pytest.mark.on_each_engine
def test_rule_06_what_is_pending_is_applied_behind_it(rest: Workspace) -> None:
    for number, operation in enumerate(LATER, 5):
        rest.write(number, operation)
    rest.remove(3)
    rest.remove(4)  # a stored one is the base, and no file of the stored ones is left
    with rest.open() as db:
        assert [one.number for one in db.applied] == [5, 6]
        assert db.table("items").get(1).extent == 2
    assert are_schemas_whole(rest.connect())
    with rest.open("never", serve_as=5) as db:
        assert db.table("items").get(1).size == 2
    with zapdb.open(rest.address, migrations=rest.directory, read_only=True) as db:
        assert db.table("items").count() == 1


def test_the_states_of_migrations_before_the_directory_are_as_they_should_be(
    rest: Workspace,
) -> None:
    rest.write(5, DROP_NOTE)
    with zapdb.open(rest.address) as db:
        states = list_migration_states(list_files(rest.directory), db._catalog)
    assert [state.number for state in states] == [1, 2, 3, 4, 5]
    assert [state.phase for state in states] == [*["applied"] * 4, "pending"]


def refused(place: Workspace, kind: type[ZapdbError]) -> ZapdbError:
    before = dump(place)
    with pytest.raises(kind) as caught:
        place.open()
    assert dump(place) == before
    assert caught.value.hint or getattr(caught.value, "violations", None)
    return caught.value


@pytest.mark.on_each_engine
def test_rule_06_another_digest_is_refused(rest: Workspace) -> None:
    set_lock(rest, lambda lines: [line.replace("z1:", "z1:0", 1) for line in lines])
    error = refused(rest, MigrationConflict)
    assert "begin after another migration" in error.message
    assert "0002_test" in str(error.context["after"])


@pytest.mark.on_each_engine
def test_rule_06_a_gap_behind_the_stored_end_is_refused(rest: Workspace) -> None:
    for number in (3, 4):
        rest.remove(number)
    rest.write(6, DROP_NOTE)
    set_lock(rest, lambda lines: [*lines, "0005_lost z1:00\n"])
    error = refused(rest, MigrationConflict)
    assert "does not store" in error.message
    assert error.context["stored"] == "0004_test"


def test_rule_06_a_gap_without_a_line_in_the_lock_is_refused(rest: Workspace) -> None:
    set_lock(rest, lambda lines: [line for line in lines if not line.startswith("0002")])
    error = refused(rest, InvalidMigration)
    assert "migration 1 is missing before this one" in str(error)
    assert FILE in str(error)
    (rest.directory / FILE).unlink()
    refused(rest, InvalidMigration)


def test_rule_06_a_gap_among_the_files_is_refused(rest: Workspace) -> None:
    rest.write(6, DROP_NOTE)
    assert "migration 5 is missing" in str(refused(rest, InvalidMigration))


def test_a_changed_file_of_the_rest_is_refused(rest: Workspace) -> None:
    rest.write(3, RENAME_SIZE)
    assert "differs from the migration that the database stored" in str(
        refused(rest, MigrationConflict)
    )


def test_a_new_database_can_not_begin_with_the_rest(rest: Workspace, tmp_path: Path) -> None:
    for address in (f"sqlite:///{tmp_path / 'new.db'}",):
        with pytest.raises((MigrationConflict, UsageError), match="begin") as caught:
            zapdb.open(address, migrations=rest.directory, apply="auto")
        assert caught.value.hint
    with pytest.raises(UsageError, match="only databases have"):
        load_directory(rest.directory)


def test_a_squash_stands_for_the_one_that_the_directory_begins_after(
    rest: Workspace, tmp_path: Path
) -> None:
    """The lock may name the migration that was the last of the squashed ones."""
    from zapdb.migrations.squash import squash, to_document

    with zapdb.open(rest.address) as db:
        chain = db._catalog.chain
        made = squash(chain, 2)
    other = tmp_path / "squashed"
    other.mkdir()
    (other / "0002_squashed.yaml").write_text(to_document(made))
    for number in (3, 4):
        name = f"{number:04d}_test.yaml"
        (other / name).write_bytes((rest.directory / name).read_bytes())
    address = f"sqlite:///{tmp_path / 'squashed.db'}"
    zapdb.open(address, migrations=other, apply="auto").close()
    with zapdb.open(address, migrations=rest.directory) as db:
        assert db.position == 4
    lines = read_lock(rest.directory) or []
    assert lines[1].digest == made.replaces[-1] != made.digest
