"""The classes of `zapdb.aio`: each stands for an object of the synchronous library.

A method is that of the synchronous class, done in a worker of a kind: `awaited("read", Table.get)`
has its name, parameters, types and docstring. What only builds an object is `built`, what iterates
is `iterated`. Written out here is what differs for tasks.
"""

from __future__ import annotations

import asyncio
import inspect
import itertools
import time
from collections import deque
from collections.abc import (
    AsyncIterable,
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Coroutine,
    Generator,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import AbstractAsyncContextManager, suppress
from functools import wraps
from operator import attrgetter, methodcaller
from types import TracebackType
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Final,
    Generic,
    Literal,
    NoReturn,
    ParamSpec,
    Protocol,
    Self,
    TypeVar,
    cast,
    overload,
)

from zapdb.activation.up import AppliedMigration
from zapdb.aio.calls import CancellableCall, Worker
from zapdb.aio.records import AsyncFile, AsyncRecords, loaded
from zapdb.aio.runtime import CallKind, Runtime
from zapdb.catalog.row_kinds import KindName
from zapdb.database.admin import DatabaseAdmin
from zapdb.database.catalog_watch import Callback
from zapdb.database.change_log_facet import DatabaseChangeLog
from zapdb.database.database import Database
from zapdb.database.history_facet import DatabaseHistory
from zapdb.database.job_control import DatabaseJobs
from zapdb.database.opening import open as open_here
from zapdb.database.past import Past
from zapdb.database.table import Table
from zapdb.database.table_access import Access, ReadAccess
from zapdb.database.transaction_blocks import Block, Handle, Snapshot, Transaction, takes_argument
from zapdb.errors import TransactionConflict, UnknownAttribute, UnsupportedOperation
from zapdb.limits import INSERT_BATCH_RECORDS, WRITE, RetryPolicy
from zapdb.log.change_log import Bookmark
from zapdb.past.files.history_manifest import Doubt
from zapdb.past.reading.moment import Moment, When
from zapdb.past.reading.past_table import PastTable
from zapdb.storage import TransactionMode
from zapdb.storage.open_transaction import OpenTransaction
from zapdb.storage.retries import Beaten, note_tries, pauses
from zapdb.tables.bulk import KEYS_PER_STATEMENT
from zapdb.tables.change_decoding import RecordChange, SchemaEvent
from zapdb.tables.changes import ChangeFollower
from zapdb.tables.did_you_mean import (
    Uncounted,
    in_tasks,
    no_attribute,
    no_place,
    no_table_by_item,
    require_many,
    told_for_tasks,
)
from zapdb.tables.given_functions import require_awaitable, require_function
from zapdb.tables.queries.fields import FieldExpression, Fields
from zapdb.tables.queries.page import R
from zapdb.tables.queries.query import Query
from zapdb.tables.table_reading import ReadableTable
from zapdb.typed.model_classes import Model
from zapdb.values.generated_source import Namespace, compile_function

A = TypeVar("A")
"""A table's asynchronous class in generated models."""
A_co = TypeVar("A_co", bound=Access, covariant=True)
F = TypeVar("F", bound=Callable[..., Any])
H = TypeVar("H")
O_co = TypeVar("O_co", bound=Handle, covariant=True)
P = ParamSpec("P")
S = TypeVar("S")
S_co = TypeVar("S_co", covariant=True)
T = TypeVar("T")
X = TypeVar("X")


class Proxy(Generic[S_co]):
    """Stands for an object of the synchronous library, for tasks: what waits for the database is
    awaited."""

    def __init__(self, runtime: Runtime, sync: S_co) -> None:
        self._runtime = runtime
        self._sync = sync

    def __init_subclass__(cls, called: str = "", **options: Any) -> None:
        """Give the methods the name of this class, which errors tell; of a class that is not public
        itself, the name of the one that it is `called`."""
        super().__init_subclass__(**options)
        for name, member in vars(cls).items():
            written_here = getattr(member, "__wrapped__", None)  # below `as_opening_block`
            for function in (member, written_here):
                if inspect.isfunction(function) and function.__module__ == __name__:
                    function.__name__ = name
                    function.__qualname__ = f"{called or cls.__qualname__}.{name}"

    def __repr__(self) -> str:
        return repr(self._sync)

    @property
    def _begun(self) -> OpenTransaction | None:
        """The open transaction that it belongs to."""
        return None

    def _build(self, build: Callable[[S_co], T]) -> T:
        """Build an object without waiting: this must not read the catalog again."""
        local = self._runtime.storage.pool.local
        local.only_builds = True
        try:
            return build(self._sync)
        finally:
            local.only_builds = False

    def _call(self, kind: CallKind, act: Callable[[S_co], T]) -> Coroutine[Any, Any, T]:
        """Do what waits for the database in a worker; the large values of records are loaded."""
        return self._runtime.call(kind, lambda: loaded(act(self._sync)), self._begun)

    def _iterate(self, kind: CallKind, start: Callable[[S_co], Iterator[T]]) -> AsyncIterator[T]:
        begun = self._begun

        def carry(step: Callable[[], Any]) -> Awaitable[Any]:
            return self._runtime.call(kind, step, begun)

        require_open = _never_ends if begun is None else begun.require_open
        return AsyncRecords(carry, lambda: start(self._sync), require_open)


