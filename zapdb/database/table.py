"""Tables as applications see them: records in, records out, whatever their stored revision."""

from __future__ import annotations

import io
import itertools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar
from uuid import UUID

from zapdb.database.blob_streams import StreamedValues, open_field
from zapdb.database.bulk import KEYS_PER_STATEMENT, fetch_many, find_record, remove_many
from zapdb.database.fields import FieldExpression, Fields, make_field
from zapdb.database.habits import no_attribute
from zapdb.database.on_delete import apply_on_delete
from zapdb.database.optimistic_concurrency import check_unchanged, encode_seen
from zapdb.database.page import Page
from zapdb.database.query import Query
from zapdb.database.session import Session, TableRead
from zapdb.database.write_back import write_back, write_back_page
from zapdb.errors import (
    InvalidValue,
    RecordExists,
    RecordNotFound,
    TransactionConflict,
    UnknownField,
    UsageError,
)
from zapdb.indexes import BoundTable
from zapdb.indexes.predicates import Predicate
from zapdb.limits import INSERT_BATCH_RECORDS
from zapdb.records import ReadConflict, Record
from zapdb.storage import Connection, MissingTable
from zapdb.storage.cells import as_bytes
from zapdb.storage.identifiers import make_uuid7
from zapdb.storage.transaction_owners import has_begun
from zapdb.writes import (
    NONE_INSERTED,
    NotAsPlanned,
    Write,
    execute,
    plan_delete,
    plan_insert,
    plan_inserts,
    plan_update,
)

T = TypeVar("T")


