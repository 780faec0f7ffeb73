"""Types, and the differences between two schemas of a table, as text and as JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final

from zapdb.cli.output import Output
from zapdb.schema import Difference
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


SIGNS: Final = {
    "added": ("+", "green"),
    "removed": ("-", "red"),
    "changed": ("~", "yellow"),
}
_ABSENT: Final = "(none)"


def write_differences(output: Output, differences: Sequence[Difference]) -> None:
    for difference in differences:
        name, number = difference.name, difference.number
        what = f" {difference.part} {name} ({number}): " + "; ".join(_describe(difference))
        output.write(SIGNS[difference.change], what)
    if not differences:
        output.write("no difference")


def _describe(difference: Difference) -> list[str]:
    before, after = difference.before, difference.after
    if difference.change == "changed":
        return [f"{name} {_show_change(name, before, after)}" for name in {**before, **after}]
    whole = after or before
    return [text for name in whole if (text := _show_whole(name, whole[name]))]


def _show_change(name: str, before: dict[str, Any], after: dict[str, Any]) -> str:
    shown = [_show(name, side[name]) if name in side else _ABSENT for side in (before, after)]
    if shown[0] == shown[1]:  # such as enums that differ in a member that is not shown
        shown = [json.dumps(_attribute_to_json(side[name])) for side in (before, after)]
    return " → ".join(shown)


def _show_whole(name: str, value: Any) -> str:
    """Return the text of an attribute of an added or removed part; empty for the name and for
    false."""
    if name == "name" or value is False:
        return ""
    if value is True:
        return name
    shown = _show(name, value)
    return shown if name in ("type", "fields", "expression") else f"{name} {shown}"


def _show(name: str, value: Any) -> str:
    if isinstance(value, ValueType):
        return show_type(value)
    if name == "default":
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(value)
    return str(value).replace("_", " ") if name == "on_delete" else str(value)


def difference_to_json(difference: Difference) -> dict[str, Any]:
    """Return a difference as JSON; `before` is null for an added part, `after` for a removed
    one."""
    return {
        "part": difference.part,
        "number": difference.number,
        "name": difference.name,
        "change": difference.change,
        "before": _attributes_to_json(difference.before, difference.change != "added"),
        "after": _attributes_to_json(difference.after, difference.change != "removed"),
    }


def _attributes_to_json(attributes: dict[str, Any], is_there: bool) -> dict[str, Any] | None:
    if not is_there:
        return None
    return {name.replace(" ", "_"): _attribute_to_json(v) for name, v in attributes.items()}


def _attribute_to_json(value: Any) -> Any:
    return type_to_json(value) if isinstance(value, ValueType) else value
