"""The client: the methods of the control plane, called on a service."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

import grpc

from zapdb.control import Target
from zapdb.service.methods import BY_FUNCTION, Method
from zapdb.service.status import from_call

if TYPE_CHECKING:
    from zapdb.control import Control

P = ParamSpec("P")
A = TypeVar("A")


class RemoteControl:
    """Calls methods of a service, for one tenant."""

    def __init__(self, channel: grpc.Channel, address: str, tenant_name: str) -> None:
        self._channel = channel
        self._address = address
        self._tenant_name = tenant_name

    def call(
        self, method: Callable[Concatenate[Target, P], A], /, *args: P.args, **named: P.kwargs
    ) -> A:
        found = BY_FUNCTION[method]
        bound = found.signature.bind(*args, **named)
        bound.apply_defaults()
        request: Any = found.request.write(bound.arguments)
        request.tenant = self._tenant_name
        answer: Any = self._stream(found, request) if found.is_stream else self._do(found, request)
        return answer  # type: ignore[no-any-return] # of the method's own type, by its conversion

    def _do(self, method: Method, request: Any) -> Any:
        stub = self._channel.unary_unary(
            method.path,
            request_serializer=method.request_class.SerializeToString,
            response_deserializer=method.answer_class.FromString,
        )
        try:
            return method.answer.read(stub(request))
        except grpc.RpcError as failed:
            raise from_call(failed, self._address) from None

    def _stream(self, method: Method, request: Any) -> Iterator[Any]:
        stub = self._channel.unary_stream(
            method.path,
            request_serializer=method.request_class.SerializeToString,
            response_deserializer=method.answer_class.FromString,
        )
        try:
            yield from map(method.answer.read, stub(request))
        except grpc.RpcError as failed:
            raise from_call(failed, self._address) from None


@contextmanager
def connected_control(address: str, tenant_name: str) -> Iterator[Control]:
    """The methods of the service at an address, for one tenant."""
    with grpc.insecure_channel(address.removeprefix("grpc://")) as channel:
        yield RemoteControl(channel, address, tenant_name)
