"""Comparison of migration files with the stored migrations (rule 6).

Stored migrations beyond the end of the files are no conflict; files beyond the stored end are
pending; in between, file and stored migration must have the same digest. A file whose bytes were
seen before is not parsed again. Where files begin after a stored migration, the lines of the lock
file before them stand for the files that are not there, and are compared in their place.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from zapdb.activation.tenant_catalog import TenantCatalog
from zapdb.catalog.stored_migrations import (
    ChainPlace,
    StoredMigration,
    StoredMigrations,
    source_hash,
)
from zapdb.errors import InvalidMigration, Location, MigrationConflict
from zapdb.migrations import Chain, MigrationFile, NumberAllocator, resolve, resolve_files
from zapdb.migrations.chain import find_parting
from zapdb.migrations.directory import LockLine
from zapdb.migrations.migration import Migration, ReplayAllocator
from zapdb.migrations.structure_diff import diff_structures


@dataclass(frozen=True, slots=True)
class FileComparison:
    """What the files add to the database; `pending` follow the stored end."""

    files_end: int
    pending: tuple[MigrationFile, ...]


class StoredPosition(Protocol):
    """What is stored, and how far a tenant is: a tenant catalog, or that part of one."""

    @property
    def stored(self) -> Sequence[StoredMigration]: ...

    @property
    def stored_chain(self) -> Chain: ...

    @property
    def position(self) -> int: ...


def compare_files(
    files: list[MigrationFile], stored: Sequence[StoredMigration], chain: Chain
) -> FileComparison:
    """Raise `MigrationConflict` at the first file that differs from its stored migration.

    Files may begin with a squash of migrations that are stored one by one, or stored migrations may
    begin with a squash of files. They agree if the squash replaces exactly these digests.
    """
    if not files:
        return FileComparison(0, ())
    follows = files[0].follows
    require_followed(files[0], stored)
    if follows is not None and isinstance(stored, StoredMigrations):
        stored = stored.list_from(follows.number)
    end = stored[-1].number if stored else 0
    rows = {row.number: row for row in stored}
    start = 0
    if follows is None and _differ_in_start(files, stored):
        _compare_squash(files, stored, chain)
        start = max(files[0].number, stored[0].number) + 1
    for file in files:
        row = rows.get(file.number)
        if row is None or file.number < start:
            continue
        if source_hash(file.read().raw) == row.source_hash:
            continue
        given = resolve_stored(file, row, chain)
        if given.digest != row.digest:
            raise _conflict(file, row, given, is_newest=row.number == end)
    return FileComparison(files[-1].number, tuple(file for file in files if file.number > end))


def find_kept_place(
    files: list[MigrationFile], catalog: TenantCatalog, position: int
) -> ChainPlace | None:
    """The place of a migration that was rolled back and is kept, if the files lead there with the
    number `position`; None if they lead elsewhere, such as to what is stored. Raises
    `MigrationConflict` as `compare_files` does."""
    stored = catalog.stored_chain
    for place in reversed(catalog.list_kept_places()):  # of equal ones, the newest
        if place.position != position:
            continue
        line = catalog.line_to(place)
        parting = find_parting(line, stored)
        beside, again = line.after(parting), stored.after(parting)[:1]
        # Files that were stored again lead to what is stored now, and on from there.
        is_stored_again = bool(again) and again[0].digest == beside[0].digest
        given = [file for file in files if parting < file.number <= position]
        if is_stored_again or len(given) != len(beside):
            continue
        if all(map(_leads_to, given, beside)):
            compare_files([f for f in files if f.number <= parting], catalog.stored, stored)
            return place
    return None


def resolve_pending(files: Sequence[MigrationFile], catalog: TenantCatalog) -> Chain:
    """The chain that pending files lead to; those of migrations that were rolled back and are kept
    are what was stored. The others have provisional numbers."""
    chain, numbers = catalog.stored_chain, NumberAllocator.provisional()
    if not catalog.list_kept_places():
        return resolve_files(files, chain, numbers)
    for file in files:
        resolved = resolve_files([file], chain, numbers)
        chain = catalog.find_kept_behind(chain, resolved.at(file.number).digest) or resolved
    return chain


def _leads_to(file: MigrationFile, migration: Migration) -> bool:
    if file.is_squash():
        return False
    numbers, parsed = (
        _ReplayedThenCounted(migration.drawn, migration.number),
        file.parse(file.read()),
    )
    try:
        return resolve(parsed, migration.before, numbers).digest == migration.digest
    except InvalidMigration:
        return False  # one for another schema


def require_followed(first: MigrationFile, stored: Sequence[StoredMigration]) -> None:
    """Raise `MigrationConflict` unless the database stores the migrations before a directory with
    this first file, with the digests that the lock file has.

    Either may have a squash where the other has the migrations that it stands for. An empty
    database stores none.
    """
    follows = first.follows
    if follows is None:
        return
    if isinstance(stored, StoredMigrations) and _are_same(
        first.before, stored.list_lines(first.before[0].number, follows.number)
    ):
        return
    held = _lines_of(stored)
    if follows.number not in held:
        raise MigrationConflict(
            "the files begin after a migration that the database does not store",
            location=Location(str(first.path), 1, 1),
            after=follows.label,
            stored=stored[-1].label if stored else "(none)",
            hint="apply the migrations before it from a checkout that still has them: "
            "`zapdb migrate up --migrations …`",
        )
    for line in reversed(first.before):
        if not line.is_same_as(held[line.number]):
            raise _other_before(first, line, held[line.number])
    squash = stored[0]
    if squash.number > follows.number:
        raise MigrationConflict(
            "the files begin between migrations that the database stored as one squash",
            location=Location(str(first.path), 1, 1),
            after=follows.label,
            stored=squash.label,
            hint=f"delete the files up to {squash.number:04d}, and leave zapdb.lock as it is; or "
            "bring back those before, so that the directory has all",
        )


def _other_before(first: MigrationFile, line: LockLine, held: LockLine) -> MigrationConflict:
    what, key = "the lock file names", "locked"
    if line is first.follows:
        what, key = "the files begin after", "after"
    return MigrationConflict(
        f"{what} another migration than the one that the database stored",
        location=Location(str(first.path), 1, 1),
        stored=str(held),
        hint="these files are for another database, or zapdb.lock was edited: restore it from "
        "version control",
        **{key: str(line)},
    )


def _are_same(lines: Sequence[LockLine], held: Sequence[LockLine]) -> bool:
    return len(lines) == len(held) and all(map(LockLine.is_same_as, lines, held))


def _lines_of(stored: Sequence[StoredMigration]) -> dict[int, LockLine]:
    """What the lock file of the stored migrations has for each number, also of those that a squash
    stands for."""
    held = {row.number: LockLine(row.label, row.digest) for row in stored}
    for first in stored[:1]:  # no other one can be a squash
        replaced = first.replaces
        held |= {at: LockLine(first.label, digest) for at, digest in enumerate(replaced, 1)}
        held[first.number] = LockLine(first.label, first.digest, "".join(replaced[-1:]))
    return held


def find_chain_before(first: MigrationFile, catalog: StoredPosition | None) -> Chain | None:
    """The stored migrations that a directory with this first file begins after; None if it has all
    files. Raises `MigrationConflict` if the database stores others, or is empty: then there is no
    tenant catalog."""
    require_followed(first, () if catalog is None else catalog.stored)
    if first.follows is None or catalog is None:
        return None
    return catalog.stored_chain.up_to(first.number - 1)


def resolve_stored(file: MigrationFile, row: StoredMigration, chain: Chain) -> Migration:
    """What a file says, in the place of a stored migration."""
    before = chain.schema_at(file.number - 1)
    # Where the structures agree, the numbers drawn do too; where they don't, they are never
    # used: running out of them must not hide the conflict.
    numbers = _ReplayedThenCounted(row.drawn, row.number)
    return resolve(file.parse(file.read()), before, numbers)


def _differ_in_start(files: list[MigrationFile], stored: Sequence[StoredMigration]) -> bool:
    return bool(stored) and files[0].number != stored[0].number


def _compare_squash(
    files: list[MigrationFile], stored: Sequence[StoredMigration], chain: Chain
) -> None:
    """Compare files and stored migrations of which one begins with a squash of the other."""
    if files[0].number > stored[0].number:
        squash = resolve_files(files[:1])
        (first,) = squash.migrations
        if stored[-1].number < first.number:
            raise MigrationConflict(
                "the files begin with a squash of more migrations than the database stores",
                location=Location(str(files[0].path), 1, 1),
                stored=stored[-1].label,
                squash=first.label,
                hint="apply the migrations that it replaces from a checkout that still has them: "
                "`zapdb migrate up --migrations …`",
            )
        held = [row.digest for row in stored if row.number <= first.number]
        _require_same_digests(files[0], first.replaces, held)
        return
    first_stored = stored[0]
    replaced = resolve_files([file for file in files if file.number <= first_stored.number])
    if replaced.end == first_stored.number:
        digests = [migration.digest for migration in replaced.migrations]
        _require_same_digests(files[0], first_stored.replaces, digests)


def _require_same_digests(
    file: MigrationFile, replaced: Sequence[str], given: Sequence[str]
) -> None:
    if tuple(replaced) == tuple(given):
        return
    at = next(
        at
        for at in range(max(len(replaced), len(given)))
        if list(replaced[at : at + 1]) != list(given[at : at + 1])
    )
    raise MigrationConflict(
        "the files and the database were squashed from different migrations",
        location=Location(str(file.path), 1, 1),
        first_difference=f"migration {at + 1}",
        hint="restore the files that were squashed, and compare them with `zapdb migrate diff`",
    )


class _ReplayedThenCounted(ReplayAllocator):
    def __init__(self, drawn: dict[str, list[int]], migration: int) -> None:
        super().__init__(drawn, migration)
        self.further = NumberAllocator.provisional()

    def allocate(self, kind: str) -> int:
        number = next(self.rest.get(kind, iter(())), None)
        return self.further.allocate(kind) if number is None else number  # type: ignore[arg-type]  # the kinds of the base class


def _conflict(
    file: MigrationFile, row: StoredMigration, given: Migration, *, is_newest: bool
) -> MigrationConflict:
    lines = diff_structures(row.structure, given.structure)
    return MigrationConflict(
        "the file differs from the migration that the database stored",
        location=Location(str(file.path), 1, 1),
        stored=f"{row.label} {row.digest}",
        file=f"{file.label} {given.digest}",
        difference="\n    " + "\n    ".join(lines),
        hint="revert the file and write the change as a new migration "
        f'(`zapdb migrate new "…"`), or roll back the stored ones from {row.label} '
        "on (`zapdb migrate rollback`)"
        + "; in development, `zapdb migrate amend` puts it in the place of the stored one"
        * is_newest,
    )
