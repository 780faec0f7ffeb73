"""The one tree of zapdb's errors.

    ZapdbError
    ├── InvalidValue (ValueError)          a value does not fit its field          caller
    ├── UnknownName (LookupError)          no such table, field, index, migration  caller
    │   └── UnknownField (AttributeError)  a table has no such field
    ├── UsageError (RuntimeError)          a call that is not possible now caller
    │   ├── UnknownAttribute (AttributeError) a table or query has no such method
    │   ├── UnsupportedOperation (TypeError) such as len(query), query[0], record["name"]
    │   └── ImmutableRecord (AttributeError) a field of a record is set or deleted
    ├── InvalidCursor (ValueError)         not a cursor of this query              caller
    ├── SqlError (ValueError)              an SQL statement that can't be run      caller
    │   └── SqlLimitExceeded               it exceeds its memory, time or row limit
    ├── SequenceExhausted (OverflowError)  a sequence has no more numbers           caller
    ├── SeveralRecords (LookupError)       one record is expected, several match   caller
    ├── RecordNotFound (KeyError)          no record has this key                  caller
    ├── RecordExists (ValueError)          a record has this key already           caller
    ├── TenantExists (ValueError)          a tenant has this name already          caller
    ├── BlobMissing (LookupError)          a large value is read too late          caller
    ├── ChangesPruned (LookupError)        the change log begins after the bookmark caller
    ├── HistoryUnavailable (LookupError)   a past moment can't be answered exactly caller
    │   ├── MomentInFuture                 it is not over yet
    │   ├── HistoryBehind                  the log's watermark has not reached it
    │   ├── HistoryGap                     changes were not recorded all the time since
    │   ├── HistoryPurged                  what is needed was deleted
    │   ├── HistoryNotStored               a schema change has made other values since
    │   └── HistoryReplaced                others have replaced a file that the snapshot reads
    │       └── HistoryErased              an erasure has
    ├── ConstraintViolation (ValueError)   a write violates a constraint           caller
    │   ├── UniqueViolation                another record has the values of a unique index
    │   ├── CheckViolation                 a check of the table is false for the record
    │   └── ReferenceViolation             a reference's target is missing, or would be deleted
    ├── MigrationError
    │   ├── InvalidMigration (ValueError)  the file has errors
    │   │   └── NotExhaustive              a rollback is missing
    │   ├── NotProven                      the round-trip test of a migration failed
    │   │   ├── RollbackNotProven          a rollback that is claimed to be exact is not
    │   │   └── ExampleNotProven           an example of the document has another result
    │   ├── MigrationConflict              a file differs from the stored migration
    │   ├── LockfileMismatch               zapdb.lock differs from the files
    │   ├── MigrationLimitExceeded         files sent to a service take too much to check
    │   ├── SchemaChangesRefused           a setting refuses changes of the schema
    │   ├── PendingMigrations              files that the database does not store  exit 3
    │   └── ActivationPending              a migration waits for running processes exit 3
    ├── CorruptionError
    │   ├── CorruptRecord                  stored bytes that no encoder wrote
    │   │   └── CorruptBlob                a large value is damaged
    │   ├── CorruptCatalog                 a damaged stored migration or catalog row
    │   │   └── MissingSchemaHistory       an active table has no schema history
    │   ├── CorruptExport                  the files of an export are not what was written
    │   └── HistoryDamaged                 a file of the history store is not what was written
    ├── CompatibilityError
    │   ├── NotZapdb                       the database is another program's
    │   ├── NewerStorageVersion            written by a later release
    │   ├── IncompatibleVersion            the cluster's level is above this release
    │   ├── DatasetMismatch                collation or tz data differ between processes
    │   ├── UnknownZone                    the tz data in use lack a time zone
    │   ├── ServedSchemaUnavailable        the files end before the active migration
    │   ├── FingerprintUnknown             a pinned or active schema is unknown
    │   ├── ModelsMismatch                 generated models are for another schema
    │   └── UnsupportedServer              the server lacks a feature in use
    ├── ConcurrencyError
    │   ├── GateTimeout (TimeoutError)     a schema change could not get the gate
    │   ├── LeaseLost                      another process took over, or this one was evicted
    │   ├── LeaseHeld                      another process holds the lease
    │   ├── CatalogBehind (TimeoutError)   this process's catalog cache lacks a change
    │   ├── CatalogRestored                the catalog never had a seq: a backup was restored
    │   ├── CatalogChangesPurged           the catalog's changes since a seq are not kept
    │   ├── ConnectionsBusy (TimeoutError) too many transactions are open in this process
    │   ├── TransactionConflict            serialization failure; run it again
    │   │   └── CatalogChanged             a migration changed the catalog; run it again
    │   ├── UpdateConflict                 the record differs from `if_unchanged`
    │   └── CommitUnknown                  COMMIT reported an error; the outcome is not known
    ├── JobError
    │   └── ExecutorMismatch               an executor differs from what its job needs
    ├── StorageError                       the database driver reported an error
    │   ├── DiskFull                       the disk is full
    │   ├── WritesRefused                  this process may not write to the database
    │   ├── HistoryUnreachable             the directory of the history store can't be used
    │   └── DatabaseReplaced               the open SQLite file was moved, deleted or replaced
    ├── ServiceError                       a service answered with an error of another release
    │   ├── ServiceUnreachable (ConnectionError) no service answers at the address
    │   ├── CallTimedOut (TimeoutError)    it did not answer in the time that it was given
    │   ├── NotAuthenticated (PermissionError) the service does not know who calls
    │   ├── NotAllowed (PermissionError)   the caller lacks the scope that a method needs
    │   ├── AnswerTooLarge                 an answer is larger than a message may be
    │   ├── RequestTooLarge                a request is larger than those of its method
    │   ├── ServiceBusy                    too many long calls of one principal
    │   └── KeyInUse                       another request has the same idempotency key
    └── MissingExtra (ImportError)         an optional dependency is not installed

Each class has a stable code, an exit status for the command line, and the name of a gRPC status.
The message is a static sentence; variable parts are in the context; the hint says what to do.
All errors pickle, since they cross Spark. No record contents appear beyond a short hex prefix.
"""