def _never_ends() -> None:
    """What belongs to no open transaction does not end with one."""


Q = TypeVar("Q", bound=Proxy[Any])


def awaited(
    kind: CallKind, method: Callable[Concatenate[S, P], T]
) -> Callable[Concatenate[Proxy[S], P], Coroutine[Any, Any, T]]:
    """The method, done by a worker of the kind."""
    name = method.__name__

    def call(proxy: Proxy[S], /, *args: P.args, **named: P.kwargs) -> Coroutine[Any, Any, T]:
        act: Callable[[S], T] = methodcaller(name, *args, **named)
        return proxy._call(kind, act)

    return _like(method, call, kind, is_awaited=True)


def iterated(
    kind: CallKind, method: Callable[Concatenate[S, P], Iterator[T]]
) -> Callable[Concatenate[Proxy[S], P], AsyncIterator[T]]:
    """The method, for `async for`: a worker of the kind goes on with its iterator."""
    name = method.__name__

    def call(proxy: Proxy[S], /, *args: P.args, **named: P.kwargs) -> AsyncIterator[T]:
        return proxy._iterate(kind, methodcaller(name, *args, **named))

    return _like(method, call, kind)


def built(
    proxy_of: Callable[[Runtime, T], X], method: Callable[Concatenate[S, P], T]
) -> Callable[Concatenate[Proxy[S], P], X]:
    """The method, which only builds an object: returns the proxy of that."""
    name = method.__name__

    def call(proxy: Proxy[S], /, *args: P.args, **named: P.kwargs) -> X:
        return proxy_of(proxy._runtime, proxy._build(methodcaller(name, *args, **named)))

    return _like(method, call, "build")


def rebuilt(method: Callable[Concatenate[S, P], S]) -> Callable[Concatenate[Q, P], Q]:
    """The method, which builds another object of the same class."""
    name = method.__name__

    def call(proxy: Q, /, *args: P.args, **named: P.kwargs) -> Q:
        made = proxy._build(methodcaller(name, *args, **named))
        return type(proxy)(proxy._runtime, made)

    return _like(method, call, "build")


def described(method: object) -> Callable[[F], F]:
    """Give a method that is written here the docstring of the synchronous one."""

    def describe(function: F) -> F:
        function.__doc__ = told_for_tasks(method.__doc__ or "")
        return function

    return describe


def _like(
    method: Callable[..., Any],
    call: F,
    kind: CallKind | Literal["build"],
    *,
    is_awaited: bool = False,
) -> F:
    """Return the function with the parameters, types and docstring of a synchronous method, as a
    coroutine function if it `is_awaited`; else what is returned has a class of its own for tasks.
    """
    made = _taking_the_same(method, call, is_awaited=is_awaited)
    wraps(method)(made)
    described(method)(made)
    made.__module__ = __name__
    made.__dict__["kind"] = kind
    if not is_awaited:
        signature = inspect.signature(method)
        returned = f"Async{signature.return_annotation}".replace("Block[", "Block[Async")
        made.__dict__["__signature__"] = signature.replace(return_annotation=returned)
        made.__annotations__ = {**made.__annotations__, "return": returned}
    return made


_GIVEN: Final[Mapping[Any, str]] = {
    inspect.Parameter.VAR_POSITIONAL: "*{}",
    inspect.Parameter.VAR_KEYWORD: "**{}",
    inspect.Parameter.KEYWORD_ONLY: "{0}={0}",
}
"""How a call passes a parameter on."""


