"""The options of commands that list something, a page at a time."""

from __future__ import annotations

from typing import Annotated

import typer

LimitOption = Annotated[int, typer.Option("--limit", "-n", min=1, help="Show at most this many.")]
CursorOption = Annotated[
    str | None,
    typer.Option("--cursor", help="Continue after the page that printed this cursor."),
]
OrderByOption = Annotated[
    str | None,
    typer.Option(
        "--order-by", metavar="FIELDS", help="Such as `due,-title`; a minus is descending."
    ),
]
