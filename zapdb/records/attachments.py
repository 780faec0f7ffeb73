"""The attachments of a record: its blobs, and the archived values of dropped fields.

Encoders and conversion programs are pure: they are given an `Attachments`, load old blobs through
it, and add to it what has to be stored together with the bytes that they return (rule 19). A writer
of the record stores these additions, too; a reader drops them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from zapdb.errors import TransactionConflict
from zapdb.values.blob import Blob

Load = Callable[[Blob], bytes]
"""Raises `BlobMissing`."""


class Archive(Protocol):
    """Value encodings of a record's archived fields, by cell; b"" is a null."""

    def get(self, number: int, /) -> bytes | None:
        """The encoding, or None if there is none; raises `ReadConflict`."""


NO_ARCHIVE: Final[dict[int, bytes]] = {}


class ReadConflict(Exception):
    """The record was changed since it was read, and its attachments may be deleted.

    `value` is the record's bytes now; None if it was deleted.
    """

    def __init__(self, value: bytes | None) -> None:
        super().__init__()
        self.value = value

    def value_or_conflict(self) -> bytes:
        """Return the record's bytes now; raise `TransactionConflict` if it was deleted."""
        if self.value is None:
            raise TransactionConflict(
                "a record was deleted while it was read",
                hint="read it again, or inside db.snapshot()",
            )
        return self.value


class Attachments:
    """The attachments of one record, or of many that have none."""

    __slots__ = ("_load", "_make_id", "archive", "archived", "blobs", "restored", "unneeded")

    def __init__(
        self,
        load: Load,
        make_id: Callable[[], bytes],
        archive: Archive = NO_ARCHIVE,
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
        self.unneeded: set[int] = set()
        """Cells whose values are what would be made of the record anyway: what is archived of them
        goes."""

    @property
    def is_unused(self) -> bool:
        """Whether nothing was added to them."""
        return not (self.blobs or self.archived or self.restored or self.unneeded)

    def through(self, wrap: Callable[[Load], Load]) -> Attachments:
        """The same, with stored blobs loaded by what is made of how they were loaded."""
        made = Attachments(wrap(self._load), self._make_id, self.archive)
        made.blobs = self.blobs
        return made

    def add(self, raw: bytes) -> bytes:
        """Take the bytes of a new blob; returns its id."""
        made = self._make_id()
        self.blobs[made] = raw
        return made

    def take_blobs(self) -> dict[bytes, bytes]:
        """Return the new blobs so far, for the caller to store; they are dropped here."""
        taken, self.blobs = self.blobs, {}
        return taken

    def load(self, blob: Blob) -> bytes:
        """The bytes of a blob, new or stored; raises `BlobMissing`."""
        raw = self.blobs.get(blob.id)
        return self._load(blob) if raw is None else raw

    def load_value(self, blob: Blob) -> object:
        """The value of a blob; raises `BlobMissing`, `CorruptRecord`."""
        return blob.value_of(self.load(blob))


MakeAttachments = Callable[[bytes, bytes], Attachments]
"""(key, record) → the attachments of a record that is read."""
