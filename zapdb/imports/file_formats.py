"""The formats of files of rows, in the order in which they are asked whether a file is theirs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal

from zapdb.errors import UsageError
from zapdb.imports.csv_rows import CsvSource
from zapdb.imports.given_file import GivenFile
from zapdb.imports.json_rows import JsonSource, NdjsonSource
from zapdb.imports.row import RowSource
from zapdb.schema import TableSchema

FormatName = Literal["csv", "ndjson", "json", "parquet", "arrow"]


@dataclass(frozen=True, slots=True)
class FileFormat:
    """`open` gives the rows of a file for a table; nothing is read before they are asked for."""

    name: str
    suffixes: tuple[str, ...]
    open: Callable[[GivenFile, TableSchema], RowSource]
    is_of_stdin: bool = False
    """Whether it is the format of standard input, unless that is said otherwise."""

    def takes(self, path: str, *, is_stdin: bool) -> bool:
        """Whether a file looks like this format, by its name."""
        return path.lower().endswith(self.suffixes) or (is_stdin and self.is_of_stdin)


def _open_arrow(given: GivenFile, target: TableSchema) -> RowSource:
    from zapdb.imports.arrow_rows import ArrowFileSource

    if not given.identity:
        raise UsageError(
            "Parquet and Arrow cannot be read from standard input or a pipe",
            hint="write them to a file and give its path",
        )
    return ArrowFileSource(given.path, target, given.mapping, given.coercion(), given.mode)


FILE_FORMATS: Final = {
    found.name: found
    for found in (
        FileFormat("csv", (".csv", ".tsv", ".txt"), CsvSource),
        FileFormat("ndjson", (".ndjson", ".jsonl"), NdjsonSource, is_of_stdin=True),
        FileFormat("json", (".json",), JsonSource),
        FileFormat("parquet", (".parquet", ".pq"), _open_arrow),
        FileFormat("arrow", (".arrow", ".feather", ".ipc", ".arrows"), _open_arrow),
    )
}


def find_format(given: GivenFile, name: FormatName | None) -> FileFormat:
    """The format with a name, or by the name of the file; raises `UsageError`."""
    if name is not None:
        if name in FILE_FORMATS:
            return FILE_FORMATS[name]
        raise UsageError(
            "there is no such format", format=name, hint=f"available: {', '.join(FILE_FORMATS)}"
        )
    for found in FILE_FORMATS.values():
        if found.takes(given.path, is_stdin=given.is_stdin):
            return found
    raise UsageError(
        "the format of the source is not known",
        source=given.shown,
        hint=f"say which it is: {', '.join(FILE_FORMATS)}",
    )