def _taking_the_same(method: Callable[..., Any], call: F, *, is_awaited: bool) -> F:
    """Return a function that takes what a method takes, and calls `call` with it: so other
    arguments are refused at once, and not when a worker gives them to the method."""
    parameters = list(inspect.signature(method).parameters.values())
    plain = [
        one.replace(annotation=one.empty, default=one.empty if one.default is one.empty else None)
        for one in parameters
    ]
    given = ", ".join(_GIVEN.get(one.kind, "{}").format(one.name) for one in parameters)
    namespace, name = Namespace(), method.__name__
    begins, returns = ("async def", "await ") if is_awaited else ("def", "")
    body = f"    return {returns}{namespace.bind(call, '_call')}({given})"
    lines = [f"{begins} {name}{inspect.Signature(plain)}:", body]
    made: Any = compile_function(name, lines, namespace, f"zapdb.aio {method.__qualname__}")[0]
    made.__defaults__, made.__kwdefaults__ = method.__defaults__, method.__kwdefaults__
    return cast(F, made)


class AsyncClosable(Protocol):
    """What a block closes at its end."""

    async def __aenter__(self) -> Any: ...

    async def __aexit__(self, *_: object) -> None: ...


C = TypeVar("C", bound=AsyncClosable)
C_co = TypeVar("C_co", bound=AsyncClosable, covariant=True)


class OpeningBlock(Coroutine[Any, Any, C_co]):
    """Something that is being opened. Awaiting it gives what was opened; so does `async with`,
    which also closes that at its end. It is a coroutine, so tasks can be made of it.
    """

    def __init__(self, steps: Coroutine[Any, Any, C_co]) -> None:
        self._steps = steps

    def __await__(self) -> Generator[Any, Any, C_co]:
        return self._steps.__await__()

    async def __aenter__(self) -> C_co:
        self._opened = await self._steps
        await self._opened.__aenter__()
        return self._opened

    async def __aexit__(self, *error: Any) -> None:
        await self._opened.__aexit__(*error)

    def send(self, value: Any) -> Any:
        return self._steps.send(value)

    def throw(self, *error: Any) -> Any:
        return self._steps.throw(*error)

    def close(self) -> None:
        self._steps.close()


def as_opening_block(function: Callable[P, Coroutine[Any, Any, C]]) -> Callable[P, OpeningBlock[C]]:
    """A coroutine function whose result is also a block: `async with items.open(1, …) as file`."""

    @wraps(function)
    def opened(*args: P.args, **named: P.kwargs) -> OpeningBlock[C]:
        return OpeningBlock(function(*args, **named))

    return opened


class AsyncBlock(AbstractAsyncContextManager[H]):
    """What begins a transaction or a snapshot, or inside a transaction a savepoint, and ends it:
    `async with db.transaction() as tx`."""

    def __init__(
        self, runtime: Runtime, block: Block[Any], proxy_of: Callable[[Runtime, Any], H]
    ) -> None:
        self._runtime = runtime
        self._block = block
        self._proxy_of = proxy_of

    async def __aenter__(self) -> H:
        return self._proxy_of(self._runtime, await self._runtime.enter(self._block))

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._runtime.leave(self._block, error)


def _block_of(
    proxy_of: Callable[[Runtime, Any], H],
) -> Callable[[Runtime, Block[Any]], AsyncBlock[H]]:
    return lambda runtime, block: AsyncBlock(runtime, block, proxy_of)


class OfOneTable(Uncounted, Proxy[S_co]):
    """What has records of one table, which are iterated by `async for`."""

    @property
    def _begun(self) -> OpenTransaction | None:
        sync: Any = self._sync
        begun: OpenTransaction | None = sync._session.open
        return begun

    if not TYPE_CHECKING:  # a type checker would take it for an iterable

        def __iter__(self) -> NoReturn:
            raise UnsupportedOperation(
                "records are iterated asynchronously",
                of=self,
                hint="write `async for`, or `for item in await query.all()`",
            )


