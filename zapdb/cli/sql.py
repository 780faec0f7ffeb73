"""`zapdb sql`: the result of one SELECT."""

from __future__ import annotations

import base64
import datetime
import math
import sys
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from zapdb.cli.connecting import TenantOptions
from zapdb.cli.output import Output
from zapdb.cli.record_changes import note_waiting
from zapdb.control.changes import look_at_log
from zapdb.errors import InvalidValue
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
    options: TenantOptions,
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
) -> None:
    """Run one SQL SELECT over the tables and the catalog, read-only.

    With `--json`: `{columns: [name], types: [type], rows: [[value]]}`, with all rows. Decimals,
    times, UUIDs and integers beyond 53 bits are strings; bytes are Base64.
    """
    text = sys.stdin.read() if statement == "-" else statement
    with options.open(read_only=True) as db:
        result = db.sql(
            text,
            seconds=seconds,
            max_memory=max_memory * MIB,
            max_rows=max_rows,
            spill_to=spill_to,
        )
        if "zapdb_audit" in text.lower():
            note_waiting(look_at_log(db))
    print_result(result, show_rows, output)


def print_result(result: Result, show_rows: int, output: Output) -> None:
    """Print the first rows for people, or all as JSON."""
    if show_rows < 0:
        raise InvalidValue.of("--show", "a number of rows from 0", show_rows)
    if not output.as_json:
        result.show(show_rows)
        return
    rows = [[_plain(value) for value in row] for row in result]
    output.document({"columns": result.columns, "types": result.types, "rows": rows})


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
