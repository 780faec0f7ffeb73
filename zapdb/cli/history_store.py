"""`zapdb history start`, `run`, `flush` and `stop`: the history store."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from zapdb.cli.each_tenant import StoreOptions
from zapdb.cli.output import Output, as_plain, format_count, print_note
from zapdb.control.history import describe_store
from zapdb.database import Database
from zapdb.database.history_facet import switch_change_log_on
from zapdb.errors import ConcurrencyError, StorageError, UsageError, ZapdbError
from zapdb.past.files.follower import FollowerStep
from zapdb.past.files.follower_run import run_store
from zapdb.past.files.history_manifest import FOLLOWED, list_followed, read_store
from zapdb.past.files.stores import HistoryStatus, check_directory
from zapdb.past.files.wanted_stores import start_wanted_store, start_wanted_stores
from zapdb.storage import Storage

COST_NOTE: Final = (
    "the change log was off and is switched on for this tenant: each transaction writes a change "
    "for every record that it touches"
)
STOPPED_NOTE: Final = (
    "the change log keeps what the store lacks; `zapdb history start` goes on, and `zapdb changes "
    "remove-follower zapdb.past.files` gives it up"
)
LOOK_SECONDS: Final = 5.0
"""How often `run --all-tenants` looks for further stores."""


def history_start_command(
    options: StoreOptions,
    output: Output,
    directory: Annotated[
        Path | None,
        typer.Argument(help="Where the files go; without it, a stopped store goes on."),
    ] = None,
) -> int:
    """Begin a history store: the past of the tables in Parquet files, from now on.

    Switches the change log on. `zapdb history run` then writes the files, at first the tables as
    they are now. Each tenant gets a directory in DIRECTORY.

    With --all-tenants, a tenant that refuses is named, the others get theirs, and the exit status
    is 1.

    With `--json`: the store, as `zapdb history status` writes it; with --all-tenants
    `{tenants: [STORE | {tenant, error}]}`.
    """

    def work(db: Database) -> tuple[dict[str, Any], int]:
        check_directory(db._storage, db._catalog.tenant, directory)
        if switch_change_log_on(db._session, db._tenant, "a history store"):
            print_note(COST_NOTE)
        status = db.history.start(directory)
        output.write(
            f"{options.prefix(db)}history from moment #{status.begins} on in {status.directory}"
        )
        return as_plain(describe_store(db._tenant, status)), 0

    return options.run(output, work, lambda db: True, names_each=False)


def history_run_command(
    options: StoreOptions,
    output: Output,
    once: Annotated[
        bool, typer.Option("--once", help="End when all changes until now are in files.")
    ] = False,
) -> int:
    """Follow the change log and write the files of the history store, until interrupted.

    Changes wait in the change log, where they can be asked for, until there are many of them, or
    one is old: see the settings `history_store_flush_changes` and `history_store_flush_seconds`.
    While another process follows, it waits to take its place; while the database can't be reached,
    it waits for that. Whatever happens to it, the next run
    goes on where it was.

    With --all-tenants, stores that are begun meanwhile are followed, too; a store that can't be
    followed is named, and tried again.

    With `--json`, which needs `--once`: as `zapdb history flush`.
    """
    if output.as_json and not once:
        raise UsageError("--json reports the end of --once", hint="give both")
    if once:
        return _flush(options, output)
    with options.opened_for_stores() as db:
        if options.all_tenants:
            _Followers(db).run()
        _follow(db._storage, db._tenant, db._catalog.tenant, threading.Event())
    return 0


def _is_followed(db: Database) -> bool:
    """Whether the database has a store that is to be followed."""
    store = read_store(db._storage.connection(), db._catalog.tenant)
    return store is not None and store.state in FOLLOWED


class _Followers:
    """A thread for each tenant that has a store, until interrupted."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self._storage = db._storage
        self._stop = threading.Event()
        self._threads: dict[int, threading.Thread] = {}
        self._told: dict[str, str] = {}

    def run(self) -> None:
        told = ""
        try:
            while not self._stop.is_set():
                try:
                    self._look()
                    told = ""
                except (StorageError, ConcurrencyError) as error:  # it is looked at again
                    if error.message != told:
                        print_note(f"waits: {error}")
                    told = error.message
                self._stop.wait(LOOK_SECONDS)
        finally:
            self._stop.set()
            for thread in self._threads.values():
                thread.join(LOOK_SECONDS)

    def _look(self) -> None:
        """Follow the stores that nothing follows here: new ones, and those that were given up."""
        for name, error in start_wanted_stores(self._storage).items():
            self._tell(name, error)
        names = {tenant.number: tenant.name for tenant in self._db.admin.tenants()}
        for tenant in list_followed(self._storage.connection()):
            thread = self._threads.get(tenant)
            if tenant in names and (thread is None or not thread.is_alive()):
                work = threading.Thread(
                    target=self._follow, args=(names[tenant], tenant), daemon=True
                )
                self._threads[tenant] = work
                work.start()

    def _follow(self, name: str, tenant: int) -> None:
        try:
            _follow(self._storage, name, tenant, self._stop)
        except ZapdbError as error:
            self._tell(name, error)
        finally:
            self._storage.release_connection()

    def _tell(self, name: str, error: ZapdbError) -> None:
        if self._told.get(name) != error.message:
            print_note(f"{name}: {error}")
        self._told[name] = error.message


def _follow(storage: Storage, name: str, tenant: int, stop: threading.Event) -> None:
    told = ""

    def wait(reason: str) -> None:
        nonlocal told
        if reason != told:
            print_note(f"{name} waits: {reason}")
        told = reason

    def report(step: FollowerStep) -> None:
        nonlocal told
        told = ""

    run_store(storage, tenant, stop=stop, report=report, wait=wait)


def history_flush_command(options: StoreOptions, output: Output) -> int:
    """Write all changes until now to files of the history store.

    Afterwards, everything until now is in files. A process that follows, such as `zapdb history
    run`, comes to the end of its present step, pauses, and goes on when this has ended.

    With `--json`: the store, as `zapdb history status` writes it; with --all-tenants
    `{tenants: [STORE | {tenant, error}]}`.
    """
    return _flush(options, output)


def _flush(options: StoreOptions, output: Output) -> int:
    def has_store(db: Database) -> bool:
        start_wanted_store(db._storage, db._catalog.tenant, db._tenant)
        return _is_followed(db)

    def work(db: Database) -> tuple[dict[str, Any], int]:
        status = db.history.flush()
        output.write(options.prefix(db), _show_end(status))
        return as_plain(describe_store(db._tenant, status)), 0

    return options.run(output, work, has_store, names_each=False)


def history_stop_command(options: StoreOptions, output: Output) -> int:
    """Stop the history store, whichever process follows it; its files stay, `start` continues it.

    With `--json`: the store, as `zapdb history status` writes it; with --all-tenants
    `{tenants: [STORE | {tenant, error}]}`.
    """

    def work(db: Database) -> tuple[dict[str, Any], int]:
        status = db.history.stop()
        output.write(options.prefix(db), "stopped")
        return as_plain(describe_store(db._tenant, status)), 0

    status = options.run(output, work, _is_followed, names_each=False)
    print_note(STOPPED_NOTE)
    return status


def _show_end(status: HistoryStatus) -> str:
    return f"in files up to moment #{status.ends}: {format_count(status.files, 'file')}"
