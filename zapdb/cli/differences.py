"""The differences between two schemas of a table, as text and as JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final

from zapdb.cli.output import Output
from zapdb.cli.types import show_type, type_to_json
from zapdb.schema import Difference
from zapdb.values import ValueType

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
