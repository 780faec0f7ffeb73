"""Mistakes of the caller: values, names, keys, and calls that are not possible now."""

from __future__ import annotations

from collections.abc import Iterable
from keyword import iskeyword
from typing import Any

from zapdb.errors.describing import REFUSED, describe_value, excerpt_of, suggest
from zapdb.errors.zapdb_error import EXIT_USAGE, ZapdbError


class InvalidValue(ZapdbError, ValueError):
    code = "value.invalid"
    rpc_status = "INVALID_ARGUMENT"

    @classmethod
    def of(cls, path: str, expected: str, value: object, hint: str = "") -> InvalidValue:
        """Return the error for a value; `path` is its place in the record. Shows the value's type
        and length.

        The context has the beginning of the value as `refused`, for callers that may see records;
        it is not part of the error's text or JSON.
        """
        context: dict[str, Any] = {
            "field": path,
            "expected": expected,
            "got": describe_value(value),
        }
        excerpt = excerpt_of(value)
        if excerpt is not None:
            context[REFUSED] = excerpt
        return cls("a value does not fit its field", hint=hint, **context)


class UnknownName(ZapdbError, LookupError):
    code = "name.unknown"
    rpc_status = "NOT_FOUND"

    @classmethod
    def of_table(cls, name: object, tables: Iterable[str]) -> UnknownName:
        """Return the error for an unknown table; `tables` are the names of all tables."""
        there = list(tables)
        return UnknownName(
            "no such table",
            table=name,
            tables=", ".join(there) or "(none)",
            hint=suggest(name, there),
        )


class UnknownField(UnknownName, AttributeError):
    """A table has no field of this name; also raised for unknown attributes."""

    code = "name.unknown_field"

    @classmethod
    def named(cls, table: str, field: object, fields: Iterable[str]) -> UnknownField:
        """Return the error for an unknown field; `fields` are the names of all fields."""
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
    """A statement can't be run; the context has the cause, and line and column of the statement,
    from 1."""

    code = "sql"
    rpc_status = "INVALID_ARGUMENT"


class SqlLimitExceeded(SqlError):
    """A statement exceeds a limit; the context names it: `max_memory` in bytes, `seconds`, or
    `max_rows`."""

    code = "sql.limit"
    rpc_status = "RESOURCE_EXHAUSTED"


class SeveralRecords(ZapdbError, LookupError):
    code = "query.several_records"
    rpc_status = "FAILED_PRECONDITION"


class UsageError(ZapdbError, RuntimeError):
    code = "usage"
    exit_status = EXIT_USAGE
    rpc_status = "FAILED_PRECONDITION"


class UnknownAttribute(UsageError, AttributeError):
    """A table or a query has no method of this name."""

    code = "usage.attribute"


class UnsupportedOperation(UsageError, TypeError):
    """An object has no such operation of Python: `len(query)`, `query[0]`, `record["name"]`."""

    code = "usage.operation"
    rpc_status = "INVALID_ARGUMENT"


class ImmutableRecord(UsageError, AttributeError):
    """A record or struct is immutable: setting its field would store nothing."""

    code = "record.immutable"
    rpc_status = "INVALID_ARGUMENT"

    @classmethod
    def named(cls, table: str, name: str, fields: Iterable[str]) -> ImmutableRecord:
        """Return the error for setting or deleting an attribute; the hint has the call that makes a
        changed record."""
        shown = f"{name if name in fields else 'field'}=…"
        if iskeyword(name):
            shown = f"**{{{name!r}: …}}"
        return cls(
            "records are immutable",
            record=table,
            attribute=name,
            hint=f"update(key, {shown}) stores a change; "
            f"zapdb.replace(record, {shown}) makes a copy",
        )


class RecordNotFound(ZapdbError, KeyError):
    code = "record.not_found"
    rpc_status = "NOT_FOUND"


class RecordExists(ZapdbError, ValueError):
    code = "record.exists"
    rpc_status = "ALREADY_EXISTS"


class SequenceExhausted(ZapdbError, OverflowError):
    """The last number of a sequence was given, or used explicitly."""

    code = "sequence.exhausted"
    rpc_status = "RESOURCE_EXHAUSTED"


class TenantExists(ZapdbError, ValueError):
    code = "tenant.exists"
    exit_status = EXIT_USAGE
    rpc_status = "ALREADY_EXISTS"


class BlobMissing(ZapdbError, LookupError):
    """A large value was read after its record was changed or deleted, or its blob is lost."""

    code = "record.blob_missing"
    rpc_status = "NOT_FOUND"


class ChangesPruned(ZapdbError, LookupError):
    """Changes after a bookmark were pruned from the change log."""

    code = "changes.pruned"
    rpc_status = "NOT_FOUND"


class HistoryUnavailable(ZapdbError, LookupError):
    """A past moment is asked for that can't be answered exactly, so it is not answered."""

    code = "history.unavailable"
    rpc_status = "FAILED_PRECONDITION"


class MomentInFuture(HistoryUnavailable):
    """A moment that is not over yet."""

    code = "history.future"
    rpc_status = "OUT_OF_RANGE"


class HistoryBehind(HistoryUnavailable):
    """What was asked is not there yet: a time above the log's watermark, or changes without a place
    in its order, where this process, writing nothing, can't raise it or give them one; or files
    that the history store has not written."""

    code = "history.behind"


class HistoryGap(HistoryUnavailable):
    """The changes of the table were not recorded all the time since the moment; or the change log
    is off, and has nothing of what is asked."""

    code = "history.gap"


class HistoryPurged(HistoryUnavailable):
    """What is needed to go back to the moment was deleted."""

    code = "history.purged"
    rpc_status = "NOT_FOUND"


class HistoryNotStored(HistoryUnavailable):
    """A schema change has made other values since, and the earlier ones are not stored."""

    code = "history.not_stored"


class HistoryReplaced(HistoryUnavailable):
    """A snapshot reads a file of the history store that others have replaced and deleted since."""

    code = "history.replaced"
    rpc_status = "ABORTED"


class HistoryErased(HistoryReplaced):
    """An erasure has deleted it: the snapshot, or the block that has pinned it, may have what was
    erased, and is not answered."""

    code = "history.erased"


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
