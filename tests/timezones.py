"""Releases of the tz database, which `tools/setup.sh` installs for tests, and a writer of TZif."""

from __future__ import annotations

import struct
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

HEADER = struct.Struct(">4sc15x6l")


def release(version: str) -> Path:
    """The directory of TZif files of a release of the tzdata package."""
    directory = Path(sys.prefix) / "tzdata" / version / "tzdata" / "zoneinfo"
    if not directory.is_dir():
        pytest.fail(f"tzdata {version} is not installed for tests: run make setup")
    return directory


def write_tzif(
    transitions: Sequence[tuple[int, int]],
    types: Sequence[tuple[int, bool, str]],
    footer: str | None,
    *,
    version: bytes = b"2",
    leap_count: int = 0,
) -> bytes:
    """A file of transitions (instant, index of a type) and types (offset, is saving, name).

    Before version 2 there is no footer, and instants have four bytes.
    """
    names = "".join(f"{name}\0" for _, _, name in types).encode()
    starts = [names.index(f"{name}\0".encode()) for _, _, name in types]
    counts = (0, 0, leap_count, len(transitions), len(types), len(names))
    wide = version >= b"2"
    block = b"".join(
        [
            *(struct.pack(">q" if wide else ">l", instant) for instant, _ in transitions),
            bytes(index for _, index in transitions),
            *(
                struct.pack(">l?B", offset, saving, start)
                for (offset, saving, _), start in zip(types, starts, strict=True)
            ),
            names,
            bytes(leap_count * (12 if wide else 8)),
        ]
    )
    written = HEADER.pack(b"TZif", version, *counts) + block
    if not wide:
        return written
    empty = HEADER.pack(b"TZif", version, 0, 0, 0, 0, 0, 0)
    return empty + written + f"\n{footer}\n".encode()
