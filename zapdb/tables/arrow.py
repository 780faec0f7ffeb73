"""Records as a stream of Arrow record batches: a whole table, page by page as a scan reads it, or
what a query finds, in its order."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from functools import partial
from itertools import islice
from typing import Any, Final, NamedTuple

from zapdb.errors import UsageError
from zapdb.limits import ARROW_PAGE_RECORDS, PAGE_RECORDS_MAX
from zapdb.records import (
    Attachments,
    MakeAttachments,
    PagedRows,
    Record,
    encode_prefix,
    raw_value,
)
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
from zapdb.tables.indexes import BoundTable
from zapdb.tables.indexes.spans import Span
from zapdb.tables.iteration import Iteration, KeyBranch, Taken, begin_iteration
from zapdb.tables.session import Session, TableRead, changed_while_read
from zapdb.values import Blob

ReadActive = Callable[[TableRead[Any]], tuple[BoundTable, Any]]
KeyRange = tuple[bytes | None, bytes | None]
"""Encoded record keys: lower ≤ key < upper; None is no bound."""
WHOLE_TABLE: Final[KeyRange] = (None, None)


class StoredPage(NamedTuple):
    """Rows of a page, at least one, with the bound table to decode them by."""

    bound: BoundTable
    rows: PackedRows
    make_attachments: MakeAttachments


def open_reader(
    session: Session, read: ReadActive, fields: Collection[str] | None, as_text: Collection[str]
) -> Any:
    """A `pyarrow.RecordBatchReader` of what `read` returns; it holds one page at a time."""
    bound, _ = read(lambda connection, _: (session.read_catalog_version(connection), None))
    schema = arrow_schema(bound.adapter.schema, fields, as_text)
    wanted = Wanted(schema, fields, as_text)
    return to_reader(schema, read_batches(session, read, bound, wanted))


class Wanted(NamedTuple):
    """The fields of a table that are wanted, None for all, and their Arrow schema."""

    schema: Any
    fields: Collection[str] | None
    as_text: Collection[str]


def read_batches(
    session: Session,
    read: ReadActive,
    bound: BoundTable,
    wanted: Wanted,
    keys: KeyRange = WHOLE_TABLE,
) -> Iterator[Any]:
    """Batches of these fields; raises `TransactionConflict` if they have another schema by now.

    What is read in a transaction or snapshot is read there: `UsageError` anywhere else.
    """
    return _to_batches(read_pages(session, read, bound, keys), wanted)


def _to_batches(pages: Iterator[StoredPage], wanted: Wanted) -> Iterator[Any]:
    schema, fields, as_text = wanted
    for bound, page, make_attachments in pages:
        decoder = arrow_decoder(bound.adapter.schema, fields, as_text, bound.catalog.zones)
        if not decoder.schema.equals(schema):
            raise changed_while_read(bound)
        yield from decode_page(decoder, page, make_attachments, bound.adapter.reader)


def read_pages(
    session: Session, read: ReadActive, bound: BoundTable, keys: KeyRange = WHOLE_TABLE
) -> Iterator[StoredPage]:
    """Yield all rows of a table, or those with the keys of a range, in key order. The iteration
    begins here."""
    branch = KeyBranch(bound, Span(*keys))
    iteration = Iteration([branch])
    begin_iteration(session, bound, iteration)
    return _read_pages(session, read, _mode_of(session), branch, iteration)


def _read_pages(
    session: Session, read: ReadActive, began_in: Any, branch: KeyBranch, iteration: Iteration
) -> Iterator[StoredPage]:
    lower, upper = branch.span.lower, branch.span.upper
    are_short, limit = True, PAGE_RECORDS_MAX  # who wants a few gets them soon
    while True:
        _refuse_elsewhere(session, began_in)
        if are_short:
            bound, page = read(partial(_read_joined, lower, upper, limit))
            if page is not None and len(page) and iteration.take_unmarked(0, page.last_key):
                branch.bound = bound
                yield StoredPage(bound, page, bound.make_attachments)
                lower, limit = page.last_key + b"\x00", ARROW_PAGE_RECORDS
                continue
            are_short = False  # a record is long, or was written: others behind it may be so
        bound, rows = read(partial(_read_rows, lower, upper))
        branch.bound, is_last = bound, len(rows) < PAGE_RECORDS_MAX
        if rows:
            lower = rows[-1][1] + b"\x00"
        for taken in iteration.take_all(0, branch.span, rows, is_last=is_last):
            yield from _join_taken(bound, taken)
        if is_last:
            return


def _join_taken(bound: BoundTable, taken: Taken) -> Iterator[StoredPage]:
    """Yield rows together with those as of the beginning, in the order of their keys."""
    rows = {key: value for _, key, value in taken.rows}
    rows |= {one.key: one.stored for one in taken.owed if one.stored is not None}
    if not rows:
        return
    then = {one.key: one.attachments(bound) for one in taken.owed if one.archive is not None}

    def make_attachments(key: bytes = b"", value: bytes = b"") -> Attachments:
        return then.get(key) or bound.make_attachments(key, value)

    yield StoredPage(bound, PackedRows.of(sorted(rows.items())), make_attachments)


def _read_joined(
    lower: bytes | None, upper: bytes | None, limit: int, connection: Connection, bound: BoundTable
) -> tuple[int | None, PackedRows | None]:
    version, found = bound.records.joined_page(connection, lower, upper, limit)
    if found is None:
        return version, None
    return version, PackedRows.joined(found.keys, found.key_sizes, found.values, found.value_sizes)


def _read_rows(
    lower: bytes | None, upper: bytes | None, connection: Connection, bound: BoundTable
) -> tuple[int | None, PagedRows]:
    return bound.records.page(connection, lower, upper, None, PAGE_RECORDS_MAX, descending=False)


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
