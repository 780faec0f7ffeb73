"""The one tree of zapdb's errors.

    ZapdbError
    ├── InvalidValue (ValueError)          a value does not fit its field          caller
    ├── UnknownName (LookupError)          no such table, field, index, migration  caller
    │   └── UnknownField (AttributeError)  a table has no such field
    ├── UsageError (RuntimeError)          a call that makes no sense now          caller
    │   └── ImmutableRecord (AttributeError) a field of a record is set or deleted
    ├── InvalidCursor (ValueError)         a cursor of another query, or none      caller
    ├── SqlError (ValueError)              an SQL statement that can't be answered caller
    │   └── SqlLimitExceeded               it takes more memory, time or rows than it may
    ├── SeveralRecords (LookupError)       one record is expected, several match   caller
    ├── RecordNotFound (KeyError)          no record has this key                  caller
    ├── RecordExists (ValueError)          a record with this key is there         caller
    ├── TenantExists (ValueError)          a tenant of this name is there          caller
    ├── BlobMissing (LookupError)          a large value is looked at too late     caller
    ├── ChangesPruned (LookupError)        the change log begins behind the place caller
    ├── ConstraintViolation (ValueError)   a write breaks what its table demands   caller
    │   ├── UniqueViolation                another record has the values of a unique index
    │   ├── CheckViolation                 a check of the table is not true of the record
    │   └── ReferenceViolation             what a record refers to is not there, or would go
    ├── MigrationError
    │   ├── InvalidMigration (ValueError)  the file does not say what it must
    │   │   └── NotExhaustive              a rollback is missing
    │   ├── NotProven                      trying a migration shows that it is not what it says
    │   │   ├── RollbackNotProven          a rollback does not bring back what it claims to
    │   │   └── ExampleNotProven           an example of the document comes out otherwise
    │   ├── MigrationConflict              files and database disagree
    │   ├── LockfileMismatch               zapdb.lock and files disagree
    │   ├── SchemaFrozen                   a setting refuses changes of the schema
    │   ├── PendingMigrations              files beyond what the database stores   exit 3
    │   └── ActivationPending              a migration waits for running processes exit 3
    ├── CorruptionError
    │   ├── CorruptRecord                  stored bytes that no encoder wrote
    │   │   └── CorruptBlob                a large value is not what was written
    │   └── CorruptCatalog                 a stored migration or catalog row that was tampered with
    │       └── MissingHistory             a table in force has no fingerprint history
    ├── CompatibilityError
    │   ├── NotZapdb                       the database is somebody else's
    │   ├── NewerLayout                    written by a later release
    │   ├── IncompatibleVersion            the cluster's level is above this release
    │   ├── DatasetMismatch                collation or tz data differ between processes
    │   ├── UnknownZone                    the tz data in use lack a time zone
    │   ├── ServedShapeUnavailable         the files end before the active migration
    │   ├── FingerprintUnknown             a pinned schema, or the one in force, is not known
    │   ├── ModelsMismatch                 generated models are not those of the schema
    │   └── UnsupportedServer              the server lacks a feature in use
    ├── ConcurrencyError
    │   ├── GateTimeout (TimeoutError)     writers did not let a change of state through
    │   ├── LeaseLost                      another process took over, or this one was evicted
    │   ├── LeaseHeld                      another process is at work
    │   ├── ForgetInProgress               writes wait until a forget is finished
    │   ├── CatalogBehind (TimeoutError)   this process has not seen a change of the catalog yet
    │   ├── ConnectionsBusy (TimeoutError) too many transactions are open in this process
    │   ├── TransactionConflict            serialization failure; run it again
    │   │   └── CatalogChanged             a migration changed what it works with; run it again
    │   ├── StaleUpdate                    the record is not what `if_unchanged` says any more
    │   └── CommitUnknown                  COMMIT reported an error; the outcome is not known
    ├── JobError
    │   └── ExecutorUnfit                  a task's process differs from what its job needs
    ├── StorageError                       the database driver reported an error
    │   ├── DiskFull                       no room was left for what was to be written
    │   └── DatabaseReplaced               the open SQLite file was moved, deleted or replaced
    └── MissingExtra (ImportError)         an optional dependency is not installed

Each class has a stable code, an exit status for the command line, and the name of a gRPC status.
The message is a static sentence; what varies is in the context, by key; the hint names the way out.
All errors pickle, since they cross Spark. No record contents appear beyond a short hex prefix.
"""

