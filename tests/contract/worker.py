"""Another process, for tests: `python -m tests.contract.worker COMMAND ADDRESS DIRECTORY …`."""

from __future__ import annotations

import datetime
import hashlib
import itertools
import json
import logging
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from multiprocessing.connection import wait as wait_for_any
from multiprocessing.process import BaseProcess
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

import icu

import zapdb
from tests.lookups import between
from zapdb.activation import rollback, tenant_removal, up
from zapdb.activation.rollback import roll_back
from zapdb.catalog import DEFAULT_TENANT
from zapdb.catalog.zone_numbers import append_zones
from zapdb.datasets import zone as named
from zapdb.jobs import (
    blob_sweep,
    range_work,
)
from zapdb.jobs.job_run import run_locally
from zapdb.storage import connect


def run_together(count: int, run: Callable[[Callable[[], None]], None]) -> None:
    """`run` in `count` processes; it is given what waits until all of them are there."""
    context = multiprocessing.get_context("fork")
    barrier = context.Barrier(count)

    def wait() -> None:
        try:
            barrier.wait()
        except threading.BrokenBarrierError:
            raise SystemExit(
                f"process {os.getpid()} waited for {count} processes to start together, and one of "
                "them ended before"
            ) from None

    processes = [context.Process(target=run, args=(wait,)) for _ in range(count)]
    run_to_their_ends(processes, barrier)
    if any(process.exitcode for process in processes):
        raise SystemExit(1)


def run_to_their_ends(processes: Sequence[BaseProcess], barrier: Barrier) -> None:
    """Nobody waits at the barrier for one that failed, and everybody for as long as others take."""
    for process in processes:
        process.start()
    running = {process.sentinel: process for process in processes}
    while running:
        for ended in wait_for_any(list(running)):
            process = running.pop(ended)
            process.join()
            if process.exitcode:
                barrier.abort()


def open_together(address: str, directory: str, count: str) -> None:
    """`count` processes that open at one moment; each inserts a record and says what it applied."""

    def run(wait: Callable[[], None]) -> None:
        wait()
        with zapdb.open(address, migrations=directory, apply="auto") as db:
            db.table("items").insert(id=os.getpid(), title="mine")
            os.write(1, f"{len(db.applied)} {db.position}\n".encode())

    run_together(int(count), run)


def crowd(address: str, directory: str, readers: str, writers: str, seconds: str) -> None:
    """Processes that read and write for some seconds; each says how often, or its error."""
    context = multiprocessing.get_context("fork")
    readers_count, count = int(readers), int(readers) + int(writers)
    barrier = context.Barrier(count)

    def read(db: Any, number: int, _: int) -> None:
        items = db.table("items")
        assert len(list(between(items, "by_size", limit=20))) == 20
        assert items.get_many([number, -1])[1] is None
        with db.snapshot():
            found = items.where(items.f.size >= 0).count()
            assert found == items.count() == sum(1 for _ in items.scan())

    def write(db: Any, number: int, rounds: int) -> None:
        items = db.table("items")

        def add() -> None:
            items.update(number, size=items.get(number).size + 1)

        if db._storage.dialect.name == "sqlite":
            with db.transaction():
                add()
        else:
            db.run(add)
        items.insert(id=1_000_000 * number + rounds, title="more")

    def run(number: int) -> None:
        rounds, error = 0, None
        try:
            with zapdb.open(address, migrations=directory) as db:
                barrier.wait()
                stop = time.monotonic() + float(seconds)
                while not rounds or time.monotonic() < stop:
                    (read if number < readers_count else write)(db, number, rounds)
                    rounds += 1
        except Exception as met:
            barrier.abort()  # nobody waits for this one
            error = repr(met)
        told = {"number": number, "rounds": rounds, "error": error}
        os.write(1, (json.dumps(told) + "\n").encode())

    run_to_their_ends(
        [context.Process(target=run, args=(number,)) for number in range(count)], barrier
    )