class AsyncQuery(OfOneTable[Query[R]]):
    """Some records of one table: `items.where(items.f.done == False).order_by("due").limit(20)`.

    Immutable; nothing is read before it is iterated by `async for`, or a reading method is awaited.
    What order and which moment records come in is told by `zapdb.Query`.
    """

    where = rebuilt(Query[R].where)
    order_by = rebuilt(Query[R].order_by)
    using = rebuilt(Query[R].using)
    reverse = rebuilt(Query[R].reverse)
    limit = rebuilt(Query[R].limit)
    include = rebuilt(Query[R].include)
    all = awaited("read", Query[R].all)
    first = awaited("read", Query[R].first)
    one = awaited("read", Query[R].one)
    exists = awaited("read", Query[R].exists)
    count = awaited("read", Query[R].count)
    min = awaited("read", Query[R].min)
    max = awaited("read", Query[R].max)
    sum = awaited("read", Query[R].sum)
    page = awaited("read", Query[R].page)
    explain = awaited("read", Query[R].explain)
    to_pandas = awaited("read", Query[R].to_pandas)
    update = awaited("write", Query[R].update)
    delete = awaited("write", Query[R].delete)

    def __aiter__(self) -> AsyncIterator[R]:
        return self._iterate("read", iter)

    async def to_arrow(
        self, fields: Collection[str] | None = None, as_text: Collection[str] = ()
    ) -> Any:
        """Return the records in order as a `pyarrow.Table`, in memory; the arguments are those of
        `Table.to_arrow`. Needs the extra `sql`."""
        return await self._call("read", lambda query: query.to_arrow(fields, as_text).read_all())

    if not TYPE_CHECKING:  # to a type checker, a class with `__getattr__` has every attribute

        def __getattr__(self, name: str) -> NoReturn:
            if name.startswith("_"):
                raise AttributeError(name)
            table = self._sync._bound.adapter.schema.name
            raise in_tasks(no_attribute(self, name, table, ()))

        def __getitem__(self, place: object) -> NoReturn:
            raise no_place(self, place)


class AsyncReadableTable(OfOneTable[Any], Generic[R], called="AsyncTable"):
    """The reading half of a table."""

    get = awaited("read", ReadableTable[R].get)
    find = awaited("read", ReadableTable[R].find)
    exists = awaited("read", ReadableTable[R].exists)
    scan = iterated("read", ReadableTable[R].scan)
    all = awaited("read", ReadableTable[R].all)
    first = awaited("read", ReadableTable[R].first)
    one = awaited("read", ReadableTable[R].one)
    count = awaited("read", ReadableTable[R].count)
    page = awaited("read", ReadableTable[R].page)
    min = awaited("read", ReadableTable[R].min)
    max = awaited("read", ReadableTable[R].max)
    sum = awaited("read", ReadableTable[R].sum)
    to_pandas = awaited("read", ReadableTable[R].to_pandas)
    readable_indexes = awaited("read", ReadableTable[R].readable_indexes)
    where = built(AsyncQuery[R], ReadableTable[R].where)
    order_by = built(AsyncQuery[R], ReadableTable[R].order_by)
    limit = built(AsyncQuery[R], ReadableTable[R].limit)
    include = built(AsyncQuery[R], ReadableTable[R].include)
    using = built(AsyncQuery[R], ReadableTable[R].using)

    @described(ReadableTable.__iter__)
    def __aiter__(self) -> AsyncIterator[R]:
        return self._iterate("read", iter)

    @property
    def name(self) -> str:
        return str(self._sync.name)

    @property
    def field_names(self) -> tuple[str, ...]:
        names: tuple[str, ...] = self._build(lambda items: items.field_names)
        return names

    @property
    @described(ReadableTable.f)
    def f(self) -> Fields:
        return Fields(lambda: self._build(lambda items: items._current()))

    @described(ReadableTable.__getitem__)
    def __getitem__(self, name: str) -> FieldExpression:
        field: FieldExpression = self._build(lambda items: items[name])
        return field

    @described(ReadableTable.get_many)
    async def get_many(self, keys: Iterable[Any]) -> list[R | None]:
        require_many(keys, self.name, "get_many")
        given = list(keys)  # the application iterates on its own event loop
        return await self._call("read", lambda items: items.get_many(given))

    @as_opening_block
    @described(ReadableTable.open)
    async def open(self, *key: Any, field: str) -> AsyncFile:
        file = await self._call("read", lambda items: items.open(*key, field=field))
        begun = self._begun
        return AsyncFile(lambda act: self._runtime.call("read", act, begun), file)

    async def to_arrow(
        self, fields: Collection[str] | None = None, as_text: Collection[str] = ()
    ) -> Any:
        """All records in key order as a `pyarrow.Table`, in memory, with all fields or the named
        ones. Numbers beyond 64 bits, or 38 digits, raise `InvalidValue`, unless their fields are
        among `as_text`. Needs the extra `sql`."""
        return await self._call("read", lambda items: items.to_arrow(fields, as_text).read_all())

    if not TYPE_CHECKING:  # to a type checker, a class with `__getattr__` has every attribute

        def __getattr__(self, name: str) -> NoReturn:
            if name.startswith("_"):
                raise AttributeError(name)
            table = self._build(lambda items: items._current().adapter.schema)
            fields = [field.name for field in table.fields]
            raise in_tasks(no_attribute(self, name, table.name, fields))


