"""The output of commands: text for people, or JSON for programs, on standard output.

On a terminal, text has colours, and tables fit its width. Anywhere else it is plain: the same
words, aligned columns, nothing cut. Control characters are written as escapes, because summaries
and excerpts of files can contain any text.
"""

from __future__ import annotations

import json
import shutil
import sys
import textwrap
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import InitVar, dataclass, is_dataclass
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, TextIO

import typer

from zapdb.answers import to_json_object
from zapdb.errors import InvalidMigration, UsageError, ZapdbError
from zapdb.files import is_standard_output
from zapdb.printing import one_line, printable

if TYPE_CHECKING:
    from rich.console import Console

_HINT: Final = "  hint: "
EXCERPT: Final = "    "
CELL_WIDTH_LEAST: Final = 12
"""The least width of a cell that may be wrapped."""
RULE_WIDTH_MAX: Final = 80
"""The most dashes under the name of a column: long texts, in the last one, do not fill lines."""

Part = str | tuple[str, str]
"""A piece of text, or a piece of text with its style."""


@dataclass
class Output:
    """The standard output of one command; with `--json`, text is dropped."""

    as_json: Annotated[bool, typer.Option("--json", help="Write JSON, for programs.")] = False
    is_taken: InitVar[bool] = False

    def __post_init__(self, is_taken: bool) -> None:
        self._stream = sys.stderr if is_taken else sys.stdout
        self.is_terminal = self._stream.isatty() and not self.as_json

    def beside(self, file: Path | None) -> Output:
        """The output of a command that writes a file: standard error if that is standard output, so
        that nothing else is in it."""
        return Output(self.as_json, file is not None and is_standard_output(file))

    @cached_property
    def console(self) -> Console:
        return _make_console(self._stream)

    def write(self, *parts: Part) -> None:
        """Write a line of text."""
        if self.as_json:
            return
        if self.is_terminal:
            self.console.print(_assemble(parts))
        else:
            print("".join(map(_text_of, parts)), file=self._stream, flush=True)

    def table(
        self,
        columns: Sequence[str],
        rows: Sequence[Sequence[Part]],
        *,
        right: Collection[str] = (),
        solid: Collection[str] = (),
        empty: str = "(none)",
    ) -> None:
        """Write a table, or the text `empty` if it has no rows.

        The columns in `right` are numbers; those and the columns in `solid` are never wrapped.
        """
        if self.as_json:
            return
        if not rows:
            self.write(empty)
        elif not self.is_terminal:
            for line in _align(columns, [list(map(_cell_of, row)) for row in rows], right):
                print(line, file=self._stream)
        elif self.console.width >= _least_width(columns, rows, {*right, *solid}):
            self._write_grid(columns, rows, right, solid)
        else:
            self._write_records(columns, rows)

    def _write_grid(
        self,
        columns: Sequence[str],
        rows: Sequence[Sequence[Part]],
        right: Collection[str],
        solid: Collection[str],
    ) -> None:
        from rich import box
        from rich.table import Table

        grid = Table(
            box=box.SIMPLE_HEAD,
            padding=(0, 1, 0, 0),
            show_edge=False,
            pad_edge=False,
            header_style="bold",
        )
        for column in columns:
            grid.add_column(
                column,
                justify="right" if column in right else "left",
                no_wrap=column in right or column in solid,
                overflow="fold",
            )
        for row in rows:
            grid.add_row(*(_assemble([_as_cell(part)]) for part in row))
        self.console.print(grid)

    def _write_records(self, columns: Sequence[str], rows: Sequence[Sequence[Part]]) -> None:
        """A table too wide for the terminal: each row as lines of its own."""
        width = max(map(len, columns))
        for at, row in enumerate(rows):
            if at:
                self.write()
            for column, part in zip(columns, row, strict=True):
                self.write((f"{column:<{width}}  ", "bold"), _as_cell(part))

    def document(self, value: Any) -> None:
        """The one JSON document of a command."""
        if self.as_json:
            text = json.dumps(value, indent=2, default=as_plain)
            print(text, file=self._stream, flush=True)

    def lines(self, values: Iterable[Any]) -> None:
        """JSON objects, one a line."""
        if self.as_json:
            for value in values:
                text = json.dumps(value, separators=(",", ":"), default=as_plain)
                print(text, file=self._stream, flush=True)


def as_plain(value: Any) -> Any:
    """What is no JSON by itself: dataclasses and rows as objects, times, bytes in hex, paths, and
    errors."""
    if hasattr(value, "__struct_fields__"):  # of msgspec, which not every command needs
        return {name: getattr(value, name) for name in value.__struct_fields__}
    if is_dataclass(value):
        return to_json_object(value)
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, ZapdbError):
        return value.to_json()
    raise TypeError(f"no JSON for {type(value).__name__}")


def report_error(error: ZapdbError, *, as_json: bool, hide: Callable[[str], str] = str) -> None:
    """Write an error to standard error, its texts as `hide` lets them be seen."""
    if as_json:
        print(json.dumps(_map_texts(error.to_json(), hide)), file=sys.stderr)
        return
    texts = [str(error)]
    if isinstance(error, InvalidMigration):
        texts = error.texts()
    for text in texts:
        first, *rest = hide(text).split("\n")
        _write_error_line("error: ", "bold red", first)
        for line in rest:
            if line.startswith(_HINT):
                _write_error_line(_HINT, "bold green", line.removeprefix(_HINT))
            else:
                _write_error_line("", "", line)


def _map_texts(plain: Any, change: Callable[[str], str]) -> Any:
    if isinstance(plain, dict):
        return {key: _map_texts(value, change) for key, value in plain.items()}
    if isinstance(plain, list):
        return [_map_texts(value, change) for value in plain]
    return change(plain) if isinstance(plain, str) else plain


