"""Leases: a time-limited right that one owner has at a time, with an epoch.

A lease is a row with its owner and its expiry by the database's clock. It is renewed during the
work and expires when its owner dies. Another owner can then take it over, which raises its epoch.
An owner checks the epoch inside each transaction that it commits under the lease (rule 9).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

import sqlalchemy as sa

from zapdb.errors import LeaseHeld, LeaseLost, ZapdbError
from zapdb.limits import CATALOG, LEASE
from zapdb.logs import log_event
from zapdb.metrics import TAKEOVERS
from zapdb.storage import Connection, Storage, TransactionMode
from zapdb.storage.cells import checked
from zapdb.storage.fixed_tables import LEASES
from zapdb.storage.interruption import finish_even_if_interrupted
from zapdb.storage.owners import Owner
from zapdb.storage.retries import retry

__all__ = [
    "HeldLeases",
    "Lease",
    "Owner",
    "Renewal",
    "acquire",
    "acquire_free",
    "check",
    "hold_lease",
    "hold_leases",
    "release",
    "renew",
    "take",
]

logger = logging.getLogger("zapdb.leases")

_COLUMNS: Final = ", ".join(LEASES.c.keys())
"""The arguments of `_from_columns`, in its order."""


@dataclass(frozen=True, slots=True)
class Lease:
    name: str
    owner: Owner
    epoch: int
    since: int
    expires_at: int

    def is_over(self, now_us: int) -> bool:
        return self.expires_at <= now_us or self.owner.is_dead()


def acquire(storage: Storage, name: str, owner: Owner, seconds: float) -> Lease:
    """Take the lease, also an expired one of another owner; raises `LeaseHeld`, which names the
    owner."""
    taken, held = acquire_free(storage, [name], owner, seconds)
    if held is not None:
        raise held
    return taken[0]


def acquire_free(
    storage: Storage, names: Sequence[str], owner: Owner, seconds: float
) -> tuple[list[Lease], LeaseHeld | None]:
    """Take leases in one transaction, in their order, up to the first that another owner holds;
    returns those that were taken, and the error for that one.

    Tries again if the server ended the connection: on a loaded machine, a process may be idle in a
    transaction for too long.
    """

    def try_once() -> tuple[list[Lease], LeaseHeld | None]:
        taken = list[Lease]()
        with storage.transaction(TransactionMode.CATALOG) as connection:
            for name in names:
                try:
                    taken.append(take(connection, name, owner, seconds))
                except LeaseHeld as error:
                    return taken, error
        return taken, None

    return retry(CATALOG, try_once)


def take(connection: Connection, name: str, owner: Owner, seconds: float) -> Lease:
    """Take the lease inside a CATALOG transaction; raises `LeaseHeld`."""
    free = _insert(connection, name, owner, seconds)
    if free is not None:
        return free
    held = read_lease(connection, name, lock=True)
    assert held is not None, "the row that is in the way is locked"
    now = connection.storage.now_us(connection)
    if held.owner != owner and not held.is_over(now):
        raise LeaseHeld(
            "another process holds the lease",
            lease=name,
            owner=held.owner,
            held_seconds=round((now - held.since) / 1e6, 1),
            expires_in_seconds=round((held.expires_at - now) / 1e6, 1),
            hint="wait until it has finished; if the process is dead, its lease expires",
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
    taken = Lease(name, owner, held.epoch + 1, now, now + int(seconds * 1e6))
    _update(connection, name, **_to_columns(taken))
    return taken


def renew(connection: Connection, lease: Lease, seconds: float) -> Lease:
    """Postpone the expiry, unless it was given back; raises `LeaseLost` if another owner took
    over."""
    check(connection, lease, lock=True)
    storage = connection.storage
    expires, mark = storage.now_us(connection) + int(seconds * 1e6), storage.placeholder
    connection.run(
        f"UPDATE zapdb_leases SET expires_at = {mark} WHERE name = {mark} AND expires_at > 0",
        (expires, lease.name),
    )
    return replace(lease, expires_at=expires)


def check(connection: Connection, *leases: Lease, lock: bool = False) -> None:
    """Raise `LeaseLost` if the epoch of one of them has risen; called inside the transaction that
    is about to commit."""
    known = _read_leases(connection, [lease.name for lease in leases], lock=lock)
    for lease in leases:
        found = known.get(lease.name)
        if found is None or (found.epoch, found.owner.id) != (lease.epoch, lease.owner.id):
            raise LeaseLost(
                "another process took over the lease, or this process was evicted",
                lease=lease.name,
                epoch=lease.epoch,
                epoch_now="none" if found is None else found.epoch,
                hint="nothing was committed; open the database again and repeat the work",
            )


def release(storage: Storage, *leases: Lease) -> None:
    """Give leases back that are still held; the epochs stay, so that they never repeat."""
    with storage.transaction(TransactionMode.CATALOG) as connection:
        release_in(connection, leases)


def release_in(connection: Connection, leases: Sequence[Lease]) -> None:
    """Give leases back inside a transaction, as `release` does."""
    mark = connection.storage.placeholder
    named = " OR ".join([f"(name = {mark} AND epoch = {mark})"] * len(leases))
    connection.run(
        f"UPDATE zapdb_leases SET expires_at = 0 WHERE {named}",
        [cell for lease in leases for cell in (lease.name, lease.epoch)],
    )


def return_lease(connection: Connection, name: str) -> None:
    """Give the lease back inside the transaction that took it."""
    _update(connection, name, expires_at=0)


def delete_lease(connection: Connection, name: str) -> None:
    connection.run(
        f"DELETE FROM zapdb_leases WHERE name = {connection.storage.placeholder}", (name,)
    )


def read_lease(connection: Connection, name: str, *, lock: bool = False) -> Lease | None:
    return _read_leases(connection, [name], lock=lock).get(name)


def _read_leases(
    connection: Connection, names: Sequence[str], *, lock: bool = False
) -> dict[str, Lease]:
    storage = connection.storage
    found = connection.fetch_all(
        f"SELECT {_COLUMNS} FROM zapdb_leases"
        f" WHERE name IN ({', '.join([storage.placeholder] * len(names))})"
        f"{storage.dialect.lock_rows_sql if lock else ''}",
        names,
    )
    leases = [_from_columns(*row) for row in checked(LEASES.c, found)]
    return {lease.name: lease for lease in leases}


def list_leases(connection: Connection, prefix: str = "") -> list[Lease]:
    """Return the leases whose names begin with `prefix`, by name; released ones expired at 0."""
    query = sa.select(LEASES).where(LEASES.c.name.startswith(prefix, autoescape=True))
    return [_from_columns(*row) for row in connection.core_execute(query.order_by(LEASES.c.name))]


def _from_columns(name: str, owner: str, epoch: int, since: int, expires_at: int) -> Lease:
    return Lease(name, Owner.parse(owner), epoch, since, expires_at)


def _to_columns(lease: Lease) -> dict[str, Any]:
    return {
        "owner": lease.owner.to_text(),
        "epoch": lease.epoch,
        "since": lease.since,
        "expires_at": lease.expires_at,
    }


def _insert(connection: Connection, name: str, owner: Owner, seconds: float) -> Lease | None:
    """Take a lease that is new or was given back; if its owner has not given it back, lock its
    row and return None."""
    mark, clock = connection.storage.placeholder, connection.storage.dialect.clock_sql
    found = connection.fetch_all(
        f"WITH clock (now) AS ({clock}) INSERT INTO zapdb_leases ({_COLUMNS})"
        f" SELECT {mark}, {mark}, 1, now, now + {int(seconds * 1e6)} FROM clock"
        " WHERE true"  # SQLite would take ON for a join's
        " ON CONFLICT (name) DO UPDATE SET epoch = zapdb_leases.epoch + 1, owner = excluded.owner,"
        " since = excluded.since, expires_at = excluded.expires_at"
        " WHERE zapdb_leases.expires_at = 0"
        f" RETURNING {_COLUMNS}",
        (name, owner.to_text()),
    )
    return next((_from_columns(*row) for row in checked(LEASES.c, found)), None)


def _update(connection: Connection, name: str, **columns: Any) -> None:
    mark = connection.storage.placeholder
    written = ", ".join(f"{column} = {mark}" for column in columns)
    connection.run(
        f"UPDATE zapdb_leases SET {written} WHERE name = {mark}", [*columns.values(), name]
    )


class Renewal:
    """Renews leases from a thread of its own, until it is stopped, one is lost, or the database is
    closed.

    Work under the lease notices the loss, because it checks the epoch.
    """

    def __init__(
        self,
        storage: Storage,
        leases: Sequence[Lease],
        seconds: float,
        every_seconds: float | None = None,
        thread_name: str = "zapdb-lease",
    ) -> None:
        self.lost: LeaseLost | None = None
        """Why a lease was lost, if one was."""
        self._storage = storage
        self._leases = leases
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
                    self.lost = error
                    logger.warning("%s", error.message)
                    return
                except ZapdbError as error:
                    if self._storage.pool.is_closed:
                        return
                    logger.warning("a lease was not renewed, which is tried again: %s", error)
        finally:
            self._storage.release_connection()

    def beat(self) -> None:
        """Do the work of one interval; raises `LeaseLost` to stop."""
        with self._storage.transaction(TransactionMode.CATALOG) as connection:
            self.renew(connection)

    def renew(self, connection: Connection) -> None:
        for lease in tuple(self._leases):
            renew(connection, lease, self._seconds)

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(timeout=5)


class HeldLeases:
    """Leases that a block holds, in the order in which they were taken."""

    def __init__(self) -> None:
        self.leases: list[Lease] = []
        self.is_released = False

    def release_in(self, connection: Connection) -> None:
        """Give them back in the last transaction of the block, which checks them before. Should the
        block fail after all, they are given back at its end."""
        release_in(connection, self.leases)
        self.is_released = True


@contextmanager
def hold_leases(
    storage: Storage,
    names: Sequence[str],
    owner: Owner,
    seconds: float,
    wait_seconds: float,
    before_again: Callable[[int], object] = lambda made: None,
) -> Iterator[HeldLeases]:
    """Hold leases for a block, and renew them meanwhile. They are taken in their order, all that
    are free at once; raises `LeaseHeld` if another owner has one for longer than `wait_seconds`.
    `before_again` is called before each further try."""
    held, renewals = HeldLeases(), list[Renewal]()

    def take_left() -> None:
        taken, refused = acquire_free(storage, names[len(held.leases) :], owner, seconds)
        held.leases += taken
        if held.leases and not renewals:
            renewals.append(Renewal(storage, held.leases, seconds))
        if refused is not None:
            raise refused

    is_done = False
    try:
        policy = LEASE.within(wait_seconds)
        retry(policy, take_left, on=LeaseHeld, before_again=before_again)
        yield held
        is_done = held.is_released
    finally:
        for renewal in renewals:
            renewal.stop()
        if held.leases and not is_done:
            give_back = partial(_try_release, storage, held.leases)
            finish_even_if_interrupted(give_back, storage.release_connection)


def _try_release(storage: Storage, leases: Sequence[Lease]) -> None:
    """The work is done, and an error of its block must not be hidden: a lease that can't be
    released expires."""
    with suppress(ZapdbError):
        release(storage, *leases)


@contextmanager
def hold_lease(
    storage: Storage,
    name: str,
    owner: Owner,
    seconds: float,
    wait_seconds: float,
    before_again: Callable[[int], object] = lambda made: None,
) -> Iterator[Lease]:
    """Hold one lease for a block, as `hold_leases` does."""
    with hold_leases(storage, [name], owner, seconds, wait_seconds, before_again) as held:
        yield held.leases[0]
