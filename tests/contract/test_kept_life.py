"""Random lives of processes of all versions beside a model: migrations are rolled back while each
process goes on with the schema of its own files, reads, and writes.

The model says of a place in the tree of migrations how each of its cells comes from those of its
neighbours, and knows nothing of bytes, programs or SQL. A record has the cells of the place that it
was written at, and rows: values of cells that a kept migration made, or that were archived, where
they are not what would be made of the record.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from decimal import Decimal
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import pytest

import zapdb
from tests import forms
from tests.contract.rollbacks import MortalCommands, telling
from tests.support import Workspace, are_schemas_whole
from zapdb.activation import rollback
from zapdb.activation.up import MigrationChoice, migrate_up
from zapdb.catalog import DEFAULT_TENANT
from zapdb.catalog.stored_migrations import read_chain_state
from zapdb.catalog.tenants import list_tenants
from zapdb.database import Database
from zapdb.errors import HistoryGap, MigrationConflict, PendingMigrations
from zapdb.jobs import plan_jobs
from zapdb.jobs.archive_pruning import sweep_chain_state
from zapdb.jobs.job_run import run_each, run_locally
from zapdb.records import asdict
from zapdb.storage import Storage

SEEDS = range(300 if forms.is_long else 3)
STEPS = 90 if forms.is_long else 60
NODES_MAX = 7
KEYS = range(5)
KINDS = ("add", "derive", "type", "archive", "rename")
DEATHS = 0.3
"""The share of commands whose process ends midway."""
FIRST = """\
create_table: {table: items, key: [id], fields: [
      {name: id, type: integer}, {name: a, type: integer}, {name: b, type: integer}]}"""

Cell = int
Values = dict[Cell, Any]
Shown = dict[int, dict[str, Any]]
History = Literal["off", "follows", "late"]


@dataclass(frozen=True)
class Made:
    """How a cell comes from cells of the neighbour. A row of an `archived` one is a value of its
    own, which is not made again when what it would be made of changes."""

    inputs: tuple[Cell, ...]
    make: Callable[..., Any]
    archived: bool = False


@dataclass(eq=False)
class Node:
    """A stored migration: its cells by the names of their fields, and how they are made, `up` over
    the parent's and `down` over its own."""

    number: int
    parent: Node | None
    fields: dict[str, Cell]
    up: dict[Cell, Made] = field(default_factory=dict)
    down: dict[Cell, Made] = field(default_factory=dict)
    archived: frozenset[Cell] = frozenset()
    """Those that its migration archives."""
    kinds: dict[Cell, str] = field(default_factory=dict)
    operation: str = ""

    @property
    def cells(self) -> frozenset[Cell]:
        return frozenset(self.fields.values())

    @property
    def line(self) -> list[Node]:
        return [self] if self.parent is None else [*self.parent.line, self]

    def __repr__(self) -> str:
        return f"{self.number}({self.operation})"


@dataclass
class ModelRecord:
    place: Node
    values: Values
    rows: Values


def path(source: Node, target: Node) -> list[Node]:
    ours, theirs = source.line, target.line
    same = sum(1 for x, y in zip(ours, theirs, strict=False) if x is y)
    return [*ours[same - 1 :][::-1], *theirs[same:]]


