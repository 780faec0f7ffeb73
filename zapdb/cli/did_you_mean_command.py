"""What other programs call the commands of this one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

HABITS: Final[Mapping[str, str]] = {
    "add": "migrate new",
    "catalog describe": "catalog show",
    "catalog tables": "catalog list",
    "apply": "migrate up",
    "check": "migrate check",
    "console": "shell",
    "create": "init",
    "current": "migrate status",
    "data add": "data put",
    "data create": "data put",
    "data dump": "data export",
    "data find": "data list",
    "data import": "import",
    "data insert": "data put",
    "data load": "import",
    "data set": "data put",
    "data show": "data get",
    "data update": "data put",
    "dbshell": "sql",
    "describe": "catalog show",
    "diff": "migrate diff",
    "downgrade": "migrate rollback",
    "dumpdata": "export",
    "get": "data get",
    "load": "import",
    "loaddata": "import",
    "insert": "data put",
    "inspectdb": "catalog list",
    "lint": "migrate lint",
    "makemigrations": "migrate new",
    "migrate apply": "migrate up",
    "migrate back": "migrate rollback",
    "migrate create": "migrate new",
    "migrate current": "migrate status",
    "migrate down": "migrate rollback",
    "migrate downgrade": "migrate rollback",
    "migrate history": "catalog revisions",
    "migrate list": "migrate status",
    "migrate make": "migrate new",
    "migrate revert": "migrate rollback",
    "migrate revision": "migrate new",
    "migrate run": "migrate up",
    "migrate show": "migrate graph",
    "migrate sql": "migrate plan",
    "migrate test": "migrate prove",
    "migrate undo": "migrate new --undo",
    "migrate upgrade": "migrate up",
    "migrate validate": "migrate check",
    "migrations": "migrate",
    "nodes": "cluster nodes",
    "plan": "migrate plan",
    "prove": "migrate prove",
    "query": "sql",
    "revision": "migrate new",
    "rollback": "migrate rollback",
    "select": "sql",
    "settings show": "settings list",
    "showmigrations": "migrate status",
    "sqlmigrate": "migrate plan",
    "squash": "migrate squash",
    "squashmigrations": "migrate squash",
    "start": "init",
    "startapp": "init",
    "startproject": "init",
    "status": "migrate status",
    "tables": "catalog list",
    "tenant add": "tenant create",
    "tenant delete": "tenant remove",
    "tenant drop": "tenant remove",
    "tenant new": "tenant create",
    "tenants": "tenant list",
    "up": "migrate up",
    "upgrade": "migrate up",
}
"""What is typed behind `zapdb`, and the command that does it."""

_NO_RECORDS: Final = "`zapdb migrate rollback --to 0` rolls back all migrations, with their records"
_MOVES: Final = (
    "`zapdb migrate up` applies all pending ones, `zapdb migrate rollback --to N` goes back"
)
NOTES: Final[Mapping[str, str]] = {
    "data delete": "`zapdb shell` can delete records: items.delete(key)",
    "data remove": "`zapdb shell` can delete records: items.delete(key)",
    "delete": "`zapdb shell` can delete records: items.delete(key)",
    "drop": _NO_RECORDS,
    "flush": _NO_RECORDS,
    "help": "`zapdb --help` and `zapdb COMMAND --help` show what there is",
    "migrate fake": _MOVES,
    "migrate head": _MOVES,
    "migrate stamp": _MOVES,
    "migrate zero": _MOVES,
    "reset": _NO_RECORDS,
    "version": "`zapdb --version` shows the version",
}
"""What is typed behind `zapdb` that no command does, and what to do instead."""


def find_note(typed: str) -> str:
    """Return what to do instead of a command that there is not; an empty text if it is unknown."""
    group, _, name = typed.partition(" ")
    return _MOVES if group == "migrate" and name[:4].isdigit() else NOTES.get(typed, "")


ALIASES: Final[Mapping[str, str]] = {
    "catalog history": "revisions",
}
"""Second names of commands, which no help shows: what is typed, and the command of the group."""
OPTION_ALIASES: Final[Mapping[str, Mapping[str, str]]] = {
    "catalog revisions": {"--with-snapshot": "--with-schema"},
    "catalog prune": {"--prune-older-than": "--older-than"},
}
"""Second names of options: by command, what is typed, and the option."""
COMMAND_OPTIONS: Final[Mapping[str, tuple[str, str]]] = {
    "catalog history": ("--prune-older-than", "prune"),
}
"""Commands that are other commands of their group if they are given an option."""


def find_alias(group: str, name: str, arguments: Sequence[str]) -> tuple[str, list[str]]:
    """Return the command that is meant by a name, and its arguments with the names of its options;
    both as they are where nothing has a second name."""
    typed = f"{group} {name}".strip()
    option, other = COMMAND_OPTIONS.get(typed, ("", ""))
    if option and any(one.partition("=")[0] == option for one in arguments):
        name = other
    else:
        name = ALIASES.get(typed, name)
    options = OPTION_ALIASES.get(f"{group} {name}".strip(), {})
    named = (one.partition("=") for one in arguments)
    return name, ["".join((options.get(first, first), *rest)) for first, *rest in named]
