"""What has ended the last run of a job, as its row says until it is run again."""

from __future__ import annotations

from contextlib import suppress
from typing import Final

from msgspec import structs

from zapdb.catalog import rows
from zapdb.errors import ZapdbError
from zapdb.jobs.job import read_job
from zapdb.printing import one_line
from zapdb.storage import Storage, TransactionMode

NAMED: Final = (
    "table",
    "tables",
    "field",
    "source",
    "row",
    "target",
    "directory",
    "master",
    "cause",
)
"""What of an error's context says where it was."""
ERROR_CHARS_MAX: Final = 300


def describe_failure(error: Exception) -> str:
    """An error on a line, without values of records."""
    if not isinstance(error, ZapdbError):
        return type(error).__name__
    named = (f"{name} {error.context[name]}" for name in NAMED if name in error.context)
    place = "" if error.location is None else f"{error.location}: "
    found = ", ".join(named)
    return one_line(f"{place}{error.message}{f' ({found})' if found else ''}", ERROR_CHARS_MAX)


def note_failure(storage: Storage, job_id: str, text: str) -> None:
    """Note in a job's row what has ended its run, or, with an empty text, that it runs again; in
    vain if the database can't be reached."""
    with suppress(ZapdbError), storage.transaction(TransactionMode.CATALOG) as connection:
        job = read_job(connection, job_id, lock=True)
        if job.error != text:
            rows.put(connection, structs.replace(job, error=text))
