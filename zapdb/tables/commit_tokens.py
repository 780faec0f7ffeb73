"""Commit tokens: rows that tell whether a COMMIT with an unknown outcome took effect (rule 15).

A transaction that carries a token inserts a row with it. If COMMIT then reports an error, another
connection inserts the same row, with `NEVER` as its owner. PostgreSQL makes that insert wait until
the first transaction has ended. Then the first one's row is there, together with everything that
the transaction wrote; or the other row is there, and stays: the first session may not have come to
its insert yet, though its client is gone, and is refused when it does. SQLite has no such session,
so that looking is enough.

The rows have a table of their own: a row of the catalog would need a number of its feed, whose
counter all writers would wait for. A row expires by the database's clock. An expired row tells
nothing, and a process that resolves or writes other tokens deletes it.
"""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, partial
from typing import Final

from zapdb.errors import CommitUnknown, TransactionConflict, ZapdbError
from zapdb.limits import COMMIT_OUTCOME, COMMIT_TOKEN_KEPT_SECONDS, COMMIT_TOKEN_PURGE_SECONDS
from zapdb.storage import Connection, Storage, TransactionMode
from zapdb.storage.cells import as_number
from zapdb.storage.identifiers import make_uuid7
from zapdb.storage.retries import retry

ABSENT_HINT: Final = "nothing was written; run it again, or give the work to db.run(function)"

_INSERT: Final = (
    "INSERT INTO zapdb_commit_tokens (id, owner, expires_at)"
    " SELECT {mark}, {mark}, ({clock}) + {kept}"
)
_FIND: Final = "SELECT owner FROM zapdb_commit_tokens WHERE id = {mark}"
NEVER: Final = "-"
"""The owner of a row that keeps the transaction of its token from taking effect."""
PURGE: Final = "DELETE FROM zapdb_commit_tokens WHERE expires_at < {mark}"


@dataclass(frozen=True, slots=True)
class CommitToken:
    """`expires_at` by the database's clock, in microseconds since 1970-01-01 UTC."""

    id: bytes
    owner: str
    expires_at: int


def write_commit_token(connection: Connection, owner: str) -> CommitToken:
    """Insert a new token, in the transaction that it is about."""
    made = make_uuid7()
    (expires_at,) = connection.fetch_one(
        _insert_sql(connection.storage) + " RETURNING expires_at", (made, owner)
    )
    return CommitToken(made, owner, as_number(expires_at))


def send_commit_token(connection: Connection, owner: str, clock_us: int) -> CommitToken:
    """Send a new token in a transaction whose statements travel together, without waiting for it.

    The database's clock showed `clock_us` some time ago, so the row lives at least as long as the
    token says.
    """
    made = make_uuid7()
    connection.send(_insert_sql(connection.storage), (made, owner))
    return CommitToken(made, owner, clock_us + int(COMMIT_TOKEN_KEPT_SECONDS * 1e6))


def resolve_commit(storage: Storage, token: CommitToken, unknown: CommitUnknown) -> None:
    """Return if the transaction took effect; raise `TransactionConflict` if it did not and never
    will, and `unknown` if that can't be found out."""
    look = partial(_took_effect, storage, token)

    def require_open(_: int) -> None:
        storage.require_open()

    try:  # the server may still be down, or the first session open
        took_effect = retry(COMMIT_OUTCOME, look, on=ZapdbError, before_again=require_open)
    except ZapdbError as error:
        raise unknown from error
    if took_effect is None:
        raise unknown
    if not took_effect:
        raise TransactionConflict(
            "COMMIT reported an error and did not take effect",
            database=storage.shown_url,
            hint=ABSENT_HINT,
        ) from unknown


def _took_effect(storage: Storage, token: CommitToken) -> bool | None:
    with storage.transaction(TransactionMode.CATALOG) as connection:
        if storage.dialect.name == "postgresql":
            connection.run(f"SET LOCAL lock_timeout = {int(COMMIT_OUTCOME.seconds * 1000)}")
            connection.run(_insert_sql(storage) + " ON CONFLICT DO NOTHING", (token.id, NEVER))
        rows = connection.fetch_all(_FIND.format(mark=storage.placeholder), (token.id,))
        # The row may have been purged if that took so long.
        if storage.now_us(connection) >= token.expires_at:
            return None
        return any(owner != NEVER for (owner,) in rows)


def _insert_sql(storage: Storage) -> str:
    return _format_insert(storage.placeholder, storage.dialect.clock_sql, COMMIT_TOKEN_KEPT_SECONDS)


@cache
def _format_insert(mark: str, clock: str, kept_seconds: float) -> str:
    return _INSERT.format(mark=mark, clock=clock, kept=int(kept_seconds * 1e6))


class CommitTokenPurger:
    """Deletes expired tokens now and then, in a process that writes others."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._next = 0.0
        self._lock = threading.Lock()
        self.clock_us: int | None = None
        """What the database's clock showed at the last time; None before the first."""

    def run_if_due(self) -> None:
        if time.monotonic() < self._next:
            return
        with self._lock:
            if time.monotonic() < self._next:
                return
            self._next = time.monotonic() + COMMIT_TOKEN_PURGE_SECONDS
        with suppress(ZapdbError):  # another one does it, or the next
            _, self.clock_us = _purge(self._storage)


def purge_tokens(storage: Storage) -> int:
    """Delete expired tokens; returns how many."""
    return _purge(storage)[0]


def _purge(storage: Storage) -> tuple[int, int]:
    """The same, and what the database's clock showed."""
    with storage.transaction(TransactionMode.CATALOG) as connection:
        now_us = storage.now_us(connection)
        return connection.run(PURGE.format(mark=storage.placeholder), (now_us,)), now_us
