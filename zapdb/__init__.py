"""zapdb: migration-first schemas and a record store for Python applications.

Each name is imported when it is first used, so a program that needs one of them, such as the
command line its version, does not import all the others.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from zapdb import errors as errors
    from zapdb.database import Database as Database
    from zapdb.database import Page as Page
    from zapdb.database import Query as Query
    from zapdb.database import Snapshot as Snapshot
    from zapdb.database import Table as Table
    from zapdb.database import Transaction as Transaction
    from zapdb.database import open as open
    from zapdb.errors import ZapdbError as ZapdbError
    from zapdb.records import Record as Record
    from zapdb.records import asdict as asdict
    from zapdb.records import etag as etag
    from zapdb.records import replace as replace
    from zapdb.records import to_json as to_json
    from zapdb.release import __version__ as __version__
    from zapdb.service.client import connect as connect

_HOMES: Final = {
    "Database": "zapdb.database",
    "Page": "zapdb.database",
    "Query": "zapdb.database",
    "Record": "zapdb.records",
    "Snapshot": "zapdb.database",
    "Table": "zapdb.database",
    "Transaction": "zapdb.database",
    "ZapdbError": "zapdb.errors",
    "__version__": "zapdb.release",
    "asdict": "zapdb.records",
    "connect": "zapdb.service.client",
    "etag": "zapdb.records",
    "open": "zapdb.database",
    "replace": "zapdb.records",
    "to_json": "zapdb.records",
}
"""The module that each name is from."""

_TABLES: Final = "tables are made by migrations (`zapdb init`); `zapdb codegen models` types them"
_OPEN: Final = "zapdb.open(url, migrations=…) opens a database"
_HABITS: Final = {
    "Column": _TABLES,
    "Field": _TABLES,
    "Model": _TABLES,
    "Session": _OPEN,
    "create_engine": _OPEN,
    "field": _TABLES,
    "init": _OPEN,
    "model": _TABLES,
}
"""What other libraries call it, and what does it here."""

__all__ = [
    "Database",
    "Page",
    "Query",
    "Record",
    "Snapshot",
    "Table",
    "Transaction",
    "ZapdbError",
    "__version__",
    "asdict",
    "connect",
    "errors",
    "etag",
    "replace",
    "to_json",
]
# Not `open`: `from zapdb import *` would put it in the place of Python's own.


if not TYPE_CHECKING:  # to a type checker, a module with `__getattr__` has every name

    def __getattr__(name: str) -> Any:
        if name == "errors":
            return import_module("zapdb.errors")
        home = _HOMES.get(name)
        if home is None:
            habit = _HABITS.get(name)
            raise AttributeError(
                f"module 'zapdb' has no attribute {name!r}" + (f": {habit}" if habit else ""),
                name=name,
            )
        found = globals()[name] = getattr(import_module(home), name)
        return found

    def __dir__() -> list[str]:
        names = {name for name in globals() if name.startswith("__")}
        return sorted({*names, *__all__, "open"})
