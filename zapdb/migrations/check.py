"""What `zapdb migrate check` finds of the files of a directory, without a database."""

from __future__ import annotations

from dataclasses import dataclass

from zapdb.migrations.chain import MigrationDirectory, load_directory
from zapdb.migrations.lockfile import LockLine, check_lock
from zapdb.migrations.migration import label
from zapdb.migrations.prove import require_proven


@dataclass(frozen=True, slots=True)
class CheckedMigration:
    """A file that is valid, exhaustive and proven."""

    number: int
    name: str
    summary: str
    digest: str

    @property
    def lock_line(self) -> LockLine:
        return LockLine(label(self.number, self.name), self.digest)


@dataclass(frozen=True, slots=True)
class CheckedMigrations:
    """The files by number, and how many lines of the lock file were written."""

    migrations: tuple[CheckedMigration, ...]
    lock_lines_written: int = 0


def check_files(directory: MigrationDirectory, *, with_lock: bool = True) -> CheckedMigrations:
    """Check all files; `with_lock` also that `zapdb.lock` has the digest of each.

    Raises `UsageError`, `InvalidMigration`, `NotProven` and `LockfileMismatch`.
    """
    chain = load_directory(directory)
    require_proven(chain.migrations)
    if with_lock:
        check_lock(directory, chain)
    return CheckedMigrations(
        tuple(CheckedMigration(m.number, m.name, m.summary, m.digest) for m in chain.migrations)
    )
