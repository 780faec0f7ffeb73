"""A record at each step through a migration, and its large values."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from zapdb.values.blob import Blob


@dataclass(slots=True)
class RecordTrace:
    """A record's bytes after each step, and the error that stopped it, if any."""

    key: bytes
    values: list[bytes]
    archives: list[Mapping[int, bytes]]
    error: Exception | None = None
    failed_at: int = 0
    """How many steps were done when it was stopped."""
    came_back: bool = False
    """Whether it came back as it was."""


class MemoryBlobs:
    """Blobs in memory, and behind them those of a database."""

    def __init__(self, load_stored: Callable[[Blob], bytes] | None = None) -> None:
        self.blobs: dict[bytes, bytes] = {}
        self._load_stored = load_stored
        self._ids = itertools.count(1)

    def load(self, blob: Blob) -> bytes:
        """Raises `BlobMissing` for one that the database lacks."""
        raw = self.blobs.get(blob.id)
        if raw is None:
            assert self._load_stored is not None, "a blob that no record has"
            raw = self._load_stored(blob)
        return raw

    def make_id(self) -> bytes:
        return next(self._ids).to_bytes(16, "big")