from __future__ import annotations

from zapdb.errors.caller_errors import (
    BlobMissing,
    ChangesPruned,
    CheckViolation,
    ConstraintViolation,
    HistoryBehind,
    HistoryErased,
    HistoryGap,
    HistoryNotStored,
    HistoryPurged,
    HistoryReplaced,
    HistoryUnavailable,
    ImmutableRecord,
    InvalidCursor,
    InvalidValue,
    MomentInFuture,
    RecordExists,
    RecordNotFound,
    ReferenceViolation,
    SequenceExhausted,
    SeveralRecords,
    SqlError,
    SqlLimitExceeded,
    TenantExists,
    UniqueViolation,
    UnknownAttribute,
    UnknownField,
    UnknownName,
    UnsupportedOperation,
    UsageError,
)
from zapdb.errors.describing import REFUSED, describe_value, suggest
from zapdb.errors.migration_errors import (
    ActivationPending,
    ExampleNotProven,
    InvalidMigration,
    LockfileMismatch,
    MigrationConflict,
    MigrationError,
    MigrationLimitExceeded,
    NotExhaustive,
    NotProven,
    PendingMigrations,
    RollbackNotProven,
    SchemaChangesRefused,
    Violation,
)
from zapdb.errors.running_errors import (
    AnswerTooLarge,
    CallTimedOut,
    CatalogBehind,
    CatalogChanged,
    CatalogChangesPurged,
    CatalogRestored,
    CommitUnknown,
    ConcurrencyError,
    ConnectionsBusy,
    DatabaseReplaced,
    DiskFull,
    ExecutorMismatch,
    GateTimeout,
    HistoryUnreachable,
    JobError,
    KeyInUse,
    LeaseHeld,
    LeaseLost,
    MissingExtra,
    NotAllowed,
    NotAuthenticated,
    RequestTooLarge,
    ServiceBusy,
    ServiceError,
    ServiceUnreachable,
    StorageError,
    TransactionConflict,
    UpdateConflict,
    WritesRefused,
)
from zapdb.errors.stored_errors import (
    CompatibilityError,
    CorruptBlob,
    CorruptCatalog,
    CorruptExport,
    CorruptionError,
    CorruptRecord,
    DatasetMismatch,
    FingerprintUnknown,
    HistoryDamaged,
    IncompatibleVersion,
    MissingSchemaHistory,
    ModelsMismatch,
    NewerStorageVersion,
    NotZapdb,
    ServedSchemaUnavailable,
    UnknownZone,
    UnsupportedServer,
)
from zapdb.errors.zapdb_error import EXIT_ERROR, EXIT_PENDING, EXIT_USAGE, Location, ZapdbError

