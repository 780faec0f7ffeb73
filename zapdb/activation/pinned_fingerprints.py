"""Pinned fingerprints: a program that was built for one schema checks whether it is still active.

A fingerprint is the same in every database (rule 4), so a program can contain it. The schema
history tells whether the table ever had it, and what changed since then.

Pins are checked when a database is opened and whenever a process reloads the tenant catalog. From
then on, each use of a table that the program can't know is refused, with the error that opening
would raise, until the table has a schema again that the program knows. The other tables stay
usable.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final

from zapdb.activation.inspection import read_log
from zapdb.activation.tenant_catalog import TenantCatalog
from zapdb.catalog.schema_history import RevisionEntry, find_revisions, format_fingerprint
from zapdb.errors import FingerprintUnknown, UnknownName
from zapdb.migrations import Chain
from zapdb.schema import Difference, compare_tables, fingerprint
from zapdb.storage import Connection


@dataclass(frozen=True, slots=True)
class FingerprintMatch:
    """The revisions of a table with one fingerprint, and the differences since then.

    `revisions` are the table's revisions with this fingerprint, if any, and `differences` the
    differences since the last of them. `is_active` is false for a dropped table; `revision` and
    `current` are its newest ones then, too.
    """

    table: str
    table_number: int
    fingerprint: int
    revisions: tuple[int, ...]
    revision: int
    current: int
    is_active: bool
    differences: tuple[Difference, ...]

    @property
    def is_known(self) -> bool:
        return bool(self.revisions)

    @property
    def is_current(self) -> bool:
        return self.is_active and self.current == self.fingerprint


def find_fingerprint(
    connection: Connection, tenant: int, table: str, wanted: int
) -> FingerprintMatch:
    """Look for a fingerprint in the schema history of the table that has or had this name.

    Raises `UnknownName` if no table ever had the name.
    """
    return find_in_log(read_log(connection, tenant, table), wanted)


def find_in_log(
    log: list[RevisionEntry], wanted: int, *, is_kept: bool = False
) -> FingerprintMatch:
    """`is_kept` says that the table is there only for processes with other files."""
    newest = log[-1]
    revisions = find_revisions(log, wanted)
    last = next((e for e in reversed(log) if e.fingerprint == wanted), None)
    return FingerprintMatch(
        newest.schema.name,
        newest.table_number,
        wanted,
        tuple(revisions),
        newest.revision,
        newest.fingerprint,
        newest.event != "drop" and not is_kept,
        () if last is None else compare_tables(last.schema, newest.schema),
    )


def list_fingerprints(chain: Chain, end: int | None = None) -> frozenset[int]:
    """Return the fingerprints of all tables at all positions of a chain, up to position `end`."""
    found = set[int]()
    before = None
    for migration in chain.migrations:
        if end is not None and migration.number > end:
            break
        for table in migration.after:
            old = None if before is None else before.table_numbered(table.number)
            if old is not table and old != table:
                found.add(fingerprint(table))
        before = migration.after
    return frozenset(found)


logger = logging.getLogger("zapdb.pins")

Violations = Mapping[str | int, FingerprintUnknown | UnknownName]
"""The reasons for which the program can't use tables, by their pinned names and by their
numbers."""


@dataclass(frozen=True, slots=True)
class Pins:
    """The fingerprints that a program was built for, by table name, and the end of its files.

    With files, the program knows every schema of their chain; without files (`files_end` is None),
    only the pinned schemas.
    """

    by_table: Mapping[str, int]
    files_end: int | None

    def find_violations(self, connection: Connection, catalog: TenantCatalog) -> Violations:
        """Return the tables whose active schema the program can't know; called inside a
        transaction.

        Such a table was dropped, never had the pinned schema, or has a schema that the files don't
        lead to (without files: another schema than the pinned one). Or no table in the history ever
        had the name.
        """
        if not self.by_table:
            return {}
        known = None
        if self.files_end is not None:
            known = list_fingerprints(catalog.chain, self.files_end)
        found: dict[str | int, FingerprintUnknown | UnknownName] = {}
        for name, pin in self.by_table.items():
            try:
                log = read_log(connection, catalog.tenant, name)
            except UnknownName as error:
                found[name] = error
                continue
            is_kept = log[-1].table_number in catalog.kept_tables
            violation = _find_violation(log, pin, known, is_kept=is_kept)
            if violation is not None:
                found[name] = found[log[-1].table_number] = violation
        return found

    def check(self, connection: Connection, catalog: TenantCatalog) -> None:
        """Raise `FingerprintUnknown` for the first table that the program can't know, or
        `UnknownName` if no table ever had its name."""
        for error in self.find_violations(connection, catalog).values():
            raise error

    def log_new(self, before: Violations, now: Violations) -> None:
        """Log which tables are refused from now on, and which can be used again."""
        for name in self.by_table:
            if name in now and name not in before:
                logger.warning("table %r can't be used by this process: %s", name, now[name])
            if name in before and name not in now:
                logger.info("table %r can be used by this process again", name)


NO_PINS: Final = Pins({}, None)


def _find_violation(
    log: list[RevisionEntry], pin: int, known: Collection[int] | None, *, is_kept: bool
) -> FingerprintUnknown | None:
    """Return why the program can't know a table, if so; `known` are the fingerprints of the files'
    chain, None without files."""
    found = find_in_log(log, pin, is_kept=is_kept)
    context: dict[str, Any] = {
        "table": found.table,
        "pinned": format_fingerprint(pin),
        "active": format_fingerprint(found.current) if found.is_active else "(dropped)",
        "revision": found.revision,
    }
    # A tenant that jumped over the pinned schema never had it; the files lead through it.
    if not (found.is_known or pin in (known or ())):
        return FingerprintUnknown(
            "the table never had the schema that it is pinned to",
            **context,
            history=", ".join(dict.fromkeys(format_fingerprint(e.fingerprint) for e in log)),
            hint="see its schemas with `zapdb catalog revisions`; this may be another "
            "database or table, or its history was pruned",
        )
    if found.is_active and found.current in ({pin} if known is None else known):
        return None
    changes = [f"{d.part} {d.name} {d.change}" for d in found.differences]
    context["changed_since"] = ", ".join(changes) or "(nothing but the drop)"
    look = "look at what changed with `zapdb catalog fingerprint TABLE --find FINGERPRINT`"
    if known is None:
        return FingerprintUnknown(
            "the pinned table now has another schema",
            **context,
            hint=f"{look}, adapt the program, and pin the active schema; with migration "
            "files, every schema of the files is accepted",
        )
    return FingerprintUnknown(
        "the pinned table now has a schema that the migration files do not contain",
        **context,
        hint=f"add the newer migration files to the directory, and {look}",
    )
