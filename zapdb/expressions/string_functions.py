"""Functions of texts: by code points and bytes alone, and no result longer than a string may be.

What may grow is bounded before it is built, so that no call takes more than a few times the longest
string. Case mapping and white space are ASCII's.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from zapdb.limits import VALUE_SIZE_BYTES_MAX

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
