"""Imports, exports and mirrors that an application begins: each is a job, as those of commands are.

The application is told in its log what a job waits for. Work in a transaction, and in a database
that was opened read-only, is none: nobody could see it, or it could not be noted.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import count
from os import getpid
from types import TracebackType
from typing import Any, Final

from zapdb.catalog.row_kinds import JobKind
from zapdb.jobs.exclusive import (
    ExclusiveJob,
    ExclusiveWork,
    JobReporter,
    SilentReporter,
    working_on,
)
from zapdb.tables.session import Session

logger = logging.getLogger("zapdb.jobs")

OnWait = Callable[[str], object]
_NUMBERS: Final = count(1)
NUMBER_SIZE_BYTES: Final = 8
"""What a value counts for that is no text, where bytes are counted."""


def _log_wait(reason: str) -> None:
    """Tell the application's log why a job waits."""
    logger.info("a job waits: %s", reason)


def is_noted(session: Session) -> bool:
    """Whether work that begins now is a job."""
    storage = session.storage
    return not storage.read_only and storage.connection().mode is None


@contextmanager
def noted_as_job(
    session: Session,
    kind: JobKind,
    subject: str,
    table: tuple[int, str] = (0, ""),
    on_wait: OnWait | None = None,
) -> Iterator[JobReporter]:
    """Work on a job in the block, which notes each batch.

    A job that was cancelled begins again. Raises `LeaseHeld` while a process works on the same one.
    """
    if not is_noted(session):
        yield SilentReporter()
        return
    about = ExclusiveWork(kind, session.catalog.tenant, subject, *table)
    with working_on(session.storage, about, on_wait or _log_wait) as job:
        yield job


def measure_value(value: Any) -> int:
    """About how many bytes a value has, where they are counted."""
    return len(value) if isinstance(value, str | bytes | list | dict) else NUMBER_SIZE_BYTES


class FrameJob:
    """The job of an import of what is in memory, which nobody can go on with.

    It begins with the second batch: what is done at once needs nobody's hand.
    """

    is_job = True

    def __init__(self, session: Session, name: str, table: tuple[int, str]) -> None:
        self._session = session
        self._about = partial(
            ExclusiveWork,
            "import",
            session.catalog.tenant,
            f"{name} (number {next(_NUMBERS)} of process {getpid()})",
            *table,
            is_resumable=False,
        )
        self._stack = ExitStack()
        self._job: ExclusiveJob | None = None
        self._read = 0

    def __enter__(self) -> FrameJob:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stack.__exit__(kind, error, traceback)

    @property
    def counts_bytes(self) -> bool:
        return self._job is not None and self._job.counts_bytes

    @property
    def batch_records_max(self) -> int | None:
        return None if self._job is None else self._job.batch_records_max

    def wait_for(self, reason: str) -> None:
        """It waits for nothing but an operator."""

    def expect(self, left: int | None) -> None:
        if self._job is not None:
            self._job.expect(left)

    def note(self, read: int, written: int = 0, size_bytes: int = 0) -> None:
        is_first, before, self._read = not self._read, self._read, self._read + read
        if is_first or not is_noted(self._session):
            return
        if self._job is None:
            work = working_on(self._session.storage, self._about(), _log_wait)
            self._job = self._stack.enter_context(work)
            read, written = read + before, written + before
        self._job.note(read, written, size_bytes)
