"""What the tables of one open database share: the storage, the view in force, the transactions.

A writing transaction takes the gate, then reads in one statement each its node's epoch and the
tenant's activation number; if that moved, the view is loaded again inside the transaction, so that
what it writes fits what is in force when it commits (rules 7 and 8).
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from zapdb.catalog import View, load_view
from zapdb.catalog.nodes import Node, lease_is_held
from zapdb.catalog.up import refuse_while_forgetting
from zapdb.errors import LeaseLost, TransactionConflict, UnknownName, UsageError
from zapdb.indexes import LiveTable
from zapdb.limits import RETRIES_MAX
from zapdb.storage import Connection, Mode, Storage
from zapdb.storage.physical import activation_sql

T = TypeVar("T")


class Session:
    """Thread-safe; one per open database."""

    def __init__(self, storage: Storage, view: View, node: Node | None) -> None:
        self.storage = storage
        self.node = node
        self._lock = threading.Lock()
        self._view = view
        self._tables: dict[str, LiveTable] = {}
        self.activation_sql = activation_sql(view.tenant)
        self._lease_sql = ""
        if node is not None:
            self._lease_sql = (
                f"SELECT value FROM zapdb_catalog WHERE kind = 'lease' AND key = 'node/{node.id}'"
            )

    @property
    def view(self) -> View:
        return self._view

    def live(self, name: str) -> LiveTable:
        """The table as it is in force, as far as this process knows."""
        live = self._tables.get(name)
        if live is None:
            with self._lock:
                view = self._view
                live = LiveTable(self.storage, view, view.table(name))
                self._tables[name] = live
        return live

    def reload(self, connection: Connection) -> None:
        """Load what is in force, in the connection's transaction if it has one."""
        view = load_view(connection, self._view.tenant, self._view)
        with self._lock:
            if view.activation >= self._view.activation:
                self._view = view
                self._tables = {}

    def refresh_table(self, live: LiveTable) -> LiveTable:
        """The table after a statement saw another activation number; it may have been renamed."""
        self.reload(self.storage.connection())
        number = live.table.number
        for state in self._view.tables.values():
            if state.table.number == number:
                return self.live(state.table.name)
        raise UnknownName("the table was dropped", table=live.table.name)

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """The transaction of this thread, or one of its own around a single operation."""
        connection = self.storage.connection()
        if connection.mode is Mode.WRITE:
            yield connection
            return
        if connection.mode is not None:
            raise UsageError(
                "a snapshot reads only", hint="write after it, or use db.transaction()"
            )
        with self.storage.transaction(Mode.WRITE) as begun:
            self._check(begun)
            yield begun

    @contextmanager
    def snapshot(self) -> Iterator[Connection]:
        with self.storage.transaction(Mode.READ) as connection:
            (activation,) = connection.fetch_one(self.activation_sql)
            if activation != self._view.activation:
                self.reload(connection)
            yield connection

    def _check(self, connection: Connection) -> None:
        if self.node is None:
            raise UsageError("the database was opened read-only", hint="open it without read_only")
        if not lease_is_held(connection, self._lease_sql, self.node.lease.epoch):
            raise LeaseLost(
                "this process was evicted",
                node=self.node.lease.owner,
                hint="nothing was written; close the database and open it again",
            )
        (activation,) = connection.fetch_one(self.activation_sql)
        if activation != self._view.activation:
            self.reload(connection)
        refuse_while_forgetting(self._view)

    def run(self, action: Callable[[], T]) -> T:
        """A single operation: repeated when it meets another transaction, unless inside one."""
        connection = self.storage.connection()
        if connection.mode is not None:
            return action()
        for attempt in range(RETRIES_MAX):
            try:
                return action()
            except TransactionConflict:
                # Full jitter: transactions that collided should not do so again in step.
                time.sleep(random.uniform(0, 0.002 * 2 ** min(attempt, 7)))  # noqa: S311 - no secret
        return action()
