"""Runs a mirror: to the end of the change log once, or until it is stopped."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final

from zapdb.errors import (
    CommitUnknown,
    ConnectionsBusy,
    GateTimeout,
    StorageError,
    TransactionConflict,
    ZapdbError,
)
from zapdb.log.change_log import Bookmark
from zapdb.printing import one_line
from zapdb.transfer.mirror.mirror import Mirror
from zapdb.transfer.mirror.target import (
    TargetBlocked,
    TargetBusy,
    TargetFailed,
    TargetRefused,
    explain,
)

POLL_SECONDS: Final = 0.2
"""How often a mirror asks for changes, which takes about a millisecond. A server that tells it
(NOTIFY) would have the COMMITs of all writers wait for each other."""
BUSY_POLL_SECONDS: Final = 1.0
"""How often it tries to reach a target that is not there, or is read by others."""
LOOK_SECONDS: Final = 1.0
"""How often it looks whether others have written to the target."""
COMPARE_SECONDS: Final = 0.4
"""How long it waits after each page of rows that it compares because it is time to."""
PASSING: Final = (
    TargetBusy,
    StorageError,
    TransactionConflict,  # a connection that was lost inside a transaction, too
    CommitUnknown,
    ConnectionsBusy,
    GateTimeout,
)
"""What ends by itself. Whatever was done, the bookmark in the target says where to go on."""


def begin_mirror(mirror: Mirror, *, once: bool) -> bool:
    """Check the target, then switch the change log on; return whether it was off.

    With `once`, a target that can't be reached is refused first, so that the log, which costs each
    writer, is not switched on in vain. Without it, the mirror waits for the target.
    """
    mirror.require_place()
    if once:
        try:
            with mirror.target.transaction():
                pass
        except (TargetBusy, TargetFailed) as error:
            raise _unreachable(mirror, error) from error
    return mirror.switch_on()


def run_mirror(
    mirror: Mirror,
    *,
    once: bool = False,
    stop: threading.Event | None = None,
    report: Callable[[Mirror], object] = lambda _: None,
    wait: Callable[[str], object] = lambda _: None,
    keep_pace: Callable[[], object] = lambda: None,
) -> None:
    """Keep the target like the database until `stop` is set; `once` ends with the last change.

    `report` is called after each piece of work, `wait` with the reason why none can be done now:
    the target is not there, or the database is not, or a connection was lost; with `once`, that is
    raised as `StorageError` or `ConcurrencyError`.
    `keep_pace` is called before the mirror looks for work: it may take its time.
    """
    ended = stop or threading.Event()
    runner = _Runner(mirror, ended, report)
    while not ended.is_set():
        keep_pace()
        try:
            runner.go_on(once=once)
        except TargetRefused as error:
            raise _unreachable(mirror, error) from error
        except (TargetFailed, TargetBlocked) as error:
            raise StorageError(
                "the mirror's target reported an error",
                target=mirror.target.shown,
                error=str(error),
                hint="the mirror goes on where it was when the cause is gone",
            ) from error
        except PASSING as error:
            if once:
                raise _unreachable(mirror, error) from error
            wait(str(error))
            mirror.pace.wait_for(str(error))
            ended.wait(BUSY_POLL_SECONDS)
            continue
        mirror.pace.wait_for(one_line(mirror.describe_problems()))
        if once:
            return
        ended.wait(POLL_SECONDS)


class _Runner:
    """What is done each time that the mirror looks for work."""

    def __init__(
        self, mirror: Mirror, ended: threading.Event, report: Callable[[Mirror], object]
    ) -> None:
        self._mirror = mirror
        self._ended = ended
        self._report = report
        self._seen: Bookmark | None = None
        self._looked_at = self._compared_at = 0.0

    def go_on(self, *, once: bool) -> None:
        newest = self._mirror.db.change_log.end()
        if newest != self._seen or self._mirror.has_other_tables() or self._look():
            while not self._ended.is_set() and self._mirror.step():
                self._report(self._mirror)
            self._seen = newest
        while not self._ended.is_set() and (once or self._is_time()) and self._compare():
            self._report(self._mirror)

    def _look(self) -> bool:
        now = time.monotonic()
        if now - self._looked_at < LOOK_SECONDS:
            return False
        self._looked_at = now
        return self._mirror.is_touched()

    def _is_time(self) -> bool:
        return time.monotonic() - self._compared_at >= COMPARE_SECONDS

    def _compare(self) -> bool:
        is_any = self._mirror.compare_due()
        self._compared_at = time.monotonic()
        return is_any


def _unreachable(mirror: Mirror, error: Exception) -> ZapdbError:
    if isinstance(error, ZapdbError):
        return error
    return explain(mirror.target, error, "the mirror's target can't be reached")
