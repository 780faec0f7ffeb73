"""The server: each method in a worker of the database, its answer as messages.

What a call does in the database is interrupted when the call ends: when its deadline is over, or
the client has gone away. A stream makes some of its answers at a time, and sends them before it
makes the next: no transaction is open while a reader is slow.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import time
from collections import Counter, OrderedDict
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Coroutine,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeAlias, TypeVar

import grpc
from google.protobuf.message import DecodeError, Message
from grpc_health.v1 import health_pb2
from grpc_health.v1.health import SERVICE_NAME as HEALTH
from grpc_health.v1.health import aio as health_aio
from grpc_health.v1.health_pb2_grpc import add_HealthServicer_to_server
from grpc_reflection.v1alpha import reflection

from zapdb import aio
from zapdb.aio.runtime import CallKind
from zapdb.catalog import DEFAULT_TENANT_NAME, principal
from zapdb.catalog.calls import KeyedRequest
from zapdb.catalog.feed import read_seq
from zapdb.catalog.row_kinds import NodeRow, TenantNameRow
from zapdb.catalog.tenants import find_tenant_row
from zapdb.control import Target, pace_of
from zapdb.control.bounds import call_method
from zapdb.errors import (
    AnswerTooLarge,
    CatalogBehind,
    CatalogRestored,
    ConcurrencyError,
    InvalidValue,
    LeaseLost,
    MigrationLimitExceeded,
    RequestTooLarge,
    ServiceBusy,
    UnknownName,
    UsageError,
    ZapdbError,
)
from zapdb.jobs.job import NAMED
from zapdb.limits import (
    ASYNC_LONG_CALLS,
    CATALOG_WAIT_SECONDS,
    IDEMPOTENCY_KEY_LENGTH_MAX,
    LONG_CALLS_OF_ONE_MAX,
    SENT_FILES_SECONDS,
    SERVICE_ANSWER_SIZE_BYTES_MAX,
    SERVICE_ANSWERS_KEPT_MAX,
    SERVICE_ANSWERS_SIZE_BYTES_MAX,
    SERVICE_DRAIN_SECONDS,
    SERVICE_KEEPALIVE_SECONDS,
    SERVICE_KEEPALIVE_WAIT_SECONDS,
    SERVICE_PLAIN_REQUEST_SIZE_BYTES_MAX,
    SERVICE_POLL_SECONDS,
    SERVICE_REQUEST_SIZE_BYTES_MAX,
)
from zapdb.records.unreadable import UNREADABLE
from zapdb.service.addresses import is_loopback, split_address
from zapdb.service.call_log import CallLog
from zapdb.service.certificates import Certificates
from zapdb.service.guard import Guard, IncomingCall, incoming_call
from zapdb.service.keys import KeyFile
from zapdb.service.methods import IDEMPOTENCY_KEY, METHODS, Method
from zapdb.service.metrics_endpoint import serving_metrics
from zapdb.service.principals import EVERY_TENANT, SCOPES, Grant, Principal
from zapdb.service.sent_directories import SentBounds
from zapdb.service.status import fail
from zapdb.storage import Connection, TransactionMode

if TYPE_CHECKING:  # grpc's own classes have no parameters
    Context: TypeAlias = grpc.aio.ServicerContext[Any, Any]
    Handler: TypeAlias = grpc.RpcMethodHandler[Any, Any]
    from zapdb.catalog.cache import CatalogCache

Given: TypeAlias = "bytes | AsyncIterator[bytes]"
"""The message of a request, or the messages."""

T = TypeVar("T")

Answer: TypeAlias = (
    "Callable[[Method, Any, IncomingCall, Context, bytes | None], Coroutine[Any, Any, T]]"
)
"""Answers a request that was let in; the bytes of one that is a single message."""

logger = logging.getLogger("zapdb.service")

STREAMED_AT_ONCE: Final = 256
"""Answers of a stream that a worker makes at a time: no transaction is open between two times."""
STREAMED_SIZE_BYTES: Final = 1024 * 1024
"""Of such answers: no further one is made at the same time, once there are as many bytes."""
CATALOG_CHECK_SECONDS: Final = 0.02
DEADLINE_SLACK_SECONDS: Final = 0.25
"""A client's own clock ends a call at its deadline before the one here does."""
OPTIONS: Final = (
    ("grpc.so_reuseport", 0),  # a port in use is refused
    ("grpc.max_receive_message_length", SERVICE_REQUEST_SIZE_BYTES_MAX),
    ("grpc.max_send_message_length", SERVICE_ANSWER_SIZE_BYTES_MAX),
    # A client that vanished without a word would keep its stream for ever.
    ("grpc.keepalive_time_ms", int(SERVICE_KEEPALIVE_SECONDS * 1000)),
    ("grpc.keepalive_timeout_ms", int(SERVICE_KEEPALIVE_WAIT_SECONDS * 1000)),
    ("grpc.http2.max_pings_without_data", 0),
    # What clients may ask as often, which grpc takes for an attack otherwise.
    ("grpc.http2.min_ping_interval_without_data_ms", int(SERVICE_KEEPALIVE_SECONDS * 500)),
    ("grpc.http2.min_recv_ping_interval_without_data_ms", int(SERVICE_KEEPALIVE_SECONDS * 500)),
)


