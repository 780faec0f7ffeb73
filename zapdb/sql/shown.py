"""An answer as text: a table with names and types, in which nothing is a control character."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import pyarrow

from zapdb.errors import SqlError
from zapdb.sql.decode import ColumnKind, decode_column

WIDTH_CHARS_MAX: Final = 60
"""The width of a cell; longer values are cut."""

NUMBERS: Final = ("int", "integer", "double", "float", "decimal", "bignum")
"""The ends of the ids of types whose values are aligned to the right."""


def show_rows(columns: Sequence[str], kinds: Sequence[ColumnKind], held: Any, limit: int) -> str:
    """Return the rows as text; if there are more than `limit`, only the first and last ones."""
    count = held.num_rows
    head = count if count <= limit else (limit + 1) // 2
    tail = 0 if count <= limit else limit - head
    parts = [_cells(columns, kinds, held.slice(0, head))]
    if tail:
        parts.append(_cells(columns, kinds, held.slice(count - tail)))
    heads = [[_clean(name) for name in columns], [_clean(kind["id"]) for kind in kinds]]
    rows = [row for part in parts for row in part]
    widths = [max(map(len, column)) for column in zip(*heads, *rows, strict=True)]
    right = [kind["id"].endswith(NUMBERS) for kind in kinds]
    lines = [_line(row, widths, right) for row in heads]
    lines.append("─┼─".join("─" * width for width in widths))
    for at, part in enumerate(parts):
        if at:
            lines.append(" │ ".join("·".center(width) for width in widths))
        lines += [_line(row, widths, right) for row in part]
    shown = f" ({head + tail:,} shown)" if head + tail < count else ""
    return "\n".join([*lines, f"{count:,} {'row' if count == 1 else 'rows'}{shown}"])


def _line(row: Sequence[str], widths: Sequence[int], right: Sequence[bool]) -> str:
    aligned = zip(row, widths, right, strict=True)
    return " │ ".join(t.rjust(w) if r else t.ljust(w) for t, w, r in aligned).rstrip()


def _cells(columns: Sequence[str], kinds: Sequence[ColumnKind], held: Any) -> list[list[str]]:
    described = zip(columns, kinds, held.combine_chunks().columns, strict=True)
    texts = [_format_column(*column) for column in described]
    return [list(row) for row in zip(*texts, strict=True)]


def _format_column(name: str, kind: ColumnKind, column: Any) -> list[str]:
    chunks = column.chunks
    try:
        values = [value for chunk in chunks for value in decode_column(name, kind, chunk)]
    except SqlError:  # what Python has not
        try:
            values = column.cast(pyarrow.string()).to_pylist()
        except pyarrow.ArrowException:
            values = ["?"] * len(column)
    return [_text(value) for value in values]


def _text(value: Any) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, bytes):
        return _clean(value[:WIDTH_CHARS_MAX].hex())
    return _clean(str(value))


def _clean(text: str) -> str:
    """One line without control characters, no longer than a cell."""
    cut = text if len(text) <= WIDTH_CHARS_MAX else text[: WIDTH_CHARS_MAX - 1] + "…"
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in cut)
