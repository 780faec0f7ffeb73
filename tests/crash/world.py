"""What crashes happen to: tables beside a plain model, a mirror, and what is compared after it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import zapdb
from tests import forms
from tests.contract.registers import ABSENT, register
from tests.crash.growth import growing
from tests.crash.writers import KEYS
from tests.linearizability import Operation, find_order, split
from tests.support import ROOT, PostgresServer, Workspace, is_running, wait_until
from zapdb.database import Database
from zapdb.records import decode_prefix
from zapdb.storage.cells import as_bytes
from zapdb.storage.data_tables import index_table_name, record_table_name

ITEMS_COUNT = 3_000
VISITS_COUNT = 4_000
"""Of each import, and of each write by Spark."""
GROWN_COUNT = 9_000 if forms.is_long else 4_000
"""At most so many items are inserted while the others are converted."""
TABLES = ("items", "towns", "visits")

ITEMS = """\
create_table: {table: items, key: [id], fields: [
      {name: id, type: integer},
      {name: title, type: string},
      {name: size, type: integer},
      {name: color, type: string, default: c1}]}"""
TOWNS = "create_table: {table: towns, key: [name], fields: [{name: name, type: string}]}"
VISITS = """\
create_table: {table: visits, key: [number], fields: [
      {name: number, type: integer},
      {name: town, type: reference, to: towns},
      {name: note, type: string}]}"""
MORE = (
    "create_index: {table: items, index: by_size, fields: [{field: size}]}",
    "create_index: {table: items, index: by_color, fields: [{field: color}, {field: title}]}",
    "create_index: {table: visits, index: by_note, fields: [{field: note}], unique: true}",
    "create_index: {table: visits, index: by_town, fields: [{field: town}]}",
    "add_reference: {table: visits, field: town, on_delete: restrict}",
    "add_check: {table: visits, check: positive, expression: number >= 0}",
)


class World:
    """A database, the records that it should have, and a mirror of it that always runs."""

    def __init__(self, place: Workspace, directory: Path, server: PostgresServer | None) -> None:
        self.place = place
        self.directory = directory
        self.server = server
        self.position = 1
        place.write(1, ITEMS, TOWNS, VISITS, *MORE)
        self.sizes = {at: at for at in range(ITEMS_COUNT)}
        self.titles = {at: f"title {at}" for at in range(ITEMS_COUNT)}
        self.visits = 0
        self.rollbacks = 0
        self.grown = set[int]()
        """The items that were inserted while others were converted."""
        with place.open() as db:
            db.admin.set_setting("change_log", "on")
            db.table("towns").insert(name="Bern")
            db.table("items").insert_many(self._items())
            db.admin.run_jobs()

    # What happens

    def migrate(self) -> None:
        """Another migration; it changes every item, and one index."""
        self.position += 1
        old, new = (f"color{n}" if n > 1 else "color" for n in (self.position - 1, self.position))
        self.place.write(
            self.position,
            f"drop_index: {{table: items, index: by_{old}}}",
            f"drop_field: {{table: items, field: {old}, restore: {{value: gone}}}}",
            f"add_field: {{table: items, field: {{name: {new}, type: string,"
            f" default: c{self.position}}}}}",
            f"create_index: {{table: items, index: by_{new}, fields: [{{field: {new}}},"
            " {field: title}]}",
        )
        self.place.open().close()

    def migrate_for_now(self) -> None:
        """A migration that changes every item, and is rolled back: its file is away again, since
        only a process without it may be there then."""
        self.rollbacks += 1
        name = f"extra{self.rollbacks}"  # what was rolled back is not applied again
        path = self.place.write(
            self.position + 1,
            f"add_field: {{table: items, field: {{name: {name}, type: string, default: much}}}}",
            f"create_index: {{table: items, index: by_{name}, fields: [{{field: {name}}}]}}",
        )
        self.place.open().close()
        path.unlink()

    def add_visits(self, count: int) -> None:
        """By the way that is never disturbed."""
        first, self.visits = self.visits, self.visits + count
        with self.place.follow() as db:
            db.table("visits").insert_many(self.visit(at) for at in range(first, self.visits))

    @contextmanager
    def growing(self, seed: int) -> Iterator[None]:
        """Items are inserted beside the block; those of the block before are deleted first."""
        with self.place.follow() as db:
            db.table("items").delete_many(self.grown)
        for number in self.grown:
            self.sizes.pop(number, None)
            self.titles.pop(number, None)
        self.grown = set()
        with growing(self.place, ITEMS_COUNT, GROWN_COUNT, seed) as growth:
            yield
        with self.place.follow() as db:
            unsure = {n for n in growth.unsure if db.table("items").exists(n)}
        self.grown = growth.kept | unsure
        self.sizes |= {number: number for number in self.grown}
        self.titles |= {number: f"title {number}" for number in self.grown}

    def mirror_to(self) -> str:
        if self.server is None:
            return f"sqlite:///{self.directory / 'mirror.db'}"
        return "schema:reporting"

    @contextmanager
    def mirroring(self) -> Iterator[Mirroring]:
        running = Mirroring(self)
        try:
            yield running
        finally:
            running.close()

    # What is compared

    def check_history(self, history: list[Operation]) -> int:
        """What writers were answered, and what is there now, happened in some order."""
        ended = sum(not operation.is_open for operation in history)
        with self.place.follow() as db:
            records = {key: db.table("items").find(key) for key in KEYS}
        end = max((o.returned for o in history if not o.is_open), default=0.0)
        for key, part in split(history).items():
            assert isinstance(key, int)
            record = records[key]
            found = None if record is None else record.size
            last = Operation(-1, "read", (key,), found, end + 1, end + 2)
            start = self.sizes.get(key, ABSENT)
            assert find_order([*part, last], register, start) is not None, (key, start, found)
        for key, record in records.items():
            self.sizes.pop(key, None)
            self.titles.pop(key, None)
            if record is not None:
                self.sizes[key], self.titles[key] = record.size, record.title
                assert record.title in ("x", f"title {key}")
        return ended

    def check(self) -> None:
        """Counts, bytes and entries are those of a database that was never disturbed."""
        with self.place.follow() as db:
            assert db.table("items").count() == len(self.sizes)
            assert db.table("visits").count() == self.visits
            assert all(report.problems == () for report in db.admin.verify())
            with self._undisturbed() as wanted:
                for table in TABLES:
                    found, expected = stored(db, table), stored(wanted, table)
                    if self.rollbacks:  # which takes a revision each time
                        found, expected = without_revisions(found), without_revisions(expected)
                    assert found == expected, table

    @contextmanager
    def _undisturbed(self) -> Iterator[Database]:
        """A new database, with the same migrations and the records of the model."""
        path = self.directory / "plain.db"
        path.unlink(missing_ok=True)
        files = self.directory / "plain"
        files.mkdir(exist_ok=True)
        for number in range(1, self.position + 1):
            for file in self.place.directory.glob(f"{number:04d}_*"):
                (files / file.name).write_bytes(file.read_bytes())
            db = zapdb.open(f"sqlite:///{path}", migrations=files, apply="auto")
            if number < self.position:
                db.close()
        with db:
            db.admin.run_jobs()
            db.table("towns").insert(name="Bern")
            db.table("items").insert_many(self._items())
            db.table("visits").insert_many(self.visit(at) for at in range(self.visits))
            yield db

    def _items(self) -> Iterator[dict[str, Any]]:
        for key, size in self.sizes.items():
            yield {"id": key, "title": self.titles[key], "size": size}

    @staticmethod
    def visit(number: int) -> dict[str, Any]:
        return {"number": number, "town": "Bern", "note": f"visit {number}"}

    def is_mirrored(self) -> bool:
        """Whether the mirror has what Arrow has."""
        with self.place.follow() as db:
            for name in TABLES:
                table = db.table(name).to_arrow().read_all()
                wanted = sorted(tuple(row.values()) for row in table.to_pylist())
                if self._read_mirror(name, table.column_names) != wanted:
                    return False
        return True

    def _read_mirror(self, name: str, columns: list[str]) -> list[tuple[Any, ...]] | None:
        """None where the mirror has no such columns yet."""
        import sqlalchemy as sa

        if self.server is None:
            address = f"sqlite:///{self.directory / 'mirror.db'}"
        else:
            address = self.place.address
        engine = sa.create_engine(address, poolclass=sa.NullPool)
        schema = "" if self.server is None else "reporting."
        try:
            with closing(engine.connect()) as connection:
                sql = f"SELECT {', '.join(columns)} FROM {schema}{name}"
                return sorted(tuple(row) for row in connection.execute(sa.text(sql)))
        except sa.exc.DatabaseError:
            return None


class Mirroring:
    """`zapdb mirror run` as a service: started again where it was killed, and only there."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._log = (world.directory / "mirror.log").open("a+")
        self.start()

    def start(self) -> None:
        command = [sys.executable, "-m", "zapdb", "mirror", "run", "--to", self._world.mirror_to()]
        self.process = subprocess.Popen(
            [*command, "-d", self._world.place.address],
            cwd=ROOT,
            stdout=self._log,
            stderr=self._log,
        )

    def kill(self) -> None:
        if is_running(self.process.pid):
            self.process.kill()
            self.process.wait()

    def close(self) -> None:
        self.kill()
        self._log.close()

    def wait_until_equal(self) -> None:
        def is_equal() -> bool:
            self._log.seek(0)
            assert self.process.poll() is None, f"the mirror ended: {self._log.read()}"
            return self._world.is_mirrored()

        wait_until(is_equal, "the mirror has what the database has")


Stored = tuple[list[Any], dict[str, list[Any]]]


def without_revisions(found: Stored) -> Stored:
    records, entries = found
    return [(key, value[decode_prefix(value, 0)[1] :]) for key, value in records], entries


def stored(db: Database, name: str) -> Stored:
    """The bytes of all records of a table, and those of the entries of each index."""
    bound = db._catalog.table(name)
    connection = db._storage.connection()

    def rows(columns: str, table: str) -> list[Any]:
        found = connection.fetch_all(f"SELECT {columns} FROM {table}")
        return sorted(tuple(as_bytes(cell) for cell in row) for row in found)

    entries = {
        index.index.name: rows("key, record", index_table_name(index.entry_table))
        for index in bound.indexes
    }
    return rows("key, value", record_table_name(bound.schema.number)), entries