@dataclass(frozen=True, slots=True)
class Listening:
    """Where a service listens, and whom it lets in: checked before anything is opened."""

    address: str
    certificates: Certificates | None = None
    tokens: Path | None = None
    insecure_loopback: bool = False

    def require_safe(self) -> None:
        """Raise `UsageError` for what others could listen to, or call without a name."""
        if self.insecure_loopback == (self.tokens is not None):
            raise UsageError(
                "a service needs to know who calls",
                hint="give --tokens FILE (`zapdb token keys FILE --add` makes one); or "
                "--insecure-loopback, with which each user of this machine may do everything",
            )
        if self._is_loopback() or (self.certificates is not None and self.tokens is not None):
            return
        raise UsageError(
            "other machines may call a service by TLS and with tokens alone",
            address=self.address,
            hint="give --tls-cert, --tls-key and --tokens, or listen on 127.0.0.1",
        )

    def _is_loopback(self) -> bool:
        return is_loopback(split_address(self.address, "listen")[0])


@dataclass(frozen=True, slots=True)
class KeptAnswer:
    """The messages of the answer to a look-up, as of one seq of the catalog."""

    seq: int
    messages: tuple[bytes, ...]

    @property
    def size_bytes(self) -> int:
        return sum(map(len, self.messages))


Name: TypeAlias = tuple[str, bytes] | tuple[str, bytes, int]
NAMES_SIZE_BYTES_MAX: Final = 128
"""Of a request that is its own name: most are shorter, and a digest takes longer than the rest."""


@dataclass(slots=True)
class KnownAnswer:
    """The answer of a request that may be a repeated one, once there is one."""

    answer: bytes | None = None


class KeptAnswers:
    """Of look-ups, by the path and the bytes of the request, or by the digest of long ones."""

    def __init__(self) -> None:
        self._kept = OrderedDict[Name, KeptAnswer]()
        self._size_bytes = 0

    def find(self, path: str, request: bytes, seq: int) -> tuple[bytes, ...] | None:
        kept = self._kept.get(_name_of(path, request))
        return kept.messages if kept is not None and kept.seq == seq else None

    def keep(self, path: str, request: bytes, answer: KeptAnswer) -> None:
        name = _name_of(path, request)
        self._remove(name)
        self._kept[name] = answer
        self._size_bytes += answer.size_bytes
        while (
            len(self._kept) > SERVICE_ANSWERS_KEPT_MAX
            or self._size_bytes > SERVICE_ANSWERS_SIZE_BYTES_MAX
        ):
            self._remove(next(iter(self._kept)))

    def _remove(self, name: Name) -> None:
        kept = self._kept.pop(name, None)
        if kept is not None:
            self._size_bytes -= kept.size_bytes


