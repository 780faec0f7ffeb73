"""`zapdb.lock`: one appended line per migration, so that branches conflict in version control.

    0007_split_name z1:9c1e…
    0012_squashed z1:77ab… for z1:04d2…

Two branches that each add a number 7 both append a line at the same place; merging them is a
conflict for people to see, before anything is deployed. The line of a squash also has the digest of
the last migration that it stands for, so that a directory may begin after it in any database.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from zapdb.errors import LockfileMismatch
from zapdb.files import replace_text_file
from zapdb.migrations.chain import Chain
from zapdb.migrations.directory import (
    CURE,
    FILE,
    LockLine,
    MigrationDirectory,
    find_lock,
    read_lock,
)
from zapdb.migrations.migration import Migration

HEADER: Final = (
    "# One line per migration, appended by `zapdb migrate check --write`. "
    "Keep it in version control."
)


def lock_lines(chain: Chain) -> list[LockLine]:
    """The lines that the lock file of these migrations has."""
    return list(map(lock_line, chain.migrations))


def lock_line(migration: Migration) -> LockLine:
    """The line of a migration."""
    return LockLine(migration.label, migration.digest, "".join(migration.replaces[-1:]))


def check_lock(
    directory: MigrationDirectory, chain: Chain, before: Sequence[LockLine] = ()
) -> None:
    """Raises `LockfileMismatch` at the first line that differs from the files, behind those of
    migrations `before` them, which have no files."""
    path, _ = find_lock(directory)
    written = read_lock(directory)
    if written is None:
        raise LockfileMismatch("there is no lock file", file=path, hint=CURE)
    locked = written[len(before) :]
    for at, migration in enumerate(chain.migrations):
        if at >= len(locked):
            raise LockfileMismatch(
                "a migration is not in the lock file yet",
                file=path,
                migration=migration.label,
                hint=CURE,
            )
        if locked[at] != lock_line(migration):
            raise LockfileMismatch(
                "a migration differs from its locked digest",
                file=path,
                migration=migration.label,
                locked=str(locked[at]),
                found=migration.digest,
                hint="revert the file; or, if it was never applied anywhere, run `"
                "zapdb migrate check --write`",
            )
    if len(locked) > len(chain.migrations):
        raise LockfileMismatch(
            "a migration in the lock file has no file",
            file=path,
            migration=locked[len(chain.migrations)].label,
            hint=CURE,
        )


def write_lock(directory: Path, lines: Iterable[LockLine]) -> int:
    """Rewrite the lock file; return how many lines are new or changed."""
    try:
        known = read_lock(directory) or []
    except LockfileMismatch:
        known = []
    lines = list(lines)
    text = "".join(f"{line}\n" for line in lines)
    replace_text_file(directory / FILE, f"{HEADER}\n{text}")
    return sum(1 for line in lines if line not in known)
