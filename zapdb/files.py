"""Files that a person has named, and the one way to write them.

A regular file is written beside its place, and takes it when it is whole and on the disk: with the
mode and the owner of the file that was there, behind the link that leads to it. So an error leaves
what was there before. Anything else, such as a pipe, a device, or a descriptor (`/dev/stdout`),
keeps its place: it is opened as it is, and written into; a descriptor of this process by itself, so
that what others write there comes behind.

A database that this process has open is never written over, nor is any SQLite file, nor a source.
"""

from __future__ import annotations

import errno
import io
import os
import re
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, Final, Protocol
from weakref import WeakSet

from zapdb.errors import UsageError

_COMPANIONS: Final = ("", "-wal", "-shm", "-journal")
"""What SQLite adds to the name of a database for the files beside it."""
_SQLITE_MARK: Final = b"SQLite format 3\0"
_ADDRESS: Final = re.compile(r"([a-z][a-z0-9]+(?:\+[a-z0-9]+)?):/")
"""How a path begins that is an address, such as sqlite:///todo.db, with one slash for several."""
_LINKS_MAX: Final = 40
"""Of links that lead to each other; the system follows as many."""
_OWN_DESCRIPTORS: Final = "/proc/self/fd"
_STANDARD_OUTPUT: Final = 1
_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0)


class OpenFile(Protocol):
    """A file of a database that is open."""

    path: str


_DATABASES: Final = WeakSet[Any]()


def note_database(file: OpenFile) -> None:
    """Remember a database's file, until it is collected: it is not written over, and nobody else
    opens it, since closing it would give up the locks that SQLite has on it."""
    _DATABASES.add(file)


def open_regular(path: Path) -> IO[bytes]:
    """Open a file of a directory to read it; raises `OSError` for what is no regular file, such as
    a pipe: who opens that waits until somebody writes into it."""
    opened = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    if stat.S_ISREG(os.fstat(opened).st_mode):
        return os.fdopen(opened, "rb")
    os.close(opened)
    raise OSError(errno.EINVAL, "it is not a regular file", str(path))


NEW_MODE: Final = 0o666
"""The mode of a new file, of which the umask takes away what it says."""


def mode_of_directory(mode: int) -> int:
    """The mode of a directory of files with a mode: who may read these may look through it."""
    return mode | 0o300 | (mode & 0o444) >> 2


def create_text_file(path: Path, text: str, mode: int = NEW_MODE) -> None:
    """Write a file that must not exist yet; on an error there is none.

    Raises `FileExistsError`, and any other `OSError` with the file's name.
    """
    made = os.open(path, _NEW, mode)
    with os.fdopen(made, "w", encoding="utf-8", newline="\n") as file:
        try:
            file.write(text)
            file.flush()
        except OSError as error:
            path.unlink()
            raise _named(error, path) from error


def replace_text_file(path: Path, text: str) -> None:
    """Write a file, or another text into it, as `writing_file` does."""
    with writing_file(path) as file:
        file.write(text.encode())


@contextmanager
def writing_file(path: str | Path, mode: int = NEW_MODE) -> Iterator[IO[bytes]]:
    """Write a file in the block. A regular one gets its name when that has ended; on an error it
    stays as it was. What is no regular file is written into, and may be read meanwhile. A new file
    has the mode.

    Raises `UsageError` for a database, and `OSError` with the file's name.
    """
    path = Path(path)
    require_no_database(path)
    try:
        if is_written_into(path):
            with open_to_write_into(path) as file:
                yield file
        else:
            with _replacing(Path(os.path.realpath(path)), mode) as file:
                yield file
    except OSError as error:
        if error.filename is None or str(error.filename).endswith(_PARTIAL):
            raise _named(error, path) from error
        raise


@contextmanager
def writing_text(path: str | Path, mode: int = NEW_MODE) -> Iterator[io.TextIOWrapper]:
    """The same for a text in UTF-8, whose line ends stay as they are written."""
    with writing_file(path, mode) as file:
        text = io.TextIOWrapper(file, encoding="utf-8", newline="")
        try:
            yield text
            text.flush()
        finally:
            with suppress(OSError, ValueError):
                text.detach()


_PARTIAL: Final = ".partial"


