"""`zapdb.lock`: one appended line per migration, so that branches conflict in version control.

    0007_split_name z1:9c1e…

Two branches that each add a number 7 both append a line at the same place; merging them is a
conflict for people to see, before anything is deployed.
"""

from __future__ import annotations

from collections.abc import Iterable
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

HEADER: Final = (
    "# One line per migration, appended by `zapdb migrate check --write`. "
    "Keep it in version control."
)


def lock_lines(chain: Chain) -> list[LockLine]:
    """The lines that the lock file of these migrations has."""
    return [LockLine(migration.label, migration.digest) for migration in chain.migrations]


def check_lock(
    directory: MigrationDirectory, chain: Chain, follows: LockLine | None = None
) -> None:
    """Raises `LockfileMismatch` at the first line that differs from the files; lines of migrations
    that the directory `follows` have none."""
    path, _ = find_lock(directory)
    written = read_lock(directory)
    if written is None:
        raise LockfileMismatch("there is no lock file", file=path, hint=CURE)
    locked = written if follows is None else written[written.index(follows) + 1 :]
    for at, migration in enumerate(chain.migrations):
        if at >= len(locked):
            raise LockfileMismatch(
                "a migration is not in the lock file yet",
                file=path,
                migration=migration.label,
                hint=CURE,
            )
        if locked[at] != LockLine(migration.label, migration.digest):
            raise LockfileMismatch(
                "a migration differs from its locked digest",
                file=path,
                migration=migration.label,
                locked=f"{locked[at].label} {locked[at].digest}",
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
    text = "".join(f"{line.label} {line.digest}\n" for line in lines)
    replace_text_file(directory / FILE, f"{HEADER}\n{text}")
    return sum(1 for line in lines if line not in known)
