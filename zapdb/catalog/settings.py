"""Settings: stored in the database, never part of a digest (rule 14).

A setting's scope is the whole database, or a tenant, a table, a field or an index of it. The value
of the narrowest scope holds: index, field, table, tenant, database. If none is set, the profile's
value holds; if the profile has none, the setting's default. Scopes name tables, fields and indexes
by their numbers, so a rename keeps their settings.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Literal, cast

from zapdb.errors import (
    UnknownField,
    UnknownName,
    UsageError,
    suggest,
)
from zapdb.limits import (
    ACTIVATION_WAIT_SECONDS,
    CALL_LOG_RETENTION_SECONDS,
    JOB_LATENCY_MS_MAX,
    MIGRATIONS_MAX,
    SWEEP_AGE_SECONDS,
)
from zapdb.schema import Index, Schema, TableSchema
from zapdb.storage import TransactionMode

ScopeLevel = Literal["database", "tenant", "table", "field", "index"]
SCOPE_LEVELS: Final[tuple[ScopeLevel, ...]] = ("database", "tenant", "table", "field", "index")
Origin = ScopeLevel | Literal["profile", "default"]
DatasetPolicy = Literal["rebuild", "rewrite", "scan"]

PROFILE: Final = "profile"
CHANGE_LOG: Final = "change_log"
HISTORY_STORE: Final = "history_store"
NO_DIRECTORY: Final = "none"
HISTORY_FLUSH_CHANGES: Final = "history_store_flush_changes"
HISTORY_FLUSH_SECONDS: Final = "history_store_flush_seconds"
HISTORY_CHECKPOINT_PERCENT: Final = "history_checkpoint_percent"
HISTORY_GRACE_SECONDS: Final = "history_grace_seconds"
HISTORY_RETENTION: Final = "history_retention_seconds"
CALL_LOG_RETENTION: Final = "call_log_retention_seconds"
CHANGE_LOG_RETENTION: Final = "change_log_retention_seconds"
ON_DATASET_CHANGE: Final = "on_dataset_change"
CONVERT_AFTER: Final = "convert_after_seconds"
ROLLED_BACK_KEPT: Final = "rolled_back_kept_seconds"
SERVE_ROLLED_BACK: Final = "serve_rolled_back"
ANY: Final = "*"
INDEX_PREFIX: Final = "index-"
DATABASE: Final[tuple[ScopeLevel, ...]] = ("database",)
_TENANTS: Final[tuple[ScopeLevel, ...]] = ("database", "tenant")
TABLES: Final[tuple[ScopeLevel, ...]] = ("database", "tenant", "table")


@dataclass(frozen=True, slots=True)
class IntegerRange:
    """The whole numbers that a setting may have as its value."""

    lowest: int
    highest: int

    def __str__(self) -> str:
        return f"{self.lowest} to {self.highest}"


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting, with its allowed words or numbers, and the scopes for which it may be set."""

    name: str
    default: str
    scopes: tuple[ScopeLevel, ...]
    choices: tuple[str, ...]
    description: str
    numbers: IntegerRange | None = None
    takes_gate: bool = False
    """Whether setting it takes the gate, so that every later write obeys it."""
    takes_directory: bool = False
    """Whether its value is the full path of a directory, which is no other database's, without
    characters that can't be printed, such as line ends."""

    @property
    def mode(self) -> TransactionMode:
        """Return the mode of the transaction that sets it."""
        return TransactionMode.DDL if self.takes_gate else TransactionMode.CATALOG

    @property
    def values(self) -> tuple[str, ...]:
        """Return the allowed values, as text."""
        directory = ["DIRECTORY"] if self.takes_directory else []
        return (*self.choices, *([str(self.numbers)] if self.numbers else directory))

    def normalize(self, value: str) -> str | None:
        """Return the value as it is stored, or None if it is not allowed."""
        if value in self.choices:
            return value
        if self.takes_directory:
            directory = os.path.abspath(value)  # noqa: PTH100 - of a text
            return directory if value and directory.isprintable() else None
        if self.numbers is None or not (value.isascii() and value.isdigit() and len(value) < 20):
            return None
        number = int(value)
        return str(number) if self.numbers.lowest <= number <= self.numbers.highest else None


