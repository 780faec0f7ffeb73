"""Leases: who may do something that only one may do, until when, under which epoch.

A lease is a row with its owner and its expiry by the database's clock. It is renewed while
the work goes on, ends by itself when its owner dies, and can then be taken over, which raises its
epoch; whoever works under it checks the epoch inside the transaction that it commits (rule 9).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial

from zapdb.catalog import rows
from zapdb.catalog.kinds import LeaseRow
from zapdb.errors import LeaseHeld, LeaseLost, ZapdbError
from zapdb.limits import LEASE
from zapdb.logs import log_event
from zapdb.metrics import TAKEOVERS
from zapdb.storage import Connection, Mode, Storage
from zapdb.storage.owners import Owner
from zapdb.storage.retries import retry

__all__ = [
    "Lease",
    "Owner",
    "Renewal",
    "acquire",
    "check",
    "hold_lease",
    "release",
    "renew",
    "take",
]

logger = logging.getLogger("zapdb.leases")


@dataclass(frozen=True, slots=True)
class Lease:
    name: str
    owner: Owner
    epoch: int
    since: int
    expires_at: int

    @classmethod
    def of(cls, row: LeaseRow, expires_at: int, epoch: int) -> Lease:
        return cls(row.name, row.owner, epoch, row.since, expires_at)

    def is_over(self, now_us: int) -> bool:
        return self.expires_at <= now_us or self.owner.is_dead()


def acquire(storage: Storage, name: str, owner: Owner, seconds: float) -> Lease:
    """Take the lease, or take it over if it is over; raises `LeaseHeld` naming its owner."""
    with storage.transaction(Mode.CATALOG) as connection:
        return take(connection, name, owner, seconds)


def take(connection: Connection, name: str, owner: Owner, seconds: float) -> Lease:
    """The same inside a CATALOG transaction."""
    now = connection.storage.now_us(connection)
    row, expires = LeaseRow(name, owner, now), now + int(seconds * 1e6)
    if rows.put_if_absent(connection, row, expires_at=expires, epoch=1):
        return Lease.of(row, expires, 1)
    found = rows.get_leased(connection, LeaseRow, name, lock=True)
    assert found is not None
    held = Lease.of(*found)
    if held.owner != owner and not held.is_over(now):
        raise LeaseHeld(
            "another process is at work",
            lease=name,
            owner=held.owner,
            held_seconds=round((now - held.since) / 1e6, 1),
            expires_in_seconds=round((held.expires_at - now) / 1e6, 1),
            hint="wait until it is done; if it is dead, its lease ends by itself",
        )
    if held.owner != owner and held.expires_at:  # it was not given back
        TAKEOVERS.add()
        log_event(
            logger,
            "lease.taken_over",
            "a lease was taken over from a process that is gone",
            level=logging.WARNING,
            lease=name,
            owner=str(held.owner),
            epoch=held.epoch + 1,
        )
    rows.put(connection, row, expires_at=expires, epoch=held.epoch + 1)
    return Lease.of(row, expires, held.epoch + 1)


def renew(connection: Connection, lease: Lease, seconds: float) -> Lease:
    """Put off the expiry; raises `LeaseLost` if somebody took over."""
    check(connection, lease, lock=True)
    expires = connection.storage.now_us(connection) + int(seconds * 1e6)
    renewed = Lease(lease.name, lease.owner, lease.epoch, lease.since, expires)
    rows.touch(connection, LeaseRow, lease.name, expires_at=expires)
    return renewed


def check(connection: Connection, lease: Lease, *, lock: bool = False) -> None:
    """Inside the transaction that is about to commit: raises `LeaseLost` if the epoch moved on."""
    row, _, epoch = rows.get_leased(connection, LeaseRow, lease.name, lock=lock) or (None, 0, 0)
    if row is None or epoch != lease.epoch or row.owner.id != lease.owner.id:
        raise LeaseLost(
            "another process took over, or this one was evicted",
            lease=lease.name,
            epoch=lease.epoch,
            epoch_now="none" if row is None else epoch,
            hint="nothing was committed; open the database again and repeat the work",
        )


def release(storage: Storage, lease: Lease) -> None:
    """Give the lease back if it is still held; the epoch stays, so that it never repeats."""
    with storage.transaction(Mode.CATALOG) as connection:
        row = rows.get_leased(connection, LeaseRow, lease.name, lock=True)
        if row is not None and row[2] == lease.epoch:
            rows.touch(connection, LeaseRow, lease.name, expires_at=0)


class Renewal:
    """Renews a lease from a thread of its own, until it is stopped or the lease is lost.

    What is done under the lease finds out for itself that it was lost: it checks the epoch.
    """

    def __init__(
        self,
        storage: Storage,
        lease: Lease,
        seconds: float,
        every_seconds: float | None = None,
        thread_name: str = "zapdb-lease",
    ) -> None:
        self._storage = storage
        self._lease = lease
        self._seconds = seconds
        self._every_seconds = seconds / 3 if every_seconds is None else every_seconds
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=thread_name, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            while not self._stop.wait(self._every_seconds):
                try:
                    self.beat()
                except LeaseLost as error:
                    logger.warning("%s", error.message)
                    return
                except ZapdbError as error:
                    logger.warning("a lease was not renewed, which is tried again: %s", error)
        finally:
            self._storage.release_connection()

    def beat(self) -> None:
        """What is done each time; raises `LeaseLost` where it is for the last time."""
        with self._storage.transaction(Mode.CATALOG) as connection:
            self.renew(connection)

    def renew(self, connection: Connection) -> None:
        self._lease = renew(connection, self._lease, self._seconds)

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(timeout=5)


@contextmanager
def hold_lease(
    storage: Storage, name: str, owner: Owner, seconds: float, wait_seconds: float
) -> Iterator[Lease]:
    """Hold a lease for a block, and renew it meanwhile; raises `LeaseHeld` where somebody else has
    it for longer than `wait_seconds`."""
    take_it = partial(acquire, storage, name, owner, seconds)
    lease = retry(LEASE.within(wait_seconds), take_it, on=LeaseHeld)
    renewal = Renewal(storage, lease, seconds)
    try:
        yield lease
    finally:
        renewal.stop()
        # What was done is done, and an error is told as it is: a lease that can't be given back
        # ends by itself.
        with suppress(ZapdbError):
            release(storage, lease)
