"""What the end of a statement means: it was no SELECT, is wrong, or went beyond a limit."""

from __future__ import annotations

import re
import signal
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any, Final

from zapdb.errors import SqlError, SqlLimitExceeded, UsageError
from zapdb.past.reading.stored_files import RelationFiles
from zapdb.sql.allowance import StatementLimits
from zapdb.sql.sandbox.wire import BIND

QUOTED: Final = re.compile(r"'[^'\n]*'|\"[^\"\n]*\"")
KIND: Final = re.compile(r"^[A-Z][A-Za-z ]* (Error|Exception): ")
_PLACE: Final = re.compile(r"\n\nLINE (\d+): (.*)\n( *)\^", re.DOTALL)
NO_TABLE: Final = re.compile(r"Table with name (.*) does not exist!", re.DOTALL)
_VIEW: Final = re.compile(r"^Values list(?= \")")
"""What DuckDB calls a table, as it is offered to a statement."""
_FOREIGN_PARAMETER: Final = re.compile(r"%s|%\(\w+\)s|(?<![:\w]):[A-Za-z_]\w*")
"""What stands for a value in statements of psycopg and SQLAlchemy, and in none of DuckDB's."""
_TIMES: Final = (signal.SIGALRM, signal.SIGXCPU)
NO_MEMORY: Final = re.compile(
    r"^(Out of Memory|MemoryError|malloc|std::bad_alloc)|bad_alloc|realloc of size", re.I
)

_FILES_CLOSED: Final = "disabled by configuration"
FILES_HINT: Final = (
    "a statement reads tables, and no files: `zapdb import FILE` loads a file into a table"
)

WRITES: Final = ("INSERT", "UPDATE", "DELETE", "CREATE", "DROP", "ALTER", "MERGE_INTO")
WRITE_HINT: Final = (
    "db.table(name) has insert, update, upsert and delete; migrations make and change tables"
)
OTHER_HINT: Final = "db.sql answers one SELECT"


def explain_kinds(kinds: Sequence[str]) -> UsageError:
    """What is not one SELECT: the kinds of its statements."""
    if len(kinds) != 1:
        return UsageError(
            "db.sql takes exactly one statement",
            statements=len(kinds),
            hint="call db.sql once for each statement",
        )
    return UsageError(
        "db.sql only reads",
        statement=kinds[0].replace("_", " "),
        hint=WRITE_HINT if kinds[0] in WRITES else OTHER_HINT,
    )


def explain_failure(
    failure: Mapping[str, Any],
    statement: str,
    tables: tuple[str, ...],
    files: Mapping[str, RelationFiles],
    allowance: StatementLimits,
) -> SqlError | UsageError:
    """What the process of a statement reported last; `files` are those of the history store that it
    may read, by the relations that it has for them, of which who asked knows nothing."""
    if "kinds" in failure:
        return explain_kinds([str(kind) for kind in failure["kinds"]])
    if "files" in failure:
        return SqlError(
            "the tables of the SQL statement can't be opened",
            problem=_hide_files(str(failure["files"]).partition("\n")[0], files),
            hint="run it again; if it fails again, this is a bug",
        )
    if NO_MEMORY.search(str(failure["text"])) or failure["class"] == "MemoryError":
        return too_much_memory(allowance)
    shown = {**failure, "text": _hide_files(str(failure["text"]), files)}
    return explain_error(shown, statement, tables)


def _hide_files(text: str, files: Mapping[str, RelationFiles]) -> str:
    for relation, held in files.items():
        for name in (*held.paths, relation):
            text = text.replace(name, "a file of the history store")
    return text


def explain_end(ended: Mapping[str, Any], allowance: StatementLimits) -> SqlError:
    """What it means that the process of a statement ended before its answer did."""
    if "error" in ended:
        return SqlError(
            "the SQL statement could not be started",
            problem=ended["error"],
            hint="check the directory spill_to, and the limits of processes and memory",
        )
    if ended.get("signal") in _TIMES:
        return too_late(allowance)
    return SqlLimitExceeded(
        "the process of the SQL statement crashed",
        max_memory=allowance.max_memory,
        hint="the statement needs too much memory or is nested too deeply; simplify it, "
        "or raise max_memory",
    )


def interrupted() -> SqlError:
    return SqlError("the SQL statement was interrupted", hint="run it again")


def too_late(allowance: StatementLimits) -> SqlLimitExceeded:
    return SqlLimitExceeded(
        "the SQL statement exceeded its time limit",
        seconds=allowance.seconds,
        hint="read less, or raise seconds",
    )


def too_much_memory(allowance: StatementLimits) -> SqlLimitExceeded:
    return SqlLimitExceeded(
        "the SQL statement exceeded its memory limit",
        max_memory=allowance.max_memory,
        hint="read or sort less, pass a directory as spill_to, or raise max_memory",
    )


def too_many_rows(allowance: StatementLimits) -> SqlLimitExceeded:
    return SqlLimitExceeded(
        "the SQL statement returned more rows than its limit",
        max_rows=allowance.max_rows,
        hint="add a LIMIT, or raise max_rows",
    )


def explain_error(failure: Mapping[str, Any], statement: str, tables: tuple[str, ...]) -> SqlError:
    """Return an error of DuckDB, as `sandbox.statement` reports it, with its place.

    It contains no values of records. If a table does not exist, it names that table and the
    existing ones.
    """
    text, lead = KIND.sub("", str(failure["text"])), int(failure["lead"])
    context: dict[str, Any] = {}
    match = _PLACE.search(text)
    if match is not None:
        text = text[: match.start()]
        bound = BIND[:lead] + statement
        context = _find_place(bound, int(match[1]), match[2], len(match[3]))
        context["column"] -= lead if context["line"] == 1 else 0
    if failure["about_values"]:
        text = QUOTED.sub("'…'", text)
    problem, *hints = text.strip().split("\n")
    problem = _VIEW.sub("table", problem)
    if failure["about_values"]:
        hints = []  # they show the value
    if _FILES_CLOSED in problem:
        hints = [FILES_HINT]
    if _FOREIGN_PARAMETER.search(QUOTED.sub("''", statement)):
        hints = ["values are ? or $1 in the statement, or $name: db.sql('… = ?', [value])"]
    missing = NO_TABLE.match(problem)
    if missing is not None:
        return _no_table(missing[1], context, tables)
    return SqlError(
        "the SQL statement failed",
        problem=problem,
        **context,
        hint=" ".join(hint.strip() for hint in hints if hint.strip()),
    )


def _no_table(name: str, context: dict[str, Any], tables: tuple[str, ...]) -> SqlError:
    closest = get_close_matches(name.lower(), tables, n=1)
    shown = [table for table in tables if not table.startswith("zapdb_")]
    return SqlError(
        "the SQL statement failed",
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
