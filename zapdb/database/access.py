"""What a database and the handles of its transactions have in common: tables, and SQL."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, TypeVar, overload

from zapdb.activation.served_schema import served_names
from zapdb.database.habits import no_database_attribute
from zapdb.database.models import Model, check_class, table_name
from zapdb.database.session import Session
from zapdb.database.table import Table
from zapdb.errors import ZapdbError
from zapdb.limits import SQL_MEMORY_SIZE_BYTES, SQL_ROWS, SQL_SECONDS

if TYPE_CHECKING:
    from zapdb.database.sql import Result

M = TypeVar("M")
"""A table as generated models declare it."""


class Access:
    """What is read and written goes through here: by name, or by SQL."""

    _session: Session
    _facets: ClassVar[Mapping[str, type]] = {}
    """By the name of an attribute, its class; what errors look through."""

    @overload
    def table(self, name: str) -> Table: ...

    @overload
    def table(self, name: type[Model[M]]) -> M: ...

    def table(self, name: str | type[Model[Any]]) -> Any:
        """A table by its name, or by the class of its records in generated models.

        Raises `UnknownName`, naming the tables that there are, and `ModelsMismatch` for a class
        that is not that of the table's records.
        """
        table = Table(self._session, table_name(name))
        if not isinstance(name, str):
            check_class(name, self._session.bind_served(table.name).adapter.codec.record)
        return table

    @property
    def tables(self) -> tuple[str, ...]:
        """The names of the tables that there are, as this process's files have them."""
        return served_names(self._session.catalog, self._session.served_position)

    if not TYPE_CHECKING:  # to a type checker, a class with `__getattr__` has every attribute

        def __getattr__(self, name: str) -> NoReturn:
            if name.startswith("_"):
                raise AttributeError(name)
            tables: tuple[str, ...] = ()
            with suppress(ZapdbError):  # of a handle that has ended
                tables = self.tables
            raise no_database_attribute(self, name, tables, self._facets)

    def sql(
        self,
        statement: str,
        params: Sequence[Any] | Mapping[str, Any] | None = None,
        *,
        as_text: Collection[str] = (),
        max_memory: int = SQL_MEMORY_SIZE_BYTES,
        seconds: float = SQL_SECONDS,
        max_rows: int = SQL_ROWS,
        spill_to: str | os.PathLike[str] | None = None,
    ) -> Result:
        """The answer of one SQL SELECT over the tables, by DuckDB: read-only, as of one moment.

        That is the moment of the snapshot or transaction that this thread is in, or its own. The
        tables that are named are streamed, and of them the columns that are used; the answer is in
        memory. `params` are the values of `?` or `$1`, or by name of `$name`. The catalog is there
        as `zapdb_migrations`, `zapdb_nodes` and others: `show tables` lists all. Integers beyond 64
        bits, and decimals beyond 38 digits, raise `InvalidValue`, unless `as_text` makes strings of
        their field: `as_text=["orders.serial"]`.

        A statement runs in a process of its own, which opens no file and is killed when it takes
        longer than `seconds`, or more than `max_memory` bytes; `SqlLimitExceeded` says which, also
        of an answer of more than `max_rows`. Under the directory `spill_to` it may keep what it has
        no memory for, in one of its own that goes with it; without, it has no files at all.

        Raises `SqlError`, with the place in the statement, and `UsageError` for what is no SELECT.
        Needs the extra `sql`.
        """
        from zapdb.database.sql import Allowance, run_sql

        allowance = Allowance(max_memory, seconds, max_rows, spill_to)
        with self._session.using():
            return run_sql(self._session, statement, params, as_text, allowance)
