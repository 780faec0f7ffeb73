"""What an application reads of a table: records by their keys, all of them, and queries."""

from __future__ import annotations

import io
import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Generic, NoReturn, TypeVar

from zapdb.errors import InvalidValue, RecordNotFound, UnknownField, UsageError
from zapdb.records import ReadConflict, Record
from zapdb.storage import Connection, MissingTable
from zapdb.storage.transaction_owners import has_begun
from zapdb.tables.blob_streams import open_field
from zapdb.tables.bulk import KEYS_PER_STATEMENT
from zapdb.tables.did_you_mean import (
    Uncounted,
    hint_for_condition,
    hint_for_key,
    no_attribute,
    no_place,
    not_by_name,
    require_many,
)
from zapdb.tables.indexes import BoundTable
from zapdb.tables.indexes.predicates import Predicate, is_predicate
from zapdb.tables.queries.fields import FieldExpression, FieldOrder, Fields, bind_all, make_field
from zapdb.tables.queries.page import Page, R
from zapdb.tables.queries.query import Query
from zapdb.tables.queries.selection import Selection
from zapdb.tables.queries.typed_fields import TypedField, TypedOrderedField
from zapdb.tables.session import Session, TableRead
from zapdb.tables.write_back import write_back, write_back_page

T = TypeVar("T")


