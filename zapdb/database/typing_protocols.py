"""Tables, queries and fields as type checkers see them through generated models.

These are only protocols: at run time a table is always a `Table`, a query a `Query` and a field a
`FieldExpression`. By the functions at the end, mypy checks that these classes satisfy the
protocols. A test checks that no public method is missing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import tzinfo
from typing import TYPE_CHECKING, Any, Protocol, SupportsIndex, TypeAlias, TypeVar, overload

from zapdb.database.explanation import Explanation
from zapdb.database.fields import FieldExpression, FieldOrder
from zapdb.datasets import Strength
from zapdb.indexes.predicates import Predicate
from zapdb.records import Record

if TYPE_CHECKING:
    from os import PathLike

    from zapdb.database.history.versions import Version
    from zapdb.database.imports import ImportMode, ImportReport, SkippedRow
    from zapdb.database.imports.file_formats import FormatName
    from zapdb.database.page import Page
    from zapdb.database.query import Query
    from zapdb.database.table import Table
    from zapdb.database.unreadable import DiscardedRecord

R = TypeVar("R", covariant=True)
"""The records of a table."""
V = TypeVar("V", contravariant=True)
"""The values of a field."""


Item = TypeVar("Item", covariant=True)
BytesLike: TypeAlias = bytes | bytearray | memoryview


class ListLike(Protocol[Item]):
    """A list or a tuple; no string, whose `in` takes strings alone."""

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[Item]: ...

    def __getitem__(self, place: SupportsIndex, /) -> Item: ...

    def __contains__(self, value: object, /) -> bool: ...


class TypedField(Protocol[V]):
    """A field whose values have no order: lists and JSON."""

    def __eq__(self, value: V | None, /) -> Predicate:  # type: ignore[override]  # a condition, not a bool
        """Equal: the same value, to the last character of a string; None is null."""
        ...

    def __ne__(self, value: V | None, /) -> Predicate:  # type: ignore[override]  # a condition, not a bool
        """Not equal; a null is not equal to any value, and so among them."""
        ...

    def in_(self, values: Iterable[V]) -> Predicate:
        """Equal to one of the values."""
        ...

    def is_null(self) -> Predicate: ...


class TypedOrderedField(TypedField[V], Protocol[V]):
    """A field that can be compared by order, and ordered by."""

    def __lt__(self, value: V, /) -> Predicate: ...

    def __le__(self, value: V, /) -> Predicate: ...

    def __gt__(self, value: V, /) -> Predicate: ...

    def __ge__(self, value: V, /) -> Predicate: ...

    def between(self, low: V, high: V) -> Predicate:
        """From `low` to `high`, both included."""
        ...

    def descending(self) -> FieldOrder:
        """The order from the largest to the smallest, nulls last."""
        ...

    def nulls_last(self) -> FieldOrder:
        """The order from the smallest to the largest, and nulls behind them."""
        ...

    def __neg__(self) -> FieldOrder: ...


class TypedStringField(TypedOrderedField[str], Protocol):
    """A field of strings."""

    def startswith(self, prefix: str) -> Predicate:
        """Strings that begin with the prefix, as `str.startswith` says."""
        ...

    def matches(self, value: str) -> Predicate:
        """Strings that are equal under the collation of the field's index: see `collated`."""
        ...

    def collated(
        self, locale: str | None = None, strength: Strength = "tertiary", *, numeric: bool = False
    ) -> TypedStringField:
        """The same field, compared and ordered under a collation: without a locale, under that of
        the table's indexes on the field."""
        ...


F = TypeVar("F", covariant=True)
"""A field, for conditions."""
H = TypeVar("H")
"""What a record holds."""


class FieldOf(Protocol[F, H]):
    """An attribute of a generated class of records: of the class a field, of a record a value."""

    @overload
    def __get__(self, record: None, owner: type[Any], /) -> F: ...

    @overload
    def __get__(self, record: object, owner: type[Any] | None = None, /) -> H: ...

    def __set__(self, record: object, value: H, /) -> None: ...


AnyField = FieldExpression
"""A field that is not known until the program runs."""


class TypedPage(Protocol[R]):
    """Some records of a query in order, and the cursor of the next page; None on the last one."""

    @property
    def records(self) -> tuple[R, ...]: ...

    @property
    def cursor(self) -> str | None: ...

    def __iter__(self) -> Iterator[R]: ...

    def __len__(self) -> int: ...


