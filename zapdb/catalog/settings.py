"""Settings: stored in the database, never part of a digest (rule 14).

A setting is for the whole database, or for a tenant, a table, a field or an index of it; the
narrowest that was set holds: index, field, table, tenant, database. Where none was set, the profile
says, and where that says nothing, the setting's default. Tables, fields and indexes are known by
their numbers, so a setting stays with what it was made for when that is renamed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, cast

from zapdb.catalog import principal, rows
from zapdb.catalog.kinds import load_value
from zapdb.catalog.localview import LocalView
from zapdb.catalog.stored import list_stored, read_chain, read_chain_state
from zapdb.errors import (
    CorruptCatalog,
    IncompatibleVersion,
    SchemaFrozen,
    UnknownField,
    UnknownName,
    UsageError,
    suggest,
)
from zapdb.limits import ACTIVATION_WAIT_SECONDS, MIGRATIONS_MAX, SWEEP_AGE_SECONDS
from zapdb.schema import Index, Schema, Table
from zapdb.storage import Connection, Mode, read_layout
from zapdb.storage.changes import HISTORY_OFF, HISTORY_ON, OF_TENANT, record_event
from zapdb.storage.layout import HISTORY_REVISION, has_history

Level = Literal["database", "tenant", "table", "field", "index"]
LEVELS: Final[tuple[Level, ...]] = ("database", "tenant", "table", "field", "index")
Origin = Level | Literal["profile", "default"]
DatasetPolicy = Literal["block", "background", "scan"]

PROFILE: Final = "profile"
HISTORY: Final = "history"
DATASETS: Final = "datasets"
ANY: Final = "*"
INDEX_PREFIX: Final = "index-"
DATABASE: Final[tuple[Level, ...]] = ("database",)
TENANTS: Final[tuple[Level, ...]] = ("database", "tenant")
TABLES: Final[tuple[Level, ...]] = ("database", "tenant", "table")


@dataclass(frozen=True, slots=True)
class Numbers:
    """The whole numbers that a setting may be."""

    lowest: int
    highest: int

    def __str__(self) -> str:
        return f"{self.lowest} to {self.highest}"


@dataclass(frozen=True, slots=True)
class Setting:
    """What there is to set: words to choose from, numbers, or both; and for what it may be set."""

    name: str
    default: str
    scopes: tuple[Level, ...]
    choices: tuple[str, ...]
    says: str
    numbers: Numbers | None = None
    binds_writers: bool = False
    """Whether every writer must know it when it was set: it is set under the gate then."""

    @property
    def mode(self) -> Mode:
        """The kind of transaction that sets it."""
        return Mode.CHANGE if self.binds_writers else Mode.CATALOG

    @property
    def values(self) -> tuple[str, ...]:
        """What it may be, in words."""
        return (*self.choices, *([str(self.numbers)] if self.numbers else []))

    def normalize(self, value: str) -> str | None:
        """The value as it is stored; None for one that the setting can't have."""
        if value in self.choices:
            return value
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
            "What the other settings are where they are not set.",
        ),
        Setting(
            "on_read",
            "leave",
            TABLES,
            ("leave", "write_back"),
            "What becomes of a stale record that was read: it stays as it is until it is written "
            "or converted by a job, or its converted form is written back at once.",
        ),
        Setting(
            "convert",
            "on_access",
            TENANTS,
            ("on_access", "background"),
            "Whether stale records wait until they are written or a job is started by hand, or "
            "open databases build indexes, convert and validate by themselves.",
        ),
        Setting(
            "job_records_per_second",
            "none",
            TABLES,
            ("none",),
            "How many records a second the jobs of one process may go through; of each executor, "
            "on Spark.",
            Numbers(1, 1_000_000_000),
        ),
        Setting(
            DATASETS,
            "block",
            LEVELS,
            ("block", "background", "scan"),
            "What becomes of an index whose collation or time zone data changed. Queries scan in "
            "any case, until it fits again. `block`: it is thrown away and built again. "
            "`background`: its entries are rewritten one by one where they are, those that stay "
            "the same are left alone, and each query that needs it logs a warning; not for unique "
            "indexes. `scan`: nobody keeps it, and processes with different data work side by "
            "side, until `zapdb reindex run`.",
        ),
        Setting(
            "schema_changes",
            "allow",
            TENANTS,
            ("allow", "refuse"),
            "Whether migrations may be stored, put in force, forgotten or squashed.",
        ),
        Setting(
            "level",
            "on_demand",
            DATABASE,
            ("on_demand", "auto"),
            "Whether the cluster's level is raised when something needs it, or as soon as all "
            "processes support a higher one. Raising it forbids older releases.",
        ),
        Setting(
            "served_window",
            "all",
            TENANTS,
            ("all",),
            "How many migrations the files of a process may be behind and still be served.",
            Numbers(0, MIGRATIONS_MAX),
        ),
        Setting(
            "activation_wait_seconds",
            str(int(ACTIVATION_WAIT_SECONDS)),
            DATABASE,
            (),
            "How long opening a database waits for a migration that waits for other processes.",
            Numbers(0, 86_400),
        ),
        Setting(
            HISTORY,
            "off",
            TABLES,
            ("off", "on"),
            "Whether every change of a record is kept in the history log, for those who follow it.",
            binds_writers=True,
        ),
        Setting(
            "blob_sweep_age_seconds",
            str(int(SWEEP_AGE_SECONDS)),
            DATABASE,
            (),
            "Large values that are younger are left alone by a sweep.",
            Numbers(0, 1_000_000_000),
        ),
    )
}

