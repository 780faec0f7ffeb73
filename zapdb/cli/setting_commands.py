"""`zapdb settings`: options that are stored in the database."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from zapdb.catalog.settings import PROFILE, PROFILES, find_setting
from zapdb.cli.configuration import find_tenant_name
from zapdb.cli.connecting import KeyedDatabaseOptions, ServedDatabaseOptions
from zapdb.cli.output import Output, print_note
from zapdb.control import settings
from zapdb.control.settings import SettingScope, SettingUnset
from zapdb.errors import EXIT_ERROR

NameArgument = Annotated[str, typer.Argument(help="The setting's name.")]


@dataclass(frozen=True)
class ScopeOptions(ServedDatabaseOptions):
    """The database, which may be behind a service, and the part of it that a setting is for."""

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

    @property
    def tenant_name(self) -> str:
        return find_tenant_name(self.tenant)

    @property
    def scope(self) -> SettingScope:
        return SettingScope(self.tenant is not None, self.table, self.field, self.index)

    @property
    def description(self) -> str:
        names = {name: getattr(self, name) for name in ("tenant", "table", "field", "index")}
        return "".join(f" of {kind} {name}" for kind, name in names.items() if name)


@dataclass(frozen=True)
class KeyedScopeOptions(KeyedDatabaseOptions, ScopeOptions):
    """The same for a command that changes something."""


def settings_list_command(options: ScopeOptions, output: Output) -> None:
    """Show every setting, its value, where it is set, and its description.

    The narrowest scope wins: index, its fields, table, tenant, database, then the profile, then the
    default.

    With `--json`: `{settings: [{name, value, from, default, values, scopes, description}]}`; `from`
    is `index`, `field`, `table`, `tenant`, `database`, `profile` or `default`.
    """
    with options.control() as control:
        found = control.call(settings.list_settings, options.scope)
    output.table(
        ("setting", "value", "set for", "allowed", "description"),
        [
            (one.name, (one.value, "bold"), one.from_, ", ".join(one.values), one.description)
            for one in found.settings
        ],
    )
    output.document(found)


def settings_get_command(name: NameArgument, options: ScopeOptions, output: Output) -> None:
    """Print the value of a setting.

    With `--json`: `{name, value, from, default, values, scopes, description}`.
    """
    find_setting(name)
    with options.control() as control:
        found = control.call(settings.get_setting, name, options.scope)
    output.write(found.value)
    output.document(found)


def settings_set_command(
    name: NameArgument,
    value: Annotated[str, typer.Argument(help="The new value.")],
    options: KeyedScopeOptions,
    output: Output,
) -> int:
    """Change a setting for the whole database, or for a tenant, table, field or index.

    Running processes see the change within about a second.

    `history_store` begins a history store for each tenant, and is set where the database is, not
    through a service. One that refuses is named, the others
    get theirs, and the exit status is 1; `zapdb history run --all-tenants` tries again.

    With `--json`: `{name, value, from, default, values, scopes, description, seq, refused:
    [{tenant, error}]}`; a process whose catalog cache has the seq sees the change.
    """
    return _set(name, value, options, output)


def settings_unset_command(name: NameArgument, options: KeyedScopeOptions, output: Output) -> None:
    """Unset a setting, so that the value of a wider scope, the profile or the default holds again.

    Unsetting `history_store` stops no store: `zapdb history stop --all-tenants` does.

    With `--json`: `{name, value, from, default, values, scopes, description, seq}`.
    """
    find_setting(name)
    with options.control() as control:
        done = control.call(settings.unset_setting, name, options.scope)
    _report(done, options, output)


def settings_profile_command(
    profile: Annotated[str, typer.Argument(help="production or development.")],
    options: KeyedDatabaseOptions,
    output: Output,
) -> None:
    """Choose the profile: the values of settings that are not set.

    In `production`, open databases convert stale records in the background, an hour after a schema
    change. In `development`, the default, a record is converted when it is written. Until then a
    rollback finds it as it was.

    With `--json`: as `settings set`.
    """
    _set(PROFILE, profile, KeyedScopeOptions(**vars(options)), output)
    for name, value in PROFILES[profile].items():
        output.write(f"{name} is ", (value, "bold"), ", unless it is set")


def _set(name: str, value: str, options: KeyedScopeOptions, output: Output) -> int:
    find_setting(name)
    with options.control() as control:
        done = control.call(settings.set_setting, name, value, options.scope)
    for one in done.refused:
        print_note(f"{one.tenant}: {one.text}")
    _report(done, options, output)
    return EXIT_ERROR if done.refused else 0


def _report(done: SettingUnset, options: ScopeOptions, output: Output) -> None:
    output.write(f"{done.name}{options.description} is ", (done.value, "bold"))
    output.document(done)