class ReadableTable(Uncounted, Generic[R]):
    """The reading half of a table."""

    def __init__(self, session: Session, name: str) -> None:
        self._session = session
        self._bound = session.bind_served(name)

    @property
    def name(self) -> str:
        return self._bound.adapter.schema.name

    @property
    def field_names(self) -> tuple[str, ...]:
        return tuple(f.name for f in self._current().adapter.schema.fields)

    def __repr__(self) -> str:
        return f"<table {self.name!r} ({', '.join(self.field_names)})>"

    # Reading

    def get(self, /, *key: Any, **named: Any) -> R:
        """Return the record with this key, `get(7)` or `get(id=7)`; raises `RecordNotFound`."""
        record = self.find(*key, **named)
        if record is None:
            raise RecordNotFound(
                "no record has this key",
                table=self.name,
                key=show_parts((*key, *named.values())),
                hint="use find(), which returns None for a missing record",
            )
        return record

    def find(self, /, *key: Any, **named: Any) -> R | None:
        """Return the record with this key, or None."""
        if named:
            key = self._join_key(key, named)
        session, bound = self._session, self._bound
        if session.is_read_only or session.open is not None or has_begun():
            return self._find_in_full(key)  # type: ignore[return-value]  # a model's class is that of its table's records
        encoded = self._encode_key(bound, key)
        try:
            row = session.storage.own_connection().fetch_one(bound.statements.find_sql, (encoded,))
        except MissingTable:
            row = None
        # Nearly always, the catalog version is the one that this process has loaded.
        if row is not None and row[1] == bound.catalog.version:
            if row[0] is None:
                return None
            if not session.writes_back(bound):
                return bound.adapter.reader.read(encoded, row[0])  # type: ignore[return-value]  # a model's class is that of its table's records
        return self._find_in_full(key)  # type: ignore[return-value]  # a model's class is that of its table's records

    def _find_in_full(self, key: tuple[Any, ...]) -> Record | None:
        """Find a record in all other cases: another catalog version, a write-back."""

        def fetch(connection: Connection, bound: BoundTable) -> tuple[int | None, Any]:
            encoded = self._encode_key(bound, key)
            version, stored = bound.records.find(connection, encoded)
            return version, None if stored is None else (encoded, stored)

        bound, found = self._read_active(fetch)
        if found is None:
            return None
        read = bound.adapter.reader.read
        if self._session.open is not None:
            with self._session.open.use():
                return self._session.belong(read(*found))
        if not self._session.writes_back(bound):
            return read(*found)
        encoded, stored = found
        attachments = bound.make_attachments(encoded, stored)
        try:
            record, converted = bound.reader.open(encoded, stored, attachments)
        except ReadConflict as conflict:
            return read(encoded, conflict.value_or_conflict())
        if converted is not stored and self._session.storage.connection().transaction is None:
            write_back(self._session, bound, encoded, stored, converted, attachments)
        return record if bound.adapter.is_current else read(encoded, stored)

    def get_many(self, keys: Iterable[Any]) -> list[R | None]:
        """Return the records with these keys in the order of the keys, None for a key without a
        record.

        A key of one field is given as its value, a key of several fields as a tuple:
        `items.get_many([1, 2])`, `lines.get_many([(1, "a"), (1, "b")])`. One statement fetches some
        hundred records; inside `db.snapshot()` or `db.transaction()` all are read as of one moment.
        """
        require_many(keys, self.name, "get_many")
        stream, found = iter(keys), list[R | None]()
        while some := list(itertools.islice(stream, KEYS_PER_STATEMENT)):
            found += self._get_some(some)
        return found

    def _get_some(self, keys: list[Any]) -> list[Any]:
        def fetch(connection: Connection, bound: BoundTable) -> tuple[int | None, Any]:
            encoded = [self._encode_key(bound, split_key(bound, key)) for key in keys]
            activation, stored = bound.records.find_many(connection, list(dict.fromkeys(encoded)))
            return activation, (encoded, stored)

        bound, (encoded, stored) = self._read_active(fetch)
        write_back_page(self._session, bound, stored.items())
        read, belong = bound.adapter.reader.read, self._session.belong
        with self._session.using():
            return [belong(read(key, stored[key])) if key in stored else None for key in encoded]

    def exists(self, /, *key: Any, **named: Any) -> bool:
        """Return whether a record has this key; without a key, whether the table has any record."""
        if not key and not named:
            return self.where().exists()
        if named:
            key = self._join_key(key, named)
        _, found = self._read_active(lambda c, t: t.records.has(c, self._encode_key(t, key)))
        return found

    def open(self, *key: Any, field: str) -> io.BufferedReader:
        """Open a string or binary field of a record as a binary file; a string is its UTF-8.

        A large value is read chunk by chunk as the file is read. Outside `db.snapshot()`, reading
        raises `BlobMissing` if the record was changed or deleted meanwhile. Raises
        `RecordNotFound`, `UnknownName` for a field that the table does not have, and `UsageError`
        for a field of another type or for a null.
        """
        record: Any = self.get(*key)
        table = self._bound.adapter.schema
        found = next((f for f in table.fields if f.name == field), None)
        if found is None or field not in record._fields:
            raise UnknownField.named(self.name, field, [f.name for f in table.fields])
        if not found.type.may_be_blob:
            raise UsageError(
                "only strings and binaries can be read as files",
                field=f"{self.name}.{field}",
                type=found.type,
            )
        opened = open_field(record, field, self._bound.blobs, self._session.reading_in)
        if opened is None:
            raise UsageError("the field is null", field=f"{self.name}.{field}", key=show_parts(key))
        return opened

    def __iter__(self) -> Iterator[R]:
        """Iterate all records, as `scan` does: `for item in items`."""
        return self.scan()

    def __contains__(self, record: object) -> bool:
        """Return whether the table has a record that is equal to this one, which is looked up by
        its key. Raises `UnsupportedOperation` for anything but a record."""
        return record in self.where()

    def scan(self) -> Iterator[R]:
        """Iterate all records in key order, page by page. Each page is a snapshot of its own,
        unless the scan runs inside `db.snapshot()` or `db.transaction()`. Records that this process
        inserts meanwhile do not come."""
        # Nothing is read before the first record is requested; then no code runs for each one here.
        return itertools.chain.from_iterable(self._begin_scan())

    def _begin_scan(self) -> Iterator[Query[R]]:
        yield self.where()

    def to_arrow(self, fields: Collection[str] | None = None, as_text: Collection[str] = ()) -> Any:
        """All records in key order as a `pyarrow.RecordBatchReader`, read page by page as `scan`
        does, with all fields or the named ones. Numbers beyond 64 bits, or 38 digits, raise
        `InvalidValue`, unless their fields are among `as_text`. Needs the extra `sql`."""
        from zapdb.tables.arrow import open_reader

        return open_reader(self._session, self._read_active, fields, as_text)

    def to_pandas(
        self, fields: Collection[str] | None = None, as_text: Collection[str] = ()
    ) -> Any:
        """All records in key order as a `pandas.DataFrame`, in memory; no value is changed.

        Fields that may be null are in pandas' nullable columns; members of an enum are categories;
        UUIDs, decimals, dates, JSON, lists and structs are objects. Arguments and errors are those
        of `to_arrow`. Needs the extra `pandas`.
        """
        from zapdb.tables.pandas_frames import table_frame

        held = self.to_arrow(fields, as_text).read_all()
        return table_frame(self._current().adapter.schema, held, as_text)

    def count(self) -> int:
        _, count = self._read_active(lambda c, t: t.records.count_range(c, None, None, None))
        return count

    def where(self, /, *predicates: Predicate, **values: Any) -> Query[R]:
        """Return a query for the records for which the conditions are true, and fields have the
        values: `items.where(items.f.due < today, done=False)`. See `Query.where`."""
        bound = self._current()
        every = bind_all(bound.adapter.schema, predicates, values)
        return Query(self._session, bound, Selection(every))

    def order_by(self, *fields: str | FieldOrder | TypedOrderedField[Any]) -> Query[R]:
        """Return a query for all records in the order of fields: see `Query.order_by`."""
        return self._every().order_by(*fields)

    @property
    def f(self) -> Fields:
        """The fields of the table, for conditions and orders: `items.f.due < today`."""
        return Fields(self._current)

    def __getitem__(self, name: str) -> FieldExpression:
        """Return a field by its name: `items["due"]` is `items.f.due`; raises `UnknownField`."""
        if isinstance(name, int | slice):
            raise no_place(self, name)
        return make_field(self._current().adapter.schema, name)

    if not TYPE_CHECKING:  # to a type checker, a class with `__getattr__` has every attribute

        def __getattr__(self, name: str) -> NoReturn:
            if name.startswith("_"):
                raise AttributeError(name)
            raise no_attribute(self, name, self.name, self.field_names)

    def all(self) -> list[R]:
        """Return all records as a list; iterating the table holds at most one page in memory."""
        return self.where().all()

    def first(self) -> R | None:
        """Return any record, or None."""
        return self.where().first()

    def one(self) -> R:
        """Return the only record; raises `RecordNotFound` or `SeveralRecords`."""
        return self.where().one()

    def limit(self, count: int) -> Query[R]:
        """Return a query for at most `count` records: see `Query.limit`."""
        return self.where().limit(count)

    def include(self, *references: str | TypedField[Any]) -> Query[R]:
        """Return a query for all records with the records that they refer to: see
        `Query.include`."""
        return self.where().include(*references)

    def page(self, size: int, cursor: str | None = None) -> Page[R]:
        """Return the next `size` records: see `Query.page`."""
        return self.where().page(size, cursor)

    def min(self, field: str | TypedOrderedField[Any]) -> Any:
        """Return the least value of a field: see `Query.min`."""
        return self.where().min(field)

    def max(self, field: str | TypedOrderedField[Any]) -> Any:
        """Return the greatest value of a field: see `Query.max`."""
        return self.where().max(field)

    def sum(self, field: str | TypedOrderedField[Any]) -> Any:
        """Return the sum of a field: see `Query.sum`."""
        return self.where().sum(field)

    def using(self, index: str) -> Query[R]:
        """Return a query for all records by an index, in its order: see `Query.using`."""
        return self._every().using(index)

    def readable_indexes(self) -> tuple[str, ...]:
        """Return the names of the indexes that queries can read now. Queries scan instead of
        reading an index that is being built, or that has other collation or time zone data."""
        bound, _ = self._read_active(lambda c, _: (self._session.read_catalog_version(c), None))
        return tuple(index.name for index in bound.adapter.indexes if index.is_readable)

    def _every(self) -> Query[R]:
        return Query(self._session, self._current())

    # What reading and writing share

    def _read_active(self, read: TableRead[T]) -> tuple[BoundTable, T]:
        bound, answer = self._session.read_active(self._bound, read)
        self._bound = bound
        return bound, answer

    def _join_key(self, key: tuple[Any, ...], named: Mapping[str, Any]) -> tuple[Any, ...]:
        """Return the key's fields that are given by name, in the order of the key."""
        names = self._current().adapter.key_names
        if key or named.keys() != set(names):
            raise UsageError(
                "these are not the fields of the key",
                table=self.name,
                key=", ".join(names),
                given=", ".join(named),
                hint=hint_for_key(self.name, self.field_names, named),
            )
        return tuple(named[name] for name in names)

    def _encode_key(self, bound: BoundTable, key: tuple[Any, ...]) -> bytes:
        try:
            return bound.adapter.codec.key_of(*key)
        except (InvalidValue, TypeError) as error:  # the latter for another number of values
            raise self._explain_key(bound, key) or error from None

    def _explain_key(self, bound: BoundTable, key: tuple[Any, ...]) -> UsageError | None:
        """Return what is wrong with a key that can't be encoded, if it is more than a value."""
        names = bound.adapter.key_names
        if len(key) != len(names):
            return UsageError(
                "these are not the fields of the key",
                table=self.name,
                key=", ".join(names),
                given=len(key),
                hint=f"give the key first, without names: ({', '.join(names)}, …)",
            )
        if is_predicate(key[0]):
            return UsageError(
                "a key is expected, not a condition",
                table=self.name,
                hint=hint_for_condition(self.name),
            )
        if isinstance(key[0], Mapping):
            return not_by_name(self.name, "get(", key[0])
        if not isinstance(key[0], Record):
            return None
        shown = ", ".join(f"record.{name}" for name in names)
        return UsageError(
            "a key is expected, not a record", table=self.name, hint=f"give its key: {shown}"
        )

    def _current(self, connection: Connection | None = None) -> BoundTable:
        """Return the table in this thread's tenant catalog; in a writing transaction, that is the
        active one. `connection` is that of the caller, if it is known."""
        # Other threads set the attribute, too, so it is not read again.
        bound = self._bound = self._session.rebind(self._bound, connection)
        return bound


def split_key(bound: BoundTable, key: Any) -> tuple[Any, ...]:
    """Return the fields of a key that is given as one value or as a tuple."""
    is_whole = len(bound.adapter.key_names) > 1 and isinstance(key, tuple | list)
    return tuple(key) if is_whole else (key,)


def show_parts(key: tuple[Any, ...]) -> str:
    return ", ".join(map(repr, key))
