"""Tables of `zapdb.aio` as type checkers see them through generated models.

Protocols alone, as `typing_protocols` has for synchronous programs: at run time a table is an
`AsyncTable`. The function at the end holds mypy to it that that does what is promised here.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Generator, Mapping
from datetime import tzinfo
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from zapdb.database.fields import FieldOrder
from zapdb.database.typing_protocols import TypedField, TypedOrderedField
from zapdb.indexes.predicates import Predicate

if TYPE_CHECKING:
    from os import PathLike

    from zapdb import aio
    from zapdb.database.history.versions import Version
    from zapdb.database.imports import ImportMode, ImportReport, SkippedRow
    from zapdb.database.imports.file_formats import FormatName
    from zapdb.database.page import Page
    from zapdb.database.unreadable import DiscardedRecord
    from zapdb.records import Record

R = TypeVar("R")
"""The records of a table."""


class AsyncFile(Protocol):
    """See `zapdb.aio.AsyncFile`."""

    async def __aenter__(self) -> AsyncFile: ...

    async def __aexit__(self, *_: object) -> None: ...

    def __aiter__(self) -> AsyncIterator[bytes]: ...

    async def read(self, size: int = -1) -> bytes:
        """Read `size` bytes, fewer only at the end; by default, all the rest."""
        ...

    async def seek(self, offset: int, whence: int = 0) -> int:
        """Where it is read next; as for any file."""
        ...

    def tell(self) -> int:
        """Where it is read next."""
        ...

    async def close(self) -> None: ...


class AsyncFileOpening(Protocol):
    """See `zapdb.aio.OpeningBlock`: `await` gives the file, `async with` also closes it."""

    def __await__(self) -> Generator[Any, Any, AsyncFile]: ...

    async def __aenter__(self) -> AsyncFile: ...

    async def __aexit__(self, *_: object) -> None: ...


class AsyncTypedTable(Protocol[R]):
    """What tables have in common, see `zapdb.aio.AsyncTable`; a generated class adds what depends
    on the fields."""

    @property
    def name(self) -> str: ...

    @property
    def field_names(self) -> tuple[str, ...]: ...

    def __aiter__(self) -> AsyncIterator[R]: ...

    def scan(self) -> AsyncIterator[R]:
        """All records in key order, page by page."""
        ...

    async def to_arrow(
        self, fields: Collection[str] | None = None, as_text: Collection[str] = ()
    ) -> Any:
        """All records in key order as a `pyarrow.Table`."""
        ...

    async def to_pandas(
        self, fields: Collection[str] | None = None, as_text: Collection[str] = ()
    ) -> Any:
        """All records in key order as a `pandas.DataFrame`."""
        ...

    async def import_from(
        self,
        data: Any,
        *,
        columns: Mapping[str, str] | None = None,
        mode: ImportMode = "append",
        time_zone: tzinfo | None = None,
        skipped: list[SkippedRow] | None = None,
    ) -> ImportReport:
        """Insert the rows of a data frame or of Arrow data."""
        ...

    async def import_file(
        self,
        path: str | PathLike[str],
        *,
        format: FormatName | None = None,
        columns: Mapping[str, str] | None = None,
        mode: ImportMode = "append",
        time_zone: tzinfo | None = None,
        encoding: str | None = None,
        delimiter: str = ",",
        null: str | None = None,
        batch_records: int | None = None,
        skipped: list[SkippedRow] | None = None,
        from_start: bool = False,
    ) -> ImportReport:
        """Insert the rows of a CSV, NDJSON, JSON, Parquet or Arrow file; a job."""
        ...

    async def history(self, /, *key: Any, **named: Any) -> list[Version]:
        """The versions of the record with this key, oldest first."""
        ...

    async def count(self) -> int: ...

    def where(self, /, *predicates: Predicate, **values: Any) -> aio.AsyncQuery[R]:
        """The records for which the conditions are true, and fields have values."""
        ...

    def order_by(self, *fields: str | FieldOrder | TypedOrderedField[Any]) -> aio.AsyncQuery[R]:
        """All records in the order of fields."""
        ...

    async def delete_where(self, /, *predicates: Predicate, **values: Any) -> int:
        """Delete the records for which the conditions are true; returns how many there were."""
        ...

    async def discard_unreadable(
        self,
        /,
        *key: Any,
        stored_key: bytes | None = None,
        replacement: Mapping[str, Any] | None = None,
        **named: Any,
    ) -> DiscardedRecord:
        """Delete a record that can't be read, which `delete` can't; returns its bytes."""
        ...

    async def update_where(self, /, *predicates: Predicate, **changes: Any) -> int:
        """Change fields of the records for which the conditions are true; returns how many."""
        ...

    async def all(self) -> list[R]:
        """All records as a list."""
        ...

    async def first(self) -> R | None:
        """Any record; None if the table is empty."""
        ...

    async def one(self) -> R:
        """The only record; raises `RecordNotFound`, or `SeveralRecords`."""
        ...

    def limit(self, count: int) -> aio.AsyncQuery[R]:
        """At most `count` records."""
        ...

    def include(self, *references: str | TypedField[Any]) -> aio.AsyncQuery[R]:
        """All records with the records that they refer to: see `record.follow`."""
        ...

    async def page(self, size: int, cursor: str | None = None) -> Page[R]:
        """The next `size` records behind those of the page that the cursor came with."""
        ...

    async def min(self, field: str | TypedOrderedField[Any]) -> Any:
        """The least value of a field; None if there are only nulls."""
        ...

    async def max(self, field: str | TypedOrderedField[Any]) -> Any:
        """The greatest value of a field."""
        ...

    async def sum(self, field: str | TypedOrderedField[Any]) -> Any:
        """The sum of a field of integers, decimals or floats, nulls left out."""
        ...

    def using(self, index: str) -> aio.AsyncQuery[R]:
        """All records by an index, in its order; raises `UnknownName`."""
        ...

    async def readable_indexes(self) -> tuple[str, ...]:
        """The names of the indexes that queries can read now."""
        ...


if TYPE_CHECKING:

    def _check_table(table: aio.AsyncTable[Record]) -> AsyncTypedTable[Record]:
        return table

    def _check_file(file: aio.AsyncFile) -> AsyncFile:
        return file

    def _check_opening(opening: aio.OpeningBlock[aio.AsyncFile]) -> AsyncFileOpening:
        return opening
