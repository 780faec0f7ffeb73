"""`zapdb history start`, `run`, `flush`, `stop` and `status`: the history store."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Final

import typer

import zapdb
from zapdb.cli.applying import AllTenantsOption
from zapdb.cli.configuration import (
    DatabaseOption,
    JsonOption,
    TenantOption,
    find_database,
    find_tenant_name,
)
from zapdb.cli.output import Output, format_count, print_note
from zapdb.database import Database
from zapdb.database.history_store import switch_change_log_on
from zapdb.errors import EXIT_ERROR, EXIT_PENDING, StorageError, UsageError, ZapdbError
from zapdb.history.follower import FollowerStep
from zapdb.history.run import run_store
from zapdb.history.stores import HistoryStatus, check_directory
from zapdb.storage.history_manifest import FOLLOWED

COST_NOTE: Final = (
    "the change log was off and is switched on for this tenant: each transaction writes a change "
    "for every record that it touches"
)
STOPPED_NOTE: Final = (
    "the change log keeps what the store lacks; `zapdb history start` goes on, and `zapdb changes "
    "remove-follower zapdb.history` gives it up"
)
LOOK_SECONDS: Final = 5.0
"""How often `run --all-tenants` looks for further stores."""


@contextmanager
def opened_tenants(
    database: str | None, tenant: str | None, all_tenants: bool
) -> Iterator[list[tuple[str, Database]]]:
    """The databases of a tenant, or of all."""
    if all_tenants and tenant is not None:
        raise UsageError("--tenant and --all-tenants contradict each other", hint="give one")
    with zapdb.open(find_database(database), tenant=find_tenant_name(tenant)) as db:
        if not all_tenants:
            yield [(db._tenant, db)]
            return
        names = [found.name for found in db.admin.tenants() if not found.removing]
        yield [(name, db if name == db._tenant else db.for_tenant(name)) for name in names]


def history_start_command(
    directory: Annotated[
        Path | None,
        typer.Argument(help="Where the files go; without it, a stopped store goes on."),
    ] = None,
    all_tenants: AllTenantsOption = False,
    database: DatabaseOption = None,
    tenant: TenantOption = None,
    as_json: JsonOption = False,
) -> int:
    """Begin a history store: the past of the tables in Parquet files, from now on.

    Switches the change log on. `zapdb history run` then writes the files, at first the tables as
    they are now. Each tenant gets a directory in DIRECTORY.

    With --all-tenants, a tenant that refuses is named, the others get theirs, and the exit status
    is 1.

    With `--json`: `{stores: [STORE]}`, as `zapdb history status`; with --all-tenants
    `{tenants: [STORE | {tenant, error}]}`.
    """
    output, found, exit_status = Output(as_json), list[dict[str, Any]](), 0
    with opened_tenants(database, tenant, all_tenants) as databases:
        for name, db in databases:
            try:
                status = _start(name, db, directory)
            except ZapdbError as error:
                if not all_tenants:
                    raise
                print_note(f"{name}: {error}")
                found.append({"tenant": name, "error": error.message})
                exit_status = EXIT_ERROR
                continue
            found.append(_to_json(name, status))
            what = f"{name}: " if all_tenants else ""
            output.write(f"{what}history from moment #{status.begins} on in {status.directory}")
    output.document({"tenants" if all_tenants else "stores": found})
    return exit_status


def _start(name: str, db: Database, directory: Path | None) -> HistoryStatus:
    check_directory(db._storage, db._catalog.tenant, directory)
    if switch_change_log_on(db._session, name, "a history store"):
        print_note(COST_NOTE)
    return db.history.start(directory)


def history_run_command(
    once: Annotated[
        bool, typer.Option("--once", help="End when all changes until now are in files.")
    ] = False,
    all_tenants: AllTenantsOption = False,
    database: DatabaseOption = None,
    tenant: TenantOption = None,
    as_json: JsonOption = False,
) -> int:
    """Follow the change log and write the files of the history store, until interrupted.

    Changes wait in the change log, where they can be asked for, until there are many of them, or
    one is old: see the settings `history_store_flush_changes` and `history_store_flush_seconds`.
    While another process follows, it waits to take its place; while the database can't be reached,
    it waits for that. Whatever happens to it, the next run
    goes on where it was.

    With `--json`, which needs `--once`: `{stores: [STORE]}`, as `zapdb history status`.
    """
    if as_json and not once:
        raise UsageError("--json reports the end of --once", hint="give both")
    with opened_tenants(database, tenant, all_tenants) as databases:
        if once:
            _flush(databases, Output(as_json), all_tenants=all_tenants)
            return 0
        if not all_tenants:
            ((name, db),) = databases
            _run_one(name, db, threading.Event())
            return 0
        return _run_all(databases)


def _has_store(db: Database) -> bool:
    try:
        return db.history.status().state in FOLLOWED
    except UsageError:
        return False


def _has_store_now(db: Database) -> bool:
    """The same; False also while the database can't be reached."""
    try:
        return _has_store(db)
    except StorageError:
        return False


def _run_all(databases: list[tuple[str, Database]]) -> int:
    """Follow in a thread for each tenant that has a store, until interrupted."""
    stop, threads = threading.Event(), dict[str, threading.Thread]()
    errors = list[ZapdbError]()

    def run(name: str, db: Database) -> None:
        try:
            _run_one(name, db, stop)
        except ZapdbError as error:
            errors.append(error)
            print_note(f"{name}: {error}")
        finally:
            db._storage.release_connection()

    try:
        while not errors or any(thread.is_alive() for thread in threads.values()):
            for name, db in databases:
                thread = threads.get(name)
                if (thread is None or not thread.is_alive()) and _has_store_now(db) and not errors:
                    threads[name] = threading.Thread(target=run, args=(name, db), daemon=True)
                    threads[name].start()
            stop.wait(LOOK_SECONDS)
    finally:
        stop.set()
        for thread in threads.values():
            thread.join(LOOK_SECONDS)
    return EXIT_ERROR


