"""Settings: stored in the database, never part of a digest (rule 14).

A setting is for the whole database, or for a tenant, a table or a field of it; the narrowest that
was set holds: field, table, tenant, database. Where none was set, the profile says, and where that
says nothing, the setting's default. Tables and fields are known by their numbers, so a setting
stays with what it was made for when that is renamed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from zapdb.catalog import rows
from zapdb.catalog.localview import LocalView
from zapdb.errors import CorruptCatalog, SchemaFrozen, UnknownName, UsageError
from zapdb.limits import ACTIVATION_WAIT_SECONDS, MIGRATIONS_MAX, SWEEP_AGE_SECONDS
from zapdb.schema import Schema
from zapdb.storage import Connection

Level = Literal["database", "tenant", "table", "field"]
LEVELS: Final[tuple[Level, ...]] = ("database", "tenant", "table", "field")
Origin = Literal["database", "tenant", "table", "field", "profile", "default"]

PROFILE: Final = "profile"
ANY: Final = "*"
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
            "datasets",
            "block",
            TENANTS,
            ("block",),
            "What becomes of an index whose collation or time zone data changed: it is thrown away "
            "and built again, and queries scan until then.",
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
    """What a setting is for; a table or field without a tenant is that of all tenants."""

    tenant: int | None = None
    table: int | None = None
    field: int | None = None

    @property
    def level(self) -> Level:
        if self.field is not None:
            return "field"
        if self.table is not None:
            return "table"
        return "database" if self.tenant is None else "tenant"

    def key(self, name: str) -> str:
        """Of the setting's row."""
        numbers = (self.tenant, self.table, self.field)
        return "/".join([*(ANY if n is None else str(n) for n in numbers), name])

    def wider(self) -> Iterable[Scope]:
        """This scope and those that hold where it is not set, the narrowest first."""
        tenants = (self.tenant, None) if self.tenant is not None else (None,)
        if self.field is not None:
            yield from (Scope(tenant, self.table, self.field) for tenant in tenants)
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

    @property
    def profile(self) -> str:
        return self.values.get(EVERYWHERE.key(PROFILE), SETTINGS[PROFILE].default)

    def writes_back(self, table: int) -> bool:
        """Whether stale records of a table that were read are written back converted."""
        return self.get("on_read", table) == "write_back"

    @property
    def converts_in_background(self) -> bool:
        return self.get("convert") == "background"

    @property
    def refuses_schema_changes(self) -> bool:
        return self.get("schema_changes") == "refuse"


def find_setting(name: str) -> Setting:
    if name not in SETTINGS:
        raise UnknownName("no such setting", setting=name, settings=", ".join(SETTINGS))
    return SETTINGS[name]


def read_settings(connection: Connection, tenant: int) -> Settings:
    """What is set for a tenant; raises `CorruptCatalog` for a value that its setting can't have."""
    values: dict[str, str] = {}
    for prefix in (ANY, str(tenant)):
        found = rows.list_rows(connection, "setting", f"{prefix}/")
        values |= {key: _checked(key, row["value"]) for key, row in found.items()}
    return Settings(tenant, values)


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
    """Inside a CATALOG transaction; returns the change's token.

    Raises `UsageError` for a value or a scope that the setting can't have.
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
    return rows.put(connection, "setting", scope.key(name), {"value": normal})


def unset_setting(connection: Connection, name: str, scope: Scope = EVERYWHERE) -> int:
    """Take back what was set for exactly this scope, inside a CATALOG transaction; returns the
    token."""
    _find_for(name, scope)
    return rows.delete(connection, "setting", scope.key(name))


def _find_for(name: str, scope: Scope) -> Setting:
    setting = find_setting(name)
    if scope.level not in setting.scopes:
        raise UsageError(
            f"the setting can't be set for a {scope.level}",
            setting=name,
            scopes=", ".join(setting.scopes),
        )
    return setting


def resolve_scope(
    schema: Schema, tenant: int | None, table: str | None, field: str | None
) -> Scope:
    """The scope with these names; raises `UnknownName` and `UsageError`."""
    if table is None:
        if field is not None:
            raise UsageError("a field is one of a table", field=field, hint="name the table, too")
        return Scope(tenant)
    found = next((t for t in schema if t.name == table), None)
    if found is None:
        there = ", ".join(t.name for t in schema) or "(none)"
        raise UnknownName("no such table", table=table, tables=there)
    if field is None:
        return Scope(tenant, found.number)
    member = next((f for f in found.fields if f.name == field), None)
    if member is None:
        there = ", ".join(f.name for f in found.fields)
        raise UnknownName("no such field", table=table, field=field, fields=there)
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