@contextmanager
def _replacing(path: Path, mode: int) -> Iterator[IO[bytes]]:
    """A new file that takes the place of a regular one, or of none."""
    try:
        there = path.stat()
    except FileNotFoundError:
        there = None
    if there is not None and stat.S_ISDIR(there.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if there is not None and not os.access(path, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
    unfinished = path.with_name(f".{path.name}.{os.urandom(6).hex()}{_PARTIAL}")
    # The mode that was there comes before any content, and nobody has opened the file meanwhile.
    made = os.open(unfinished, _NEW, mode if there is None else 0o600)
    try:
        with os.fdopen(made, "w+b") as file:
            if there is not None:
                with suppress(PermissionError):  # only root gives files away
                    os.fchown(made, there.st_uid, there.st_gid)
                os.fchmod(made, stat.S_IMODE(there.st_mode))
            yield file
            file.flush()
            os.fsync(made)
        unfinished.replace(path)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise


def is_written_into(path: Path) -> bool:
    """Return whether a path names something that is not replaced: a pipe, a device, a
    descriptor."""
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        return False
    return not stat.S_ISDIR(mode) and (not stat.S_ISREG(mode) or _is_descriptor(path))


def open_to_write_into(path: Path) -> IO[bytes]:
    """Open what is not replaced. Opened anew, a file behind a descriptor would have another place
    to write at, and what is written by the descriptor then would overwrite this."""
    directory, _, number = (_find_descriptor(path) or "").rpartition("/")
    if directory != os.path.realpath(_OWN_DESCRIPTORS):
        return path.open("ab")
    if int(number) == _STANDARD_OUTPUT:
        sys.stdout.flush()
    return os.fdopen(os.dup(int(number)), "wb")


def is_standard_output(path: Path) -> bool:
    """Return whether a path names what the standard output of this process goes to."""
    try:
        return os.path.samestat(path.stat(), os.fstat(_STANDARD_OUTPUT))
    except OSError:
        return False


def _is_descriptor(path: Path) -> bool:
    """Whether a path leads through an open descriptor, such as `/dev/stdout`: the file behind it
    has other bytes already, or others yet to come."""
    return _find_descriptor(path) is not None


def _find_descriptor(path: Path) -> str | None:
    """Return the path of the open descriptor that a path leads through, if any."""
    at = os.path.abspath(path)  # noqa: PTH100 - Path.resolve would follow the links
    for _ in range(_LINKS_MAX):
        directory, name = os.path.split(at)
        directory = os.path.realpath(directory)
        if directory.startswith("/proc/"):
            return f"{directory}/{name}"
        try:
            at = os.path.join(directory, os.readlink(at))  # noqa: PTH115, PTH118 - of a text
        except OSError:  # no link
            return None
    return None


def require_path(path: Path) -> None:
    """Raise `UsageError` for the address of a database where a file or directory is to be written:
    as a path, it would be one with a strange name, and with the password of the address."""
    if found := _ADDRESS.match(str(path)):
        raise UsageError(
            "this is the address of a database, and not the path of a file or directory",
            path=f"{found[1]}:***",
            hint="give a path to write to; -d, --database gives the database",
        )


def require_no_database(path: Path, sources: tuple[str | Path, ...] = ()) -> None:
    """Raise `UsageError` for a file that is a database, one of those that SQLite has beside it, or
    one of the sources; or for the address of one."""
    require_path(path)
    for source in sources:
        if _is_same(path, source):
            raise UsageError(
                "this file is the source", file=path, hint="give another file to write to"
            )
    opened = [one.path for one in list(_DATABASES)]
    for database in opened:
        for companion in _COMPANIONS:
            if _is_same(path, database + companion):
                raise _is_database(path)
    for companion in _COMPANIONS:
        base = str(path).removesuffix(companion)
        if (base != str(path) or not companion) and _is_sqlite(Path(base)):
            raise _is_database(path)


def _is_same(path: Path, other: str | Path) -> bool:
    try:
        return os.path.samefile(path, other)  # noqa: PTH121 - of a text
    except OSError:
        return os.path.realpath(path) == os.path.realpath(other)


def _is_sqlite(path: Path) -> bool:
    """Whether a file that this process has not open is a SQLite database."""
    try:
        if not stat.S_ISREG(path.stat().st_mode) or _is_descriptor(path):
            return False
        with path.open("rb") as file:
            return file.read(len(_SQLITE_MARK)) == _SQLITE_MARK
    except OSError:
        return False


def _is_database(path: Path) -> UsageError:
    return UsageError(
        "this file is a SQLite database, or belongs to one",
        file=path,
        hint="give another file to write to; or delete the database first",
    )


def _named(error: OSError, path: Path) -> OSError:
    return type(error)(error.errno, error.strerror, str(path))
