"""How values of a declared type become values of the type that it is altered to.

A value is converted in all places of the type: in lists, structs and keys of references.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from zapdb.migrations.operations.constraints import nested_types
from zapdb.values import List, Reference, Struct, ValueType

ConvertMember = Callable[[Any], Any]


def within(
    old: ValueType, new: ValueType, declared: ValueType, convert: ConvertMember
) -> ConvertMember:
    """`convert` applied wherever `declared` stands in values of `old`, which become `new`'s."""
    if declared not in nested_types(old):
        return lambda value: value
    if old == declared:
        return convert
    if isinstance(old, Reference) and isinstance(new, Reference):
        key = [within(*kinds, declared, convert) for kinds in zip(old.key, new.key, strict=True)]
        if len(key) == 1:
            return key[0]
        return lambda value: tuple(part(each) for part, each in zip(key, value, strict=True))
    if isinstance(old, List) and isinstance(new, List):
        item = within(old.items, new.items, declared, convert)
        return lambda value: [item(each) for each in value]
    assert isinstance(old, Struct)
    assert isinstance(new, Struct)
    parts = [
        (m.name, within(m.type, n.type, declared, convert))
        for m, n in zip(old.members, new.members, strict=True)
    ]
    made = new.value_class

    def rebuild(value: Any) -> Any:
        held = ((getattr(value, name), part) for name, part in parts)
        return made(*(None if each is None else part(each) for each, part in held))

    return rebuild
