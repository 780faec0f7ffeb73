"""Files against what the database stores (rule 6).

Stored migrations beyond the end of the files are no conflict; files beyond the stored end are
pending; in between, file and stored migration must have the same digest. A file whose bytes were
seen before is not parsed again.
"""

from __future__ import annotations

from dataclasses import dataclass

from zapdb.catalog.stored import StoredMigration, provisional_numbers, source_hash
from zapdb.errors import Location, MigrationConflict
from zapdb.migrations import Chain, MigrationFile, resolve
from zapdb.migrations.difference import diff_structures
from zapdb.migrations.migration import Migration, ReplayedNumbers


@dataclass(frozen=True, slots=True)
class Comparison:
    """What the files add to the database; `pending` follow the stored end."""

    files_end: int
    pending: tuple[MigrationFile, ...]


def compare_files(
    files: list[MigrationFile], stored: list[StoredMigration], chain: Chain
) -> Comparison:
    """Raises `MigrationConflict` at the first file that differs from what is stored."""
    for file, row in zip(files, stored, strict=False):
        source = file.read()
        if source_hash(source.raw) == row.source_hash:
            continue
        before = chain.schema_at(file.number - 1)
        # Where the structures agree, the numbers drawn do too; where they don't, they are never
        # used: running out of them must not hide the conflict.
        given = resolve(file.parse(source), before, _ReplayedThenCounted(row.drawn, row.number))
        if given.digest != row.digest:
            raise _conflict(file, row, given)
    return Comparison(len(files), tuple(files[len(stored) :]))


class _ReplayedThenCounted(ReplayedNumbers):
    def __init__(self, drawn: dict[str, list[int]], migration: int) -> None:
        super().__init__(drawn, migration)
        self.further = provisional_numbers()

    def draw(self, kind: str) -> int:
        number = next(self.rest.get(kind, iter(())), None)
        return self.further.draw(kind) if number is None else number  # type: ignore[arg-type]  # the kinds of the base class


def _conflict(file: MigrationFile, row: StoredMigration, given: Migration) -> MigrationConflict:
    lines = diff_structures(row.structure, given.structure)
    return MigrationConflict(
        "the file differs from the migration that the database stored",
        location=Location(str(file.path), 1, 1),
        stored=f"{row.label} {row.digest}",
        file=f"{file.label} {given.digest}",
        difference="\n    " + "\n    ".join(lines),
        hint="revert the file and write the change as a new migration "
        f'(`zapdb migrate new "…"`), or forget the stored ones from {row.label} on '
        "(`zapdb migrate forget`)",
    )