def _name_of(path: str, request: bytes) -> Name:
    """No request has the name of another one, even if it has the bytes of the other's digest."""
    if len(request) <= NAMES_SIZE_BYTES_MAX:
        return path, request
    return path, hashlib.sha256(request).digest(), len(request)


class _Handlers(grpc.GenericRpcHandler):
    """The handlers of all methods by their paths: grpc would ask one object for each service."""

    def __init__(self, by_path: Mapping[str, Handler]) -> None:
        self._by_path = by_path

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Handler | None:
        return self._by_path.get(handler_call_details.method)


class LongCalls:
    """The places of calls that may take minutes: about migration files, rolling back, measuring.

    They have workers of their own, so look-ups, streams, job control and heartbeats wait for none
    of them. A call has its place before its files are received: so it is bounded, too, how many
    files are in memory. One principal has a part of the places, and is refused beyond it; those of
    several principals wait for each other, in their order.
    """

    def __init__(self) -> None:
        self._places = asyncio.Semaphore(ASYNC_LONG_CALLS)
        self._under_way = Counter[str]()
        """How many calls each principal has, those that wait for a place included."""

    @asynccontextmanager
    async def place(self, principal: str) -> AsyncIterator[None]:
        """Have a place in the block; raises `ServiceBusy`."""
        if self._under_way[principal] >= LONG_CALLS_OF_ONE_MAX:
            raise ServiceBusy(
                "the principal has too many long calls under way",
                principal=principal,
                most=LONG_CALLS_OF_ONE_MAX,
                hint="ask again when one of them has ended",
            )
        self._under_way[principal] += 1
        try:
            async with self._places:
                yield
        finally:
            self._under_way[principal] -= 1
            if not self._under_way[principal]:
                del self._under_way[principal]


