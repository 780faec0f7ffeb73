"""Stale records that were read are written back converted, if a setting says so (rules 14, 16).

It is best effort, after the read, in short transactions of its own that give up if they would have
to wait. What reads inside a transaction or a snapshot writes nothing back, and neither do SQL and
Arrow.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from itertools import islice

from zapdb.errors import ConcurrencyError, CorruptRecord, StorageError
from zapdb.limits import WRITE_BACK_RECORDS
from zapdb.records import Attachments, ReadConflict
from zapdb.storage import Connection, TransactionMode
from zapdb.tables.indexes import BoundTable
from zapdb.tables.session import Session, changed_while_read
from zapdb.tables.writes import BatchConversion, WritePlan, convert_records, execute


def write_back(
    session: Session,
    bound: BoundTable,
    key: bytes,
    old: bytes,
    new: bytes,
    attachments: Attachments,
) -> None:
    """Write the converted record back if the stored one is still `old` and no concurrent work
    prevents it."""
    with _best_effort(), _begin(session, bound) as connection:
        if _lock(connection, bound, (f"value = {session.storage.placeholder}", [old]), [key]):
            plan = WritePlan(bound, is_locked=True)
            plan.convert(key, old, new, attachments)
            execute(connection, plan)


def write_back_page(
    session: Session, bound: BoundTable, rows: Iterable[tuple[bytes, bytes]]
) -> None:
    """Convert the stale ones of the (key, record) rows that were just read, unless anything is in
    the way; do nothing if no setting says so."""
    if not session.writes_back(bound) or session.storage.is_in_transaction:
        return
    reader, is_stale = bound.reader, bound.current.is_stale
    conversion = BatchConversion(reader.convert, reader.convert_rows)
    stale = iter([key for key, value in rows if type(value) is bytes and is_stale(value)])
    condition = bound.current.stale_sql(session.storage.placeholder)
    with _best_effort():
        while some := list(islice(stale, WRITE_BACK_RECORDS)):
            with _begin(session, bound) as connection:
                batch = _lock(connection, bound, condition, some)
                convert_records(connection, bound, batch, conversion)


def _best_effort() -> AbstractContextManager[None]:
    """Ignore errors of the block: the next read converts the records again, as this one did."""
    return suppress(ConcurrencyError, StorageError, CorruptRecord, ReadConflict)


@contextmanager
def _begin(session: Session, bound: BoundTable) -> Iterator[Connection]:
    with session.storage.transaction(TransactionMode.NOWAIT) as connection:
        session.check_writer(connection)
        if session.catalog is not bound.catalog:
            raise changed_while_read(bound)
        yield connection


def _lock(
    connection: Connection,
    bound: BoundTable,
    condition: tuple[str, list[bytes]],
    keys: Sequence[bytes],
) -> list[tuple[bytes, bytes]]:
    """Lock the records that still satisfy a condition, given with its parameters, and that no other
    transaction has locked."""
    value_is, values = condition
    records, mark = bound.statements, connection.storage.placeholder
    marks = ", ".join([mark] * len(keys))
    return connection.storage.dialect.lock_records(
        connection,
        records.name,
        f"tenant = {records.tenant} AND {value_is} AND key IN ({marks})",
        [*values, *keys],
        len(keys),
        of_held="skip",
    )
