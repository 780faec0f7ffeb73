"""Whom a method asks, and how it is called: here, or on a service."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Concatenate,
    Final,
    ParamSpec,
    Protocol,
    TypeVar,
)

from zapdb.activation import TenantCatalog, schema_history_recovery
from zapdb.catalog.cluster import ensure_database
from zapdb.catalog.cluster.level import check_level
from zapdb.catalog.tenants import find_tenant
from zapdb.control.bounds import call_method
from zapdb.storage import Connection, Storage, TransactionMode, read_storage_version

if TYPE_CHECKING:
    from zapdb.database import Database

P = ParamSpec("P")
A = TypeVar("A")
F = TypeVar("F", bound=Callable[..., Any])

_PACE: Final = "zapdb_pace_seconds"

Json = Annotated[Any, "JSON"]
"""Plain data of any shape: a message has it as a text of JSON."""


@dataclass(frozen=True)
class Target:
    """One tenant of a database. `open_database` opens it as applications do, and needs no closing:
    the maker of the target closes it.

    `shows_values` says of a table whether the caller may see values of its records; of an empty
    name, whether of those of all tables. If it `is_served`, the caller is on another machine.
    """

    storage: Storage
    tenant_name: str
    open_database: Callable[[], Database]
    shows_values: Callable[[str], bool] = lambda table: True
    is_served: bool = False

    def shows_values_of(self, *names: str | None) -> bool:
        """Whether the caller may see what is told of a table under all of these names: those that
        it had then, and has now. No name is that of no single table."""
        return all(map(self.shows_values, {name or "" for name in names}))

    def only_shown(
        self, found: Iterable[A], names_of: Callable[[A], Iterable[str | None]]
    ) -> Iterator[A]:
        """Those entries of an answer that the caller may see, by the names that the table of each
        has in it: a table that was asked for by one name may have had another, which a grant for
        the first does not cover. It is asked for each entry: grants change while a stream is
        read."""
        return (
            one for one in found if self.shows_values("") or self.shows_values_of(*names_of(one))
        )

    def require_rows(self) -> None:
        """Raise `PendingMigrations` for a database that is empty or missing."""
        ensure_database(self.storage, create=False)

    def tenant(self) -> int:
        """The number of the tenant; raises `UnknownName`, and the errors of `require_rows`."""
        self.require_rows()
        connection = self.storage.connection()
        check_level(connection)
        return find_tenant(connection, self.tenant_name).number

    def catalog(self) -> TenantCatalog:
        """What is active for the tenant; raises the errors of `tenant`."""
        return schema_history_recovery.load_or_recover(self.storage, self.tenant())

    def catalog_if_any(self) -> TenantCatalog | None:
        """The same, or None if the database is empty or missing; nothing is created."""
        return None if read_storage_version(self.storage) is None else self.catalog()

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """A transaction that reads all as of one moment."""
        with self.storage.transaction(TransactionMode.READ) as connection:
            yield connection


class Control(Protocol):
    """Calls methods: of a database that this process has opened, or of a service."""

    def call(
        self, method: Callable[Concatenate[Target, P], A], /, *args: P.args, **named: P.kwargs
    ) -> A: ...


class LocalControl:
    """Calls methods in this process."""

    def __init__(self, target: Target) -> None:
        self._target = target

    def call(
        self, method: Callable[Concatenate[Target, P], A], /, *args: P.args, **named: P.kwargs
    ) -> A:
        answer: Any = call_method(method, self._target, *args, **named)
        pace = pace_of(method)
        if pace:
            answer = _paced(answer, pace)
        return answer  # type: ignore[no-any-return] # of the method's own type


def _paced(answers: Iterator[Any], seconds: float) -> Iterator[Any]:
    for answer in answers:
        yield answer
        time.sleep(seconds)


def paced(seconds: float) -> Callable[[F], F]:
    """A method whose stream looks at something again for each of its answers: the caller
    waits for so long between two, and nothing in the database waits with it."""

    def mark(method: F) -> F:
        method.__dict__[_PACE] = seconds
        return method

    return mark


def pace_of(method: Callable[..., Any]) -> float:
    """The seconds between two answers of its stream; 0 if they come as they are there."""
    seconds: float = method.__dict__.get(_PACE, 0.0)
    return seconds


def method_name(method: Callable[..., Any]) -> str:
    """`catalog.list_tables`."""
    return f"{method.__module__.split('.')[2]}.{method.__name__}"