SETTINGS: Final[dict[str, Setting]] = {
    setting.name: setting
    for setting in (
        Setting(
            PROFILE,
            "development",
            DATABASE,
            ("development", "production"),
            "The values of the other settings where they are not set.",
        ),
        Setting(
            "on_read",
            "leave",
            TABLES,
            ("leave", "write_back"),
            "What a read does with a stale record: leave it until a write or a job converts it, "
            "or write the converted record back after the read, if no lock or conflict prevents "
            "it. Reads by SQL and Arrow, and reads inside a transaction or a snapshot, write "
            "nothing back.",
        ),
        Setting(
            "convert",
            "on_access",
            _TENANTS,
            ("on_access", "background"),
            "Who converts stale records, builds indexes and validates constraints: writes and "
            "jobs that are started by hand, or also background jobs of every open database.",
        ),
        Setting(
            CONVERT_AFTER,
            "0",
            TABLES,
            (),
            "How many seconds after a schema change background jobs and `zapdb convert watch` "
            "begin to convert the records of a table: until then a rollback finds those that "
            "nobody has written as they were. A conversion that is run by hand does not wait.",
            IntegerRange(0, 1_000_000_000),
        ),
        Setting(
            ROLLED_BACK_KEPT,
            "0",
            DATABASE,
            (),
            "How many seconds a migration that was rolled back is kept: processes whose files have "
            "it can be started, and find the values that it made. While running processes have "
            "it, it is kept in any case.",
            IntegerRange(0, 1_000_000_000),
        ),
        Setting(
            SERVE_ROLLED_BACK,
            "allow",
            _TENANTS,
            ("allow", "refuse"),
            "Whether processes may be started whose files end at a migration that was rolled back "
            "and is kept. Those that are running go on in any case.",
        ),
        Setting(
            "job_records_per_second",
            "none",
            TABLES,
            ("none",),
            "How many records a second all workers of a job together may read, unless the job has "
            "a bound of its own (`zapdb jobs throttle`).",
            IntegerRange(1, 1_000_000_000),
        ),
        Setting(
            "job_max_latency_ms",
            "none",
            TABLES,
            ("none",),
            "How many milliseconds a small query may take beside a job: its workers measure that, "
            "and slow down above it, unless the job has a ceiling of its own (`zapdb jobs "
            "throttle`).",
            IntegerRange(1, JOB_LATENCY_MS_MAX),
        ),
        Setting(
            ON_DATASET_CHANGE,
            "rebuild",
            SCOPE_LEVELS,
            ("rebuild", "rewrite", "scan"),
            "What happens to an index when its collation or time zone data change. Queries scan "
            "until its data match again. `rebuild`: the index is deleted and built again. "
            "`rewrite`: the entries that differ are rewritten in place, and each query that needs "
            "the index logs a warning; not for unique indexes. `scan`: the index is disabled "
            "until `zapdb reindex run`, and processes with different data can run at the same "
            "time.",
        ),
        Setting(
            "schema_changes",
            "allow",
            _TENANTS,
            ("allow", "refuse"),
            "Whether migrations may be stored, activated, rolled back or squashed.",
        ),
        Setting(
            "raise_level",
            "on_demand",
            DATABASE,
            ("on_demand", "auto"),
            "When the cluster level is raised: when a feature needs it, or as soon as all live "
            "processes support a higher level. Older releases can't open the database afterwards.",
        ),
        Setting(
            "served_window",
            "all",
            _TENANTS,
            ("all",),
            "How many migrations the files of a process may be behind. A process that is further "
            "behind is refused.",
            IntegerRange(0, MIGRATIONS_MAX),
        ),
        Setting(
            "activation_wait_seconds",
            str(int(ACTIVATION_WAIT_SECONDS)),
            DATABASE,
            (),
            "How long opening a database waits until other processes have the file of a migration.",
            IntegerRange(0, 86_400),
        ),
        Setting(
            CHANGE_LOG,
            "off",
            TABLES,
            ("off", "on"),
            "Whether every change of a record is kept in the change log, which followers read.",
            takes_gate=True,
        ),
        Setting(
            HISTORY_STORE,
            NO_DIRECTORY,
            DATABASE,
            (NO_DIRECTORY,),
            "The directory in which a history store begins for each tenant that has none, and for "
            "each that is created; the change log is switched on for it. Unset, or `none`, no more "
            "of them begin; those that there are go on.",
            takes_directory=True,
        ),
        Setting(
            HISTORY_FLUSH_CHANGES,
            "50000",
            _TENANTS,
            (),
            "How many changes wait in the change log until the history store takes them into "
            "files.",
            IntegerRange(1, 1_000_000_000),
        ),
        Setting(
            HISTORY_FLUSH_SECONDS,
            "3600",
            _TENANTS,
            (),
            "How many seconds a change waits in the change log at most until the history store "
            "takes it into a file.",
            IntegerRange(0, 1_000_000_000),
        ),
        Setting(
            HISTORY_CHECKPOINT_PERCENT,
            "100",
            _TENANTS,
            (),
            "After how many changes the history store writes a table anew, in percent of the "
            "records that it had then: more make the files smaller, and reading them slower.",
            IntegerRange(10, 1_000_000),
        ),
        Setting(
            HISTORY_GRACE_SECONDS,
            "600",
            _TENANTS,
            (),
            "How long a file of the history store is kept after others have taken its place.",
            IntegerRange(0, 1_000_000_000),
        ),
        Setting(
            HISTORY_RETENTION,
            "0",
            _TENANTS,
            (),
            "For how many seconds the history store keeps a moment at least: the process that "
            "follows it purges older ones once a day. 0: for good.",
            IntegerRange(0, 10_000_000_000),
        ),
        Setting(
            CHANGE_LOG_RETENTION,
            "0",
            _TENANTS,
            (),
            "For how many seconds the change log keeps what the history store has in files: "
            "the process that follows the store prunes older changes once a day. 0: for good.",
            IntegerRange(0, 10_000_000_000),
        ),
        Setting(
            CALL_LOG_RETENTION,
            str(CALL_LOG_RETENTION_SECONDS),
            DATABASE,
            (),
            "For how many seconds the call log keeps what `zapdb serve` was called for. 0: for "
            "good, up to its bound of a million calls.",
            IntegerRange(0, 10_000_000_000),
        ),
        Setting(
            "blob_sweep_age_seconds",
            str(int(SWEEP_AGE_SECONDS)),
            DATABASE,
            (),
            "The age below which a sweep leaves large values alone.",
            IntegerRange(0, 1_000_000_000),
        ),
    )
}

