"""The types in which an answer is sent: DuckDB types whose Arrow form loses data go as text.

Arrow has no unsigned integers of 128 bits (they come back negative), none of any size, no times
with an offset, and its intervals count nanoseconds, of which DuckDB's can have too many.
"""

from __future__ import annotations

from typing import Any, Final

AS_TEXT: Final = frozenset(
    {"uhugeint", "bignum", "bit", "time with time zone", "interval", "type", "variant"}
)
_NESTED: Final = frozenset({"list", "array", "struct", "tuple", "map", "union"})


def transport_type(kind: Any) -> str | None:
    """The type to cast a column to before it travels; None if it travels as it is."""
    return _carried(kind) if _needs_text(kind) else None


def describe_arrow_type(kind: Any) -> dict[str, Any]:
    """A type as plain data: its id, its text, and what it consists of."""
    found = {"id": kind.id, "text": str(kind)}
    if kind.id in _NESTED:
        found["parts"] = [[name, describe_arrow_type(part)] for name, part in _parts(kind)]
    return found


def _needs_text(kind: Any) -> bool:
    if kind.id in _NESTED:
        return any(_needs_text(part) for _, part in _parts(kind))
    return kind.id in AS_TEXT


def _parts(kind: Any) -> list[tuple[str, Any]]:
    children = kind.children
    if kind.id == "array":
        return [child for child in children if child[0] == "child"]
    if kind.id == "union":
        return list(children)[1:]  # the first is the tag
    return list(children)


def _carried(kind: Any) -> str:
    if kind.id in AS_TEXT:
        return "VARCHAR"
    if not _needs_text(kind):
        return str(kind)
    parts = [(name, _carried(part)) for name, part in _parts(kind)]
    match kind.id:
        case "list":
            return f"{parts[0][1]}[]"
        case "array":
            return f"{parts[0][1]}[{dict(kind.children)['size']}]"
        case "map":
            return f"MAP({parts[0][1]}, {parts[1][1]})"
        case "tuple":
            return f"TUPLE({', '.join(part for _, part in parts)})"
    named = ", ".join(f"{quote_identifier(name)} {part}" for name, part in parts)
    return f"{kind.id.upper()}({named})"


def quote_identifier(name: str) -> str:
    """An identifier."""
    return '"' + name.replace('"', '""') + '"'
