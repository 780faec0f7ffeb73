"""The checksum of a chunk, beside a second implementation that goes bit by bit."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest

from zapdb.storage.blobs import checksum

PAGE = Path(__file__).parents[3] / "docs/format/record.md"


def crc32(data: bytes) -> int:
    """As docs/format/record.md says it: polynomial 04C11DB7, reflected."""
    register = 0xFFFFFFFF
    for byte in data:
        register ^= byte
        for _ in range(8):
            register = register >> 1 ^ (0xEDB88320 if register & 1 else 0)
    return register ^ 0xFFFFFFFF


def test_it_is_the_one_of_the_page() -> None:
    text = " ".join(PAGE.read_text().split())
    found = re.search(r"the byte 61 as chunk 0 of the blob `([0-9a-f]{32})` is ([0-9A-F]{8})", text)
    assert found is not None
    made, value = bytes.fromhex(found[1]), int(found[2], 16)
    assert crc32(made + bytes(8) + b"a") == checksum(made, 0, b"a") == value


@pytest.mark.parametrize("size", [0, 1, 7, 4_097])
def test_it_is_what_a_second_implementation_makes(size: int) -> None:
    chance = random.Random(size)
    made, data = chance.randbytes(16), chance.randbytes(size)
    for number in (0, 1, 255, 2**33):
        assert checksum(made, number, data) == crc32(made + number.to_bytes(8, "big") + data)


def test_each_bit_of_blob_number_and_bytes_counts() -> None:
    chance = random.Random(3)
    made, number, data = chance.randbytes(16), 5, chance.randbytes(200)
    seen = {checksum(made, number, data)}
    for bit in range(128):
        flipped = (int.from_bytes(made, "big") ^ 1 << bit).to_bytes(16, "big")
        seen.add(checksum(flipped, number, data))
    for bit in range(63):
        seen.add(checksum(made, number ^ 1 << bit, data))
    for bit in range(8 * len(data)):
        changed = bytearray(data)
        changed[bit // 8] ^= 1 << bit % 8
        seen.add(checksum(made, number, bytes(changed)))
    assert len(seen) == 1 + 128 + 63 + 8 * len(data)
