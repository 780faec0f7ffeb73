"""`zapdb sql`: the result of one SELECT."""

from __future__ import annotations

import base64
import datetime
import math
import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from zapdb.cli.connecting import PreviewOptions
from zapdb.cli.output import Output, format_count
from zapdb.cli.record_changes import note_waiting
from zapdb.control.changes import look_at_log
from zapdb.errors import InvalidValue, SqlError, UsageError
from zapdb.limits import SQL_MEMORY_SIZE_BYTES, SQL_ROWS, SQL_ROWS_SHOWN, SQL_SECONDS

if TYPE_CHECKING:
    from zapdb.sql import Result

MIB = 1024 * 1024

ShowOption = Annotated[int, typer.Option("--show", metavar="ROWS", help="How many rows to print.")]


def sql_command(
    statement: Annotated[
        str,
        typer.Argument(help="One SELECT; `-` reads it from standard input."),
    ],
    options: PreviewOptions,
    output: Output,
    seconds: Annotated[
        float, typer.Option("--seconds", help="The time limit of the statement.")
    ] = SQL_SECONDS,
    max_memory: Annotated[
        int, typer.Option("--max-memory", metavar="MIB", help="The memory limit in MiB.")
    ] = SQL_MEMORY_SIZE_BYTES // MIB,
    max_rows: Annotated[
        int, typer.Option("--max-rows", help="The limit of rows in the result.")
    ] = SQL_ROWS,
    spill_to: Annotated[
        Path | None,
        typer.Option(
            "--spill-to",
            metavar="DIRECTORY",
            help="The directory for data that exceed the memory; without it, the statement fails.",
        ),
    ] = None,
    show_rows: ShowOption = SQL_ROWS_SHOWN,
    compare: Annotated[
        bool,
        typer.Option(
            "--compare",
            help="With --preview: the rows that the statement has now and not then, and the "
            "reverse.",
        ),
    ] = False,
) -> None:
    """Run one SQL SELECT over the tables and the catalog, read-only.

    With `--preview`, the tables are as the migration files would make them, and the catalog can't
    be read; `--compare` shows which rows of the answer differ from those of now.

    With `--json`: `{columns: [name], types: [type], rows: [[value]]}`, with all rows. Decimals,
    times, UUIDs and integers beyond 53 bits are strings; bytes are Base64. With `--compare`:
    `{columns, types, removed: [[value]], added: [[value]]}`.
    """
    text = sys.stdin.read() if statement == "-" else statement

    def run(database: PreviewOptions) -> Result:
        with database.open(read_only=True) as db:
            found = db.sql(
                text,
                seconds=seconds,
                max_memory=max_memory * MIB,
                max_rows=max_rows,
                spill_to=spill_to,
            )
            if "zapdb_audit" in text.lower():
                note_waiting(look_at_log(db))
        return found

    if not compare:
        print_result(run(options), show_rows, output)
        return
    if not options.preview:
        raise UsageError("there is nothing to compare with", hint="add --preview")
    after = run(options)
    try:
        before = run(replace(options, preview=False))
    except SqlError as error:
        raise UsageError(
            "the statement runs on the preview, but not on the tables as they are",
            problem=error.context.get("problem", error.message),
            hint="leave out --compare, or read what both have",
        ) from None
    _print_difference(before, after, show_rows, output)


def _print_difference(before: Result, after: Result, show_rows: int, output: Output) -> None:
    """Print the rows that only one of two answers has."""
    if (before.columns, _plain_types(before)) != (after.columns, _plain_types(after)):
        raise UsageError(
            "the two answers have other columns, so their rows can't be compared",
            now=_list_columns(before),
            then=_list_columns(after),
            hint="name columns that both have, and cast those whose type changes",
        )
    _check_shown(show_rows)
    kinds = (
        [[_plain(value) for value in row] for row in before],
        [[_plain(value) for value in row] for row in after],
    )
    removed, added = _subtract(*kinds), _subtract(*reversed(kinds))
    output.document(
        {"columns": before.columns, "types": before.types, "removed": removed, "added": added}
    )
    marked = [("-", row) for row in removed] + [("+", row) for row in added]
    rows = [[mark, *(_as_text(value) for value in row)] for mark, row in marked[:show_rows]]
    if marked:
        output.table(["", *before.columns], rows)
    if len(marked) > show_rows:
        output.write(f"… and {format_count(len(marked) - show_rows, 'row')} more")
    told = f"{format_count(len(removed), 'row')} removed, {format_count(len(added), 'row')} added"
    output.write(told if marked else "the answer is the same")


def _plain_types(result: Result) -> list[str]:
    """Enums are texts: their members may change, and their values stay."""
    return ["VARCHAR" if kind.startswith("ENUM") else kind for kind in result.types]


def _list_columns(result: Result) -> str:
    named = zip(result.columns, result.types, strict=True)
    return ", ".join(f"{name} {kind}" for name, kind in named)


def _subtract(rows: list[list[Any]], others: list[list[Any]]) -> list[list[Any]]:
    """The rows that are not among the others, as often as there are more of them."""
    left = Counter(map(repr, others))
    found = []
    for row in rows:
        name = repr(row)
        if left[name]:
            left[name] -= 1
        else:
            found.append(row)
    return found


def _as_text(value: Any) -> str:
    return "" if value is None else str(value)


def print_result(result: Result, show_rows: int, output: Output) -> None:
    """Print the first rows for people, or all as JSON."""
    _check_shown(show_rows)
    if not output.as_json:
        result.show(show_rows)
        return
    rows = [[_plain(value) for value in row] for row in result]
    output.document({"columns": result.columns, "types": result.types, "rows": rows})


def _check_shown(show_rows: int) -> None:
    if show_rows < 0:
        raise InvalidValue.of("--show", "a number of rows from 0", show_rows)


def _plain(value: Any) -> Any:
    """Return a value as plain JSON data."""
    match value:
        case None | bool() | str():
            return value
        case int():
            return value if abs(value) < 1 << 53 else str(value)
        case float():
            return value if math.isfinite(value) else str(value)
        case datetime.date() | datetime.time():
            return value.isoformat()
        case bytes():
            return base64.b64encode(value).decode()
        case Decimal():
            return str(value)
        case Mapping():
            return {str(key): _plain(part) for key, part in value.items()}
        case list() | tuple():
            return [_plain(part) for part in value]
    return str(value)
