"""Random lives of processes that use tables which others have not: these are made, rolled back,
applied again, and forgotten, while each process reads and writes the tables of its own files."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

import pytest

import zapdb
from tests import forms
from tests.contract.rollbacks import MortalCommands, telling
from tests.support import Workspace
from zapdb.activation import rollback
from zapdb.activation.up import MigrationChoice, migrate_up
from zapdb.catalog import DEFAULT_TENANT
from zapdb.database import Database
from zapdb.errors import UnknownName
from zapdb.jobs.archive_pruning import drop_kept_tables, forget_migrations, sweep_chain_state
from zapdb.storage import Storage

SEEDS = range(60 if forms.is_long else 2)
STEPS = 80
NODES_MAX = 6
KEYS = range(4)
DEATHS = 0.3
"""The share of commands whose process ends midway."""


@dataclass(eq=False)
class Node:
    """A stored migration: the tables that there are behind it, by number, with their names."""

    number: int
    parent: Node | None
    tables: dict[int, str]
    operation: str

    @property
    def line(self) -> list[Node]:
        return [self] if self.parent is None else [*self.parent.line, self]


@dataclass
class Model:
    active: Node
    nodes: list[Node]
    kept: set[Node] = field(default_factory=set)
    records: dict[int, dict[int, int]] = field(default_factory=dict)
    """Those of each table that is there, active or kept."""

    def drop_unused(self, processes: dict[Node, Database], gone: set[int]) -> None:
        """Drop tables that are not active any more, if nobody has them."""
        used = {t for node in (*self.kept, *processes) for t in node.tables}
        for table in gone - used - self.active.tables.keys():
            self.records.pop(table, None)


class Life:
    def __init__(self, workspace: Workspace, seed: int, patch: pytest.MonkeyPatch) -> None:
        self.random, self.workspace, self.trace = random.Random(seed), workspace, list[str]()
        self.commands = MortalCommands(workspace, self.random, patch, DEATHS)
        first = Node(1, None, {0: "t0"}, self.make(0))
        workspace.write(1, first.operation)
        self.model = Model(first, [first], records={0: {}})
        self.count = 1
        self.processes = {first: self.start(first)}
        self.plain = workspace.follow()

    def make(self, table: int) -> str:
        return (
            f"create_table: {{table: t{table}, key: [id],"
            " fields: [{name: id, type: integer}, {name: value, type: integer}]}"
        )

    def files(self, node: Node) -> Path:
        place = self.workspace.directory.parent / f"files_{self.model.nodes.index(node)}"
        if not place.exists():
            shutil.copytree(self.workspace.directory, place)
        return place

    def start(self, node: Node) -> Database:
        apply = "auto" if node.number == 1 else "never"
        db = zapdb.open(self.workspace.address, migrations=self.files(node), apply=apply)
        self.workspace._opened.append(db)
        return db

    def do(self, action: Callable[[Storage], object]) -> None:
        """Do what a command does. Where its process ends midway, others write before it is done
        again."""
        if self.commands.run(action):
            return
        self.trace.append("  ends midway")
        self.check_processes()
        for _ in range(self.random.randrange(3)):
            self.write()
            self.check_processes()
        with closing(self.workspace.connect()) as storage:
            action(storage)

    def up(self, directory: Path) -> None:
        def act(storage: Storage) -> None:
            migrate_up(storage, DEFAULT_TENANT, directory, MigrationChoice(again=True))
            sweep_chain_state(storage)  # at once, since no values were kept

        self.do(act)

    def apply(self) -> None:
        model, parent = self.model, self.model.active
        if len(model.nodes) >= NODES_MAX:
            return
        number, self.count = self.count, self.count + 1
        tables, name = dict(parent.tables), self.random.choice([*parent.tables.values()])
        if self.random.random() < 0.6:
            operation = self.make(number)
            tables[number] = f"t{number}"
        elif self.random.random() < 0.5:
            operation = f"rename_table: {{table: {name}, to: r{number}}}"
            tables = {t: f"r{number}" if n == name else n for t, n in tables.items()}
        else:
            operation = (
                f"create_index: {{table: {name}, index: by_value_{number},"
                " fields: [{field: value}]}"
            )
        node = Node(parent.number + 1, parent, tables, operation)
        self.trace.append(f"up {node.number}: {operation}")
        self.workspace.write(node.number, operation)
        self.up(self.workspace.directory)
        model.nodes.append(node)
        model.active = node
        for table in tables.keys() - parent.tables.keys():
            model.records[table] = {}
        self.files(node)
        if self.random.random() < 0.8:
            self.processes[node] = self.start(node)

    def roll_back(self) -> None:
        model, active = self.model, self.model.active
        if active.parent is None:
            return
        to = self.random.choice(active.line[:-1])
        going = active.line[to.number :]
        self.trace.append(f"roll back to {to.number}")
        self.do(lambda storage: rollback.roll_back(storage, to.number))
        behind = [node for node in model.kept if any(one in going for one in node.line)]
        if behind or any(node in self.processes for node in going):
            model.kept.update(going)
        for node in going:
            self.workspace.remove(node.number)
        model.active = to
        model.drop_unused(self.processes, {*active.tables})

    def reapply(self) -> None:
        model = self.model
        ahead = [node for node in model.nodes if node in model.kept and model.active in node.line]
        if not ahead:
            return
        to = self.random.choice(ahead)
        self.trace.append(f"again {to.number}: {to.operation}")
        self.up(self.files(to))
        model.kept.difference_update(to.line[model.active.number :])
        for table in to.tables:
            model.records.setdefault(table, {})
        model.active = to
        for path in self.files(to).iterdir():
            shutil.copy(path, self.workspace.directory)

    def end(self) -> None:
        """A process ends, and a sweep comes by."""
        model = self.model
        if self.processes and self.random.random() < 0.7:
            node = self.random.choice(list(self.processes))
            self.trace.append(f"end {node.number}: {node.operation}")
            self.processes.pop(node).close()
        gone, needed = set[Node](), set[Node | None]()
        for node in sorted(model.kept, key=model.nodes.index, reverse=True):
            if node in self.processes or node in needed:
                needed.add(node.parent)
            else:
                gone.add(node)
        self.trace.append("sweep")
        self.do(sweep)
        model.kept -= gone
        model.drop_unused(self.processes, {*model.records})

    def restart(self) -> None:
        known = {self.model.active, *self.model.kept}
        node = self.random.choice(sorted(known, key=self.model.nodes.index))
        if node not in self.processes:
            self.trace.append(f"start {node.number}: {node.operation}")
            self.processes[node] = self.start(node)

    def write(self) -> None:
        if not self.processes:
            return
        node = self.random.choice(list(self.processes))
        number = self.random.choice(list(node.tables))
        table = self.processes[node].table(node.tables[number])
        records, key = self.model.records[number], self.random.choice(KEYS)
        value = self.random.randrange(1000)
        self.trace.append(f"write by {node.number}: {node.tables[number]} {key} {value}")
        if key not in records:
            table.insert(id=key, value=value)
        elif value % 5 == 0:
            table.delete(key)
            del records[key]
            return
        else:
            table.update(key, value=value)
        records[key] = value

    def check_processes(self) -> None:
        for node, db in self.processes.items():
            self.check_view(db, node)

    def check_view(self, db: Database, node: Node) -> None:
        for number, name in node.tables.items():
            found = {one.id: one.value for one in db.table(name).scan()}
            assert found == self.model.records[number], (node.number, name)

    def check(self) -> None:
        self.check_view(self.plain, self.model.active)
        self.check_processes()
        hidden = {*self.model.records} - self.model.active.tables.keys()
        assert len(self.plain._catalog.kept_tables) == len(hidden)
        for number in hidden:
            with pytest.raises(UnknownName):
                self.plain.table(f"t{number}")


def sweep(storage: Storage) -> None:
    forget_migrations(storage)
    drop_kept_tables(storage, DEFAULT_TENANT)


@pytest.mark.parametrize("seed", SEEDS)
def test_life(workspace: Workspace, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    life = Life(workspace, seed, monkeypatch)
    with telling(life.trace):
        for _ in range(STEPS):
            drawn = life.random.random()
            if drawn < 0.14:
                life.apply()
            elif drawn < 0.24:
                life.roll_back()
            elif drawn < 0.32:
                life.reapply()
            elif drawn < 0.4:
                life.end()
            elif drawn < 0.46:
                life.restart()
            elif drawn < 0.5:
                life.trace.append("jobs")
                life.plain.admin.run_jobs()
                life.model.drop_unused(life.processes, {*life.model.records})
            else:
                life.write()
            with life.plain.transaction() as tx:  # it hears of what happened
                tx.table(life.model.active.tables[0]).count()
            life.check()
        assert not [report for report in life.plain.admin.verify() if report.problems]
