"""The keys of unique indexes that were seen so far, and the record that has each.

There may be more than memory has room for: they lie in a temporary file of SQLite, which nobody
else can open, and which is gone with the process. It has digests of keys, and so no values.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import blake2b
from typing import Final

from zapdb.errors import DiskFull

DIGEST_SIZE_BYTES: Final = 16
CACHE_KIB: Final = 65_536
"""How much of the file is kept in memory."""


class SeenKeys:
    """To be closed at the end; used by one thread at a time."""

    def __init__(self) -> None:
        self._file = sqlite3.connect("", isolation_level=None, check_same_thread=False)
        self._file.execute("PRAGMA journal_mode = OFF")
        self._file.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
        self._file.execute(
            "CREATE TABLE seen (of INTEGER NOT NULL, digest BLOB NOT NULL, record BLOB NOT NULL,"
            " PRIMARY KEY (of, digest)) WITHOUT ROWID"
        )
        self._file.execute("BEGIN")

    def close(self) -> None:
        self._file.close()

    def find(self, index: int, key: bytes) -> bytes | None:
        """The key of the record that was noted for an index and a key of it."""
        query = "SELECT record FROM seen WHERE of = ? AND digest = ?"
        with _naming_the_disk():
            row = self._file.execute(query, (index, _digest(key))).fetchone()
        return None if row is None else row[0]

    def note(self, index: int, key: bytes, record: bytes) -> None:
        """Note a record in the place of what was noted before."""
        with _naming_the_disk():
            self._file.execute(
                "INSERT OR REPLACE INTO seen VALUES (?, ?, ?)", (index, _digest(key), record)
            )


def _digest(key: bytes) -> bytes:
    return blake2b(key, digest_size=DIGEST_SIZE_BYTES).digest()


@contextmanager
def _naming_the_disk() -> Iterator[None]:
    try:
        yield
    except sqlite3.OperationalError as error:
        raise DiskFull(
            "the temporary file with the keys of unique indexes can't be written",
            cause=str(error),
            hint="set SQLITE_TMPDIR to a directory with room for it: some 50 bytes for each record",
        ) from error
