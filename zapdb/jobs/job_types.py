"""What differs between the kinds of jobs before their work is loaded.

Each kind says here how urgent it is, which command runs it, who needs it, and what it is called;
`Work` has what it does. What depends on a kind asks its type, and compares no kinds: so one more
says everything in these two places.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal

from zapdb.activation.tenant_catalog import TenantCatalog
from zapdb.catalog.row_kinds import Job, JobKind


@dataclass(frozen=True, slots=True)
class JobName:
    """A job's name for people: while it runs, and after it is done."""

    doing: str
    done: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JobType:
    """`command` runs such jobs. If they are `needed` by the active schema, they are planned for it,
    and superseded when it does not need them any more; others are planned when they are asked for.

    An exclusive job is the work of one process; `goes_on` says what the command does with a job
    that was cancelled, when it is run again.
    """

    priority: int
    command: str
    name: Callable[[TenantCatalog, Job], JobName]
    """What a job is called; the catalog has what its target is called."""
    needed: bool
    is_exclusive: bool = False
    goes_on: str = "goes on where it stopped"
    counts: Literal["record", "row"] = "record"
    """What its progress counts."""
    rewrites_records: bool = False
    """Records of an earlier revision are its work: how many are left is counted."""
    skips_current: bool = False
    """It has no ranges where all records are known to have its target's revision."""
    takes_over: bool = False
    """It goes on with what an operator has said of the one that it supersedes, of the same
    table."""

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


def _name_index(catalog: TenantCatalog, job: Job) -> JobName:
    indexes = (index for table in catalog.all_tables for index in table.indexes)
    found = next((index for index in indexes if index.build == job.target), None)
    name = f"index {'(dropped)' if found is None else found.index.name} of {job.table_name}"
    if found is not None and found.state == "rewriting":
        return JobName(f"rewriting {name}", f"rewrote {name}")
    return JobName(f"building {name}", f"built {name}")


def _name_conversion(catalog: TenantCatalog, job: Job) -> JobName:
    target = f"{job.table_name} to revision {job.target}"
    return JobName(f"converting {target}", f"converted {target}")


def _name_import(catalog: TenantCatalog, job: Job) -> JobName:
    what = f"{job.subject} into {job.table_name}" if job.table_name else job.subject
    return JobName(f"importing {what}", f"imported {what}")


def _named_by_table(doing: str, done: str) -> Callable[[TenantCatalog, Job], JobName]:
    return lambda catalog, job: JobName(f"{doing} {job.table_name}", f"{done} {job.table_name}")


def _named_by_subject(doing: str, done: str) -> Callable[[TenantCatalog, Job], JobName]:
    return lambda catalog, job: JobName(f"{doing} {job.subject}", f"{done} {job.subject}")


JOB_TYPES: Final[dict[JobKind, JobType]] = {
    # Queries wait for an index, stale records only cost time.
    "index": JobType(priority=600, command=CONVERT, name=_name_index, needed=True),
    "validate": JobType(
        priority=400,
        command=CONVERT,
        name=_named_by_table("validating", "validated"),
        needed=True,
        takes_over=True,
    ),
    "convert": JobType(
        priority=200,
        command=CONVERT,
        name=_name_conversion,
        needed=True,
        rewrites_records=True,
        skips_current=True,
        takes_over=True,
    ),
    "verify": JobType(
        priority=100,
        command="zapdb verify",
        name=_named_by_table("verifying", "verified"),
        needed=False,
        goes_on=BEGINS_ANEW,
    ),
    # They are begun by hand, and wait for nothing, unless an operator gives them a lower priority.
    "repair": JobType(
        priority=1_000,
        command="zapdb verify --repair",
        name=_named_by_subject("repairing", "repaired"),
        needed=False,
        is_exclusive=True,
        goes_on="looks at all entries again, and leaves alone what is right",
    ),
    "import": JobType(
        priority=1_000,
        command="zapdb import",
        name=_name_import,
        needed=False,
        is_exclusive=True,
        counts="row",
    ),
    "export": JobType(
        priority=1_000,
        command="zapdb export",
        name=_named_by_subject("exporting to", "exported to"),
        needed=False,
        is_exclusive=True,
        goes_on=BEGINS_ANEW,
    ),
    "mirror": JobType(
        priority=1_000,
        command="zapdb mirror run",
        name=_named_by_subject("mirroring to", "mirrored to"),
        needed=False,
        is_exclusive=True,
    ),
}


def type_of(job: Job) -> JobType:
    return JOB_TYPES[job.kind]


def name_job(catalog: TenantCatalog, job: Job) -> JobName:
    return type_of(job).name(catalog, job)


def can_go_on(job: Job) -> bool:
    """Whether another process can go on with a job whose process has ended."""
    return job.is_resumable and type_of(job).goes_on != BEGINS_ANEW
