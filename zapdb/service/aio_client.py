"""The client for asyncio: the same methods, awaited.

async with zapdb.aio.connect("grpcs://db.example.com:7427") as client:
    print(await client.catalog.list_tables())
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator
from functools import wraps
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

import grpc
import grpc.aio

from zapdb.catalog import DEFAULT_TENANT_NAME
from zapdb.control import (
    Target,
    catalog,
    changes,
    cluster,
    history,
    settings,
)
from zapdb.control.jobs import listing, showing
from zapdb.control.migrations import applying, comparing, planning, rehearsing, rolling_back
from zapdb.errors import ServiceUnreachable, UsageError
from zapdb.service.addresses import ServiceAccess, ServiceAddress
from zapdb.service.client import Calls, find_method
from zapdb.service.client import connect as connect_here
from zapdb.tables.did_you_mean import told_for_tasks

P = ParamSpec("P")
A = TypeVar("A")


class AsyncMethods:
    """The methods of one service, for tasks."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls


def _require_cancelled(calls: Calls) -> None:
    """Raise `ServiceUnreachable` if the client was closed, and no task was cancelled: grpc raises
    the same for both."""
    task = asyncio.current_task()
    if calls.is_closed and task is not None and not task.cancelling():
        raise ServiceUnreachable(
            "the service did not answer",
            service=str(calls.address),
            status="CANCELLED",
            hint="the connection was closed meanwhile",
        ) from None


def remote_awaited(
    method: Callable[Concatenate[Target, P], A],
) -> Callable[Concatenate[AsyncMethods, P], Coroutine[Any, Any, A]]:
    """The method of the control plane, called on a service and awaited."""

    @wraps(method)
    async def call(of: AsyncMethods, /, *args: P.args, **named: P.kwargs) -> A:
        found, calls = find_method(method), of._calls
        try:
            answer = await calls.begin(found, args, named)
        except grpc.RpcError as failed:
            calls.fail(found, failed)
        except asyncio.CancelledError:
            _require_cancelled(calls)
            raise
        read: A = calls.note(found, found.answer.read(answer))
        return read

    return call


def remote_iterated(
    method: Callable[Concatenate[Target, P], Iterator[A]],
) -> Callable[Concatenate[AsyncMethods, P], AsyncGenerator[A]]:
    """The method of the control plane that answers with a stream, for `async for`; a caller that
    stops before its end closes it, by `contextlib.aclosing`."""

    @wraps(method)
    async def call(of: AsyncMethods, /, *args: P.args, **named: P.kwargs) -> AsyncGenerator[A]:
        found, calls = find_method(method), of._calls
        begun = calls.begin(found, args, named)
        try:
            async for message in begun:
                yield calls.note(found, found.answer.read(message))
        except grpc.RpcError as failed:
            calls.fail(found, failed)
        except asyncio.CancelledError:
            _require_cancelled(calls)
            raise
        finally:
            begun.cancel()

    return call


class AsyncCatalogMethods(AsyncMethods):
    """The active tables, and the schema history of each."""

    list_tables = remote_awaited(catalog.list_tables)
    get_table = remote_awaited(catalog.get_table)
    list_key_ranges = remote_awaited(catalog.list_key_ranges)
    get_fingerprint = remote_awaited(catalog.get_fingerprint)
    get_fingerprint_history = remote_iterated(catalog.get_fingerprint_history)
    check_pin = remote_awaited(catalog.check_pin)
    compare_revisions = remote_awaited(catalog.compare_revisions)
    prune_fingerprint_history = remote_awaited(catalog.prune_fingerprint_history)
    list_calls = remote_iterated(catalog.list_calls)
    watch_catalog = remote_iterated(catalog.watch_catalog)


class AsyncClusterMethods(AsyncMethods):
    """The processes that have the database open, their leases, and the cluster level."""

    get_status = remote_awaited(cluster.get_status)
    list_nodes = remote_awaited(cluster.list_nodes)
    list_leases = remote_awaited(cluster.list_leases)
    find_nodes = remote_awaited(cluster.find_nodes)
    evict_nodes = remote_awaited(cluster.evict_nodes)
    upgrade = remote_awaited(cluster.upgrade)
    register = remote_awaited(cluster.register)
    send_heartbeat = remote_awaited(cluster.send_heartbeat)
    deregister = remote_awaited(cluster.deregister)


