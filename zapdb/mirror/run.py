"""Runs a mirror: to the end of the change log once, or until it is stopped."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

from zapdb.errors import StorageError
from zapdb.mirror.mirror import Mirror
from zapdb.mirror.target import TargetBusy, TargetFailed
from zapdb.storage.change_log import Bookmark

POLL_SECONDS: Final = 0.2
"""How often a mirror asks for changes."""
BUSY_POLL_SECONDS: Final = 1.0
"""How often it tries to reach a target that is not there, or is read by others."""


def run_mirror(
    mirror: Mirror,
    *,
    once: bool = False,
    stop: threading.Event | None = None,
    report: Callable[[Mirror], object] = lambda _: None,
    wait: Callable[[str], object] = lambda _: None,
) -> None:
    """Keep the target like the database until `stop` is set; `once` ends with the last change.

    `report` is called after each piece of work, `wait` with the reason why none can be done now:
    the target is not there, or the database is not; with `once`, that is raised as `StorageError`.
    """
    ended = stop or threading.Event()
    seen: Bookmark | None = None
    while not ended.is_set():
        try:
            newest = mirror.db.change_log.end()
            if newest != seen or mirror.has_other_tables():
                while not ended.is_set() and mirror.step():
                    report(mirror)
                seen = newest
        except TargetFailed as error:
            raise StorageError(
                "the mirror's target reported an error",
                target=mirror.target.shown,
                error=str(error),
            ) from error
        except (TargetBusy, StorageError) as error:
            if once:
                raise _unreachable(mirror, error) from error
            wait(str(error))
            ended.wait(BUSY_POLL_SECONDS)
            continue
        if once:
            return
        ended.wait(POLL_SECONDS)


def _unreachable(mirror: Mirror, error: Exception) -> StorageError:
    if isinstance(error, StorageError):
        return error
    return StorageError(
        "the mirror's target can't be reached",
        target=mirror.target.shown,
        error=str(error),
        hint="another process may have the file open; a reader of DuckDB keeps writers out",
    )