def hold_open(address: str, directory: str) -> None:
    """Open, and stay so until killed; each line of input is one attempt to write."""
    with zapdb.open(address, migrations=directory) as db:
        print(os.getpid(), flush=True)
        for line in sys.stdin:
            try:
                db.table("items").insert(id=int(line), title="mine")
                print("written", flush=True)
            except zapdb.ZapdbError as error:
                print(type(error).__name__, flush=True)


def follow(address: str, directory: str) -> None:
    """For each seq of the input, the hash of this process's cache of the catalog at it."""
    with zapdb.open(address, migrations=directory) as db:
        print("open", flush=True)
        for line in sys.stdin:
            rows = db.admin.wait_for_catalog(int(line)).cache
            print(rows.seq, hashlib.sha256(rows.to_bytes()).hexdigest(), flush=True)


def convert(address: str, directory: str, kill_at: str) -> None:
    """Run all jobs in small batches; die in the transaction of batch `kill_at`, if not 0."""
    _kill_in(range_work, "send_progress", int(kill_at))
    with zapdb.open(address, migrations=directory) as db:
        tasks_of_16 = range_work.BATCH_RECORDS_MIN
        for report in db.admin.run_jobs(
            lambda storage, job: run_locally(storage, job, workers=1, batch_records_max=tasks_of_16)
        ):
            print(report.job.kind, report.progress.written, flush=True)


def rollback_dying(address: str, _directory: str, module: str, function: str, kill_at: str) -> None:
    """Forget the newest migration; die at call `kill_at` of a function."""
    _kill_in({"up": up, "rollback": rollback}[module], function, int(kill_at))
    storage = connect(address)
    print(roll_back(storage).migrations[0].label, flush=True)
    storage.close()


def migrate_dying(address: str, directory: str, function: str, kill_at: str) -> None:
    """Apply what is pending; die at call `kill_at` of a function."""
    _kill_in(up, function, int(kill_at))
    storage = connect(address)
    for applied in up.migrate_up(storage, DEFAULT_TENANT, Path(directory)):
        print(applied.label, flush=True)
    storage.close()


def remove_dying(address: str, _directory: str, name: str, function: str, kill_at: str) -> None:
    """Remove a tenant; die at call `kill_at` of a function."""
    _kill_in(tenant_removal, function, int(kill_at))
    storage = connect(address)
    print(tenant_removal.remove_tenant(storage, name).tenant.number, flush=True)
    storage.close()


def append_together(address: str, _directory: str, count: str) -> None:
    """`count` processes that append zones at one moment; each prints some of the numbers."""

    def run(wait: Callable[[], None]) -> None:
        storage = connect(address)
        wait()
        append_zones(storage)
        rows = storage.connection().fetch_all("SELECT number, name FROM zapdb_zones")
        pairs = sorted(tuple(row) for row in rows)
        os.write(1, (json.dumps([*pairs[:3], pairs[-1]]) + "\n").encode())

    run_together(int(count), run)


def zoned(address: str, directory: str, *commands: str) -> None:
    """Open, with the time zone data that the environment names, and do what the commands say."""
    logger = logging.getLogger("zapdb.datasets")
    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(logging.Formatter("warned: %(message)s"))
    logger.addHandler(handler)
    try:
        db = zapdb.open(address, migrations=directory, apply="auto")
    except zapdb.ZapdbError as error:
        print(type(error).__name__, error, sep="\n")
        return
    print("reopened")
    with db:
        visits = db.table("visits")
        for command in commands:
            match command.split():
                case ["readable"]:
                    names = [index.index.name for index in db._catalog.tables["visits"].indexes]
                    print(*(f"{n} {n in visits.readable_indexes()}" for n in names), sep=", ")
                case ["order"]:
                    print(*(record.id for record in visits.using("by_met")))
                case ["run"]:
                    print("ran", *(report.job.kind for report in db.admin.run_jobs()))
                case ["get", key]:
                    try:
                        met = visits.get(int(key)).met
                    except zapdb.errors.UnknownZone as error:
                        print("UnknownZone", *error.context.values())
                    else:
                        print(key, met.replace(tzinfo=None).isoformat(), met.tzinfo, met.fold)
                case ["verify"]:
                    (report,) = db.admin.verify()
                    if report.problems:
                        found = report.problems[0].partition(": ")[2]
                        print(report.problem_count, "problem:", found)
                    else:
                        print("ok", *report.entries)
                case ["between", lower, upper]:
                    bounds = read_utc(lower), read_utc(upper)
                    print(*(record.id for record in between(visits, "by_met", *bounds)))
                case ["page", cursor]:
                    try:
                        page = visits.order_by("met").page(2, cursor)
                        print(*(record.id for record in page))
                    except zapdb.errors.InvalidCursor as error:
                        print(error)
                case ["query"]:
                    print(*(record.id for record in visits.where().order_by("met")))
                case ["write", key, zone, local]:
                    met = datetime.datetime.fromisoformat(local).replace(tzinfo=named(zone))
                    visits.upsert(id=int(key), met=met)
                case ["delete", key]:
                    visits.delete(int(key))
                case ["wait"]:
                    print("waiting", flush=True)
                    sys.stdin.readline()