class Server:
    """The methods over one open database."""

    def __init__(self, db: aio.AsyncDatabase, listening: Listening) -> None:
        listening.require_safe()
        self._db = db._sync
        self._runtime = db._runtime
        self._listening = listening
        self._keys = None if listening.tokens is None else KeyFile(listening.tokens)
        anybody = None
        if self._keys is None:
            anybody = Principal(principal.current(), (Grant(EVERY_TENANT, frozenset(SCOPES)),))
        self._call_log = CallLog(self._db._storage, lambda work: self._do("task", work))
        self._guard = Guard(self._keys, anybody, [self._call_log.note])
        self._kept = KeptAnswers()
        self._long_calls = LongCalls()
        self._keys_under_way = set[tuple[str, str]]()
        """The principals and idempotency keys of calls that have not ended."""
        self._was_node = False
        self._says_serving = True
        self.grpc = grpc.aio.server(interceptors=[self._guard], options=OPTIONS)
        handlers = {method.path: self._handler(method) for method in METHODS}
        self.grpc.add_generic_rpc_handlers([_Handlers(handlers)])
        self._health = health_aio.HealthServicer()
        add_HealthServicer_to_server(self._health, self.grpc)
        self._services = tuple(dict.fromkeys(method.service for method in METHODS))
        reflection.enable_server_reflection(
            (*self._services, HEALTH, reflection.SERVICE_NAME), self.grpc
        )

    async def start(self) -> str:
        """Listen, and return the address with its port. Raises `UsageError` for certificates that
        can't be used, and if the port is in use."""
        listening = self._listening
        try:
            if listening.certificates is None:
                port = self.grpc.add_insecure_port(listening.address)
            else:
                credentials = listening.certificates.credentials()
                port = self.grpc.add_secure_port(listening.address, credentials)
        except RuntimeError as error:
            raise UsageError(
                "the service can't listen there",
                address=listening.address,
                cause=str(error),
                hint="is the port in use?",
            ) from None
        await self.grpc.start()
        await self._say(health_pb2.HealthCheckResponse.SERVING)
        return f"{listening.address.rpartition(':')[0]}:{port}"

    async def serve_until(self, stopped: asyncio.Event) -> None:
        """Serve until the event, then let the calls under way end. Raises `LeaseLost` if this
        process is evicted: then it ends, too."""
        lost: LeaseLost | None = None
        writing = asyncio.create_task(self._call_log.keep_writing())
        while not stopped.is_set() and lost is None:
            try:
                await asyncio.wait_for(stopped.wait(), SERVICE_POLL_SECONDS)
            except TimeoutError:
                lost = self._find_loss()
                await self._say_health()
                if self._keys is not None:
                    self._keys.look_again()
        await self.stop()
        writing.cancel()
        await asyncio.wait([writing])
        if lost is not None:
            raise lost
        await self._call_log.flush()

    def metrics_at(self, address: str | None) -> AbstractContextManager[str | None]:
        """A block in which the metrics are served at an address, if there is one."""
        if address is None:
            return nullcontext()
        storage = self._db._storage
        read = partial(self._db.admin.metrics, count_records=False)
        return serving_metrics(address, read, storage.release_connection)

    async def stop(self) -> None:
        """Let no further calls in, and end when those under way have ended, in time."""
        await self._health.enter_graceful_shutdown()
        await self.grpc.stop(grace=SERVICE_DRAIN_SECONDS)

    async def _say_health(self) -> None:
        """Whether the database can be reached, as who follows its catalog finds."""
        can_serve = self._db._node_context.watcher.error is None
        if can_serve != self._says_serving:
            self._says_serving = can_serve
            told = health_pb2.HealthCheckResponse
            await self._say(told.SERVING if can_serve else told.NOT_SERVING)

    async def _say(self, status: Any) -> None:
        for service in ("", *self._services):
            await self._health.set(service, status)

    def _find_loss(self) -> LeaseLost | None:
        """Why this process is no node of the database any more, if it is not."""
        db = self._db
        if db._heartbeat is not None and db._heartbeat.lost is not None:
            return db._heartbeat.lost
        known = self._known
        if db._node is None or known is None:
            return None
        if known.get(NodeRow, db._node.id) is not None:
            self._was_node = True  # a cache from before it was one lacks it, too
            return None
        if not self._was_node:
            return None
        return LeaseLost(
            "this process was evicted",
            node=db._node.id,
            hint="start the service again; `zapdb cluster status` lists processes",
        )

    @property
    def _known(self) -> CatalogCache | None:
        return self._db._node_context.watcher.known

    # Calls

    def _handler(self, method: Method) -> Handler:
        kinds = "stream" if method.sent else "unary", "stream" if method.is_stream else "unary"
        make: Callable[..., Handler] = getattr(grpc, f"{'_'.join(kinds)}_rpc_method_handler")
        return make(self._streaming(method) if method.is_stream else self._answering(method))

    def _answering(self, method: Method) -> Callable[[Given, Context], Awaitable[bytes]]:
        async def answer(raw: Given, context: Context) -> bytes:
            return await self._serve(method, raw, context, self._answer_once)

        return answer

    def _streaming(self, method: Method) -> Callable[[Given, Context], Awaitable[None]]:
        async def send(raw: Given, context: Context) -> None:
            await self._serve(method, raw, context, self._send_once)

        return send

    async def _serve(self, method: Method, raw: Given, context: Context, answer: Answer[T], /) -> T:
        """Let a call in, have it answered, and end it. One that may take long has its place
        meanwhile, and before its files are received."""
        call = incoming_call()
        try:
            if not isinstance(raw, bytes):
                async with self._receiving(method, call, raw, context) as request:
                    return await answer(method, request, call, context, None)
            request = self._enter(method, call, raw, context)
            if method.kind_of(request) != "long":
                return await answer(method, request, call, context, raw)
            assert call.caller is not None
            async with self._long_calls.place(call.caller.name):
                return await answer(method, request, call, context, raw)
        except BaseException as error:
            await _fail(call, context, error)
        finally:
            self._guard.end(call)

    async def _answer_once(
        self,
        method: Method,
        request: Any,
        call: IncomingCall,
        context: Context,
        raw: bytes | None,
    ) -> bytes:
        if request.min_seq:
            await self._see(request.min_seq)
        work = partial(self._answer, method, request, call)
        if raw is not None and method.is_kept(request):
            return (await self._look_up(method, raw, lambda: (work(),)))[0]
        kind = method.kind_of(request)
        if not method.changes:
            made: bytes = await self._do(kind, work)
            return made
        async with self._once(method, request, call) as once:
            if once.answer is None:
                once.answer = await self._do(kind, work)
            return once.answer

    async def _send_once(
        self,
        method: Method,
        request: Any,
        call: IncomingCall,
        context: Context,
        raw: bytes | None,
    ) -> None:
        if request.min_seq:
            await self._see(request.min_seq)
        if raw is not None and method.is_kept(request):
            for message in await self._look_up(
                method, raw, lambda: self._answer_all(method, request, call)
            ):
                await context.write(message)
            return
        async with self._once(method, request, call) as once:
            if once.answer is not None:
                await context.write(once.answer)
            else:
                await self._send(method, request, call, context, once)

    async def _send(
        self,
        method: Method,
        request: Any,
        call: IncomingCall,
        context: Context,
        once: KnownAnswer,
    ) -> None:
        """Make the answers of a stream and send them, until its tenant is removed."""
        tenant = await self._find_tenant_row(call.tenant)
        write, pace, kind = (
            partial(_to_bytes, method),
            pace_of(method.function),
            method.kind_of(request),
        )
        at_once = 1 if pace or method.is_live else STREAMED_AT_ONCE
        found = await self._do(kind, lambda: iter(self._start(method, request, call)))
        try:
            while part := await self._do(kind, lambda: _take(found, write, at_once)):
                for message in part:
                    if isinstance(message, ZapdbError):
                        raise message
                    once.answer = message
                    await context.write(message)
                self._guard.check_again(call, context)
                self._require_tenant(call.tenant, tenant)
                await asyncio.sleep(pace)
            if tenant is not None:  # what was removed with it was not read
                await self._see_all()
                self._require_tenant(call.tenant, tenant)
        except BaseException:
            await self._close(kind, found)
            raise

    @asynccontextmanager
    async def _receiving(
        self, method: Method, call: IncomingCall, raw: AsyncIterator[bytes], context: Context
    ) -> AsyncIterator[Any]:
        """The request of a call that is let in, with all files that are sent with it."""
        caller = self._guard.identify(call, context)
        async with (
            self._long_calls.place(caller.name) if caller.holds(method.scope) else nullcontext()
        ):
            try:
                async with asyncio.timeout(SENT_FILES_SECONDS):
                    request = await self._receive(method, call, raw, context)
            except TimeoutError:
                raise MigrationLimitExceeded(
                    "the migration files did not arrive in time",
                    most_seconds=SENT_FILES_SECONDS,
                    hint="try again, or run the command against the database itself",
                ) from None
            yield request

    async def _receive(
        self, method: Method, call: IncomingCall, raw: AsyncIterator[bytes], context: Context
    ) -> Any:
        """The request of a call with the files that are sent with it; those of a call that is
        refused are not read."""
        request, bounds = None, SentBounds()
        assert method.sent is not None
        async for one in raw:
            if request is None:
                part = request = self._enter(method, call, one, context)
            else:
                part = _parse(method, one)
            files = getattr(part, method.sent).files
            bounds.add(files)
            if part is not request:
                getattr(request, method.sent).files.extend(files)
                part.ClearField(method.sent)
                if part.ByteSize():
                    raise InvalidValue(
                        "the messages after the first have files alone", method=call.path
                    )
        return request or self._enter(method, call, b"", context)

    def _enter(self, method: Method, call: IncomingCall, raw: bytes, context: Context) -> Any:
        """The request of a call that is let in. Before it is known who calls, nothing is parsed."""
        self._guard.identify(call, context)
        if method.sent is None and len(raw) > SERVICE_PLAIN_REQUEST_SIZE_BYTES_MAX:
            raise RequestTooLarge(
                "the request is larger than those of its method may be",
                method=method.path,
                size=len(raw),
                most=SERVICE_PLAIN_REQUEST_SIZE_BYTES_MAX,
                hint="ask for less at a time",
            )
        try:
            request = _parse(method, raw)
        except InvalidValue:
            self._guard.enter(call, context, method.request_class())
            raise
        self._guard.enter(call, context, request)
        if b"\0" in raw:  # which may as well be a part of a number
            _require_texts(method, request)
        return request

    @asynccontextmanager
    async def _once(
        self, method: Method, request: Any, call: IncomingCall
    ) -> AsyncIterator[KnownAnswer]:
        """The answer to a request that has a key: that of the first time, if there was one, else
        the one that the block makes. That of a stream is its last message, which tells all."""
        key = call.metadata.get(IDEMPOTENCY_KEY) if method.will_change(request) else None
        if key is None:
            yield KnownAnswer()
            return
        assert call.caller is not None
        hashed = _hash(method, request)
        keyed = KeyedRequest(call.caller.name, _checked_key(key), hashed, method.shown_by)
        under_way = keyed.principal, keyed.key
        if under_way in self._keys_under_way:
            raise ConcurrencyError(
                "the same request is under way", key=key, hint="ask again: its answer is kept"
            )
        self._keys_under_way.add(under_way)
        try:
            begin = partial(self._begin, tenant=call.tenant)
            keyed, answer = await self._do("task", lambda: self._in_catalog(begin, keyed))
            known = KnownAnswer(answer)
            if known.answer is not None:
                yield known
                return
            try:
                yield known
            except ZapdbError:
                # What ends it otherwise, or after its first answer, does not say what was done.
                if known.answer is None:
                    with suppress(ZapdbError):
                        await self._do("task", lambda: self._in_catalog(KeyedRequest.forget, keyed))
                raise
            await self._do("task", lambda: self._in_catalog(KeyedRequest.end, keyed, known.answer))
        finally:
            self._keys_under_way.discard(under_way)

    def _in_catalog(self, work: Callable[..., T], keyed: KeyedRequest, *given: Any) -> T:
        with self._db._storage.transaction(TransactionMode.CATALOG) as connection:
            return work(keyed, connection, *given)

    def _begin(
        self, keyed: KeyedRequest, connection: Connection, *, tenant: str
    ) -> tuple[KeyedRequest, bytes | None]:
        """Begin a request. Of a tenant that was removed and made again, it is another one."""
        with suppress(UnknownName):
            number = find_tenant_row(connection, tenant).number
            keyed = replace(keyed, sha256=hashlib.sha256(b"%d " % number + keyed.sha256).digest())
        owner = "" if self._db._node is None else self._db._node.id
        return keyed, keyed.begin(connection, owner, self._db._storage.now_us(connection))

    async def _look_up(
        self, method: Method, raw: bytes, make: Callable[[], tuple[bytes, ...]]
    ) -> tuple[bytes, ...]:
        """The answer as of this process's catalog cache, kept until that moves."""
        known = self._known
        found = None if known is None else self._kept.find(method.path, raw, known.seq)
        if found is not None:
            return found
        made: tuple[bytes, ...] = await self._do("read", make)
        if known is not None:
            self._kept.keep(method.path, raw, KeptAnswer(known.seq, made))
        return made

    async def _see(self, seq: int) -> None:
        """Wait until this process's catalog cache has a seq; raises `CatalogBehind`, and
        `CatalogRestored` for one that the database never had."""
        watcher, ends = self._db._node_context.watcher, time.monotonic() + CATALOG_WAIT_SECONDS
        storage = self._db._storage
        if seq and (watcher.known is None or watcher.known.seq < seq) and not storage.read_only:
            watcher.wake()
            newest = await self._do("read", lambda: read_seq(storage.connection()))
            if newest < seq:  # who knows it has it from a COMMIT; only a standby may be behind that
                raise CatalogRestored(
                    "the database never had this seq: a backup was restored, or it is another one",
                    seq=seq,
                    newest=newest,
                    hint="see whether what you changed is there, and ask again without the seq; a "
                    "client of zapdb has forgotten it now",
                )
        while watcher.known is None or watcher.known.seq < seq:
            if time.monotonic() > ends:
                raise CatalogBehind(
                    "the service has not seen a change of the catalog in time",
                    seq=seq,
                    seen="nothing" if watcher.known is None else watcher.known.seq,
                    waited_seconds=CATALOG_WAIT_SECONDS,
                    hint="check that the seq belongs to this database",
                )
            watcher.wake()
            await asyncio.sleep(CATALOG_CHECK_SECONDS)

    async def _see_all(self) -> None:
        """Wait until this process's catalog cache has all that is committed."""
        await self._see(await self._do("read", self._db.admin.catalog_seq))

    def _answer(self, method: Method, request: Any, call: IncomingCall) -> bytes:
        return _to_bytes(method, self._start(method, request, call))

    def _answer_all(self, method: Method, request: Any, call: IncomingCall) -> tuple[bytes, ...]:
        """All messages of a stream that is kept: the method bounds how many there are."""
        return tuple(_to_bytes(method, one) for one in self._start(method, request, call))

    def _start(self, method: Method, request: Any, call: IncomingCall) -> Any:
        """Call the function of a method, in a worker."""
        tenant = call.tenant

        def shows_values(table: str) -> bool:
            assert call.caller is not None, "the guard let it in"
            return call.caller.may_see(tenant, table)

        target = Target(
            self._db._storage,
            tenant,
            lambda: self._db._open_for_tenant(tenant),
            shows_values,
            is_served=True,
        )
        return call_method(method.function, target, **_read(method, request))

    def _do(self, kind: CallKind, work: Callable[[], Any]) -> Coroutine[Any, Any, Any]:
        """Let a worker do it; to be awaited at once."""
        return self._runtime.call(kind, work, None)

    async def _close(self, kind: CallKind, found: Iterator[Any]) -> None:
        """Give back what the iterator of a stream that has failed holds."""
        close = getattr(found, "close", None)
        if close is not None:
            with suppress(ZapdbError):  # the service has ended
                await self._do(kind, close)

    async def _find_tenant_row(self, name: str) -> TenantNameRow | None:
        """None if there is no such tenant; one that was made just now is waited for, and so is the
        cache of a service that has just begun."""
        found = self._tenant_row(name)
        if found is None:
            await self._see_all()
            found = self._tenant_row(name)
        return found

    def _tenant_row(self, name: str) -> TenantNameRow | None:
        known = self._known
        return None if known is None else known.get(TenantNameRow, name)

    def _require_tenant(self, name: str, before: TenantNameRow | None) -> None:
        """Raises `UnknownName` if a tenant was removed since."""
        if before is not None and self._tenant_row(name) != before:
            raise UnknownName("the tenant was removed", tenant=name)