class AsyncTable(AsyncReadableTable[R]):
    """The records of one table.

    Every operation outside `db.transaction()` is a transaction of its own, which is retried after
    conflicts.
    """

    history = awaited("read", Table[R].history)
    insert = awaited("write", Table[R].insert)
    upsert = awaited("write", Table[R].upsert)
    update = awaited("write", Table[R].update)
    update_where = awaited("write", Table[R].update_where)
    delete = awaited("write", Table[R].delete)
    delete_where = awaited("write", Table[R].delete_where)
    discard_unreadable = awaited("write", Table[R].discard_unreadable)
    import_from = awaited("task", Table[R].import_from)
    import_file = awaited("task", Table[R].import_file)

    @described(Table.insert_many)
    async def insert_many(
        self,
        records: Iterable[Mapping[str, Any]] | AsyncIterable[Mapping[str, Any]],
        batch_records: int = INSERT_BATCH_RECORDS,
        progress: Callable[[int], object] | None = None,
    ) -> int:
        if not isinstance(records, AsyncIterable):
            require_many(records, self.name, "insert_many")
        if progress is not None:
            require_function(progress, "insert_many", "insert_many(…, progress=tell)")
        inserted = 0
        async for batch in _batches(records, batch_records):
            insert = methodcaller("insert_many", batch, batch_records)
            inserted += await self._call("write", insert)
            if progress is not None:
                await _call_given(progress, inserted)
        return inserted

    @described(Table.delete_many)
    async def delete_many(self, keys: Iterable[Any] | AsyncIterable[Any]) -> int:
        if not isinstance(keys, AsyncIterable):
            require_many(keys, self.name, "delete_many")
        deleted = 0
        async for batch in _batches(keys, KEYS_PER_STATEMENT):
            deleted += await self._call("write", methodcaller("delete_many", batch))
        return deleted


async def _call_given(function: Callable[[A], object], given: A) -> None:
    """Call a function that may be async."""
    made = function(given)
    if inspect.isawaitable(made):
        await made


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


class AsyncPastTable(AsyncReadableTable[R]):
    """A table as it was at a past moment, under its schema of then; read-only.

    Queries scan it: indexes have the entries of now. A record is found by its key without a scan.
    """

    history = awaited("read", PastTable.history)


class AccessProxy(Proxy[A_co], called="AsyncDatabase"):
    """What a database and the handles of its transactions have in common: tables, and SQL."""

    sql = awaited("sql", ReadAccess.sql)

    @property
    @described(ReadAccess.tables)
    def tables(self) -> tuple[str, ...]:
        names: tuple[str, ...] = self._build(attrgetter("tables"))
        return names

    @overload
    def table(self, name: str) -> AsyncTable: ...

    @overload
    def table(self, name: type[Model[Any, A]]) -> A: ...

    def table(self, name: str | type[Model[Any, Any]]) -> Any:
        """A table by its name, or by the class of its records in generated models.

        Raises `UnknownName`, naming the tables that there are, and `ModelsMismatch` for a class
        that is not that of the table's records.
        """
        return AsyncTable(self._runtime, self._build(methodcaller("table", name)))

    if not TYPE_CHECKING:  # to a type checker, a class with `__getattr__` has every attribute

        def __getattr__(self, name: str) -> NoReturn:
            if name.startswith("_"):
                raise AttributeError(name)
            try:
                self._build(lambda sync: getattr(sync, name))
            except UnknownAttribute as error:
                raise in_tasks(error) from None
            raise AttributeError(name)

        def __getitem__(self, name: object) -> NoReturn:
            raise no_table_by_item(self, name)

        def __contains__(self, name: object) -> NoReturn:
            raise no_table_by_item(self, name)


class HandleProxy(AccessProxy[O_co], called="AsyncTransaction"):
    """A handle of an open transaction or snapshot, usable from any task by one at a time."""

    @property
    def _begun(self) -> OpenTransaction:
        return self._sync._open

    @described(Handle.for_tenant)
    async def for_tenant(self, name: str) -> Self:
        self._runtime.require_open()
        begun, sync = self._sync._open, self._sync
        made = self._runtime.within(begun, lambda: sync.for_tenant(name), is_part=False)
        return type(self)(self._runtime, await made)


class AsyncTransaction(HandleProxy[Transaction]):
    """An open transaction: `async with db.transaction() as tx`."""

    savepoint = built(
        _block_of(lambda runtime, tx: AsyncTransaction(runtime, tx)), Transaction.savepoint
    )


class AsyncSnapshot(HandleProxy[Snapshot]):
    """An open snapshot: `async with db.snapshot() as snap`. What is read in it is as of one
    moment."""


