"""What happens while it runs: others at work, jobs, the driver, what is installed."""

from __future__ import annotations

from zapdb.errors.base import ZapdbError


class ConcurrencyError(ZapdbError):
    code = "concurrency"
    rpc_status = "ABORTED"


class GateTimeout(ConcurrencyError, TimeoutError):
    code = "concurrency.gate_timeout"


class LeaseLost(ConcurrencyError):
    code = "concurrency.lease_lost"


class LeaseHeld(ConcurrencyError):
    code = "concurrency.lease_held"


class RollbackInProgress(ConcurrencyError):
    code = "concurrency.rollback_in_progress"
    rpc_status = "UNAVAILABLE"


class CatalogBehind(ConcurrencyError, TimeoutError):
    code = "concurrency.catalog_behind"


class ConnectionsBusy(ConcurrencyError, TimeoutError):
    """No connection for a transaction was given back in time."""

    code = "concurrency.connections_busy"
    rpc_status = "RESOURCE_EXHAUSTED"


class TransactionConflict(ConcurrencyError):
    code = "concurrency.conflict"


class CatalogChanged(TransactionConflict):
    """What this process has loaded of the catalog is not active any more: load it again, and repeat
    what was done under it. zapdb does so by itself, as far as the policies of its limits go."""

    code = "concurrency.catalog_changed"


class UpdateConflict(ConcurrencyError):
    """A record was changed between being read and `update(…, if_unchanged=record)`."""

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
    """No room was left for what was to be written, and it was not."""

    code = "storage.full"
    rpc_status = "RESOURCE_EXHAUSTED"


class DatabaseReplaced(StorageError):
    """The file of an open SQLite database was moved or deleted, or another is in its place."""

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
