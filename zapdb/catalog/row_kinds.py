"""The kinds of the catalog's rows: one class each, which defines the members of a row.

A row is a frozen value. Its JSON Schema is derived from its class, and every row is checked when it
is written and when it is read (`rows`). The parts of the key are in the value, too, so a
value that was stored under another key is detected.

If the members of a class change, its `FORMAT` is raised, and `FORMAT_CHANGES` needs an entry for
each older format, with the level at which every process reads the newer one (rule 10). So far, all
formats are the first.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Final, Literal

from msgspec import Meta, Struct

from zapdb.printing import one_line, show_moment

KindName = Literal[
    "database",
    "level",
    "chain",
    "tenant",
    "tenant-name",
    "node",
    "index",
    "constraint",
    "entry-table",
    "retired-entries",
    "retired-records",
    "job",
    "finding",
    "setting",
]

Number = Annotated[int, Meta(ge=0)]
Positive = Annotated[int, Meta(ge=1)]

NO_IDS: Final = frozenset[int]()

IndexState = Literal["building", "readable", "rewriting", "disabled"]
ConstraintKind = Literal["check", "reference"]
ConstraintState = Literal["unvalidated", "validated"]
JobKind = Literal[
    "convert",
    "index",
    "validate",
    "verify",
    "repair",
    "import",
    "export",
    "mirror",
]
JobState = Literal["planned", "paused", "cancelled", "done", "superseded", "blocked"]
TimeOfDay = Annotated[str, Meta(pattern="^([01][0-9]|2[0-3]):[0-5][0-9]$")]


class CatalogRow(Struct, frozen=True, forbid_unknown_fields=True):
    """A row of the catalog; `KEY` names the members that form its key."""

    KIND: ClassVar[KindName]
    FORMAT: ClassVar[int] = 1
    KEY: ClassVar[tuple[str, ...]] = ()

    @property
    def key(self) -> str:
        return "/".join([str(getattr(self, name)) for name in self.KEY])

    @property
    def of_tenant(self) -> int | None:
        """The number of the tenant that the row is about; None if it is about no single one."""
        number = getattr(self, "tenant", None)
        return number if isinstance(number, int) else None

    @classmethod
    def tenant_in(cls, key: str) -> int | None:
        """The same, as far as the row's key tells it: of a row that was deleted."""
        if "tenant" not in cls.KEY:
            return None
        return int(key.split("/")[cls.KEY.index("tenant")])


def row_key(*parts: object) -> str:
    """Return the key of a row, from its parts in the order of `KEY`."""
    return "/".join(map(str, parts))


class DatabaseRow(CatalogRow, frozen=True):
    """The database's identity, its creator, and the creator's release."""

    KIND = "database"

    id: str
    created_at: Number
    created_by: str
    release: str


class LevelRow(CatalogRow, frozen=True):
    """The level that every process must support (rule 10), and who raised it."""

    KIND = "level"

    level: Positive
    raised_at: Number
    raised_by: str


class ChainState(CatalogRow, frozen=True):
    """The stored end of the chain.

    The row changes whenever a migration is stored or rolled back. `newest_id` is the id of the
    newest stored migration. Ids are identities (`storage.identities`), so an equal id means equal
    migrations, also where a backup was restored. Where one was ever rolled back (`has_branches`),
    records may have revisions that no migration of the chain has led to. `kept` are those that were
    rolled back and are kept, by number and id: processes are served the schemas that they lead to,
    and the values that they made are archived. As long as such values may still be archived,
    `reapplied` are those of them that are on the chain again, and `forgotten` those that are kept
    no more.
    """

    KIND = "chain"

    stored_end: Number
    newest_id: Number
    digest: str
    has_branches: bool = False
    kept: tuple[tuple[Positive, Positive], ...] = ()
    reapplied: tuple[tuple[Positive, Positive], ...] = ()
    forgotten: tuple[tuple[Positive, Positive], ...] = ()

    @property
    def value_keeping_ids(self) -> frozenset[int]:
        """The ids of the migrations whose values are archived on the way back over them."""
        if not (self.kept or self.reapplied):
            return NO_IDS
        return frozenset(id for _, id in (*self.kept, *self.reapplied))


