"""What the functions of expressions do with texts, dates and times, and from one type to another.

Texts: by code points and bytes alone, and no result longer than a string may be. What may grow is
bounded before it is built, so that no call takes more than a few times the longest string. Case
mapping and white space are ASCII's. Dates and times: the proleptic Gregorian calendar in UTC, and
no time zone data; one spelling of each date, and RFC 3339 with `T` and `Z` of each instant. From
one type to another: exact, or no result.
"""

from __future__ import annotations

import datetime
import decimal
import math
import re
import uuid
from collections.abc import Iterable, Iterator
from typing import Any, Final

from zapdb.expressions.arithmetic import FAILED
from zapdb.limits import VALUE_SIZE_BYTES_MAX
from zapdb.values.decimal import EXACT, with_scale
from zapdb.values.varint import INTEGER_MAX, INTEGER_MIN

LOWER = {c: c + 32 for c in range(ord("A"), ord("Z") + 1)}
UPPER = {c: c - 32 for c in range(ord("a"), ord("z") + 1)}
CHARS_SAFE = VALUE_SIZE_BYTES_MAX // 4
"""So few characters are never more bytes than a string may have."""


def decode_cut(raw: bytes) -> str:
    """The text of UTF-8 bytes, cut at the limit between two characters."""
    return raw[:VALUE_SIZE_BYTES_MAX].decode(errors="ignore")


def before(text: str, separator: str) -> str:
    return text.partition(separator)[0] if separator else text


def after(text: str, separator: str) -> str:
    return text.partition(separator)[2] if separator else ""


def part(text: str, separator: str, number: int) -> str:
    if not separator:
        return text if number == 1 else ""
    if number < 1 or number > text.count(separator) + 1:
        return ""
    start = 0
    for _ in range(number - 1):
        start = text.index(separator, start) + len(separator)
    end = text.find(separator, start)
    return text[start:] if end < 0 else text[start:end]


def substring(text: str, start: int, count: int) -> str:
    end = start + count - 1
    return text[max(start, 1) - 1 : end] if count > 0 and end > 0 else ""


def join_text(separator: str, *texts: str) -> str:
    if sum(map(len, texts)) + len(separator) * (len(texts) - 1) <= CHARS_SAFE:
        return separator.join(texts)
    return _put_together(_alternate(separator, texts))


def _alternate(separator: str, texts: Iterable[str]) -> Iterator[str]:
    for at, text in enumerate(texts):
        if at:
            yield separator
        yield text


def _put_together(parts: Iterable[str]) -> str:
    """Return the parts joined and cut at the limit; parts beyond the limit are not read."""
    kept, size = [], 0
    for text in parts:
        kept.append(text.encode())
        size += len(kept[-1])
        if size > VALUE_SIZE_BYTES_MAX:
            break
    return decode_cut(b"".join(kept))


def replace_text(text: str, old: str, new: str) -> str:
    if not old:
        return text
    if len(text) + text.count(old) * max(len(new) - len(old), 0) <= CHARS_SAFE:
        return text.replace(old, new)
    # In UTF-8, where a character never begins inside another. So many replacements pass the limit.
    raw = new.encode()
    enough = VALUE_SIZE_BYTES_MAX // len(raw) + 1 if raw else -1
    return decode_cut(text.encode().replace(old.encode(), raw, enough))


def lower(text: str) -> str:
    return text.translate(LOWER)


def upper(text: str) -> str:
    return text.translate(UPPER)


def strip(text: str) -> str:
    return text.strip(" \t\r\n")


INTEGER_TEXT: Final = re.compile(r"-?[0-9]{1,152}", re.ASCII)
DECIMAL_TEXT: Final = re.compile(r"-?[0-9]{1,152}(\.[0-9]{1,64})?", re.ASCII)
FLOAT_TEXT: Final = re.compile(r"-?[0-9]{1,400}(\.[0-9]{1,1100})?(e[+-]?[0-9]{1,4})?", re.ASCII)
FLOAT_WORDS: Final = frozenset({"nan", "inf", "-inf"})
"""As `text` shows the floats that are no numbers."""
UUID_TEXT: Final = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}", re.ASCII)
HEX_TEXT: Final = re.compile(r"[0-9a-fA-F]*", re.ASCII)


def to_text(value: Any) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case decimal.Decimal():
            return format(value, "f")
        case datetime.datetime():
            return show_timestamp(value)
        case bytes():
            return to_hex(value)
        case _:  # of a float, the shortest digits that give it back
            return str(value)


