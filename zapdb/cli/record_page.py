"""Records as tables for people, and the queries of `--where`: of the present, and of the past."""

from __future__ import annotations

from zapdb.cli.output import Output, print_note
from zapdb.cli.record_output import format_cell
from zapdb.database import Page, Query
from zapdb.database.conditions import read_condition
from zapdb.database.table_reading import ReadableTable
from zapdb.records import Record
from zapdb.schema import TableSchema


def make_query(table: ReadableTable, schema: TableSchema, where: str | None) -> Query:
    return table.where() if where is None else table.where(read_condition(table, schema, where))


def write_page(schema: TableSchema, page: Page, output: Output) -> None:
    numbers = [f.name for f in schema.fields if f.type.name in ("integer", "decimal", "float")]
    output.table(
        [field.name for field in schema.fields],
        [[format_cell(record, field) for field in schema.fields] for record in page],
        right=numbers,
        empty="(no records)",
    )
    if page.cursor is not None:
        print_note(f"more: --cursor {page.cursor}")


def write_record(schema: TableSchema, record: Record, output: Output) -> None:
    width = max(len(field.name) for field in schema.fields)
    for field in schema.fields:
        output.write((f"{field.name:<{width}}  ", "bold"), format_cell(record, field, 1_000))
