"""What a TZif file does: its offsets from UTC over time, in a form that packaging can't change.

One zone can be written in many ways. Fat files repeat in transitions up to 2037 what slim ones say
in the rule at the end; a transition may change nothing but the abbreviation; winter time may be the
standard or the saving (Europe/Dublin). `describe_zone` reads a file (RFC 9636) and brings all of
them to one form, which is equal exactly where the offsets are:

    transitions   (UTC instant in seconds, offset after it in seconds) where the offset changes, the
                  first with no instant; those of the rule are written out up to the end of 2037
    rule          what holds afterwards: a fixed offset, or the yearly changes, each as
                  (date, seconds from that day's midnight UTC, offset after it)

Abbreviations and the difference between standard and saving time are left out: no key depends on
them. What the standard leaves to the reader is done as `zoneinfo` does it.
"""

from __future__ import annotations

import calendar
import json
import re
import struct
from dataclasses import dataclass
from datetime import date
from itertools import pairwise
from typing import Final

DAY: Final = 86_400
_EPOCH: Final = date(1970, 1, 1).toordinal()
WRITTEN_OUT_UNTIL: Final = (date(2038, 1, 1).toordinal() - _EPOCH) * DAY
"""Where fat files end."""

_HEADER: Final = struct.Struct(">4sc15x6l")


@dataclass(frozen=True, slots=True)
class YearlyDate:
    """A day of each year: `kind` J is 1 … 365 without leap days, N counts from 0 with them, and M
    is a weekday (0 is Sunday) of week 1 … 5 of a month, 5 being the last.
    """

    kind: str
    numbers: tuple[int, ...]

    def in_year(self, year: int) -> int:
        """Days since 1970-01-01."""
        first = date(year, 1, 1).toordinal() - _EPOCH
        if self.kind == "N":
            return first + self.numbers[0]
        if self.kind == "J":
            (day,) = self.numbers
            return first + day - 1 + (day >= 60 and calendar.isleap(year))
        month, week, weekday = self.numbers
        start, size = calendar.monthrange(year, month)  # weekday 0 is Monday here
        day = (weekday - start - 1) % 7 + 7 * (week - 1)
        return date(year, month, 1 + (day if day < size else day - 7)).toordinal() - _EPOCH


RuleChange = tuple[YearlyDate, int, int]
"""A yearly change: the date, the seconds from its midnight UTC, the offset after it."""


@dataclass(frozen=True, slots=True)
class YearlyRule:
    """What holds after the last transition: one offset, or else yearly changes."""

    offset: int | None
    changes: tuple[RuleChange, ...] = ()


@dataclass(frozen=True, slots=True)
class Description:
    """A zone in its one form; see the module."""

    transitions: tuple[tuple[int | None, int], ...]
    rule: YearlyRule

    def to_json(self) -> str:
        """The form that fingerprints cover: indexes are rebuilt if it changes."""
        changes = [
            [date.kind, date.numbers, seconds, offset]
            for date, seconds, offset in self.rule.changes
        ]
        plain = [self.transitions, self.rule.offset, changes]
        return json.dumps(plain, separators=(",", ":"))


def describe_zone(data: bytes) -> Description:
    """Raises `ValueError` for bytes that are no TZif file, or one with leap seconds."""
    instants, offsets, before, footer = _read(data)
    rule = read_rule(footer) if footer else YearlyRule(offsets[-1] if offsets else before)
    if not instants:  # then the rule has always held
        return Description((), rule)
    found = list(zip(instants, offsets, strict=True))
    found += _write_out(rule, instants[-1])
    transitions: list[tuple[int | None, int]] = [(None, before)]
    for instant, offset in found:
        if offset != transitions[-1][1]:
            transitions.append((instant, offset))
    return Description(tuple(transitions), rule)