PROFILES: Final[dict[str, dict[str, str]]] = {
    "development": {},
    "production": {"convert": "background"},
}
"""By profile: the settings whose value in it is not their default."""


@dataclass(frozen=True, slots=True)
class Scope:
    """What a setting is for; a table, field or index without a tenant is that of all tenants.

    An index has the fields whose settings hold for it where it has none of its own: the first one
    that has.
    """

    tenant: int | None = None
    table: int | None = None
    field: int | None = None
    index: int | None = None
    index_fields: tuple[int, ...] = ()

    @property
    def level(self) -> Level:
        if self.index is not None:
            return "index"
        if self.field is not None:
            return "field"
        if self.table is not None:
            return "table"
        return "database" if self.tenant is None else "tenant"

    def key(self, name: str) -> str:
        """Of the setting's row."""
        parts = [ANY if n is None else str(n) for n in (self.tenant, self.table, self.field)]
        if self.index is not None:
            parts[2] = f"{INDEX_PREFIX}{self.index}"
        return "/".join([*parts, name])

    def wider(self) -> Iterable[Scope]:
        """This scope and those that hold where it is not set, the narrowest first."""
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
    """What is set for a tenant, as of one moment: values by the keys of their rows."""

    tenant: int
    values: Mapping[str, str]

    def find(self, name: str, scope: Scope) -> tuple[str, Origin]:
        """A setting's value for exactly this scope, and where that comes from."""
        setting = find_setting(name)
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
        """The value as a number; None for the word that stands for no bound."""
        value = self.get(name, table)
        return int(value) if value.isdigit() else None

    def dataset_policy(self, table: Table, index: Index) -> DatasetPolicy:
        """What becomes of an index when this process's data are not those of its keys."""
        found, _ = self.find(DATASETS, scope_of_index(self.tenant, table, index))
        return cast("DatasetPolicy", found)

    @property
    def profile(self) -> str:
        return self.values.get(EVERYWHERE.key(PROFILE), SETTINGS[PROFILE].default)

    def writes_back(self, table: int) -> bool:
        """Whether stale records of a table that were read are written back converted."""
        return self.get("on_read", table) == "write_back"

    @property
    def converts_in_background(self) -> bool:
        return self.get("convert") == "background"

    def records(self, table: int) -> bool:
        """Whether changes of a table's records are kept in the history log."""
        return self.get(HISTORY, table) == "on"

    @property
    def refuses_schema_changes(self) -> bool:
        return self.get("schema_changes") == "refuse"


def find_setting(name: str) -> Setting:
    if name not in SETTINGS:
        raise UnknownName(
            "no such setting",
            setting=name,
            settings=", ".join(SETTINGS),
            hint=suggest(name, SETTINGS),
        )
    return SETTINGS[name]


