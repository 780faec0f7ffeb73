"""Errors as statuses with details, and back.

The status is the one that docs/reference/errors.md has for the error. The details are the message
`Error`, in the trailing metadata of the call: the client raises the same error as the database.
"""

from __future__ import annotations

from typing import Any, Final, NoReturn

import grpc

from zapdb.errors import (
    CallTimedOut,
    NotAllowed,
    NotAuthenticated,
    ServiceError,
    ServiceUnreachable,
    ZapdbError,
)
from zapdb.errors.plain import error_from_plain, error_to_plain
from zapdb.errors.zapdb_error import shorten_context
from zapdb.service.proto.errors_pb2 import Error, ErrorContext

DETAILS: Final = "zapdb-error-bin"


async def fail(context: Any, error: ZapdbError) -> NoReturn:
    """End a call with the status and the details of an error."""
    await context.abort(
        grpc.StatusCode[error.rpc_status],
        error.message,
        trailing_metadata=((DETAILS, to_message(error).SerializeToString()),),
    )
    raise AssertionError("abort returned")


def to_message(error: ZapdbError) -> Error:
    plain = error_to_plain(error)
    place = plain.pop("location") or {}
    told = [
        ErrorContext(key=key, value=shorten_context(value))  # metadata has a bound
        for key, value in plain.pop("context").items()
    ]
    made: Error = Error(**plain, **place, context=told)
    return made


def from_message(sent: Error) -> ZapdbError:
    """The error that the database raised; one of a later release is a `ServiceError`."""
    place = {name: getattr(sent, name) for name in ("file", "line", "column")}
    plain = {
        "code": sent.code,
        "message": sent.message,
        "hint": sent.hint,
        "context": {one.key: one.value for one in sent.context},
        "location": place if sent.HasField("file") else None,
        "violations": [
            {name: getattr(one, name) for name in one.DESCRIPTOR.fields_by_name}
            for one in sent.violations
        ],
        "violations_hidden": sent.violations_hidden,
    }
    return error_from_plain(plain, ServiceError)


BY_STATUS: Final = {
    grpc.StatusCode.UNAVAILABLE: (
        ServiceUnreachable,
        "is `zapdb serve` running there, and do the certificates fit?",
    ),
    grpc.StatusCode.CANCELLED: (ServiceUnreachable, "the connection was closed meanwhile"),
    grpc.StatusCode.DEADLINE_EXCEEDED: (
        CallTimedOut,
        "give it more time; a call that changes something may have done so",
    ),
    grpc.StatusCode.UNAUTHENTICATED: (NotAuthenticated, "`zapdb token issue` makes a token"),
    grpc.StatusCode.PERMISSION_DENIED: (NotAllowed, "the token lacks a scope"),
    grpc.StatusCode.RESOURCE_EXHAUSTED: (
        ServiceError,
        "a message is larger than the limits allow: ask for less at a time",
    ),
    grpc.StatusCode.UNIMPLEMENTED: (ServiceError, "is the service of another release?"),
}
"""What a status says that comes without details, from the transport or from a proxy; with a way
out."""


def from_call(failed: Any, address: str) -> ZapdbError:
    """What a failed call says: the error that the service told, or else what its status means."""
    for key, value in failed.trailing_metadata() or ():
        if key == DETAILS:
            return from_message(Error.FromString(value))
    kind, hint = BY_STATUS.get(failed.code(), (ServiceError, "the log of the service says more"))
    return kind(
        "the service did not answer",
        service=address,
        status=failed.code().name,
        cause=failed.details() or "",
        hint=hint,
    )
