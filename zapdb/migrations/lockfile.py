"""`zapdb.lock`: one appended line per migration, so that branches conflict in version control.

    0007_split_name z1:9c1e…

Two branches that each add a number 7 both append a line at the same place; merging them is a
conflict for people to see, before anything is deployed.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from zapdb.errors import LockfileMismatch
from zapdb.files import replace_text_file
from zapdb.migrations.chain import Chain, MigrationDirectory, SentDirectory

FILE: Final = "zapdb.lock"
HEADER: Final = (
    "# One line per migration, appended by `zapdb migrate check --write`. "
    "Keep it in version control."
)
MERGE_MARKERS: Final = ("<<<<<<<", "=======", ">>>>>>>")
CURE: Final = "if the files are right, run `zapdb migrate check --write`"


@dataclass(frozen=True, slots=True)
class LockLine:
    label: str
    digest: str


def lock_lines(chain: Chain) -> list[LockLine]:
    """The lines that the lock file of these migrations has."""
    return [LockLine(migration.label, migration.digest) for migration in chain.migrations]


def _find_lock(directory: MigrationDirectory) -> tuple[Path, bytes | None]:
    if isinstance(directory, SentDirectory):
        sent = (file.content for file in directory.files if file.name == FILE)
        return Path(directory.path) / FILE, next(sent, None)
    path = directory / FILE
    try:
        return path, path.read_bytes()
    except FileNotFoundError:
        return path, None


def read_lock(directory: MigrationDirectory) -> list[LockLine] | None:
    """The lines of the lock file, or None where there is none; raises on a broken line."""
    path, written = _find_lock(directory)
    if written is None:
        return None
    try:
        text = written.decode()
    except UnicodeDecodeError:
        raise LockfileMismatch("the lock file is not UTF-8", file=path, hint=CURE) from None
    lines = []
    for at, raw in enumerate(text.splitlines(), 1):
        content = raw.partition("#")[0].split()
        if not content:
            continue
        merging = raw.startswith(MERGE_MARKERS)
        if len(content) != 2 or merging:
            hint = CURE
            if merging:
                hint = "settle the merge: renumber one of the two migrations, then " + CURE
            raise LockfileMismatch(
                "a line of the lock file does not consist of a migration and its digest",
                file=f"{path}:{at}",
                hint=hint,
            )
        lines.append(LockLine(*content))
    return lines


def check_lock(directory: MigrationDirectory, chain: Chain) -> None:
    """Raises `LockfileMismatch` at the first line that differs from the files."""
    path, _ = _find_lock(directory)
    locked = read_lock(directory)
    if locked is None:
        raise LockfileMismatch("there is no lock file", file=path, hint=CURE)
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
    if len(locked) > chain.end:
        raise LockfileMismatch(
            "a migration in the lock file has no file",
            file=path,
            migration=locked[chain.end].label,
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
