"""Reading the database as it is now, whatever snapshot or transaction the caller is in."""

from __future__ import annotations

from collections.abc import Callable
from threading import Thread
from typing import TYPE_CHECKING, TypeVar

from zapdb.storage.connection import Connection
from zapdb.storage.transaction_modes import TransactionMode
from zapdb.storage.transaction_owners import in_no_transaction

if TYPE_CHECKING:
    from zapdb.storage.storage import Storage

T = TypeVar("T")


def read_in_own_transaction(storage: Storage, read: Callable[[Connection], T]) -> T:
    """Call it in a READ transaction of its own; if the caller is in one, in another thread, which
    has a connection of its own. Raises what it raises."""
    if not storage.is_in_transaction:
        with storage.transaction(TransactionMode.READ) as connection:
            return read(connection)
    made, failed = list[T](), list[BaseException]()

    def run() -> None:
        try:
            with storage.transaction(TransactionMode.READ) as connection:
                made.append(read(connection))
        except BaseException as error:
            failed.append(error)
        finally:
            storage.release_connection()

    thread = Thread(target=in_no_transaction().run, args=(run,), name="zapdb-outside", daemon=True)
    thread.start()
    thread.join()
    if failed:
        raise failed[0]
    return made[0]