class AsyncPast(Proxy[Past]):
    """The database as it was at a moment: `await db.at(moment)` returns it.

    It holds no transaction and no connection: each call reads in a snapshot of its own, and always
    gives the same answer, or an error if it no longer can. `async with` keeps its files meanwhile.
    """

    sql = awaited("sql", Past.sql)
    schema = awaited("read", Past.schema)

    @described(Past.__enter__)
    async def __aenter__(self) -> Self:
        await self._call("task", lambda past: past.__enter__())
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._call("task", lambda past: past.__exit__())

    @property
    @described(Past.moment)
    def moment(self) -> Moment:
        return self._build(lambda past: past.moment)

    @described(Past.tables)
    async def tables(self) -> tuple[str, ...]:
        return await self._call("read", lambda past: past.tables)

    @described(Past.position)
    async def position(self) -> int:
        return await self._call("read", lambda past: past.position)

    @described(Past.exact)
    async def exact(self) -> bool:
        return await self._call("read", lambda past: past.exact)

    @described(Past.doubts)
    async def doubts(self) -> Mapping[str, Doubt]:
        return await self._call("read", lambda past: past.doubts)

    @described(Past.table)
    async def table(
        self,
        name: str | None = None,
        *,
        like: AsyncTable[Any] | AsyncPastTable | None = None,
        schema: Literal["then", "now"] = "then",
    ) -> AsyncPastTable:
        known = None if like is None else like._sync
        made = await self._call("task", lambda past: past.table(name, like=known, schema=schema))
        return AsyncPastTable(self._runtime, made)


class AsyncChangeFollower(Proxy[ChangeFollower]):
    """A named reader of the change log; its bookmark is kept in the database.

    A follower that never advanced is at the beginning of the log, and does not prevent pruning.
    """

    changes = iterated("task", ChangeFollower.changes)
    advance = awaited("write", ChangeFollower.advance)
    measure_lag = awaited("read", ChangeFollower.measure_lag)
    remove = awaited("write", ChangeFollower.remove)

    @property
    def name(self) -> str:
        return self._sync.name

    @described(ChangeFollower.bookmark)
    async def bookmark(self) -> Bookmark:
        return await self._call("read", lambda follower: follower.bookmark)


class AsyncDatabaseAdmin(Proxy[DatabaseAdmin]):
    """Settings, tenants, the cluster, the catalog, metrics; running jobs, verifying: `db.admin`."""

    run_jobs = awaited("task", DatabaseAdmin.run_jobs)
    reindex = awaited("task", DatabaseAdmin.reindex)
    count_by_revision = awaited("read", DatabaseAdmin.count_by_revision)
    repair = awaited("task", DatabaseAdmin.repair)
    rehearse = awaited("task", DatabaseAdmin.rehearse)
    rehearse_rollback = awaited("task", DatabaseAdmin.rehearse_rollback)
    forget_rolled_back = awaited("task", DatabaseAdmin.forget_rolled_back)
    verify = awaited("task", DatabaseAdmin.verify)
    sweep = awaited("task", DatabaseAdmin.sweep)
    setting = awaited("read", DatabaseAdmin.setting)
    settings = awaited("read", DatabaseAdmin.settings)
    set_setting = awaited("write", DatabaseAdmin.set_setting)
    tenants = awaited("read", DatabaseAdmin.tenants)
    create_tenant = awaited("write", DatabaseAdmin.create_tenant)
    remove_tenant = awaited("task", DatabaseAdmin.remove_tenant)
    cluster_level = awaited("read", DatabaseAdmin.cluster_level)
    nodes = awaited("read", DatabaseAdmin.nodes)
    catalog = awaited("task", DatabaseAdmin.catalog)
    catalog_seq = awaited("read", DatabaseAdmin.catalog_seq)
    wait_for_catalog = awaited("task", DatabaseAdmin.wait_for_catalog)
    schema_history = awaited("read", DatabaseAdmin.schema_history)
    find_fingerprint = awaited("read", DatabaseAdmin.find_fingerprint)
    metrics = awaited("task", DatabaseAdmin.metrics)


class AsyncDatabaseJobs(Proxy[DatabaseJobs]):
    """The jobs of this tenant, of all processes: `db.jobs`."""

    list = awaited("read", DatabaseJobs.list)
    get = awaited("read", DatabaseJobs.get)
    pause = awaited("write", DatabaseJobs.pause)
    resume = awaited("write", DatabaseJobs.resume)
    cancel = awaited("write", DatabaseJobs.cancel)
    set_priority = awaited("write", DatabaseJobs.set_priority)
    throttle = awaited("write", DatabaseJobs.throttle)