class Tenant(CatalogRow, frozen=True):
    """A tenant's name, and the number and the id of the newest migration active for it, 0 if there
    is none.

    A tenant with `removing` is being removed, and no process works with it.
    """

    KIND = "tenant"
    KEY = ("number",)

    @classmethod
    def tenant_in(cls, key: str) -> int:
        return int(key)

    number: Positive
    name: str
    position: Number
    migration: Number
    created_at: Number
    created_by: str
    removing: bool

    @property
    def of_tenant(self) -> int:
        return self.number

    def __repr__(self) -> str:
        state = ", being removed" if self.removing else ""
        return (
            f"<tenant {self.name!r}, number {self.number}, position {self.position}{state}, "
            f"created {show_moment(self.created_at)} by {one_line(self.created_by)}>"
        )


class TenantNameRow(CatalogRow, frozen=True):
    """The number of the tenant with this name."""

    KIND = "tenant-name"
    KEY = ("name",)

    name: str
    number: Positive

    @property
    def of_tenant(self) -> int:
        return self.number


class NodeRow(CatalogRow, frozen=True):
    """A process that has the database open: its release, its migration files and its datasets.

    `level` is the highest cluster level that its release supports, `files_end` the number of its
    newest migration file, and `served_position` the position whose schema it is served, which is
    that of the migration with the id `served_migration`; 0 if it has no files.
    `pending_digests` has, by number, the digests of the files that the database had not stored when
    the process registered. `datasets` has the version and fingerprint of each dataset by name.
    """

    KIND = "node"
    KEY = ("id",)

    id: str
    release: str
    level: Number
    files_end: Number
    served_position: Number
    pending_digests: dict[Positive, str]
    datasets: dict[str, tuple[str, str]]
    served_migration: Number = 0


class DatasetVersion(Struct, frozen=True, forbid_unknown_fields=True):
    """Collation or time zone data; the fingerprint is compared, the version is for people."""

    version: str
    fingerprint: str


class IndexRow(CatalogRow, frozen=True):
    """The state of a tenant's index, its entry table, and the datasets that it was built with.

    While the index is rewriting, some entries may still be made with earlier data, whose
    fingerprints are in `former`."""

    KIND = "index"
    KEY = ("tenant", "index")

    tenant: Positive
    index: Positive
    table: Positive
    state: IndexState
    entry_table: Positive
    build: Positive
    key_format: Positive
    built_with: dict[str, DatasetVersion]
    rewritten_from: dict[str, DatasetVersion]
    former: dict[str, tuple[str, ...]]


class ConstraintRow(CatalogRow, frozen=True):
    """Whether a check or reference was validated for all records of a tenant's table."""

    KIND = "constraint"
    KEY = ("tenant", "kind", "number")

    tenant: Positive
    kind: ConstraintKind
    number: Positive
    table: Positive
    state: ConstraintState


class EntryTableRow(CatalogRow, frozen=True):
    """A table that holds entries of an index, for one tenant or several."""

    KIND = "entry-table"
    KEY = ("index", "entry_table")

    index: Positive
    entry_table: Positive
    unique: bool


class RetiredEntries(CatalogRow, frozen=True):
    """Unused entries of a tenant's index, which the next sweep deletes."""

    KIND = "retired-entries"
    KEY = ("index", "entry_table", "tenant")

    index: Positive
    entry_table: Positive
    tenant: Positive


class RetiredRecords(CatalogRow, frozen=True):
    """Discarded records of a tenant's table, which the next sweep deletes."""

    KIND = "retired-records"
    KEY = ("table", "tenant")

    table: Positive
    tenant: Positive


class ConstraintFinding(Struct, frozen=True, forbid_unknown_fields=True):
    """How often, and by which records, `what` (an index, check or reference) is violated."""

    what: str
    count: Number
    examples: tuple[str, ...]


class DailyWindow(Struct, frozen=True, forbid_unknown_fields=True):
    """The time of each day from `begins` until `ends`, as the clocks of a zone show it; it goes
    over midnight if it ends before it begins."""

    begins: TimeOfDay
    ends: TimeOfDay
    zone: str

    def __str__(self) -> str:
        return f"{self.begins}-{self.ends} {self.zone}"


