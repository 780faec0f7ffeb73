"""NOT NULL and foreign keys of a mirror: there whenever all changes are applied, and in no way of
any change."""

from __future__ import annotations

import random
from contextlib import closing, suppress
from typing import Any

import pytest

from tests import forms
from tests.contract.mirrors import KEYS, Place, check, in_pairs, keep, place
from tests.support import Workspace
from zapdb.activation.rollback import roll_back
from zapdb.activation.up import MigrationChoice, migrate_up
from zapdb.catalog import DEFAULT_TENANT
from zapdb.cli.program import run_program
from zapdb.database import Database
from zapdb.errors import ReferenceViolation, StorageError
from zapdb.transfer.mirror import batch as batches
from zapdb.transfer.mirror.comparison import compare_mirror
from zapdb.transfer.mirror.duckdb_target import DuckdbSession
from zapdb.transfer.mirror.mirror import Mirror
from zapdb.transfer.mirror.mirror_status import read_mirror_status
from zapdb.transfer.mirror.postgresql_target import PostgresqlSession
from zapdb.transfer.mirror.sqlite_target import SqliteSession
from zapdb.transfer.mirror.target_opening import open_target

__all__ = ["place"]

TABLES = (
    """\
create_table: {table: owners, key: [id, name], fields: [
      {name: id, type: integer}, {name: name, type: string},
      {name: favourite, type: integer, optional: true},
      {name: note, type: string}]}""",
    """\
create_table: {table: pets, key: [id], fields: [
      {name: id, type: integer},
      {name: owner, type: reference, to: owners},
      {name: friend, type: reference, to: pets, optional: true},
      {name: size, type: integer, optional: true}]}""",
    """\
create_table: {table: toys, key: [id], fields: [
      {name: id, type: integer},
      {name: pet, type: reference, to: pets}]}""",
    "create_index: {table: pets, index: by_owner, fields: [{field: owner}]}",
    "create_index: {table: pets, index: by_friend, fields: [{field: friend}]}",
    "create_index: {table: toys, index: by_pet, fields: [{field: pet}]}",
    "add_reference: {table: pets, field: owner, on_delete: cascade}",
    "add_reference: {table: pets, field: friend, on_delete: set_null}",
    "add_reference: {table: toys, field: pet, on_delete: cascade}",
)
STEPS: tuple[tuple[str, ...], ...] = (
    (
        "add_field: {table: owners,"
        " field: {name: best, type: reference, to: pets, optional: true}}",
        "create_index: {table: owners, index: by_best, fields: [{field: best}]}",
        "add_reference: {table: owners, field: best, on_delete: set_null}",
    ),
    (
        "make_required: {table: pets, field: size, fill: {value: 7}}",
        "add_field: {table: toys, field: {name: colour, type: string}, fill: {value: its red}}",
    ),
    (
        "add_field: {table: pets, field: {name: twice, type: integer},"
        " fill: {expression: size + size}}",
        "rename_field: {table: pets, field: owner, to: keeper}",
    ),
    (
        "make_optional: {table: owners, field: note, fill: {value: none}}",
        "rename_table: {table: pets, to: animals}",
    ),
    (
        "drop_reference: {table: animals, field: friend}",
        "drop_index: {table: animals, index: by_friend}",
        "drop_field: {table: animals, field: friend,"
        " restore: {archive: true, otherwise: {value: null}}}",
    ),
    (
        "drop_table: {table: toys, records: archive}",
        "change_type: {table: animals, field: size, type: string, up: text(size),"
        ' down: "integer(size, else=0)"}',
    ),
)
TARGETS = (PostgresqlSession, SqliteSession, DuckdbSession)


@pytest.fixture(autouse=True)
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    for kind in TARGETS:
        monkeypatch.setattr(kind, "page_rows", 4)


def start(workspace: Workspace) -> Database:
    workspace.write(1, *TABLES)
    db = workspace.open()
    insert(db, 6)
    return db