class TypedQuery(Protocol[R]):
    """See `zapdb.database.Query`."""

    def where(self, /, *predicates: Predicate, **values: Any) -> TypedQuery[R]:
        """The records of this query for which all the conditions are true, too."""
        ...

    def order_by(self, *fields: str | FieldOrder | TypedOrderedField[Any]) -> TypedQuery[R]:
        """In the order of these fields: a field, its name, or either with a minus."""
        ...

    def using(self, index: str) -> TypedQuery[R]:
        """Read by this index and no other one, in its order unless `order_by` names another."""
        ...

    def reverse(self) -> TypedQuery[R]:
        """The same records from the end of the order."""
        ...

    def limit(self, count: int) -> TypedQuery[R]:
        """At most `count` records: the first ones in the given order, or any."""
        ...

    def include(self, *references: str | TypedField[Any]) -> TypedQuery[R]:
        """Load the records that these reference fields lead to, too: see `record.follow`."""
        ...

    def __iter__(self) -> Iterator[R]: ...

    def all(self) -> Sequence[R]:
        """All records as a list."""
        ...

    def first(self) -> R | None:
        """The first record in the given order, or any; None if no record matches."""
        ...

    def one(self) -> R:
        """The only record; raises `RecordNotFound`, or `SeveralRecords`."""
        ...

    def exists(self) -> bool:
        """Whether any record matches."""
        ...

    def count(self) -> int:
        """How many records match, up to the limit."""
        ...

    def min(self, field: str | TypedOrderedField[Any]) -> Any:
        """The least value of a field; None if there are only nulls."""
        ...

    def max(self, field: str | TypedOrderedField[Any]) -> Any:
        """The greatest value of a field."""
        ...

    def sum(self, field: str | TypedOrderedField[Any]) -> Any:
        """The sum of a field of integers, decimals or floats, nulls left out."""
        ...

    def update(self, /, **changes: Any) -> int:
        """Change fields of the records of the query; returns how many it had."""
        ...

    def delete(self) -> int:
        """Delete the records of the query; returns how many it had."""
        ...

    def to_arrow(self, fields: Collection[str] | None = None, as_text: Collection[str] = ()) -> Any:
        """The records in order as a `pyarrow.RecordBatchReader`."""
        ...

    def to_pandas(
        self, fields: Collection[str] | None = None, as_text: Collection[str] = ()
    ) -> Any:
        """The records in order as a `pandas.DataFrame`."""
        ...

    def page(self, size: int, cursor: str | None = None) -> TypedPage[R]:
        """The next `size` records behind those of the page that the cursor came with."""
        ...

    def explain(self) -> Explanation:
        """How the query is answered now; `str()` says it in words, `to_json()` as data."""
        ...


class TypedTable(Protocol[R]):
    """What tables have in common, see `zapdb.database.Table`; a generated class adds what depends
    on the fields."""

    @property
    def name(self) -> str: ...

    @property
    def field_names(self) -> tuple[str, ...]: ...

    def scan(self) -> Iterator[R]:
        """All records in key order, page by page."""
        ...

    def to_arrow(self, fields: Collection[str] | None = None, as_text: Collection[str] = ()) -> Any:
        """All records in key order as a `pyarrow.RecordBatchReader`."""
        ...

    def to_pandas(
        self, fields: Collection[str] | None = None, as_text: Collection[str] = ()
    ) -> Any:
        """All records in key order as a `pandas.DataFrame`."""
        ...

    def import_from(
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

    def import_file(
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

    def history(self, /, *key: Any, **named: Any) -> list[Version]:
        """The versions of the record with this key, oldest first."""
        ...

    def count(self) -> int: ...

    def where(self, /, *predicates: Predicate, **values: Any) -> TypedQuery[R]:
        """The records for which the conditions are true, and fields have values."""
        ...

    def order_by(self, *fields: str | FieldOrder | TypedOrderedField[Any]) -> TypedQuery[R]:
        """All records in the order of fields."""
        ...

    def delete_where(self, /, *predicates: Predicate, **values: Any) -> int:
        """Delete the records for which the conditions are true; returns how many there were."""
        ...

    def discard_unreadable(
        self,
        /,
        *key: Any,
        stored_key: bytes | None = None,
        replacement: Mapping[str, Any] | None = None,
        **named: Any,
    ) -> DiscardedRecord:
        """Delete a record that can't be read, which `delete` can't; returns its bytes."""
        ...

    def update_where(self, /, *predicates: Predicate, **changes: Any) -> int:
        """Change fields of the records for which the conditions are true; returns how many."""
        ...

    def all(self) -> Sequence[R]:
        """All records as a list."""
        ...

    def first(self) -> R | None:
        """Any record; None if the table is empty."""
        ...

    def one(self) -> R:
        """The only record; raises `RecordNotFound`, or `SeveralRecords`."""
        ...

    def limit(self, count: int) -> TypedQuery[R]:
        """At most `count` records."""
        ...

    def include(self, *references: str | TypedField[Any]) -> TypedQuery[R]:
        """All records with the records that they refer to: see `record.follow`."""
        ...

    def page(self, size: int, cursor: str | None = None) -> TypedPage[R]:
        """The next `size` records behind those of the page that the cursor came with."""
        ...

    def min(self, field: str | TypedOrderedField[Any]) -> Any:
        """The least value of a field; None if there are only nulls."""
        ...

    def max(self, field: str | TypedOrderedField[Any]) -> Any:
        """The greatest value of a field."""
        ...

    def sum(self, field: str | TypedOrderedField[Any]) -> Any:
        """The sum of a field of integers, decimals or floats, nulls left out."""
        ...

    def using(self, index: str) -> TypedQuery[R]:
        """All records by an index, in its order; raises `UnknownName`."""
        ...

    def readable_indexes(self) -> tuple[str, ...]:
        """The names of the indexes that queries can read now."""
        ...


if TYPE_CHECKING:

    def _check_field(field: FieldExpression) -> TypedStringField:
        return field

    def _check_any_field(field: FieldExpression) -> TypedOrderedField[Any]:
        return field

    def _check_page(page: Page) -> TypedPage[Record]:
        return page

    def _check_query(query: Query) -> TypedQuery[Record]:
        return query

    def _check_table(table: Table) -> TypedTable[Record]:
        return table
