"""Types, and the differences between two schemas of a table, as text."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from zapdb.cli.output import Output
from zapdb.control.catalog import SchemaDifference

MEMBERS_SHOWN_MAX = 6


def show_type(kind: Mapping[str, Any]) -> str:
    """A type as JSON has it, as `decimal (scale 2)`, `list of string`, `reference to people`,
    `state (waiting, paid)`."""
    name: str = kind["name"]
    match kind:
        case {"scale": scale}:
            return f"{name} (scale {scale})"
        case {"of": items}:
            return f"list of {show_type(items)}"
        case {"to": table}:
            return f"reference to {table}"
        case {"enum": members} | {"struct": members}:
            return f"{name} ({_shorten([member['name'] for member in members])})"
    return name


def _shorten(names: list[str]) -> str:
    shown = ", ".join(names[:MEMBERS_SHOWN_MAX])
    return shown if len(names) <= MEMBERS_SHOWN_MAX else f"{shown}, …"


SIGNS: Final = {
    "added": ("+", "green"),
    "removed": ("-", "red"),
    "changed": ("~", "yellow"),
}
_ABSENT: Final = "(none)"


def write_differences(output: Output, differences: Sequence[SchemaDifference]) -> None:
    for difference in differences:
        name, number = difference.name, difference.number
        what = f" {difference.part} {name} ({number}): " + "; ".join(_describe(difference))
        output.write(SIGNS[difference.change], what)
    if not differences:
        output.write("no difference")


def _describe(difference: SchemaDifference) -> list[str]:
    before, after = difference.before or {}, difference.after or {}
    if difference.change == "changed":
        return [
            f"{_words(name)} {_show_change(name, before, after)}" for name in {**before, **after}
        ]
    whole = after or before
    return [text for name in whole if (text := _show_whole(name, whole[name]))]


def _words(name: str) -> str:
    return "order of fields" if name == "order_of_fields" else name


def _show_change(name: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    shown = [_show(name, side[name]) if name in side else _ABSENT for side in (before, after)]
    if shown[0] == shown[1]:  # such as enums that differ in a member that is not shown
        shown = [json.dumps(side[name]) for side in (before, after)]
    return " → ".join(shown)


def _show_whole(name: str, value: Any) -> str:
    """Return the text of an attribute of an added or removed part; empty for the name and for
    false."""
    if name == "name" or value is False:
        return ""
    if value is True:
        return _words(name)
    shown = _show(name, value)
    return shown if name in ("type", "fields", "expression") else f"{_words(name)} {shown}"


def _show(name: str, value: Any) -> str:
    if name == "type":
        return show_type(value)
    if name == "default":
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(value)
    return str(value).replace("_", " ") if name == "on_delete" else str(value)
