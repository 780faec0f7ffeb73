"""What the caller got wrong: values, names, keys, and calls that make no sense now."""

from __future__ import annotations

from collections.abc import Iterable
from keyword import iskeyword
from typing import Any

from zapdb.errors.base import EXIT_USAGE, ZapdbError
from zapdb.errors.describing import REFUSED, describe_value, excerpt_of, suggest


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
        excerpt = excerpt_of(value)
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


class UnknownAttribute(UsageError, AttributeError):
    """A table or a query has no method of this name."""

    code = "usage.attribute"


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