def _write_out(rule: YearlyRule, after: int) -> list[tuple[int, int]]:
    """The changes that a rule makes after an instant, as long as fat files would."""
    found = [
        (change.in_year(year) * DAY + seconds, offset)
        for year in range(date.fromordinal(max(1, _EPOCH + after // DAY)).year, 2038)
        for change, seconds, offset in rule.changes
    ]
    return sorted(pair for pair in found if after < pair[0] < WRITTEN_OUT_UNTIL)


def _read(data: bytes) -> tuple[list[int], list[int], int, str]:
    """Instants and offsets of the transitions, the offset before them, and the footer."""
    version, counts = _read_header(data, 0)
    position, width = _HEADER.size, 4
    if version >= b"2":  # the same again, with wide instants: the first copy is for old readers
        position += _size(counts, 4)
        _, counts = _read_header(data, position)
        position, width = position + _HEADER.size, 8
    end = position + _size(counts, width)
    if end > len(data):
        raise ValueError("the file is cut short")
    _, _, leap_count, time_count, type_count, _ = counts
    if leap_count:
        raise ValueError("the file counts leap seconds")
    instants = list(
        struct.unpack_from(f">{time_count}{'l' if width == 4 else 'q'}", data, position)
    )
    position += time_count * width
    indexes = data[position : position + time_count]
    position += time_count
    types = list(struct.iter_unpack(">l?B", data[position : position + type_count * 6]))
    if not types or max(indexes, default=0) >= type_count:
        raise ValueError("a transition has no type")
    if any(left >= right for left, right in pairwise(instants)):
        raise ValueError("the transitions are not in order")
    offsets = [types[index][0] for index in indexes]
    standard = [offset for offset, is_saving, _ in types if not is_saving]
    before = (standard or offsets or [types[0][0]])[0]
    if width == 4:
        return instants, offsets, before, ""
    footer = data[end:].split(b"\n")
    if len(footer) != 3 or footer[0]:
        raise ValueError("the file has no footer")
    return instants, offsets, before, footer[1].decode("ascii")


def _read_header(data: bytes, position: int) -> tuple[bytes, tuple[int, ...]]:
    if len(data) < position + _HEADER.size:
        raise ValueError("the file is cut short")
    magic, version, *counts = _HEADER.unpack_from(data, position)
    if magic != b"TZif" or min(counts) < 0:
        raise ValueError("this is no TZif file")
    return version, tuple(counts)


def _size(counts: tuple[int, ...], width: int) -> int:
    """Bytes of a data block after its header."""
    utc_count, standard_count, leap_count, time_count, type_count, char_count = counts
    transitions = time_count * (width + 1)
    leaps = leap_count * (width + 4)
    return transitions + type_count * 6 + char_count + leaps + standard_count + utc_count


# --- the rule at the end: a POSIX TZ string, with the hours that RFC 9636 allows ------------------

_NAME: Final = r"(?:[A-Za-z]{3,}|<[A-Za-z0-9+-]{3,}>)"
TIME: Final = r"[+-]?\d{1,3}(?::\d\d(?::\d\d)?)?"
DATE: Final = rf"(?:J\d+|\d+|M\d+\.\d\.\d)(?:/{TIME})?"
RULE: Final = re.compile(rf"{_NAME}({TIME})(?:{_NAME}({TIME})?,({DATE}),({DATE}))?", re.ASCII)


def read_rule(text: str) -> YearlyRule:
    """The rule of a footer, such as `EST5EDT,M3.2.0,M11.1.0`; raises `ValueError`."""
    match = RULE.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is no rule")
    standard_text, saving_text, start, end = match.groups()
    standard = -_read_seconds(standard_text)  # POSIX counts westwards
    if start is None:
        return YearlyRule(standard)
    saving = standard + 3_600 if saving_text is None else -_read_seconds(saving_text)
    changes = (_read_change(start, standard, saving), _read_change(end, saving, standard))
    if standard == saving:
        return YearlyRule(standard)
    # In one order, so that it does not matter which of the two offsets is called the standard.
    ordered = sorted(changes, key=lambda change: (change[0].kind, change[0].numbers, *change[1:]))
    return YearlyRule(None, tuple(ordered))


def _read_change(text: str, before: int, after: int) -> RuleChange:
    day, _, time = text.partition("/")
    kind = day[0] if day[0] in "JM" else "N"
    numbers = tuple(map(int, day.removeprefix(kind).split(".")))
    valid = {
        "J": lambda: 1 <= numbers[0] <= 365,
        "N": lambda: numbers[0] <= 365,
        "M": lambda: 1 <= numbers[0] <= 12 and 1 <= numbers[1] <= 5 and numbers[2] <= 6,
    }
    if not valid[kind]():
        raise ValueError(f"{text!r} is no date of a rule")
    return YearlyDate(kind, numbers), _read_seconds(time or "2") - before, after


def _read_seconds(text: str) -> int:
    hours, minutes, seconds = ([*map(int, text.lstrip("+-").split(":")), 0, 0])[:3]
    if hours > 167 or minutes > 59 or seconds > 59:
        raise ValueError(f"{text!r} is no time of a rule")
    size = hours * 3_600 + minutes * 60 + seconds
    return -size if text.startswith("-") else size