from __future__ import annotations

import datetime
import decimal
import difflib
import math
import re
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from keyword import iskeyword
from typing import Any, ClassVar, Final

from zapdb.limits import ERROR_VALUE_CHARS_MAX, EXCERPT_LENGTH_MAX, VIOLATIONS_SHOWN_MAX
from zapdb.printing import one_line

EXIT_ERROR = 1
EXIT_USAGE = 2
EXIT_PENDING = 3


@dataclass(frozen=True, slots=True)
class Location:
    """A place in a file; line and column count from 1, and 0 stands for the file as a whole."""

    file: str
    line: int = 0
    column: int = 0

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}" if self.line else self.file


class ZapdbError(Exception):
    """The root of all errors that zapdb raises on purpose."""

    code: ClassVar[str] = "error"
    exit_status: ClassVar[int] = EXIT_ERROR
    rpc_status: ClassVar[str] = "INTERNAL"

    def __init__(
        self,
        message: str,
        *,
        hint: str = "",
        location: Location | None = None,
        **context: Any,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.location = location
        self.context = context

    def __str__(self) -> str:
        lines = [f"{self.location}: {self.message}" if self.location else self.message]
        for key, value in self._shown():
            first, *rest = INDENTED.split(_short(value))
            lines += [f"  {key}: {first}", *rest]
        if self.hint:
            lines.append(f"  way out: {self.hint}")
        return "\n".join(map(one_line, lines))  # what a value says is never a line of its own

    def _shown(self) -> Iterator[tuple[str, Any]]:
        return ((key, value) for key, value in self.context.items() if key != REFUSED)

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.__dict__.copy())

    def to_json(self) -> dict[str, Any]:
        """The error as plain data, for `--json` and for the wire."""
        place = self.location
        return {
            "code": self.code,
            "message": self.message,
            "hint": self.hint,
            "location": None
            if place is None
            else {"file": place.file, "line": place.line, "column": place.column},
            "context": {key: str(value) for key, value in self._shown()},
        }


REFUSED: Final = "refused"
"""What a refused value began with: in an error's context, and never in what it shows."""

INDENTED: Final = re.compile(r"\n(?=    )")
"""The line ends of a value that are kept: what follows stands too far to the right to be ours."""


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= ERROR_VALUE_CHARS_MAX else f"{text[:ERROR_VALUE_CHARS_MAX]}…"


def _excerpt(value: object) -> str | None:
    """What a value begins with, as Python writes it; None where only its own code could tell."""
    match value:
        case str() | bytes():
            return repr(value[:EXCERPT_LENGTH_MAX])
        case int() if value.bit_length() > EXCERPT_LENGTH_MAX:  # its digits may be too many
            return hex(value >> (value.bit_length() - EXCERPT_LENGTH_MAX)) + "…"
        case int() | float() | decimal.Decimal() | datetime.date() | uuid.UUID():
            return repr(value)[:EXCERPT_LENGTH_MAX]
    return None


def _rebuild(kind: type[ZapdbError], state: dict[str, Any]) -> ZapdbError:
    error = kind.__new__(kind)
    error.args = (state["message"],)
    error.__dict__.update(state)
    return error