def to_integer(value: Any) -> Any:
    if isinstance(value, decimal.Decimal):
        whole = int(value)
        return whole if whole == value else FAILED
    if not INTEGER_TEXT.fullmatch(value):
        return FAILED
    number = int(value)
    return number if INTEGER_MIN <= number <= INTEGER_MAX else FAILED


def to_decimal(value: Any, scale: int) -> Any:
    """Exact or nothing: digits that the scale has no room for make the call fail."""
    if isinstance(value, str):
        if not DECIMAL_TEXT.fullmatch(value):
            return FAILED
        value = decimal.Decimal(value)
    try:
        scaled = EXACT.to_integral_exact(EXACT.scaleb(value, scale))
    except (decimal.Inexact, decimal.Overflow, decimal.InvalidOperation):
        return FAILED
    if not INTEGER_MIN <= scaled <= INTEGER_MAX:
        return FAILED
    return with_scale(int(scaled), scale)


def to_float(value: Any) -> Any:
    """The nearest float, ties to even; beyond the largest there is none."""
    if isinstance(value, str):
        if value in FLOAT_WORDS:
            return float(value)
        if not FLOAT_TEXT.fullmatch(value):
            return FAILED
    number = float(value) + 0.0  # −0.0 + 0.0 is 0.0
    return FAILED if math.isinf(number) else number


def to_hex(value: bytes) -> str:
    return value[: VALUE_SIZE_BYTES_MAX // 2].hex()


def from_hex(text: str) -> Any:
    if len(text) % 2 or not HEX_TEXT.fullmatch(text):
        return FAILED
    return bytes.fromhex(text)


def from_utf8(value: bytes) -> Any:
    if len(value) > VALUE_SIZE_BYTES_MAX:
        return FAILED
    try:
        return value.decode()
    except UnicodeDecodeError:
        return FAILED


def to_bytes(text: str) -> bytes:
    return text.encode()


def to_uuid(text: str) -> Any:
    return uuid.UUID(text) if UUID_TEXT.fullmatch(text) else FAILED


DATE_TEXT: Final = re.compile(r"([0-9]{4})-([0-9]{2})-([0-9]{2})", re.ASCII)
TIMESTAMP_TEXT: Final = re.compile(
    DATE_TEXT.pattern + r"T([0-9]{2}):([0-9]{2}):([0-9]{2})(?:\.([0-9]{1,6}))?Z", re.ASCII
)
ORDINAL_MAX: Final = datetime.date.max.toordinal()


def year(day: datetime.date) -> int:
    return day.year


def month(day: datetime.date) -> int:
    return day.month


def day(day: datetime.date) -> int:
    return day.day


def to_date(text: str) -> Any:
    match = DATE_TEXT.fullmatch(text)
    if match is None:
        return FAILED
    try:
        return datetime.date(*map(int, match.groups()))
    except ValueError:  # no such day
        return FAILED


def date_of(instant: datetime.datetime) -> datetime.date:
    return instant.date()


def add_days(day: datetime.date, days: int) -> Any:
    ordinal = day.toordinal() + days
    return datetime.date.fromordinal(ordinal) if 1 <= ordinal <= ORDINAL_MAX else FAILED


def days_between(first: datetime.date, second: datetime.date) -> int:
    return second.toordinal() - first.toordinal()


def to_timestamp(text: str) -> Any:
    match = TIMESTAMP_TEXT.fullmatch(text)
    if match is None:
        return FAILED
    *parts, fraction = match.groups(default="")
    microseconds = datetime.timedelta(microseconds=int(fraction.ljust(6, "0")))
    try:
        year, month, day, hour, minute, second = map(int, parts)
        instant = datetime.datetime(year, month, day, hour, minute, second, tzinfo=datetime.UTC)
    except ValueError:  # no such day, or no such time; a leap second is none either
        return FAILED
    return instant + microseconds


def timestamp_of(day: datetime.date) -> datetime.datetime:
    return datetime.datetime(day.year, day.month, day.day, tzinfo=datetime.UTC)


def show_timestamp(instant: datetime.datetime) -> str:
    return instant.replace(tzinfo=None).isoformat() + "Z"


def local_date(local: datetime.datetime) -> datetime.date:
    """By the wall clock that is stored: no offset comes into it."""
    return local.date()


def zone_name(local: datetime.datetime) -> str:
    return str(local.tzinfo)
