"""Records that can't be read: which ones, and what the change log keeps of one that was discarded.

    unreadable = 00 | prefix of the table's revision then | bytes as stored

No prefix begins with 00. So nothing takes these bytes for a record, whatever schemas come later: a
reader of the past raises `CorruptRecord`, as a reader did then. Errors about stored bytes name the
record's table and its key.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from zapdb.errors import BlobMissing, CorruptRecord, UnknownZone
from zapdb.printing import one_line
from zapdb.records.layout import decode_prefix, encode_prefix

DecodeKey = Callable[[bytes], tuple[Any, ...]]
KEY_CHARS_MAX: Final = 80


def show_stored_key(decode_key: DecodeKey, key: bytes) -> str:
    """A record's key as people give it, by the function that decodes it; in hex if it can't be
    decoded."""
    try:
        shown = ", ".join(map(repr, decode_key(key)))
    except (CorruptRecord, UnknownZone):
        shown = key.hex()
    return one_line(shown, KEY_CHARS_MAX)


def name_record(error: CorruptRecord, table: str, decode_key: DecodeKey, key: bytes) -> None:
    """Add to an error the record that it is about."""
    error.context.setdefault("table", table)
    error.context.setdefault("key", show_stored_key(decode_key, key))


UNREADABLE: Final = (CorruptRecord, BlobMissing)
"""The errors of a record that can't be read whatever process reads it."""

CANNOT_BE_READ: Final = (*UNREADABLE, UnknownZone)
"""The errors of a record that this process can't read."""

UNREADABLE_MARK: Final = b"\x00"
"""What nothing else in the change log begins with."""


class UnreadableRecord(NamedTuple):
    """The revision that the table had when the record was discarded, and the record's bytes."""

    revision: int
    stored: bytes


def was_unreadable(value: bytes) -> CorruptRecord:
    """The error of reading bytes that begin with the mark."""
    what = "no record, but what the change log keeps of one that could not be read"
    error = CorruptRecord.at(what, value, 0)
    error.hint = "`zapdb history row` shows what is known of a past record; run `zapdb verify` for "
    error.hint += "present ones"
    return error


def encode_unreadable(revision: int, stored: bytes) -> bytes:
    return UNREADABLE_MARK + encode_prefix(revision) + stored


def decode_unreadable(value: bytes | None) -> UnreadableRecord | None:
    """Return what a logged record is, if it could not be read; else None."""
    if type(value) is not bytes or not value.startswith(UNREADABLE_MARK):
        return None
    revision, start = decode_prefix(value, len(UNREADABLE_MARK))
    return UnreadableRecord(revision, value[start:])
