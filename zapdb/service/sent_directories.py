"""Migration files on their way to a service: in several messages of one call, within bounds.

The first message of a call has its parameters; the others have files alone. Joined, they are one
request.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, Protocol

from zapdb.errors import InvalidMigration, Location, MigrationLimitExceeded, Violation
from zapdb.files import open_regular
from zapdb.limits import DOCUMENT_SIZE_BYTES_MAX, MIGRATIONS_MAX, SENT_FILES_SIZE_BYTES_MAX
from zapdb.migrations import GivenDirectory, SentDirectory, SentFile, list_files
from zapdb.migrations.chain import is_document, list_documents
from zapdb.migrations.directory import FILE, as_directory, reason_of

PART_SIZE_BYTES: Final = 256 * 1024
"""A message of files that has so many is sent."""
FILES_MAX: Final = MIGRATIONS_MAX + 2
"""One migration too many is told as such, and there may be a lock file."""


class NamedFile(Protocol):
    """A file as it is read, or as a message has it."""

    @property
    def name(self) -> str: ...

    @property
    def content(self) -> bytes: ...

    @property
    def unreadable(self) -> str: ...


class SentBounds:
    """What was sent so far; raises for what goes beyond, and for what is no migration file."""

    def __init__(self) -> None:
        self._names = set[str]()
        self._size_bytes = 0

    def add(self, files: Iterable[NamedFile]) -> None:
        """Raises `MigrationLimitExceeded` and `InvalidMigration`."""
        for file in files:
            self._require_name(file.name)
            self._names.add(file.name)
            self._size_bytes += len(file.content) + len(file.unreadable)
            if self._size_bytes > SENT_FILES_SIZE_BYTES_MAX or len(self._names) > FILES_MAX:
                raise MigrationLimitExceeded(
                    "these are more migration files than a service takes",
                    most_files=MIGRATIONS_MAX,
                    most_bytes=SENT_FILES_SIZE_BYTES_MAX,
                    hint="squash old migrations with `zapdb migrate squash`, or run the command "
                    "against the database itself",
                )

    def _require_name(self, name: str) -> None:
        if name in self._names:
            raise _refuse(name, "this file was sent twice")
        if not _is_plain(name) or not (is_document(name) or name == FILE):
            raise _refuse(name, f"a service takes migration files and {FILE} alone")


def _refuse(name: str, message: str) -> InvalidMigration:
    return InvalidMigration([Violation(Location(name), message)])


def _is_plain(name: str) -> bool:
    """Whether a name is one without a directory, anywhere, and a text: on Linux, it may be any
    bytes."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return not any(part in name for part in ("/", "\\", "\0"))


def read_directory(given: GivenDirectory) -> SentDirectory:
    """The files of a directory on this machine, to be sent; raises as `list_files` does for a
    directory that is missing and names that no file may have, and `MigrationLimitExceeded`."""
    directory = as_directory(given)
    if isinstance(directory, SentDirectory):
        return directory
    names = list_documents(directory)
    if not all(map(_is_plain, names)):
        list_files(directory)  # says of all names what is wrong with them
    lock = directory / FILE
    bounds, files = SentBounds(), list[SentFile]()
    for name in names:
        files.append(_read_file(directory / name, DOCUMENT_SIZE_BYTES_MAX))
        bounds.add(files[-1:])
    if lock.exists():
        files.append(_read_file(lock, SENT_FILES_SIZE_BYTES_MAX))
        bounds.add(files[-1:])
    shown = str(directory).encode(errors="backslashreplace").decode()  # as a terminal shows it
    return SentDirectory(shown, tuple(files))


def _read_file(path: Path, size_bytes_max: int) -> SentFile:
    """A file, and no more of it than shows that it is too large."""
    try:
        with open_regular(path) as file:
            return SentFile(path.name, file.read(size_bytes_max + 1))
    except OSError as error:
        return SentFile(path.name, unreadable=reason_of(error))


def split_files(files: Iterable[SentFile]) -> Iterator[tuple[SentFile, ...]]:
    """The files, as they go into messages."""
    part, size_bytes = list[SentFile](), 0
    for file in files:
        part.append(file)
        size_bytes += len(file.content)
        if size_bytes >= PART_SIZE_BYTES:
            yield tuple(part)
            part, size_bytes = [], 0
    if part:
        yield tuple(part)