class AsyncDatabaseChangeLog(Proxy[DatabaseChangeLog]):
    """The changes of records and schemas in order, if the setting `change_log` is on:
    `db.change_log`."""

    read = iterated("task", DatabaseChangeLog.read)
    read_back = iterated("task", DatabaseChangeLog.read_back)
    read_moment = awaited("task", DatabaseChangeLog.read_moment)
    begin = awaited("read", DatabaseChangeLog.begin)
    end = awaited("task", DatabaseChangeLog.end)
    prune = awaited("task", DatabaseChangeLog.prune)
    followers = awaited("read", DatabaseChangeLog.followers)
    status = awaited("task", DatabaseChangeLog.status)

    @described(DatabaseChangeLog.follower)
    async def follower(self, name: str) -> AsyncChangeFollower:
        made = await self._call("task", lambda log: log.follower(name))
        return AsyncChangeFollower(self._runtime, made)


class AsyncDatabaseHistory(Proxy[DatabaseHistory]):
    """The history store: the past of the tables in files, written behind the change log:
    `db.history`."""

    start = awaited("task", DatabaseHistory.start)
    flush = awaited("task", DatabaseHistory.flush)
    follow = awaited("task", DatabaseHistory.follow)
    move = awaited("task", DatabaseHistory.move)
    purge = awaited("task", DatabaseHistory.purge)
    repair = awaited("task", DatabaseHistory.repair)
    rebuild_manifest = awaited("task", DatabaseHistory.rebuild_manifest)
    verify = awaited("task", DatabaseHistory.verify)
    wait = awaited("task", DatabaseHistory.wait)
    erase = awaited("task", DatabaseHistory.erase)
    erase_fields = awaited("task", DatabaseHistory.erase_fields)
    stop = awaited("task", DatabaseHistory.stop)
    status = awaited("read", DatabaseHistory.status)


