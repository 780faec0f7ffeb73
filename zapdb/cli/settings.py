"""`zapdb settings`: what is set in the database rather than in a file."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from zapdb.cli.configuration import DatabaseOption, JsonOption
from zapdb.cli.opening import opened
from zapdb.cli.output import Output
from zapdb.database.settings import SETTINGS, Setting, read_setting, write_setting
from zapdb.storage import Mode

NameArgument = Annotated[str, typer.Argument(help="The setting's name.")]

group = typer.Typer(name="settings", help="Read and change settings of the database.")


@group.command("list")
def list_settings(database: DatabaseOption = None, as_json: JsonOption = False) -> None:
    """Show every setting, its value, and what it means.

    With `--json`: `{settings: [{name, value, default, choices, says}]}`.
    """
    output = Output(as_json)
    with opened(database) as (storage, _), storage.transaction(Mode.READ) as connection:
        values = {name: read_setting(connection, name) for name in SETTINGS}
    output.table(
        ("setting", "value", "choices", "meaning"),
        [
            (name, (values[name], "bold"), ", ".join(setting.choices), setting.says)
            for name, setting in SETTINGS.items()
        ],
    )
    settings = [_to_json(setting, values[name]) for name, setting in SETTINGS.items()]
    output.document({"settings": settings})


@group.command("get")
def get_setting(
    name: NameArgument, database: DatabaseOption = None, as_json: JsonOption = False
) -> None:
    """Print the value of a setting.

    With `--json`: `{name, value, default, choices, says}`.
    """
    output = Output(as_json)
    with opened(database) as (storage, _):
        value = read_setting(storage.connection(), name)
    output.write(value)
    output.document(_to_json(SETTINGS[name], value))


@group.command("set")
def set_setting(
    name: NameArgument,
    value: Annotated[str, typer.Argument(help="The new value.")],
    database: DatabaseOption = None,
    as_json: JsonOption = False,
) -> None:
    """Change a setting.

    With `--json`: `{name, value, default, choices, says}`.
    """
    output = Output(as_json)
    with opened(database) as (storage, _), storage.transaction(Mode.CATALOG) as connection:
        write_setting(connection, name, value)
    output.write(f"{name} is ", (value, "bold"))
    output.document(_to_json(SETTINGS[name], value))


def _to_json(setting: Setting, value: str) -> dict[str, Any]:
    return {
        "name": setting.name,
        "value": value,
        "default": setting.default,
        "choices": list(setting.choices),
        "says": setting.says,
    }
