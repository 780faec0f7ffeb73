"""`zapdb sweep`: removing large values that no record owns."""

from __future__ import annotations

import re
from dataclasses import asdict
from typing import Annotated, Final

import typer

from zapdb.catalog.stored_settings import read_settings
from zapdb.cli.connecting import DatabaseOptions
from zapdb.cli.output import Output, format_bytes, format_count, format_seconds
from zapdb.errors import UsageError
from zapdb.jobs.blob_sweep import sweep_blobs
from zapdb.storage import Storage
from zapdb.tables.commit_tokens import purge_tokens

UNITS: Final = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}


def sweep_command(
    options: DatabaseOptions,
    output: Output,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Count unowned blobs, and remove nothing.")
    ] = False,
    older_than: Annotated[
        str | None,
        typer.Option(
            metavar="AGE",
            help="Leave younger blobs alone; such as 90s, 15m, 1h or 7d. By default the "
            "setting blob_sweep_age_seconds.",
        ),
    ] = None,
) -> None:
    """Remove large values that no record owns, and expired commit tokens.

    Changing or deleting a record leaves its large strings and binaries (its blobs) in the database.
    A sweep reads all records of all tables to find their owners. It can run at the same time as any
    other operation, and can be interrupted.

    With `--json`: `{dry_run, older_than_seconds, blobs, unowned, unowned_bytes, deleted, seconds,
    tokens}`; `blobs` is the number of blobs that were old enough to check, and `tokens` the number
    of removed commit tokens of `db.run(…, token=True)`.
    """
    given = None if older_than is None else read_age(older_than)
    with options.opened() as (storage, _):
        seconds = _read_default(storage) if given is None else given
        report = sweep_blobs(storage, older_than_seconds=seconds, dry_run=dry_run)
        tokens = 0 if dry_run else purge_tokens(storage)
    age = older_than or _show_age(seconds)
    looked_at = f"of {format_count(report.blobs, 'blob')} older than {age}"
    rest = f"{looked_at}: {format_bytes(report.unowned_bytes)}, {format_seconds(report.seconds)}"
    if dry_run:
        output.write(f"would remove {report.unowned:,} {rest}")
    else:
        output.write(("removed ", "green"), f"{report.deleted:,} {rest}")
    shown = asdict(report) | {"tokens": tokens}
    output.document({"dry_run": dry_run, "older_than_seconds": seconds, **shown})


def _read_default(storage: Storage) -> int:
    return int(read_settings(storage.connection(), 0).get("blob_sweep_age_seconds"))


def _show_age(seconds: int) -> str:
    """Return an age in the largest unit of which it is a multiple."""
    unit = max((u for u in UNITS if seconds % UNITS[u] == 0), key=lambda u: UNITS[u])
    return f"{seconds // UNITS[unit]}{unit}"


def read_age(text: str) -> int:
    """Return the seconds of an age such as 15m; raises `UsageError`."""
    match = re.fullmatch(r"([0-9]{1,9})([smhd])", text)
    if match is None:
        raise UsageError(
            "this is not a valid age",
            age=text,
            hint="give a number followed by s, m, h or d, for example 15m",
        )
    return int(match[1]) * UNITS[match[2]]
