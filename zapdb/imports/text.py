"""Text files: their encoding is that of their byte order mark, or what is said, or UTF-8.

Bytes that are not UTF-8 do not end the reading: the row that has them is wrong, like one with a
wrong value, so the error has its line.
"""

from __future__ import annotations

import codecs
import io
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Final, TextIO, cast

from zapdb.errors import InvalidValue, UsageError
from zapdb.imports.given_file import GivenFile
from zapdb.printing import one_line

_MARKS: Final = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_ESCAPED: Final = re.compile("[\udc80-\udcff]")
"""Bytes that were no UTF-8, as Python's surrogateescape keeps them."""
ENCODING_HINT: Final = "say the encoding, as in --encoding latin-1 or --encoding cp1252"


@contextmanager
def opened_text(given: GivenFile, newline: str) -> Iterator[TextIO]:
    """The characters of a file; raises `UsageError` for one in an encoding that is not known."""
    if given.is_stdin and not hasattr(sys.stdin, "buffer"):
        yield sys.stdin  # it is text already
        return
    binary = given.open_binary()
    try:
        buffered = binary
        if not isinstance(buffered, io.BufferedReader):  # standard input that was replaced
            buffered = io.BufferedReader(cast(io.RawIOBase, binary))
        text = io.TextIOWrapper(
            buffered,
            encoding=_find_encoding(given, buffered),
            errors="surrogateescape" if given.encoding is None else "strict",
            newline=newline,
        )
        try:
            yield text
        except UnicodeError as error:
            raise UsageError(
                "the file is not in this encoding",
                source=given.shown,
                encoding=text.encoding,
                problem=str(error),
                hint=ENCODING_HINT,
            ) from None
        finally:
            text.detach()
    finally:
        if not given.is_stdin:
            binary.close()


def _find_encoding(given: GivenFile, stream: IO[bytes]) -> str:
    assert isinstance(stream, io.BufferedReader)
    begin = stream.peek(4)[:4]
    marked = next((name for mark, name in _MARKS if begin.startswith(mark)), None)
    if given.encoding is not None:
        _require_encoding(given.encoding)
        is_utf8 = codecs.lookup(given.encoding).name == "utf-8"
        return "utf-8-sig" if is_utf8 and marked == "utf-8-sig" else given.encoding
    if marked is None and b"\0" in begin:
        raise UsageError(
            "the file is not UTF-8: it begins with a zero byte or has one soon after",
            source=given.shown,
            hint="it may be --encoding utf-16-le, or no text at all",
        )
    return marked or "utf-8"


def _require_encoding(name: str) -> None:
    try:
        "a".encode(name)
    except (LookupError, ValueError):  # of bytes to bytes, such as rot13 or hex, or of nothing
        raise UsageError(
            "Python knows no such encoding of texts", encoding=name, hint=ENCODING_HINT
        ) from None


def require_utf8(text: str, field: str) -> None:
    """Raises `InvalidValue` for a text with bytes that were not UTF-8."""
    if not text.isascii() and _ESCAPED.search(text):
        shown = text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
        raise InvalidValue(
            "the text is not UTF-8", field=field, value=one_line(shown, 60), hint=ENCODING_HINT
        )
