"""The schema events in files of moments, in their order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

from pyarrow import compute, parquet

from zapdb.memo import Memo
from zapdb.past.files.history_manifest import HistoryFile
from zapdb.past.files.moment_rows import LoggedEvent
from zapdb.past.files.states import require_whole

_EVENTS: Final = Memo[tuple[Path, bytes], list[tuple[int, LoggedEvent]]](10_000)
"""What this process has read; files never change."""


def list_stored_events(
    directory: str | Path, files: Iterable[HistoryFile]
) -> Iterator[tuple[int, LoggedEvent]]:
    """Yield each event with its moment; raises `HistoryDamaged`."""
    for file in sorted(files, key=lambda file: file.first_moment):
        path = file.place_in(directory)
        yield from _read(path, file)


def _read(path: Path, file: HistoryFile) -> list[tuple[int, LoggedEvent]]:
    def read() -> list[tuple[int, LoggedEvent]]:
        require_whole(path, file)
        names = ["moment", "schema_events"]
        rows: Any = parquet.read_table(path, columns=names, partitioning=None)
        some = rows.filter(compute.greater(compute.list_value_length(rows.column(1)), 0))
        columns = (some.column(name).to_pylist() for name in names)
        return [
            (moment, LoggedEvent(*made.values()))
            for moment, events in zip(*columns, strict=True)
            for made in events
        ]

    return _EVENTS.get((path, file.sha256), read)
