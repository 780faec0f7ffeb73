"""The structural difference of two migrations: where they part, field by field."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import cbor2

from zapdb.limits import VIOLATIONS_SHOWN_MAX

MISSING: Final = "(absent)"


def diff_structures(stored: bytes, given: bytes) -> list[str]:
    """Lines such as `changes[0].add_field.field.name: 'fax' stored, 'phone' in the file`."""
    lines = [
        f"{path}: {_show(left)} stored, {_show(right)} in the file"
        for path, left, right in _walk("", cbor2.loads(stored), cbor2.loads(given))
    ]
    if len(lines) > VIOLATIONS_SHOWN_MAX:
        rest = len(lines) - VIOLATIONS_SHOWN_MAX
        lines = [*lines[:VIOLATIONS_SHOWN_MAX], f"… and {rest} more"]
    return lines


def _show(value: Any) -> str:
    text = value if value == MISSING else repr(value)
    return text if len(text) <= 80 else text[:79] + "…"


def _walk(path: str, left: Any, right: Any) -> Iterator[tuple[str, Any, Any]]:
    if isinstance(left, dict) and isinstance(right, dict):
        for key in sorted(left.keys() | right.keys()):
            inner = f"{path}.{key}" if path else key
            yield from _walk(inner, left.get(key, MISSING), right.get(key, MISSING))
    elif isinstance(left, list) and isinstance(right, list):
        for at in range(max(len(left), len(right))):
            yield from _walk(
                f"{path}[{at}]",
                left[at] if at < len(left) else MISSING,
                right[at] if at < len(right) else MISSING,
            )
    elif left != right or type(left) is not type(right):
        yield path, left, right