class InvalidValue(ZapdbError, ValueError):
    code = "value.invalid"
    rpc_status = "INVALID_ARGUMENT"

    @classmethod
    def of(cls, path: str, expected: str, value: object) -> InvalidValue:
        """`path` names the place inside the record; of the value, type and length are shown.

        Its beginning is among the context, as `refused`, for those who may see records: it is no
        part of the error's text or JSON.
        """
        context: dict[str, Any] = {
            "field": path,
            "expected": expected,
            "got": describe_value(value),
        }
        excerpt = _excerpt(value)
        if excerpt is not None:
            context[REFUSED] = excerpt
        return cls("a value does not fit its field", **context)


class UnknownName(ZapdbError, LookupError):
    code = "name.unknown"
    rpc_status = "NOT_FOUND"

    @classmethod
    def of_table(cls, name: object, tables: Iterable[str]) -> UnknownName:
        """`tables` are the names that there are."""
        there = list(tables)
        return UnknownName(
            "no such table",
            table=name,
            tables=", ".join(there) or "(none)",
            hint=suggest(name, there),
        )


class UnknownField(UnknownName, AttributeError):
    """A table has no field of this name; also what its attributes raise."""

    code = "name.unknown_field"

    @classmethod
    def named(cls, table: str, field: object, fields: Iterable[str]) -> UnknownField:
        """`fields` are the names that there are."""
        there = list(fields)
        return cls(
            "the table has no such field",
            table=table,
            field=field,
            fields=", ".join(there),
            hint=suggest(field, there),
        )


class InvalidCursor(ZapdbError, ValueError):
    code = "query.cursor"
    rpc_status = "INVALID_ARGUMENT"


class SqlError(ZapdbError, ValueError):
    """What is wrong is among the context, with the line and column of the statement, from 1."""

    code = "sql"
    rpc_status = "INVALID_ARGUMENT"


class SqlLimitExceeded(SqlError):
    """The limit is among the context: `max_memory` in bytes, `seconds`, or `max_rows`."""

    code = "sql.limit"
    rpc_status = "RESOURCE_EXHAUSTED"


class SeveralRecords(ZapdbError, LookupError):
    code = "query.several_records"
    rpc_status = "FAILED_PRECONDITION"


class UsageError(ZapdbError, RuntimeError):
    code = "usage"
    exit_status = EXIT_USAGE
    rpc_status = "FAILED_PRECONDITION"


class ImmutableRecord(UsageError, AttributeError):
    """A record or struct is a value: setting a field of it would store nothing."""

    code = "record.immutable"
    rpc_status = "INVALID_ARGUMENT"

    @classmethod
    def named(cls, table: str, name: str, fields: Iterable[str]) -> ImmutableRecord:
        """The error for setting or deleting an attribute, with the way to a changed record."""
        shown = f"{name if name in fields else 'field'}=…"
        if iskeyword(name):
            shown = f"**{{{name!r}: …}}"
        return cls(
            "records are immutable",
            record=table,
            attribute=name,
            hint=f"make a new one: zapdb.replace(record, {shown})",
        )


class RecordNotFound(ZapdbError, KeyError):
    code = "record.not_found"
    rpc_status = "NOT_FOUND"


class RecordExists(ZapdbError, ValueError):
    code = "record.exists"
    rpc_status = "ALREADY_EXISTS"


class TenantExists(ZapdbError, ValueError):
    code = "tenant.exists"
    exit_status = EXIT_USAGE
    rpc_status = "ALREADY_EXISTS"


class BlobMissing(ZapdbError, LookupError):
    """A large value was looked at after its record had gone, or its blob is lost."""

    code = "record.blob_missing"
    rpc_status = "NOT_FOUND"


class ChangesPruned(ZapdbError, LookupError):
    """Changes behind a bookmark are not in the change log any more."""

    code = "changes.pruned"
    rpc_status = "NOT_FOUND"


class ConstraintViolation(ZapdbError, ValueError):
    code = "constraint"
    rpc_status = "FAILED_PRECONDITION"


class UniqueViolation(ConstraintViolation):
    code = "constraint.unique"
    rpc_status = "ALREADY_EXISTS"