class JobThrottle(Struct, frozen=True, forbid_unknown_fields=True):
    """How fast all workers of a job together may read, and when; None where there is no bound.

    `max_latency_ms` is the ceiling of what a small query beside the job may take. What is set here
    overrides the settings `job_records_per_second` and `job_max_latency_ms`.
    """

    records_per_second: Positive | None = None
    bytes_per_second: Positive | None = None
    window: DailyWindow | None = None
    max_latency_ms: Positive | None = None


class Job(CatalogRow, frozen=True):
    """Work on one table's records, or on all of a tenant's (`table` is 0): what it works towards,
    and its state.

    `target` is the revision since which all have the layout that records get (convert), or the
    build of the index that is filled or rewritten (index), or the revision of the table whose
    constraints are validated (validate). `position` and `migration`, the id of the migration there,
    are a place on the tenant's chain, and `datasets` what the index keys depend on: executors
    compare both with their own. `findings` are what blocks it, if it is blocked. Of the planned
    jobs, those with a higher priority run first.
    `changed_at` and `changed_by` tell who last paused, resumed or cancelled the job, or changed its
    priority or throttle; `held_at` and `held_by`, who paused or cancelled it. `subject` is the
    source of an import, or the target of an export or a mirror, and `error` is what ended the last
    process that worked on it. With it goes what it works on if the job is not `is_resumable`:
    nobody else has a frame that is in its memory. `waits_for` is what keeps its process waiting,
    such as a target that can't be reached. The number of `records` is about right only if the job
    `is_estimated`: it was found by a sample.
    """

    KIND = "job"
    KEY = ("id",)

    id: str
    kind: JobKind
    tenant: Positive
    table: Number
    table_name: str
    target: Number
    position: Number
    migration: Number
    datasets: dict[str, str]
    state: JobState
    records: Number
    created_at: Number
    priority: Number
    findings: tuple[ConstraintFinding, ...] = ()
    throttle: JobThrottle = JobThrottle()
    changed_at: Number = 0
    changed_by: str = ""
    held_at: Number = 0
    held_by: str = ""
    subject: str = ""
    error: str = ""
    waits_for: str = ""
    is_resumable: bool = True
    is_estimated: bool = False

    def __repr__(self) -> str:
        return (
            f"<job {self.kind} of {self.table_name!r}, {self.state}: "
            f"{'about ' if self.is_estimated else ''}{self.records} records, "
            f"planned {show_moment(self.created_at)}>"
        )


class FindingsRow(CatalogRow, frozen=True):
    """What a range of a job found that is in the way."""

    KIND = "finding"
    KEY = ("job", "range")

    job: str
    range: Number
    findings: tuple[ConstraintFinding, ...]


class SettingRow(CatalogRow, frozen=True):
    """The value of a setting in a scope: a tenant, a table, and a field or `index-` with the number
    of the index; * stands for all of them."""

    KIND = "setting"
    KEY = ("scope", "name")

    scope: str
    name: str
    value: str

    @property
    def of_tenant(self) -> int | None:
        return self.tenant_in(self.key)

    @classmethod
    def tenant_in(cls, key: str) -> int | None:
        tenant, _, _ = key.partition("/")
        return int(tenant) if tenant.isdecimal() else None


KINDS: Final[dict[str, type[CatalogRow]]] = {
    kind.KIND: kind
    for kind in (
        DatabaseRow,
        LevelRow,
        ChainState,
        Tenant,
        TenantNameRow,
        NodeRow,
        IndexRow,
        ConstraintRow,
        EntryTableRow,
        RetiredEntries,
        RetiredRecords,
        Job,
        FindingsRow,
        SettingRow,
    )
}

ChangeFormat = Callable[[dict[str, Any]], dict[str, Any]]
"""Converts a value, as JSON, from one format to another."""


@dataclass(frozen=True, slots=True)
class FormatChange:
    """Converts values of a kind from one format to the next, and back while the cluster level is
    below `level`, because some process may not read the next format then."""

    level: int
    upgrade: ChangeFormat
    downgrade: ChangeFormat


FORMAT_CHANGES: Final[dict[tuple[str, int], FormatChange]] = {}
"""By kind and format, the change to the next format."""
