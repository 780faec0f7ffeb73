"""What lies beside a record: its blobs, and the archived values of dropped fields.

Encoders and conversion programs are pure: they are given a `Beside`, load old blobs through it, and
leave with it what has to be stored together with the bytes that they return (rule 19). Who stores
the record stores that, too; who only reads it lets it go.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from zapdb.values.blob import Blob

Load = Callable[[Blob], bytes]
"""Raises `BlobMissing`."""

NOTHING: Final[Mapping[int, bytes]] = {}


class Beside:
    """One record's surroundings, or those of many that have none.

    `archive` holds the value encodings of the record's archived fields, by field number; b"" is
    a null.
    """

    __slots__ = ("_load", "_make_id", "archive", "archived", "blobs", "restored")

    def __init__(
        self,
        load: Load,
        make_id: Callable[[], bytes],
        archive: Mapping[int, bytes] = NOTHING,
    ) -> None:
        self._load = load
        self._make_id = make_id
        self.archive = archive
        self.blobs: dict[bytes, bytes] = {}
        """New blobs, unsaved, by id."""
        self.archived: dict[int, bytes] = {}
        """Value encodings of fields that a conversion dropped and that are kept; b"" for null."""
        self.restored: set[int] = set()
        """Numbers of archived fields that a conversion took back: their archive is consumed."""

    def add(self, raw: bytes) -> bytes:
        """Take the bytes of a new blob; returns its id."""
        made = self._make_id()
        self.blobs[made] = raw
        return made

    def take_blobs(self) -> dict[bytes, bytes]:
        """The new blobs so far, to be stored by the caller; they are let go here."""
        taken, self.blobs = self.blobs, {}
        return taken

    def load(self, blob: Blob) -> bytes:
        """The bytes of a blob, new or stored; raises `BlobMissing`."""
        raw = self.blobs.get(blob.id)
        return self._load(blob) if raw is None else raw

    def load_value(self, blob: Blob) -> object:
        """The value of a blob; raises `BlobMissing`, `CorruptRecord`."""
        return blob.value_of(self.load(blob))
