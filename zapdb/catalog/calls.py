"""What services were called for: the call log, and the requests that they know by a key.

Neither is part of the catalog's rows, which every process caches.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec
import sqlalchemy as sa

from zapdb.catalog.cluster.nodes import list_nodes
from zapdb.errors import CommitUnknown, ConcurrencyError, KeyInUse
from zapdb.limits import CALL_LOG_CALLS_MAX, REQUEST_KEPT_SECONDS
from zapdb.storage import Connection
from zapdb.storage.cells import reading
from zapdb.storage.fixed_tables import CALLS, IS_REFUSED_CALL, REQUESTS

PAGE_CALLS: Final = 1_000
CALLS_PER_STATEMENT: Final = 64
US: Final = 1_000_000
IS_REFUSED: Final = sa.text(IS_REFUSED_CALL)
_INSERT: Final = (
    "INSERT INTO zapdb_requests (principal, key, request, owner, expires_at)"
    " VALUES ({mark}, {mark}, {mark}, {mark}, {mark}) ON CONFLICT DO NOTHING RETURNING key"
)


@dataclass(frozen=True, slots=True)
class LoggedCall:
    """A row of the call log. The id is a UUID of version 7; `called_at` is in microseconds since
    1970-01-01 UTC by the database's clock."""

    id: bytes
    called_at: int
    principal: str
    method: str
    tenant: str
    tables: tuple[str, ...]
    status: str
    duration_us: int


def write_calls(connection: Connection, calls: Sequence[LoggedCall]) -> None:
    """Write calls, inside a transaction; such a row is never changed."""
    columns = ", ".join(CALLS.columns.keys())
    one = f"({', '.join([connection.storage.placeholder] * len(CALLS.columns))})"
    # A statement for each call would let go of Python's lock for each, and wait for it again beside
    # the event loop: that took longer than all else that the log does.
    for start in range(0, len(calls), CALLS_PER_STATEMENT):
        some = calls[start : start + CALLS_PER_STATEMENT]
        rows = ", ".join([one] * len(some))
        connection.run(
            f"INSERT INTO zapdb_calls ({columns}) VALUES {rows}",
            [value for call in some for value in _row_of(call)],
        )


def _row_of(call: LoggedCall) -> tuple[Any, ...]:
    return (
        call.id,
        call.called_at,
        call.principal,
        call.method,
        call.tenant,
        msgspec.json.encode(call.tables).decode(),
        call.status,
        call.duration_us,
    )


def read_calls(
    connection: Connection,
    tenant: str | None,
    since_us: int | None,
    principal: str | None,
    before: tuple[int, bytes] | None,
) -> list[LoggedCall]:
    """A page of the call log of a tenant, or of all, newest first, of calls before one that was
    read: its time and its id."""
    query = sa.select(CALLS)
    if tenant is not None:
        query = query.where(CALLS.c.tenant_name == tenant)
    if since_us is not None:
        query = query.where(CALLS.c.called_at >= since_us)
    if principal is not None:
        query = query.where(CALLS.c.principal == principal)
    if before is not None:
        query = query.where(sa.tuple_(CALLS.c.called_at, CALLS.c.id) < sa.tuple_(*before))
    query = query.order_by(CALLS.c.called_at.desc(), CALLS.c.id.desc()).limit(PAGE_CALLS)
    with reading("zapdb_calls"):
        return [_call_of(*row) for row in connection.core_execute(query)]


def _call_of(*row: Any) -> LoggedCall:
    id, called_at, principal, method, tenant, tables, status, duration_us = row
    names = tuple(map(str, json.loads(tables)))
    return LoggedCall(id, called_at, principal, method, tenant, names, status, duration_us)


