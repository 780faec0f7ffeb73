"""The DuckDB of this process, which holds nothing: what it may not do, and what its errors mean.

One instance serves all databases and threads: each statement has a cursor of its own, and with it
tables of its own. With one thread DuckDB has no workers: who asks a statement reads for it, so that
the thread's snapshot or transaction is what is read. Files, network and extensions are out of
reach, and no statement can change that (`lock_configuration`).
"""

from __future__ import annotations

import os
import re
import threading
from typing import Any, Final

import duckdb

from zapdb.errors import SqlError, UsageError

CONFIGURATION: Final[dict[str, str | bool | int | float | list[str]]] = {
    "threads": 1,
    "enable_external_access": "false",
    "allow_community_extensions": "false",
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "python_enable_replacements": "false",  # variables of the program are no tables
}
READS: Final = ("SELECT", "EXPLAIN")
EXPLAIN: Final = re.compile(r"\s*explain\b(\s+analyze\b)?(\s*\([^)]*\))?", re.IGNORECASE)
BIND: Final = "EXPLAIN "
"""Before a statement: it is looked at, and not answered."""
ABOUT_VALUES: Final = (duckdb.DataError, duckdb.InvalidInputException)
"""Errors whose message may hold a value of a record."""
QUOTED: Final = re.compile(r"'[^'\n]*'|\"[^\"\n]*\"")
KIND: Final = re.compile(r"^[A-Z][A-Za-z ]* (Error|Exception): ")
PLACE: Final = re.compile(r"\n\nLINE (\d+): (.*)\n( *)\^", re.DOTALL)
NO_TABLE: Final = re.compile(r"Table with name (.*) does not exist!", re.DOTALL)

WRITE_HINT: Final = (
    "db.table(name) has insert, update, upsert and delete; migrations make and change tables"
)
OTHER_HINT: Final = "db.sql answers one SELECT"

_lock = threading.Lock()
_instances: dict[int, Any] = {}
"""By process id: what was opened before a fork is not used after it."""


def open_cursor() -> Any:
    """A connection of its own to the one instance, to be closed after use."""
    with _lock:
        instance = _instances.get(os.getpid())
        if instance is None:
            instance = duckdb.connect(":memory:", config=CONFIGURATION)
            instance.execute("SET GLOBAL TimeZone = 'UTC'")
            instance.execute("SET lock_configuration = true")
            _instances[os.getpid()] = instance
        return instance.cursor()


def check_statement(statement: str) -> None:
    """Raises `SqlError` for what can't be read, `UsageError` for what is not one SELECT."""
    kinds = _kinds_of(statement)
    if len(kinds) != 1:
        raise UsageError(
            "db.sql takes one statement", statements=len(kinds), hint="call it once for each"
        )
    (kind,) = kinds
    if kind == "EXPLAIN":
        match = EXPLAIN.match(statement)
        kind, *_ = (_kinds_of(statement[match.end() :]) if match else []) or [kind]
    if kind != "SELECT":
        is_write = kind in ("INSERT", "UPDATE", "DELETE", "CREATE", "DROP", "ALTER", "MERGE_INTO")
        raise UsageError(
            "db.sql only reads",
            statement=kind.replace("_", " "),
            hint=WRITE_HINT if is_write else OTHER_HINT,
        )


def _kinds_of(statement: str) -> list[str]:
    try:
        found = duckdb.extract_statements(statement)
    except duckdb.Error as error:
        raise explain_error(error, statement) from None
    return [str(part.type).rpartition(".")[2] for part in found]


def has_place(error: Exception) -> bool:
    """Whether an error says where in the statement it is."""
    return PLACE.search(str(error)) is not None


def explain_error(
    error: Exception, statement: str, tables: tuple[str, ...] = (), *, lead: int = 0
) -> SqlError:
    """What an error of DuckDB says, with its place in the statement after so many characters.

    Of values of records it says nothing; a table that is not there is told by `tables`, those that
    are.
    """
    text = KIND.sub("", str(error))
    context: dict[str, Any] = {}
    match = PLACE.search(text)
    if match is not None:
        text = text[: match.start()]
        context = _find_place(statement, int(match[1]), match[2], len(match[3]))
        context["column"] -= lead if context["line"] == 1 else 0
    if isinstance(error, ABOUT_VALUES):
        text = QUOTED.sub("'…'", text)
    problem, *hints = text.strip().split("\n")
    missing = NO_TABLE.match(problem)
    if missing is not None:
        return _no_table(missing[1], context, tables)
    return SqlError(
        "the SQL statement can't be answered",
        problem=problem,
        **context,
        hint=" ".join(hint.strip() for hint in hints if hint.strip()),
    )


def _no_table(name: str, context: dict[str, Any], tables: tuple[str, ...]) -> SqlError:
    from difflib import get_close_matches

    closest = get_close_matches(name.lower(), tables, n=1)
    shown = [table for table in tables if not table.startswith("zapdb_")]
    return SqlError(
        "the SQL statement can't be answered",
        problem=f"no such table: {name}",
        **context,
        tables=", ".join(shown) or "(none)",
        hint=f"did you mean {closest[0]}?" if closest else "",
    )


def _find_place(statement: str, line: int, excerpt: str, caret: int) -> dict[str, Any]:
    """Line and column, from 1; DuckDB shows a part of a long line, between dots."""
    lines = statement.splitlines()
    whole = lines[line - 1] if 0 < line <= len(lines) else ""
    at = caret - len(f"LINE {line}: ")
    if excerpt.startswith("..."):
        cut = excerpt[3:].removesuffix("...")
        at += whole.find(cut) - 3
    return {"line": line, "column": at + 1}
