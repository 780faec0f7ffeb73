"""Running a command for the history store of one tenant, or of each that has one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from zapdb.cli.configuration import AllTenantsOption
from zapdb.cli.connecting import ServedTenantOptions, TenantOptions
from zapdb.cli.output import Output, print_note
from zapdb.database import Database
from zapdb.errors import EXIT_ERROR, UnknownName, UsageError, ZapdbError
from zapdb.past.files.history_manifest import read_store

Work = Callable[[Database], tuple[dict[str, Any], int]]
"""Does it for one tenant; returns what `--json` prints, and the exit status."""


@dataclass(frozen=True)
class StoreOptions(TenantOptions):
    """The history store that a command is about, or those of all tenants."""

    all_tenants: AllTenantsOption = False

    def run(
        self,
        output: Output,
        work: Work,
        has_store: Callable[[Database], bool] | None = None,
        *,
        names_each: bool = True,
    ) -> int:
        """Do the work for one tenant, or for all; return the exit status.

        With all, one without a history store (`has_store` tells), or without the table, is left
        out; an error is shown, and the others go on. Each is named before what its work writes,
        unless the work does that itself (`names_each`).
        """
        with self.opened_for_stores() as db:
            if not self.all_tenants:
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
    def opened_for_stores(self) -> Iterator[Database]:
        """Open a tenant's database, or that of all; raises `UsageError` for a name and all."""
        self.require_one_choice()
        with self.open() as db:
            yield db

    def require_one_choice(self) -> None:
        """Raise `UsageError` for a name and all."""
        if self.all_tenants and self.tenant is not None:
            raise UsageError("--tenant and --all-tenants contradict each other", hint="give one")

    def prefix(self, db: Database) -> str:
        """What names a tenant before what is said of it, among several."""
        return f"{db._tenant}: " if self.all_tenants else ""


@dataclass(frozen=True)
class ServedStoreOptions(ServedTenantOptions, StoreOptions):
    """The same of a database that may be behind a service."""


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
