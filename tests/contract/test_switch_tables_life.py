"""A random life of tables beside plain dicts: created, dropped, restored, renamed, rolled back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from tests.contract.rollbacks import telling
from tests.contract.test_switch_life import SEEDS, SwitchLife
from tests.support import Workspace
from zapdb.errors import UniqueViolation
from zapdb.records import asdict


@dataclass(eq=False)
class DrawnTable:
    first_name: str


@dataclass(eq=False)
class TablesMigration:
    number: int
    yaml: list[str]
    tables: dict[str, DrawnTable]
    """The tables that it leads to, by their names then."""
    fields: dict[DrawnTable, dict[str, str]]
    """The defaults of the fields that were added, of archived tables, too."""
    archived: dict[str, tuple[DrawnTable, int]]
    """The archived tables, each with the number of the migration that did it."""
    unique: frozenset[DrawnTable]
    """Those with a unique index."""


class TablesLife(SwitchLife):
    """Tables that come, go and are archived."""

    def __init__(self, place: Workspace, seed: int) -> None:
        table = DrawnTable("a")
        first = TablesMigration(1, [], {"a": table}, {table: {}}, {}, frozenset())
        super().__init__(place, seed, first, self.create("a"), "acme")
        self.records = {tenant: {table: dict[int, dict[str, Any]]()} for tenant in self.at}

    def create(self, name):
        return (
            f"create_table: {{table: {name}, key: [id], fields: [{{name: id, type: integer}},"
            " {name: s, type: string}, {name: q, type: integer, generated: sequence}]}"
        )

    def move(self, tenant):
        old, new = self.at[tenant][-1], self.line[-1]
        before = set(old.tables.values()) | {x for x, _ in old.archived.values()}
        after = set(new.tables.values()) | {x for x, _ in new.archived.values()}
        records = self.records[tenant]
        for table in before - after:
            records.pop(table)
        for table in after - before:
            records[table] = {}
        for table in before & after:
            n = new.fields[table]
            for record in records[table].values():
                for f in set(record) - set(n) - {"id", "s"}:
                    record.pop(f)
                for f in set(n) - set(record):
                    record[f] = n[f]
        self.at[tenant] = self.line

    def draw_migration(self):
        r, last, number = self.random, self.line[-1], len(self.line) + 1
        tables, archived = dict(last.tables), dict(last.archived)
        fields = {table: dict(f) for table, f in last.fields.items()}
        unique, yaml, made = set(last.unique), [], set[DrawnTable]()
        for _ in range(r.choice([1, 1, 2, 3])):
            self.numbers += 1
            kind = r.choice(
                ["create", "drop", "archive", "restore", "rename", "field", "unique", "dropidx"]
            )
            names = sorted(tables)
            if kind == "create":
                name = r.choice("abc")
                if name in tables or name in archived:
                    continue
                table = DrawnTable(name)
                made.add(table)
                tables[name], fields[table] = table, {}
                yaml.append(self.create(name))
            elif kind in ("drop", "archive") and len(names) > 1:
                name = r.choice(names)
                if name in archived or tables[name] in made:
                    continue
                table = tables.pop(name)
                if kind == "drop":
                    unique.discard(table)
                yaml.append(
                    f"drop_table: {{table: {name},"
                    f" records: {'archive' if kind == 'archive' else 'discard'}}}"
                )
                if kind == "archive":
                    archived[name] = (table, number)
                else:
                    fields.pop(table)
            elif kind == "restore":
                c = [n for n, (table, k) in archived.items() if k < number and n not in tables]
                if not c:
                    continue
                name = r.choice(c)
                table, k = archived.pop(name)
                tables[name] = table
                yaml.append(f"restore_table: {{table: {name}, archived_by: {k}}}")
            elif kind == "rename":
                name, to = r.choice(names), r.choice("abc")
                if to in tables or to in archived:
                    continue
                tables[to] = tables.pop(name)
                yaml.append(f"rename_table: {{table: {name}, to: {to}}}")
            elif kind == "field":
                name = r.choice(names)
                fields[tables[name]][f"f{self.numbers}"] = f"d{self.numbers}"
                yaml.append(
                    f"add_field: {{table: {name}, field: {{name: f{self.numbers}, type: string,"
                    f" default: d{self.numbers}}}}}"
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
        return (
            TablesMigration(number, yaml, tables, fields, archived, frozenset(unique))
            if yaml
            else None
        )

    def migrate(self) -> None:
        migration = self.draw_migration()
        if migration is not None and migration.number <= 7:
            self.apply(migration)

    def jobs(self):
        tenant = self.draw_tenant()
        self.say(f"jobs {tenant}")
        self.tools[tenant].admin.run_jobs()

    def write(self):
        tenant = self.draw_tenant()
        migration, records = self.at[tenant][-1], self.records[tenant]
        name = self.random.choice(sorted(migration.tables))
        table = migration.tables[name]
        self.tools[tenant]._session.reload()
        db = self.tools[tenant].table(name)
        self.numbers += 1
        key = self.random.randint(0, 6)
        if key not in records[table]:
            s = f"s{self.random.randint(0, 9)}"
            is_taken = any(x["s"] == s for x in records[table].values())
            if table in migration.unique and is_taken and "u" in db.readable_indexes():
                with pytest.raises(UniqueViolation):
                    db.insert(id=key, s=s)
                return
            if is_taken:
                s = f"x{self.numbers}"
            self.say(f"insert {tenant} {name} {key} {s}")
            db.insert(id=key, s=s)
            records[table][key] = {"id": key, "s": s} | dict(migration.fields[table])
        elif self.random.random() < 0.3:
            self.say(f"delete {tenant} {name} {key}")
            db.delete(key)
            del records[table][key]
        else:
            f = self.random.choice(["s", *sorted(migration.fields[table])])
            self.say(f"update {tenant} {name} {key} {f}")
            db.update(key, **{f: f"v{self.numbers}"})
            records[table][key][f] = f"v{self.numbers}"

    def check(self, full):
        for tenant, db in self.tools.items():
            migration = self.at[tenant][-1]
            db._session.reload()
            assert set(db.tables) == set(migration.tables), tenant
            for name, table in migration.tables.items():
                expected = [
                    self.records[tenant][table][k] for k in sorted(self.records[tenant][table])
                ]
                found = [asdict(x) for x in db.table(name).scan()]
                numbers = [x.pop("q") for x in found]
                assert found == expected, (tenant, name)
                assert len(set(numbers)) == len(numbers), (tenant, name, numbers)
                if table in migration.unique:
                    by = [x.id for x in db.table(name).using("u")]
                    assert sorted(by) == sorted(x["id"] for x in expected), (tenant, name)
            if full:
                for report in db.admin.verify():
                    assert report.problems == (), report.problems


@pytest.mark.parametrize("seed", SEEDS)
def test_tables_life(workspace: Workspace, seed: int) -> None:
    life = TablesLife(workspace, seed)
    with telling(life.trace):
        for step in range(80):
            r = life.random.random()
            if r < 0.22:
                life.migrate()
            elif r < 0.34:
                life.roll_back()
            elif r < 0.42:
                life.follow()
            elif r < 0.47:
                life.jobs()
            else:
                life.write()
            life.check(step % 10 == 0)
