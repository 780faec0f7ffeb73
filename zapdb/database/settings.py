"""Settings: stored in the database, never part of a digest (rule 14)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from zapdb.catalog import rows
from zapdb.errors import UnknownName, UsageError
from zapdb.storage import Connection


@dataclass(frozen=True, slots=True)
class Setting:
    name: str
    choices: tuple[str, ...]
    default: str
    says: str


SETTINGS: Final[dict[str, Setting]] = {
    setting.name: setting
    for setting in (
        Setting(
            "on_read",
            ("leave", "write_back"),
            "leave",
            "What becomes of a stale record that was read: it stays as it is until it is written "
            "or converted by a job, or its converted form is written back at once.",
        ),
    )
}


def _find(name: str) -> Setting:
    if name not in SETTINGS:
        raise UnknownName("no such setting", setting=name, settings=", ".join(SETTINGS))
    return SETTINGS[name]


def read_setting(connection: Connection, name: str) -> str:
    setting = _find(name)
    row: dict[str, Any] | None = rows.get(connection, "setting", name)
    return setting.default if row is None else str(row["value"])


def write_setting(connection: Connection, name: str, value: str) -> None:
    """Inside a CATALOG transaction; raises `UsageError` for a value that is none of its choices."""
    setting = _find(name)
    if value not in setting.choices:
        raise UsageError(
            "the setting has no such value",
            setting=name,
            value=value,
            values=", ".join(setting.choices),
        )
    rows.put(connection, "setting", name, {"value": value})