def _checked_key(key: str) -> str:
    if not 0 < len(key) <= IDEMPOTENCY_KEY_LENGTH_MAX or not key.isprintable():
        raise InvalidValue(
            "this is no idempotency key",
            length=len(key),
            longest=IDEMPOTENCY_KEY_LENGTH_MAX,
            hint="give printable characters, such as a UUID",
        )
    return key


def _hash(method: Method, request: Any) -> bytes:
    """What is the same for a request and its repetition: not what the client has seen meanwhile."""
    same: Any = method.request_class()
    same.CopyFrom(request)
    same.ClearField("min_seq")
    same.tenant = same.tenant or DEFAULT_TENANT_NAME
    text = same.SerializeToString(deterministic=True)
    return hashlib.sha256(method.path.encode() + b"\0" + text).digest()


def _take(
    found: Iterator[Any], write: Callable[[Any], bytes], at_once: int
) -> list[bytes | ZapdbError]:
    """Some answers of a stream as bytes, and behind them the error with which it ends."""
    made, size_bytes = list[bytes | ZapdbError](), 0
    try:
        for one in islice(found, at_once):
            message = write(one)
            made.append(message)
            size_bytes += len(message)
            if size_bytes >= STREAMED_SIZE_BYTES:
                break
    except ZapdbError as error:
        made.append(error)
    return made


