"""The holders of the gate that block a schema change, and which of them may be ended (rule 7;
decisions/0010).

On PostgreSQL the server knows the holders: a table lock has an owner, and each session has the id
of its node as its application name. A holder's session is ended if it is idle inside a transaction
and its client is dead: the lease of its node has expired, or it has no node and has been idle for
the length of a lease. The transaction of a live process is never ended; errors name its process
instead.

On SQLite no holder can be ended, because it is another process of this machine. Errors name it if
the system has a table of file locks.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from zapdb.limits import GATE_IDLE_SECONDS
from zapdb.printing import one_line
from zapdb.storage.owners import Owner

if TYPE_CHECKING:
    from zapdb.storage.connection import Connection

SESSION_PREFIX: Final = "zapdb "
"""The prefix of the node's id in the application name of a session."""

LEASES_SQL: Final = "SELECT owner, expires_at FROM zapdb_leases WHERE substr(name, 1, 5) = 'node/'"

HOLDERS_SQL: Final = (
    "SELECT a.pid, a.backend_start, a.state_change, a.application_name, a.usename,"
    " CASE WHEN a.wait_event_type = 'Client'"
    " THEN extract(epoch FROM clock_timestamp() - a.state_change)::float8 ELSE 0 END,"
    " (extract(epoch FROM clock_timestamp()) * 1000000)::bigint"
    " FROM pg_locks l JOIN pg_stat_activity a ON a.pid = l.pid"
    " WHERE l.locktype = 'relation' AND l.relation = 'zapdb_gate'::regclass AND l.granted"
    " AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())"
    " AND a.pid <> pg_backend_pid() ORDER BY a.xact_start"
)

# Only if the session is unchanged: another backend may have its number by now, or its client may
# have resumed.
END_SQL: Final = (
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
    " WHERE pid = %s AND backend_start = %s AND state_change = %s"
)

WAL_WRITE_LOCK: Final = 120
"""The byte of a SQLite database's -shm file that the writing process locks."""


@dataclass(frozen=True, slots=True)
class NodeLease:
    """A node's process, as its lease describes it."""

    owner: Owner
    expires_at: int

    def is_process(self, number: int) -> bool:
        """Return whether the process with this number on this machine is that process."""
        return self.owner.pid == number and self.owner.is_visible()

    def __str__(self) -> str:
        return str(self.owner)


@dataclass(frozen=True, slots=True)
class GateHolder:
    """A session of a PostgreSQL server that holds the gate.

    `idle_seconds` is how long it has been waiting for its client; None if the server does not show
    it, because another role has the session. `lease_seconds` is the rest of its node's lease; None
    without a node.
    """

    backend: int
    user: str
    idle_seconds: float | None
    node: NodeLease | None
    lease_seconds: float | None
    identity: tuple[Any, ...]

    @property
    def may_be_ended(self) -> bool:
        if self.idle_seconds is None:
            return False
        if self.lease_seconds is None:
            return self.idle_seconds >= GATE_IDLE_SECONDS
        return self.idle_seconds > 0 and self.lease_seconds <= 0

    def __str__(self) -> str:
        who = f"backend {self.backend}"
        if self.node is not None:
            who += f" of node {self.node}"
        if self.idle_seconds is None:
            role = one_line(self.user)
            return f"{who}: a session of the role {role}, which this role may not look at"
        said = "at work" if not self.idle_seconds else f"silent for {self.idle_seconds:.1f} s"
        if self.lease_seconds is None:
            return f"{who}: {said}"
        return f"{who}: {said}, its lease ends in {max(0.0, self.lease_seconds):.1f} s"


def read_node_leases(rows: Iterable[Any]) -> dict[str, NodeLease]:
    """Return the leases by node, from the rows of `LEASES_SQL`."""
    leases = (NodeLease(Owner.parse(text), expires_at) for text, expires_at in rows)
    return {lease.owner.id: lease for lease in leases}


def find_holders(connection: Connection) -> list[GateHolder]:
    """Return the sessions that hold the gate, those with the oldest transactions first."""
    leases = read_node_leases(connection.fetch_all(LEASES_SQL))
    holders = []
    for pid, begun, changed, name, user, idle, now_us in connection.fetch_all(HOLDERS_SQL):
        is_hidden = changed is None
        node = leases.get((name or "").removeprefix(SESSION_PREFIX))
        left = None if node is None else (node.expires_at - now_us) / 1e6
        identity = (pid, begun, changed)
        holders.append(GateHolder(pid, user, None if is_hidden else idle, node, left, identity))
    return holders


def find_writer(database: str) -> int | None:
    """Return the process that writes to a SQLite database, if the system shows it (Linux)."""
    try:
        inode = Path(f"{database}-shm").stat().st_ino
        lines = Path("/proc/locks").read_text().splitlines()
    except OSError:
        return None
    for line in lines:
        # 1: POSIX  ADVISORY  WRITE 4711 fe:00:2744509 120 120
        match line.split():
            case [_, "POSIX", _, "WRITE", process, place, first, last] if (
                place.rpartition(":")[2] == str(inode)
                and int(first) <= WAL_WRITE_LOCK
                and (last == "EOF" or int(last) >= WAL_WRITE_LOCK)
            ):
                return int(process) or None
    return None


def describe_process(process: int) -> str:
    """Describe a process of this machine: whether it is this process, or suspended."""
    if process == os.getpid():
        return f"process {process}, which is this one"
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return f"process {process}"
    return f"process {process}" + (", which is suspended" if state in "Tt" else "")
