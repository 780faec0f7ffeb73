"""`zapdb settings`: options that are stored in the database."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from zapdb.activation import load_tenant_catalog
from zapdb.catalog.settings import (
    EVERYWHERE,
    PROFILE,
    PROFILES,
    SETTINGS,
    Scope,
    Setting,
    Settings,
    find_setting,
    resolve_scope,
)
from zapdb.catalog.stored_settings import read_settings, unset_setting, write_setting
from zapdb.catalog.tenants import find_tenant
from zapdb.cli.connecting import DatabaseOptions
from zapdb.cli.output import Output, print_note
from zapdb.errors import EXIT_ERROR
from zapdb.past.files.wanted_stores import claim_directory, start_wanted_stores
from zapdb.storage import Storage, TransactionMode

NameArgument = Annotated[str, typer.Argument(help="The setting's name.")]


@dataclass(frozen=True, slots=True)
class SettingTarget:
    """The scope that a command's options name, and its description."""

    storage: Storage
    scope: Scope
    description: str

    def read(self) -> Settings:
        with self.storage.transaction(TransactionMode.READ) as connection:
            return read_settings(connection, self.scope.tenant or 0)

    def describe(self, setting: Setting, settings: Settings) -> dict[str, Any]:
        value, origin = settings.find(setting.name, self.scope)
        return {
            "name": setting.name,
            "value": value,
            "from": origin,
            "default": setting.default,
            "values": list(setting.values),
            "scopes": list(setting.scopes),
            "description": setting.description,
        }


@dataclass(frozen=True)
class ScopeOptions(DatabaseOptions):
    """The database, and the part of it that a setting is for."""

    tenant: Annotated[
        str | None, typer.Option("--tenant", metavar="NAME", help="Only for this tenant.")
    ] = None
    table: Annotated[
        str | None, typer.Option("--table", metavar="NAME", help="Only for this table.")
    ] = None
    field: Annotated[
        str | None,
        typer.Option("--field", metavar="NAME", help="Only for this field of the table."),
    ] = None
    index: Annotated[
        str | None,
        typer.Option("--index", metavar="NAME", help="Only for this index of the table."),
    ] = None

    @contextmanager
    def target(self) -> Iterator[SettingTarget]:
        with self.opened() as (storage, catalog):
            schema, number = catalog.chain.schema_at(catalog.chain.end), None
            if self.tenant is not None:
                with storage.transaction(TransactionMode.READ) as connection:
                    number = find_tenant(connection, self.tenant).number
                    catalog = load_tenant_catalog(connection, number, catalog)
                schema = catalog.chain.schema_at(catalog.position)
            names = {name: getattr(self, name) for name in ("tenant", "table", "field", "index")}
            description = "".join(f" of {kind} {name}" for kind, name in names.items() if name)
            scope = resolve_scope(schema, number, self.table, self.field, self.index)
            yield SettingTarget(storage, scope, description)


def settings_list_command(options: ScopeOptions, output: Output) -> None:
    """Show every setting, its value, where it is set, and its description.

    The narrowest scope wins: index, its fields, table, tenant, database, then the profile, then the
    default.

    With `--json`: `{settings: [{name, value, from, default, values, scopes, description}]}`; `from`
    is `index`, `field`, `table`, `tenant`, `database`, `profile` or `default`.
    """
    with options.target() as place:
        settings = place.read()
    found = [place.describe(setting, settings) for setting in SETTINGS.values()]
    output.table(
        ("setting", "value", "set for", "allowed", "description"),
        [
            (
                one["name"],
                (one["value"], "bold"),
                one["from"],
                ", ".join(one["values"]),
                one["description"],
            )
            for one in found
        ],
    )
    output.document({"settings": found})


def settings_get_command(name: NameArgument, options: ScopeOptions, output: Output) -> None:
    """Print the value of a setting.

    With `--json`: `{name, value, from, default, values, scopes, description}`.
    """
    setting = find_setting(name)
    with options.target() as place:
        found = place.describe(setting, place.read())
    output.write(found["value"])
    output.document(found)


def settings_set_command(
    name: NameArgument,
    value: Annotated[str, typer.Argument(help="The new value.")],
    options: ScopeOptions,
    output: Output,
) -> int:
    """Change a setting for the whole database, or for a tenant, table, field or index.

    Running processes see the change within about a second.

    `history_store` begins a history store for each tenant. One that refuses is named, the others
    get theirs, and the exit status is 1; `zapdb history run --all-tenants` tries again.

    With `--json`: `{name, value, from, default, values, scopes, description, seq, refused:
    [{tenant, error}]}`; a process whose catalog cache has the seq sees the change.
    """
    setting = find_setting(name)
    with options.target() as place:
        return _write(place, setting, value, output)


def settings_unset_command(name: NameArgument, options: ScopeOptions, output: Output) -> None:
    """Unset a setting, so that the value of a wider scope, the profile or the default holds again.

    Unsetting `history_store` stops no store: `zapdb history stop --all-tenants` does.

    With `--json`: `{name, value, from, default, values, scopes, description, seq}`.
    """
    setting = find_setting(name)
    with options.target() as place:
        with place.storage.transaction(setting.mode) as connection:
            seq = unset_setting(connection, name, place.scope)
        _report(place, setting, output, {"seq": seq})


def settings_profile_command(
    profile: Annotated[str, typer.Argument(help="production or development.")],
    options: DatabaseOptions,
    output: Output,
) -> None:
    """Choose the profile: the values of settings that are not set.

    In `production`, open databases convert stale records in the background. In `development`, the
    default, a record is converted when it is written, so that rolling back a migration stays cheap.

    With `--json`: as `settings set`.
    """
    with ScopeOptions(options.database).target() as place:
        _write(place, SETTINGS[PROFILE], profile, output)
    for name, value in PROFILES[profile].items():
        output.write(f"{name} is ", (value, "bold"), ", unless it is set")


def _write(place: SettingTarget, setting: Setting, value: str, output: Output) -> int:
    if setting.takes_directory and place.scope == EVERYWHERE:
        claim_directory(place.storage, value)
    with place.storage.transaction(setting.mode) as connection:
        seq = write_setting(connection, setting.name, value, place.scope)
    refused = start_wanted_stores(place.storage) if setting.takes_directory else {}
    for name, error in refused.items():
        print_note(f"{name}: {error}")
    told = [{"tenant": name, "error": error.message} for name, error in refused.items()]
    _report(place, setting, output, {"seq": seq, "refused": told})
    return EXIT_ERROR if refused else 0


def _report(place: SettingTarget, setting: Setting, output: Output, also: dict[str, Any]) -> None:
    found = place.describe(setting, place.read())
    output.write(f"{setting.name}{place.description} is ", (found["value"], "bold"))
    output.document(found | also)
