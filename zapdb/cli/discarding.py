"""`zapdb data discard`: deleting a record that can't be read."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from zapdb.cli.data import TableArgument, opened_table
from zapdb.cli.opening import TenantOptions
from zapdb.cli.output import Confirmation, Output, as_plain, print_note
from zapdb.cli.record_input import read_assignments, read_key
from zapdb.database import DiscardedRecord
from zapdb.database.unreadable import Discarding
from zapdb.errors import EXIT_ERROR, UsageError, ZapdbError
from zapdb.files import create_text_file, replace_text_file
from zapdb.jobs.job_types import type_of
from zapdb.jobs.quarantine import list_holding_jobs


def data_discard_command(
    table: TableArgument,
    options: TenantOptions,
    confirmation: Confirmation,
    output: Output,
    key: Annotated[
        list[str] | None, typer.Argument(help="The values of the key's fields, in order.")
    ] = None,
    stored_key: Annotated[
        str | None,
        typer.Option(
            "--stored-key",
            metavar="HEX",
            help="In place of KEY: the key as it is stored, as `zapdb jobs show` prints it.",
        ),
    ] = None,
    save: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write the record's bytes to this new file before."),
    ] = None,
    replacement: Annotated[
        list[str] | None,
        typer.Option(
            "--replace",
            metavar="NAME=VALUE",
            help="Put a record with this value in its place; once for each field.",
        ),
    ] = None,
) -> int:
    """Delete a record that can't be read, for good; one that can be read is refused.

    Its index entries and archived values are deleted with it, and its references' `on_delete` is
    applied, in one transaction. With `--replace`, a new record with its key takes its place, and
    references to it stay. The change log, if it is on, keeps the bytes; so does the file of
    `--save`, in hex, as JSON: the object that `--json` writes. It also works while a migration is
    rolled back.

    With `--json`, which needs `--yes`: `{table, key, value, reason}`. `key` and `value` are the
    bytes in hex; `reason` is why the record could not be read.
    """
    if bool(key) == (stored_key is not None):
        raise UsageError(
            "give either the record's key, or --stored-key",
            table=table,
            hint=f"for example: zapdb data discard {table} 7",
        )
    with opened_table(options, table, read_only=False) as (db, found, schema):
        values = read_assignments(schema, replacement) if replacement else None
        question = f"delete this record of {table} for good?"
        if not confirmation.is_given("discarding a record", question, output):
            return EXIT_ERROR
        given = read_key(schema, key) if key else ()
        stored = None if stored_key is None else _read_hex(stored_key)
        with _saving(save, db._storage.file_mode) as keep:
            discarded = Discarding(found, given, stored, values, keep).run()
        with db._session.connected() as connection:
            place = db._catalog.tenant, schema.number, discarded.key
            jobs = list_holding_jobs(connection, *place)
    done = "discarded " if values is None else "replaced "
    shown = ", ".join(key) if key else discarded.key.hex()
    output.write((done, "green"), f"{table} {shown}: {discarded.reason}")
    if save is None:
        output.write(f"  its bytes: {discarded.value.hex() or '(none)'}")
    else:
        output.write(f"  its bytes are in {save}")
    for command in dict.fromkeys(type_of(job).retry_command for job in jobs):
        print_note(f"it was in quarantine: run `{command}`")
    output.document(discarded)
    return 0


def _read_hex(text: str) -> bytes:
    try:
        return bytes.fromhex(text)
    except ValueError:
        raise UsageError(
            "--stored-key is not hex", given=text, hint="give it as `zapdb jobs show` prints it"
        ) from None


class _SavedFile:
    """A file with the bytes of a record; written again if the transaction is."""

    def __init__(self, path: Path, mode: int) -> None:
        self._path, self._mode = path, mode
        self.is_written = False

    def write(self, discarded: DiscardedRecord) -> None:
        """Write it, and wait until it is on the disk; raises `FileExistsError` for another's."""
        text = json.dumps(discarded, default=as_plain) + "\n"
        if self.is_written:
            replace_text_file(self._path, text)
        else:
            create_text_file(self._path, text, self._mode)
        self.is_written = True
        with self._path.open("rb") as file:
            os.fsync(file.fileno())

    def remove(self) -> None:
        if self.is_written:
            self._path.unlink(missing_ok=True)


@contextmanager
def _saving(path: Path | None, mode: int) -> Iterator[Callable[[DiscardedRecord], object]]:
    """What writes the record to the file; it is removed again if nothing is discarded."""
    if path is None:
        yield lambda _: None
        return
    file = _SavedFile(path, mode)
    try:
        yield file.write
    except ZapdbError:
        file.remove()
        raise
