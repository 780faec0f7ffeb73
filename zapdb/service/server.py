"""The server: each method in a worker of the database, its answer as messages.

What a call does in the database is interrupted when the call ends: when its deadline is over, or
the client has gone away.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import grpc
from google.protobuf.message import Message

from zapdb import aio
from zapdb.control import Target
from zapdb.database import Database
from zapdb.errors import ZapdbError
from zapdb.service.methods import METHODS, Method
from zapdb.service.status import fail

if TYPE_CHECKING:  # grpc's own classes have no parameters
    Context: TypeAlias = grpc.aio.ServicerContext[Any, Any]
    Handler: TypeAlias = grpc.RpcMethodHandler[Any, Any]

STREAMED_AT_ONCE: Final = 256
"""Answers of a stream that a worker makes at a time: no transaction is open between two times."""


class Server:
    """The methods over one open database; `start` begins to listen."""

    def __init__(self, db: aio.AsyncDatabase) -> None:
        self._db = db
        self._runtime = db._runtime
        self.grpc = grpc.aio.server()
        by_service: dict[str, dict[str, Handler]] = {}
        for method in METHODS:
            by_service.setdefault(method.service, {})[method.name] = self._handler(method)
        self.grpc.add_generic_rpc_handlers(
            [
                grpc.method_handlers_generic_handler(service, handlers)
                for service, handlers in by_service.items()
            ]
        )

    async def start(self, address: str) -> int:
        """Listen, and return the port."""
        port = self.grpc.add_insecure_port(address)
        await self.grpc.start()
        return port

    def _handler(self, method: Method) -> Handler:
        if method.is_stream:
            return grpc.unary_stream_rpc_method_handler(
                self._streaming(method),
                request_deserializer=method.request_class.FromString,
                response_serializer=_serialize,
            )
        return grpc.unary_unary_rpc_method_handler(
            self._answering(method),
            request_deserializer=method.request_class.FromString,
            response_serializer=_serialize,
        )

    def _answering(self, method: Method) -> Callable[[Any, Context], Awaitable[Message]]:
        async def answer(request: Any, context: Context) -> Message:
            try:
                message: Message = await self._do(
                    lambda: method.answer.write(self._start(method, request))
                )
            except ZapdbError as error:
                await fail(context, error)
            return message

        return answer

    def _streaming(self, method: Method) -> Callable[[Any, Context], AsyncIterator[Message]]:
        async def answers(request: Any, context: Context) -> AsyncIterator[Message]:
            try:
                found = await self._do(lambda: iter(self._start(method, request)))
                while part := await self._do(
                    lambda: list(map(method.answer.write, islice(found, STREAMED_AT_ONCE)))
                ):
                    for message in part:
                        yield message
            except ZapdbError as error:
                await fail(context, error)

        return answers

    def _start(self, method: Method, request: Any) -> Any:
        """Call the function of a method, in a worker."""
        db: Database = self._db._sync
        if request.min_seq:
            db.admin.wait_for_catalog(request.min_seq)
        target = Target(db._storage, request.tenant, lambda: db.for_tenant(request.tenant))
        return method.function(target, **method.request.read(request))

    async def _do(self, work: Callable[[], Any]) -> Any:
        return await self._runtime.call("task", work, None)


def _serialize(message: Message) -> bytes:
    return message.SerializeToString()