class Model:
    def __init__(self, root: Node) -> None:
        self.nodes, self.active = [root], root
        self.kept = set[Node]()
        self.reapplied = set[Node]()
        self.records = dict[int, ModelRecord]()

    def made(self, p: Node, q: Node, cell: Cell) -> Made:
        """How a cell of q, which p lacks, is made of the cells of p."""
        return q.up[cell] if q.parent is p else p.down[cell]

    def kept_cells(self) -> frozenset[Cell]:
        """The cells that rows count of."""
        return frozenset(cell for node in self.kept | self.reapplied for cell in node.up)

    def archived_cells(self) -> frozenset[Cell]:
        return frozenset(cell for node in self.active.line for cell in node.archived)

    def view(self, record: ModelRecord, target: Node) -> Values:
        way = path(record.place, target)
        seen = dict(record.values)
        for p, q in pairwise(way):
            before, seen = seen, {}
            for cell in q.cells:
                made = None if cell in before else self.made(p, q, cell)
                if made is None:
                    seen[cell] = before[cell]
                elif cell in record.rows and (made.archived or cell in self.kept_cells()):
                    seen[cell] = record.rows[cell]
                else:
                    seen[cell] = made.make(*(before[i] for i in made.inputs))
        return seen

    def outward(self, start: Node) -> Iterator[tuple[Node, Node]]:
        seen, waiting = {start}, [start]
        for p in waiting:
            for q in self.nodes:
                if q not in seen and (q.parent is p or p.parent is q):
                    seen.add(q)
                    waiting.append(q)
                    yield p, q

    def store(self, place: Node, key: int, views: dict[Node, Values], held: Values) -> None:
        """Store a record at the active place, or another one: kept places read what `views` say."""
        own = views[place]
        rows = {c: v for c, v in held.items() if c in self.archived_cells() and c not in own}
        record = self.records[key] = ModelRecord(place, dict(own), rows)
        kept = self.kept_cells()
        for _, q in self.outward(place):
            for cell in sorted(q.cells & kept - own.keys() - rows.keys()):
                if self.view(record, q)[cell] != views[q][cell]:
                    rows[cell] = views[q][cell]

    def views(self, record: ModelRecord) -> dict[Node, Values]:
        return {node: self.view(record, node) for node in self.nodes}

    def held(self, record: ModelRecord) -> Values:
        """What is or will be archived of a record: of its rows, and of what it leaves behind."""
        held = dict(record.rows)
        for node in path(record.place, self.active):
            held |= self.view(record, node)
        return held | record.values

    def insert(self, node: Node, key: int, values: Values) -> None:
        record = ModelRecord(node, values, {})
        self.store(self.active, key, self.views(record), self.held(record))

    def update(self, node: Node, key: int, changes: Values) -> None:
        record = self.records[key]
        before, held = self.views(record), self.held(record)
        real = {cell: v for cell, v in changes.items() if before[node][cell] != v}
        after, anew = {node: before[node] | real}, set(real)
        decided = dict(after[node])
        held |= real
        for p, q in self.outward(node):
            seen = Values()
            for cell in q.cells:
                if cell not in decided:
                    made = self.made(p, q, cell)
                    decided[cell] = before[q][cell]
                    if anew & {*made.inputs} and not (made.archived and cell in held):
                        decided[cell] = made.make(*(after[p][i] for i in made.inputs))
                        anew.add(cell)
                        if cell in held or cell in self.archived_cells():
                            held[cell] = decided[cell]
                seen[cell] = decided[cell]
            after[q] = seen
        self.store(self.active, key, after, held)

    def convert(self) -> None:
        for key, record in self.records.items():
            if record.place.cells != self.active.cells:
                self.store(self.active, key, self.views(record), self.held(record))


