"""The two ways to read all of a past table: rewinding, and the files of the history store.

Both give the same records. Rewinding looks each present record up in the change log, and each that
was deleted; so it takes long where the table has grown since, or where many records came and went.
Files take longer for each record, and only for those that they have. How many of their rows hold at
a moment is told by what their manifest has.

Single records, and a part of a table, are always rewound where that is possible: one look-up each.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Literal

Way = Literal["rewound", "files"]

FILES_LOOKUPS: Final = 2_000
"""How many look-ups in the change log take as long as opening files: see decision 72."""
HELD_ROW_LOOKUPS: Final = 3
"""How many take as long as reading a row of a file that holds at the moment, by its values."""
PASSED_ROWS: Final = 8
"""How many other rows of files are passed in the time of one look-up."""


@dataclass(frozen=True, slots=True)
class PastReading:
    """How a past table is read as a whole, and what that was decided by.

    `lookups` are the present records and the logged deletions, which rewinding looks up: None if
    the change log does not lead back to the moment. `rows` are those of files that are read, and
    of changes behind them: None if there are no such files, or it was not worth looking. Numbers
    are exact up to what the decision needs.
    """

    way: Way
    lookups: int | None
    rows: int | None

    def __str__(self) -> str:
        if self.way == "files":
            found = f"from files ({_show(self.rows, 'row')})"
            if self.lookups is None:
                return found
            return f"{found}, since rewinding would look up at least {self.lookups:,} records"
        if self.lookups is None:
            return "rewound: each record is looked up in the change log"
        found = f"rewound ({_show(self.lookups, 'record')} to look up in the change log)"
        return found if self.rows is None else f"{found}; files have {_show(self.rows, 'row')}"

    def to_json(self) -> dict[str, Any]:
        return {"way": self.way, "lookups": self.lookups, "rows": self.rows}


def most_lookups(rows: int, held: int) -> int:
    """Return up to how many look-ups rewinding is no dearer than reading so many rows of files, of
    which some hold at the moment."""
    held = min(held, rows)
    return FILES_LOOKUPS + HELD_ROW_LOOKUPS * held + (rows - held) // PASSED_ROWS


def choose_way(lookups: int, most: int) -> Way:
    """Return the cheaper way, where rewinding is no dearer for up to `most` look-ups."""
    return "rewound" if lookups <= most else "files"


def _show(count: int | None, noun: str) -> str:
    return f"{count or 0:,} {noun}{'' if count == 1 else 's'}"
