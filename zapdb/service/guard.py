"""The one place where a call is let in: who calls, and whether a grant allows it.

Denied is whatever is not allowed. A path that the registry lacks gets a handler that refuses it, so
none runs that has no scope; health alone is open to everybody, and reflection to each principal. A
handler runs in the context of its call (`incoming_call`), as its principal.

A refused call gets a handler that reads nothing: `abort` alone would not stop one that runs in a
thread.
"""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import grpc
from cryptography import x509
from grpc.aio import ServerInterceptor

from zapdb.catalog import DEFAULT_TENANT_NAME, principal
from zapdb.errors import NotAllowed, NotAuthenticated, ZapdbError
from zapdb.logs import log_event
from zapdb.metrics import SERVICE_CALLS
from zapdb.service.keys import KeyFile
from zapdb.service.methods import BY_PATH, Method
from zapdb.service.principals import Principal, Scope
from zapdb.service.status import fail

if TYPE_CHECKING:  # grpc's own classes have no parameters
    Context: TypeAlias = grpc.aio.ServicerContext[Any, Any]
    Handler: TypeAlias = grpc.RpcMethodHandler[Any, Any]
    Continuation: TypeAlias = Callable[[grpc.HandlerCallDetails], Awaitable[Handler | None]]

logger = logging.getLogger("zapdb.access")

OPEN: Final = frozenset({f"/grpc.health.v1.Health/{name}" for name in ("Check", "Watch", "List")})
"""Who asks whether the service is well need not say who they are."""
FOR_EVERY_PRINCIPAL: Final = "/grpc.reflection."
"""The descriptors of the methods, which are public, but of no use to those who may call none."""
BEARER: Final = "bearer "


@dataclass(slots=True)
class IncomingCall:
    """One call, from its arrival to its end."""

    path: str
    metadata: Mapping[str, str]
    """What the call shows; what has a name with `-bin` is bytes, and nobody asks for it."""
    method: Method | None = None
    begun: float = field(default_factory=time.perf_counter)
    caller: Principal | None = None
    tenant: str = ""
    tables: tuple[str, ...] = ()
    needs: tuple[tuple[Scope, str, tuple[str, ...] | None], ...] = ()
    """The scopes that it was let in with, each with its tenant and tables."""
    status: str = "OK"


_current: ContextVar[IncomingCall] = ContextVar("zapdb_call")


def incoming_call() -> IncomingCall:
    """The call of this task; raises `LookupError` for one that the guard has not let in."""
    return _current.get()


OnEnd = Callable[[IncomingCall], object]


