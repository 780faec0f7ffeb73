"""`zapdb data`: the records of a table, read and written from the command line."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

import zapdb
from zapdb.cli.cell_format import record_to_plain
from zapdb.cli.conditions import read_condition
from zapdb.cli.configuration import (
    DatabaseOption,
    JsonOption,
    TenantOption,
    find_database,
    find_tenant_name,
)
from zapdb.cli.output import Output, format_count, print_note
from zapdb.cli.progress_counter import ProgressCounter
from zapdb.cli.record_input import (
    Given,
    Lines,
    name_line,
    read_assignments,
    read_key,
    read_lines,
)
from zapdb.cli.record_output import (
    Form,
    format_cell,
    key_texts,
    opened_output,
    write_lines,
    write_parquet,
)
from zapdb.database import Database, Page, Query, Table
from zapdb.errors import (
    ConstraintViolation,
    InvalidValue,
    RecordExists,
    RecordNotFound,
    TransactionConflict,
    UsageError,
    ZapdbError,
)
from zapdb.limits import INSERT_BATCH_RECORDS
from zapdb.records import Record
from zapdb.schema import TableSchema as Schema

LIST_RECORDS = 20

TableArgument = Annotated[str, typer.Argument(help="The table's name.")]
WhereOption = Annotated[
    str | None,
    typer.Option(
        "--where",
        "-w",
        metavar="CONDITION",
        help="Only records of which it is true: \"done == false and starts_with(title, 'a')\".",
    ),
]


@contextmanager
def _opened(
    database: str | None, tenant: str | None, table: str, *, read_only: bool
) -> Iterator[tuple[Database, Table, Schema]]:
    """A database, and one of its tables in the shape that is in force."""
    with zapdb.open(
        find_database(database), tenant=find_tenant_name(tenant), read_only=read_only
    ) as db:
        yield db, db.table(table), db._catalog.table(table).schema


def data_get_command(
    table: TableArgument,
    key: Annotated[list[str], typer.Argument(help="The values of the key's fields, in order.")],
    database: DatabaseOption = None,
    tenant: TenantOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show one record; status 1 if there is none with this key.

    Long values are shortened for people.

    With `--json`: the record as an object of its fields, whole.
    """
    output = Output(as_json)
    with _opened(database, tenant, table, read_only=True) as (_, found, schema):
        values = read_key(schema, key)
        record = found.find(*values)
        if record is None:
            raise RecordNotFound(
                "no record has this key",
                table=table,
                key=", ".join(map(repr, values)),
                hint=f"run `zapdb data list {table}` to see the keys",
            )
        if as_json:
            output.document(record_to_plain(schema, record))
            return
        _write_record(schema, record, output)


def _write_record(schema: Schema, record: Record, output: Output) -> None:
    width = max(len(field.name) for field in schema.fields)
    for field in schema.fields:
        output.write((f"{field.name:<{width}}  ", "bold"), format_cell(record, field, 1_000))


