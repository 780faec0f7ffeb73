"""`zapdb shell`: a Python prompt with an open database."""

from __future__ import annotations

import builtins
import code
import keyword
import sys
import traceback
from typing import Annotated, Any, Final

import typer

import zapdb
from zapdb.cli.connecting import PreviewOptions
from zapdb.database import Database
from zapdb.errors import EXIT_ERROR
from zapdb.release import __version__

OWN: Final = ("db", "zapdb")


def shell_command(
    options: PreviewOptions,
    read_only: Annotated[
        bool, typer.Option("--read-only", help="Refuse writes; read permission is enough.")
    ] = False,
) -> int:
    """Open a Python prompt with the database as `db`, and its tables by their names.

    Piped input is run as one program; the exit status is 1 if it fails.
    """
    with options.open(read_only=read_only) as db:
        names = _make_names(db)
        if not sys.stdin.isatty():
            return _run(sys.stdin.read(), names)
        how = ", a preview" if options.preview else ", read-only" if read_only else ""
        return _interact(_describe(db, options.tenant_name, names, how), names)


def _make_names(db: Database) -> dict[str, Any]:
    """Return the names at the prompt; a table has its name, unless that is a Python name or
    ours."""
    names: dict[str, Any] = {"__name__": "__console__", "__doc__": None, "zapdb": zapdb, "db": db}
    for name in db.tables:
        if not (keyword.iskeyword(name) or hasattr(builtins, name) or name in OWN):
            names[name] = db.table(name)
    return names


def _describe(db: Database, tenant: str, names: dict[str, Any], how: str) -> str:
    there = [name for name in db.tables if name in names and name not in OWN]
    others = [name for name in db.tables if name not in there]
    lines = [
        f"zapdb {__version__}, Python {sys.version.split()[0]}",
        f"database  {db._storage.shown_url}{how}",
        f"tenant    {tenant}, position {db.position:04d}",
        f"tables    {', '.join(there) or '(none)'}",
    ]
    if others:
        lines.append(f"          and {', '.join(others)}, as db.table(name)")
    lines.append("`db` is the database; exit() or Ctrl-D ends.")
    return "\n".join(lines)


def _interact(banner: str, names: dict[str, Any]) -> int:
    try:  # lines can be edited, and names completed, if Python was built with it
        import readline
        import rlcompleter

        readline.set_completer(rlcompleter.Completer(names).complete)
        readline.parse_and_bind("tab: complete")
    except ImportError:
        pass
    try:
        code.InteractiveConsole(names).interact(banner, exitmsg="")
    except SystemExit as ended:
        return _status_of(ended)
    return 0


def _run(text: str, names: dict[str, Any]) -> int:
    try:
        exec(compile(text, "<stdin>", "exec"), names)  # noqa: S102 - a shell runs what the user types
    except SystemExit as ended:
        return _status_of(ended)
    except Exception as error:
        # Without the line of this module.
        below = error.__traceback__.tb_next if error.__traceback__ else None
        traceback.print_exception(type(error), error, below)
        return EXIT_ERROR
    return 0


def _status_of(ended: SystemExit) -> int:
    if ended.code is None or isinstance(ended.code, int):
        return int(ended.code or 0)
    print(ended.code, file=sys.stderr)
    return EXIT_ERROR
