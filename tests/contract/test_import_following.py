"""`zapdb import --follow`: what changes in a source comes here, however late it is committed, and
nothing is lost at the switch."""

from __future__ import annotations

import contextlib
import io
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import psycopg
import pytest
import sqlalchemy as sa

from tests import processes
from tests.contract.paces import NotedPace
from tests.forms import cases
from tests.support import PostgresServer, Workspace, wait_until
from zapdb import asdict
from zapdb.activation.rollback import roll_back
from zapdb.cli.program import run_program
from zapdb.database import Database
from zapdb.errors import JobError, LeaseHeld, StorageError, UsageError
from zapdb.imports import ImportReport
from zapdb.limits import SOURCE_LOCK
from zapdb.transfer.inference import (
    CopyOptions,
    Follower,
    SourceDatabase,
    infer_tables,
    source_changes,
    source_follower,
)
from zapdb.transfer.inference import (
    source_database as sources,
)
from zapdb.transfer.inference.copy_plans import CopyPlan
from zapdb.transfer.inference.copying import Copier

TABLES = (
    "CREATE TABLE authors (id integer PRIMARY KEY, name text NOT NULL UNIQUE,"
    " rival integer REFERENCES authors (id))",
    "CREATE TABLE books (shelf text, number integer, title text,"
    " author integer REFERENCES authors (id) ON DELETE CASCADE,"
    " updated_at timestamptz NOT NULL DEFAULT now(), PRIMARY KEY (shelf, number))",
    "CREATE INDEX books_updated ON books (updated_at)",
    "CREATE INDEX books_author ON books (author)",
    "INSERT INTO authors SELECT n, 'author ' || n FROM generate_series(1, 40) n",
    "INSERT INTO books SELECT 's' || n % 3, n, 'title ' || n, n % 40 + 1"
    " FROM generate_series(1, 120) n",
)


class Place(NamedTuple):
    source: str
    workspace: Workspace

    def connect(self) -> psycopg.Connection[Any]:
        return psycopg.connect(self.source.replace("+psycopg", ""))

    @contextlib.contextmanager
    def follower(
        self,
        db: Database,
        options: CopyOptions | None = None,
        on_wait: Callable[[str], object] | None = None,
    ) -> Iterator[Follower]:
        with SourceDatabase.opened(self.source) as source:
            found = infer_tables(source)
            with Follower.opened(source, found, db, options or CopyOptions(), on_wait) as follower:
                yield follower

    def require_equal(self, db: Database) -> None:
        """The source's tables, by a connection of their own, and the records here."""
        with self.connect() as connection:
            authors = connection.execute("SELECT id, name, rival FROM authors").fetchall()
            books = connection.execute(
                "SELECT shelf, number, title, author, updated_at FROM books"
            ).fetchall()
        for name, rows in (("authors", authors), ("books", books)):
            found = [tuple(asdict(record).values()) for record in db.table(name)]
            assert sorted(found, key=repr) == sorted(rows, key=repr)


@pytest.fixture
def place(workspace: Workspace, postgres: PostgresServer) -> Iterator[Place]:
    with postgres.fresh_database() as address:
        made = Place(address, workspace)
        with made.connect() as connection:
            for statement in TABLES:
                connection.execute(statement)
        directory = str(workspace.directory)
        assert run_program(("import", address, "--infer", "-m", directory)) == 0
        assert run_program(("migrate", "up", "-m", directory, "-d", workspace.address)) == 0
        yield made


def test_what_is_committed_late_is_not_lost(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_changes, "OVERLAP_SECONDS", 0.0)
    with place.workspace.follow() as db, place.follower(db) as follower:
        with place.connect() as late, place.connect() as quick:
            late.execute("INSERT INTO authors VALUES (100, 'late')")  # in a copy's snapshot
            assert follower.copy() == 160
            late.commit()
            late.execute("INSERT INTO authors VALUES (101, 'later')")
            late.execute("UPDATE books SET title = 'late', updated_at = now() WHERE number = 7")
            time.sleep(0.01)
            quick.execute("INSERT INTO authors VALUES (102, 'quick')")
            quick.execute("UPDATE books SET title = 'quick', updated_at = now() WHERE number = 8")
            quick.commit()
            follower.step()
            assert db.table("authors").get(100).name == "late"
            assert not db.table("authors").exists(101)
            assert db.table("books").get("s2", 8).title == "quick"
            late.commit()
            follower.step()
            assert db.table("authors").get(101).name == "later"
            assert db.table("books").get("s1", 7).title == "late"
            # Nothing is written again that is the same, and what is gone goes.
            quick.execute("DELETE FROM authors WHERE id IN (1, 101)")
            quick.execute("INSERT INTO authors VALUES (1000, 'author 1')")  # a name that was taken
            quick.execute("UPDATE authors SET rival = 1000 WHERE id = 2")
            quick.execute("UPDATE authors SET name = name || '!' WHERE id = 3")
            quick.commit()
            follower.step()
        place.require_equal(db)