class Table:
    """The records of one table.

    Every operation outside `db.transaction()` is a transaction of its own, which is retried after
    conflicts.
    """

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

    def get(self, /, *key: Any, **named: Any) -> Record:
        """Return the record with this key, `get(7)` or `get(id=7)`; raises `RecordNotFound`."""
        record = self.find(*key, **named)
        if record is None:
            raise RecordNotFound(
                "no record has this key",
                table=self.name,
                key=_show((*key, *named.values())),
                hint="use find(), which returns None for a missing record",
            )
        return record

    def find(self, /, *key: Any, **named: Any) -> Record | None:
        """Return the record with this key, or None."""
        if named:
            key = self._join_key(key, named)
        session = self._session
        if session.is_read_only or session.open is not None or has_begun():
            return self._find_in_full(key)
        bound = self._bound
        encoded = self._encode_key(bound, key)
        connection = session.storage.own_connection()
        try:
            row = connection.fetch_one(bound.records.get_sql, (encoded,))
        except MissingTable:
            row = None
        # Nearly always, the catalog version is the one that this process has loaded.
        is_current = row is not None and row[1] == bound.catalog.version
        if is_current and not self._session.writes_back(bound):
            return bound.adapter.reader.read(encoded, row[0])
        return self._find_in_full(key)

    def _find_in_full(self, key: tuple[Any, ...]) -> Record | None:
        """Find a record in all other cases: another catalog version, no record, a write-back."""

        def fetch(connection: Connection, bound: BoundTable) -> tuple[int | None, Any]:
            encoded = self._encode_key(bound, key)
            row = connection.fetch_one(bound.records.find_sql, (encoded,))
            if row is None:
                return 0, None  # the tenant was removed
            return row[1], None if row[0] is None else (encoded, row[0])

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
        if converted is not stored and self._session.storage.connection().mode is None:
            write_back(self._session, bound, encoded, stored, converted, attachments)
        return record if bound.adapter.is_current else read(encoded, stored)

    def get_many(self, keys: Iterable[Any]) -> list[Record | None]:
        """Return the records with these keys in the order of the keys, None for a key without a
        record.

        A key of one field is given as its value, a key of several fields as a tuple:
        `items.get_many([1, 2])`, `lines.get_many([(1, "a"), (1, "b")])`. One statement fetches some
        hundred records; inside `db.snapshot()` or `db.transaction()` all are read as of one moment.
        """
        stream, found = iter(keys), list[Record | None]()
        while some := list(itertools.islice(stream, KEYS_PER_STATEMENT)):
            found += self._get_some(some)
        return found

    def _get_some(self, keys: list[Any]) -> list[Record | None]:
        def fetch(connection: Connection, bound: BoundTable) -> tuple[int | None, Any]:
            encoded = [self._encode_key(bound, _parts(bound, key)) for key in keys]
            activation, stored = fetch_many(connection, bound, list(dict.fromkeys(encoded)))
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
        _, found = self._read_active(lambda c, t: find_record(c, t, self._encode_key(t, key)))
        return found

    def open(self, *key: Any, field: str) -> io.BufferedReader:
        """Open a string or binary field of a record as a binary file; a string is its UTF-8.

        A large value is read chunk by chunk as the file is read. Outside `db.snapshot()`, reading
        raises `BlobMissing` if the record was changed or deleted meanwhile. Raises
        `RecordNotFound`, `UnknownName` for a field that the table does not have, and `UsageError`
        for a field of another type or for a null.
        """
        record = self.get(*key)
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
            raise UsageError("the field is null", field=f"{self.name}.{field}", key=_show(key))
        return opened

    def __iter__(self) -> Iterator[Record]:
        """Iterate all records, as `scan` does: `for item in items`."""
        return self.scan()

    def scan(self) -> Iterator[Record]:
        """Iterate all records in key order, page by page. Each page is a snapshot of its own,
        unless the scan runs inside `db.snapshot()` or `db.transaction()`."""
        yield from self.where()  # nothing is read before the first record is requested

    def to_arrow(self, fields: Collection[str] | None = None, as_text: Collection[str] = ()) -> Any:
        """All records in key order as a `pyarrow.RecordBatchReader`, read page by page as `scan`
        does, with all fields or the named ones. Numbers beyond 64 bits, or 38 digits, raise
        `InvalidValue`, unless their fields are among `as_text`. Needs the extra `sql`."""
        from zapdb.database.arrow import open_reader

        return open_reader(self._session, self._read_active, fields, as_text)

    def to_pandas(
        self, fields: Collection[str] | None = None, as_text: Collection[str] = ()
    ) -> Any:
        """All records in key order as a `pandas.DataFrame`, in memory; no value is changed.

        Fields that may be null are in pandas' nullable columns; members of an enum are categories;
        UUIDs, decimals, dates, JSON, lists and structs are objects. Arguments and errors are those
        of `to_arrow`. Needs the extra `pandas`.
        """
        from zapdb.database.pandas_frames import table_frame

        held = self.to_arrow(fields, as_text).read_all()
        return table_frame(self._current().adapter.schema, held, as_text)

    def count(self) -> int:
        _, (count,) = self._read_active(
            lambda c, t: (self._session.read_catalog_version(c), c.fetch_one(t.records.count_sql))
        )
        return int(count)

    def where(self, /, *predicates: Predicate, **values: Any) -> Query:
        """Return a query for the records for which the conditions are true, and fields have the
        values: `items.where(items.f.due < today, done=False)`. See `Query.where`."""
        return Query(self._session, self._current()).where(*predicates, **values)

    def order_by(self, *fields: Any) -> Query:
        """Return a query for all records in the order of fields: see `Query.order_by`."""
        return Query(self._session, self._current()).order_by(*fields)

    @property
    def f(self) -> Fields:
        """The fields of the table, for conditions and orders: `items.f.due < today`."""
        return Fields(lambda: self._current().adapter.schema)

    def __getitem__(self, name: str) -> FieldExpression:
        """Return a field by its name: `items["due"]` is `items.f.due`; raises `UnknownField`."""
        return make_field(self._current().adapter.schema, name)

    if not TYPE_CHECKING:  # to a type checker, a class with `__getattr__` has every attribute

        def __getattr__(self, name: str) -> NoReturn:
            if name.startswith("_"):
                raise AttributeError(name)
            raise no_attribute(self, name, self.name, self.field_names)

    def all(self) -> list[Record]:
        """Return all records as a list; iterating the table holds at most one page in memory."""
        return self.where().all()

    def first(self) -> Record | None:
        """Return any record, or None."""
        return self.where().first()

    def one(self) -> Record:
        """Return the only record; raises `RecordNotFound` or `SeveralRecords`."""
        return self.where().one()

    def limit(self, count: int) -> Query:
        """Return a query for at most `count` records: see `Query.limit`."""
        return self.where().limit(count)

    def include(self, *references: Any) -> Query:
        """Return a query for all records with the records that they refer to: see
        `Query.include`."""
        return self.where().include(*references)

    def page(self, size: int, cursor: str | None = None) -> Page:
        """Return the next `size` records: see `Query.page`."""
        return self.where().page(size, cursor)

    def min(self, field: Any) -> Any:
        """Return the least value of a field: see `Query.min`."""
        return self.where().min(field)

    def max(self, field: Any) -> Any:
        """Return the greatest value of a field: see `Query.max`."""
        return self.where().max(field)

    def sum(self, field: Any) -> Any:
        """Return the sum of a field: see `Query.sum`."""
        return self.where().sum(field)

    def using(self, index: str) -> Query:
        """Return a query for all records by an index, in its order: see `Query.using`."""
        return Query(self._session, self._current()).using(index)

    def readable_indexes(self) -> tuple[str, ...]:
        """Return the names of the indexes that queries can read now. Queries scan instead of
        reading an index that is being built, or that has other collation or time zone data."""
        bound, _ = self._read_active(lambda c, _: (self._session.read_catalog_version(c), None))
        return tuple(index.name for index in bound.adapter.indexes if index.is_readable)

    # Writing

    def insert(self, /, **values: Any) -> Record:
        """Insert a record and return it.

        Raises `RecordExists`, `InvalidValue` and `ConstraintViolation`: `UniqueViolation`,
        `CheckViolation` or `ReferenceViolation`.

        The value of a binary field may be an open binary file; it is read to its end and stored
        chunk by chunk.
        """
        streamed = StreamedValues(values)

        def insert() -> Record:
            with self._session.writing() as connection:
                return self._insert(connection, self._current(), values, streamed)

        return self._session.run(insert)

    def upsert(self, /, **values: Any) -> Record:
        """Insert a record, or update the record that has its key; returns it.

        An existing record keeps the values of the other fields; a new record takes their defaults.
        A generated key that is not given is generated, so the record is new. Raises `InvalidValue`
        and `ConstraintViolation`, as `insert` does; a `UniqueViolation` names the record that has
        the values, which never has the same key.
        """
        streamed = StreamedValues(values)

        def upsert() -> Record:
            try:
                with self._session.writing() as connection:
                    bound = self._current()
                    given = self._generate(bound, values)
                    key = bound.adapter.codec.encode_key(given)
                    row = connection.fetch_one(bound.records.get_sql, (key,))
                    if row is None:
                        return self._insert(connection, bound, given, streamed)
                    changes = {n: v for n, v in given.items() if n not in bound.adapter.key_names}
                    stored = as_bytes(row[0])
                    plan = self._plan_change(connection, bound, key, stored, changes, streamed)
                    return _write(connection, bound, plan)
            except RecordExists as existing:  # it was inserted after the lookup
                raise _concurrent_insert(existing) from existing

        return self._session.run(upsert)

    def _insert(
        self,
        connection: Connection,
        bound: BoundTable,
        values: Mapping[str, Any],
        streamed: StreamedValues,
    ) -> Record:
        given = self._generate(bound, values)
        key = bound.adapter.codec.encode_key(given)
        plan = plan_insert(bound, key, streamed.store(bound, connection, given))
        return _write(connection, bound, plan)

    def insert_many(
        self,
        records: Iterable[Mapping[str, Any]],
        batch_records: int = INSERT_BATCH_RECORDS,
        progress: Callable[[int], object] | None = None,
    ) -> int:
        """Insert records from a stream, each batch in its own transaction; returns how many.

        Inside `db.transaction()` all batches belong to it. If a batch fails, nothing of it is
        inserted, and earlier batches stay. After each batch, `progress` is called with the number
        of records inserted so far; an exception from it ends the call.
        """
        stream, inserted = iter(records), 0
        while batch := list(itertools.islice(stream, batch_records)):
            self._session.run(partial(self._insert_batch, batch))
            inserted += len(batch)
            if progress is not None:
                progress(inserted)
        return inserted

    def _insert_batch(self, batch: list[Mapping[str, Any]]) -> None:
        with self._session.writing() as connection:
            bound = self._current()
            given: Sequence[Mapping[str, Any]] = batch
            if bound.adapter.generated_names:
                given = [self._generate(bound, values) for values in batch]
            execute(connection, bound, plan_inserts(bound, given, NONE_INSERTED), NONE_INSERTED)

    def update(
        self, /, *key: Any, if_unchanged: Record | str | None = None, **changes: Any
    ) -> Record:
        """Change fields of a record and return it.

        With `if_unchanged=record`, the record as it was read, it is changed only if every field
        still has that value; else `UpdateConflict` names the fields that differ, and nothing is
        written. Values are compared, so a conversion in between is not a change. If you no longer
        have the record, as in a web form, pass its etag: `zapdb.etag(record)`.

        Raises `RecordNotFound`, `InvalidValue` and `ConstraintViolation`, as `insert` does. Large
        values of other fields are not rewritten. A new value may be an open binary file, as for
        `insert`.
        """
        streamed = StreamedValues(changes)

        def update() -> Record:
            with self._session.writing() as connection:
                bound = self._current()
                encoded, stored = self._fetch(connection, bound, key)
                if if_unchanged is not None:
                    check_unchanged(bound, encoded, stored, if_unchanged)
                plan = self._plan_change(connection, bound, encoded, stored, changes, streamed)
                return _write(connection, bound, plan)

        def swap() -> Record | None:
            """Update if the stored bytes are the bytes of `if_unchanged`; return None if values
            have to be compared."""
            with self._session.writing() as connection:
                bound = self._current()
                encoded = self._encode_key(bound, key)
                seen = encode_seen(bound, encoded, if_unchanged)
                if seen is None:
                    return None
                plan = self._plan_change(connection, bound, encoded, seen, changes, streamed)
                return _write(connection, bound, plan._replace(is_swap=True))

        can_swap = self._session.storage.connection().can_pipeline and not streamed.are_any
        if isinstance(if_unchanged, Record) and can_swap:
            with suppress(NotAsPlanned):
                swapped = self._session.run(swap)
                if swapped is not None:
                    return swapped
        return self._session.run(update)

    def _plan_change(
        self,
        connection: Connection,
        bound: BoundTable,
        key: bytes,
        stored: bytes,
        changes: Mapping[str, Any],
        streamed: StreamedValues,
    ) -> Write:
        # New blobs that the conversion of a stale record makes are stored with it.
        attachments = bound.make_attachments(key, stored)
        self._require_same_key(bound, key, changes)
        given = streamed.store(bound, connection, changes)
        changed = bound.adapter.change(key, stored, given, attachments)
        return plan_update(bound, key, stored, changed, attachments)

    def delete(self, *key: Any) -> None:
        """Delete a record, and apply its references' `on_delete`; raises `RecordNotFound`.

        Raises `ReferenceViolation` if a reference with `on_delete: restrict` refers to it.
        """

        def delete() -> None:
            with self._session.writing() as connection:
                bound = self._current()
                encoded, stored = self._fetch(connection, bound, key)
                execute(connection, bound, (plan_delete(bound, encoded, stored),))
                apply_on_delete(self._session, connection, bound, [encoded])

        self._session.run(delete)

    def delete_many(self, keys: Iterable[Any]) -> int:
        """Delete the records with these keys, and apply their references' `on_delete`; returns how
        many existed.

        Keys are given as for `get_many`; keys without a record are skipped. Some hundred records
        are deleted at a time, each batch in its own transaction, or all inside `db.transaction()`.
        Records of one batch may refer to each other.

        Raises `ReferenceViolation` if another record's reference restricts the deletion: then
        nothing of that batch is deleted, and earlier batches stay deleted.
        """
        stream, deleted = iter(keys), 0
        while some := list(itertools.islice(stream, KEYS_PER_STATEMENT)):
            deleted += self._session.run(partial(self._delete_some, some))
        return deleted

    def _delete_some(self, keys: list[Any]) -> int:
        with self._session.writing() as connection:
            bound = self._current()
            encoded = dict.fromkeys(self._encode_key(bound, _parts(bound, key)) for key in keys)
            return remove_many(self._session, connection, bound, list(encoded))

    def update_where(self, /, *predicates: Predicate, **changes: Any) -> int:
        """Change fields of the records for which the conditions are true; returns how many matched:
        `items.update_where(items.f.due < today, done=True)`. See `Query.update`.

        Raises `UsageError` without a condition.
        """
        if not predicates:
            raise UsageError(
                "update_where needs a condition",
                table=self.name,
                hint=f"{self.name}.where().update(…) changes all records",
            )
        return self.where(*predicates).update(**changes)

    def delete_where(self, /, *predicates: Predicate, **values: Any) -> int:
        """Delete the records for which the conditions are true, and apply their references'
        `on_delete`; returns how many matched. All or nothing: see `Query.delete`.

        Raises `ReferenceViolation`, and `UsageError` without a condition.
        """
        if not predicates and not values:
            raise UsageError(
                "delete_where needs a condition",
                table=self.name,
                hint=f"{self.name}.where().delete() deletes all records",
            )
        return self.where(*predicates, **values).delete()

    # What they share

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
                hint="give all of them by name, or all of them in order",
            )
        return tuple(named[name] for name in names)

    def _encode_key(self, bound: BoundTable, key: tuple[Any, ...]) -> bytes:
        names = bound.adapter.key_names
        if len(key) != len(names):
            raise UsageError(
                "these are not the fields of the key",
                table=self.name,
                key=", ".join(names),
                given=len(key),
                hint="give a value for each of them, in this order",
            )
        try:
            return bound.adapter.codec.encode_key(dict(zip(names, key, strict=True)))
        except InvalidValue:
            if not isinstance(key[0], Record):
                raise
            shown = ", ".join(f"record.{name}" for name in names)
            raise UsageError(
                "a key is expected, not a record", table=self.name, hint=f"give its key: {shown}"
            ) from None

    def _fetch(
        self, connection: Connection, bound: BoundTable, key: tuple[Any, ...]
    ) -> tuple[bytes, bytes]:
        encoded = self._encode_key(bound, key)
        row = connection.fetch_one(bound.records.get_sql, (encoded,))
        if row is None:
            raise RecordNotFound("no record has this key", table=self.name, key=_show(key))
        return encoded, as_bytes(row[0])

    def _generate(self, bound: BoundTable, values: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the values with generated fields filled in."""
        missing = bound.adapter.generated_names - values.keys()
        return {**values, **{n: UUID(bytes=make_uuid7()) for n in missing}} if missing else values

    def _require_same_key(self, bound: BoundTable, key: bytes, changes: Mapping[str, Any]) -> None:
        given = [name for name in bound.adapter.key_names if name in changes]
        if not given:
            return
        held = dict(zip(bound.adapter.key_names, bound.adapter.codec.decode_key(key), strict=True))
        for name in given:
            if changes[name] != held[name]:
                raise UsageError(
                    "the key of a record cannot be changed",
                    table=self.name,
                    field=name,
                    hint="delete the record and insert it under the new key",
                )

    def _current(self) -> BoundTable:
        """Return the table in this thread's tenant catalog; in a writing transaction, that is the
        active one."""
        # Other threads set the attribute, too, so it is not read again.
        bound = self._bound = self._session.rebind(self._bound)
        return bound


def _parts(bound: BoundTable, key: Any) -> tuple[Any, ...]:
    """Return the fields of a key that is given as one value or as a tuple."""
    is_whole = len(bound.adapter.key_names) > 1 and isinstance(key, tuple | list)
    return tuple(key) if is_whole else (key,)


def _write(connection: Connection, bound: BoundTable, plan: Write) -> Record:
    """Execute a plan of one record; returns that as the application sees it."""
    execute(connection, bound, (plan,))
    assert plan.record is not None
    assert plan.after is not None
    return bound.adapter.to_served(plan.key, plan.record, plan.after)


def _concurrent_insert(existing: RecordExists) -> TransactionConflict:
    return TransactionConflict(
        "a concurrent transaction inserted the same record",
        **existing.context,
        hint="run it again, or use db.run(function), which repeats it",
    )


def _show(key: tuple[Any, ...]) -> str:
    return ", ".join(map(repr, key))
