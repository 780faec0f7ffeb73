"""What the accelerator keeps after it has written, read and refused the same again and again.

By what is allocated and by counts of references: by those of all objects on a debug build of Python
(`tests/native/debug_build.py`). `python -m tests.native.leaks` has exit status 1 if something
grows, in a process without others that allocate.
"""

from __future__ import annotations

import collections
import datetime
import gc
import sys
import tracemalloc
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from tests.blobs import NO_BLOBS, MemoryBlobs
from tests.fuzz.targets import WIDE
from tests.native.codecs import Builds, Pair, builds_of, pair_of
from tests.native.samples import Samples
from zapdb.errors import CorruptRecord
from zapdb.records.native import iterate_of
from zapdb.schema import IndexComponent

ROUNDS = 30
GROWTH_SIZE_BYTES_MAX = 12_288
"""What Python itself keeps. One object lost for one record of 40 would be 30 times 48 bytes, and
most paths are taken by many."""

KEY = [f.name for f in WIDE.key_fields]
Work = list[tuple[Any, list[bytes]]]


def draw_work(pair: Pair, samples: Samples) -> Work:
    """Records, and bytes of each that are damaged, but for the first ones."""
    drawn: Work = []
    while len(drawn) < 40:
        record = samples.record(WIDE)
        try:
            data = pair.python.encode(b"\x81", record, MemoryBlobs().attachments())
        except Exception:
            drawn.append((record, []))
            continue
        drawn.append((record, [data, *(samples.damage(data) for _ in range(8))]))
    return drawn


def work(pair: Pair, index: Builds, drawn: Work) -> None:
    """Write, read, refuse."""
    iterate = iterate_of(pair.plan.decode)
    assert iterate is not None
    for record, several in drawn:
        with suppress(Exception):
            pair.plan.key_of(*(record[name] for name in KEY))
        with suppress(Exception):
            pair.plan.encode(b"\x81", record, MemoryBlobs().attachments())
        for data in several:
            with suppress(CorruptRecord):
                index.plan(pair.plan.decode(b"\x81", data, 1, NO_BLOBS))
            with suppress(CorruptRecord):
                pair.plan.skip(data, 1)
            rows = [(b"", data, data)] * 2
            collections.deque(iterate(rows, b"\x81", NO_BLOBS, max), 0)
            list(iterate(rows, b"\x81", NO_BLOBS, max))


def main() -> int:
    pair = pair_of(WIDE)
    drawn = draw_work(pair, Samples(7))
    indexed = [f.number for f in WIDE.fields if f.type.indexable]
    index = builds_of(WIDE, tuple(IndexComponent(n, descending=n % 2 == 0) for n in indexed))
    plan = getattr(pair.plan.decode, "__self__", None)
    held = (None, True, pair.python.record, plan, datetime.UTC)
    if hasattr(sys, "gettotalrefcount"):
        return _count_all(lambda: work(pair, index, drawn))
    tracemalloc.start()
    for _ in range(ROUNDS):
        work(pair, index, drawn)
    gc.collect()
    before, _ = tracemalloc.get_traced_memory()
    counts = list(map(sys.getrefcount, held))
    for _ in range(ROUNDS):
        work(pair, index, drawn)
    gc.collect()
    after, _ = tracemalloc.get_traced_memory()
    grown = [now - then for now, then in zip(map(sys.getrefcount, held), counts, strict=True)]
    print(f"{after - before} bytes, references: {grown}")
    return after - before > GROWTH_SIZE_BYTES_MAX or max(map(abs, grown)) >= ROUNDS


def _count_all(action: Callable[[], None]) -> int:
    """On a debug build: whether `action`, done again and again, leaves references behind."""
    counts = [0] * 4  # the first ones fill caches
    for at in range(len(counts)):
        for _ in range(ROUNDS):
            action()
        gc.collect()
        counts[at] = sys.gettotalrefcount()  # type: ignore[attr-defined]  # of debug builds
    print("references:", counts)
    return abs(counts[-1] - counts[-2]) >= ROUNDS


if __name__ == "__main__":
    sys.exit(main())
