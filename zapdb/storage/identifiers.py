"""Generated identifiers: UUIDs of version 7 (RFC 9562), which sort by the time they were made."""

from __future__ import annotations

import os
import time


def make_uuid7() -> bytes:
    """48 bits of milliseconds, 74 random bits, version and variant between them: 16 bytes."""
    milliseconds = time.time_ns() // 1_000_000
    number = (milliseconds << 80) | int.from_bytes(os.urandom(10), "big")
    number = number & ~(0xF << 76) | (0x7 << 76)
    number = number & ~(0x3 << 62) | (0x2 << 62)
    return number.to_bytes(16, "big")


def first_id_at_ms(milliseconds: int) -> bytes:
    """No identifier that was made then or later is lower, and none that was made before is not."""
    return milliseconds.to_bytes(6, "big") + bytes(10)


def made_at_ms(made: bytes) -> int:
    """When an identifier was made, in milliseconds since 1970-01-01 UTC."""
    return int.from_bytes(made[:6], "big")
