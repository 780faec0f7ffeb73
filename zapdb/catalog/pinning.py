"""Pinned fingerprints: a program that was built for one schema asks what became of it.

A fingerprint is the same in every database (rule 4), so it can be noted when a program is built.
The log says whether the table ever had it, and what changed since.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from zapdb.catalog.history import Entry, find_generations, format_fingerprint
from zapdb.catalog.inspection import read_log
from zapdb.errors import FingerprintUnknown
from zapdb.migrations import Chain
from zapdb.schema import Difference, compare_tables, fingerprint
from zapdb.storage import Connection


@dataclass(frozen=True, slots=True)
class Stamped:
    """What a table's log says of one fingerprint.

    `generations` are those at which it was stamped on the table, none if it never was, and
    `differences` what is otherwise since the last of them. `is_in_force` is false for a table that
    was dropped; `generation` and `current` are the newest ones then, too.
    """

    table: str
    table_number: int
    fingerprint: int
    generations: tuple[int, ...]
    generation: int
    current: int
    is_in_force: bool
    differences: tuple[Difference, ...]

    @property
    def is_known(self) -> bool:
        return bool(self.generations)

    @property
    def is_current(self) -> bool:
        return self.is_in_force and self.current == self.fingerprint


def find_fingerprint(connection: Connection, tenant: int, table: str, wanted: int) -> Stamped:
    """Look for a fingerprint in the log of the table that has or had this name.

    Raises `UnknownName` where no table ever had it.
    """
    return find_in_log(read_log(connection, tenant, table), wanted)


def find_in_log(log: list[Entry], wanted: int) -> Stamped:
    newest = log[-1]
    generations = find_generations(log, wanted)
    last = next((e for e in reversed(log) if e.fingerprint == wanted), None)
    return Stamped(
        newest.table.name,
        newest.table_number,
        wanted,
        tuple(generations),
        newest.generation,
        newest.fingerprint,
        newest.event != "drop",
        () if last is None else compare_tables(last.table, newest.table),
    )


def list_fingerprints(chain: Chain, end: int | None = None) -> frozenset[int]:
    """The fingerprints of all tables at all positions of a chain, up to position `end`."""
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


def check_pins(
    connection: Connection, tenant: int, pins: Mapping[str, int], known: Collection[int]
) -> None:
    """Refuse tables that a process can't know: `pins` gives the fingerprint by table name, `known`
    the fingerprints that the process's own files lead to, as `list_fingerprints` has them.

    Raises `FingerprintUnknown` for the first pin that was never stamped on its table nor is any of
    the files', or whose table was dropped or has a schema by now that the files don't know;
    `UnknownName` where no table ever had the name.
    """
    for name, pin in pins.items():
        log = read_log(connection, tenant, name)
        found = find_in_log(log, pin)
        context: dict[str, Any] = {
            "table": found.table,
            "pinned": format_fingerprint(pin),
            "in_force": format_fingerprint(found.current) if found.is_in_force else "(dropped)",
            "generation": found.generation,
        }
        # A tenant that jumped over the pinned schema never had it; the files lead through it.
        if not (found.is_known or pin in known):
            raise FingerprintUnknown(
                "the table never had the schema that it is pinned to",
                **context,
                history=", ".join(dict.fromkeys(format_fingerprint(e.fingerprint) for e in log)),
                hint="`zapdb catalog history` shows the schemas that it had: this is another "
                "database or table, or its history was pruned",
            )
        if not found.is_in_force or found.current not in known:
            changes = [f"{d.part} {d.name} {d.change}" for d in found.differences]
            raise FingerprintUnknown(
                "the pinned table has a schema by now that the migration files don't know",
                **context,
                changed_since=", ".join(changes) or "(nothing but the drop)",
                hint="bring the newer migration files into the directory, and look at what changed "
                "with `zapdb catalog fingerprint TABLE --find FINGERPRINT`",
            )
