"""The common base of databases and of transactions' handles: tables, and SQL."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, TypeVar, overload

from zapdb.database.table import Table
from zapdb.errors import ZapdbError
from zapdb.limits import SQL_MEMORY_SIZE_BYTES, SQL_ROWS, SQL_SECONDS
from zapdb.tables.did_you_mean import no_database_attribute, no_table_by_item
from zapdb.tables.session import Session
from zapdb.typed.model_classes import Model, check_class, table_name

if TYPE_CHECKING:
    from zapdb.sql import Result

M = TypeVar("M")
"""A table's class in generated models."""


class ReadAccess:
    """Access to tables by SQL, and to their names."""

    _session: Session
    _facets: ClassVar[Mapping[str, type]] = {}
    """By the name of an attribute, its class; errors search it for a misspelt name."""

    @property
    def tables(self) -> tuple[str, ...]:
        """The names of the tables in the served schema."""
        return self._session.table_names

    if not TYPE_CHECKING:  # to a type checker, a class with `__getattr__` has every attribute

        def __getattr__(self, name: str) -> NoReturn:
            if name.startswith("_"):
                raise AttributeError(name)
            tables: tuple[str, ...] = ()
            with suppress(ZapdbError):  # of a handle that has ended
                tables = self.tables
            raise no_database_attribute(self, name, tables, self._facets, Table)

        def __getitem__(self, name: object) -> NoReturn:
            raise no_table_by_item(self, name)

        def __contains__(self, name: object) -> NoReturn:
            raise no_table_by_item(self, name)

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
        """Run one SQL SELECT over the tables with DuckDB, read-only, as of one moment.

        That is the moment of the snapshot or transaction that this thread is in, or its own. The
        used columns of the named tables are streamed; the result is in memory. `params` are the
        values of `?` or `$1`, or by name of `$name`. The catalog is available as
        `zapdb_migrations`, `zapdb_tables` and others: `show tables` lists all. Integers beyond 64
        bits, and decimals beyond 38 digits, raise `InvalidValue`, unless `as_text` makes strings of
        their field: `as_text=["orders.serial"]`.

        A statement runs in its own process, which opens no file and is killed when it takes longer
        than `seconds`, or more than `max_memory` bytes. `SqlLimitExceeded` names the limit, also
        for a result of more than `max_rows`. With `spill_to`, data that exceed the memory are kept
        in a temporary directory below it, which is deleted afterwards.

        Raises `SqlError`, with the place in the statement, and `UsageError` for any other
        statement. Needs the extra `sql`.
        """
        from zapdb.sql import StatementLimits, run_sql

        allowance = StatementLimits(max_memory, seconds, max_rows, spill_to)
        with self._session.using():
            return run_sql(self._session, statement, params, as_text, allowance)


class Access(ReadAccess):
    """Access to tables by name, and by SQL."""

    @overload
    def table(self, name: str) -> Table: ...

    @overload
    def table(self, name: type[Model[M, Any]]) -> M: ...

    def table(self, name: str | type[Model[Any, Any]]) -> Any:
        """Return a table by its name, or by the class of its records in generated models.

        Raises `UnknownName`, which lists the tables, and `ModelsMismatch` for a class of other
        records.
        """
        table = Table(self._session, table_name(name))
        if not isinstance(name, str):
            check_class(name, self._session.bind_served(table.name).adapter.codec.record)
        return table