def write(place: Place, seed: int, stop: threading.Event, failed: list[BaseException]) -> None:
    """Transactions that take their time before they commit."""
    chance = random.Random(seed)
    try:
        with place.connect() as connection:
            while not stop.is_set():
                for _ in range(chance.randint(1, 4)):
                    change(connection, chance, seed)
                time.sleep(chance.choice([0, 0, 0.05, 0.3]))
                connection.commit()
    except BaseException as error:
        failed.append(error)


def change(connection: psycopg.Connection[Any], chance: random.Random, seed: int) -> None:
    number = chance.randrange(seed * 1000, seed * 1000 + 60)  # of its own: no deadlocks
    name = f"{seed}/{chance.random()}"
    match chance.randrange(6):
        case 0 | 1:
            connection.execute(
                "INSERT INTO authors VALUES (%s, %s) ON CONFLICT (id) DO UPDATE SET name = %s",
                (number, name, name),
            )
        case 2 | 3:
            connection.execute(
                "INSERT INTO books VALUES ('x', %s, %s) ON CONFLICT (shelf, number)"
                " DO UPDATE SET title = excluded.title, updated_at = now()",
                (number, name),
            )
        case 4:
            connection.execute("DELETE FROM authors WHERE id = %s", (number,))
        case _:
            connection.execute("DELETE FROM books WHERE shelf = 'x' AND number = %s", (number,))


@contextlib.contextmanager
def writers(place: Place, count: int) -> Iterator[threading.Event]:
    stop, failed = threading.Event(), list[BaseException]()
    threads = [
        threading.Thread(target=write, args=(place, seed, stop, failed))
        for seed in range(1, count + 1)
    ]
    for thread in threads:
        thread.start()
    try:
        yield stop
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert not failed


def test_the_switch_loses_nothing_beside_slow_writers(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source_changes, "OVERLAP_SECONDS", 0.0)
    with place.workspace.follow() as db:
        with writers(place, 3) as stop:
            for _ in range(cases(2)):  # followers that end and go on
                with place.follower(db) as follower:
                    follower.copy()
                    for _ in range(4):
                        follower.step()
                        time.sleep(0.1)
            compared = list[bool]()

            def switch() -> None:
                stop.set()
                place.require_equal(db)
                compared.append(True)

            with place.follower(db) as follower:
                report = follower.switch(switch)
        assert compared == [True]
        assert report.repaired == 0
        assert [one.table for one in report.tables] == ["authors", "books"]
        assert [one.problem_count for one in db.admin.verify()] == [0, 0]
        with pytest.raises(UsageError, match="have records already"), place.follower(db):
            pass


def has_records(db: Database, enough: int) -> bool:
    return db.table("authors").count() + db.table("books").count() >= enough