def _run_one(name: str, db: Database, stop: threading.Event) -> None:
    told = ""

    def wait(reason: str) -> None:
        nonlocal told
        if reason != told:
            print_note(f"{name} waits: {reason}")
        told = reason

    def report(step: FollowerStep) -> None:
        nonlocal told
        told = ""

    run_store(db._storage, db._catalog.tenant, stop=stop, report=report, wait=wait)


def history_flush_command(
    all_tenants: AllTenantsOption = False,
    database: DatabaseOption = None,
    tenant: TenantOption = None,
    as_json: JsonOption = False,
) -> None:
    """Write all changes until now to files of the history store.

    Afterwards, everything until now is in files. A process that follows, such as `zapdb history
    run`, comes to the end of its present step, pauses, and goes on when this has ended.

    With `--json`: `{stores: [STORE]}`, as `zapdb history status`.
    """
    with opened_tenants(database, tenant, all_tenants) as databases:
        _flush(databases, Output(as_json), all_tenants=all_tenants)


def _flush(databases: list[tuple[str, Database]], output: Output, *, all_tenants: bool) -> None:
    found = list[dict[str, Any]]()
    for name, db in databases:
        if not all_tenants or _has_store(db):
            status = db.history.flush()
            found.append(_to_json(name, status))
            output.write(f"{name}: " if all_tenants else "", _show_end(status))
    output.document({"stores": found})


def history_stop_command(
    all_tenants: AllTenantsOption = False,
    database: DatabaseOption = None,
    tenant: TenantOption = None,
    as_json: JsonOption = False,
) -> None:
    """Stop the history store, whichever process follows it; its files stay, `start` continues it.

    With `--json`: `{stores: [STORE]}`, as `zapdb history status`.
    """
    output, found = Output(as_json), list[dict[str, Any]]()
    with opened_tenants(database, tenant, all_tenants) as databases:
        for name, db in databases:
            if not all_tenants or _has_store(db):
                db.history.stop()
                found.append(_to_json(name, db.history.status()))
    print_note(STOPPED_NOTE)
    output.document({"stores": found})


def history_status_command(
    all_tenants: AllTenantsOption = False,
    database: DatabaseOption = None,
    tenant: TenantOption = None,
    as_json: JsonOption = False,
) -> int:
    """Show what the history store holds, and how far it is behind; times are UTC.

    Exit status 1 if something is in its way; 3 if changes wait for files, or tables are read for
    the first time.

    With `--json`: `{stores: [{tenant, directory, state, begins, ends, visible_at, flushed_at,
    changes_behind, seconds_behind, files, size_bytes, unfinished: [TABLE], is_followed,
    purged_before, unfinished_erasures, problem}]}`.
    """
    output, found = Output(as_json), list[tuple[str, HistoryStatus]]()
    with opened_tenants(database, tenant, all_tenants) as databases:
        for name, db in databases:
            try:
                found.append((name, db.history.status()))
            except UsageError:
                if not all_tenants:
                    raise
    output.table(
        ("tenant", "moments", "files", "size", "behind", "state"),
        [
            (
                (name, "bold"),
                f"#{max(status.begins, status.purged_before)} to #{status.ends}",
                f"{status.files:,}",
                f"{status.size_bytes / 1e6:,.1f} MB",
                format_count(status.lag.changes, "change"),
                _show_state(status),
            )
            for name, status in found
        ],
        right=("files", "size"),
        empty="no history store",
    )
    for name, status in found:
        if status.problem is not None:
            print_note(f"{name}: {status.problem}")
        if status.unfinished_erasures:
            what = format_count(status.unfinished_erasures, "erasure")
            print_note(f"{name}: {what} not finished: `zapdb history flush` goes on with it")
    output.document({"stores": [_to_json(name, status) for name, status in found]})
    if any(status.problem or status.state == "broken" for _, status in found):
        return EXIT_ERROR
    is_behind = any(
        status.lag.changes or status.unfinished or status.unfinished_erasures for _, status in found
    )
    return EXIT_PENDING if is_behind else 0


def _show_state(status: HistoryStatus) -> str:
    if status.state not in FOLLOWED:
        return status.state
    what = "first reads " + ", ".join(status.unfinished) if status.unfinished else "is followed"
    return what if status.is_followed else "no process follows: `zapdb history run`"


def _show_end(status: HistoryStatus) -> str:
    return f"in files up to moment #{status.ends}: {format_count(status.files, 'file')}"


def _to_json(name: str, status: HistoryStatus) -> dict[str, Any]:
    return {
        "tenant": name,
        "directory": status.directory,
        "state": status.state,
        "begins": status.begins,
        "ends": status.ends,
        "visible_at": None if status.visible_at is None else status.visible_at.isoformat(),
        "flushed_at": status.flushed_at.isoformat(),
        "changes_behind": status.lag.changes,
        "seconds_behind": status.lag.seconds,
        "files": status.files,
        "size_bytes": status.size_bytes,
        "unfinished": list(status.unfinished),
        "is_followed": status.is_followed,
        "purged_before": status.purged_before,
        "unfinished_erasures": status.unfinished_erasures,
        "problem": status.problem,
    }
