"""Where migration files are, here or sent by another machine, and the lines of `zapdb.lock`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from zapdb.errors import LockfileMismatch

FILE: Final = "zapdb.lock"
MERGE_MARKERS: Final = ("<<<<<<<", "=======", ">>>>>>>")
CURE: Final = "if the files are right, run `zapdb migrate check --write`"


@dataclass(frozen=True, slots=True)
class SentFile:
    """A file that somebody sent: its name without a directory, and its bytes."""

    name: str
    content: bytes


@dataclass(frozen=True, slots=True)
class SentDirectory:
    """The files of a directory that is on another machine, and `path`, by which errors call it."""

    path: str
    files: tuple[SentFile, ...]


MigrationDirectory = Path | SentDirectory
"""Migration files, on this machine or sent from another one."""


@dataclass(frozen=True, slots=True)
class LockLine:
    label: str
    digest: str

    @property
    def number(self) -> int:
        """The number in the label; 0 if there is none."""
        digits = self.label.partition("_")[0]
        return int(digits) if digits.isdecimal() else 0


def find_lock(directory: MigrationDirectory) -> tuple[Path, bytes | None]:
    """The path of the lock file, and its bytes if there is one."""
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
    path, written = find_lock(directory)
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
