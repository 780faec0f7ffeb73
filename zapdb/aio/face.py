"""What the asynchronous faces have in common, and what of them is no copy of the synchronous ones.

`faces` has the rest. It is made from the synchronous classes by `tools.aio`, whose table says of
each method whether it only builds something, or reads, or writes.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import (
    AsyncIterable,
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from typing import TYPE_CHECKING, Any, ClassVar, Generic, NoReturn, Self, TypeVar, overload

from zapdb.activation.up import AppliedMigration
from zapdb.aio.block import Block
from zapdb.aio.errand import Errand
from zapdb.aio.file import BlobFile
from zapdb.aio.opening import opens
from zapdb.aio.records import Records, loaded
from zapdb.aio.retries import retry
from zapdb.aio.runtime import CallKind, Runtime
from zapdb.aio.workers import Worker
from zapdb.database import (
    admin,
    change_log,
    changes,
    database,
    history_store,
    job_control,
    transactions,
)
from zapdb.database.bulk import KEYS_PER_STATEMENT
from zapdb.database.catalog_watch import Callback
from zapdb.database.fields import FieldExpression, Fields
from zapdb.database.habits import (
    Uncounted,
    in_tasks,
    no_attribute,
    no_place,
    no_table_by_item,
    require_many,
)
from zapdb.database.models import Model
from zapdb.database.transactions import takes_argument
from zapdb.errors import UnknownAttribute, UnsupportedOperation
from zapdb.limits import INSERT_BATCH_RECORDS, WRITE
from zapdb.records import Record
from zapdb.storage import TransactionMode
from zapdb.storage.open_transaction import OpenTransaction
from zapdb.storage.retries import Beaten

if TYPE_CHECKING:
    from typing_extensions import TypeVar as DefaultedTypeVar

    from zapdb.aio import faces

    R = DefaultedTypeVar("R", default=Record)
else:
    R = TypeVar("R")
    """The records of a table: those of a model, else any."""

A = TypeVar("A")
S = TypeVar("S")
T = TypeVar("T")


class Face(Generic[S]):
    """An object of the synchronous face, for tasks. What waits for the database is awaited."""

    def __init__(self, runtime: Runtime, sync: S) -> None:
        self._runtime = runtime
        self._sync = sync

    def __repr__(self) -> str:
        return repr(self._sync)

    @property
    def _begun(self) -> OpenTransaction | None:
        """The open transaction that it belongs to."""
        return None

    def _target(self) -> S:
        """In a worker: the object of the synchronous face."""
        return self._sync

    def _built(self, build: Callable[[S], T]) -> T:
        """Build an object without waiting: this must not read the catalog again."""
        local = self._runtime.storage.local
        local.only_builds = True
        try:
            return build(self._sync)
        finally:
            local.only_builds = False

    async def _done(self, kind: CallKind, act: Callable[[S], T]) -> T:
        """Do what waits for the database in a worker; the large values of records are loaded."""
        return await self._runtime.call(kind, lambda: loaded(act(self._target())), self._begun)

    async def _read(self, act: Callable[[S], T]) -> T:
        return await self._done("read", act)

    async def _write(self, act: Callable[[S], T]) -> T:
        return await self._done("write", act)

    def _iterated(self, kind: CallKind, start: Callable[[S], Iterable[T]]) -> AsyncIterator[T]:
        begun = self._begun

        def carry(step: Callable[[], Any]) -> Awaitable[Any]:
            return self._runtime.call(kind, step, begun)

        def make() -> Iterator[T]:
            return iter(start(self._target()))

        return Records(carry, make, _never if begun is None else begun.require_open)


def _never() -> None:
    """What belongs to no open transaction does not end with one."""


class AccessFace(Face[S]):
    """What a database and the handles of its transactions have in common: tables."""

    _sync: Any
    _table_face: ClassVar[type[faces.Table[Any]]]
    """What is made of a table; generated classes have it."""

    if not TYPE_CHECKING:  # to a type checker, a class with `__getattr__` has every attribute

        def __getattr__(self, name: str) -> NoReturn:
            if name.startswith("_"):
                raise AttributeError(name)
            try:
                self._built(lambda sync: getattr(sync, name))
            except UnknownAttribute as error:
                raise in_tasks(error) from None
            raise AttributeError(name)

        def __getitem__(self, name: object) -> NoReturn:
            raise no_table_by_item(self, name)

        def __contains__(self, name: object) -> NoReturn:
            raise no_table_by_item(self, name)

    @overload
    def table(self, name: str) -> faces.Table: ...

    @overload
    def table(self, name: type[Model[Any, A]]) -> A: ...

    def table(self, name: str | type[Model[Any, Any]]) -> Any:
        """A table by its name, or by the class of its records in generated models.

        Raises `UnknownName`, naming the tables that there are, and `ModelsMismatch` for a class
        that is not that of the table's records.
        """
        return self._table_face(self._runtime, self._built(lambda _: self._sync.table(name)))


class HandleFace(AccessFace[S]):
    """A handle of an open transaction or snapshot, usable from any task by one at a time."""

    def __init__(self, runtime: Runtime, sync: S) -> None:
        super().__init__(runtime, sync)
        self._open: OpenTransaction = self._sync._open

    @property
    def _begun(self) -> OpenTransaction:
        return self._open

    async def for_tenant(self, name: str) -> Self:
        """The same transaction or snapshot, as another tenant sees it.

        Raises `UnknownName`, and `ActivationPending` for a tenant that is behind what is stored:
        open it by `db.for_tenant` before.
        """
        self._runtime.require_open()
        made = self._runtime.within(self._open, lambda: self._sync.for_tenant(name), is_part=False)
        return type(self)(self._runtime, await made)


class TransactionFace(HandleFace[transactions.Transaction]):
    pass


class SnapshotFace(HandleFace[transactions.Snapshot]):
    pass


class DatabaseFace(AccessFace[database.Database]):
    """The parts of `Database` that differ for tasks."""

    _sync: database.Database
    _transaction_face: ClassVar[type[faces.Transaction]]
    """What is made of a transaction; the generated class has it."""

    @property
    def applied(self) -> tuple[AppliedMigration, ...]:
        """The migrations that opening this database activated."""
        return self._sync.applied

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @overload
    async def run(self, function: Callable[[], Awaitable[T]], *, token: bool = False) -> T: ...

    @overload
    async def run(
        self, function: Callable[[faces.Transaction], Awaitable[T]], *, token: bool = False
    ) -> T: ...

    async def run(self, function: Callable[..., Awaitable[T]], *, token: bool = False) -> T:
        """Call a coroutine function inside a transaction, again whenever that has a conflict.

        The function gets the transaction's handle if it takes a positional argument. Returns what
        it returned. It must do nothing else that can't be done twice. Inside another transaction it
        is called once, as a part of that transaction that is rolled back if it raises. `token` is
        as for `transaction`: a COMMIT that turns out not to have taken effect is repeated, too. On
        PostgreSQL, a function that short transactions of others have beaten six times may go alone:
        others wait for it, if none of its tries took as long as 1 s.
        """
        takes_handle, face = takes_argument(function), self._transaction_face
        beaten = Beaten()

        async def attempt() -> T:
            block = transactions.Block(
                self._sync._session,
                transactions.Transaction,
                TransactionMode.WRITE,
                self._sync._session_for_tenant,
                token=token,
                beaten=beaten,
            )
            with beaten.measured():
                async with Block(self._runtime, block, face) as handle:
                    return await (function(handle) if takes_handle else function())

        is_part = self._runtime.storage.open_here() is not None
        return await (attempt() if is_part else retry(WRITE, attempt, beaten.before_again))

    async def on_schema_change(self, callback: Callback) -> Callable[[], None]:
        """Call `callback` with each `SchemaChange` of this tenant, on this event loop; returns what
        ends that.

        It is called within about a second after the change, in whichever process that was made.
        What it raises is handled as that of other callbacks of the loop.
        """
        loop = asyncio.get_running_loop()

        def call_back(change: Any) -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(callback, change)

        return await self._done("task", lambda db: db.on_schema_change(call_back))

    async def close(self) -> None:
        """End this process's registration and close its connections; safe to repeat.

        Raises `UsageError` inside a transaction or a snapshot of this task. Those of other tasks
        are undone, and what they have under way is interrupted: they get `UsageError`, too.
        """
        storage = self._runtime.storage
        if storage.is_closed or storage.is_inherited:
            return
        if not self._sync._owns_node:
            await self._done("task", lambda db: db.close())
            return
        self._sync._require_no_transaction()
        await self._runtime.close(self._sync.close)


class AwaitedRecords(Uncounted):
    """What is iterated by `async for` alone."""

    if not TYPE_CHECKING:  # a type checker would take it for an iterable

        def __iter__(self) -> NoReturn:
            raise UnsupportedOperation(
                "records are iterated asynchronously",
                of=self,
                hint="write `async for`, or `for item in await query.all()`",
            )


class ReadableTableFace(AwaitedRecords, Face[Any], Generic[R]):
    """The parts of tables that differ for tasks: of reading them."""

    @property
    def _begun(self) -> OpenTransaction | None:
        begun: OpenTransaction | None = self._sync._session.open
        return begun

    @property
    def name(self) -> str:
        return str(self._sync.name)

    @property
    def f(self) -> Fields:
        """The fields of the table, for conditions and orders: `items.f.due < today`."""
        return Fields(lambda: self._built(lambda items: items._current()))

    if not TYPE_CHECKING:  # to a type checker, a class with `__getattr__` has every attribute

        def __getattr__(self, name: str) -> NoReturn:
            if name.startswith("_"):
                raise AttributeError(name)
            table = self._built(lambda items: items._current().adapter.schema)
            fields = [field.name for field in table.fields]
            raise in_tasks(no_attribute(self, name, table.name, fields))

    def __getitem__(self, name: str) -> FieldExpression:
        """A field by its name: `items["due"]` is `items.f.due`; raises `UnknownField`."""
        field: FieldExpression = self._built(lambda items: items[name])
        return field

    @opens
    async def open(self, *key: Any, field: str) -> BlobFile:
        """A string or binary field of a record as a binary file, a string as its UTF-8.

        A large value is read chunk by chunk, as the file is read: inside `db.snapshot()` surely,
        outside `BlobMissing` says that its record was changed or deleted meanwhile. Raises
        `RecordNotFound`, `UnknownName` for a field that the table does not have, and `UsageError`
        for a field of another type and for a null.
        """
        file = await self._read(lambda items: items.open(*key, field=field))
        begun = self._begun
        return BlobFile(lambda act: self._runtime.call("read", act, begun), file)


class TableFace(ReadableTableFace[R]):
    """The parts of `Table` that differ for tasks."""

    async def insert_many(
        self,
        records: Iterable[Mapping[str, Any]] | AsyncIterable[Mapping[str, Any]],
        batch_records: int = INSERT_BATCH_RECORDS,
        progress: Callable[[int], object] | None = None,
    ) -> int:
        """Insert from a stream, each batch a transaction of its own; returns how many.

        Inside `db.transaction()` all batches belong to it. A batch that fails is not inserted at
        all; those before it stay. After each batch `progress` is called with how many are inserted
        by then; what it raises ends the work.
        """
        inserted = 0
        async for batch in _batches(records, batch_records):
            await self._write(lambda items, batch=batch: items.insert_many(batch, batch_records))  # type: ignore[misc]  # mypy can't infer a default's type
            inserted += len(batch)
            if progress is not None:
                progress(inserted)
        return inserted

    async def delete_many(self, keys: Iterable[Any] | AsyncIterable[Any]) -> int:
        """Delete the records with these keys, and apply their references' `on_delete`; returns how
        many existed.

        Keys are given as for `get_many`; keys without a record are skipped. Some hundred records
        are deleted at a time, each batch in its own transaction, or all inside `db.transaction()`.
        Records of one batch may refer to each other.

        Raises `ReferenceViolation` if another record's reference restricts the deletion: then
        nothing of that batch is deleted, and earlier batches stay deleted.
        """
        if not isinstance(keys, AsyncIterable):
            require_many(keys, self.name, "delete_many")
        deleted = 0
        async for batch in _batches(keys, KEYS_PER_STATEMENT):
            deleted += await self._write(lambda items, batch=batch: items.delete_many(batch))  # type: ignore[misc]  # mypy can't infer a default's type
        return deleted


async def _batches(given: Iterable[T] | AsyncIterable[T], size: int) -> AsyncIterator[Sequence[T]]:
    if isinstance(given, AsyncIterable):
        batch = list[T]()
        async for one in given:
            batch.append(one)
            if len(batch) >= size:
                yield batch
                batch = []
        if batch:
            yield batch
        return
    stream = iter(given)
    while some := list(itertools.islice(stream, size)):
        yield some


class QueryFace(AwaitedRecords, Face[Any], Generic[R]):
    @property
    def _begun(self) -> OpenTransaction | None:
        begun: OpenTransaction | None = self._sync._session.open
        return begun

    if not TYPE_CHECKING:  # to a type checker, a class with `__getattr__` has every attribute

        def __getattr__(self, name: str) -> NoReturn:
            if name.startswith("_"):
                raise AttributeError(name)
            table = self._sync._bound.adapter.schema.name
            raise in_tasks(no_attribute(self, name, table, ()))

        def __getitem__(self, place: object) -> NoReturn:
            raise no_place(self, place)


class ChangeFollowerFace(Face[changes.ChangeFollower]):
    pass


class DatabaseAdminFace(Face[admin.DatabaseAdmin]):
    pass


class DatabaseJobsFace(Face[job_control.DatabaseJobs]):
    pass


class DatabaseChangeLogFace(Face[change_log.DatabaseChangeLog]):
    pass


class DatabaseHistoryFace(Face[history_store.DatabaseHistory]):
    pass


async def open_database(
    face: Callable[[Runtime, database.Database], T], open_sync: Callable[[], database.Database]
) -> T:
    """Open a database in a thread; one that a cancelled task has no use for is closed again."""
    made = list[database.Database]()

    def open_it() -> database.Database:
        made.append(open_sync())
        return made[0]

    def close() -> None:
        for opened in made:
            opened.close()

    def release() -> None:
        for opened in made:
            opened._storage.release_connection()

    worker = Worker(release)
    try:
        opened = await Errand(None, open_it, undo=close).done_by(worker)
    except BaseException:
        worker.stop()
        raise
    return face(Runtime(opened._storage, worker), opened)
