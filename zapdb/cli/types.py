"""Types as commands show them: in words, and as JSON."""

from __future__ import annotations

from typing import Any

from zapdb.values import Decimal, Enum, List, Reference, Struct, ValueType

MEMBERS_SHOWN_MAX = 6


def show_type(kind: ValueType) -> str:
    """As `decimal (scale 2)`, `list of string`, `reference to people`, `state (waiting, paid)`."""
    match kind:
        case Decimal(scale):
            return f"{kind.name} (scale {scale})"
        case List(items):
            return f"list of {show_type(items)}"
        case Reference(table):
            return f"reference to {table}"
        case Enum():
            return f"{kind} ({_shorten([name for _, name in kind.members])})"
        case Struct():
            return f"{kind} ({_shorten([member.name for member in kind.members])})"
    return kind.name


def _shorten(names: list[str]) -> str:
    shown = ", ".join(names[:MEMBERS_SHOWN_MAX])
    return shown if len(names) <= MEMBERS_SHOWN_MAX else f"{shown}, …"


def type_to_json(kind: ValueType) -> dict[str, Any]:
    """`name` with the type's parameters; declared types with all of their members."""
    match kind:
        case Decimal(scale):
            return {"name": kind.name, "scale": scale}
        case List(items):
            return {"name": kind.name, "of": type_to_json(items)}
        case Reference(table, number, key):
            parts = [type_to_json(part) for part in key]
            return {"name": kind.name, "to": table, "number": number, "key": parts}
        case Enum(declared_name, number, members):
            named = [{"name": name, "number": at} for at, name in members]
            return {"name": declared_name, "number": number, "enum": named}
        case Struct(declared_name, number, members):
            described = [
                {
                    "name": member.name,
                    "number": member.number,
                    "type": type_to_json(member.type),
                    "optional": member.optional,
                }
                for member in members
            ]
            return {"name": declared_name, "number": number, "struct": described}
    return {"name": kind.name}
