"""The kinds of jobs: how urgent each is, which command goes on with it, and who needs it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from zapdb.catalog.kinds import Job, JobKind


@dataclass(frozen=True, slots=True)
class KindOfJob:
    """`command` runs such jobs. If they are `needed` by the active schema, they are planned for it,
    and superseded when it does not need them any more; others are planned when they are asked for.

    An undivided job is the work of one process; `goes_on` says what the command does with a job
    that was cancelled, when it is run again.
    """

    priority: int
    command: str
    needed: bool = True
    is_undivided: bool = False
    goes_on: str = "goes on where it stopped"

    @property
    def again(self) -> str:
        """What becomes of a cancelled job when its command is run again."""
        if self.needed:
            return f"`{self.command}` plans it again, if it is still needed"
        return f"`{self.command}`, run again, {self.goes_on}"

    @property
    def retry_command(self) -> str:
        """The command that tries records in quarantine again."""
        return f"{self.command} --retry-quarantined" if self.command == CONVERT else self.command


BEGINS_ANEW: Final = "begins anew"
CONVERT: Final = "zapdb convert run"

KINDS_OF_JOBS: Final[dict[JobKind, KindOfJob]] = {
    # Writes wait for a rollback, queries wait for an index, stale records only cost time.
    "roll_back": KindOfJob(900, "zapdb migrate rollback"),
    "index": KindOfJob(600, CONVERT),
    "validate": KindOfJob(400, CONVERT),
    "convert": KindOfJob(200, CONVERT),
    "verify": KindOfJob(100, "zapdb verify", needed=False, goes_on=BEGINS_ANEW),
    # They are begun by hand, and wait for nothing, unless an operator gives them a lower priority.
    "repair": KindOfJob(
        1_000,
        "zapdb verify --repair",
        needed=False,
        is_undivided=True,
        goes_on="looks at all entries again, and leaves alone what is right",
    ),
    "import": KindOfJob(1_000, "zapdb import", needed=False, is_undivided=True),
    "export": KindOfJob(
        1_000, "zapdb export", needed=False, is_undivided=True, goes_on=BEGINS_ANEW
    ),
    "mirror": KindOfJob(1_000, "zapdb mirror run", needed=False, is_undivided=True),
}


def kind_of(job: Job) -> KindOfJob:
    return KINDS_OF_JOBS[job.kind]


def can_go_on(job: Job) -> bool:
    """Whether another process can go on with a job whose process has ended."""
    return job.is_resumable and kind_of(job).goes_on != BEGINS_ANEW
