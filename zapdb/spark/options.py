"""The options of zapdb's data sources: `.option("database", …).option("table", …)`.

Spark hands them over as text, with names in any case.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from zapdb.catalog import DEFAULT_TENANT_NAME
from zapdb.errors import UsageError, suggest
from zapdb.log.change_log import Bookmark
from zapdb.past.reading.moment import parse_moment

EXAMPLE: Final = '.option("database", "postgresql://…").option("table", "orders")'
_COMMON: Final = ("database", "table", "tenant")
READ_OPTIONS: Final = (*_COMMON, "where", "fields", "as_text", "partitions", "limit", "at")
STREAM_OPTIONS: Final = (*_COMMON, "since", "changes_per_batch", "follower")
WRITE_OPTIONS: Final = (*_COMMON, "upsert", "job")
_USES: Final = {
    READ_OPTIONS: 'spark.read.format("zapdb")',
    STREAM_OPTIONS: 'spark.readStream.format("zapdb_changes")',
    WRITE_OPTIONS: 'frame.write.format("zapdb")',
}
"""Who has which options."""
TRUE, FALSE = ("true", "1", "yes"), ("false", "0", "no")


class GivenOptions:
    """Options by name, checked as they are asked for."""

    def __init__(self, given: Mapping[str, str], known: tuple[str, ...]) -> None:
        self._given = {name.lower(): value for name, value in given.items()}
        for name in self._given:
            if name not in known:
                raise UsageError(
                    "the data source has no such option here",
                    source=_USES[known],
                    option=name,
                    options=", ".join(known),
                    hint=_find_use(name) or suggest(name, known) or "leave it out",
                )

    def text(self, name: str) -> str | None:
        return self._given.get(name)

    def require(self, name: str) -> str:
        """The text of an option; raises `UsageError` if it is missing or empty."""
        found = self.text(name)
        if not found:
            raise UsageError("the data source needs an option", option=name, hint=f"give {EXAMPLE}")
        return found

    def names(self, name: str) -> tuple[str, ...]:
        """Names with commas between them."""
        return tuple(one.strip() for one in (self.text(name) or "").split(",") if one.strip())

    def count(self, name: str, least: int) -> int | None:
        found = self.text(name)
        if found is None:
            return None
        if not found.isascii() or not found.isdigit() or int(found) < least:
            raise self.refuse(name, f"a whole number, at least {least}")
        return int(found)

    def flag(self, name: str) -> bool:
        found = (self.text(name) or FALSE[0]).lower()
        if found not in TRUE + FALSE:
            raise self.refuse(name, "true or false")
        return found in TRUE

    def refuse(self, name: str, expected: str) -> UsageError:
        """The error for an option whose value can't be used."""
        return UsageError(
            "an option of the data source has a value that can't be used",
            option=name,
            value=self.text(name),
            hint=f"give {expected}",
        )


def _find_use(name: str) -> str:
    """Who has an option that was given to another one."""
    uses = [use for options, use in _USES.items() if name in options]
    return f"it is an option of {' and '.join(uses)}" if uses else ""


@dataclass(frozen=True, slots=True)
class Place:
    """A table of a tenant in a database."""

    database: str = field(repr=False)  # it may hold a password
    table: str
    tenant: str

    @classmethod
    def of(cls, given: GivenOptions) -> Place:
        tenant = given.text("tenant") or DEFAULT_TENANT_NAME
        return cls(given.require("database"), given.require("table"), tenant)


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """What is read: of which table, which records and fields, in how many partitions."""

    place: Place
    where: str | None
    fields: tuple[str, ...] | None
    as_text: tuple[str, ...]
    partitions: int | None
    limit: int | None
    at: datetime | int | Bookmark | None
    """The past moment that is read; None is the present."""

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> ReadOptions:
        """Raises `UsageError` for unknown or missing options."""
        given = GivenOptions(options, READ_OPTIONS)
        text = given.text("at")
        at = None if text is None else parse_moment(text)
        if text is not None and at is None:
            raise given.refuse("at", "a moment: a time with its UTC offset, #12, or a bookmark")
        return cls(
            Place.of(given),
            given.text("where"),
            given.names("fields") or None,
            given.names("as_text"),
            given.count("partitions", 1),
            given.count("limit", 0),
            at,
        )
