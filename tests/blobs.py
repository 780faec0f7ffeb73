"""Blobs in memory, for tests of what is pure."""

from __future__ import annotations

import itertools

from zapdb.errors import BlobMissing
from zapdb.records import Attachments
from zapdb.values import Blob


class MemoryBlobs:
    """Where blobs are saved; the ids are counted, so that equal programs make equal bytes."""

    def __init__(self) -> None:
        self.saved: dict[bytes, bytes] = {}

    def attachments(self, *_record: bytes) -> Attachments:
        numbers = itertools.count(len(self.saved) + 1)
        return Attachments(self.load, lambda: next(numbers).to_bytes(16, "big"))

    def save(self, attachments: Attachments) -> None:
        """Store what was left beside a record, as who stores the record does."""
        self.saved |= attachments.take_blobs()

    def load(self, blob: Blob) -> bytes:
        if blob.id not in self.saved:
            raise BlobMissing("a large value is not in the blob table")
        return self.saved[blob.id]


NO_BLOBS = MemoryBlobs().attachments()
"""Where no blobs are to be expected."""