PROFILES: Final[dict[str, dict[str, str]]] = {
    "development": {},
    "production": {
        "convert": "background",
        CONVERT_AFTER: "3600",
        ROLLED_BACK_KEPT: "604800",
    },
}
"""By profile: the values that differ from the settings' defaults."""


@dataclass(frozen=True, slots=True)
class Scope:
    """What a setting applies to; a table, field or index without a tenant is that of all tenants.

    If an index has no setting of its own, the first of `index_fields` that has one decides.
    """

    tenant: int | None = None
    table: int | None = None
    field: int | None = None
    index: int | None = None
    index_fields: tuple[int, ...] = ()

    @property
    def level(self) -> ScopeLevel:
        if self.index is not None:
            return "index"
        if self.field is not None:
            return "field"
        if self.table is not None:
            return "table"
        return "database" if self.tenant is None else "tenant"

    @property
    def text(self) -> str:
        """Return the scope as it is written in the keys of rows."""
        parts = [ANY if n is None else str(n) for n in (self.tenant, self.table, self.field)]
        if self.index is not None:
            parts[2] = f"{INDEX_PREFIX}{self.index}"
        return "/".join(parts)

    def key(self, name: str) -> str:
        """Return the key of the row of one setting in this scope."""
        return f"{self.text}/{name}"

    def wider(self) -> Iterable[Scope]:
        """Yield this scope and then the wider ones, the narrowest first."""
        tenants = (self.tenant, None) if self.tenant is not None else (None,)
        if self.index is not None:
            yield from (Scope(tenant, self.table, index=self.index) for tenant in tenants)
        for field in self.index_fields if self.field is None else (self.field,):
            yield from (Scope(tenant, self.table, field) for tenant in tenants)
        if self.table is not None:
            yield from (Scope(tenant, self.table) for tenant in tenants)
        yield from (Scope(tenant) for tenant in tenants)