class AsyncDatabase(AccessProxy[Database]):
    """An open database, as one tenant sees it; an asynchronous context manager.

    `zapdb.aio.open` returns it. Closing it removes the process's registration as a node.
    `for_tenant` returns the same database for another tenant.
    """

    transaction = built(_block_of(AsyncTransaction), Database.transaction)
    snapshot = built(_block_of(AsyncSnapshot), Database.snapshot)
    audit = iterated("task", Database.audit)
    moments = iterated("task", Database.moments)
    diff = iterated("task", Database.diff)
    diff_schemas = awaited("task", Database.diff_schemas)
    versions = awaited("task", Database.versions)

    @property
    def applied(self) -> tuple[AppliedMigration, ...]:
        """The migrations that opening this database activated."""
        return self._sync.applied

    @property
    @described(Database.position)
    def position(self) -> int:
        return self._build(lambda db: db.position)

    @property
    @described(Database.admin)
    def admin(self) -> AsyncDatabaseAdmin:
        return AsyncDatabaseAdmin(self._runtime, self._build(lambda db: db.admin))

    @property
    @described(Database.jobs)
    def jobs(self) -> AsyncDatabaseJobs:
        return AsyncDatabaseJobs(self._runtime, self._build(lambda db: db.jobs))

    @property
    @described(Database.change_log)
    def change_log(self) -> AsyncDatabaseChangeLog:
        return AsyncDatabaseChangeLog(self._runtime, self._build(lambda db: db.change_log))

    @property
    @described(Database.history)
    def history(self) -> AsyncDatabaseHistory:
        return AsyncDatabaseHistory(self._runtime, self._build(lambda db: db.history))

    @as_opening_block
    @described(Database.for_tenant)
    async def for_tenant(self, name: str) -> AsyncDatabase:
        made = await self._call("task", lambda db: db.for_tenant(name))
        return AsyncDatabase(self._runtime, made)

    @as_opening_block
    @described(Database.at)
    async def at(self, when: When) -> AsyncPast:
        return AsyncPast(self._runtime, await self._call("task", lambda db: db.at(when)))

    @as_opening_block
    @described(Database.before)
    async def before(self, change: RecordChange | SchemaEvent | Moment) -> AsyncPast:
        return AsyncPast(self._runtime, await self._call("task", lambda db: db.before(change)))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @overload
    async def run(self, function: Callable[[], Awaitable[T]], *, token: bool = False) -> T: ...

    @overload
    async def run(
        self, function: Callable[[AsyncTransaction], Awaitable[T]], *, token: bool = False
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
        require_function(function, "run", "await db.run(work)")
        takes_handle, beaten = takes_argument(function), Beaten()

        async def attempt() -> T:
            block = Block(
                self._sync._session,
                Transaction,
                TransactionMode.WRITE,
                self._sync._session_for_tenant,
                token=token,
                beaten=beaten,
            )
            with beaten.measured():
                async with AsyncBlock(self._runtime, block, AsyncTransaction) as handle:
                    made: Any = function(handle) if takes_handle else function()
                    require_awaitable(made, function, "run")
                    return await made  # type: ignore[no-any-return] # of the function's own type

        is_part = self._runtime.storage.pool.open_here() is not None
        return await (attempt() if is_part else retry_in_task(WRITE, attempt, beaten.before_again))

    async def on_catalog_change(
        self,
        callback: Callback,
        *,
        kinds: Collection[KindName] | None = None,
        all_tenants: bool = False,
    ) -> Callable[[], None]:
        """Call `callback` with each `CatalogChange`, on this event loop; returns what ends that.

        `kinds` and `all_tenants` are as for the synchronous method. It is called within about a
        second after the change, in whichever process that was made. It may be async; the next
        change is told when it has ended. What it raises is handled as that of other callbacks of
        the loop.
        """
        require_function(callback, "on_catalog_change", "await db.on_catalog_change(tell)")
        told = ToldInOrder(asyncio.get_running_loop(), callback)
        end = await self._call(
            "task",
            lambda db: db.on_catalog_change(told.take, kinds=kinds, all_tenants=all_tenants),
        )

        def end_all() -> None:
            end()
            told.end()

        return end_all

    async def close(self) -> None:
        """End this process's registration and close its connections; safe to repeat.

        Raises `UsageError` inside a transaction or a snapshot of this task. Those of other tasks
        are undone, and what they have under way is interrupted: they get `UsageError`, too.
        """
        storage = self._runtime.storage
        if storage.pool.is_closed or storage.pool.is_inherited:
            return
        if not self._sync._owns_node:
            await self._call("task", lambda db: db.close())
            return
        self._sync._require_no_transaction()
        await self._runtime.close(self._sync.close)


class ToldInOrder:
    """Calls a function, which may be async, on an event loop: with one thing after the other, in
    a task of its own while there are any."""

    def __init__(self, loop: asyncio.AbstractEventLoop, function: Callable[[Any], object]) -> None:
        self._loop = loop
        self._function = function
        self._waiting = deque[Any]()
        self._task: asyncio.Task[None] | None = None
        self._has_ended = False

    def take(self, told: Any) -> None:
        """From whichever thread."""
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._add, told)

    def end(self) -> None:
        """Tell nothing further."""
        self._has_ended = True

    def _add(self, told: Any) -> None:
        self._waiting.append(told)
        if self._task is None:
            self._task = self._loop.create_task(self._tell())

    async def _tell(self) -> None:
        try:
            while self._waiting and not self._has_ended:
                try:
                    await _call_given(self._function, self._waiting.popleft())
                except Exception as error:
                    said = "a callback of on_catalog_change failed"
                    self._loop.call_exception_handler({"message": said, "exception": error})
        finally:
            self._task = None


async def retry_in_task(
    policy: RetryPolicy,
    action: Callable[[], Awaitable[T]],
    before_again: Callable[[int], object] = lambda made: None,
) -> T:
    """As `zapdb.storage.retries.retry`, with awaited pauses: await the action, and again as long
    as it raises `TransactionConflict` and the policy gives it another try. `before_again` is called
    before each further try, with the number of earlier ones."""
    made, left = 0, pauses(policy, time.monotonic())
    while True:
        try:
            return await action()
        except TransactionConflict as error:
            made, seconds = made + 1, next(left, None)
            if seconds is None:
                note_tries(error, made)
                raise
        await asyncio.sleep(seconds)
        before_again(made)


def open_by_worker(
    open_sync: Callable[P, Database],
) -> Callable[P, OpeningBlock[AsyncDatabase]]:
    """The function that opens a database, done by the worker that will start the others."""

    @as_opening_block
    async def open(*args: P.args, **named: P.kwargs) -> AsyncDatabase:
        made = list[Database]()

        def open_it() -> Database:
            made.append(open_sync(*args, **named))
            return made[0]

        def close() -> None:
            """Close one that a cancelled task has no use for."""
            for db in made:
                db.close()

        def release() -> None:
            for db in made:
                db._storage.release_connection()

        worker = Worker(release)
        try:
            db = await CancellableCall(None, open_it, undo=close).done_by(worker)
        except BaseException:
            worker.stop()
            raise
        return AsyncDatabase(Runtime(db._storage, worker), db)

    return _like(open_sync, open, "task")


open = open_by_worker(open_here)
