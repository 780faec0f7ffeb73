"""A random life of tables beside plain dicts: created, dropped, restored, renamed, rolled back."""

from __future__ import annotations

import random
from contextlib import suppress
from dataclasses import dataclass
from unittest.mock import patch

import pytest

import zapdb
from tests.contract.test_switch_life import SEEDS, Interrupted
from tests.support import Workspace
from zapdb.activation import rollback
from zapdb.activation.up import MigrationChoice, migrate_up
from zapdb.catalog.tenants import find_tenant
from zapdb.errors import UniqueViolation
from zapdb.records import asdict


@dataclass(eq=False)
class T:
    first: str


@dataclass(eq=False)
class Mig:
    number: int
    yaml: list
    tables: dict  # name -> T
    fields: dict  # T -> {name: default}  (of active and archived)
    archived: dict  # name -> (T, number)
    unique: frozenset  # of T with a unique index on s


class Life:
    def __init__(self, place: Workspace, seed: int) -> None:
        self.r, self.place, self.trace, self.n = random.Random(seed), place, [], 0
        t = T("a")
        place.write(1, self.create("a"))
        self.line = (Mig(1, [], {"a": t}, {t: {}}, {}, frozenset()),)
        with place.open() as db:
            db.admin.create_tenant("acme")
        self.at, self.recs, self.tools, self.seq = {}, {}, {}, {}
        for name in ("default", "acme"):
            with place.open(tenant=name):
                pass
            self.at[name] = self.line
            self.recs[name] = {t: {}}
            self.tools[name] = zapdb.open(place.address, tenant=name)
            place._opened.append(self.tools[name])

    def create(self, name):
        return (
            f"create_table: {{table: {name}, key: [id], fields: [{{name: id, type: integer}},"
            " {name: s, type: string}, {name: q, type: integer, generated: sequence}]}"
        )

    def say(self, x):
        self.trace.append(x)

    def move(self, t):
        old, new = self.at[t][-1], self.line[-1]
        before = set(old.tables.values()) | {x for x, _ in old.archived.values()}
        after = set(new.tables.values()) | {x for x, _ in new.archived.values()}
        recs = self.recs[t]
        for table in before - after:
            recs.pop(table)
        for table in after - before:
            recs[table] = {}
        for table in before & after:
            n = new.fields[table]
            for rec in recs[table].values():
                for f in set(rec) - set(n) - {"id", "s"}:
                    rec.pop(f)
                for f in set(n) - set(rec):
                    rec[f] = n[f]
        self.at[t] = self.line

    def mig(self):
        r, last, number = self.r, self.line[-1], len(self.line) + 1
        tables, archived = dict(last.tables), dict(last.archived)
        fields = {t: dict(f) for t, f in last.fields.items()}
        unique, yaml, made = set(last.unique), [], set[T]()
        for _ in range(r.choice([1, 1, 2, 3])):
            self.n += 1
            kind = r.choice(
                ["create", "drop", "archive", "restore", "rename", "field", "unique", "dropidx"]
            )
            names = sorted(tables)
            if kind == "create":
                name = r.choice("abc")
                if name in tables or name in archived:
                    continue
                t = T(name)
                made.add(t)
                tables[name], fields[t] = t, {}
                yaml.append(self.create(name))
            elif kind in ("drop", "archive") and len(names) > 1:
                name = r.choice(names)
                if name in archived or tables[name] in made:
                    continue
                t = tables.pop(name)
                if kind == "drop":
                    unique.discard(t)
                yaml.append(
                    f"drop_table: {{table: {name},"
                    f" records: {'archive' if kind == 'archive' else 'discard'}}}"
                )
                if kind == "archive":
                    archived[name] = (t, number)
                else:
                    fields.pop(t)
            elif kind == "restore":
                c = [n for n, (t, k) in archived.items() if k < number and n not in tables]
                if not c:
                    continue
                name = r.choice(c)
                t, k = archived.pop(name)
                tables[name] = t
                yaml.append(f"restore_table: {{table: {name}, archived_by: {k}}}")
            elif kind == "rename":
                name, to = r.choice(names), r.choice("abc")
                if to in tables or to in archived:
                    continue
                tables[to] = tables.pop(name)
                yaml.append(f"rename_table: {{table: {name}, to: {to}}}")
            elif kind == "field":
                name = r.choice(names)
                fields[tables[name]][f"f{self.n}"] = f"d{self.n}"
                yaml.append(
                    f"add_field: {{table: {name}, field: {{name: f{self.n}, type: string,"
                    f" default: d{self.n}}}}}"
                )
            elif kind == "unique":
                name = r.choice(names)
                if tables[name] in unique:
                    continue
                unique.add(tables[name])
                yaml.append(
                    f"create_index: {{table: {name}, index: u, unique: true,"
                    " fields: [{field: s}]}"
                )
            elif kind == "dropidx":
                c = [n for n in names if tables[n] in unique]
                if not c:
                    continue
                name = r.choice(c)
                unique.discard(tables[name])
                yaml.append(f"drop_index: {{table: {name}, index: u}}")
        return Mig(number, yaml, tables, fields, archived, frozenset(unique)) if yaml else None

    def migrate(self):
        mig = self.mig()
        if mig is None or mig.number > 7:
            return
        t = self.r.choice(list(self.at))
        self.place.write(mig.number, *mig.yaml)
        self.say(f"up {mig.number} for {t} {mig.yaml}")
        storage = self.place.connect()
        migrate_up(
            storage,
            find_tenant(storage.connection(), t).number,
            self.place.directory,
            MigrationChoice(again=True),
        )
        storage.close()
        self.move(t)
        self.line = (*self.line, mig)
        self.move(t)

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

    def write(self):
        t = self.r.choice(list(self.at))
        mig, recs = self.at[t][-1], self.recs[t]
        name = self.r.choice(sorted(mig.tables))
        table = mig.tables[name]
        self.tools[t]._session.reload()
        db = self.tools[t].table(name)
        self.n += 1
        key = self.r.randint(0, 6)
        if key not in recs[table]:
            s = f"s{self.r.randint(0, 9)}"
            is_taken = any(x["s"] == s for x in recs[table].values())
            if table in mig.unique and is_taken and "u" in db.readable_indexes():
                with pytest.raises(UniqueViolation):
                    db.insert(id=key, s=s)
                return
            if is_taken:
                s = f"x{self.n}"
            self.say(f"insert {t} {name} {key} {s}")
            db.insert(id=key, s=s)
            recs[table][key] = {"id": key, "s": s} | dict(mig.fields[table])
        elif self.r.random() < 0.3:
            self.say(f"delete {t} {name} {key}")
            db.delete(key)
            del recs[table][key]
        else:
            f = self.r.choice(["s", *sorted(mig.fields[table])])
            self.say(f"update {t} {name} {key} {f}")
            db.update(key, **{f: f"v{self.n}"})
            recs[table][key][f] = f"v{self.n}"

    def check(self, full):
        for t, db in self.tools.items():
            mig = self.at[t][-1]
            db._session.reload()
            assert set(db.tables) == set(mig.tables), t
            for name, table in mig.tables.items():
                expected = [self.recs[t][table][k] for k in sorted(self.recs[t][table])]
                found = [asdict(x) for x in db.table(name).scan()]
                numbers = [x.pop("q") for x in found]
                assert found == expected, (t, name)
                assert len(set(numbers)) == len(numbers), (t, name, numbers)
                if table in mig.unique:
                    by = [x.id for x in db.table(name).using("u")]
                    assert sorted(by) == sorted(x["id"] for x in expected), (t, name)
            if full:
                for report in db.admin.verify():
                    assert report.problems == (), report.problems


@pytest.mark.parametrize("seed", SEEDS)
def test_tables_life(workspace: Workspace, seed: int) -> None:
    life = Life(workspace, seed)
    try:
        for step in range(80):
            r = life.r.random()
            if r < 0.22:
                life.migrate()
            elif r < 0.34:
                life.roll()
            elif r < 0.42:
                life.follow()
            elif r < 0.47:
                life.jobs()
            else:
                life.write()
            life.check(step % 10 == 0)
    except BaseException:
        print("\n".join(life.trace))
        raise
