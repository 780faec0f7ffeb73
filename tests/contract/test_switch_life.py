"""Random lives of three tenants beside plain dicts: migrations and rollbacks, interrupted and
late, conversions, archives, pruning, and what the past says of it."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

import zapdb
from tests import forms
from tests.contract.rollbacks import telling
from tests.support import Workspace, are_schemas_whole, assert_revisions_are_known
from zapdb.activation import rollback
from zapdb.activation.up import MigrationChoice, migrate_up
from zapdb.catalog.schema_history import read_entries
from zapdb.catalog.tenants import find_tenant
from zapdb.errors import HistoryGap, UsageError
from zapdb.jobs.archive_pruning import prune_archives
from zapdb.past.schema_history_pruning import PruneBound, plan_pruning, prune
from zapdb.records import asdict
from zapdb.storage import TransactionMode

SEEDS = range(100 if forms.is_long else 2)
ITEMS = """\
create_table: {table: items, key: [id], fields: [
      {name: id, type: integer},
      {name: title, type: string, default: tenant},
      {name: size, type: integer, default: 0},
      {name: note, type: string, default: none}]}"""


class Interrupted(Exception):
    pass


@dataclass(eq=False)
class DrawnField:
    """A field by its values: another object wherever these are computed anew."""

    name: str
    type: str


Values = dict[DrawnField, Any]
Step = Callable[[Values, Values], object]
"""Changes the values of a record, and its archived ones."""


@dataclass(eq=False)
class DrawnMigration:
    number: int
    yaml: list[str]
    ups: list[Step]
    downs: list[Step]
    after: list[tuple[str, DrawnField]]
    """The fields that it leads to, by their names then."""
    archived: dict[str, tuple[DrawnField, int]]
    """The archived ones, each with the number of the migration that did it."""
    index: frozenset[tuple[str, int]]

    def up(self, v, a):
        for step in self.ups:
            step(v, a)

    def down(self, v, a):
        for step in self.downs:
            step(v, a)


@dataclass
class ModelRecord:
    line: tuple[DrawnMigration, ...]
    """The migrations under which it was written."""
    values: Values
    archive: Values


class SwitchLife(ABC):
    """Tenants, each somewhere on a line of migrations, and a process without files for each."""

    def __init__(self, place: Workspace, seed: int, first: Any, yaml: str, *more: str) -> None:
        self.random = random.Random(seed)
        self.place = place
        self.trace: list[str] = []
        self.numbers = 0
        """So many things were drawn: a part of their names."""
        self.line: tuple[Any, ...] = (first,)
        place.write(1, yaml)
        with place.open() as db:
            for name in more:
                db.admin.create_tenant(name)
        self.at = dict[str, tuple[Any, ...]]()
        """The line of each tenant: that of a due one ends with what was rolled back."""
        self.tools = dict[str, zapdb.Database]()
        for name in ("default", *more):
            with place.open(tenant=name):
                pass
            self.at[name] = self.line
            self.tools[name] = zapdb.open(place.address, tenant=name)
            place._opened.append(self.tools[name])

    def say(self, text: str) -> None:
        self.trace.append(text)

    def draw_tenant(self) -> str:
        return self.random.choice(list(self.at))

    @abstractmethod
    def move(self, tenant: str) -> None:
        """A tenant is at the end now."""

    def apply(self, migration: Any) -> None:
        self.place.write(migration.number, *migration.yaml)
        tenant = self.draw_tenant()
        self.say(f"up {migration.number} for {tenant}: {migration.yaml}")
        storage = self.place.connect()
        number = find_tenant(storage.connection(), tenant).number
        migrate_up(storage, number, self.place.directory, MigrationChoice(again=True))
        storage.close()
        self.move(tenant)  # it catches up before
        self.line = (*self.line, migration)
        self.move(tenant)

    def roll_back(self) -> None:
        if len(self.line) < 2:
            return
        to = self.random.choice([None, None, self.random.randint(1, len(self.line) - 1)])
        due = [tenant for tenant, line in self.at.items() if line[-1] not in self.line]
        is_interrupted = self.random.random() < 0.5
        self.say(f"roll back to={to} interrupted={is_interrupted} due={due}")
        storage = self.place.connect()
        if is_interrupted:
            with (
                patch.object(rollback, "migrate_each_tenant", side_effect=Interrupted),
                suppress(Interrupted),
            ):
                rollback.roll_back(storage, to)
        else:
            rollback.roll_back(storage, to)
        storage.close()
        end = to if to is not None else (len(self.line) if due else len(self.line) - 1)
        for migration in self.line[end:]:
            self.place.remove(migration.number)
        self.line = self.line[:end]
        if not is_interrupted:
            for tenant, line in self.at.items():
                if line[-1] not in self.line:
                    self.move(tenant)

    def follow(self) -> None:
        tenant = self.draw_tenant()
        self.say(f"open {tenant}")
        with self.place.open(tenant=tenant):
            pass
        self.move(tenant)


class Life(SwitchLife):
    """A table whose fields come, go and are archived."""

    def __init__(self, place: Workspace, seed: int) -> None:
        fields = {"id": "integer", "title": "string", "size": "integer", "note": "string"}
        base = [(name, DrawnField(name, type)) for name, type in fields.items()]
        first = DrawnMigration(1, [ITEMS], [], [], base, {}, frozenset())
        super().__init__(place, seed, first, ITEMS, "acme", "zeta")
        self.written_at = dict(self.at)
        """The line under which a tenant writes: that of its newest revision."""
        self.records = {tenant: dict[int, ModelRecord]() for tenant in self.at}

    def move(self, tenant: str) -> None:
        """Without another schema, it writes no other revision."""
        old, new = self.at[tenant], self.line
        a, b = old[-1], new[-1]
        self.at[tenant] = new
        if (a.after, a.archived, a.index) != (b.after, b.archived, b.index):
            self.written_at[tenant] = new

    # The model

    @staticmethod
    def cells(line):
        return frozenset(f for _, f in line[-1].after)

    def read(self, record: ModelRecord, line):
        if self.cells(record.line) == self.cells(line):
            values, archive = dict(record.values), dict(record.archive)
            keep = {f for f, _ in line[-1].archived.values()}
            return values, {f: v for f, v in archive.items() if f in keep}
        same = 0
        for x, y in zip(record.line, line, strict=False):
            if x is not y:
                break
            same += 1
        v, a = dict(record.values), dict(record.archive)
        for m in reversed(record.line[same:]):
            m.down(v, a)
        for m in line[same:]:
            m.up(v, a)
        keep = {f for f, _ in line[-1].archived.values()}
        return v, {f: x for f, x in a.items() if f in keep}

    def shown(self, tenant):
        line, out = self.at[tenant], []
        for key in sorted(self.records[tenant]):
            v, _ = self.read(self.records[tenant][key], line)
            out.append({name: v[f] for name, f in line[-1].after})
        return out

    # operations
    def draw_migration(self):
        r, number = self.random, len(self.line) + 1
        last = self.line[-1]
        ups, downs, yaml = [], [], []
        after, archived, index = list(last.after), dict(last.archived), set(last.index)
        for _ in range(r.choice([1, 1, 2])):
            names = [n for n, _ in after if n != "id"]
            kind = r.choice(
                [
                    "add",
                    "drop",
                    "drop",
                    "droparch",
                    "droparch",
                    "restore",
                    "restore",
                    "rename",
                    "type",
                    "index",
                ]
            )
            self.numbers += 1
            n = self.numbers
            if kind == "add":
                f = DrawnField(f"f{n}", "string")
                d = f"d{n}"
                yaml.append(
                    f"add_field: {{table: items, field: {{name: f{n}, type: string,"
                    f" default: {d}}}}}"
                )
                after.append((f"f{n}", f))
                ups.append(lambda v, a, f=f, d=d: v.__setitem__(f, d))
                downs.append(lambda v, a, f=f: v.pop(f))
            elif kind in ("drop", "droparch") and len(names) > 1:
                name = r.choice(names)
                f = dict(after)[name]
                if any(name == x for x, _ in index):
                    continue
                other = (
                    f"o{n}"
                    if f.type == "string"
                    else n
                    if f.type == "integer"
                    else Decimal(f"{n}.0")
                )
                shown = f"'{other}'" if f.type == "decimal" else other
                after = [(x, g) for x, g in after if x != name]
                if kind == "drop":
                    yaml.append(
                        f"drop_field: {{table: items, field: {name}, restore: {{value: {shown}}}}}"
                    )
                    ups.append(lambda v, a, f=f: (v.pop(f), a.pop(f, None)))
                    downs.append(lambda v, a, f=f, o=other: v.__setitem__(f, o))
                else:
                    if name in archived:
                        continue
                    yaml.append(
                        f"drop_field: {{table: items, field: {name},"
                        f" restore: {{archive: true, otherwise: {{value: {shown}}}}}}}"
                    )
                    archived[name] = (f, number)
                    ups.append(lambda v, a, f=f: a.__setitem__(f, v.pop(f)))
                    downs.append(lambda v, a, f=f, o=other: v.__setitem__(f, a.pop(f, o)))
            elif kind == "restore":
                cand = [x for x, (f, k) in archived.items() if k < number and x not in names]
                if not cand:
                    continue
                name = r.choice(cand)
                f, k = archived.pop(name)
                other = (
                    f"r{n}"
                    if f.type == "string"
                    else n
                    if f.type == "integer"
                    else Decimal(f"{n}.0")
                )
                shown = f"'{other}'" if f.type == "decimal" else other
                yaml.append(
                    f"restore_field: {{table: items, field: {name}, archived_by: {k},"
                    f" position: 1, otherwise: {{value: {shown}}}}}"
                )
                after.insert(1, (name, f))
                ups.append(lambda v, a, f=f, o=other: v.__setitem__(f, a.pop(f, o)))
                downs.append(lambda v, a, f=f: a.__setitem__(f, v.pop(f)))
            elif kind == "rename" and names:
                name = r.choice(names)
                if any(name == x for x, _ in index) or name in archived:
                    continue
                yaml.append(f"rename_field: {{table: items, field: {name}, to: n{n}}}")
                after = [(f"n{n}" if x == name else x, g) for x, g in after]
            elif kind == "type":
                cand = [
                    (x, g)
                    for x, g in after
                    if x != "id"
                    and g.type in ("integer", "decimal")
                    and all(x != y for y, _ in index)
                ]
                if not cand:
                    continue
                name, f = r.choice(cand)
                if f.type == "integer":
                    g = DrawnField(name, "decimal")
                    yaml.append(
                        f"change_type: {{table: items, field: {name}, type: decimal, scale: 1,"
                        " default: 0,"
                        f" up: 'decimal({name} + 1, 1, else=0)', down: 'integer({name}, else=0)',"
                        " reversibility: lossy, because: it is tried}"
                    )
                    ups.append(
                        lambda v, a, f=f, g=g: v.__setitem__(
                            g, Decimal(v.pop(f) + 1).quantize(Decimal("0.1"))
                        )
                    )
                    downs.append(lambda v, a, f=f, g=g: v.__setitem__(f, round_half(v.pop(g))))
                else:
                    g = DrawnField(name, "integer")
                    yaml.append(
                        f"change_type: {{table: items, field: {name}, type: integer, default: 0,"
                        f" up: 'integer({name}, else=0)', down: 'decimal({name} + 1, 1, else=0)',"
                        " reversibility: lossy, because: it is tried}"
                    )
                    ups.append(lambda v, a, f=f, g=g: v.__setitem__(g, round_half(v.pop(f))))
                    downs.append(
                        lambda v, a, f=f, g=g: v.__setitem__(
                            f, Decimal(v.pop(g) + 1).quantize(Decimal("0.1"))
                        )
                    )
                after = [(x, g if x == name else h) for x, h in after]
            elif kind == "index" and names:
                name = r.choice(names)
                if any(name == x for x, _ in index):
                    continue
                index.add((name, n))
                yaml.append(
                    f"create_index: {{table: items, index: by_{name}_{n},"
                    f" fields: [{{field: {name}}}]}}"
                )
        if not yaml:
            return None
        return DrawnMigration(number, yaml, ups, downs[::-1], after, archived, frozenset(index))

    def jobs(self):
        tenant = self.draw_tenant()
        self.say(f"jobs {tenant}")
        self.tools[tenant].admin.run_jobs()
        for record in self.records[tenant].values():
            if self.cells(record.line) != self.cells(self.at[tenant]):
                record.values, record.archive = self.read(record, self.at[tenant])
                record.line = self.written_at[tenant]

    def sweep(self):
        tenant = self.draw_tenant()
        self.say(f"sweep {tenant}")
        self.tools[tenant].admin.sweep(older_than_seconds=0)

    def prune(self):
        tenant = self.draw_tenant()
        self.say(f"prune {tenant}")
        storage = self.place.connect()
        try:
            number = find_tenant(storage.connection(), tenant).number
            prune_archives(storage, number)
        except UsageError:
            self.say("  refused")
            return
        finally:
            storage.close()
        keep = {f for f, _ in self.at[tenant][-1].archived.values()}
        for record in self.records[tenant].values():
            # what is current is not archived of anything that is stale
            record.archive = {f: v for f, v in record.archive.items() if f not in keep}

    def prune_log(self):
        tenant = self.draw_tenant()
        storage = self.place.connect()
        number = find_tenant(storage.connection(), tenant).number
        try:
            with storage.transaction(TransactionMode.READ) as connection:
                entries = list(read_entries(connection, number))
                if not entries:
                    return
                plan = plan_pruning(
                    connection,
                    entries,
                    PruneBound(before=self.random.randint(1, entries[-1].revision)),
                )
            prune(storage, plan)
            self.say(f"prune log {tenant} {[e.revision for e in plan.pruned]}")
        except UsageError:
            pass
        finally:
            storage.close()

    def write(self):
        tenant = self.draw_tenant()
        db, line, records = self.tools[tenant], self.at[tenant], self.records[tenant]
        table = db.table("items")
        what = self.random.choice(["insert", "insert", "update", "update", "update", "delete"])
        fields = {n: f for n, f in line[-1].after if n != "id"}
        self.numbers += 1

        def value(f):
            n = self.numbers
            return (
                ("x" * self.random.choice([0, 0, 0, 9000]) + f"v{n}")
                if f.type == "string"
                else n
                if f.type == "integer"
                else Decimal(f"{n}.5")
            )

        if what == "insert":
            key = self.random.randint(0, 8)
            if key in records:
                return
            new = {n: value(f) for n, f in fields.items()}
            table.insert(id=key, **new)
            ids = dict(line[-1].after)
            records[key] = ModelRecord(
                self.written_at[tenant],
                {ids["id"]: key} | {fields[n]: v for n, v in new.items()},
                {},
            )
        elif records:
            key = self.random.choice(sorted(records))
            if what == "delete":
                table.delete(key)
                del records[key]
            else:
                name = self.random.choice(sorted(fields))
                new = value(fields[name])
                table.update(key, **{name: new})
                record = records[key]
                record.values, record.archive = self.read(record, line)
                record.values[fields[name]] = new
                record.line = self.written_at[tenant]
                self.say(f"update {tenant} {key} {name}={str(new)[-8:]}")
                return
        else:
            return
        self.say(f"{what} {tenant} {key}")

    def check(self, full):
        if full:
            assert are_schemas_whole(self.place.control)
            assert_revisions_are_known(self.place.control)
        for tenant, db in self.tools.items():
            table = db.table("items")
            expected = self.shown(tenant)
            found = [asdict(x) for x in table.scan()]
            assert found == expected, (
                tenant,
                str(found)[:3000].replace("x" * 9000, "X"),
                str(expected).replace("x" * 9000, "X"),
            )
            for e in expected:
                assert asdict(table.get(e["id"])) == e
            for index in db._catalog.table("items").schema.indexes:
                name = (
                    db._catalog.table("items").schema.field_numbered(index.components[0].field).name
                )
                by = [asdict(x) for x in table.using(index.name)]
                assert sorted(by, key=lambda x: x["id"]) == expected, (tenant, index.name)
                assert [x[name] for x in by] == sorted(x[name] for x in expected)
            if full:
                for report in db.admin.verify():
                    assert report.problems == (), report.problems


def round_half(d):
    return int(d) if d == int(d) else 0


class Past:
    """What each tenant had, by moment."""

    def __init__(self, life, directory) -> None:
        self.life, self.states, self.gaps = life, {}, 0
        for tenant, db in life.tools.items():
            db.admin.set_setting("change_log", "on", tenant=tenant)
            db.history.start(directory / "pasts" / tenant)
            db.history.flush()
            self.states[tenant] = []
        self.note()

    def note(self):
        for tenant, db in self.life.tools.items():
            state = [asdict(x) for x in db.table("items").scan()]
            self.states[tenant].append((db.change_log.end(), state, len(self.life.trace)))

    def flush(self):
        tenant = self.life.draw_tenant()
        self.life.say(f"flush {tenant}")
        self.life.tools[tenant].history.flush()

    def check(self):
        for tenant, db in self.life.tools.items():
            db.history.flush()
            for pruned in (False, True):
                if pruned:
                    db.change_log.prune(db.change_log.end())
                for moment, state, at in self.states[tenant]:
                    try:
                        found = [asdict(x) for x in db.at(moment).table("items").scan()]
                    except HistoryGap:
                        self.gaps += 1
                        if not pruned:
                            print(
                                "GAP", tenant, moment, "at trace", at, self.life.trace[at - 1 : at]
                            )
                        continue
                    assert found == state, (
                        tenant,
                        moment,
                        at,
                        self.life.trace[:at][-1:],
                        found,
                        state,
                    )
            assert not db.history.verify(sample=3).problems


def live(place, seed, steps, directory=None):
    life = Life(place, seed)
    past = None if directory is None else Past(life, directory)
    with telling(life.trace):
        for step in range(steps):
            r = life.random.random()
            if r < 0.18:
                migration = life.draw_migration()
                if migration is not None and len(life.line) < 7:
                    life.apply(migration)
            elif r < 0.30:
                life.roll_back()
            elif r < 0.38:
                life.follow()
            elif r < 0.44:
                life.jobs()
            elif r < 0.46:
                life.sweep()
            elif r < 0.49:
                life.prune()
            elif r < 0.51:
                life.prune_log() if past is None else past.flush()
            else:
                life.write()
            life.check(step % 10 == 0)
            if past is not None:
                past.note()
        if past is not None:
            past.check()


@pytest.mark.parametrize("seed", SEEDS)
def test_life(workspace: Workspace, seed: int) -> None:
    live(workspace, seed, 80)


@pytest.mark.parametrize("seed", SEEDS)
def test_past_of_life(workspace: Workspace, seed: int, tmp_path: Path) -> None:
    live(workspace, seed, 60, tmp_path)