def insert(db: Database, count: int) -> None:
    with db.transaction():
        for at in range(count):
            db.table("owners").insert(id=at, name="Ada", note="n")
            db.table("pets").insert(id=at, owner=(at, "Ada"), friend=at)
            db.table("toys").insert(id=at, pet=at)


def status_of(db: Database, place: Place) -> dict[str, tuple[str, ...]]:
    with closing(open_target(place.address, db._storage)) as target:
        return {one.name: one.lacking for one in read_mirror_status(db, target).tables}


@in_pairs
def test_they_are_there_when_all_is_applied(workspace: Workspace, place: Place) -> None:
    db = start(workspace)
    keep(db, place)
    check(db, place)
    for number, operations in enumerate(STEPS, 2):
        workspace.write(number, *operations)
        db.close()
        db = workspace.open()
        db.admin.run_jobs()
        keep(db, place)
        check(db, place)
        assert set().union(*status_of(db, place).values()) == set()
    for number in range(len(STEPS) + 1, 1, -1):
        db.close()
        workspace.remove(number)
        roll_back(workspace.connect())
        db = workspace.open()
        db.admin.run_jobs()
        keep(db, place)
        check(db, place)


@in_pairs
def test_whoever_takes_them_away_gets_them_back(
    workspace: Workspace, place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    db = start(workspace)
    keep(db, place)
    if place.kind == "postgresql":
        (name,) = place.execute("SELECT min(conname)::text FROM pg_constraint WHERE contype = 'f'")[
            0
        ]
        place.execute(f"ALTER TABLE pets DROP CONSTRAINT {name}")
        place.execute("DELETE FROM owners WHERE id = 3")
        lacking = compare_lacking(db, place)
        assert lacking.pop("pets").startswith("it lacks the foreign key owner_1, owner_2 → owners")
        assert set(lacking.values()) == {""}
        arguments = ["-d", workspace.address, "--to", place.address]
        assert run_program(["mirror", "status", *arguments]) == 1  # a row is missing, too
        assert "pets       6" in (out := capsys.readouterr().out)
        assert "lacks the foreign key owner_1, owner_2" in out
    elif place.kind == "sqlite":
        place.execute("DROP TABLE pets")
    else:
        place.execute("ALTER TABLE pets ALTER COLUMN owner_1 DROP NOT NULL")
    keep(db, place)
    check(db, place)


def compare_lacking(db: Database, place: Place) -> dict[str, str]:
    with closing(open_target(place.address, db._storage)) as target:
        return {one.name: one.problem for one in compare_mirror(db, target)}


@in_pairs
def test_foreign_keys_may_be_left_out(workspace: Workspace, place: Place) -> None:
    db = start(workspace)
    run = ["mirror", "run", "--once", "-d", workspace.address, "--to", place.address]
    wanted = 0 if place.kind == "duckdb" else 3
    for options, there in ((["--no-foreign-keys"], 0), ([], 0), (["--foreign-keys"], wanted)):
        assert run_program([*run, *options]) == 0
        assert len(found_keys(place)) == there
        assert set().union(*status_of(db, place).values()) == set()
    assert run_program([*run, "--no-foreign-keys"]) == 0
    assert found_keys(place) == []
    if place.kind == "postgresql":
        assert place.execute("SELECT * FROM pg_indexes WHERE indexname LIKE 'zapdb_ref%'") == []


def found_keys(place: Place) -> list[Any]:
    return [] if place.kind == "duckdb" else place.execute(KEYS[place.kind])


@pytest.mark.parametrize(("engine", "place"), [("postgresql", "postgresql")], indirect=["place"])
def test_a_foreign_key_of_others_that_rows_break_is_named(
    workspace: Workspace, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    db = start(workspace)
    arguments = ["-d", workspace.address, "--to", place.address]
    assert run_program(["mirror", "run", "--once", "--no-foreign-keys", *arguments]) == 0
    place.execute("ALTER TABLE toys ADD CONSTRAINT own FOREIGN KEY (id) REFERENCES pets (id)")
    db.table("toys").insert(id=99, pet=1)
    with pytest.raises(StorageError, match="reported an error") as caught:
        keep(db, place)
    assert '"own"' in str(caught.value)
    place.execute("ALTER TABLE toys DROP CONSTRAINT own")
    keep(db, place)


class Life:
    """An application that writes, migrates and rolls back; a mirror that is some steps behind."""

    def __init__(self, workspace: Workspace, place: Place, seed: int) -> None:
        self.workspace, self.place = workspace, place
        self.chance = random.Random(seed)
        self.db = start(workspace)
        self.newest = 1

    def step(self) -> None:
        acts = [self.write, self.write, self.write, self.follow, self.catch_up, self.move]
        self.chance.choice(acts)()

    def write(self) -> None:
        """Records of all tables in one transaction; what is missing or restricted is left."""
        chance, db = self.chance, self.db
        with db.transaction() as tx:
            for _ in range(chance.randrange(1, 9)):
                self._write_one(tx, chance.randrange(12))

    def _write_one(self, tx: Any, at: int) -> None:
        chance, names = self.chance, set(self.db.tables)
        owners = tx.table("owners")
        pets = tx.table("pets" if "pets" in names else "animals")
        owner, friend = chance.randrange(12), chance.randrange(12)
        keeper = "owner" if "owner" in pets.field_names else "keeper"
        how = chance.randrange(6)
        with suppress(ReferenceViolation):
            if how == 0:
                owners.upsert(id=at, name="Ada", note=f"{chance.random()}")
                if "best" in owners.field_names:
                    owners.update(at, "Ada", best=friend)
            elif how == 1:
                owners.delete_many([(at, "Ada")])
            elif how == 2:
                more = {"friend": friend} if "friend" in pets.field_names else {}
                pets.upsert(**{"id": at, keeper: (owner, "Ada"), **self._size(pets)})
                pets.update(at, **more)
            elif how == 3:
                pets.delete_many([at])
            elif "toys" in names:
                colour = {"colour": "new"} if "colour" in tx.table("toys").field_names else {}
                tx.table("toys").upsert(id=at, pet=friend, **colour)

    def _size(self, pets: Any) -> dict[str, Any]:
        is_text = any(
            f.name == "size" and str(f.type) == "string"
            for f in pets._current().adapter.schema.fields
        )
        size = str(self.chance.randrange(5)) if is_text else self.chance.randrange(5)
        return {"size": size, **({"twice": 1} if "twice" in pets.field_names else {})}

    def move(self) -> None:
        """To another schema, with or without its jobs."""
        is_up = self.newest == 1 or (self.newest <= len(STEPS) and self.chance.random() < 0.6)
        self.db.close()
        if is_up:
            self.newest += 1
            self.workspace.write(self.newest, *STEPS[self.newest - 2])
            choice = MigrationChoice(again=True)
            migrate_up(self.workspace.connect(), DEFAULT_TENANT, self.workspace.directory, choice)
        else:
            self.workspace.remove(self.newest)
            self.newest -= 1
            roll_back(self.workspace.connect())
        self.db = self.workspace.open()
        if self.chance.random() < 0.7:
            self.db.admin.run_jobs()

    def follow(self) -> None:
        """Some steps of a mirror that is then killed."""
        with closing(open_target(self.place.address, self.db._storage)) as target:
            mirror = Mirror(self.db, target)
            mirror.switch_on()
            for _ in range(self.chance.randrange(8)):
                if not mirror.step():
                    break

    def catch_up(self) -> None:
        keep(self.db, self.place)
        check(self.db, self.place)
        assert set().union(*status_of(self.db, self.place).values()) == set()


@in_pairs
@pytest.mark.parametrize("seed", range(40 if forms.is_long else 3))
def test_a_random_life(
    workspace: Workspace, place: Place, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batches, "BATCH_CHANGES", 3)
    monkeypatch.setattr(batches, "BATCH_CHANGES_MAX", 4)  # so batches end inside transactions
    life = Life(workspace, place, seed)
    for _ in range(200 if forms.is_long else 40):
        life.step()
    life.catch_up()
