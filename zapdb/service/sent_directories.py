"""Migration files on their way to a service: in several messages of one call, within bounds.

The first message of a call has its parameters; the others have files alone. Joined, they are one
request.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, Protocol

from zapdb.errors import InvalidMigration, Location, MigrationLimitExceeded, Violation
from zapdb.limits import MIGRATIONS_MAX, SENT_FILES_SIZE_BYTES_MAX
from zapdb.migrations import MigrationDirectory, SentDirectory, SentFile
from zapdb.migrations.chain import is_document, list_documents
from zapdb.migrations.directory import FILE
from zapdb.migrations.document import DocumentText

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
            self._size_bytes += len(file.content)
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
        is_plain = not any(part in name for part in ("/", "\\", "\0"))
        if not is_plain or not (is_document(name) or name == FILE):
            raise _refuse(name, f"a service takes migration files and {FILE} alone")


def _refuse(name: str, message: str) -> InvalidMigration:
    return InvalidMigration([Violation(Location(name), message)])


def read_directory(directory: MigrationDirectory) -> SentDirectory:
    """The files of a directory on this machine, to be sent; raises as `list_files` does, for a
    directory that is missing and files that can't be read, and `MigrationLimitExceeded`."""
    if isinstance(directory, SentDirectory):
        return directory
    bounds, files = SentBounds(), list[SentFile]()
    for name in list_documents(directory):
        files.append(SentFile(name, DocumentText.read(directory / name).raw))
        bounds.add(files[-1:])
    lock = directory / FILE
    if lock.exists():
        files.append(SentFile(FILE, lock.read_bytes()))
        bounds.add(files[-1:])
    return SentDirectory(str(directory), tuple(files))


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
