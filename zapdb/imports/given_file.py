"""A file to import, and what is said about how it is to be read."""

from __future__ import annotations

import datetime
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Final

from zapdb.errors import UsageError
from zapdb.imports.coercion import Coercion
from zapdb.imports.row import ImportMode

STANDARD_INPUT: Final = "-"


@dataclass(frozen=True, slots=True)
class GivenFile:
    """A file by its path, or standard input (`-`).

    `mapping` has the fields of columns; `null` is the cell of CSV that is a null; `time_zone` is
    the zone of times without one.
    """

    path: str
    mapping: Mapping[str, str] = field(default_factory=dict)
    mode: ImportMode = "append"
    encoding: str | None = None
    delimiter: str = ","
    null: str | None = None
    time_zone: datetime.tzinfo | None = None

    @property
    def is_stdin(self) -> bool:
        return self.path == STANDARD_INPUT

    @property
    def shown(self) -> str:
        return "standard input" if self.is_stdin else self.path

    @property
    def identity(self) -> str:
        """What identifies it for a checkpoint; empty for what can be read once only, such as
        standard input or a pipe."""
        if self.is_stdin or not Path(self.path).is_file():
            return ""
        return f"file:{os.path.realpath(self.path)}"

    def open_binary(self) -> IO[bytes]:
        """The file as bytes, or standard input."""
        if self.is_stdin:
            return sys.stdin.buffer
        try:
            return Path(self.path).open("rb")
        except OSError as error:
            raise UsageError(
                "the file can't be read",
                source=self.path,
                problem=error.strerror,
                hint="see that it is a file, and that this user may read it",
            ) from error

    def coercion(self, *, is_text: bool = False) -> Coercion:
        return Coercion(self.time_zone, is_text)
