"""Tables that are read and written: records, stored at any revision."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, Never, TypeVar

from zapdb.errors import (
    RecordExists,
    RecordNotFound,
    TransactionConflict,
    UsageError,
)
from zapdb.limits import INSERT_BATCH_RECORDS
from zapdb.records import Record
from zapdb.storage import Connection
from zapdb.storage.cells import as_bytes
from zapdb.tables.blob_streams import StreamedValues
from zapdb.tables.bulk import KEYS_PER_STATEMENT, remove_many
from zapdb.tables.did_you_mean import not_by_name, require_many
from zapdb.tables.discarding import DiscardedRecord, Discarding
from zapdb.tables.generated_values import (
    OperationNumbers,
    generate_values,
    has_whole_key,
    note_given,
)
from zapdb.tables.given_functions import require_no_coroutine, require_plain_function
from zapdb.tables.indexes import BoundTable
from zapdb.tables.indexes.predicates import Predicate
from zapdb.tables.on_delete import apply_on_delete
from zapdb.tables.optimistic_concurrency import check_unchanged, encode_seen
from zapdb.tables.queries.page import R
from zapdb.tables.table_reading import ReadableTable, show_parts, split_key
from zapdb.tables.writes import (
    NONE_INSERTED,
    NotAsPlanned,
    WritePlan,
    delete_found,
    execute,
)

T = TypeVar("T")


class WritableTable(ReadableTable[R]):
    """A table that is read and written."""

    def insert(self, /, *unnamed: Never, **values: Any) -> R:
        """Insert a record and return it.

        Raises `RecordExists`, `InvalidValue` and `ConstraintViolation`: `UniqueViolation`,
        `CheckViolation` or `ReferenceViolation`.

        The value of a binary field may be an open binary file; it is read to its end and stored
        chunk by chunk.
        """
        if unnamed:
            raise not_by_name(self.name, "insert(", unnamed[0])
        streamed = StreamedValues(values)

        def insert() -> R:
            with self._session.writing(numbers) as connection:
                bound = self._current(connection)
                return self._insert(connection, bound, values, streamed, numbers)

        numbers = OperationNumbers(self._session)
        return self._session.run(insert)

    def upsert(self, /, *unnamed: Never, **values: Any) -> R:
        """Insert a record, or update the record that has its key; returns it.

        An existing record keeps the values of the other fields; a new record takes their defaults,
        and what is made at insert. A generated key that is not given is made, so the record is new.
        Raises `InvalidValue` and `ConstraintViolation`, as `insert` does; a `UniqueViolation` names
        the record that has the values, which never has the same key.
        """
        if unnamed:
            raise not_by_name(self.name, "upsert(", unnamed[0])
        streamed = StreamedValues(values)

        def upsert() -> R:
            try:
                with self._session.writing(numbers) as connection:
                    bound = self._current(connection)
                    if not has_whole_key(bound, values):  # the record is new
                        return self._insert(connection, bound, values, streamed, numbers)
                    key = bound.adapter.codec.encode_key(values)
                    row = connection.fetch_one(bound.statements.get_sql, (key,))
                    if row is None:
                        return self._insert(connection, bound, values, streamed, numbers)
                    changes = {n: v for n, v in values.items() if n not in bound.adapter.key_names}
                    plan = WritePlan(bound)
                    return self._change(connection, plan, key, as_bytes(row[0]), changes, streamed)
            except RecordExists as existing:  # with a key that was looked up before
                raise _concurrent_insert(existing) from existing

        numbers = OperationNumbers(self._session)
        return self._session.run(upsert)

    def _insert(
        self,
        connection: Connection,
        bound: BoundTable,
        values: Mapping[str, Any],
        streamed: StreamedValues,
        numbers: OperationNumbers,
    ) -> R:
        ((given, unseen),) = generate_values(numbers, connection, bound, [values])
        plan = WritePlan(bound)
        key = bound.adapter.codec.encode_key(given)
        record = plan.insert(key, streamed.store(bound, connection, given), unseen)
        execute(connection, plan)
        return self._show(plan, record)

    def insert_many(
        self,
        records: Iterable[Mapping[str, Any]],
        batch_records: int = INSERT_BATCH_RECORDS,
        progress: Callable[[int], object] | None = None,
    ) -> int:
        """Insert records from a stream, each batch in its own transaction; returns how many.

        Inside `db.transaction()` all batches belong to it. If a batch fails, nothing of it is
        inserted, and earlier batches stay. After each batch, `progress` is called with the number
        of records inserted so far; an exception from it ends the call. (That of `zapdb.aio` may be
        async.)
        """
        require_many(records, self.name, "insert_many")
        if progress is not None:
            require_plain_function(progress, "insert_many", "insert_many(…, progress=tell)")
        stream, inserted = iter(records), 0
        while batch := list(itertools.islice(stream, batch_records)):
            self._insert_batch(batch)
            inserted += len(batch)
            if progress is not None:
                require_no_coroutine(progress(inserted), progress, "insert_many")
        return inserted

    def _insert_batch(self, batch: list[Mapping[str, Any]]) -> None:
        for values in batch:
            if type(values) is not dict and not isinstance(values, Mapping):
                raise UsageError(
                    "insert_many takes a dict of fields for each record",
                    table=self.name,
                    got=type(values).__name__,
                    hint="zapdb.asdict(record) makes one of a record",
                )

        def insert() -> None:
            with self._session.writing(numbers) as connection:
                plan = WritePlan(self._current(connection))
                new = generate_values(numbers, connection, plan.bound, batch)
                plan.insert_many(new, NONE_INSERTED)
                execute(connection, plan, NONE_INSERTED)

        numbers = OperationNumbers(self._session)
        self._session.run(insert)

    def update(self, /, *key: Any, if_unchanged: R | str | None = None, **changes: Any) -> R:
        """Change fields of a record and return it.

        With `if_unchanged=record`, the record as it was read, it is changed only if every field
        still has that value; else `UpdateConflict` names the fields that differ, and nothing is
        written. Values are compared, so a conversion in between is not a change. If you no longer
        have the record, as in a web form, pass its etag: `zapdb.etag(record)`.

        Raises `RecordNotFound`, `InvalidValue` and `ConstraintViolation`, as `insert` does. Large
        values of other fields are not rewritten. A new value may be an open binary file, as for
        `insert`.
        """
        if key and isinstance(key[-1], Mapping):
            raise not_by_name(self.name, "update(key, ", key[-1])
        streamed = StreamedValues(changes)

        def update() -> R:
            with self._session.writing() as connection:
                bound = self._current(connection)
                encoded, stored = self._fetch(connection, bound, key)
                if if_unchanged is not None:
                    check_unchanged(bound, encoded, stored, if_unchanged)
                plan = WritePlan(bound)
                return self._change(connection, plan, encoded, stored, changes, streamed)

        def swap() -> R | None:
            """Update if the stored bytes are the bytes of `if_unchanged`; return None if values
            have to be compared."""
            with self._session.writing() as connection:
                bound = self._current(connection)
                encoded = self._encode_key(bound, key)
                seen = encode_seen(bound, encoded, if_unchanged)
                if seen is None:
                    return None
                plan = WritePlan(bound, is_swap=True)
                return self._change(connection, plan, encoded, seen, changes, streamed)

        may_swap = isinstance(if_unchanged, Record) and not streamed.are_any
        if may_swap and self._session.storage.connection().queue is not None:
            with suppress(NotAsPlanned):
                swapped = self._session.run(swap)
                if swapped is not None:
                    return swapped
        return self._session.run(update)

    def _change(
        self,
        connection: Connection,
        plan: WritePlan,
        key: bytes,
        stored: bytes,
        changes: Mapping[str, Any],
        streamed: StreamedValues,
    ) -> R:
        note_given(self._session, connection, plan.bound, changes)
        self._require_same_key(plan.bound, key, changes)
        record = plan.update(key, stored, streamed.store(plan.bound, connection, changes))
        execute(connection, plan)
        return self._show(plan, record)

    def delete(self, /, *key: Any, **named: Any) -> None:
        """Delete the record with this key, `delete(7)` or `delete(id=7)`, and apply its references'
        `on_delete`; raises `RecordNotFound`.

        Raises `ReferenceViolation` if a reference with `on_delete: restrict` refers to it.
        """
        whole = self._join_key(key, named) if named else key

        def delete() -> None:
            with self._session.writing() as connection:
                bound = self._current(connection)
                encoded, stored = self._fetch(connection, bound, whole)
                delete_found(connection, bound, [(encoded, stored)])
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
        require_many(keys, self.name, "delete_many")
        stream, deleted = iter(keys), 0
        while some := list(itertools.islice(stream, KEYS_PER_STATEMENT)):
            deleted += self._session.run(partial(self._delete_some, some))
        return deleted

    def _delete_some(self, keys: list[Any]) -> int:
        with self._session.writing() as connection:
            bound = self._current(connection)
            encoded = dict.fromkeys(self._encode_key(bound, split_key(bound, key)) for key in keys)
            return remove_many(self._session, connection, bound, list(encoded))

    def discard_unreadable(
        self,
        /,
        *key: Any,
        stored_key: bytes | None = None,
        replacement: Mapping[str, Any] | None = None,
        **named: Any,
    ) -> DiscardedRecord:
        """Delete a record that can't be read, which `delete` can't, and return its bytes.

        Its index entries and archived values are deleted with it, and its references' `on_delete`
        is applied. With a `replacement`, values of a new record with the same key, that takes its
        place, and references to it stay. If the change log is on, it keeps the bytes; before this
        moment, the past has a record that can't be read. `stored_key` is the key as the quarantine
        of a job has it, in place of its fields. Reads all entries of the table's indexes.

        Raises `RecordNotFound`, `UsageError` if the record can be read, and what `delete` and
        `insert` raise.
        """
        whole = self._join_key(key, named) if named else key
        return Discarding(self, whole, stored_key, replacement).run()

    def update_where(self, /, *predicates: Predicate, **changes: Any) -> int:
        """Change fields of the records for which the conditions are true; returns how many matched:
        `items.update_where(items.f.due < today, done=True)`. See `Query.update`.

        Raises `UsageError` without a condition.
        """
        if not predicates:
            raise UsageError(
                "update_where needs a condition",
                table=self.name,
                hint=f"conditions come first: update_where({self.name}.f.… == …, …); "
                f"{self.name}.where().update(…) changes all records",
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

    def _fetch(
        self, connection: Connection, bound: BoundTable, key: tuple[Any, ...]
    ) -> tuple[bytes, bytes]:
        encoded = self._encode_key(bound, key)
        row = connection.fetch_one(bound.statements.get_sql, (encoded,))
        if row is None:
            raise RecordNotFound("no record has this key", table=self.name, key=show_parts(key))
        return encoded, as_bytes(row[0])

    def _show(self, plan: WritePlan, record: Record | None) -> R:
        """Return a record that was written as the application sees it."""
        adapter = plan.bound.adapter
        if not adapter.is_current:
            ((key, _, stored),) = plan.records
            assert stored is not None
            record = adapter.reader.read(key, stored)
        return record  # type: ignore[return-value]  # a model's class is that of its table's records

    def _require_same_key(self, bound: BoundTable, key: bytes, changes: Mapping[str, Any]) -> None:
        for at, name in enumerate(bound.adapter.key_names):
            if name in changes and changes[name] != bound.adapter.codec.decode_key(key)[at]:
                raise UsageError(
                    "the key of a record cannot be changed",
                    table=self.name,
                    field=name,
                    hint="delete the record and insert it under the new key",
                )


def _concurrent_insert(existing: RecordExists) -> TransactionConflict:
    return TransactionConflict(
        "a concurrent transaction inserted the same record",
        **existing.context,
        hint="run it again, or use db.run(function), which repeats it",
    )
