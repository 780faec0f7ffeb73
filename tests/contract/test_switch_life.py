"""Random lives of three tenants beside plain dicts: migrations and rollbacks, interrupted and
late, conversions, archives, pruning, and what the past says of it."""

from __future__ import annotations

import random
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from unittest.mock import patch

import pytest

import zapdb
from tests import forms
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
      {name: title, type: string, default: t},
      {name: size, type: integer, default: 0},
      {name: note, type: string, default: none}]}"""


class Interrupted(Exception):
    pass


@dataclass(eq=False)
class F:
    name: str
    kind: str


@dataclass(eq=False)
class Mig:
    number: int
    yaml: str
    ups: list
    downs: list
    after: list  # of (name, F)
    archived: dict  # name -> (F, number)
    index: frozenset

    def up(self, v, a):
        for step in self.ups:
            step(v, a)

    def down(self, v, a):
        for step in self.downs:
            step(v, a)


@dataclass
class Rec:
    line: tuple
    values: dict  # F -> value
    archive: dict  # F -> value


class Life:
    def __init__(self, place: Workspace, seed: int) -> None:
        self.r = random.Random(seed)
        self.place = place
        self.trace: list[str] = []
        self.numbers = 0
        base = [
            ("id", F("id", "i")),
            ("title", F("title", "s")),
            ("size", F("size", "i")),
            ("note", F("note", "s")),
        ]
        self.line: tuple = (Mig(1, ITEMS, [], [], base, {}, frozenset()),)
        place.write(1, ITEMS)
        with place.open() as db:
            for t in ("acme", "zeta"):
                db.admin.create_tenant(t)
        self.at = {}
        self.recs = {}
        self.wr = {}
        self.tools = {}
        for t in ("default", "acme", "zeta"):
            with place.open(tenant=t):
                pass
            self.at[t] = self.line
            self.wr[t] = self.line
            self.recs[t] = {}
            self.tools[t] = zapdb.open(place.address, tenant=t)
            place._opened.append(self.tools[t])

    def move(self, t):
        """A tenant is at the end; without another schema, it writes no other revision."""
        old, new = self.at[t], self.line
        a, b = old[-1], new[-1]
        self.at[t] = new
        if (a.after, a.archived, a.index) != (b.after, b.archived, b.index):
            self.wr[t] = new

    def say(self, text):
        self.trace.append(text)

    # model
    @staticmethod
    def cells(line):
        return frozenset(f for _, f in line[-1].after)

    def read(self, rec: Rec, line):
        if self.cells(rec.line) == self.cells(line):
            values, archive = dict(rec.values), dict(rec.archive)
            keep = {f for f, _ in line[-1].archived.values()}
            return values, {f: v for f, v in archive.items() if f in keep}
        same = 0
        for x, y in zip(rec.line, line, strict=False):
            if x is not y:
                break
            same += 1
        v, a = dict(rec.values), dict(rec.archive)
        for m in reversed(rec.line[same:]):
            m.down(v, a)
        for m in line[same:]:
            m.up(v, a)
        keep = {f for f, _ in line[-1].archived.values()}
        return v, {f: x for f, x in a.items() if f in keep}

    def shown(self, t):
        line, out = self.at[t], []
        for key in sorted(self.recs[t]):
            v, _ = self.read(self.recs[t][key], line)
            out.append({name: v[f] for name, f in line[-1].after})
        return out

    # operations
    def draw_mig(self):
        r, number = self.r, len(self.line) + 1
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
                f = F(f"f{n}", "s")
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
                other = f"o{n}" if f.kind == "s" else n if f.kind == "i" else Decimal(f"{n}.0")
                shown = f"'{other}'" if f.kind == "d" else other
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
                other = f"r{n}" if f.kind == "s" else n if f.kind == "i" else Decimal(f"{n}.0")
                shown = f"'{other}'" if f.kind == "d" else other
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
                    if x != "id" and g.kind in "id" and all(x != y for y, _ in index)
                ]
                if not cand:
                    continue
                name, f = r.choice(cand)
                if f.kind == "i":
                    g = F(name, "d")
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
                    g = F(name, "i")
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
        return Mig(number, yaml, ups, downs[::-1], after, archived, frozenset(index))

    def migrate(self, mig, again=False):
        self.place.write(mig.number, *mig.yaml)
        self.say(f"up {mig.number} again={again} {mig.yaml}")
        t = self.r.choice(list(self.at))
        storage = self.place.connect()
        number = find_tenant(storage.connection(), t).number
        migrate_up(storage, number, self.place.directory, MigrationChoice(again=True))
        storage.close()
        self.move(t)  # it catches up before
        self.line = (*self.line, mig)
        self.move(t)
        self.say(f"  for {t}")

    def roll(self):
        if len(self.line) < 2:
            return
        to = self.r.choice([None, None, self.r.randint(1, len(self.line) - 1)])
        due = [t for t in self.at if self.at[t][-1] not in self.line]
        broken = self.r.random() < 0.5
        self.say(f"roll back to={to} interrupted={broken} due={due}")
        storage = self.place.connect()
        if broken:
            with (
                patch.object(rollback, "migrate_each_tenant", side_effect=Interrupted),
                suppress(Interrupted),
            ):
                rollback.roll_back(storage, to)
        else:
            rollback.roll_back(storage, to)
        storage.close()
        end = to if to is not None else (len(self.line) if due else len(self.line) - 1)
        for m in self.line[end:]:
            self.place.remove(m.number)
        self.line = self.line[:end]
        if not broken:
            for t in self.at:
                if self.at[t][-1] not in self.line:
                    self.move(t)

    def follow(self):
        t = self.r.choice(list(self.at))
        self.say(f"open {t}")
        with self.place.open(tenant=t):
            pass
        self.move(t)

    def jobs(self):
        t = self.r.choice(list(self.at))
        self.say(f"jobs {t}")
        self.tools[t].admin.run_jobs()
        for rec in self.recs[t].values():
            if self.cells(rec.line) != self.cells(self.at[t]):
                rec.values, rec.archive = self.read(rec, self.at[t])
                rec.line = self.wr[t]

    def sweep(self):
        t = self.r.choice(list(self.at))
        self.say(f"sweep {t}")
        self.tools[t].admin.sweep(older_than_seconds=0)

    def prune(self):
        t = self.r.choice(list(self.at))
        self.say(f"prune {t}")
        storage = self.place.connect()
        try:
            number = find_tenant(storage.connection(), t).number
            prune_archives(storage, number)
        except UsageError:
            self.say("  refused")
            return
        finally:
            storage.close()
        keep = {f for f, _ in self.at[t][-1].archived.values()}
        for rec in self.recs[t].values():
            # what is current is not archived of anything that is stale
            rec.archive = {f: v for f, v in rec.archive.items() if f not in keep}

    def prune_log(self):
        t = self.r.choice(list(self.at))
        storage = self.place.connect()
        number = find_tenant(storage.connection(), t).number
        try:
            with storage.transaction(TransactionMode.READ) as connection:
                entries = list(read_entries(connection, number))
                if not entries:
                    return
                plan = plan_pruning(
                    connection, entries, PruneBound(before=self.r.randint(1, entries[-1].revision))
                )
            prune(storage, plan)
            self.say(f"prune log {t} {[e.revision for e in plan.pruned]}")
        except UsageError:
            pass
        finally:
            storage.close()

    def write(self):
        t = self.r.choice(list(self.at))
        db, line, recs = self.tools[t], self.at[t], self.recs[t]
        table = db.table("items")
        what = self.r.choice(["insert", "insert", "update", "update", "update", "delete"])
        fields = {n: f for n, f in line[-1].after if n != "id"}
        self.numbers += 1

        def value(f):
            n = self.numbers
            return (
                ("x" * self.r.choice([0, 0, 0, 9000]) + f"v{n}")
                if f.kind == "s"
                else n
                if f.kind == "i"
                else Decimal(f"{n}.5")
            )

        if what == "insert":
            key = self.r.randint(0, 8)
            if key in recs:
                return
            new = {n: value(f) for n, f in fields.items()}
            table.insert(id=key, **new)
            ids = dict(line[-1].after)
            recs[key] = Rec(
                self.wr[t], {ids["id"]: key} | {fields[n]: v for n, v in new.items()}, {}
            )
        elif recs:
            key = self.r.choice(sorted(recs))
            if what == "delete":
                table.delete(key)
                del recs[key]
            else:
                name = self.r.choice(sorted(fields))
                new = value(fields[name])
                table.update(key, **{name: new})
                rec = recs[key]
                rec.values, rec.archive = self.read(rec, line)
                rec.values[fields[name]] = new
                rec.line = self.wr[t]
                self.say(f"update {t} {key} {name}={str(new)[-8:]}")
                return
        else:
            return
        self.say(f"{what} {t} {key}")

    def check(self, full):
        if full:
            assert are_schemas_whole(self.place.control)
            assert_revisions_are_known(self.place.control)
        for t, db in self.tools.items():
            table = db.table("items")
            expected = self.shown(t)
            found = [asdict(x) for x in table.scan()]
            assert found == expected, (
                t,
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
                assert sorted(by, key=lambda x: x["id"]) == expected, (t, index.name)
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
        for t, db in life.tools.items():
            db.admin.set_setting("change_log", "on", tenant=t)
            db.history.start(directory / "pasts" / t)
            db.history.flush()
            self.states[t] = []
        self.note()

    def note(self):
        for t, db in self.life.tools.items():
            state = [asdict(x) for x in db.table("items").scan()]
            self.states[t].append((db.change_log.end(), state, len(self.life.trace)))

    def flush(self):
        t = self.life.r.choice(list(self.life.tools))
        self.life.say(f"flush {t}")
        self.life.tools[t].history.flush()

    def check(self):
        for t, db in self.life.tools.items():
            db.history.flush()
            for pruned in (False, True):
                if pruned:
                    db.change_log.prune(db.change_log.end())
                for moment, state, at in self.states[t]:
                    try:
                        found = [asdict(x) for x in db.at(moment).table("items").scan()]
                    except HistoryGap:
                        self.gaps += 1
                        if not pruned:
                            print("GAP", t, moment, "at trace", at, self.life.trace[at - 1 : at])
                        continue
                    assert found == state, (t, moment, at, self.life.trace[:at][-1:], found, state)
            assert not db.history.verify(sample=3).problems


def live(place, seed, steps, directory=None):
    life = Life(place, seed)
    past = None if directory is None else Past(life, directory)
    try:
        for step in range(steps):
            r = life.r.random()
            if r < 0.18:
                mig = life.draw_mig()
                if mig is not None and len(life.line) < 7:
                    life.migrate(mig)
            elif r < 0.30:
                life.roll()
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
    except BaseException:
        print("SEED", seed)
        print("\n".join(life.trace))
        raise


@pytest.mark.parametrize("seed", SEEDS)
def test_life(workspace: Workspace, seed: int) -> None:
    live(workspace, seed, 80)


@pytest.mark.parametrize("seed", SEEDS)
def test_past_of_life(workspace: Workspace, seed: int, tmp_path: Path) -> None:
    live(workspace, seed, 60, tmp_path)