def data_list_command(
    table: TableArgument,
    where: WhereOption = None,
    order_by: Annotated[
        str | None,
        typer.Option(
            "--order-by", metavar="FIELDS", help="Such as `due,-title`; a minus is descending."
        ),
    ] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", help="At most so many.")] = LIST_RECORDS,
    cursor: Annotated[
        str | None, typer.Option("--cursor", help="The place that the page before ended with.")
    ] = None,
    database: DatabaseOption = None,
    tenant: TenantOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show a page of records. The cursor of the next page goes to standard error.

    With `--json`: `{records: [RECORD], cursor}`; the cursor is null on the last page.
    """
    output = Output(as_json)
    with _opened(database, tenant, table, read_only=True) as (_, found, schema):
        query = _query(found, schema, where)
        if order_by:
            query = query.order_by(*(name.strip() for name in order_by.split(",")))
        page = query.page(limit, cursor)
        if as_json:
            records = [record_to_plain(schema, record) for record in page]
            output.document({"records": records, "cursor": page.cursor})
            return
        _write_page(schema, page, output)


def _query(table: Table, schema: Schema, where: str | None) -> Query:
    return table.where() if where is None else table.where(read_condition(table, schema, where))


def _write_page(schema: Schema, page: Page, output: Output) -> None:
    numbers = [f.name for f in schema.fields if f.type.name in ("integer", "decimal", "float")]
    output.table(
        [field.name for field in schema.fields],
        [[format_cell(record, field) for field in schema.fields] for record in page],
        right=numbers,
        empty="(no records)",
    )
    if page.cursor is not None:
        print_note(f"more: --cursor {page.cursor}")


def data_export_command(
    table: TableArgument,
    form: Annotated[Form, typer.Option("--format", "-f", help="What is written.")] = "ndjson",
    target: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="Write it there, replacing a file."),
    ] = None,
    where: WhereOption = None,
    as_text: Annotated[
        list[str] | None,
        typer.Option(
            "--as-text",
            metavar="FIELD",
            help="In Parquet, numbers of this field as text; needed beyond 64 bits or 38 digits.",
        ),
    ] = None,
    for_spreadsheets: Annotated[
        bool,
        typer.Option(
            "--safe-for-spreadsheets",
            help="In CSV, a quote (') before texts that a spreadsheet would run as formulas.",
        ),
    ] = False,
    database: DatabaseOption = None,
    tenant: TenantOption = None,
    as_json: JsonOption = False,
) -> None:
    """Write all records of a table, in the order of their keys, as of one moment.

    `put --stdin` reads `ndjson` and `csv` back. Parquet needs the extra `sql`. A file gets its name
    once it is whole. On a terminal, control characters are written as escapes.

    `--safe-for-spreadsheets` is for files that people open: texts that begin with `=`, `+`, `-`,
    `@`, a tab or a line end change, and `put` reads them back with the quote. Numbers stay as they
    are.

    With `--json`, which needs `--output`: `{table, format, path, records}`: how many there were.
    """
    if as_json and target is None:
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
    with _opened(database, tenant, table, read_only=True) as (db, found, schema):
        # A condition answered by an index would come in its order.
        query = _query(found, schema, where).order_by(*(f.name for f in schema.key_fields))
        with opened_output(target, form) as stream, db.snapshot(), ProgressCounter() as counter:
            if form == "parquet":
                reader = found.to_arrow if where is None else query.to_arrow
                with _naming_the_option():
                    write_parquet(reader(as_text=as_text or ()), stream, counter)
            else:
                records = found.scan() if where is None else iter(query)
                write_lines(
                    schema, records, form, stream, counter, for_spreadsheets=for_spreadsheets
                )
    if as_json:
        written = {"table": table, "format": form, "path": str(target), "records": counter.count}
        Output(as_json).document(written)
        return
    where_to = "" if target is None else f" to {target}"
    print_note(f"exported {format_count(counter.count, 'record')}{where_to}")


@contextmanager
def _naming_the_option() -> Iterator[None]:
    """Errors in the block name the option, and not the argument."""
    try:
        yield
    except InvalidValue as error:
        if error.hint.startswith("as_text=['"):
            error.hint = f"--as-text {error.hint.split(chr(39))[1]} makes a column of strings"
        raise


def data_put_command(
    table: TableArgument,
    fields: Annotated[
        list[str] | None, typer.Argument(metavar="NAME=VALUE", help="The fields of a record.")
    ] = None,
    stdin: Annotated[
        bool, typer.Option("--stdin", help="Read records from standard input, one a line.")
    ] = False,
    form: Annotated[Lines, typer.Option("--format", "-f", help="What is read.")] = "ndjson",
    batch: Annotated[
        int | None,
        typer.Option("--batch", min=1, help="Commit so many at a time, and not all at once."),
    ] = None,
    database: DatabaseOption = None,
    tenant: TenantOption = None,
    as_json: JsonOption = False,
) -> None:
    """Insert records, or change those that have their keys: the fields given, and no others.

    All of them are written, or none; with `--batch`, those batches stay that were committed before
    an error. A null is written \\\\N.

    With `--json`: `{table, records, record}`: how many, and the one that `NAME=VALUE` made.
    """
    if stdin == bool(fields):
        raise UsageError(
            "give the fields of one record, or --stdin",
            hint="for example: zapdb data put items id=1 title=Bread",
        )
    if batch is not None and not stdin:
        raise UsageError("--batch needs --stdin")
    output = Output(as_json)
    with _opened(database, tenant, table, read_only=False) as (db, found, schema):
        if not stdin:
            record = found.upsert(**read_assignments(schema, fields or []))
            key = ", ".join(key_texts(schema, record))
            output.write(("put ", "green"), f"{table} {key}")
            plain = record_to_plain(schema, record) if as_json else None
            output.document({"table": table, "records": 1, "record": plain})
            return
        with ProgressCounter() as counter:
            lines = read_lines(schema, sys.stdin, form)
            put_lines(db, found, schema, lines, batch, counter)
    output.write(("put ", "green"), f"{format_count(counter.count, 'record')} into {table}")
    output.document({"table": table, "records": counter.count, "record": None})


def put_lines(
    db: Database,
    table: Table,
    schema: Schema,
    records: Iterable[Given],
    batch: int | None,
    counter: ProgressCounter,
) -> None:
    """All in one transaction, or each batch in one that is repeated where it meets another."""
    stream = iter(records)
    try:
        with db.transaction() if batch is None else nullcontext():
            while some := list(itertools.islice(stream, batch or INSERT_BATCH_RECORDS)):
                db.run(partial(_put_some, db, table, schema, some))
                counter.add(len(some))
    except ZapdbError as error:
        error.context["written"] = format_count(0 if batch is None else counter.count, "record")
        if isinstance(error, TransactionConflict):
            error.hint = "run the command again"
        raise


def _put_some(db: Database, table: Table, schema: Schema, records: list[Given]) -> None:
    """Put records as one after the other does it: new ones together, where that is the same."""
    names = [field.name for field in schema.key_fields]
    with suppress(InvalidValue, ConstraintViolation, RecordExists), db.transaction():
        _insert_new_ones(table, names, records)
        return
    for number, values in records:
        try:
            table.upsert(**values)
        except ZapdbError as error:
            name_line(error, number)
            raise


def _insert_new_ones(table: Table, names: Sequence[str], records: list[Given]) -> None:
    """Change the records that are there, then insert the others, which takes few statements.

    Raises what the database refuses. It may accept the same records one after the other: a record
    that is changed twice, or first is in the way of one and then is not.
    """
    new, given = list[dict[str, Any]](), list[tuple[Any, dict[str, Any]]]()
    for _, values in records:
        if all(name in values for name in names):
            key = tuple(values[name] for name in names)
            given.append((key if len(key) > 1 else key[0], values))
        else:  # its key is generated, or a default
            new.append(values)
    there = table.get_many([key for key, _ in given])
    for (_, values), found in zip(given, there, strict=True):
        if found is None:
            new.append(values)
        else:
            table.upsert(**values)
    table.insert_many(new)