class CheckViolation(ConstraintViolation):
    code = "constraint.check"
    rpc_status = "INVALID_ARGUMENT"


class ReferenceViolation(ConstraintViolation):
    code = "constraint.reference"


class MigrationError(ZapdbError):
    code = "migration"
    rpc_status = "FAILED_PRECONDITION"


@dataclass(frozen=True, slots=True)
class Violation:
    """One thing wrong with a document, and where."""

    location: Location
    message: str
    hint: str = ""
    excerpt: str = ""

    def __str__(self) -> str:
        lines = [one_line(f"{self.location}: {self.message}")]
        lines += [one_line(line) for line in self.excerpt.split("\n") if self.excerpt]
        if self.hint:
            lines.append(one_line(f"  way out: {self.hint}"))
        return "\n".join(lines)


class InvalidMigration(MigrationError, ValueError):
    """The first violations that were found, in the order of the file; `hidden` counts the rest."""

    code = "migration.invalid"
    rpc_status = "INVALID_ARGUMENT"

    def __init__(self, violations: Iterable[Violation], hidden: int = 0) -> None:
        found = tuple(violations)
        self.violations = found[:VIOLATIONS_SHOWN_MAX]
        self.hidden = hidden + len(found) - len(self.violations)
        first = self.violations[0]
        super().__init__(first.message, hint=first.hint, location=first.location)

    def __str__(self) -> str:
        return "\n".join(self.texts())

    def texts(self) -> list[str]:
        """Each violation, and how many more there are."""
        rest = [f"… and {self.hidden:,} more"] if self.hidden else []
        return [*map(str, self.violations), *rest]

    def to_json(self) -> dict[str, Any]:
        return super().to_json() | {
            "violations": [
                {
                    "file": violation.location.file,
                    "line": violation.location.line,
                    "column": violation.location.column,
                    "message": violation.message,
                    "hint": violation.hint,
                }
                for violation in self.violations
            ],
            "violations_hidden": self.hidden,
        }


class NotExhaustive(InvalidMigration):
    code = "migration.not_exhaustive"


class NotProven(MigrationError):
    """Trying the conversions of a migration on records made up for it, or read, failed."""

    code = "migration.not_proven"


class RollbackNotProven(NotProven):
    """A record came back otherwise, in a field whose rollback is claimed to be exact."""

    code = "migration.rollback_not_proven"


class ExampleNotProven(NotProven):
    code = "migration.example_not_proven"


class MigrationConflict(MigrationError):
    code = "migration.conflict"


class LockfileMismatch(MigrationError):
    code = "migration.lockfile"


class SchemaFrozen(MigrationError):
    """The setting `schema_changes` is `refuse`."""

    code = "migration.frozen"


class PendingMigrations(MigrationError):
    code = "migration.pending"
    exit_status = EXIT_PENDING


class ActivationPending(MigrationError):
    """A migration takes force only once the files of all running processes hold it (rule 12)."""

    code = "migration.activation_pending"
    exit_status = EXIT_PENDING


class CorruptionError(ZapdbError):
    code = "corruption"
    rpc_status = "DATA_LOSS"


class CorruptRecord(CorruptionError):
    """Bytes that no encoder wrote; `offset` counts from the start of the record."""

    code = "corruption.record"

    @classmethod
    def at(cls, what: str, data: bytes, offset: int) -> CorruptRecord:
        # Stepping over a field that was cut off leads behind the end: the end is where it is wrong.
        offset = min(offset, len(data))
        return cls(
            "stored bytes can't be decoded",
            what=what,
            offset=offset,
            size=len(data),
            bytes=bytes(data[max(0, offset - 4) : offset + 12]).hex(" ") or "(none)",
            hint="run `zapdb verify` for all such records, and restore them from a backup",
        )


class CorruptBlob(CorruptRecord):
    """A large value is not what was written: the context names the blob and the chunk."""

    code = "corruption.blob"


