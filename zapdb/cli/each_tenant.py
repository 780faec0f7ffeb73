"""Running a command for the history store of one tenant, or of each that has one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from zapdb.cli.history import history_opened
from zapdb.cli.history_store import opened_tenants
from zapdb.cli.output import Output, print_note
from zapdb.database import Database
from zapdb.errors import EXIT_ERROR, UnknownName, UsageError, ZapdbError

Work = Callable[[Database], tuple[dict[str, Any], int]]
"""Does it for one tenant; returns what `--json` prints, and the exit status."""


def run_for_tenants(
    places: tuple[str | None, str | None],
    output: Output,
    work: Work,
    *,
    all_tenants: bool,
    has_store: Callable[[Database], bool] | None = None,
) -> int:
    """Do the work for one tenant, by database and name, or for all; return the exit status.

    With all, one without a history store (`has_store` tells), or without the table, is left out; an
    error is shown, and the others go on.
    """
    database, tenant = places
    if not all_tenants:
        with history_opened(database, tenant) as db:
            document, status = work(db)
        output.document(document)
        return status
    found, status = list[dict[str, Any]](), 0
    with opened_tenants(database, tenant, all_tenants) as databases:
        for name, db in databases:
            if not (has_store or has_any_store)(db):
                continue
            output.write((f"{name}:", "bold"))
            try:
                document, one = work(db)
            except UnknownName as error:
                print_note(f"{name}: {error.message}")
                continue
            except ZapdbError as error:
                print_note(f"{name}: {error}")
                document, one = {"error": error.message}, EXIT_ERROR
            found.append({"tenant": name, **document})
            status = max(status, one)
    output.document({"tenants": found})
    return status


def has_any_store(db: Database) -> bool:
    """Whether the database has rows of a store."""
    try:
        db.history.status()
    except UsageError:
        return False
    return True