def prune_calls(connection: Connection, retention_seconds: int, now_us: int) -> None:
    """Delete what the call log keeps no longer, by age (0: for good) and by number; and requests
    that are known no longer.

    Beyond the number, refused calls go first: a principal that is refused again and again pushes
    out nothing but refusals.
    """
    if retention_seconds:
        oldest = now_us - retention_seconds * US
        connection.core_execute(sa.delete(CALLS).where(CALLS.c.called_at < oldest))
    if _count_excess(connection):
        for which in (IS_REFUSED, sa.true()):
            _prune_oldest(connection, which, _count_excess(connection))
    connection.core_execute(sa.delete(REQUESTS).where(REQUESTS.c.expires_at < now_us))


def _count_excess(connection: Connection) -> int:
    counted = connection.core_execute(sa.select(sa.func.count()).select_from(CALLS)).fetchone()
    assert counted is not None
    return max(0, int(counted[0]) - CALL_LOG_CALLS_MAX)


def _prune_oldest(connection: Connection, which: Any, count: int) -> None:
    """Delete so many calls, the oldest first, or as many as there are."""
    if not count:
        return
    found = sa.select(CALLS.c.called_at, CALLS.c.id).where(which)
    found = found.order_by(CALLS.c.called_at, CALLS.c.id).offset(count - 1).limit(1)
    last = connection.core_execute(found).fetchone()
    pruned = sa.delete(CALLS).where(which)
    if last is not None:
        by_time = sa.tuple_(CALLS.c.called_at, CALLS.c.id)
        pruned = pruned.where(by_time <= sa.tuple_(last[0], last[1]))
    connection.core_execute(pruned)


@dataclass(frozen=True, slots=True)
class KeyedRequest:
    """A request that its principal has given a key: the SHA-256 of it, with its method. `shown_by`
    is the command that shows what it may have changed."""

    principal: str
    key: str
    sha256: bytes
    shown_by: str = ""

    @property
    def _row(self) -> Any:
        return sa.and_(REQUESTS.c.principal == self.principal, REQUESTS.c.key == self.key)

    def begin(self, connection: Connection, owner: str, now_us: int) -> bytes | None:
        """Begin the request as the node `owner`, in a transaction of its own; or return the answer,
        if it was answered before.

        Raises `KeyInUse` if the key is that of another request, `ConcurrencyError` while another
        process does it, and `CommitUnknown` if this process does it no more, or the other one is
        dead: it is never done twice.
        """
        connection.core_execute(
            sa.delete(REQUESTS).where(self._row, REQUESTS.c.expires_at < now_us)
        )
        row = (
            self.principal,
            self.key,
            self.sha256,
            owner,
            now_us + int(REQUEST_KEPT_SECONDS * US),
        )
        marked = connection.storage.placeholder
        if connection.fetch_all(_INSERT.format(mark=marked), row):
            return None
        query = sa.select(REQUESTS.c.request, REQUESTS.c.owner, REQUESTS.c.answer).where(self._row)
        found = connection.core_execute(query).fetchall()
        if found and bytes(found[0][0]) != self.sha256:
            raise KeyInUse(
                "another request has this idempotency key",
                key=self.key,
                principal=self.principal,
                hint="give each request a key of its own",
            )
        if found and found[0][2] is not None:
            return bytes(found[0][2])
        if found and (found[0][1] == owner or found[0][1] not in _list_alive(connection)):
            raise CommitUnknown(
                "it is not known whether the first call with this idempotency key took effect: it "
                "was broken off",
                key=self.key,
                hint=f"`{self.shown_by}` shows whether it did; if it did not, call again with "
                "another key",
            )
        raise ConcurrencyError(
            "the same request is under way",
            key=self.key,
            hint="ask again: its answer is kept",
        )

    def end(self, connection: Connection, answer: bytes) -> None:
        connection.core_execute(sa.update(REQUESTS).where(self._row).values(answer=answer))

    def forget(self, connection: Connection) -> None:
        """Of a request that was refused: the next one with the key may succeed."""
        connection.core_execute(sa.delete(REQUESTS).where(self._row, REQUESTS.c.answer.is_(None)))


def _list_alive(connection: Connection) -> Iterator[str]:
    return (node.id for node, alive in list_nodes(connection) if alive)
