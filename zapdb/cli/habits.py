"""What other programs call the commands of this one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

HABITS: Final[Mapping[str, str]] = {
    "add": "migrate new",
    "apply": "migrate up",
    "check": "migrate check",
    "current": "migrate status",
    "dbshell": "sql",
    "downgrade": "migrate forget",
    "export": "data export",
    "get": "data get",
    "history": "catalog history",
    "import": "data put",
    "insert": "data put",
    "makemigrations": "migrate new",
    "migrate apply": "migrate up",
    "migrate back": "migrate forget",
    "migrate create": "migrate new",
    "migrate current": "migrate status",
    "migrate down": "migrate forget",
    "migrate downgrade": "migrate forget",
    "migrate history": "catalog history",
    "migrate list": "migrate status",
    "migrate make": "migrate new",
    "migrate revert": "migrate forget",
    "migrate revision": "migrate new",
    "migrate rollback": "migrate forget",
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
    "rollback": "migrate forget",
    "showmigrations": "migrate status",
    "status": "migrate status",
    "tables": "catalog list",
    "tenants": "tenant list",
    "up": "migrate up",
    "upgrade": "migrate up",
}
"""What is typed behind `zapdb`, and the command that does it."""
