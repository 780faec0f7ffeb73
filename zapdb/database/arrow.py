"""A table as a stream of Arrow record batches, page by page as a scan reads it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from functools import partial
from typing import Any

from zapdb.database.session import Question, Session
from zapdb.errors import TransactionConflict, UsageError
from zapdb.indexes import LiveTable
from zapdb.records.arrow import arrow_schema, decode_batches, to_reader
from zapdb.storage import Connection

Ask = Callable[[Question[Any]], tuple[LiveTable, Any]]


def open_reader(
    session: Session, ask: Ask, fields: Collection[str] | None, as_text: Collection[str]
) -> Any:
    """A `pyarrow.RecordBatchReader` of what `ask` asks; it holds one page at a time."""
    live, _ = ask(lambda connection, _: (session.read_activation(connection), None))
    schema = arrow_schema(live.shape.table, fields, as_text)
    began_in = session.storage.connection().mode

    def read() -> Iterator[Any]:
        after = b""
        while True:
            if began_in is not None and session.storage.connection().mode is not began_in:
                raise UsageError(
                    "the stream was opened in a snapshot or transaction, and read outside of it",
                    table=live.shape.table.name,
                    hint="read it there, in the same thread: to_arrow().read_all()",
                )
            now, page = ask(partial(_scan_page, after))
            if not page:
                return
            if not arrow_schema(now.shape.table, fields, as_text).equals(schema):
                raise TransactionConflict(
                    "the table's shape changed while it was read",
                    table=now.shape.table.name,
                    hint="read it again, or inside db.snapshot()",
                )
            yield from decode_batches(
                now.shape.table,
                page,
                now.make_beside,
                reader=now.shape.reader,
                fields=fields,
                as_text=as_text,
                zones=now.view.zones,
            )
            after = page[-1][0]

    return to_reader(schema, read())


def _scan_page(after: bytes, connection: Connection, live: LiveTable) -> tuple[int | None, Any]:
    return live.records.scan_page(connection, after)
