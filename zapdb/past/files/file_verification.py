"""Checking the files of a history store: each is there, has the bytes that were written, and says
of itself what its row says; and each moment is in the files once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow
from pyarrow import parquet

from zapdb.errors import HistoryDamaged
from zapdb.past.files.file_columns import find_columns
from zapdb.past.files.history_file import (
    NOT_THERE,
    OTHER_DIGEST,
    compare_footer,
    find_keys,
    read_digest,
    read_footer,
)
from zapdb.past.files.history_manifest import (
    HistoryEra,
    HistoryFile,
    HistoryStore,
    list_timelines,
)
from zapdb.past.files.store_changes import TimelineRows
from zapdb.past.files.working_store import read_timeline
from zapdb.storage import Connection


def read_timelines(connection: Connection, tenant: int) -> list[TimelineRows]:
    """Return a tenant's timelines, the newest first."""
    return [read_timeline(connection, store) for store in list_timelines(connection, tenant)]


def list_problems(
    checked: TimelineRows, is_live: Callable[[HistoryStore, HistoryFile], bool]
) -> Iterator[str]:
    """Read all files of a timeline, and yield what is wrong with them, and with its eras.

    A file may be replaced and deleted meanwhile: then it is not `is_live` any more, and no problem.
    """
    store = checked.store
    numbers = list[int]()
    for file in checked.files:
        path = file.place_in(store.directory)
        problem = _read_problem(path, file, numbers)
        if problem is not None and is_live(store, file):
            yield f"{path}: {problem}"
    if len(numbers) != len(set(numbers)):
        yield f"timeline {store.timeline}: moments stand in two files"
    outside = [n for n in numbers if not store.begins <= n <= store.ends]
    if outside:
        yield f"timeline {store.timeline}: moment #{outside[0]} is not between its ends"
    yield from _list_era_problems(checked)


def find_problem(path: Path, file: HistoryFile) -> str | None:
    """Return what is wrong with a file, or with its row of the manifest; None if nothing is."""
    return _read_problem(path, file, [])


def _read_problem(path: Path, file: HistoryFile, numbers: list[int]) -> str | None:
    """Do the same, and add the moments' numbers of a file of moments."""
    try:
        if read_digest(path) != file.sha256:
            return OTHER_DIGEST
        problem = _compare_with_row(path, file)
        if problem is None and file.kind == "moments":
            numbers += parquet.read_table(path, columns=["moment"]).column(0).to_pylist()
    except FileNotFoundError:
        return NOT_THERE
    except HistoryDamaged as error:
        return str(error.context.get("problem", error.message))
    except (OSError, pyarrow.ArrowInvalid) as error:
        return str(error).partition("\n")[0][:200]
    return problem


def _compare_with_row(path: Path, file: HistoryFile) -> str | None:
    footer, schema = read_footer(path)
    metadata = parquet.read_metadata(path)
    problem = compare_footer(footer, file)
    if problem is not None:
        return problem
    if metadata.num_rows != file.rows:
        return f"it has {metadata.num_rows} rows instead of {file.rows}"
    if schema is not None:
        find_columns(metadata.schema.to_arrow_schema(), schema)
    return None if find_keys(path, file) == file else "it has other keys"


def _list_era_problems(checked: TimelineRows) -> Iterator[str]:
    last: HistoryEra | None = None
    for era in checked.eras:
        is_same = last is not None and last.table_number == era.table_number
        if is_same and last is not None and (last.last_moment is None):
            yield f"table {era.table_number}: era {last.era} has no end, and era {era.era} follows"
        elif is_same and last is not None and (last.last_moment or 0) >= era.first_moment:
            yield f"table {era.table_number}: eras {last.era} and {era.era} overlap"
        last = era
