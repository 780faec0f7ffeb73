"""The client: the methods of the control plane, called on a service.

    with zapdb.connect("grpcs://db.example.com:7427", tenant="acme") as client:
        print(client.catalog.list_tables())

A method here is the function of the same name in `zapdb.control`, with its parameters and its
answer, and it raises the errors that the database raises.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import copy
from dataclasses import asdict
from functools import wraps
from pathlib import Path
from typing import Any, Concatenate, NoReturn, ParamSpec, TypeVar

import grpc
import grpc.aio

from zapdb.catalog import DEFAULT_TENANT_NAME
from zapdb.control import (
    Control,
    Target,
    catalog,
    changes,
    cluster,
    history,
    method_name,
    settings,
)
from zapdb.control.history import read_arrow
from zapdb.control.jobs import listing, showing
from zapdb.control.migrations import applying, comparing, planning, rehearsing, rolling_back
from zapdb.errors import CatalogRestored, InvalidValue, ServiceUnreachable, UsageError
from zapdb.limits import SERVICE_TIMEOUT_SECONDS_MAX
from zapdb.migrations import SentDirectory
from zapdb.service.addresses import ServiceAccess, ServiceAddress
from zapdb.service.methods import BY_FUNCTION, IDEMPOTENCY_KEY, Method
from zapdb.service.sent_directories import read_directory, split_files
from zapdb.service.status import from_call

P = ParamSpec("P")
A = TypeVar("A")


class Calls:
    """What calls of one client have in common, whatever waits for their answers."""

    def __init__(
        self,
        address: ServiceAddress,
        channel: Any,
        tenant_name: str,
        timeout_seconds: float | None = None,
    ) -> None:
        self.address = address
        self.channel = channel
        self.tenant_name = tenant_name
        self._timeout_seconds = _checked_timeout(timeout_seconds)
        self._key: str | None = None
        self._stubs = dict[str, Any]()
        self._metadata = address.metadata()
        self._reads_token = address.access.token_file is not None  # which may get another one
        self._process = os.getpid()
        self._seen = [0]
        """The seq of the newest change that a call of this client has made: shared with those of
        other tenants and keys."""
        self._closed = [False]
        """Whether the connection was closed, which all of them share."""

    def for_tenant(self, name: str) -> Calls:
        made = copy(self)
        made.tenant_name = name
        return made

    def with_key(self, key: str) -> Calls:
        if not key:
            raise UsageError(
                "an idempotency key is empty", hint="give one of your own, such as a UUID"
            )
        if not (key.isascii() and key.isprintable() and key == key.strip()):
            raise UsageError(
                "an idempotency key has printable characters of ASCII, and no space at its ends",
                key=key,
                hint="give one of your own, such as a UUID",
            )
        made = copy(self)
        made._key = key
        return made

    def with_timeout(self, seconds: float | None) -> Calls:
        made = copy(self)
        made._timeout_seconds = _checked_timeout(seconds)
        return made

    def close(self) -> Any:
        """Close the connection; that of a client for tasks is to be awaited."""
        self._closed[0] = True
        return self.channel.close()

    def begin(self, method: Method, args: Any, named: Any) -> Any:
        """The call of grpc. Raises `TypeError` for arguments that the method does not take,
        `InvalidValue` for values that no message can have, and `UsageError` in a process that was
        forked from the one of the client, and for a client that is closed."""
        if os.getpid() != self._process:
            raise UsageError(
                "a process that was forked can't use the connection of its parent",
                service=str(self.address),
                hint="call zapdb.connect in the forked process",
            )
        requests = _list_requests(method, method.bind(*args, **named))
        with _naming(method, "tenant"):
            requests[0].tenant = self.tenant_name
        requests[0].min_seq = self._seen[0]
        self._require_open()
        stub = self._stubs.get(method.path) or self._open(method)
        metadata = self.address.metadata() if self._reads_token else self._metadata
        if self._key is not None and method.changes:
            metadata = (*metadata, (IDEMPOTENCY_KEY, self._key))
        request = iter(requests) if method.sent else requests[0]
        try:
            return stub(request, timeout=self._timeout_seconds, metadata=metadata)
        except (ValueError, grpc.aio.UsageError):
            self._require_open()  # another thread has closed it meanwhile
            raise

    @property
    def is_closed(self) -> bool:
        return self._closed[0]

    def _require_open(self) -> None:
        if self.is_closed:
            raise UsageError(
                "the client is closed", service=str(self.address), hint="call zapdb.connect again"
            )

    def _open(self, method: Method) -> Any:
        """What calls the method, which is kept: grpc makes it anew each time."""
        kinds = "stream" if method.sent else "unary", "stream" if method.is_stream else "unary"
        made = self._stubs[method.path] = getattr(self.channel, "_".join(kinds))(
            method.path,
            request_serializer=method.request_class.SerializeToString,
            response_deserializer=method.answer_class.FromString,
        )
        return made

    def fail(self, method: Method, failed: grpc.RpcError) -> NoReturn:
        """Raise what a failed call says. Raises `CatalogRestored` once: later calls go on from what
        there is."""
        error = from_call(failed, str(self.address))
        if isinstance(error, CatalogRestored):
            self._seen[0] = 0
        if isinstance(error, ServiceUnreachable) and method.changes:
            again = "" if self._key is None else "; a call with the same key tells it, too"
            error.hint += f"; `{method.shown_by}` shows whether the call took effect{again}"
        raise error from None

    def note(self, method: Method, answer: Any) -> Any:
        """Later calls see what this one has changed."""
        if method.changes:
            self._seen[0] = max(self._seen[0], getattr(answer, "seq", None) or 0)
        return answer


def _checked_timeout(seconds: float | None) -> float | None:
    if seconds is not None and not 0 < seconds <= SERVICE_TIMEOUT_SECONDS_MAX:
        raise UsageError(
            "this is no time that a call may take",
            timeout_seconds=seconds,
            longest=SERVICE_TIMEOUT_SECONDS_MAX,
            hint="give seconds above 0; None is as long as it takes",
        )
    return seconds


@contextmanager
def _naming(method: Method, parameter: str) -> Iterator[None]:
    """What no message can have is an `InvalidValue` of the parameter."""
    try:
        yield
    except (ValueError, OverflowError) as error:
        raise InvalidValue(
            "a parameter has a value that no request can have",
            method=method.path,
            parameter=parameter,
            cause=str(error),
        ) from None


def _write_request(method: Method, arguments: dict[str, Any]) -> Any:
    """The message with all arguments; raises `InvalidValue`."""
    try:
        return method.request.write(arguments)
    except (ValueError, OverflowError):
        for name, value in arguments.items():
            with _naming(method, name):
                method.request.write({**dict.fromkeys(arguments), name: value})
        raise


def _list_requests(method: Method, arguments: dict[str, Any]) -> list[Any]:
    """The messages of a request: one, and those of the files that are sent with it."""
    if method.sent is None:
        return [_write_request(method, arguments)]
    directory = read_directory(arguments[method.sent])
    named = SentDirectory(directory.path, ())
    requests = [_write_request(method, {**arguments, method.sent: named})]
    for files in split_files(directory.files):
        part = {method.sent: {"files": [asdict(file) for file in files]}}
        requests.append(method.request_class(**part))
    return requests


def find_method(function: Callable[..., Any]) -> Method:
    """The method of a function of the control plane; raises `UsageError` if services have none."""
    found = BY_FUNCTION.get(function)
    if found is None:
        raise UsageError("a service has no such method", method=method_name(function))
    return found


class AnswerStream(Iterator[A]):
    """The answers of one call, as they come: an iterator, and a context manager.

    The call ends with the last answer, with an error, when the stream is closed or dropped, and
    with its client; then the service ends what it does for it, too. So a caller that stops before
    the end closes the stream, from any thread: one that waits for an answer then has come to the
    end.
    """

    def __init__(self, calls: Calls, method: Method, begun: Any) -> None:
        self._begun = begun
        self._calls = calls
        self._method = method
        self._is_closed = False

    def __next__(self) -> A:
        if self._is_closed:
            raise StopIteration
        try:
            message = next(self._begun)
        except grpc.RpcError as failed:
            if self._is_closed:  # by another thread, meanwhile
                raise StopIteration from None
            self.close()
            self._calls.fail(self._method, failed)
        except BaseException:  # also the end
            self.close()
            raise
        answer: A = self._calls.note(self._method, self._method.answer.read(message))
        return answer

    def __enter__(self) -> AnswerStream[A]:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()

    def close(self) -> None:
        """End the call; may be called again."""
        self._is_closed = True
        self._begun.cancel()


class RemoteControl:
    """Calls methods of a service, for one tenant."""

    def __init__(self, calls: Calls) -> None:
        self.calls = calls

    def call(
        self, method: Callable[Concatenate[Target, P], A], /, *args: P.args, **named: P.kwargs
    ) -> A:
        found = find_method(method)
        if found.is_stream:
            answer: Any = self._stream(found, args, named)
        else:
            answer = self._do(found, args, named)
        return answer  # type: ignore[no-any-return] # of the method's own type, by its conversion

    def _do(self, method: Method, args: Any, named: Any) -> Any:
        try:
            answer = self.calls.begin(method, args, named)
        except grpc.RpcError as failed:
            self.calls.fail(method, failed)
        return self.calls.note(method, method.answer.read(answer))

    def _stream(self, method: Method, args: Any, named: Any) -> AnswerStream[Any]:
        return AnswerStream(self.calls, method, self.calls.begin(method, args, named))


@contextmanager
def connected_control(
    address: str, tenant_name: str, access: ServiceAccess | None = None, key: str | None = None
) -> Iterator[Control]:
    """The methods of the service at an address, for one tenant; `key` is the idempotency key of
    what changes something."""
    found = ServiceAddress.read(address, access or ServiceAccess())
    with found.connect() as channel:
        calls = Calls(found, channel, tenant_name)
        yield RemoteControl(calls if key is None else calls.with_key(key))


class Methods:
    """The methods of one service."""

    def __init__(self, control: RemoteControl) -> None:
        self._control = control


def remote(
    method: Callable[Concatenate[Target, P], A],
) -> Callable[Concatenate[Methods, P], A]:
    """The method of the control plane, called on a service."""

    @wraps(method)
    def call(of: Methods, /, *args: P.args, **named: P.kwargs) -> A:
        return of._control.call(method, *args, **named)

    return call


def remote_stream(
    method: Callable[Concatenate[Target, P], Iterator[A]],
) -> Callable[Concatenate[Methods, P], AnswerStream[A]]:
    """The same for a method that answers with a stream."""

    @wraps(method)
    def call(of: Methods, /, *args: P.args, **named: P.kwargs) -> AnswerStream[A]:
        return of._control._stream(find_method(method), args, named)

    return call


class CatalogMethods(Methods):
    """The active tables, and the schema history of each."""

    list_tables = remote(catalog.list_tables)
    get_table = remote(catalog.get_table)
    list_key_ranges = remote(catalog.list_key_ranges)
    get_fingerprint = remote(catalog.get_fingerprint)
    get_fingerprint_history = remote_stream(catalog.get_fingerprint_history)
    check_pin = remote(catalog.check_pin)
    compare_revisions = remote(catalog.compare_revisions)
    prune_fingerprint_history = remote(catalog.prune_fingerprint_history)
    list_calls = remote_stream(catalog.list_calls)
    watch_catalog = remote_stream(catalog.watch_catalog)


class ClusterMethods(Methods):
    """The processes that have the database open, their leases, and the cluster level."""

    get_status = remote(cluster.get_status)
    list_nodes = remote(cluster.list_nodes)
    list_leases = remote(cluster.list_leases)
    find_nodes = remote(cluster.find_nodes)
    evict_nodes = remote(cluster.evict_nodes)
    upgrade = remote(cluster.upgrade)
    register = remote(cluster.register)
    send_heartbeat = remote(cluster.send_heartbeat)
    deregister = remote(cluster.deregister)


class SettingsMethods(Methods):
    """The settings that are stored in the database, and what holds where."""

    list_settings = remote(settings.list_settings)
    get_setting = remote(settings.get_setting)
    set_setting = remote(settings.set_setting)
    unset_setting = remote(settings.unset_setting)


class MigrationMethods(Methods):
    """Migrations: `directory` is a path on this machine, whose files are sent."""

    check = remote(comparing.check)
    status = remote(comparing.status)
    diff = remote(comparing.diff)
    plan = remote(planning.plan)
    rehearse = remote_stream(rehearsing.rehearse)
    rehearse_rollback = remote_stream(rehearsing.rehearse_rollback)
    up = remote_stream(applying.up)
    forget = remote(rolling_back.forget)
    rollback = remote_stream(rolling_back.rollback)


class JobsMethods(Methods):
    """Jobs: which there are, how far they are, and what an operator changes about them."""

    list_jobs = remote(listing.list_jobs)
    get_job = remote(showing.get_job)
    watch_job = remote_stream(showing.watch_job)
    pause_job = remote(listing.pause_job)
    resume_job = remote(listing.resume_job)
    cancel_job = remote(listing.cancel_job)
    set_job_priority = remote(listing.set_job_priority)
    throttle_job = remote(listing.throttle_job)
    get_conversion_status = remote(showing.get_conversion_status)
    get_reindex_status = remote(showing.get_reindex_status)


class HistoryMethods(Methods):
    """The past: moments, who changed what, records and tables as they were, and its store."""

    get_moments = remote_stream(history.get_moments)
    get_catalog = remote(history.get_catalog)
    list_stores = remote(history.list_stores)
    audit = remote_stream(history.audit)
    fetch_row = remote(history.fetch_row)
    get_versions = remote_stream(history.get_versions)
    list_records = remote(history.list_records)
    load_table = remote_stream(history.load_table)
    diff_moments = remote_stream(history.diff_moments)

    def to_arrow(
        self, table: str, at: str, columns: tuple[str, ...] = (), where: str | None = None
    ) -> Any:
        """Return a `pyarrow.RecordBatchReader` of what `load_table` answers; it holds one batch at
        a time. Needs pyarrow."""
        return read_arrow(self.load_table(table, at, columns, where))


class ChangesMethods(Methods):
    """The change log: changes of records and schemas in order, and its followers."""

    list_changes = remote_stream(changes.list_changes)
    get_followers = remote(changes.get_followers)
    get_status = remote(changes.get_status)


class Client:
    """A service, for one tenant; safe to share between threads, and a context manager.

    `zapdb.connect` returns it. Closing it closes the connection.
    """

    def __init__(self, calls: Calls) -> None:
        self._calls = calls
        control = RemoteControl(calls)
        self.catalog = CatalogMethods(control)
        self.cluster = ClusterMethods(control)
        self.settings = SettingsMethods(control)
        self.migrations = MigrationMethods(control)
        self.jobs = JobsMethods(control)
        self.history = HistoryMethods(control)
        self.changes = ChangesMethods(control)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<zapdb service {self._calls.address}, tenant {self._calls.tenant_name!r}>"

    def for_tenant(self, name: str) -> Client:
        """Return the same service for another tenant; it is closed with this one."""
        return Client(self._calls.for_tenant(name))

    def with_key(self, key: str) -> Client:
        """Return the same service for one call that changes something: repeated with the same
        idempotency key within 24 hours, it is the same call, and is answered as before. Raises
        `KeyInUse` if it was another one."""
        return Client(self._calls.with_key(key))

    def with_timeout(self, seconds: float | None) -> Client:
        """Return the same service for calls that may take so long, streams as a whole; None is as
        long as it takes. What takes longer is stopped in the database, and `CallTimedOut`."""
        return Client(self._calls.with_timeout(seconds))

    def close(self) -> None:
        """Close the connection; calls under way, and streams that were not read to their ends, end
        with `ServiceUnreachable`."""
        self._calls.close()


def connect(
    address: str,
    *,
    token: str | None = None,
    tenant: str = DEFAULT_TENANT_NAME,
    token_file: str | Path | None = None,
    tls_ca: str | Path | None = None,
    tls_cert: str | Path | None = None,
    tls_key: str | Path | None = None,
    timeout_seconds: float | None = None,
) -> Client:
    """Connect to a service that `zapdb serve` runs: `zapdb.connect("grpcs://host:7427")`.

    The client shows `token`, or what is in `token_file` or ZAPDB_TOKEN, or a certificate
    (`tls_cert` and `tls_key`). `tls_ca` has the authorities of the service's certificate, by
    default those of the system. `grpc://`, without TLS, is for services on this machine.

    Nothing is sent before the first call. Calls raise what the database raises, and
    `ServiceUnreachable`, `NotAuthenticated` and `NotAllowed`; and `CallTimedOut`, if they may not
    take longer than `timeout_seconds`, streams as a whole (`with_timeout` gives another time). A
    service that has vanished is found out within a minute. Needs the extra `service`.
    """
    access = ServiceAccess.given(token, token_file, tls_ca, tls_cert, tls_key)
    found = ServiceAddress.read(address, access)
    return Client(Calls(found, found.connect(), tenant, timeout_seconds))
