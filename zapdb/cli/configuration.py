"""The options that commands share, and what they and ./pyproject.toml say.

An option wins over its environment variable, and that over `[tool.zapdb]` in ./pyproject.toml.
"""

from __future__ import annotations

import re
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Final

import typer

from zapdb.catalog import DEFAULT_TENANT_NAME
from zapdb.errors import Location, UsageError

LimitOption = Annotated[int, typer.Option("--limit", "-n", min=1, help="Show at most this many.")]
CursorOption = Annotated[
    str | None,
    typer.Option("--cursor", help="Continue after the page that printed this cursor."),
]
OrderByOption = Annotated[
    str | None,
    typer.Option(
        "--order-by", metavar="FIELDS", help="Such as `due,-title`; a minus is descending."
    ),
]


PYPROJECT: Final = Path("pyproject.toml")
_KEYS: Final = ("database", "migrations", "tenant")

MigrationsOption = Annotated[
    str | None,
    typer.Option(
        "--migrations",
        "-m",
        metavar="DIRECTORY",
        envvar="ZAPDB_MIGRATIONS",
        help="The migration files; else `migrations` under `[tool.zapdb]` in ./pyproject.toml.",
    ),
]
AllTenantsOption = Annotated[
    bool, typer.Option("--all-tenants", help="Every tenant, instead of one.")
]


def find_database(given: str | None) -> str:
    """Return the address of the database; raises `UsageError` if none is given."""
    found = given or read_pyproject().get("database")
    if found is None:
        raise UsageError(
            "no database was given",
            hint='give --database URL, or set ZAPDB_DATABASE, or write database = "URL" under '
            "[tool.zapdb] in pyproject.toml",
        )
    if found in (":memory:", "sqlite://", "sqlite:///:memory:"):
        raise UsageError(
            "a database in memory ends with its process, so a command cannot use one",
            hint="give a file: sqlite:///path/to/file.db",
        )
    return found


def find_tenant_name(given: str | None) -> str:
    return given or read_pyproject().get("tenant") or DEFAULT_TENANT_NAME


def find_migrations(given: str | None) -> Path:
    """Return the directory of the migrations; raises `UsageError` if none is given."""
    found = find_migrations_if_any(given)
    if found is None:
        raise UsageError(
            "no migration directory was given",
            hint="give --migrations DIRECTORY, or set ZAPDB_MIGRATIONS, or write "
            'migrations = "DIRECTORY" under [tool.zapdb] in pyproject.toml',
        )
    return found


def find_migrations_if_any(given: str | None) -> Path | None:
    found = given or read_pyproject().get("migrations")
    return None if found is None else Path(found)


def read_pyproject(directory: Path = Path()) -> dict[str, str]:
    """Return the `[tool.zapdb]` table of a directory's pyproject.toml, empty if it has none."""
    place = Location(str(directory / PYPROJECT))
    try:
        raw = (directory / PYPROJECT).read_bytes()
    except FileNotFoundError:
        return {}
    try:
        tool = tomllib.loads(raw.decode("utf-8")).get("tool", {})
    except UnicodeDecodeError:
        raise UsageError("pyproject.toml is not UTF-8", location=place) from None
    except tomllib.TOMLDecodeError as error:
        found = re.search(r" \(at line (\d+), column (\d+)\)$", str(error))
        at = place if found is None else replace(place, line=int(found[1]), column=int(found[2]))
        message = str(error)[: found.start()] if found else str(error)
        raise UsageError(f"not TOML: {message}", location=at) from None
    table = tool.get("zapdb", {}) if isinstance(tool, dict) else {}
    if not isinstance(table, dict):
        raise UsageError("[tool.zapdb] must be a table", location=place)
    for key, value in table.items():
        if key not in _KEYS:
            raise UsageError(
                f"unknown key {key!r} under [tool.zapdb]",
                location=place,
                hint=f"available: {', '.join(_KEYS)}",
            )
        if not isinstance(value, str) or not value:
            raise UsageError(f"{key} under [tool.zapdb] must be text", location=place)
    return table