def read_settings(connection: Connection, tenant: int) -> Settings:
    """What is set for a tenant; raises `CorruptCatalog` for a value that its setting can't have."""
    values: dict[str, str] = {}
    for prefix in (ANY, str(tenant)):
        found = rows.list_rows(connection, "setting", f"{prefix}/")
        values |= {key: _checked(key, row["value"]) for key, row in found.items()}
    return Settings(tenant, values)


HISTORY_SQL: Final = (
    "SELECT key, value FROM zapdb_catalog WHERE kind = 'setting' AND value IS NOT NULL"
    " AND key LIKE {mark}"
)


def read_history_settings(connection: Connection, tenant: int) -> Settings:
    """What is set of `history` alone, for a tenant: asked for with every change of a schema."""
    found = connection.fetch_all(
        HISTORY_SQL.format(mark=connection.storage.mark), (f"%/{HISTORY}",)
    )
    return Settings(
        tenant,
        {
            key: _checked(key, load_value("setting", key, value)["value"])
            for key, value in found
            if key.split("/")[0] in (ANY, str(tenant))
        },
    )


def settings_of(view: LocalView, tenant: int) -> Settings:
    """The same from a process's local view."""
    values = {
        key: _checked(key, row["value"])
        for prefix in (ANY, str(tenant))
        for key, row in view.list("setting", f"{prefix}/").items()
    }
    return Settings(tenant, values)


def _checked(key: str, value: str) -> str:
    setting = SETTINGS.get(key.rpartition("/")[2])
    # A setting that this release does not know is of a later one, and is nothing to it.
    if setting is not None and setting.normalize(value) != value:
        raise CorruptCatalog(
            "a setting has a value that it can't have",
            key=key,
            value=value,
            values=", ".join(setting.values),
            hint="set it again with `zapdb settings set`",
        )
    return value


def write_setting(connection: Connection, name: str, value: str, scope: Scope = EVERYWHERE) -> int:
    """Inside a transaction of the setting's `mode`; returns the change's token.

    Raises `UsageError` for a value or a scope that the setting can't have, and
    `IncompatibleVersion` where the database's layout has no room for what it switches on.
    """
    setting = _find_for(name, scope)
    normal = setting.normalize(value)
    if normal is None:
        raise UsageError(
            "the setting has no such value",
            setting=name,
            value=value,
            values=", ".join(setting.values),
        )
    if name == HISTORY and normal == "on":
        _refuse_without_log(connection)
    before = _read_switched(connection, setting, scope)
    token = rows.put(connection, "setting", scope.key(name), {"value": normal})
    _bind_writers(connection, setting, scope, before)
    _check_policies(connection, name, scope)
    return token


def unset_setting(connection: Connection, name: str, scope: Scope = EVERYWHERE) -> int:
    """Take back what was set for exactly this scope, inside a transaction of the setting's `mode`;
    returns the token. Raises `UsageError` where what holds then can't be."""
    setting = _find_for(name, scope)
    before = _read_switched(connection, setting, scope)
    token = rows.delete(connection, "setting", scope.key(name))
    _bind_writers(connection, setting, scope, before)
    _check_policies(connection, name, scope)
    return token


def _check_policies(connection: Connection, name: str, scope: Scope) -> None:
    """Raises `UsageError` where unique indexes would be rewritten in the background: while some
    keys are old and some new, equal values may have unequal keys (rule 26)."""
    if name != DATASETS:
        return
    settings = read_settings(connection, scope.tenant or 0)
    chain = read_chain(list_stored(connection, read_chain_state(connection)))
    for table in chain.schema_at(chain.end):
        for index in table.indexes:
            if not (index.unique and table.datasets_of(index)):
                continue
            at = scope_of_index(scope.tenant, table, index)
            concerned = scope.key(name) in [wider.key(name) for wider in at.wider()]
            if concerned and settings.find(name, at)[0] == "background":
                raise UsageError(
                    "a unique index can't be rewritten in the background",
                    setting=name,
                    table=table.name,
                    index=index.name,
                    hint="equal values may have unequal keys meanwhile: first set "
                    f"`zapdb settings set {name} block --table {table.name} --index {index.name}`",
                )


