"""`zapdb data`: reading and writing records, and deleting one that can't be read."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from zapdb.cli.configuration import CursorOption, LimitOption, OrderByOption
from zapdb.cli.connecting import PreviewOptions, TenantOptions
from zapdb.cli.output import Confirmation, Output, as_plain, format_count, print_note
from zapdb.cli.progress_counter import ProgressCounter
from zapdb.cli.record_commands import (
    key_texts,
    make_query,
    opened_output,
    read_assignments,
    write_lines,
    write_page,
    write_parquet,
    write_record,
)
from zapdb.control.records import make_shape, without_large
from zapdb.database import Database, DiscardedRecord, Table
from zapdb.errors import EXIT_ERROR, InvalidValue, RecordNotFound, UsageError, ZapdbError
from zapdb.files import create_text_file, replace_text_file
from zapdb.jobs.job_types import type_of
from zapdb.jobs.quarantine import list_holding_jobs
from zapdb.records.cell_format import read_key, record_to_plain
from zapdb.schema import TableSchema as Schema
from zapdb.tables.discarding import Discarding
from zapdb.transfer.export.manifest import Form

LIST_RECORDS = 20


@contextmanager
def opened_table(
    options: TenantOptions, table: str, *, read_only: bool
) -> Iterator[tuple[Database, Table, Schema]]:
    """Open a database; yields it with one of its tables and that table's active schema."""
    with options.open(read_only=read_only) as db:
        yield db, db.table(table), db._catalog.table(table).schema


TableArgument = Annotated[str, typer.Argument(help="The table's name.")]
WhereOption = Annotated[
    str | None,
    typer.Option(
        "--where",
        "-w",
        metavar="CONDITION",
        help="Only records for which this is true: \"done == false and starts_with(title, 'a')\".",
    ),
]


def data_get_command(
    table: TableArgument,
    key: Annotated[list[str], typer.Argument(help="The values of the key's fields, in order.")],
    options: PreviewOptions,
    output: Output,
) -> None:
    """Show one record; the exit status is 1 if no record has this key.

    Long values are shortened for people.

    With `--json`: the record as an object of its fields, with whole values.
    """
    with opened_table(options, table, read_only=True) as (_, found, schema):
        values = read_key(schema, key)
        record = found.find(*values)
        if record is None:
            raise RecordNotFound(
                "no record has this key",
                table=table,
                key=", ".join(map(repr, values)),
                hint=f"run `zapdb data list {table}` to see the keys",
            )
        if output.as_json:
            output.document(record_to_plain(schema, record))
            return
        shown, large = without_large(schema, record)
        write_record(make_shape(schema, large), shown, output)


def data_list_command(
    table: TableArgument,
    options: PreviewOptions,
    output: Output,
    where: WhereOption = None,
    order_by: OrderByOption = None,
    limit: LimitOption = LIST_RECORDS,
    cursor: CursorOption = None,
) -> None:
    """Show a page of records. The cursor of the next page goes to standard error.

    With `--json`: `{records: [RECORD], cursor}`; the cursor is null on the last page.
    """
    with opened_table(options, table, read_only=True) as (_, found, schema):
        query = make_query(found, schema, where)
        if order_by:
            query = query.order_by(*(name.strip() for name in order_by.split(",")))
        page = query.page(limit, cursor)
        if output.as_json:
            records = [record_to_plain(schema, record) for record in page]
            output.document({"records": records, "cursor": page.cursor})
            return
        shown = [without_large(schema, record) for record in page]
        write_page(make_shape(schema), shown, page.cursor, output)


