"""The Python call that turns a value of another type into one that fits: the hint of its error.

zapdb converts nothing by itself, because a guess would be stored: a float has more digits than were
meant, and a local time has no zone.
"""

from __future__ import annotations

import datetime
import decimal
import enum
import uuid
from typing import Final

_ANY_NUMBER: Final = (int, float, decimal.Decimal)
_CALLS: Final[dict[str, tuple[tuple[type | tuple[type, ...], str], ...]]] = {
    "binary": ((str, "text.encode()"),),
    "boolean": ((int, "bool(number)"), (str, 'text == "true"')),
    "date": (
        (datetime.datetime, "moment.date()"),
        (str, "datetime.date.fromisoformat(text)"),
    ),
    "decimal": (
        (str, "decimal.Decimal(text)"),
        (float, 'decimal.Decimal("1.50"), or round(decimal.Decimal(number), 2)'),
    ),
    "enum": ((enum.Enum, "member.name"),),
    "float": ((decimal.Decimal, "float(number)"), (str, "float(text)")),
    "integer": (
        (bool, "int(value)"),
        ((float, decimal.Decimal), "round(number)"),
        (str, "int(text)"),
    ),
    "list": (((set, frozenset), "sorted(values)"), (str, "[text], or text.split()")),
    "string": (
        (bytes, "raw.decode()"),
        (enum.Enum, "member.value"),
        ((*_ANY_NUMBER, uuid.UUID, datetime.date), "str(value)"),
    ),
    "timestamp": (
        (datetime.datetime, "datetime.datetime.now(datetime.UTC), or moment.astimezone()"),
        (datetime.date, "datetime.datetime.combine(day, datetime.time(), datetime.UTC)"),
        (str, "datetime.datetime.fromisoformat(text), with an offset such as +00:00 in the text"),
    ),
    "uuid": ((str, "uuid.UUID(text)"), (bytes, "uuid.UUID(bytes=raw)"), (int, "uuid.UUID(int=n)")),
    "zoned_timestamp": (
        (datetime.datetime, 'moment.replace(tzinfo=zoneinfo.ZoneInfo("Europe/Paris"))'),
    ),
}
"""By the name of a type: which values are often given in its place, and what makes one of them."""

MISSING: Final = ("NaTType", "NAType")
"""The types of what pandas has in the place of a missing value."""


def hint_for(name: str, value: object) -> str:
    """Return the hint for a value that does not fit the type of this name; an empty text if there
    is none."""
    if value is None:
        return "None fits optional fields only"
    if type(value).__name__ in MISSING:
        return "give None for a missing value"
    if getattr(value, "nanosecond", 0):
        return "times have microseconds here: give moment.floor('us')"
    if name == "timestamp" and getattr(value, "tzinfo", None) is not None:
        return ""  # it is outside the range
    for kinds, call in _CALLS.get(name, ()):
        if isinstance(value, kinds):
            return f"give {call}"
    if hasattr(value, "_fields") and hasattr(value, "_name"):
        return "give the key of the record, such as record.id"
    if hasattr(value, "dtype") and hasattr(value, "item"):  # of numpy
        return "give value.item()"
    return ""
