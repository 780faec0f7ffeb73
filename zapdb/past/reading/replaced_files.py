"""Reading files of a history store that others replace meanwhile.

An erasure deletes the former files at once, unless they are pinned; others go after the grace. What
was about to read one of them begins again, with the files of now. Inside a snapshot the former ones
are all that it sees: there, `HistoryErased` or `HistoryReplaced` says why they are gone. So does
`HistoryErased` to who has pinned them, as a past does that is used for many calls.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self, TypeVar

from zapdb.catalog.cluster import leases
from zapdb.catalog.cluster.leases import Lease, Owner, Renewal
from zapdb.errors import (
    HistoryDamaged,
    HistoryErased,
    HistoryReplaced,
    UsageError,
    ZapdbError,
)
from zapdb.limits import HISTORY_LEASE_SECONDS, READ
from zapdb.past.files.history_erasures import Erasure, list_erasures
from zapdb.past.files.history_manifest import (
    NO_TABLE,
    PIN_PREFIX,
    list_history_files,
    list_timelines,
)
from zapdb.storage import Connection, TransactionMode
from zapdb.storage.identifiers import make_uuid7
from zapdb.storage.retries import attempts
from zapdb.tables.session import Session

T = TypeVar("T")


def retry_if_compacted(session: Session, read: Callable[[], T]) -> T:
    """Call it, and again as long as it misses a file that was replaced. Raises `HistoryDamaged`,
    and, where the caller's snapshot sees no other files, `HistoryErased` and `HistoryReplaced`;
    `HistoryErased` also where files are gone that the session has pinned."""
    for _ in attempts(READ):
        try:
            return read()
        except (HistoryDamaged, HistoryReplaced) as error:
            session.require_pinned()
            missed = explain_missing(session, error)
            if session.storage.is_in_transaction or not isinstance(missed, HistoryReplaced):
                raise missed from error.__cause__
    raise missed


def explain_missing(
    session: Session, error: HistoryDamaged | HistoryReplaced
) -> HistoryDamaged | HistoryReplaced:
    """Return the error for a file that can't be read: `HistoryReplaced`, or `HistoryErased`, if it
    is not live any more, else the same."""
    path = error.context.get("path")
    if path is None or isinstance(error, HistoryReplaced):
        return error

    def list_now(connection: Connection) -> list[Erasure] | None:
        if _is_live(session, connection, str(path)):
            return None
        return list_erasures(connection, session.catalog.tenant)

    erased = session.storage.read_in_own_transaction(list_now)
    if erased is None:
        return error
    if not session.storage.is_in_transaction:
        return _make_replaced(error)
    seen = list_erasures(session.storage.connection(), session.catalog.tenant)
    before = {one.id for one in seen if one.finished_at is not None}
    table = error.context.get("table")
    mine = [
        one
        for one in erased
        if one.id not in before and table in (one.table_number, NO_TABLE, None)
    ]
    return _make_erased(error, mine[-1]) if mine else _make_replaced(error)


def _is_live(session: Session, connection: Connection, path: str) -> bool:
    return any(
        str(file.place_in(store.directory)) == path
        for store in list_timelines(connection, session.catalog.tenant)
        for file in list_history_files(connection, store)
    )


def _make_erased(error: ZapdbError, erasure: Erasure) -> HistoryErased:
    return HistoryErased(
        "a file of the history store that the snapshot reads was deleted by an erasure",
        erasure=erasure.id,
        **_find_file(error),
        hint="read the moment again, outside of the snapshot or in a new one: what was erased is "
        "gone, and all else is there",
    )


def make_unpinned(erasure: Erasure) -> HistoryErased:
    return HistoryErased(
        "files of the history store that the past has pinned were deleted by an erasure",
        erasure=erasure.id,
        hint="leave the block and read the moment again: what was erased is gone, and all else is "
        "there",
    )


def _make_replaced(error: ZapdbError) -> HistoryReplaced:
    return HistoryReplaced(
        "a file of the history store that the snapshot reads was replaced, and deleted after the "
        "grace",
        **_find_file(error),
        hint="read the moment again, outside of the snapshot or in a new one; `with past:` around "
        "a long one keeps its files",
    )


def _find_file(error: ZapdbError) -> dict[str, Any]:
    return {name: error.context[name] for name in ("table", "path") if name in error.context}


class FilesPin:
    """Retired files of a tenant's store are not deleted while it is held: a lease, which is renewed
    until `release`. An erasure that does not wait for it deletes the lease before the files."""

    def __init__(self, session: Session, lease: Lease, renewal: Renewal) -> None:
        self._session, self._lease, self._renewal = session, lease, renewal

    @classmethod
    def take(cls, session: Session) -> Self | None:
        """Pin the files of now; None without a store, and in a process that is read-only, for which
        they stay for the grace. Raises `UsageError` inside a transaction."""
        storage, tenant = session.storage, session.catalog.tenant
        if storage.is_in_transaction:
            raise UsageError(
                "the files of the past can't be pinned inside a transaction or a snapshot",
                hint="enter `with past:` before it",
            )
        if session.is_read_only or not list_timelines(storage.connection(), tenant):
            return None
        name = f"{PIN_PREFIX}{tenant}/{make_uuid7().hex()}"
        lease = leases.acquire(storage, name, Owner.here(), HISTORY_LEASE_SECONDS)
        return cls(session, lease, Renewal(storage, [lease], HISTORY_LEASE_SECONDS))

    def find_breaker(self, connection: Connection) -> Erasure | None:
        """Return the erasure that has deleted the lease, if one has."""
        if leases.read_lease(connection, self._lease.name) is not None:
            return None
        since = self._lease.since
        found = list_erasures(connection, self._session.catalog.tenant)
        mine = [one for one in found if one.finished_at is None or one.finished_at >= since]
        return mine[-1] if mine else None

    def release(self) -> None:
        self._renewal.stop()
        with self._session.storage.transaction(TransactionMode.CATALOG) as connection:
            leases.delete_lease(connection, self._lease.name)
