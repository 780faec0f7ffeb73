"""The settings that are stored in the database, and what holds where."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from zapdb.answers import hidden
from zapdb.catalog import stored_settings
from zapdb.catalog.settings import (
    EVERYWHERE,
    SETTINGS,
    Scope,
    Setting,
    Settings,
    find_setting,
    resolve_scope,
)
from zapdb.catalog.stored_settings import read_settings, write_setting
from zapdb.control.target import Target
from zapdb.errors import UsageError
from zapdb.past.files.wanted_stores import claim_directory, start_wanted_stores


@dataclass(frozen=True, slots=True)
class SettingScope:
    """What a setting is for: the whole database, or the tenant, or a table, field or index, of all
    tenants or of this one."""

    of_tenant: bool = False
    table: str | None = None
    field: str | None = None
    index: str | None = None


@dataclass(frozen=True, slots=True)
class SettingValue:
    """The value that holds in a scope, and `from` which wider one it is, if it is set at all.

    `values` are those that are allowed, and `scopes` those for which it may be set.
    """

    name: str
    value: str
    from_: str
    default: str
    values: tuple[str, ...]
    scopes: tuple[str, ...]
    description: str


@dataclass(frozen=True, slots=True)
class SettingValues:
    settings: tuple[SettingValue, ...]


def list_settings(target: Target, scope: SettingScope) -> SettingValues:
    """Every setting, as it is in a scope; raises `UnknownName` and `UsageError`."""
    found = find_scope(target, scope)
    settings = _read(target, found)
    return SettingValues(tuple(_describe(one, settings, found) for one in SETTINGS.values()))


def get_setting(target: Target, name: str, scope: SettingScope) -> SettingValue:
    """One setting, as it is in a scope; raises `UnknownName` and `UsageError`."""
    setting, found = find_setting(name), find_scope(target, scope)
    return _describe(setting, _read(target, found), found)


@dataclass(frozen=True, slots=True)
class SettingUnset(SettingValue):
    """What holds since a setting was unset; a process whose catalog cache has the seq sees it."""

    seq: int


@dataclass(frozen=True, slots=True)
class StoreRefused:
    """A tenant whose history store did not begin, and why."""

    tenant: str
    error: str
    text: str = hidden()


@dataclass(frozen=True, slots=True)
class SettingSet(SettingUnset):
    """What holds since a setting was set."""

    refused: tuple[StoreRefused, ...]


def set_setting(target: Target, name: str, value: str, scope: SettingScope) -> SettingSet:
    """Set a setting in a scope. `history_store` begins a history store for each tenant; a service
    refuses it, since its value is a directory of the machine.

    Raises `UnknownName`, `UsageError`, and what beginning a directory of history stores raises.
    """
    setting, found, storage = find_setting(name), find_scope(target, scope), target.storage
    if setting.takes_directory and target.is_served:
        raise UsageError(
            "the value is a directory of the machine, which nobody sets from another one",
            setting=name,
            hint="run `zapdb settings set` there, with the address of the database",
        )
    if setting.takes_directory and found == EVERYWHERE:
        claim_directory(storage, value)
    with storage.transaction(setting.mode) as connection:
        seq = write_setting(connection, name, value, found)
    refused = start_wanted_stores(storage) if setting.takes_directory else {}
    return SettingSet(
        **_columns(setting, _read(target, found), found),
        seq=seq,
        refused=tuple(
            StoreRefused(tenant, error.message, str(error)) for tenant, error in refused.items()
        ),
    )


def unset_setting(target: Target, name: str, scope: SettingScope) -> SettingUnset:
    """Unset a setting in a scope, so that what is set for a wider one holds again, or the default.

    Raises `UnknownName` and `UsageError`.
    """
    setting, found = find_setting(name), find_scope(target, scope)
    with target.storage.transaction(setting.mode) as connection:
        seq = stored_settings.unset_setting(connection, name, found)
    return SettingUnset(**_columns(setting, _read(target, found), found), seq=seq)


def find_scope(target: Target, scope: SettingScope) -> Scope:
    """A scope by the numbers of what it names, as the newest stored schema has them, or, of a
    tenant, its active one."""
    catalog = target.catalog()
    chain, position = catalog.stored_chain, catalog.stored_chain.end
    if scope.of_tenant:
        chain, position = catalog.chain, catalog.position
    return resolve_scope(
        chain.schema_at(position),
        catalog.tenant if scope.of_tenant else None,
        scope.table,
        scope.field,
        scope.index,
    )


def _read(target: Target, scope: Scope) -> Settings:
    with target.reading() as connection:
        return read_settings(connection, scope.tenant or 0)


def _describe(setting: Setting, settings: Settings, scope: Scope) -> SettingValue:
    return SettingValue(**_columns(setting, settings, scope))


def _columns(setting: Setting, settings: Settings, scope: Scope) -> dict[str, Any]:
    value, origin = settings.find(setting.name, scope)
    return {
        "name": setting.name,
        "value": value,
        "from_": origin,
        "default": setting.default,
        "values": setting.values,
        "scopes": setting.scopes,
        "description": setting.description,
    }