class CorruptCatalog(CorruptionError):
    code = "corruption.catalog"


class MissingHistory(CorruptCatalog):
    """The catalog was restored without the log of a table, or with an empty one."""

    code = "corruption.missing_history"


class CompatibilityError(ZapdbError):
    code = "compatibility"
    rpc_status = "FAILED_PRECONDITION"


class NotZapdb(CompatibilityError):
    code = "compatibility.not_zapdb"


class NewerLayout(CompatibilityError):
    code = "compatibility.newer_layout"


class IncompatibleVersion(CompatibilityError):
    code = "compatibility.version"


class DatasetMismatch(CompatibilityError):
    code = "compatibility.dataset"


class UnknownZone(CompatibilityError):
    code = "compatibility.zone"

    @classmethod
    def named(cls, zone: str, data: str) -> UnknownZone:
        return cls(
            "the time zone data in use lack a zone",
            zone=zone,
            data=data,
            hint="install a newer tzdata package (or what ZAPDB_TZDATA names), or correct the name",
        )


class ServedShapeUnavailable(CompatibilityError):
    code = "compatibility.served_shape"


class FingerprintUnknown(CompatibilityError):
    """A pinned fingerprint was never stamped on its table, or the one in force is not one that the
    process's own files lead to."""

    code = "compatibility.fingerprint"


class ModelsMismatch(CompatibilityError):
    """Classes that `zapdb codegen models` wrote are those of another schema."""

    code = "compatibility.models"


class UnsupportedServer(CompatibilityError):
    code = "compatibility.server"


class ConcurrencyError(ZapdbError):
    code = "concurrency"
    rpc_status = "ABORTED"


class GateTimeout(ConcurrencyError, TimeoutError):
    code = "concurrency.gate_timeout"


class LeaseLost(ConcurrencyError):
    code = "concurrency.lease_lost"


class LeaseHeld(ConcurrencyError):
    code = "concurrency.lease_held"


class ForgetInProgress(ConcurrencyError):
    code = "concurrency.forget_in_progress"
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


class StaleUpdate(ConcurrencyError):
    """A record was changed between being read and `update(…, if_unchanged=record)`."""

    code = "concurrency.stale_update"


class CommitUnknown(ConcurrencyError):
    code = "concurrency.commit_unknown"
    rpc_status = "UNKNOWN"


class JobError(ZapdbError):
    code = "job"


class ExecutorUnfit(JobError):
    code = "job.executor_unfit"
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


def suggest(name: object, names: Iterable[str]) -> str:
    """The hint for a name that is none of `names`: the closest one, or nothing."""
    closest = difflib.get_close_matches(str(name), list(names), n=1)
    return f"did you mean {closest[0]!r}?" if closest else ""


def describe_value(value: object) -> str:
    """A value's type and extent; never its contents beyond a number or a short hex prefix."""
    kind = type(value).__name__
    if isinstance(value, bytes | bytearray):
        return f"{kind} of {len(value)} bytes, {bytes(value[:8]).hex()}…"
    if isinstance(value, str):
        return f"{kind} of {len(value)} characters"
    if isinstance(value, bool) or value is None:
        return repr(value)
    if isinstance(value, int):
        return f"{kind} of {value.bit_length()} bits"
    if isinstance(value, float) and not math.isfinite(value):
        return f"{kind} {value}"
    if isinstance(value, decimal.Decimal):
        return _describe_decimal(value)
    if isinstance(value, datetime.datetime):
        zone = "no time zone" if value.tzinfo is None else f"the time zone {value.tzinfo}"
        return f"{kind} with {zone}"
    if isinstance(value, list | tuple | dict | set):
        return f"{kind} of length {len(value)}"
    return kind


def _describe_decimal(value: decimal.Decimal) -> str:
    if not value.is_finite():
        return f"Decimal {value}"
    _, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int)
    places = max(0, -exponent)
    return f"Decimal of {len(digits)} digits, {places} after the point"
