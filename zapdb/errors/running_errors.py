"""Errors at run time: concurrency, jobs, the database driver, optional packages."""

from __future__ import annotations

from zapdb.errors.zapdb_error import ZapdbError


class ConcurrencyError(ZapdbError):
    code = "concurrency"
    rpc_status = "ABORTED"


class GateTimeout(ConcurrencyError, TimeoutError):
    code = "concurrency.gate_timeout"


class LeaseLost(ConcurrencyError):
    code = "concurrency.lease_lost"


class LeaseHeld(ConcurrencyError):
    code = "concurrency.lease_held"


class CatalogBehind(ConcurrencyError, TimeoutError):
    code = "concurrency.catalog_behind"


class CatalogRestored(ConcurrencyError):
    """The database never had a seq of the catalog: a backup was restored since, or it is another
    one. What the seq stood for is not there."""

    code = "concurrency.catalog_restored"
    rpc_status = "FAILED_PRECONDITION"


class CatalogChangesPurged(ConcurrencyError):
    """The catalog can't tell any more what changed since a seq: which rows were deleted is kept for
    a number of changes. Read the catalog anew, and go on from its seq."""

    code = "concurrency.catalog_changes_purged"
    rpc_status = "OUT_OF_RANGE"


class ConnectionsBusy(ConcurrencyError, TimeoutError):
    """No connection for a transaction became free in time."""

    code = "concurrency.connections_busy"
    rpc_status = "RESOURCE_EXHAUSTED"


class TransactionConflict(ConcurrencyError):
    code = "concurrency.conflict"


class CatalogChanged(TransactionConflict):
    """The tenant catalog that this process has loaded is not active any more: the operation has to
    be repeated with the present one. zapdb does so itself, within the retry policies of its
    limits."""

    code = "concurrency.catalog_changed"


class UpdateConflict(ConcurrencyError):
    """A record was changed between reading it and `update(…, if_unchanged=record)`."""

    code = "concurrency.update_conflict"


class CommitUnknown(ConcurrencyError):
    code = "concurrency.commit_unknown"
    rpc_status = "UNKNOWN"


class JobError(ZapdbError):
    code = "job"


class ExecutorMismatch(JobError):
    code = "job.executor_mismatch"
    rpc_status = "FAILED_PRECONDITION"


class StorageError(ZapdbError):
    code = "storage"
    rpc_status = "UNAVAILABLE"


class DiskFull(StorageError):
    """The disk is full, and nothing was written."""

    code = "storage.full"
    rpc_status = "RESOURCE_EXHAUSTED"


class WritesRefused(StorageError):
    """The database takes no writes from this process: its role may only read, the server is a
    standby, or the file can't be written."""

    code = "storage.writes"
    rpc_status = "PERMISSION_DENIED"


class HistoryUnreachable(StorageError):
    """The directory of the history store is not there, or can't be written to."""

    code = "storage.history"


class DatabaseReplaced(StorageError):
    """The file of an open SQLite database was moved, deleted or replaced."""

    code = "storage.replaced"
    rpc_status = "FAILED_PRECONDITION"


class MissingExtra(ZapdbError, ImportError):
    code = "extra.missing"

    @classmethod
    def named(cls, extra: str, package: str) -> MissingExtra:
        return cls(
            "an optional dependency is not installed",
            package=package,
            hint=f"pip install 'zapdb[{extra}]'",
        )


class ServiceError(ZapdbError):
    """What a service (`zapdb serve`) answered instead of an answer, and no error below says."""

    code = "service"


class ServiceUnreachable(ServiceError, ConnectionError):
    """No service answers at the address, or the connection to it was lost."""

    code = "service.unreachable"
    rpc_status = "UNAVAILABLE"


class CallTimedOut(ServiceError, TimeoutError):
    """The service did not answer within `timeout_seconds`; what the call did in the database is
    stopped. Whether one that changes something has taken effect is not known."""

    code = "service.timed_out"
    rpc_status = "DEADLINE_EXCEEDED"


class NotAuthenticated(ServiceError, PermissionError):
    """The service does not know who calls: the token is missing, expired, or another service's."""

    code = "service.not_authenticated"
    rpc_status = "UNAUTHENTICATED"


class NotAllowed(ServiceError, PermissionError):
    """The principal lacks the scope that a method needs."""

    code = "service.not_allowed"
    rpc_status = "PERMISSION_DENIED"


class RequestTooLarge(ServiceError):
    """A request to a service is larger than those of its method may be."""

    code = "service.request_too_large"
    rpc_status = "RESOURCE_EXHAUSTED"


class AnswerTooLarge(ServiceError):
    """An answer of a service is larger than a message may be."""

    code = "service.answer_too_large"
    rpc_status = "RESOURCE_EXHAUSTED"


class ServiceBusy(ServiceError):
    """The principal has too many calls under way that may take minutes."""

    code = "service.busy"
    rpc_status = "RESOURCE_EXHAUSTED"


class KeyInUse(ServiceError):
    """Another request of the principal has the same idempotency key."""

    code = "service.key_in_use"
    rpc_status = "ALREADY_EXISTS"