__all__ = [
    "EXIT_ERROR",
    "EXIT_PENDING",
    "EXIT_USAGE",
    "REFUSED",
    "ActivationPending",
    "AnswerTooLarge",
    "BlobMissing",
    "CallTimedOut",
    "CatalogBehind",
    "CatalogChanged",
    "CatalogChangesPurged",
    "CatalogRestored",
    "ChangesPruned",
    "CheckViolation",
    "CommitUnknown",
    "CompatibilityError",
    "ConcurrencyError",
    "ConnectionsBusy",
    "ConstraintViolation",
    "CorruptBlob",
    "CorruptCatalog",
    "CorruptExport",
    "CorruptRecord",
    "CorruptionError",
    "DatabaseReplaced",
    "DatasetMismatch",
    "DiskFull",
    "ExampleNotProven",
    "ExecutorMismatch",
    "FingerprintUnknown",
    "GateTimeout",
    "HistoryBehind",
    "HistoryDamaged",
    "HistoryErased",
    "HistoryGap",
    "HistoryNotStored",
    "HistoryPurged",
    "HistoryReplaced",
    "HistoryUnavailable",
    "HistoryUnreachable",
    "ImmutableRecord",
    "IncompatibleVersion",
    "InvalidCursor",
    "InvalidMigration",
    "InvalidValue",
    "JobError",
    "KeyInUse",
    "LeaseHeld",
    "LeaseLost",
    "Location",
    "LockfileMismatch",
    "MigrationConflict",
    "MigrationError",
    "MigrationLimitExceeded",
    "MissingExtra",
    "MissingSchemaHistory",
    "ModelsMismatch",
    "MomentInFuture",
    "NewerStorageVersion",
    "NotAllowed",
    "NotAuthenticated",
    "NotExhaustive",
    "NotProven",
    "NotZapdb",
    "PendingMigrations",
    "RecordExists",
    "RecordNotFound",
    "ReferenceViolation",
    "RequestTooLarge",
    "RollbackNotProven",
    "SchemaChangesRefused",
    "SequenceExhausted",
    "ServedSchemaUnavailable",
    "ServiceBusy",
    "ServiceError",
    "ServiceUnreachable",
    "SeveralRecords",
    "SqlError",
    "SqlLimitExceeded",
    "StorageError",
    "TenantExists",
    "TransactionConflict",
    "UniqueViolation",
    "UnknownAttribute",
    "UnknownField",
    "UnknownName",
    "UnknownZone",
    "UnsupportedOperation",
    "UnsupportedServer",
    "UpdateConflict",
    "UsageError",
    "Violation",
    "WritesRefused",
    "ZapdbError",
    "describe_value",
    "suggest",
]

for _kind in list(globals().values()):
    if isinstance(_kind, type) and issubclass(_kind, ZapdbError):
        _kind.__module__ = __name__  # so tracebacks and pickles name it by where users import it
