"""Records as a stream of Arrow record batches: a whole table, page by page as a scan reads it, or
what a query finds, in its order."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from functools import partial
from itertools import islice
from typing import Any, Final

from zapdb.database.session import Session, TableRead, changed_while_read
from zapdb.errors import UsageError
from zapdb.indexes import BoundTable
from zapdb.limits import ARROW_PAGE_RECORDS, PAGE_RECORDS_MAX
from zapdb.records import Attachments, Record, encode_prefix, raw_value
from zapdb.records.arrow import (
    PackedRows,
    arrow_decoder,
    arrow_schema,
    decode_batches,
    decode_page,
    to_reader,
)
from zapdb.storage import Connection
from zapdb.storage.identifiers import make_uuid7
from zapdb.values import Blob

ReadActive = Callable[[TableRead[Any]], tuple[BoundTable, Any]]
Pages = Iterator[tuple[BoundTable, PackedRows]]
"""Pages that are not empty, each with the bound table to decode it by."""
KeyRange = tuple[bytes | None, bytes | None]
"""Encoded record keys: lower ≤ key < upper; None is no bound."""
WHOLE_TABLE: Final[KeyRange] = (None, None)


def open_reader(
    session: Session, read: ReadActive, fields: Collection[str] | None, as_text: Collection[str]
) -> Any:
    """A `pyarrow.RecordBatchReader` of what `read` returns; it holds one page at a time."""
    bound, _ = read(lambda connection, _: (session.read_catalog_version(connection), None))
    schema = arrow_schema(bound.adapter.schema, fields, as_text)
    return to_reader(schema, read_batches(session, read, schema, fields, as_text))


def read_batches(
    session: Session,
    read: ReadActive,
    schema: Any,
    fields: Collection[str] | None,
    as_text: Collection[str],
    keys: KeyRange = WHOLE_TABLE,
) -> Iterator[Any]:
    """Batches of these fields; raises `TransactionConflict` if they are not `schema` any more.

    What is read in a transaction or snapshot is read there: `UsageError` anywhere else.
    """
    return _to_batches(read_pages(session, read, keys), schema, fields, as_text)


def _to_batches(
    pages: Pages,
    schema: Any,
    fields: Collection[str] | None,
    as_text: Collection[str],
) -> Iterator[Any]:
    for bound, page in pages:
        decoder = arrow_decoder(bound.adapter.schema, fields, as_text, bound.catalog.zones)
        if not decoder.schema.equals(schema):
            raise changed_while_read(bound)
        yield from decode_page(decoder, page, bound.make_attachments, bound.adapter.reader)


def read_pages(session: Session, read: ReadActive, keys: KeyRange = WHOLE_TABLE) -> Pages:
    """Yield all rows of a table, or those with the keys of a range, in key order."""
    return _read_pages(session, read, _mode_of(session), keys)


def _read_pages(session: Session, read: ReadActive, began_in: Any, keys: KeyRange) -> Pages:
    lower, upper = keys
    are_short, limit = True, PAGE_RECORDS_MAX  # who wants a few gets them soon
    while True:
        _refuse_elsewhere(session, began_in)
        page: PackedRows | None = None
        if are_short:
            bound, page = read(partial(_read_joined, lower, upper, limit))
        if page is None:  # a record is long, and others behind it may be
            are_short = False
            bound, page = read(partial(_read_rows, lower, upper))
        if not len(page):
            return
        yield bound, page
        lower, limit = page.last_key + b"\x00", ARROW_PAGE_RECORDS


def _read_joined(
    lower: bytes | None, upper: bytes | None, limit: int, connection: Connection, bound: BoundTable
) -> tuple[int | None, PackedRows | None]:
    version, found = bound.records.joined_page(connection, lower, upper, limit)
    if found is None:
        return version, None
    return version, PackedRows.joined(found.keys, found.key_sizes, found.values, found.value_sizes)


def _read_rows(
    lower: bytes | None, upper: bytes | None, connection: Connection, bound: BoundTable
) -> tuple[int | None, PackedRows]:
    version, rows = bound.records.page(
        connection, lower, upper, None, PAGE_RECORDS_MAX, descending=False
    )
    return version, PackedRows.of([(key, value) for key, _, value in rows])


def _mode_of(session: Session) -> Any:
    with session.using():
        return session.storage.connection().mode


def _refuse_elsewhere(session: Session, began_in: Any) -> None:
    if began_in is not None and _mode_of(session) is not began_in:
        raise UsageError(
            "the stream was opened in a snapshot or transaction, but read outside it",
            hint="read it inside, in the same thread: to_arrow().read_all()",
        )


# --- what a query finds --------------------------------------------------------------------------


def open_found(
    session: Session,
    bound: BoundTable,
    found: Iterator[tuple[bytes, Record]],
    fields: Collection[str] | None,
    as_text: Collection[str],
) -> Any:
    """Return a `pyarrow.RecordBatchReader` of records with their keys, by the schema of `bound`."""
    schema = arrow_schema(bound.adapter.schema, fields, as_text)
    began_in = _mode_of(session)

    def read() -> Iterator[Any]:
        while True:
            _refuse_elsewhere(session, began_in)
            page = list(islice(found, PAGE_RECORDS_MAX))
            if not page:
                return
            attachments = _gather_blobs(record for _, record in page)
            yield from decode_batches(
                arrow_decoder(bound.adapter.schema, fields, as_text, bound.catalog.zones),
                [(key, _encode(bound, record, attachments)) for key, record in page],
                partial(_anywhere, attachments),
            )

    return to_reader(schema, read())


def _anywhere(attachments: Attachments, _key: bytes, _value: bytes) -> Attachments:
    return attachments


def _encode(bound: BoundTable, record: Record, attachments: Attachments) -> bytes:
    """Encode a record by the schema that it was decoded to; its blobs keep their ids."""
    if record._fields != bound.adapter.codec.record._fields:
        raise changed_while_read(bound)
    values = {name: raw_value(record, name)[0] for name in record._fields}
    return bound.adapter.codec.encode(encode_prefix(1), values, attachments)


def _gather_blobs(records: Iterable[Record]) -> Attachments:
    """Return attachments that load the blobs of all these records."""
    besides: dict[bytes, Attachments] = {}
    for record in records:
        for name in record._fields:
            value, attachments = raw_value(record, name)
            if isinstance(value, Blob) and attachments is not None:
                besides[value.id] = attachments
    return Attachments(lambda blob: besides[blob.id].load(blob), make_uuid7)
