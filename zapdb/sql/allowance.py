"""What one statement may take: memory, time, rows, and where it may spill."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from pathlib import Path

from zapdb.errors import InvalidValue
from zapdb.limits import SQL_MEMORY_SIZE_BYTES, SQL_ROWS, SQL_SECONDS


@dataclass(frozen=True, slots=True)
class StatementLimits:
    """Raises `InvalidValue` for what is no limit."""

    max_memory: int = SQL_MEMORY_SIZE_BYTES
    """Bytes that its process takes, and that its answer takes."""
    seconds: float = SQL_SECONDS
    """From its beginning to the last row of its answer."""
    max_rows: int = SQL_ROWS
    """Rows of the answer."""
    spill_to: str | os.PathLike[str] | None = None
    """A directory; under it is one for the statement alone, while it runs. None: it can't spill."""

    def __post_init__(self) -> None:
        for name, lowest, what in (
            ("max_memory", 1 << 20, "a number of bytes from 1,048,576"),
            ("max_rows", 0, "a number of rows from 0"),
        ):
            value = getattr(self, name)
            if type(value) is not int or not lowest <= value < 1 << 62:
                raise InvalidValue.of(name, what, value)
        is_number = type(self.seconds) in (int, float) and math.isfinite(self.seconds)
        if not is_number or not 0 < self.seconds <= 1e8:
            raise InvalidValue.of("seconds", "a number of seconds above 0", self.seconds)
        if self.spill_to is not None and not Path(self.spill_to).is_dir():
            raise InvalidValue.of("spill_to", "a directory that is there", str(self.spill_to))

    @property
    def spill_path(self) -> str | None:
        return None if self.spill_to is None else str(Path(self.spill_to).resolve())