def _to_bytes(method: Method, answer: Any) -> bytes:
    """A message as it is sent; raises `AnswerTooLarge` for one that clients would not take."""
    message: bytes = method.answer.write(answer).SerializeToString()
    if len(message) > SERVICE_ANSWER_SIZE_BYTES_MAX:
        raise AnswerTooLarge(
            "the answer is larger than a message may be",
            method=method.path,
            size_bytes=len(message),
            most_bytes=SERVICE_ANSWER_SIZE_BYTES_MAX,
            hint="ask for less at a time, or run the command against the database itself",
        )
    return message


def _parse(method: Method, raw: bytes) -> Any:
    try:
        return method.request_class.FromString(raw)
    except DecodeError as error:
        raise InvalidValue(
            "the request is no message of its method", method=method.path, cause=str(error)
        ) from None


def _read(method: Method, request: Any) -> dict[str, Any]:
    """The arguments of a request; raises `InvalidValue` for what its fields can't have."""
    try:
        arguments: dict[str, Any] = method.request.read(request)
    except (ValueError, OverflowError) as error:
        raise InvalidValue(
            "a field of the request has a value that it can't have",
            method=method.path,
            cause=str(error),
        ) from None
    return arguments


def _require_texts(method: Method, request: Any) -> None:
    """Raise `InvalidValue` for a text with NUL, which databases do not take; files that are sent
    are read elsewhere."""
    for field, value in request.ListFields():
        if field.name != method.sent and any("\0" in text for text in _texts_in(value)):
            raise InvalidValue(
                "a text of the request contains NUL", method=method.path, parameter=field.name
            )


