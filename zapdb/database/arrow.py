"""Records as a stream of Arrow record batches: a whole table, page by page as a scan reads it, or
what a query finds, in its order."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from functools import partial
from itertools import islice
from typing import Any

from zapdb.database.session import Session, TableRead, changed_while_read
from zapdb.errors import UsageError
from zapdb.indexes import LiveTable
from zapdb.limits import PAGE_RECORDS_MAX
from zapdb.records import Beside, Record, encode_prefix, raw_value
from zapdb.records.arrow import arrow_decoder, arrow_schema, decode_batches, to_reader
from zapdb.storage import Connection
from zapdb.storage.identifiers import make_uuid7
from zapdb.values import Blob

ReadActive = Callable[[TableRead[Any]], tuple[LiveTable, Any]]
Page = list[tuple[bytes, bytes]]
"""Keys and records, as they are stored."""


def open_reader(
    session: Session, read: ReadActive, fields: Collection[str] | None, as_text: Collection[str]
) -> Any:
    """A `pyarrow.RecordBatchReader` of what `read` returns; it holds one page at a time."""
    live, _ = read(lambda connection, _: (session.read_activation(connection), None))
    schema = arrow_schema(live.shape.table, fields, as_text)
    return to_reader(schema, read_batches(session, read, schema, fields, as_text))


def read_batches(
    session: Session,
    read: ReadActive,
    schema: Any,
    fields: Collection[str] | None,
    as_text: Collection[str],
) -> Iterator[Any]:
    """Batches of these fields; raises `TransactionConflict` where they are not `schema` any more.

    What is read in a transaction or snapshot is read there: `UsageError` anywhere else.
    """
    return _to_batches(read_pages(session, read), schema, fields, as_text)


def _to_batches(
    pages: Iterable[tuple[LiveTable, Page]],
    schema: Any,
    fields: Collection[str] | None,
    as_text: Collection[str],
) -> Iterator[Any]:
    for live, page in pages:
        decoder = arrow_decoder(live.shape.table, fields, as_text, live.view.zones)
        if not decoder.schema.equals(schema):
            raise changed_while_read(live)
        yield from decode_batches(decoder, page, live.make_beside, live.shape.reader)


def read_pages(session: Session, read: ReadActive) -> Iterator[tuple[LiveTable, Page]]:
    """All rows of a table in key order, with the shape in which they are to be seen."""
    return _read_pages(session, read, _mode_of(session))


def _read_pages(
    session: Session, read: ReadActive, began_in: Any
) -> Iterator[tuple[LiveTable, Page]]:
    after = b""
    while True:
        _refuse_elsewhere(session, began_in)
        live, page = read(partial(_scan_page, after))
        if not page:
            return
        yield live, page
        after = page[-1][0]


def _scan_page(after: bytes, connection: Connection, live: LiveTable) -> tuple[int | None, Any]:
    return live.records.scan_page(connection, after)


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
    live: LiveTable,
    found: Iterator[tuple[bytes, Record]],
    fields: Collection[str] | None,
    as_text: Collection[str],
) -> Any:
    """A `pyarrow.RecordBatchReader` of records with their keys, in the shape of `live`."""
    schema = arrow_schema(live.shape.table, fields, as_text)
    began_in = _mode_of(session)

    def read() -> Iterator[Any]:
        while True:
            _refuse_elsewhere(session, began_in)
            page = list(islice(found, PAGE_RECORDS_MAX))
            if not page:
                return
            beside = _gather_blobs(record for _, record in page)
            yield from decode_batches(
                arrow_decoder(live.shape.table, fields, as_text, live.view.zones),
                [(key, _encode(live, record, beside)) for key, record in page],
                partial(_anywhere, beside),
            )

    return to_reader(schema, read())


def _anywhere(beside: Beside, _key: bytes, _value: bytes) -> Beside:
    return beside


def _encode(live: LiveTable, record: Record, beside: Beside) -> bytes:
    """A record as bytes in the shape that it was decoded to; blobs are referred to as before."""
    if record._fields != live.shape.codec.record._fields:
        raise changed_while_read(live)
    values = {name: raw_value(record, name)[0] for name in record._fields}
    return live.shape.codec.encode(encode_prefix(1), values, beside)


def _gather_blobs(records: Iterable[Record]) -> Beside:
    """Where the blobs of all these records are loaded from."""
    besides: dict[bytes, Beside] = {}
    for record in records:
        for name in record._fields:
            value, beside = raw_value(record, name)
            if isinstance(value, Blob) and beside is not None:
                besides[value.id] = beside
    return Beside(lambda blob: besides[blob.id].load(blob), make_uuid7)
