"""Keeping the files that a past is read from, while it is used for many calls."""

from __future__ import annotations

from typing import Self

from zapdb.catalog.cluster import leases
from zapdb.catalog.cluster.leases import Lease, Owner, Renewal
from zapdb.errors import UsageError
from zapdb.limits import HISTORY_LEASE_SECONDS
from zapdb.past.files.history_erasures import Erasure, list_erasures
from zapdb.past.files.history_manifest import PIN_PREFIX, list_timelines
from zapdb.storage import Connection, TransactionMode
from zapdb.storage.identifiers import make_uuid7
from zapdb.tables.session import Session


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
