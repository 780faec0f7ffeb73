"""`zapdb init`: starting a project."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Annotated, Final

import typer

from zapdb.cli.configuration import PYPROJECT, find_database, read_pyproject
from zapdb.cli.output import Output
from zapdb.cli.scaffold import SCHEMA_FILE, create_migration
from zapdb.errors import UsageError
from zapdb.files import replace_text_file, require_path
from zapdb.migrations import load_directory
from zapdb.migrations.directory import FILE
from zapdb.migrations.lockfile import lock_lines, write_lock
from zapdb.storage.addresses import find_engine, has_password, read_address

_MIGRATIONS: Final = "migrations"
_NAMELESS: Final = "app"
GITIGNORE: Final = Path(".gitignore")
FIRST_SUMMARY: Final = "Notes"
FIRST_CHANGES: Final = """\
- create_table:
    table: notes
    key: [id]
    fields:
      - {name: id, type: uuid, generated: true}
      - {name: text, type: string}
      - {name: is_done, type: boolean, default: false}
"""


def init_command(
    output: Output,
    directory: Annotated[
        Path,
        typer.Argument(
            metavar="DIRECTORY",
            file_okay=False,
            help="The project's directory; it is created if it is missing.",
        ),
    ] = Path(),
    database: Annotated[
        str | None,
        typer.Option(
            "--database",
            "-d",
            metavar="URL",
            help="The database; by default a SQLite file with the directory's name.",
        ),
    ] = None,
) -> None:
    """Start a project: settings in pyproject.toml, and a first migration to edit.

    Existing files are kept: `[tool.zapdb]` is added to a pyproject.toml without it, the files of a
    SQLite database to a .gitignore without them, and a directory with migrations gets no further
    one.

    With `--json`: `{created, kept}`, lists of paths.
    """
    url = f"sqlite:///{_name_of(directory)}.db" if database is None else database
    address = read_address(url)
    find_engine(address)
    find_database(url)  # refuses one in memory
    if has_password(address):
        raise UsageError(
            "an address with a password must not be written to a file",
            hint="leave out --database, and set the environment variable ZAPDB_DATABASE instead",
        )
    settings = read_pyproject(directory)
    if database is not None and settings and settings.get("database") != database:
        raise UsageError(
            "pyproject.toml has other settings for zapdb, and init keeps them",
            hint=f"write database = {json.dumps(url)} under [tool.zapdb], or leave out --database",
        )
    require_path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    created: list[Path] = []
    kept: list[Path] = []
    (created if _write_settings(directory / PYPROJECT, url) else kept).append(PYPROJECT)
    database_file = _file_in(directory, read_pyproject(directory).get("database") or url)
    if database_file is not None:
        (created if _ignore(directory / GITIGNORE, database_file) else kept).append(GITIGNORE)
    migrations = directory / (read_pyproject(directory).get("migrations") or _MIGRATIONS)
    if any(migrations.glob("*.yaml")):
        kept.append(migrations.relative_to(directory))
    else:
        path = create_migration(migrations, FIRST_SUMMARY, FIRST_CHANGES)
        write_lock(migrations, lock_lines(load_directory(migrations)))
        files = (path, migrations / FILE, migrations / SCHEMA_FILE)
        created += [file.relative_to(directory) for file in files]
    for file in created:
        output.write(("created", "green"), f" {directory / file}")
    for file in kept:
        output.write(f"kept    {directory / file}")
    where = "" if directory == Path() else f"`cd {shlex.quote(str(directory))}`, then "
    shown = read_pyproject(directory).get("database") or url
    opening = f"{json.dumps(shown)}, migrations={json.dumps(migrations.name)}"
    output.write(f"next: {where}`zapdb migrate up`; in Python, zapdb.open({opening})")
    output.write('later: `zapdb migrate new "What changes"` for each change')
    output.document({"created": list(map(str, created)), "kept": list(map(str, kept))})


def _file_in(directory: Path, url: str) -> Path | None:
    """Return the SQLite file of an address, relative to the directory that it lies in."""
    address = read_address(url)
    if find_engine(address) != "sqlite" or not address.database:
        return None
    path = (directory / address.database).resolve()
    root = directory.resolve()
    return path.relative_to(root) if path.is_relative_to(root) else None


def _ignore(path: Path, database: Path) -> bool:
    """Keep a SQLite file, and those that SQLite writes beside it, out of version control.

    Returns False if the file's lines have them already.
    """
    before = path.read_text(encoding="utf-8") if path.exists() else ""
    line = f"/{database.as_posix()}*"
    if line in before.splitlines():
        return False
    gap = "\n" if before and not before.endswith("\n") else ""
    replace_text_file(path, f"{before}{gap}{line}\n")
    return True


def _name_of(directory: Path) -> str:
    name = re.sub(r"[^a-z0-9_]+", "_", directory.resolve().name.lower()).strip("_")
    return name or _NAMELESS


def _write_settings(path: Path, url: str) -> bool:
    """Add the section to the file, or create the file; returns False if it had one."""
    if path.exists() and read_pyproject(path.parent):
        return False
    before = path.read_text(encoding="utf-8") if path.exists() else ""
    gap = "\n" if before and not before.endswith("\n") else ""
    gap += "\n" * bool(before)
    section = f'[tool.zapdb]\ndatabase = {json.dumps(url)}\nmigrations = "{_MIGRATIONS}"\n'
    replace_text_file(path, before + gap + section)
    return True
