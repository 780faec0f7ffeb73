"""Texts of others on their way to a terminal, a log or an error: nothing in them is obeyed.

Data and documents hold whatever somebody wrote into them: escapes that move a terminal's cursor,
characters that turn the direction of a line, and line ends behind which a line of zapdb's own could
be imitated. They are written as escapes wherever a text is put into a line, and long ones are cut.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

from zapdb.limits import ERROR_VALUE_CHARS_MAX

CUT: Final = "…"
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def printable(text: str) -> str:
    """The text with escapes for what is not printable, line ends aside."""
    if text.isprintable():
        return text
    return "".join(c if c == "\n" else _escape(c) for c in text)


def one_line(text: str, longest: int = ERROR_VALUE_CHARS_MAX) -> str:
    """The same in one line, of at most so many characters: line ends are escapes, too."""
    if len(text) > longest:
        text = text[: longest - 1] + CUT
    return text if text.isprintable() else "".join(map(_escape, text))


def _escape(character: str) -> str:
    if character.isprintable():
        return character
    return character.encode("unicode_escape").decode()


def show_moment(at: datetime | int) -> str:
    """A moment, or microseconds since 1970-01-01 UTC, to the second."""
    if isinstance(at, int):
        try:
            at = _EPOCH + timedelta(microseconds=at)
        except OverflowError:
            return f"{at} µs"
    if not isinstance(at, datetime):  # of a row that somebody else wrote
        return repr(at)
    return f"{at:%Y-%m-%d %H:%M:%S} UTC"


class ShownText(str):
    """A text of several lines that a prompt shows as it is, without quotes and escapes."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)
