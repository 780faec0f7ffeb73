"""The file of a SQLite database: its path, the address of connections to it, and whether it is
still the one that was opened.

SQLite opens the file by its path, again for each connection. If the file was deleted in the
meantime, SQLite would create an empty one. If it was replaced, some connections would write the old
file and some the new one, and all would use the same -wal and -shm files, which belong to one of
the two. So the file is created once, never by a connection, and each connection's file is compared
with the first one by device and inode.

Only SQLite opens the file: closing another descriptor of it would give up the process's locks.
"""

from __future__ import annotations

import os
import sqlite3
import urllib.parse
from contextlib import suppress
from pathlib import Path
from typing import Final

from sqlalchemy.engine import URL

from zapdb.errors import DatabaseReplaced, UsageError
from zapdb.files import note_database
from zapdb.storage.addresses import show_address

DRIVER_OPTIONS: Final = frozenset(
    ("uri", "timeout", "isolation_level", "detect_types", "check_same_thread", "cached_statements")
)
"""The options of an address for Python's driver; its other options are for SQLite."""


class DatabaseFile:
    """The file that a SQLite address names; safe to share between threads."""

    def __init__(self, url: URL, *, read_only: bool) -> None:
        database = url.database or ""
        options = {key: str(value) for key, value in url.query.items()}
        if "uri" in options:
            database, given = _split(database)
            options = given | options
        if database in ("", ":memory:") or options.get("mode") == "memory":
            raise UsageError(
                "a database in memory takes no options",
                hint="give sqlite:///:memory:, or a file: sqlite:///path/to/file.db",
            )
        # Absolute: the process may change its working directory between two connections.
        self.path = os.path.abspath(database)  # noqa: PTH100 - Path.resolve would follow links
        mode = options.get("mode", "rwc")
        self._may_create = mode == "rwc" and not read_only
        self._options = {
            key: value for key, value in options.items() if key not in DRIVER_OPTIONS
        } | {"mode": "ro" if read_only or mode == "ro" else "rw"}
        self._shown_url = show_address(url)
        self._identity: tuple[int, int] | None = None
        note_database(self)

    @property
    def address(self) -> str:
        """Return the URI for a connection, which does not create the file.

        A connection that can't write still creates the -wal and -shm files, by which readers and
        writers coordinate.
        """
        return self._address(self._options)

    def _address(self, options: dict[str, str]) -> str:
        query = urllib.parse.urlencode(sorted(options.items()))
        return f"file:{urllib.parse.quote(self.path)}?{query}"

    @property
    def is_absent(self) -> bool:
        return not Path(self.path).exists()

    def create(self) -> None:
        """Create an empty file, unless it exists or existed."""
        if self._may_create and self._identity is None and self.is_absent:
            address = self._address(self._options | {"mode": "rwc"})
            sqlite3.connect(address, uri=True).close()

    def note(self) -> None:
        """Remember the file at the path as the opened one; later calls change nothing."""
        if self._identity is None:
            with suppress(OSError):
                found = os.stat(self.path)  # noqa: PTH116 - as `is_replaced`
                self._identity = found.st_dev, found.st_ino

    def is_replaced(self) -> bool:
        """Return whether the file at the path is another one than the opened file."""
        try:
            found = os.stat(self.path)  # noqa: PTH116 - each transaction does it; half the time
        except (FileNotFoundError, NotADirectoryError):
            return self._identity is not None
        except OSError:  # unknown: SQLite will raise the error
            return False
        return self._identity not in (None, (found.st_dev, found.st_ino))

    def replaced(self) -> DatabaseReplaced:
        """Return the error for a replaced file."""
        return DatabaseReplaced(
            "the file of the open database is not there any more"
            if self.is_absent
            else "another file was put in the place of the open database's",
            database=self._shown_url,
            file=self.path,
            hint="put the former file back; or close the database in all processes, "
            f"remove {self.path}-wal and {self.path}-shm, which belong to the former "
            "file, and open it again",
        )


def _split(uri: str) -> tuple[str, dict[str, str]]:
    """Return the path that a `file:` URI names, and its options."""
    parts = urllib.parse.urlsplit(uri)
    if parts.scheme != "file":
        return uri, {}
    return urllib.parse.unquote(parts.path), dict(urllib.parse.parse_qsl(parts.query))
