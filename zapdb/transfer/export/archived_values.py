"""Archived values of dropped fields in an export: a line of JSON for each, in order of the keys.

    {"key": [7], "field": "note", "archived_by": 3, "value": "an old note"}

A record that is not converted yet has no row in the archive: its value is what the conversion would
archive.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from itertools import islice
from typing import Final, TextIO, cast

from zapdb.database import Database, Table
from zapdb.errors import CorruptExport, InvalidValue
from zapdb.limits import INSERT_BATCH_RECORDS, PAGE_RECORDS_MAX
from zapdb.records import Attachments
from zapdb.records.archive_cells import decode_archived_value
from zapdb.records.record_lines import BoundedLines
from zapdb.schema import ArchivedField
from zapdb.storage import Connection
from zapdb.storage.archives import ArchiveRow
from zapdb.storage.identifiers import make_uuid7
from zapdb.tables.indexes import BoundTable
from zapdb.tables.indexes.bound_table import RecordArchive
from zapdb.tables.table_reading import ReadableTable
from zapdb.tables.writes import archive_values
from zapdb.values.blob import LargeValueType, encode_inline_or_blob

_HINT: Final = "copy the file again, or export again"


def list_archived_values(table: ReadableTable) -> Iterator[str]:
    """The lines of a table, as a snapshot shows it."""
    after = b""
    while page := _read_page(table, after):
        for key, lines in page:
            yield from lines
            after = key


def _read_page(table: ReadableTable, after: bytes) -> list[tuple[bytes, list[str]]]:
    def read(
        connection: Connection, bound: BoundTable
    ) -> tuple[int, list[tuple[bytes, list[str]]]]:
        place = (after, after) if after else None
        version, rows = bound.records.page(
            connection, None, None, place, PAGE_RECORDS_MAX, descending=False
        )
        given = [(key, value) for key, _, value in rows]
        found = zip(rows, bound.read_archives(connection, given), strict=True)
        return version, [(row[0], list(_lines_of(bound, row[0], one))) for row, one in found]

    _, found = table._read_active(read)
    return found


def _lines_of(bound: BoundTable, key: bytes, archived_values: RecordArchive) -> Iterator[str]:
    encoded, attachments = archived_values
    parts = zip(bound.schema.key_fields, bound.codec.decode_key(key), strict=True)
    shown = [part.type.to_document(value) for part, value in parts]
    for archived in bound.schema.archived:
        if archived.field.cell in encoded:
            kind = archived.field.type.bind(bound.catalog.zones)
            found = decode_archived_value(kind, encoded[archived.field.cell], attachments)
            line = {
                "key": shown,
                "field": archived.field.name,
                "archived_by": archived.archived_by,
                "value": None if found is None else [kind.to_document(found)],
            }
            yield json.dumps(line, ensure_ascii=False, separators=(",", ":"))


def load_archived_values(db: Database, table: Table, stream: TextIO) -> None:
    """Archive the values of a file; the records are there. Raises `CorruptExport`."""
    lines = BoundedLines(stream, str(stream.name))
    while batch := list(islice(lines, INSERT_BATCH_RECORDS)):
        db._session.run(partial(_insert, db, table, batch))


def _insert(db: Database, table: Table, lines: list[str]) -> None:
    with db._session.writing() as connection:
        bound = table._current()
        attachments = Attachments(bound.blobs.load, make_uuid7)
        fields = {(a.field.name, a.archived_by): a for a in bound.schema.archived}
        try:
            rows = [_read_line(bound, fields, line, attachments) for line in lines]
        except (KeyError, TypeError, ValueError, RecursionError, InvalidValue) as error:
            raise CorruptExport(
                "a line of archived values can't be read",
                table=bound.schema.name,
                problem=str(error).splitlines()[0],
                hint=_HINT,
            ) from error
        bound.blobs.insert(connection, attachments.take_blobs())
        archive_values(connection, bound, rows)


def _read_line(
    bound: BoundTable,
    fields: dict[tuple[str, int], ArchivedField],
    line: str,
    attachments: Attachments,
) -> ArchiveRow:
    found = json.loads(line)
    archived = fields[found["field"], found["archived_by"]]
    parts = zip(bound.schema.key_fields, found["key"], strict=True)
    key = {part.name: part.type.from_document(plain, part.name) for part, plain in parts}
    kind, name = archived.field.type.bind(bound.catalog.zones), archived.field.name
    encoded = b""
    if found["value"] is not None:
        value = kind.from_document(found["value"][0], name)
        encoded = (
            encode_inline_or_blob(cast("LargeValueType", kind), value, name, attachments)
            if kind.may_be_blob
            else kind.encode(value)
        )
    return archived.field.cell, bound.codec.encode_key(key), encoded