class Life:
    def __init__(
        self,
        workspace: Workspace,
        seed: int,
        patch: pytest.MonkeyPatch,
        deaths: float = DEATHS,
    ) -> None:
        self.random = random.Random(seed)
        self.workspace = workspace
        self.commands = MortalCommands(workspace, self.random, patch, deaths)
        self.trace: list[str] = []
        self.cells = 2
        self.values = 0
        kinds = {0: "integer", 1: "integer"}
        root = Node(1, None, {"a": 0, "b": 1}, kinds=kinds, operation="create")
        self.model = Model(root)
        workspace.write(1, FIRST)
        self.processes = {root: self.start(root)}
        self.plain = workspace.follow()
        self.history: History = ("off", "follows", "late")[seed % 3]
        self.past = list[tuple[int, Shown]]()
        if self.history != "off":
            self.plain.admin.set_setting("change_log", "on")
            self.plain.history.start(workspace.directory.parent / "past")
            self.plain.history.flush()

    def files(self, node: Node) -> Path:
        return self.workspace.directory.parent / f"files_{self.model.nodes.index(node)}"

    def start(self, node: Node) -> Database:
        """A process with the files that lead to a migration."""
        if not self.files(node).exists():
            shutil.copytree(self.workspace.directory, self.files(node))
        apply = "auto" if node.number == 1 else "never"
        db = zapdb.open(self.workspace.address, migrations=self.files(node), apply=apply)
        self.workspace._opened.append(db)
        return db

    def ensure_process(self, node: Node) -> None:
        if node not in self.processes:
            self.processes[node] = self.start(node)

    def say(self, text: str) -> None:
        self.trace.append(text)

    def draw_node(self, kind: str) -> Node:
        """A migration behind the active one, and its file's operation."""
        r, parent = self.random, self.model.active
        number, cell = parent.number + 1, self.cells
        self.cells += 1
        fields = dict(parent.fields)
        numbers = [n for n, c in fields.items() if parent.kinds[c] == "integer"]
        name, up, down = f"f{cell}", dict[Cell, Made](), dict[Cell, Made]()
        kinds, archived = dict(parent.kinds), frozenset[Cell]()
        if kind == "derive" and numbers:
            x, y = r.choice(numbers), r.choice(numbers)
            operation = (
                f"add_field: {{table: items, field: {{name: {name}, type: integer}},"
                f" fill: {{expression: {x} + {y} + {cell}}}}}"
            )
            inputs = (fields[x], fields[y])
            up[cell] = Made(inputs, lambda a, b: a + b + cell)
            fields[name], kinds[cell] = cell, "integer"
        elif kind == "type" and numbers:
            name = r.choice(numbers)
            old = fields[name]
            operation = (
                f"change_type: {{table: items, field: {name}, type: decimal, scale: 1,"
                f" up: 'decimal({name}, 1, else=0)', down: 'integer({name}, else=0)',"
                " reversibility: lossy, because: it is tried}"
            )
            up[cell] = Made((old,), lambda v: Decimal(v).quantize(Decimal("0.1")))
            down[old] = Made((cell,), lambda v: int(v) if v == int(v) else 0)
            fields[name], kinds[cell] = cell, "decimal"
        elif kind == "archive" and len(fields) > 1:
            name = r.choice(list(fields))
            old = fields.pop(name)
            otherwise = cell if kinds[old] == "integer" else Decimal(f"{cell}.0")
            shown = cell if kinds[old] == "integer" else f"'{otherwise}'"
            operation = (
                f"drop_field: {{table: items, field: {name},"
                f" restore: {{archive: true, otherwise: {{value: {shown}}}}}}}"
            )
            down[old] = Made((), lambda: otherwise, archived=True)
            archived = frozenset([old])
        elif kind == "rename":
            old_name = r.choice(list(fields))
            operation = f"rename_field: {{table: items, field: {old_name}, to: {name}}}"
            fields = {name if n == old_name else n: c for n, c in fields.items()}
        else:
            operation = (
                f"add_field: {{table: items, field: {{name: {name}, type: integer}},"
                f" fill: {{value: {cell}}}}}"
            )
            up[cell] = Made((), lambda: cell)
            fields[name], kinds[cell] = cell, "integer"
        return Node(number, parent, fields, up, down, archived, kinds, operation)

    def apply(self, kind: str = "") -> None:
        if len(self.model.nodes) >= NODES_MAX:
            return
        node = self.draw_node(kind or self.random.choice([*KINDS, "derive"]))
        others = [one for one in self.model.nodes if one.parent is node.parent]
        if any(one.operation == node.operation for one in others):
            return  # its file would be that of the other one
        self.say(f"up {node}")
        self.workspace.write(node.number, node.operation)
        self.model.nodes.append(node)
        self.go_to(node, partial(up, directory=self.workspace.directory), lambda: None)
        shutil.copytree(self.workspace.directory, self.files(node))
        if self.random.random() < 0.7:
            self.ensure_process(node)

    def roll_back(self) -> None:
        active, kept = self.model.active, self.model.kept
        if active.parent is None:
            return
        to = self.random.choice(active.line[:-1])
        self.say(f"roll back to {to.number}")
        going = active.line[to.number :]
        behind = [node for node in kept if any(one in going for one in node.line)]
        was_kept = not self.model.reapplied.isdisjoint(going)

        def publish() -> None:
            if behind or was_kept or any(node in self.processes for node in going):
                kept.update(going)
            self.model.reapplied.difference_update(going)

        self.go_to(to, lambda storage: rollback.roll_back(storage, to.number), publish)
        for node in going:
            self.workspace.remove(node.number)

    def reapply(self) -> None:
        """A migration that is kept is applied again, and those that lead to it."""
        model = self.model
        ahead = [node for node in model.kept if model.active in node.line]
        if not ahead:
            return
        to = self.random.choice(sorted(ahead, key=model.nodes.index))
        self.say(f"again {to}")
        coming = to.line[model.active.number :]

        def publish() -> None:
            model.kept.difference_update(coming)
            model.reapplied.update(coming)

        self.go_to(to, partial(up, directory=self.files(to)), publish)
        for path in self.files(to).iterdir():
            shutil.copy(path, self.workspace.directory)

    def go_to(
        self, to: Node, action: Callable[[Storage], object], publish: Callable[[], None]
    ) -> None:
        """Do what a command does that moves the end of the chain, and then the tenant, to a place.
        Where its process ends midway, others write before it is done again."""
        if not self.commands.run(action):
            self.say("  ends midway")
            end, place = self.find_places()
            if end == to.number:
                publish()
            start = self.model.active
            self.model.active = next(n for n in {*start.line, *to.line} if n.number == place)
            self.check()
            for _ in range(self.random.randrange(3)):
                self.write()
                self.check()
            with closing(self.workspace.connect()) as storage:
                action(storage)
        publish()
        self.model.active = to
        assert self.find_places() == (to.number, to.number)

    def find_places(self) -> tuple[int, int]:
        """The numbers of the end of the chain and of the tenant."""
        with closing(self.workspace.connect()) as storage:
            connection = storage.connection()
            (tenant,) = list_tenants(connection)
            return read_chain_state(connection).stored_end, tenant.position

    def restart(self) -> None:
        """A process is replaced by one with the same files, or the first one with some is."""
        known = [node for node in self.model.nodes if node in self.processes]
        others = self.model.kept | self.model.reapplied
        node = self.random.choice([*known, *sorted(others, key=self.model.nodes.index)])
        self.say(f"start {node}")
        started = self.start(node)
        if node in self.processes:
            self.processes[node].close()
        self.processes[node] = started

    def forget(self) -> None:
        """A process ends: nothing is kept any more that was for it alone."""
        model = self.model
        ending = [n for n in self.processes if n in model.kept]
        if ending:
            node = self.random.choice(ending)
            self.say(f"end {node}")
            self.processes.pop(node).close()
        gone, needed = list[Node](), set[Node | None]()
        for node in sorted(model.kept, key=model.nodes.index, reverse=True):
            if node in self.processes or node in needed:
                needed.add(node.parent)
            else:
                gone.append(node)
        self.say(f"forget {gone}")
        if not self.commands.run(rollback.forget):
            self.say("  ends midway")
            self.check()
        with closing(self.workspace.connect()) as storage:
            rollback.forget(storage)
            left = {id for _, id in read_chain_state(storage.connection()).kept}
        assert len(left) == len(model.kept) - len(gone)
        for node in gone:
            with pytest.raises((PendingMigrations, MigrationConflict)):
                self.start(node)
            model.kept.remove(node)
            for record in model.records.values():
                for cell in node.up.keys() & record.rows.keys():
                    if record.place is not node:
                        self.drop_row(record, cell)

    def drop_row(self, record: ModelRecord, cell: Cell) -> None:
        """A value goes, unless what the chain archives is still read by it of a stale record."""
        model = self.model
        places = {*model.active.line, *model.kept, *model.reapplied, *self.processes}
        before = {place: model.view(record, place) for place in places}
        row = record.rows.pop(cell)
        if any(model.view(record, place) != seen for place, seen in before.items()):
            record.rows[cell] = row

    def draw_value(self, kind: str) -> Any:
        self.values += 1
        return 100 + self.values if kind == "integer" else Decimal(f"{100 + self.values}.5")

    def write(self) -> None:
        node = self.random.choice(list(self.processes))
        table, records = self.processes[node].table("items"), self.model.records
        key = self.random.choice(KEYS)
        fields = node.fields
        if key not in records:
            given = {n: self.draw_value(node.kinds[c]) for n, c in fields.items()}
            self.say(f"insert by {node}: {key} {given}")
            table.insert(id=key, **given)
            self.model.insert(node, key, {fields[n]: v for n, v in given.items()})
        elif self.random.random() < 0.15:
            self.say(f"delete by {node}: {key}")
            table.delete(key)
            del records[key]
        elif fields:
            self.update(
                node,
                key,
                self.random.sample(list(fields), self.random.choice([1, 1, min(2, len(fields))])),
            )

    def update(self, node: Node, key: int, names: list[str]) -> None:
        table, fields = self.processes[node].table("items"), node.fields
        given = {n: self.draw_value(node.kinds[fields[n]]) for n in names}
        if self.random.random() < 0.2:  # as it is
            given = {n: getattr(table.get(key), n) for n in names}
        self.say(f"update by {node}: {key} {given}")
        table.update(key, **given)
        self.model.update(node, key, {fields[n]: v for n, v in given.items()})

    def convert(self) -> None:
        self.say("convert")
        if not self.commands.run(run_jobs):
            self.say("  ends midway")
            for db in self.processes.values():
                list(db.table("items").scan())
        self.plain.admin.run_jobs()
        self.model.convert()
        with closing(self.workspace.connect()) as storage:
            sweep_chain_state(storage)
            left = {number for number, _ in read_chain_state(storage.connection()).reapplied}
        self.model.reapplied = {one for one in self.model.reapplied if one.number in left}

    def show(self, node: Node) -> Shown:
        """The records as processes with the files of a migration read them."""
        return {
            key: {n: seen[c] for n, c in node.fields.items()}
            for key in sorted(self.model.records)
            for seen in (self.model.view(self.model.records[key], node),)
        }

    def note(self, *, is_change: bool) -> None:
        """Note what is there now, to compare it when it is past."""
        if self.history == "off":
            return
        self.past.append((self.plain.change_log.end(), self.show(self.model.active)))
        is_time = is_change if self.history == "follows" else self.random.random() < 0.04
        if is_time:
            self.say("flush")
            self.plain.history.flush()

    def check_past(self) -> None:
        """A history that follows in time has no gap; one that comes late says where it has one."""
        if self.history == "off":
            return
        self.plain.history.flush()
        for moment, expected in self.past:
            try:
                scanned = list(self.plain.at(moment).table("items").scan())
            except HistoryGap:
                assert self.history == "late", moment
            else:
                found = {one.pop("id"): one for one in map(asdict, scanned)}
                assert found == expected, moment
        assert not self.plain.history.verify(sample=3).problems

    def check(self) -> None:
        views = [(self.plain, self.model.active)]
        views += [(db, node) for node, db in self.processes.items()]
        for db, node in views:
            found = {one.pop("id"): one for one in map(asdict, db.table("items").scan())}
            expected = self.show(node)
            assert found == expected, (db, node)
            for key, one in expected.items():
                assert asdict(db.table("items").get(key)) == {"id": key} | one