EVERYWHERE: Final = Scope()


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of a tenant as of one moment: values by the keys of their rows."""

    tenant: int
    values: Mapping[str, str]

    def find(self, name: str, scope: Scope) -> tuple[str, Origin]:
        """Return the value that holds for this scope, and where it is set."""
        setting = find_setting(name)
        if not self.values:
            return setting.default, "default"
        for wider in scope.wider():
            value = self.values.get(wider.key(name))
            if value is not None:
                return value, wider.level
        profile = self.profile if name != PROFILE else ""
        if name in PROFILES.get(profile, {}):
            return PROFILES[profile][name], "profile"
        return setting.default, "default"

    def get(self, name: str, table: int | None = None, field: int | None = None) -> str:
        return self.find(name, Scope(self.tenant, table, field))[0]

    def number(self, name: str, table: int | None = None) -> int | None:
        """Return the value as a number, or None for the word that means no bound."""
        value = self.get(name, table)
        return int(value) if value.isdigit() else None

    def dataset_policy(self, table: TableSchema, index: Index) -> DatasetPolicy:
        """Return what happens to an index whose keys were made with other data than this process
        has."""
        found, _ = self.find(ON_DATASET_CHANGE, scope_of_index(self.tenant, table, index))
        return cast("DatasetPolicy", found)

    @property
    def profile(self) -> str:
        return self.values.get(EVERYWHERE.key(PROFILE), SETTINGS[PROFILE].default)

    def writes_back(self, table: int) -> bool:
        """Return whether reads write stale records of a table back converted."""
        return self.get("on_read", table) == "write_back"

    @property
    def converts_in_background(self) -> bool:
        return self.get("convert") == "background"

    def records(self, table: int) -> bool:
        """Return whether changes of a table's records are kept in the change log."""
        return self.get(CHANGE_LOG, table) == "on"


def find_setting(name: str) -> Setting:
    if name not in SETTINGS:
        raise UnknownName(
            "there is no such setting",
            setting=name,
            settings=", ".join(SETTINGS),
            hint=suggest(name, SETTINGS),
        )
    return SETTINGS[name]


def scope_of_index(tenant: int | None, table: TableSchema, index: Index) -> Scope:
    """Return the scope of an index, with those of its fields whose keys depend on datasets."""
    fields = tuple(
        component.field
        for component in index.components
        if component.collation is not None
        or table.field_numbered(component.field).type.depends_on_zones
    )
    return Scope(tenant, table.number, index=index.number, index_fields=fields)


def _check_parts(table: str | None, field: str | None, index: str | None) -> None:
    """Raises `UsageError` for names that name no scope together."""
    if field is not None and index is not None:
        raise UsageError("give a field or an index, not both", field=field, index=index)
    if table is None and field is not None:
        raise UsageError("a field needs its table", field=field, hint="add --table, or table=")
    if table is None and index is not None:
        raise UsageError("an index needs its table", index=index, hint="add --table, or table=")


def resolve_scope(
    schema: Schema,
    tenant: int | None,
    table: str | None,
    field: str | None,
    index: str | None = None,
) -> Scope:
    """Return the scope with these names; raises `UnknownName` and `UsageError`."""
    _check_parts(table, field, index)
    if table is None:
        return Scope(tenant)
    found = next((t for t in schema if t.name == table), None)
    if found is None:
        raise UnknownName.of_table(table, [t.name for t in schema])
    if index is not None:
        named = next((i for i in found.indexes if i.name == index), None)
        if named is None:
            there = ", ".join(i.name for i in found.indexes) or "(none)"
            raise UnknownName("there is no such index", table=table, index=index, indexes=there)
        return scope_of_index(tenant, found, named)
    if field is None:
        return Scope(tenant, found.number)
    member = next((f for f in found.fields if f.name == field), None)
    if member is None:
        raise UnknownField.named(table, field, [f.name for f in found.fields])
    return Scope(tenant, found.number, member.number)
