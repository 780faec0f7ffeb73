"""A table that grows faster than it is converted: records are inserted at full speed meanwhile."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.support import GUARD_SECONDS, Workspace
from zapdb.errors import RecordExists, StorageError

BATCH_RECORDS = 20
PAUSE_SECONDS = 0.05
"""After an error of the database: it is being started again."""


class Growth:
    """What was inserted: `kept` is there, and of `unsure` each may be."""

    def __init__(self) -> None:
        self.kept = set[int]()
        self.unsure = set[int]()


@contextmanager
def growing(place: Workspace, first: int, most: int, seed: int, **values: Any) -> Iterator[Growth]:
    """Insert items with numbers of chance from `first` on beside the block, `most` at most. They
    have their number as their size and in their title."""
    growth, ended, failed = Growth(), threading.Event(), list[BaseException]()

    def grow() -> None:
        draw = random.Random(seed)
        try:
            with place.follow() as db:
                items = db.table("items")
                while not ended.is_set() and len(growth.kept) < most:
                    numbers = {draw.randrange(first, 1_000_000) for _ in range(BATCH_RECORDS)}
                    numbers -= growth.kept | growth.unsure
                    try:
                        items.insert_many(
                            {"id": n, "title": f"title {n}", "size": n, **values} for n in numbers
                        )
                        growth.kept |= numbers
                    except RecordExists:  # of a round before
                        continue
                    except StorageError:
                        growth.unsure |= numbers
                        ended.wait(PAUSE_SECONDS)
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=grow)
    thread.start()
    try:
        yield growth
    finally:
        ended.set()
        thread.join(GUARD_SECONDS)
    assert not thread.is_alive()
    if failed:
        raise failed[0]
