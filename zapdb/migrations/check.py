"""What `zapdb migrate check` finds of the files of a directory, without a database."""

from __future__ import annotations

from dataclasses import dataclass

from zapdb.answers import hidden
from zapdb.migrations.chain import Chain, list_files, resolve_files
from zapdb.migrations.directory import LockLine, MigrationDirectory
from zapdb.migrations.lockfile import check_lock, lock_line
from zapdb.migrations.migration import label
from zapdb.migrations.operations import NumberAllocator
from zapdb.migrations.prove import require_proven


@dataclass(frozen=True, slots=True)
class CheckedMigration:
    """A file that is valid, exhaustive and proven."""

    number: int
    name: str
    summary: str
    digest: str
    replaced: str = hidden()
    """Of a squash: the digest of the last migration that it stands for."""

    @property
    def lock_line(self) -> LockLine:
        return LockLine(label(self.number, self.name), self.digest, self.replaced)


@dataclass(frozen=True, slots=True)
class CheckedMigrations:
    """The files by number, and how many lines of the lock file were written."""

    migrations: tuple[CheckedMigration, ...]
    lock_lines_written: int = 0


def check_files(
    directory: MigrationDirectory,
    *,
    with_lock: bool = True,
    before: Chain | None = None,
    numbers: NumberAllocator | None = None,
) -> CheckedMigrations:
    """Check all files; `with_lock` also that `zapdb.lock` has the digest of each.

    `before` are the migrations that the directory begins after, which a database stores; `numbers`
    are drawn for what follows them. Raises `UsageError`, also if such migrations are not given;
    `InvalidMigration`, `NotProven` and `LockfileMismatch`.
    """
    files = list_files(directory)
    chain = resolve_files(files, before, numbers)
    added = Chain(chain.after(0 if before is None else before.end))
    require_proven(added.migrations)
    if with_lock:
        check_lock(directory, added, files[0].before)
    return CheckedMigrations(
        tuple(
            CheckedMigration(m.number, m.name, m.summary, m.digest, lock_line(m).replaced)
            for m in added.migrations
        )
    )