def data_export_command(
    table: TableArgument,
    options: PreviewOptions,
    output: Output,
    form: Annotated[Form, typer.Option("--format", "-f", help="The format to write.")] = "ndjson",
    target: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", metavar="FILE", help="Write to this file, which is replaced."
        ),
    ] = None,
    where: WhereOption = None,
    as_text: Annotated[
        list[str] | None,
        typer.Option(
            "--as-text",
            metavar="FIELD",
            help="In Parquet, write numbers of this field as text; needed beyond 64 bits or 38 "
            "digits.",
        ),
    ] = None,
    for_spreadsheets: Annotated[
        bool,
        typer.Option(
            "--safe-for-spreadsheets",
            help="In CSV, put a quote (') before texts that a spreadsheet would run as formulas.",
        ),
    ] = False,
) -> None:
    """Write all records of a table, in the order of their keys, as of one moment.

    `zapdb import` reads all formats. Parquet needs the extra `sql`. A file gets its name only
    when it is complete; a pipe or a device is written into. On a terminal, control characters are
    written as escapes.

    `--safe-for-spreadsheets` is for files that people open: texts that begin with `=`, `+`, `-`,
    `@`, a tab or a line end change, and `zapdb import` reads them back with the quote. Numbers stay
    as they are.

    With `--json`, which needs `--output`: `{table, format, path, records}`; `records` is a count.
    """
    if output.as_json and target is None:
        raise UsageError(
            "the records and the --json report would both go to standard output",
            hint="write the records to a file: -o FILE",
        )
    if as_text and form != "parquet":
        raise UsageError(
            "--as-text is only for Parquet", hint="leave it out; in CSV all numbers are text"
        )
    if for_spreadsheets and form != "csv":
        raise UsageError("--safe-for-spreadsheets is only for CSV", hint="add --format csv")
    with opened_table(options, table, read_only=True) as (db, found, schema):
        # Without an order, an index that answers the condition would decide the order.
        query = make_query(found, schema, where).order_by(*(f.name for f in schema.key_fields))
        mode = db._storage.engine.file_mode
        with (
            opened_output(target, form, mode) as stream,
            db.snapshot(),
            ProgressCounter() as counter,
        ):
            if form == "parquet":
                reader = found.to_arrow if where is None else query.to_arrow
                with _naming_the_option():
                    write_parquet(reader(as_text=as_text or ()), stream, counter)
            else:
                records = found.scan() if where is None else iter(query)
                write_lines(
                    schema, records, form, stream, counter, for_spreadsheets=for_spreadsheets
                )
    if output.as_json:
        written = {"table": table, "format": form, "path": target, "records": counter.count}
        output.beside(target).document(written)
        return
    where_to = "" if target is None else f" to {target}"
    print_note(f"exported {format_count(counter.count, 'record')}{where_to}")


@contextmanager
def _naming_the_option() -> Iterator[None]:
    """Make errors in the block name the option instead of the argument."""
    try:
        yield
    except InvalidValue as error:
        if error.hint.startswith("as_text=['"):
            error.hint = f"--as-text {error.hint.split(chr(39))[1]} makes a column of strings"
        raise


def data_put_command(
    table: TableArgument,
    options: TenantOptions,
    output: Output,
    fields: Annotated[
        list[str] | None,
        typer.Argument(metavar="NAME=VALUE", help="The values of a record's fields."),
    ] = None,
) -> None:
    """Insert a record, or update the given fields of the record whose key exists.

    A null is written \\\\N. `zapdb import` reads records from files and from standard input.

    With `--json`: `{table, record}`.
    """
    if not fields:
        raise UsageError(
            "give the fields of a record",
            table=table,
            hint=f"for example: zapdb data put {table} id=1 title=Bread; "
            f"records of a file are read by: zapdb import FILE --table {table}",
        )
    with opened_table(options, table, read_only=False) as (_, found, schema):
        record = found.upsert(**read_assignments(schema, fields))
        output.write(("put ", "green"), f"{table} {', '.join(key_texts(schema, record))}")
        plain = record_to_plain(schema, record) if output.as_json else None
        output.document({"table": table, "record": plain})


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
        with _saving(save, db._storage.engine.file_mode) as keep:
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
