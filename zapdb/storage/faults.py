"""What a driver's errors mean, where more than one engine reports it."""

from __future__ import annotations

from zapdb.errors import StorageError


class DuplicateKey(Exception):
    """A uniqueness constraint refused a row; callers raise what that means."""


class MissingTable(StorageError):
    """A statement named a table that is not there: the view that it came from is out of date."""


def unexpected(error: BaseException) -> StorageError:
    """A driver's error that zapdb gives no meaning of its own."""
    detail = str(error).strip().splitlines()
    return StorageError(
        "the database reported an error",
        error=type(error).__name__,
        detail=detail[0] if detail else "",
    )
