"""What differs between SQLite and PostgreSQL beneath SQL: how a database is connected to, how its
transactions begin and end, and what the errors of its driver mean.

An engine knows the driver's connections, and nothing of who uses them (`pool`), nor of what a
transaction is for (`storage`).
"""

from __future__ import annotations

import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import sqlalchemy
from sqlalchemy.engine import URL

from zapdb.storage.addresses import show_address
from zapdb.storage.dialect import Dialect
from zapdb.storage.fair_lock import FairSemaphore
from zapdb.storage.transaction_modes import TransactionMode

if TYPE_CHECKING:
    from zapdb.storage.connection import Connection
    from zapdb.storage.pipelined import PipelineQueue
    from zapdb.storage.sequences import DrawnInside


class StorageEngine(ABC):
    """A database at its address; safe to share between threads."""

    must_be_unused = False
    """Whether a connection must not be closed while another thread uses it."""
    secret_options: Mapping[str, Any] = MappingProxyType({})
    """The options of the address that `url` leaves out, so that nothing made of `url` can show
    them."""
    is_gone = False
    """Whether the opened database is known not to exist any longer."""
    turn: FairSemaphore | None = None
    """The queue of this process's writers, if the engine has one writer at a time."""

    def __init__(
        self, url: URL, core: sqlalchemy.Engine, dialect: Dialect, *, read_only: bool
    ) -> None:
        self.url = url
        self.core = core
        self.dialect = dialect
        self.read_only = read_only
        self.node_id = uuid.uuid4().hex[:12]
        """Identifies this storage to other processes: the id of its registered node."""
        # SQLAlchemy would end transactions that it did not begin: on SQLite its commit and rollback
        # act even in autocommit mode. Beginning and ending is done by `Storage` alone.
        core.dialect.do_commit = _do_nothing  # type: ignore[assignment]  # no connection is looked at
        core.dialect.do_rollback = _do_nothing  # type: ignore[assignment]  # no connection is looked at

    @property
    def identity(self) -> str:
        """The same text for all that have opened the database in this process."""
        return self.url.render_as_string()

    @property
    def shown_url(self) -> str:
        """Return the address without its password and without other parts that may be secret."""
        return show_address(self.url)

    def full_address(self) -> str:
        """Return the address with its password, for another process; never to be shown."""
        url = self.url.update_query_dict(self.secret_options)
        return url.render_as_string(hide_password=False)

    @property
    def file_mode(self) -> int:
        """The mode of files that are made with records of the database: that of its own file, if it
        has one. The process's umask applies, too."""
        return 0o666

    def is_absent(self) -> bool:
        """Return whether the database does not exist yet, so that connecting would create it."""
        return False

    def require_there(self) -> None:  # noqa: B027 - one has nothing to do
        """Raise `DatabaseReplaced` if the opened database does not exist any longer."""

    def prepare(self, connect: Callable[[], Connection]) -> None:  # noqa: B027 - one has nothing to do
        """Make the lasting settings of a database of zapdb's; outside of transactions."""

    def check_capabilities(self, connection: Connection) -> None:  # noqa: B027 - one has nothing to do
        """Check, before zapdb's tables are created, that the server has the features that zapdb
        uses (rule 33)."""

    def export_snapshot(self, connection: Connection) -> str | None:
        """Return the name of the snapshot of an open READ transaction, or None if the engine has no
        such names. Other sessions can read as of the same moment while the transaction is open."""
        return None

    def import_snapshot(self, name: str) -> None:
        """Begin all READ transactions from now on as of a snapshot that another session exported.

        They raise `StorageError` once the other session's transaction has ended.
        """
        raise NotImplementedError(f"{self.dialect.name} exports no snapshots")

    def end_dead_holders(self, connection: Connection) -> None:  # noqa: B027 - one has nothing to do
        """End the sessions of dead processes that still hold the gate (rule 7)."""

    def close(self) -> None:  # noqa: B027 - one has nothing to do
        """Clean up after the last connection was closed."""

    # Connections

    @abstractmethod
    def is_lost(self, driver: Any) -> bool:
        """Whether the driver's connection can't be used any more."""

    @abstractmethod
    def is_idle(self, driver: Any) -> bool:
        """Whether the driver's connection is in no transaction, and can be used."""

    @abstractmethod
    def cancel_statement(self, driver: Any) -> None:
        """Cancel the statement that another thread runs on the driver's connection, if any."""

    @abstractmethod
    def executor(self, driver: Any) -> Any:
        """Return the object that runs the statements of the hot path on the driver's connection.

        Its `execute` returns a cursor, whose rows are fetched before the next statement.
        """

    def make_queue(self, connection: Connection) -> PipelineQueue | None:
        """Return what queues the statements of a connection's writing transactions, if the engine
        can send several at once."""
        return None

    def execute_many(self, driver: Any, sql: str, rows: Iterable[Sequence[Any]]) -> None:
        """Run a statement for each row of parameters on the driver's connection."""
        driver.cursor().executemany(sql, rows)

    def copy_in(self, driver: Any, sql: str, data: Iterable[bytes]) -> None:
        """Run a statement that takes rows from the client on the driver's connection."""
        raise NotImplementedError(f"{self.dialect.name} takes rows as parameters only")

    @abstractmethod
    def translate(self, error: BaseException) -> Exception:
        """Return zapdb's error for a driver's error."""

    # Transactions

    @abstractmethod
    def begin(self, connection: Connection, mode: TransactionMode, *, exclusive: bool) -> None:
        """Begin a transaction, with the turn to write if there are turns; raises the driver's
        errors."""

    def before_commit(  # noqa: B027 - one has nothing to do
        self, connection: Connection, mode: TransactionMode, seconds: float
    ) -> None:
        """The end of a transaction that took so long, inside it."""

    @abstractmethod
    def commit(self, connection: Connection) -> None: ...

    @abstractmethod
    def is_refused_commit(self, connection: Connection, error: BaseException) -> bool:
        """Return whether COMMIT's error, other than a conflict, proves that nothing was written."""

    @abstractmethod
    def roll_back(self, connection: Connection, drawn: DrawnInside | None) -> None:
        """Roll back a transaction, if there is one; blocks of sequences that it drew stay drawn."""

    def kept_out(self, connection: Connection, mode: TransactionMode) -> Exception:
        """Return the error for a turn to write that did not come in time."""
        raise NotImplementedError  # where there are no turns

    refusing_deadlock: Callable[[Connection], AbstractContextManager[object]] = nullcontext
    """Watches the block, which may wait for an open transaction that only this thread's event loop
    could end; raises `UsageError` within a second then. Where nothing waits, nothing is watched."""


def _do_nothing(_driver: object) -> None:
    """Replace SQLAlchemy's commit and rollback."""
