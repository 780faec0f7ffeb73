"""Reading files of a history store that an erasure replaces meanwhile.

An erasure deletes the former files at once, unless they are pinned. What was about to read one of
them begins again, with the files of now. Inside a snapshot the former ones are all that it sees.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from zapdb.database.session import Session
from zapdb.errors import HistoryDamaged
from zapdb.limits import READ
from zapdb.storage import TransactionMode
from zapdb.storage.history_manifest import list_history_files, list_timelines
from zapdb.storage.retries import attempts

T = TypeVar("T")


def read_replaceable(session: Session, read: Callable[[], T]) -> T:
    """Call it, and again as long as it misses a file that was replaced; raises `HistoryDamaged`."""
    for _ in attempts(READ):
        try:
            return read()
        except HistoryDamaged as error:
            damaged = error
            if not is_replaced(session, error):
                break
    raise damaged


def is_replaced(session: Session, damaged: HistoryDamaged) -> bool:
    """Whether the file is not live any more, as far as the caller can see another one."""
    storage, path = session.storage, damaged.context.get("path")
    if path is None or storage.is_in_transaction:
        return False
    with storage.transaction(TransactionMode.READ) as connection:
        return not any(
            str(file.place_in(store.directory)) == path
            for store in list_timelines(connection, session.catalog.tenant)
            for file in list_history_files(connection, store)
        )
