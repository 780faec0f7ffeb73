"""Running a command for the history store of one tenant, or of each that has one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import zapdb
from zapdb.cli.configuration import find_database, find_tenant_name
from zapdb.cli.output import Output, print_note
from zapdb.database import Database
from zapdb.errors import EXIT_ERROR, UnknownName, UsageError, ZapdbError
from zapdb.storage.history_manifest import read_store

Work = Callable[[Database], tuple[dict[str, Any], int]]
"""Does it for one tenant; returns what `--json` prints, and the exit status."""


def run_for_tenants(
    places: tuple[str | None, str | None],
    output: Output,
    work: Work,
    *,
    all_tenants: bool,
    has_store: Callable[[Database], bool] | None = None,
    names_each: bool = True,
) -> int:
    """Do the work for one tenant, by database and name, or for all; return the exit status.

    With all, one without a history store (`has_store` tells), or without the table, is left out; an
    error is shown, and the others go on. Each is named before what its work writes, unless the work
    does that itself (`names_each`).
    """
    with opened_for_tenants(places, all_tenants=all_tenants) as db:
        if not all_tenants:
            document, status = work(db)
            output.document(document)
            return status
        found, statuses = list[dict[str, Any]](), {0}
        for name, opened in each_tenant(db):
            try:
                one = opened()
                if not (has_store or has_any_store)(one):
                    continue
                if names_each:
                    output.write((f"{name}:", "bold"))
                document, status = work(one)
            except UnknownName as error:
                print_note(f"{name}: {error.message}")
                continue
            except ZapdbError as error:
                print_note(f"{name}: {error}")
                document, status = {"error": error.message}, EXIT_ERROR
            found.append({"tenant": name, **document})
            statuses.add(status)
        output.document({"tenants": found})
    return EXIT_ERROR if EXIT_ERROR in statuses else max(statuses)


@contextmanager
def opened_for_tenants(
    places: tuple[str | None, str | None], *, all_tenants: bool
) -> Iterator[Database]:
    """Open a tenant's database, or that of all tenants; raises `UsageError` for a name and all."""
    database, tenant = places
    if all_tenants and tenant is not None:
        raise UsageError("--tenant and --all-tenants contradict each other", hint="give one")
    with zapdb.open(find_database(database), tenant=find_tenant_name(tenant)) as db:
        yield db


def each_tenant(db: Database) -> Iterator[tuple[str, Callable[[], Database]]]:
    """Yield the name of each tenant that there is now, with what opens its database."""
    for found in db.admin.tenants():
        if not found.removing:
            yield found.name, partial(_open, db, found.name)


def _open(db: Database, name: str) -> Database:
    return db if name == db._tenant else db.for_tenant(name)


def has_any_store(db: Database) -> bool:
    """Whether the database has rows of a store."""
    return read_store(db._storage.connection(), db._catalog.tenant) is not None