def run_jobs(storage: Storage) -> None:
    list(run_each(storage, plan_jobs(storage, DEFAULT_TENANT), run_locally))


def up(storage: Storage, directory: Path) -> None:
    migrate_up(storage, DEFAULT_TENANT, directory, MigrationChoice(again=True))


def live(life: Life, steps: int) -> None:
    for step in range(steps):
        drawn = life.random.random()
        if drawn < 0.15:
            life.apply()
        elif drawn < 0.27:
            life.roll_back()
        elif drawn < 0.35:
            life.reapply()
        elif drawn < 0.39:
            life.restart()
        elif drawn < 0.43:
            life.forget()
        elif drawn < 0.5:
            life.convert()
        else:
            life.write()
        life.check()
        life.note(is_change=drawn < 0.35)
        if step % 20 == 0:
            assert are_schemas_whole(life.workspace.control)
    assert not [report for report in life.plain.admin.verify() if report.problems]
    life.check_past()


@pytest.mark.parametrize("seed", SEEDS)
def test_life(workspace: Workspace, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    life = Life(workspace, seed, monkeypatch)
    with telling(life.trace):
        live(life, STEPS)


@pytest.mark.parametrize("active", KINDS)
@pytest.mark.parametrize("kept", KINDS)
def test_three_versions(
    workspace: Workspace, kept: str, active: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of three processes, one is older, one was rolled back, and one has what was applied then:
    each writes each of its fields, and each reads what it is to read of that."""
    life = Life(workspace, 0, monkeypatch, deaths=0)
    with telling(life.trace):
        for _ in range(8):
            life.write()
        life.apply(kept)
        rolled_back = life.model.active
        life.ensure_process(rolled_back)
        for _ in range(4):
            life.write()
        life.roll_back()
        life.apply(active)
        if life.model.active is not rolled_back:
            life.ensure_process(life.model.active)
        for _ in range(2):
            for node in life.processes:
                for name in node.fields:
                    for key in sorted(life.model.records):
                        life.update(node, key, [name])
                        life.check()
            life.convert()
            life.check()
        assert not [report for report in life.plain.admin.verify() if report.problems]
