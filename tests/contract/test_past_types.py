"""Random lives of tables with a field of every type: each past is what was read then, rewound, from
the store and from its tail."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

import zapdb
from tests.contract.every_type import _choices, make_shop
from tests.contract.stored_pasts import begin, flush, read_little_at_a_time
from tests.contract.test_past_stored import read_stored
from tests.forms import cases
from tests.support import Workspace
from zapdb.errors import HistoryBehind

pytestmark = pytest.mark.long

LATER = (
    "rename_field: {table: orders, field: color, to: colour}",
    "restore_field: {table: orders, field: fax, archived_by: 3, otherwise: {value: none}}",
    "alter_type: {type: address, rename: {country: land}}",
    "drop_field: {table: orders, field: pickup, restore: {archive: true}}",
    "alter_type: {type: state, add: [{name: lost, back: paid}], rename: {sent: shipped}}",
    "restore_field: {table: orders, field: pickup, archived_by: 7}",
    "transform: {table: orders, from: {colour: string}, into: {hue: {type: string, default: blue}},"
    " up: {hue: \"join('+', colour, text(length(colour)))\"}, down: {colour: hue},"
    " reversibility: lossy, because: a test}",
    "add_field: {table: orders, field: {name: initial, type: string},"
    " fill: {expression: \"before(hue, 'e')\"}}",
    "rename_table: {table: orders, to: purchases}",
)


class TypedLife:
    def __init__(self, workspace: Workspace, directory: Path, seed: int) -> None:
        self.workspace, self.rnd = workspace, random.Random(seed)
        self.db = make_shop(workspace, orders=12, long=seed % 2 == 0)
        self.later, self.number = [*LATER], 3
        self.states = dict[int, dict[str, str]]()
        self.db.admin.set_setting("change_log", "on")
        begin(self.db, directory)
        self.note()

    def note(self) -> None:
        self.states[next(self.db.moments()).number] = read_all(self.db)

    def step(self) -> None:
        chance = self.rnd.random()
        if chance < 0.2 and self.later:
            self.migrate()
        elif chance < 0.4:
            flush(self.db)
        elif chance < 0.5:
            self.db.admin.run_jobs()
        else:
            self.write()
        self.note()

    def migrate(self) -> None:
        self.number += 1
        self.workspace.write(self.number, self.later.pop(0))
        self.db.close()
        self.db = self.workspace.open()

    def write(self) -> None:
        (name,) = {*self.db.tables} - {"customers"}
        with self.db.transaction() as tx:
            orders = tx.table(name)
            for _ in range(self.rnd.randint(1, 4)):
                key = self.rnd.randrange(40)
                if self.rnd.random() < 0.2:
                    orders.delete_many([key])
                    continue
                values = self.choose_values(name)
                if self.rnd.random() < 0.5 and orders.exists(key):
                    some = self.rnd.sample([*values], 3)
                    orders.update(key, **{field: values[field] for field in some})
                else:
                    number = self.rnd.randrange(10)
                    customer = ("at" if number % 2 else "b\\e", number)
                    orders.upsert(id=key, customer=customer, **values)

    def choose_values(self, name: str) -> dict[str, Any]:
        fields = self.db._catalog.table(name).schema.fields
        return {
            one.name: self.rnd.choice(list(_choices(one, long=False)))
            for one in fields
            if one.name not in ("id", "customer", "parent")
        }

    def check(self, count: int) -> int:
        """Compare so many moments; return how many tables could be."""
        compared = 0
        for moment in self.rnd.sample([*self.states], count):
            past, state = self.db.at(moment), self.states[moment]
            assert {*past.tables} == {*state}, moment
            for name, rows in state.items():
                try:
                    stored = read_stored(past, name)
                    told = show(past.table(name))
                except HistoryBehind:
                    continue
                if past.exact:  # else values were archived before the store began
                    assert told == rows, (moment, name)
                    assert repr(stored) == rows, (moment, name)
                    compared += 1
        assert self.db.history.verify(sample=9).problems == ()
        return compared


def read_all(source: Any) -> dict[str, str]:
    return {name: show(source.table(name)) for name in source.tables}


def show(table: Any) -> str:
    """Its records; a NaN is like another one."""
    return repr([zapdb.asdict(record) for record in table.scan()])


@pytest.mark.parametrize("seed", range(cases(40)))
def test_h1_every_moment_is_what_it_was_with_every_type(
    workspace: Workspace, tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """H1, H2, H9."""
    if seed % 3 == 0:  # and eras end
        read_little_at_a_time(monkeypatch)
    life = TypedLife(workspace, tmp_path / "store", seed)
    if seed % 3 == 0:
        life.db.admin.set_setting("history_store_flush_changes", "20")
    while life.later:
        life.step()
    for _ in range(3):
        life.write()
        life.note()
    life.check(6)
    flush(life.db)
    assert life.check(len(life.states)) > len(life.states)
