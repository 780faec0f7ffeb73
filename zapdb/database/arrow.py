"""Records as a stream of Arrow record batches: a whole table, page by page as a scan reads it, or
what a query finds, in its order."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from functools import partial
from itertools import islice
from typing import Any

from zapdb.database.session import Session, TableRead, changed_while_read
from zapdb.errors import UsageError
from zapdb.indexes import BoundTable
from zapdb.limits import PAGE_RECORDS_MAX
from zapdb.records import Attachments, Record, encode_prefix, raw_value
from zapdb.records.arrow import arrow_decoder, arrow_schema, decode_batches, to_reader
from zapdb.storage import Connection
from zapdb.storage.identifiers import make_uuid7
from zapdb.values import Blob

ReadActive = Callable[[TableRead[Any]], tuple[BoundTable, Any]]
Page = list[tuple[bytes, bytes]]
"""Keys and records, as they are stored."""


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
) -> Iterator[Any]:
    """Batches of these fields; raises `TransactionConflict` if they are not `schema` any more.

    What is read in a transaction or snapshot is read there: `UsageError` anywhere else.
    """
    return _to_batches(read_pages(session, read), schema, fields, as_text)


def _to_batches(
    pages: Iterable[tuple[BoundTable, Page]],
    schema: Any,
    fields: Collection[str] | None,
    as_text: Collection[str],
) -> Iterator[Any]:
    for bound, page in pages:
        decoder = arrow_decoder(bound.adapter.schema, fields, as_text, bound.catalog.zones)
        if not decoder.schema.equals(schema):
            raise changed_while_read(bound)
        yield from decode_batches(decoder, page, bound.make_attachments, bound.adapter.reader)


def read_pages(session: Session, read: ReadActive) -> Iterator[tuple[BoundTable, Page]]:
    """Yield all rows of a table in key order, each page with the bound table to decode it by."""
    return _read_pages(session, read, _mode_of(session))


def _read_pages(
    session: Session, read: ReadActive, began_in: Any
) -> Iterator[tuple[BoundTable, Page]]:
    after = b""
    while True:
        _refuse_elsewhere(session, began_in)
        bound, page = read(partial(_scan_page, after))
        if not page:
            return
        yield bound, page
        after = page[-1][0]


def _scan_page(after: bytes, connection: Connection, bound: BoundTable) -> tuple[int | None, Any]:
    return bound.records.scan_page(connection, after)


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
