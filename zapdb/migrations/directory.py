"""Where migration files are, here or sent by another machine, and the lines of `zapdb.lock`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from zapdb.errors import LockfileMismatch
from zapdb.files import open_regular

FILE: Final = "zapdb.lock"
MERGE_MARKERS: Final = ("<<<<<<<", "=======", ">>>>>>>")
STANDS_FOR: Final = "for"
"""In the line of a squash: before the digest of the last migration that it stands for."""
CURE: Final = "if the files are right, run `zapdb migrate check --write`"


@dataclass(frozen=True, slots=True)
class SentFile:
    """A file that somebody sent: its name without a directory, and its bytes; or `unreadable`, why
    it could not be read there: not every command reads every file."""

    name: str
    content: bytes = b""
    unreadable: str = ""


@dataclass(frozen=True, slots=True)
class SentDirectory:
    """The files of a directory that is on another machine, and `path`, by which errors call it."""

    path: str
    files: tuple[SentFile, ...]


MigrationDirectory = Path | SentDirectory
"""Migration files, on this machine or sent from another one."""
GivenDirectory = str | MigrationDirectory
"""The same, as callers name it."""


def as_directory(given: GivenDirectory) -> MigrationDirectory:
    return Path(given) if isinstance(given, str) else given


@dataclass(frozen=True, slots=True)
class LockLine:
    """A migration and its digest, as the lock file or a database has them.

    Of a squash, `replaced` is the digest of the last migration that it stands for. Databases that
    store these one by one have that one at the number of the squash.
    """

    label: str
    digest: str
    replaced: str = ""

    def __str__(self) -> str:
        squash = f" {STANDS_FOR} {self.replaced}" if self.replaced else ""
        return f"{self.label} {self.digest}{squash}"

    def is_same_as(self, held: LockLine) -> bool:
        """Whether both are the same migration, or one is a squash that ends with the other."""
        if self.replaced and held.replaced:
            return self.digest == held.digest
        return bool({self.digest, self.replaced} & {held.digest, held.replaced} - {""})

    @property
    def number(self) -> int:
        """The number in the label; 0 if there is none."""
        digits = self.label.partition("_")[0]
        return int(digits) if digits.isdecimal() else 0


def find_lock(directory: MigrationDirectory) -> tuple[Path, bytes | None]:
    """The path of the lock file, and its bytes if there is one; raises `LockfileMismatch` if it
    can't be read."""
    if isinstance(directory, SentDirectory):
        path = Path(directory.path) / FILE
        found = next((file for file in directory.files if file.name == FILE), None)
        if found is not None and found.unreadable:
            raise _unreadable_lock(path, found.unreadable)
        return path, None if found is None else found.content
    path = directory / FILE
    try:
        with open_regular(path) as file:
            return path, file.read()
    except FileNotFoundError:
        return path, None
    except OSError as error:
        raise _unreadable_lock(path, reason_of(error)) from None


def reason_of(error: OSError) -> str:
    """Why a file can't be read."""
    return error.strerror or str(error)


def _unreadable_lock(path: Path, reason: str) -> LockfileMismatch:
    return LockfileMismatch(
        "the lock file can't be read",
        file=path,
        cause=reason,
        hint="restore it from version control",
    )


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
        is_squash = len(content) == 4 and content[2] == STANDS_FOR
        if (len(content) != 2 and not is_squash) or merging:
            hint = CURE
            if merging:
                hint = "settle the merge: renumber one of the two migrations, then " + CURE
            raise LockfileMismatch(
                "a line of the lock file does not consist of a migration and its digest",
                file=f"{path}:{at}",
                hint=hint,
            )
        lines.append(LockLine(content[0], content[1], content[3] if is_squash else ""))
    return lines


def read_lines_before(directory: MigrationDirectory, number: int) -> tuple[LockLine, ...]:
    """The lines of the lock file for migrations before a number, each of which stands for the file
    that the directory lacks; none if the one directly before it has no line.

    Raises `LockfileMismatch` unless they are numbered one after another, as the files would be.
    """
    lines = read_lock(directory) or []
    numbers = [line.number for line in lines]
    if number - 1 not in numbers:
        return ()
    count = sum(one < number for one in numbers)
    before = tuple(lines[:count])
    for at, line in enumerate(before):
        is_next = numbers[at] == number - count + at > 0
        if not is_next or (line.replaced and at):
            raise LockfileMismatch(
                "a line of the lock file is not where it belongs",
                file=find_lock(directory)[0],
                migration=line.label,
                hint="a directory that begins after a stored migration needs the lines as they "
                "were written: restore the lock file from version control",
            )
    return before