def _texts_in(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Message):
        for _, part in value.ListFields():
            yield from _texts_in(part)
    elif isinstance(value, Mapping):
        yield from _texts_in((*value, *value.values()))
    elif isinstance(value, Sequence) and not isinstance(value, bytes):
        for part in value:
            yield from _texts_in(part)


def _without_hidden(call: IncomingCall, error: ZapdbError) -> ZapdbError:
    """An error without what it tells of a record that can't be read, its key and its bytes, unless
    the caller may see records of its table. No other error tells of a record that was not asked
    for."""
    table, caller = error.context.get("table", ""), call.caller
    is_hidden = caller is not None and not caller.may_see(call.tenant, str(table))
    if isinstance(error, UNREADABLE) and is_hidden:
        error.context = {name: error.context[name] for name in NAMED if name in error.context}
    return error


async def _fail(call: IncomingCall, context: Context, error: BaseException) -> NoReturn:
    """End a call that failed. What is no error of zapdb's is a fault of the service: the log has
    it, and callers are told no more than that."""
    if isinstance(error, ZapdbError):
        call.status = error.rpc_status
        await fail(context, _without_hidden(call, error))
    if not isinstance(error, Exception):  # it was cancelled
        left = context.time_remaining()
        is_over = left is not None and left < DEADLINE_SLACK_SECONDS
        call.status = "DEADLINE_EXCEEDED" if is_over else "CANCELLED"
        raise error
    call.status = "INTERNAL"
    logger.error("a call failed: %s", call.path, exc_info=error)
    await fail(context, ZapdbError("the service has a fault, which its log tells"))