def _bind_writers(
    connection: Connection, setting: Setting, scope: Scope, before: Mapping[int, str]
) -> None:
    """Have every process load again what is in force: its next transaction goes by the setting.

    The history log says where it begins and where it ends, for each tenant.
    """
    if not setting.binds_writers:
        return
    assert connection.mode is setting.mode, "it is set under the gate"
    mine = "" if scope.tenant is None else f" WHERE tenant = {int(scope.tenant)}"
    connection.run(f"UPDATE zapdb_activations SET number = number + 1{mine}")
    who, table = principal.current(), OF_TENANT if scope.table is None else scope.table
    for tenant, value in _read_switched(connection, setting, scope).items():
        if setting.name == HISTORY and value != before[tenant]:
            what = HISTORY_ON if value == "on" else HISTORY_OFF
            record_event(connection, who, (tenant, table, b"", what, None, b""))


def _read_switched(connection: Connection, setting: Setting, scope: Scope) -> dict[int, str]:
    """What a setting that binds writers is for each tenant that the scope is about."""
    if not setting.binds_writers:
        return {}
    tenants = (
        [int(key) for key in rows.list_rows(connection, "tenant")]
        if scope.tenant is None
        else [scope.tenant]
    )
    found = rows.list_rows(connection, "setting")
    values = {key: row["value"] for key, row in found.items()}
    return {
        tenant: Settings(tenant, values).find(setting.name, Scope(tenant, scope.table))[0]
        for tenant in tenants
    }


def _refuse_without_log(connection: Connection) -> None:
    if not has_history(connection):
        raise IncompatibleVersion(
            "the database's layout has no history log yet",
            database=connection.storage.shown_url,
            layout=read_layout(connection.storage),
            layout_needed=HISTORY_REVISION,
            hint="run `zapdb cluster upgrade` once all processes have a release that knows it; "
            "that forbids older releases",
        )


def _find_for(name: str, scope: Scope) -> Setting:
    setting = find_setting(name)
    if scope.level not in setting.scopes:
        raise UsageError(
            f"the setting can't be set for {'an' if scope.level == 'index' else 'a'} {scope.level}",
            setting=name,
            scopes=", ".join(setting.scopes),
        )
    return setting


def scope_of_index(tenant: int | None, table: Table, index: Index) -> Scope:
    """An index with its fields whose keys depend on datasets, in their order."""
    fields = tuple(
        component.field
        for component in index.components
        if component.collation is not None
        or table.field_numbered(component.field).type.depends_on_zones
    )
    return Scope(tenant, table.number, index=index.number, index_fields=fields)


def resolve_scope(
    schema: Schema,
    tenant: int | None,
    table: str | None,
    field: str | None,
    index: str | None = None,
) -> Scope:
    """The scope with these names; raises `UnknownName` and `UsageError`."""
    if field is not None and index is not None:
        raise UsageError("a setting is for a field or for an index", field=field, index=index)
    if table is None:
        if field is not None:
            raise UsageError("a field is one of a table", field=field, hint="name the table, too")
        if index is not None:
            raise UsageError("an index is one of a table", index=index, hint="name the table, too")
        return Scope(tenant)
    found = next((t for t in schema if t.name == table), None)
    if found is None:
        raise UnknownName.of_table(table, [t.name for t in schema])
    if index is not None:
        named = next((i for i in found.indexes if i.name == index), None)
        if named is None:
            there = ", ".join(i.name for i in found.indexes) or "(none)"
            raise UnknownName("no such index", table=table, index=index, indexes=there)
        return scope_of_index(tenant, found, named)
    if field is None:
        return Scope(tenant, found.number)
    member = next((f for f in found.fields if f.name == field), None)
    if member is None:
        raise UnknownField.named(table, field, [f.name for f in found.fields])
    return Scope(tenant, found.number, member.number)


def refuse_if_frozen(connection: Connection, tenant: int | None = None) -> None:
    """Raises `SchemaFrozen` where `schema_changes` is `refuse`: for a tenant, or for the chain,
    which all tenants share.

    To be called inside the transaction that would change the schema.
    """
    settings = read_settings(connection, 0 if tenant is None else tenant)
    value, origin = settings.find("schema_changes", Scope(tenant))
    if value == "refuse":
        context: dict[str, Any] = {} if tenant is None else {"tenant": tenant}
        option = " --tenant NAME" if origin == "tenant" else ""
        raise SchemaFrozen(
            "schema changes are refused by a setting",
            setting="schema_changes",
            **context,
            hint=f"`zapdb settings set schema_changes allow{option}` lets them through again",
        )
