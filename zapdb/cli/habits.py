"""What other programs call the commands of this one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

HABITS: Final[Mapping[str, str]] = {
    "add": "migrate new",
    "apply": "migrate up",
    "check": "migrate check",
    "create": "init",
    "current": "migrate status",
    "dbshell": "sql",
    "downgrade": "migrate rollback",
    "get": "data get",
    "history": "catalog revisions",
    "load": "import",
    "loaddata": "import",
    "insert": "data put",
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
    "migrate test": "migrate prove",
    "migrate undo": "migrate new --undo",
    "migrate upgrade": "migrate up",
    "migrate validate": "migrate check",
    "migrations": "migrate",
    "nodes": "cluster nodes",
    "query": "sql",
    "revision": "migrate new",
    "rollback": "migrate rollback",
    "showmigrations": "migrate status",
    "start": "init",
    "startapp": "init",
    "startproject": "init",
    "status": "migrate status",
    "tables": "catalog list",
    "tenants": "tenant list",
    "up": "migrate up",
    "upgrade": "migrate up",
}
"""What is typed behind `zapdb`, and the command that does it."""

ALIASES: Final[Mapping[str, str]] = {
    "catalog history": "revisions",
    "migrate forget": "rollback",
}
"""Second names of commands, which no help shows: what is typed, and the command of the group."""
