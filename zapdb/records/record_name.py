"""Which record it is that can't be read: errors about stored bytes name its table and its key."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from zapdb.errors import CorruptRecord, UnknownZone
from zapdb.printing import one_line

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