def _write_error_line(label: str, style: str, text: str) -> None:
    """A line of an error; on a terminal it is wrapped, unless it is an excerpt of a file."""
    if sys.stderr.isatty() and not text.startswith(EXCERPT):
        width = shutil.get_terminal_size().columns
        indent = " " * (len(label) or 4)
        text = textwrap.fill(
            label + text,
            width,
            subsequent_indent=indent,
            break_long_words=False,
            break_on_hyphens=False,
        ).removeprefix(label)
    _write_to_stderr([(label, style), text, "\n"])


def print_note(text: str) -> None:
    """A line to people that is no part of the output."""
    _write_to_stderr([(text, "dim"), "\n"])


def ask_user(question: str) -> str | None:
    """Return the user's answer to a question, or None if standard input has ended."""
    _write_to_stderr([(question, "bold"), " "])
    answer = sys.stdin.readline()
    if not sys.stdin.isatty():
        _write_to_stderr(["\n"])  # no user pressed Enter
    return answer.strip() if answer else None


@dataclass(frozen=True)
class Confirmation:
    """Whether the user agrees to what can't be undone."""

    yes: Annotated[bool, typer.Option("--yes", "-y", help="Don't ask.")] = False

    def is_given(self, what: str, question: str, output: Output) -> bool:
        """Ask, unless `--yes` answers; `what` needs it: "a rollback". Says that nothing was changed
        if the user does not agree.

        Raises `UsageError` if nobody can be asked: with `--json`, or without a terminal.
        """
        if self.yes:
            return True
        if output.as_json:
            raise UsageError("--json does not ask for confirmation", hint="add --yes")
        answer = ask_user(f"{question} [y/N]")
        if answer is None:
            raise UsageError(
                f"{what} needs confirmation, and standard input is not a terminal",
                hint="add --yes",
            )
        if answer.lower() in ("y", "yes"):
            return True
        output.write("nothing was changed")
        return False

    def require(self, option: str) -> None:
        """Raise `UsageError` unless `--yes` is given, which an option needs: with it, nothing is
        shown before it is done."""
        if not self.yes:
            raise UsageError(f"{option} does not ask for confirmation", hint="add --yes")


def _write_to_stderr(parts: Sequence[Part]) -> None:
    if sys.stderr.isatty():
        _make_console(sys.stderr).print(_assemble(parts), soft_wrap=True, end="")
    else:
        print("".join(map(_text_of, parts)), end="", file=sys.stderr, flush=True)


def _make_console(stream: TextIO) -> Console:
    from rich.console import Console

    return Console(file=stream, highlight=False, markup=False, emoji=False)


def _assemble(parts: Sequence[Part]) -> Any:
    from rich.text import Text

    return Text.assemble(
        *(
            (printable(part[0]), part[1]) if isinstance(part, tuple) else printable(part)
            for part in parts
        )
    )


def _text_of(part: Part) -> str:
    return printable(part if isinstance(part, str) else part[0])


def _as_cell(part: Part) -> Part:
    return _cell_of(part) if isinstance(part, str) else (_cell_of(part), part[1])


def _cell_of(part: Part) -> str:
    """A cell is one line, whatever it holds."""
    text = part if isinstance(part, str) else part[0]
    return one_line(text, max(1, len(text)))


def _measure(columns: Sequence[str], rows: Sequence[Sequence[Part]]) -> list[int]:
    """The widths of the columns."""
    from rich.cells import cell_len

    texts = [list(columns), *(list(map(_cell_of, row)) for row in rows)]
    return [max(map(cell_len, column)) for column in zip(*texts, strict=True)]


def _least_width(
    columns: Sequence[str], rows: Sequence[Sequence[Part]], solid: Collection[str]
) -> int:
    """The width below which a table would be a heap of shreds."""
    widths = zip(columns, _measure(columns, rows), strict=True)
    cells = [width if name in solid else min(width, CELL_WIDTH_LEAST) for name, width in widths]
    return sum(cells) + 2 * (len(cells) - 1)


def _align(columns: Sequence[str], rows: list[list[str]], right: Collection[str]) -> list[str]:
    """The lines of a plain table, with a rule of dashes under the names of the columns."""
    from rich.cells import cell_len

    widths = _measure(columns, rows)
    rule = ["-" * min(width, RULE_WIDTH_MAX) for width in widths]
    lines = []
    for row in [list(columns), rule, *rows]:
        cells = []
        for name, text, width in zip(columns, row, widths, strict=True):
            blank = " " * (width - cell_len(text))
            cells.append(blank + text if name in right else text + blank)
        lines.append("  ".join(cells).rstrip())
    return lines


def format_count(count: int, what: str) -> str:
    """`1 record`, `20,000 records`."""
    return f"{count:,} {what}" + ("" if count == 1 else "s")


def format_bytes(size: int) -> str:
    """`0 bytes`, `4.1 kB`, `12.3 MB`: powers of a thousand."""
    if size < 1_000:
        return format_count(size, "byte")
    amount, units = size / 1_000, ["kB", "MB", "GB", "TB"]
    while amount >= 999.95 and len(units) > 1:
        amount /= 1_000
        del units[0]
    return f"{amount:,.1f} {units[0]}"


def format_duration(seconds: float) -> str:
    """`12 s`, `3 min 20 s`, `2 h 5 min`, `3 d 4 h`."""
    left, parts = round(seconds), []
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s")):
        amount, left = divmod(left, size)
        if amount:
            parts.append(f"{amount:,} {unit}")
        elif parts:
            break
    return " ".join(parts[:2]) or "0 s"


def format_seconds(seconds: float) -> str:
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"
