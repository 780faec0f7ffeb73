"""Every schema event of a table in the history store: followed at once, and late, when other
migrations have come behind it."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import zapdb
from tests import forms
from tests.contract.stored_pasts import begin, check_store, flush, read_manifest
from tests.contract.tables import ADD_COLOR, ITEMS, RENAME_SIZE
from tests.support import Workspace
from zapdb.activation.rollback import roll_back
from zapdb.catalog.cluster.leases import Owner
from zapdb.database import Database
from zapdb.errors import HistoryBehind, HistoryGap
from zapdb.jobs.archive_pruning import prune_archives
from zapdb.past.files.follower import HistoryFollower
from zapdb.past.files.stores import hold_store, start_store

DROP_NOTE = (
    "drop_field: {table: items, field: note, restore: {archive: true, otherwise: {value: lost}}}"
)
RESTORE_NOTE = (
    "restore_field: {table: items, field: note, archived_by: {}, otherwise: {value: never}}"
)
ADD_WEIGHT = "add_field: {table: items, field: {name: weight, type: integer, default: 7}}"
ADD_SHAPE = ADD_WEIGHT.replace("weight", "shape")
DROP_ITEMS = "drop_table: {table: items, records: archive}"
DISCARD_ITEMS = "drop_table: {table: items, records: discard}"
RESTORE_ITEMS = "restore_table: {table: items, archived_by: {}}"
TEXT_SIZE = (
    "change_type: {table: items, field: size, type: string, default: '0', up: 'text(size)',"
    " down: 'length(size)', reversibility: lossy, because: a test}"
)
OWNERS = "create_table: {table: owners, key: [name], fields: [{name: name, type: string}]}"
BACK, CONVERT, PRUNE, WRITE = "back", "convert", "prune", "write"

LIVES = {
    "fields": (ADD_COLOR, RENAME_SIZE, DROP_NOTE, CONVERT, RESTORE_NOTE, ADD_WEIGHT),
    "restored before it was converted": (DROP_NOTE, RESTORE_NOTE, ADD_COLOR, DROP_NOTE, ADD_WEIGHT),
    "pruned archive": (DROP_NOTE, CONVERT, PRUNE, WRITE, RESTORE_NOTE, ADD_COLOR),
    "rolled back": (ADD_COLOR, WRITE, BACK, WRITE, ADD_WEIGHT, CONVERT, BACK, ADD_SHAPE),
    "rolled back with values": (TEXT_SIZE, CONVERT, WRITE, BACK, WRITE, ADD_COLOR),
    "dropped field rolled back": (DROP_NOTE, CONVERT, WRITE, BACK, WRITE, ADD_COLOR),
    "restored field and its drop rolled back": (
        DROP_NOTE,
        WRITE,
        RESTORE_NOTE,
        BACK,
        BACK,
        WRITE,
        ADD_COLOR,
    ),
    "restored field rolled back": (DROP_NOTE, RESTORE_NOTE, WRITE, BACK, WRITE, ADD_COLOR),
    "restored table": (ADD_COLOR, DROP_ITEMS, RESTORE_ITEMS, WRITE, ADD_WEIGHT),
    "dropped table rolled back": (DROP_ITEMS, BACK, WRITE, ADD_COLOR, CONVERT),
    "discarded table rolled back": (DISCARD_ITEMS, BACK, WRITE, ADD_COLOR, CONVERT),
    "discarded table comes back twice": (
        DISCARD_ITEMS,
        BACK,
        ADD_COLOR,
        WRITE,
        DROP_ITEMS,
        BACK,
        ADD_WEIGHT,
    ),
    "pruned table": (DROP_ITEMS, PRUNE, RESTORE_ITEMS, WRITE, ADD_COLOR),
}


GAPS = ("rolled back with values", "restored field and its drop rolled back")
"""Behind a rollback, a record is what it was, or what the way forth and back has made of it, if it
was converted. Here these are two values. A follower that comes too late to read it is not told."""


@dataclass
class Life:
    """A database whose states are kept, by moment."""

    workspace: Workspace
    rnd: random.Random
    number: int = 1
    dropped: int = 0
    states: dict[int, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.workspace.write(1, ITEMS)
        self.db = self.workspace.open()
        self.db.admin.set_setting("change_log", "on")

    def note(self) -> None:
        self.states[next(self.db.moments()).number] = read_state(self.db)

    def write(self) -> None:
        rnd = self.rnd
        with self.db.transaction() as tx:
            items = tx.table("items")
            names = [one.name for one in self.db.table("items")._bound.schema.fields]
            for _ in range(3):
                key = rnd.randint(1, 20)
                items.upsert(id=key, title=f"t{rnd.random()}")
                if "note" in names and rnd.random() < 0.6:
                    items.update(key, note=f"n{rnd.random()}")
            items.where(items.f.id == rnd.randint(1, 20)).delete()
            key = rnd.randint(1, 20)  # a record of which nothing that was archived is left
            items.where(items.f.id == key).delete()
            items.insert(id=key, title="anew")
        self.note()

    def step(self, what: str) -> None:
        if what == WRITE:
            self.write()
        elif what == CONVERT:
            self.db.admin.run_jobs()
        elif what == PRUNE:
            self.db.admin.run_jobs()
            prune_archives(self.workspace.control, 1)
        else:
            self.db.close()
            if what == BACK:
                self.workspace.remove(self.number)
                self.number -= 1
                roll_back(self.workspace.control)
            else:
                self.number += 1
                operation = what.replace("archived_by: {}", f"archived_by: {self.dropped}")
                self.workspace.write(self.number, operation)
                self.dropped = self.number if "drop_" in what else self.dropped
            self.db = self.workspace.open()
        self.note()


def read_state(source: Database | Any) -> Any:
    return {
        name: [zapdb.asdict(record) for record in source.table(name).scan()]
        for name in source.tables
    }


AT_ONCE = [name for name in LIVES if forms.is_long or name.endswith(("with values", "table"))]


@pytest.mark.long_on("postgresql")
@pytest.mark.parametrize(
    ("name", "is_late"), [*((name, False) for name in AT_ONCE), *((name, True) for name in LIVES)]
)
def test_each_moment_is_exact(
    workspace: Workspace, tmp_path: Path, name: str, is_late: bool
) -> None:
    """H1, H2."""
    life = Life(workspace, random.Random(name))
    for _ in range(6):
        life.write()
    begin(life.db, tmp_path / "store")
    life.states = {moment: life.states[moment] for moment in [max(life.states)]}
    for what in LIVES[name]:
        life.step(what)
        if "items" in life.db.tables and life.rnd.random() < 0.6:
            life.write()
        if not is_late:
            flush(life.db)
    told = dict[int, Any]()
    for moment in life.states:
        try:
            told[moment] = read_state(life.db.at(moment))
        except HistoryBehind:
            assert is_late
    flush(life.db)
    check_store(life.db)
    gaps = 0
    for moment, state in life.states.items():
        past = life.db.at(moment)
        try:
            assert (read_state(past), past.exact) == (state, True), moment
        except HistoryGap:
            gaps += 1
        assert told.get(moment, state) == state, moment
    assert (gaps > 0) == (is_late and name in GAPS)


@pytest.mark.on_each_engine
@pytest.mark.parametrize("last", [ADD_COLOR, DROP_NOTE], ids=["added", "dropped"])
def test_a_layout_that_came_back_is_not_what_a_late_store_has(
    workspace: Workspace, tmp_path: Path, last: str
) -> None:
    """H1: records of before it have the bytes, but not the values: these were pruned meanwhile."""
    life = Life(workspace, random.Random(1))
    life.write()
    begin(life.db, tmp_path / "store")
    life.states = {moment: life.states[moment] for moment in [max(life.states)]}
    for what in (DROP_NOTE, CONVERT, PRUNE, RESTORE_NOTE, last):
        life.step(what)
    behind = 0
    for moment, state in life.states.items():
        try:
            assert read_state(life.db.at(moment)) == state, moment
        except HistoryBehind:
            behind += 1
    assert behind == 1
    flush(life.db)
    check_store(life.db)
    for moment, state in life.states.items():
        assert read_state(life.db.at(moment)) == state, moment


CHANGE_DEFAULT = "change_default: {table: items, field: size, default: 3}"


EXACT_SIZE = TEXT_SIZE.replace("length(size)", "integer(size, else=0)")


@pytest.mark.parametrize("later", [(TEXT_SIZE, WRITE), (EXACT_SIZE, WRITE, BACK, WRITE)])
def test_the_migration_that_an_era_began_with_may_be_rolled_back_in_it(
    workspace: Workspace, tmp_path: Path, later: tuple[str, ...]
) -> None:
    """H1: its records have the same bytes before, so the era goes on; a late follower converts them
    by a chain that has the migration no more."""
    life = Life(workspace, random.Random(1))
    life.write()
    life.step(CHANGE_DEFAULT)
    begin(life.db, tmp_path / "store")
    begins = max(life.states)
    life.step(BACK)
    life.write()
    for what in (*later, ADD_COLOR):
        life.step(what)
    flush(life.db)
    check_store(life.db)
    for moment in (moment for moment in life.states if moment >= begins):
        assert read_state(life.db.at(moment)) == life.states[moment], moment


def test_values_changed_before_the_first_checkpoint_leave_a_gap(
    workspace: Workspace, tmp_path: Path
) -> None:
    """H2, H7: what was answered before is refused then, and never answered otherwise; other tables
    have no gap."""
    life = Life(workspace, random.Random(1))
    workspace.write(2, OWNERS)
    life.db = workspace.open()
    life.db.table("owners").insert(name="Ada")
    for _ in range(3):
        life.write()
    with hold_store(life.db._storage, life.db._catalog.tenant, Owner.here(), 10) as working:
        start_store(working, tmp_path / "store")
    life.note()
    begins = max(life.states)
    assert read_state(life.db.at(begins)) == life.states[begins]
    life.number = 2
    life.step(TEXT_SIZE)
    migrated = max(life.states)
    life.write()
    flush(life.db)
    check_store(life.db)
    with pytest.raises(HistoryGap, match="before its first checkpoint was complete"):
        life.db.at(begins).table("items").get(1)
    assert [record.name for record in life.db.at(begins).table("owners").scan()] == ["Ada"]
    for moment in (migrated, max(life.states)):
        assert read_state(life.db.at(moment)) == life.states[moment]


def test_a_rollback_to_purged_records_leaves_a_gap_that_is_explained(
    workspace: Workspace, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """H2, H7: the database has records from before the migration as they were, the files have none
    of them any more, and another migration comes before the follower."""
    life = Life(workspace, random.Random(1))
    life.write()
    begin(life.db, tmp_path / "store")
    life.step(TEXT_SIZE)
    flush(life.db)
    migrated = max(life.states)
    life.db.history.purge(migrated, exact=True)
    life.step(BACK)
    life.write()
    rolled_back = max(life.states)
    life.step(ADD_COLOR)
    flush(life.db)
    check_store(life.db, since=migrated)
    with pytest.raises(HistoryGap, match="a rollback brought back records that were purged"):
        life.db.at(rolled_back).table("items").get(1)
    assert "no file has the records to which a rollback went back" in caplog.text
    for moment in (migrated, max(life.states)):
        assert read_state(life.db.at(moment)) == life.states[moment]


def test_values_changed_before_a_later_checkpoint_leave_no_gap(
    workspace: Workspace, tmp_path: Path
) -> None:
    """H1: the follower has passed one migration, and not written its checkpoint, when another one
    comes: it is made of the era before."""
    life = Life(workspace, random.Random(1))
    life.write()
    begin(life.db, tmp_path / "store")
    begins = max(life.states)
    life.step(TEXT_SIZE)
    with hold_store(life.db._storage, life.db._catalog.tenant, Owner.here(), 10) as working:
        HistoryFollower(working).step(flush=True)
    assert read_manifest(life.db)[1][-1].state == "baseline"
    life.write()
    life.step(ADD_COLOR)
    flush(life.db)
    check_store(life.db)
    for moment in (moment for moment in life.states if moment >= begins):
        assert read_state(life.db.at(moment)) == life.states[moment], moment