def read_utc(text: str) -> datetime.datetime:
    return datetime.datetime.fromisoformat(text).replace(tzinfo=named("UTC"))


def collated(address: str, directory: str, *commands: str) -> None:
    """Open, with the ICU of this Python, and do what the commands say with an index on titles."""
    logger = logging.getLogger("zapdb.datasets")
    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(logging.Formatter("warned: %(message)s"))
    logger.addHandler(handler)
    sort_key = icu.Collator.createInstance(icu.Locale("und")).getSortKey
    with zapdb.open(address, migrations=directory, apply="auto") as db:
        print("reopened")
        items = db.table("items")
        title = items.f.title.collated("und")
        for command in commands:
            match command.split(maxsplit=2):
                case ["readable"]:
                    print(*sorted(items.readable_indexes()))
                case ["order"]:
                    print(*(record.id for record in items.order_by(title, "id")))
                case ["index"]:
                    print(*(record.id for record in items.using("by_title")))
                case ["sorted"]:
                    found = [(sort_key(r.title), r.id) for r in items.order_by(title, "id")]
                    is_right = found == sorted(found) and len(found) == items.count()
                    print("as wanted" if is_right else found)
                case ["run"]:
                    print("ran", *(report.job.kind for report in db.admin.run_jobs()))
                case ["verify"]:
                    (report,) = db.admin.verify()
                    print(*(report.problems or ("ok", *sorted(report.entries))))
                case ["upsert", key, text]:
                    items.upsert(id=int(key), title=text)
                case ["delete", key]:
                    items.delete(int(key))
                case ["wait"]:
                    print("waiting", flush=True)
                    sys.stdin.readline()


def sweep_dying(address: str, _directory: str, kill_at: str) -> None:
    """Sweep blobs of any age, a few at a time; die before deletion `kill_at`."""
    blob_sweep.SWEEP_SLICE_BLOBS = 4
    _kill_in(blob_sweep, "delete_blobs", int(kill_at))
    storage = connect(address)
    print(blob_sweep.sweep_blobs(storage, older_than_seconds=0).deleted, flush=True)
    storage.close()


def _kill_in(module: Any, name: str, kill_at: int) -> None:
    """Make call number `kill_at` of the module's function the end of this process."""
    wrapped, calls = getattr(module, name), itertools.count(1)

    def die(*arguments: Any, **named: Any) -> Any:
        if next(calls) == kill_at:
            os.kill(os.getpid(), signal.SIGKILL)
        return wrapped(*arguments, **named)

    setattr(module, name, die)


COMMANDS = {
    function.__name__: function
    for function in (
        append_together,
        collated,
        convert,
        crowd,
        follow,
        rollback_dying,
        hold_open,
        migrate_dying,
        open_together,
        remove_dying,
        sweep_dying,
        zoned,
    )
}

if __name__ == "__main__":
    COMMANDS[sys.argv[1]](*sys.argv[2:])
