"""Errors as plain data, and back: for another process, which raises the same error."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from zapdb.errors.migration_errors import InvalidMigration, Violation
from zapdb.errors.zapdb_error import Location, ZapdbError


def error_to_plain(error: ZapdbError) -> dict[str, Any]:
    """All that text and JSON show of an error."""
    plain = error.to_json()
    if isinstance(error, InvalidMigration):
        for shown, violation in zip(plain["violations"], error.violations, strict=True):
            shown["excerpt"] = violation.excerpt
    return plain


def error_from_plain(plain: Mapping[str, Any], unknown: type[ZapdbError]) -> ZapdbError:
    """The error; one of a code that this release does not know is `unknown`."""
    kind = _classes().get(plain["code"], unknown)
    place = plain["location"]
    made = kind.__new__(kind)
    ZapdbError.__init__(
        made,
        plain["message"],
        hint=plain["hint"],
        location=None if place is None else Location(**place),
    )
    made.context = dict(plain["context"])
    if isinstance(made, InvalidMigration):
        made.violations = tuple(
            Violation(
                Location(one["file"], one["line"], one["column"]),
                *(one[name] for name in ("message", "hint", "excerpt")),
            )
            for one in plain["violations"]
        )
        made.hidden = plain["violations_hidden"]
    return made


@cache
def _classes() -> Mapping[str, type[ZapdbError]]:
    """All classes of errors by their codes."""
    found, left = dict[str, type[ZapdbError]](), [ZapdbError]
    while left:
        kind = left.pop()
        if "code" in vars(kind):
            found[kind.code] = kind
        left += kind.__subclasses__()
    return found