class AsyncSettingsMethods(AsyncMethods):
    """The settings that are stored in the database, and what holds where."""

    list_settings = remote_awaited(settings.list_settings)
    get_setting = remote_awaited(settings.get_setting)
    set_setting = remote_awaited(settings.set_setting)
    unset_setting = remote_awaited(settings.unset_setting)


class AsyncMigrationMethods(AsyncMethods):
    """Migrations: `directory` is a path on this machine, whose files are sent."""

    check = remote_awaited(comparing.check)
    status = remote_awaited(comparing.status)
    diff = remote_awaited(comparing.diff)
    plan = remote_awaited(planning.plan)
    rehearse = remote_iterated(rehearsing.rehearse)
    rehearse_rollback = remote_iterated(rehearsing.rehearse_rollback)
    up = remote_iterated(applying.up)
    forget = remote_awaited(rolling_back.forget)
    rollback = remote_iterated(rolling_back.rollback)


class AsyncJobsMethods(AsyncMethods):
    """Jobs: which there are, how far they are, and what an operator changes about them."""

    list_jobs = remote_awaited(listing.list_jobs)
    get_job = remote_awaited(showing.get_job)
    watch_job = remote_iterated(showing.watch_job)
    pause_job = remote_awaited(listing.pause_job)
    resume_job = remote_awaited(listing.resume_job)
    cancel_job = remote_awaited(listing.cancel_job)
    set_job_priority = remote_awaited(listing.set_job_priority)
    throttle_job = remote_awaited(listing.throttle_job)
    get_conversion_status = remote_awaited(showing.get_conversion_status)
    get_reindex_status = remote_awaited(showing.get_reindex_status)


class AsyncHistoryMethods(AsyncMethods):
    """The past: moments, who changed what, records and tables as they were, and its store."""

    get_moments = remote_iterated(history.get_moments)
    get_catalog = remote_awaited(history.get_catalog)
    list_stores = remote_awaited(history.list_stores)
    audit = remote_iterated(history.audit)
    fetch_row = remote_awaited(history.fetch_row)
    get_versions = remote_iterated(history.get_versions)
    list_records = remote_awaited(history.list_records)
    load_table = remote_iterated(history.load_table)
    diff_moments = remote_iterated(history.diff_moments)


class AsyncChangesMethods(AsyncMethods):
    """The change log: changes of records and schemas in order, and its followers."""

    list_changes = remote_iterated(changes.list_changes)
    get_followers = remote_awaited(changes.get_followers)
    get_status = remote_awaited(changes.get_status)


class AsyncClient:
    """A service, for one tenant; an asynchronous context manager.

    `zapdb.aio.connect` returns it.
    """

    def __init__(self, calls: Calls) -> None:
        self._calls = calls
        self.catalog = AsyncCatalogMethods(calls)
        self.cluster = AsyncClusterMethods(calls)
        self.settings = AsyncSettingsMethods(calls)
        self.migrations = AsyncMigrationMethods(calls)
        self.jobs = AsyncJobsMethods(calls)
        self.history = AsyncHistoryMethods(calls)
        self.changes = AsyncChangesMethods(calls)

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"<zapdb service {self._calls.address}, tenant {self._calls.tenant_name!r}>"

    def for_tenant(self, name: str) -> AsyncClient:
        """Return the same service for another tenant; it is closed with this one."""
        return AsyncClient(self._calls.for_tenant(name))

    def with_key(self, key: str) -> AsyncClient:
        """Return the same service for one call that changes something: repeated with the same
        idempotency key within 24 hours, it is the same call, and is answered as before."""
        return AsyncClient(self._calls.with_key(key))

    def with_timeout(self, seconds: float | None) -> AsyncClient:
        """Return the same service for calls that may take so long, streams as a whole; None is as
        long as it takes. What takes longer is stopped in the database, and `CallTimedOut`."""
        return AsyncClient(self._calls.with_timeout(seconds))

    async def close(self) -> None:
        """Close the connection; calls under way are cancelled."""
        await self._calls.close()


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
) -> AsyncClient:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        raise UsageError(
            "no event loop runs here, to which the connection could belong",
            hint="call zapdb.aio.connect in a coroutine; zapdb.connect needs no event loop",
        ) from None
    access = ServiceAccess.given(token, token_file, tls_ca, tls_cert, tls_key)
    found = ServiceAddress.read(address, access)
    return AsyncClient(Calls(found, found.connect(grpc.aio), tenant, timeout_seconds))


connect.__doc__ = told_for_tasks(connect_here.__doc__ or "")