@pytest.mark.long_on("postgresql")
def test_a_killed_follower_goes_on_and_the_command_switches_over(place: Place) -> None:
    command = [sys.executable, "-m", "zapdb", "import", place.source, "-d", place.workspace.address]
    with place.workspace.follow() as db:
        with writers(place, 2):
            for enough in (40, 200):  # in the copy, and behind it
                quick = ["--follow", "--every", "0.05", "--batch", "5"]
                with processes.Popen([*command, *quick], stdout=subprocess.DEVNULL) as process:
                    wait_until(partial(has_records, db, enough), "it goes on")
                    process.kill()
        with place.connect() as connection:  # no updated_at: only comparing finds it
            connection.execute("UPDATE books SET title = 'hidden' WHERE number = 9")
            connection.execute("UPDATE books SET updated_at = '2001-01-01' WHERE number = 9")
        failing = processes.run(
            [*command, "--switch", "false"], capture_output=True, text=True, check=False
        )
        assert failing.returncode == 1
        assert "the source is still followed" in failing.stderr
        done = processes.run(
            [*command, "--switch", "echo switched"], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        assert "switched" in done.stdout
        assert "equal by key and digest" in done.stdout
        place.require_equal(db)


def test_a_lost_connection_of_the_source_is_made_again(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server ends each session in the first copy, and in a pass; the next try goes on."""
    ended = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()"
    own, own_copy, copies, passes = Follower._bring_changes, Copier.copy, [0], [0]

    def end_sessions() -> None:
        with place.connect() as other:
            other.execute(f"{ended} AND datname = current_database()".encode())

    def lose_in_copy(copier: Copier, plan: CopyPlan) -> ImportReport:
        copies[0] += 1
        if copies[0] == 2:
            end_sessions()
        return own_copy(copier, plan)

    def lose(follower: Follower, connection: sa.Connection) -> int:
        passes[0] += 1
        if passes[0] == 2:
            end_sessions()
        elif passes[0] == 4:
            raise KeyboardInterrupt
        return own(follower, connection)

    monkeypatch.setattr(Copier, "copy", lose_in_copy)
    monkeypatch.setattr(Follower, "_bring_changes", lose)
    err, out = io.StringIO(), io.StringIO()
    with contextlib.redirect_stderr(err), contextlib.redirect_stdout(out):
        command = ("import", place.source, "-d", place.workspace.address, "--follow")
        assert run_program((*command, "--every", "0.05")) == 130
    assert err.getvalue().count("waiting: the source database can't be reached") == 2
    assert out.getvalue().startswith("copied 160 rows\n")
    with place.workspace.follow() as db:
        place.require_equal(db)


def test_a_roll_back_of_the_target_is_waited_for(place: Place) -> None:
    """The copy and the passes stop meanwhile, and nothing is lost or written twice."""
    place.workspace.write(
        2, "add_field: {table: books, field: {name: note, type: string, optional: true}}"
    )
    with place.workspace.open():
        pass
    command = [sys.executable, "-m", "zapdb", "import", place.source, "-d", place.workspace.address]
    with place.workspace.follow() as db, writers(place, 1):
        quick = ["--follow", "--every", "0.05", "--batch", "5"]
        with processes.Popen(
            [*command, *quick], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        ) as process:
            try:
                wait_until(partial(has_records, db, 100), "it copies")
                roll_back(place.workspace.connect())
                assert process.stderr is not None
                with place.connect() as connection:
                    connection.execute("INSERT INTO authors VALUES (5000, 'after')")
                wait_until(
                    lambda: process.poll() is not None or db.table("authors").exists(5000),
                    "it goes on",
                )
                assert process.poll() is None, process.stderr.read()
            finally:
                process.kill()
    with place.workspace.follow() as db:
        assert db.position == 1
        with place.follower(db) as follower:
            follower.copy()
            follower.switch()
        place.require_equal(db)


def test_a_job_is_told_of_each_batch_and_waits_for_none_under_the_lock(place: Place) -> None:
    pace = NotedPace()
    options = CopyOptions(batch_records=50, pace=pace)
    with place.workspace.follow() as db, place.connect() as writer:
        with place.follower(db, options) as follower:
            follower.copy()
            # Of 40 authors, none with a rival, and 120 books.
            assert pace.expected == [160, 120, 70, 20, None]
            writer.execute("UPDATE books SET title = 'x', updated_at = now()")
            writer.execute("DELETE FROM authors WHERE id = 1")
            writer.commit()
            pace.held.clear()
            done = follower.step()
            assert (pace.held[0], pace.held[1:3]) == (0, [50, 50])
            # Its keys are compared with those of the source: the 40 authors, and the 120 books.
            assert (done.deleted, sum(pace.held)) == (4, done.read + 160)
            assert not pace.counted
            pace.held.clear()
            writer.execute("UPDATE books SET title = 'y', updated_at = now()")
            writer.commit()
            follower.switch()
        assert pace.held == [0]
        assert sum(pace.counted) >= 117
        assert not pace.is_open


def test_a_follower_is_a_job_until_the_switch(place: Place) -> None:
    told = list[str]()
    with place.workspace.follow() as db:
        with place.follower(db) as follower:
            follower.copy()
            (job,) = db.jobs.list()
            assert (job.kind, job.state) == ("import", "planned")
            db.jobs.cancel(job.id)
            with pytest.raises(JobError, match="the import was cancelled"):
                wait_until(lambda: follower.step() is None, "it ends")
            with pytest.raises(JobError):
                follower.switch()
        with pytest.raises(UsageError), place.follower(db):
            raise UsageError("the application had enough")
        (job,) = db.jobs.list()
        assert (job.state, job.error) == ("planned", "the application had enough")
        with place.follower(db, on_wait=told.append) as follower:
            assert follower.copy() == 0
            (job,) = db.jobs.list()
            assert (job.state, job.error) == ("planned", "")
            db.jobs.pause(job.id)
            resume = threading.Thread(
                target=lambda: (wait_until(lambda: told, "it waits"), db.jobs.resume(job.id))
            )
            resume.start()
            wait_until(lambda: follower.step() and told, "it has waited")
            resume.join()
            assert told[0].startswith("paused by ")
        assert [job.state for job in db.jobs.list()] == ["planned"]
        assert db.jobs.get(job.id).waits[0].startswith("no process works on it")
        with place.follower(db) as follower:
            follower.switch()
        assert [job.state for job in db.jobs.list()] == ["done"]


def test_what_can_not_be_followed(place: Place, postgres: PostgresServer) -> None:
    with (
        place.workspace.follow() as db,
        place.connect() as holder,
        place.follower(db) as follower,
    ):
        follower.copy()
        with pytest.raises(LeaseHeld), place.follower(db):
            pass
        holder.execute("UPDATE authors SET rival = 2 WHERE id = 1")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sources, "SOURCE_LOCK", SOURCE_LOCK.within(0.1))
            with pytest.raises(StorageError, match="could not be locked"):
                follower.switch()
    for options, text in (
        (("--follow", "--mode", "upsert"), "does not go with --follow"),
        (("--follow", "--switch", "x"), "ends what --follow began"),
        (("--follow", "--json"), "leave it out"),
    ):
        said = io.StringIO()
        with contextlib.redirect_stderr(said):
            status = run_program(("import", place.source, "-d", place.workspace.address, *options))
        assert status in (1, 2)
        assert text in said.getvalue()


# What foreign keys of the source do by themselves, and rows that refer to each other.

ACTIONS = (
    """CREATE TABLE customers (id integer PRIMARY KEY, mail text NOT NULL UNIQUE,
      parent integer REFERENCES customers (id) ON UPDATE CASCADE)""",
    """CREATE TABLE orders (id integer PRIMARY KEY, note text NOT NULL,
      customer integer NOT NULL REFERENCES customers (id) ON UPDATE CASCADE,
      updated_at timestamptz NOT NULL DEFAULT now())""",
    """CREATE TABLE lines (id integer PRIMARY KEY, size integer NOT NULL,
      "order" integer NOT NULL REFERENCES orders (id),
      updated_at timestamptz NOT NULL DEFAULT now())""",
    """CREATE TABLE visits (id integer PRIMARY KEY,
      customer integer REFERENCES customers (id) ON UPDATE CASCADE ON DELETE SET NULL,
      updated_at timestamptz NOT NULL DEFAULT now())""",
    "CREATE TABLE hens (id integer PRIMARY KEY, egg integer)",
    "CREATE TABLE eggs (id integer PRIMARY KEY, hen integer NOT NULL REFERENCES hens (id))",
    "ALTER TABLE hens ADD FOREIGN KEY (egg) REFERENCES eggs (id)",
    *(f"CREATE INDEX ON {name} (updated_at)" for name in ("orders", "lines", "visits")),
    "INSERT INTO customers SELECT n, 'c' || n, nullif(n - 1, 0) FROM generate_series(1, 30) n",
    "INSERT INTO orders SELECT n, 'o' || n, n % 30 + 1 FROM generate_series(1, 90) n",
    "INSERT INTO lines SELECT n, n, n % 90 + 1 FROM generate_series(1, 90) n",
    "INSERT INTO visits SELECT n, n % 30 + 1 FROM generate_series(1, 60) n",
    "INSERT INTO hens SELECT n, NULL FROM generate_series(1, 40) n",
    "INSERT INTO eggs SELECT n, n FROM generate_series(1, 40) n",
    "UPDATE hens SET egg = 41 - id",
)
CHANGES = {
    "keys that change": "UPDATE customers SET id = id + 1000 WHERE id IN (3, 4, 17)",
    "keys that swap": "UPDATE customers SET id = 2005 WHERE id = 5;"
    " UPDATE customers SET id = 5 WHERE id = 6; UPDATE customers SET id = 6 WHERE id = 2005",
    "a reference that is set to null": "UPDATE customers SET parent = NULL WHERE parent = 9;"
    " UPDATE orders SET customer = 1 WHERE customer = 9; DELETE FROM customers WHERE id = 9",
    "a row of the same key": "UPDATE customers SET parent = NULL WHERE parent = 12;"
    " UPDATE orders SET customer = 1 WHERE customer = 12; DELETE FROM customers WHERE id = 12;"
    " INSERT INTO customers VALUES (12, 'another')",
    "gone rows in a chain": "DELETE FROM lines; DELETE FROM orders; DELETE FROM visits;"
    " DELETE FROM customers",
    "gone rows in a circle": "UPDATE hens SET egg = NULL; DELETE FROM eggs WHERE id > 3;"
    " DELETE FROM hens WHERE id > 3",
    "an old stamp comes and a row goes": "INSERT INTO lines VALUES (900, 1, 1, '2001-01-01');"
    " DELETE FROM lines WHERE id = 7",
}
"""Statements of the source, by what they do. No `updated_at` is touched."""
NAMES = ("customers", "orders", "lines", "visits", "hens", "eggs")


@pytest.fixture
def acting(workspace: Workspace, postgres: PostgresServer) -> Iterator[Place]:
    with postgres.fresh_database() as address:
        made = Place(address, workspace)
        with made.connect() as connection:
            for statement in ACTIONS:
                connection.execute(statement)
        directory = str(workspace.directory)
        assert run_program(("import", address, "--infer", "-m", directory)) == 0
        assert run_program(("migrate", "up", "-m", directory, "-d", workspace.address)) == 0
        yield made


def compare_all(place: Place, db: Database) -> list[str]:
    """The names of tables that differ from the source's."""
    differing = list[str]()
    with place.connect() as connection:
        for name in NAMES:
            fields = [field.name for field in db.table(name)._current().schema.fields]
            columns = ", ".join(f'"{field}"' for field in fields)
            rows = connection.execute(f"SELECT {columns} FROM {name}".encode()).fetchall()
            found = [tuple(asdict(record).values()) for record in db.table(name)]
            if sorted(found, key=repr) != sorted(rows, key=repr):
                differing.append(name)
    return differing


@pytest.mark.parametrize("what", CHANGES)
def test_what_foreign_keys_change_is_followed(
    acting: Place, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Keys are read in small pages, so that what is gone refers across them."""
    monkeypatch.setattr(source_follower, "_read_keys", partial(read_few_keys, 7))
    monkeypatch.setattr(source_changes, "OVERLAP_SECONDS", 0.0)
    late = what == "an old stamp comes and a row goes"
    with acting.workspace.follow() as db:
        with acting.follower(db) as follower:
            follower.copy()
            time.sleep(0.02)
            follower.step()
            with acting.connect() as connection:
                for statement in CHANGES[what].split(";"):
                    connection.execute(statement.encode())
            follower.step()
            follower._look_at = 0.0
            follower.step()
            assert compare_all(acting, db) == (["lines"] if late else [])
        with acting.follower(db) as follower:
            report = follower.switch(lambda: compared.append(compare_all(acting, db)))
        assert report.repaired == late
        assert sum(one.problem_count for one in db.admin.verify()) == 0


compared = list[list[str]]()


def read_few_keys(count: int, table: Any, after: bytes) -> list[bytes]:
    _, page = table._read_active(lambda c, bound: bound.records.scan_page(c, after))
    return [key for key, _ in page][:count]


def test_a_record_without_a_row_is_found_at_the_switch(
    acting: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though as many rows are missing here, and whatever the last pass has done."""
    monkeypatch.setattr(Follower, "_delete_gone", lambda *_, **__: 0)
    with acting.workspace.follow() as db, acting.follower(db) as follower:
        follower.copy()
        with acting.connect() as connection:
            connection.execute("INSERT INTO lines VALUES (900, 1, 1, '2001-01-01')")
            connection.execute("DELETE FROM lines WHERE id = 7")
        with pytest.raises(StorageError, match="not equal to that of the source") as refused:
            follower.switch(lambda: pytest.fail("it is not equal"))
        assert (refused.value.context["rows"], refused.value.context["records"]) == (90, 91)


KILL = "import os, signal; os.kill(os.getppid(), signal.SIGKILL)"


@pytest.mark.parametrize("has_written", [False, True])
def test_nothing_follows_once_the_application_may_have_switched(
    place: Place, has_written: bool
) -> None:
    """The command kills the shell's parent, which is zapdb, when the application writes here."""
    command = [sys.executable, "-m", "zapdb", "import", place.source, "-d", place.workspace.address]
    with place.workspace.follow() as db:
        with place.follower(db) as follower:
            follower.copy()
        kill = f"exec {sys.executable} -c '{KILL}'"
        died = processes.run(
            [*command, "--switch", kill], capture_output=True, text=True, check=False
        )
        assert died.returncode == -9, died.stderr
        if has_written:
            db.table("authors").insert(id=5000, name="of the application")
        wait_until(lambda: is_free(place, db), "the lease of the killed process ends")
        refused = processes.run([*command, "--follow"], capture_output=True, text=True, check=False)
        assert refused.returncode == 2, refused.stderr
        assert "the source is followed no more" in refused.stderr
        again = processes.run(
            [*command, "--switch", "echo switched"], capture_output=True, text=True, check=False
        )
        assert db.table("authors").exists(5000) is has_written
        if has_written:
            assert again.returncode == 2
            assert "the source is followed no more" in again.stderr
            assert "switched\n" not in again.stdout
        else:
            assert again.returncode == 0
            assert "switched\n" in again.stdout
            place.require_equal(db)


def is_free(place: Place, db: Database) -> bool:
    try:
        with place.follower(db) as follower:
            return follower.is_switching
    except LeaseHeld:
        return False


def test_tables_that_were_emptied_are_followed_anew(place: Place) -> None:
    with place.workspace.follow() as db:
        with place.follower(db) as follower:
            follower.copy()
            with pytest.raises(KeyboardInterrupt):
                follower.switch(raise_interrupt)
        with place.follower(db) as follower, pytest.raises(UsageError, match="followed no more"):
            follower.step()
        for name in ("books", "authors"):
            db.table(name).delete_many([*map(key_of, db.table(name).scan())])
        with place.follower(db) as follower:
            assert follower.copy() == 160
            follower.switch()
        place.require_equal(db)


def raise_interrupt() -> None:
    raise KeyboardInterrupt


def key_of(record: Any) -> Any:
    values = asdict(record)
    return (values["shelf"], values["number"]) if "shelf" in values else values["id"]


ROTATED = {
    "two": (1, 40),
    "three": (1, 20, 40),
    "more than a page": tuple(range(1, 1_201)),
}


@pytest.mark.parametrize("rows", ROTATED)
@pytest.mark.parametrize("when", ["a pass", "the switch", "a copy that goes on"])
@pytest.mark.on_each_engine
def test_rows_that_exchange_unique_values_are_brought(place: Place, rows: str, when: str) -> None:
    """Also beside rows that are gone, whose values others have, and references to all of them."""
    taken = ROTATED[rows]
    options = CopyOptions(batch_records=10 if len(taken) < 10 else 500)
    with place.connect() as source:
        source.execute(
            "INSERT INTO authors SELECT n, 'author ' || n, n - 1 FROM generate_series(41, %s) n",
            (taken[-1] + 1,),
        )
    with place.workspace.follow() as db:
        if when == "a copy that goes on":
            with place.follower(db, options) as follower, pytest.raises(KeyboardInterrupt):
                _copy_some(follower)
        else:
            with place.follower(db, options) as follower:
                follower.copy()
        with place.connect() as source:
            _rotate(source, taken)
        with place.follower(db, options) as follower:
            if when == "a copy that goes on":
                follower.copy()
            if when == "the switch":
                follower.switch()
            else:
                follower.step()
        place.require_equal(db)


def _copy_some(follower: Follower) -> None:
    """The authors, and no books."""
    copied = Copier.copy

    def copy(copier: Copier, plan: CopyPlan) -> ImportReport:
        if plan.name == "books":
            raise KeyboardInterrupt
        return copied(copier, plan)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Copier, "copy", copy)
        follower.copy()


def _rotate(source: psycopg.Connection[Any], taken: tuple[int, ...]) -> None:
    """Each row gets the name of the one before it; a row that is gone has left its name, too."""
    last = taken[-1] + 1
    source.execute("DELETE FROM authors WHERE id = %s", (last,))
    before = [f"author {n}" for n in (taken[-1], *taken[:-1])]
    source.execute("UPDATE authors SET name = 'x' || id WHERE id = ANY(%s)", (list(taken),))
    with source.cursor() as cursor:
        cursor.executemany(
            "UPDATE authors SET name = %s WHERE id = %s", list(zip(before, taken, strict=True))
        )
    source.execute("INSERT INTO authors VALUES (0, %s, 1)", (f"author {last}",))