class Guard(ServerInterceptor):
    """Lets calls in: those with tokens or certificates of the principals in a key file, or, without
    one, all of them as one caller. `on_end` is called when a call has ended, also one that was
    refused."""

    def __init__(
        self, keys: KeyFile | None, anybody: Principal | None, on_end: Sequence[OnEnd] = ()
    ) -> None:
        assert (keys is None) != (anybody is None)
        self._keys = keys
        self._anybody = anybody
        self._on_end = (_log, *on_end)

    async def intercept_service(
        self, continuation: Continuation, details: grpc.HandlerCallDetails
    ) -> Handler | None:
        path = details.method
        if path in OPEN:
            return await continuation(details)
        method = BY_PATH.get(path)
        shown: Any = details.invocation_metadata or ()
        call = IncomingCall(path, dict(shown), method)
        _current.set(call)
        try:
            if self._anybody is not None or "authorization" in call.metadata:
                call.caller = self._identify(call, None)
            if method is None and not path.startswith(FOR_EVERY_PRINCIPAL):
                raise NotAllowed("the service has no such method", method=path)
        except ZapdbError as error:
            return self._denying(call, error)
        handler = await continuation(details)
        if method is not None or handler is None:
            return handler
        return self._for_every_principal(call, handler)

    def enter(self, call: IncomingCall, context: Context, request: Any) -> Principal:
        """Let a call of the registry in, as its principal; raises `NotAuthenticated` and
        `NotAllowed`."""
        method, caller = call.method, self.identify(call, context)
        assert method is not None, "the registry has it"
        call.tenant = request.tenant or DEFAULT_TENANT_NAME
        tables = method.tables_of(request)
        call.tables = tables or ()
        tenant = method.tenant_of(request) or call.tenant
        call.needs = ((method.scope, tenant, tables),)
        if method.further is not None:
            call.needs += tuple((scope, tenant, tables) for scope in method.further(request))
        for need in call.needs:
            caller.require(*need)
        principal.act_for_task(caller.name)
        return caller

    def identify(self, call: IncomingCall, context: Context) -> Principal:
        """Who makes a call of the registry; raises `NotAuthenticated`."""
        caller = call.caller = call.caller or self._identify(call, context)
        return caller

    def check_again(self, call: IncomingCall, context: Context) -> None:
        """Raise `NotAuthenticated` if a principal is one no longer: its token is over, or was
        taken back with its key; and `NotAllowed` if it has lost what the call needs. What the call
        shows from now on goes by what the principal may see now."""
        caller = call.caller = self._identify(call, context)
        for need in call.needs:
            caller.require(*need)

    def end(self, call: IncomingCall) -> None:
        for tell in self._on_end:
            tell(call)

    def _identify(self, call: IncomingCall, context: Context | None) -> Principal:
        if self._anybody is not None:
            return self._anybody
        assert self._keys is not None
        given = call.metadata.get("authorization")
        if given is not None:
            if given[: len(BEARER)].lower() != BEARER:
                raise NotAuthenticated("the call has no bearer token")
            return self._keys.verify(given[len(BEARER) :].strip())
        shown: Any = {} if context is None else context.auth_context()
        if pem := shown.get("x509_pem_cert"):
            names = (
                *shown.get("x509_subject_alternative_name", ()),
                *shown.get("x509_common_name", ()),
            )
            end = x509.load_pem_x509_certificate(pem[0]).not_valid_after_utc.timestamp()
            return self._keys.name_holder([name.decode(errors="replace") for name in names], end)
        raise NotAuthenticated(
            "the call has no token",
            hint="set ZAPDB_TOKEN, or give --token-file; `zapdb token issue` makes a token",
        )

    def _denying(self, call: IncomingCall, error: ZapdbError) -> Handler:
        """A handler that refuses the call, whatever it is, and reads nothing of it."""

        async def deny(_: AsyncIterator[bytes], context: Context) -> None:
            with suppress(NotAuthenticated):  # a certificate is known by now
                call.caller = call.caller or self._identify(call, context)
            call.status = error.rpc_status
            self.end(call)
            await fail(context, error)

        return grpc.stream_stream_rpc_method_handler(deny)

    def _for_every_principal(self, call: IncomingCall, handler: Handler) -> Handler:
        found: Any = handler.stream_stream

        async def answer(requests: AsyncIterator[Any], context: Context) -> AsyncIterator[Any]:
            try:
                call.caller = call.caller or self._identify(call, context)
                async for message in found(requests, context):
                    yield message
            except ZapdbError as error:
                call.status = error.rpc_status
                await fail(context, error)
            finally:
                self.end(call)

        return grpc.stream_stream_rpc_method_handler(
            answer, handler.request_deserializer, handler.response_serializer
        )


def _log(call: IncomingCall) -> None:
    """The access log: a line for each call; and its metrics."""
    seconds = time.perf_counter() - call.begun
    shown = call.path if call.method is not None else "(no method)"
    SERVICE_CALLS.observe(seconds, shown, call.status)
    if logger.isEnabledFor(logging.INFO):
        log_event(
            logger,
            "service.called",
            f"{shown}: {call.status}",
            principal="" if call.caller is None else call.caller.name,
            method=call.path,
            tenant=call.tenant,
            status=call.status,
            ms=round(seconds * 1e3, 3),
        )
