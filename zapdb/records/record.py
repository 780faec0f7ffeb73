"""Records as objects: a class with slots, made for each table shape.

Attributes are the fields in declared order. Field names never begin with an underscore, so nothing
here can collide with one but `asdict`, which `zapdb.records.asdict` replaces then.
"""

from __future__ import annotations

from keyword import iskeyword
from typing import Any, ClassVar

from zapdb.values.source import Namespace, compile_function, indent


class Record:
    """Base of the generated classes; equal when of the same table and equal in every field."""

    __slots__ = ()
    _table: ClassVar[str] = ""
    _fields: ClassVar[tuple[str, ...]] = ()

    def asdict(self) -> dict[str, Any]:
        return asdict(self)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Record):
            return NotImplemented
        return self._table == other._table and asdict(self) == asdict(other)

    __hash__ = None  # type: ignore[assignment]  # fields may be lists and objects

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={getattr(self, name)!r}" for name in self._fields)
        return f"{self._table}({shown})"

    def __reduce__(self) -> tuple[Any, ...]:
        values = tuple(getattr(self, name) for name in self._fields)
        return _rebuild, (self._table, self._fields, values)


def asdict(record: Record) -> dict[str, Any]:
    """The record's fields by name, in declared order."""
    return {name: getattr(record, name) for name in record._fields}


def make_record_class(table: str, fields: tuple[str, ...]) -> type[Record]:
    """A class with one positional argument and slot per field."""
    parameters = [f"f{at}" for at in range(len(fields))]
    lines = [
        f"def __init__({', '.join(['self', *parameters])}):",
        *indent(
            [_set_source(name, given) for name, given in zip(fields, parameters, strict=True)]
            or ["pass"]
        ),
    ]
    initialize, _ = compile_function("__init__", lines, Namespace(), f"record {table}")
    body = {"__slots__": fields, "__init__": initialize, "_table": table, "_fields": fields}
    return type(table, (Record,), body)


def _set_source(name: str, given: str) -> str:
    # `class` and the like are good names for a field, but no attribute that source text can set.
    return f"setattr(self, {name!r}, {given})" if iskeyword(name) else f"self.{name} = {given}"


_classes: dict[tuple[str, tuple[str, ...]], type[Record]] = {}


def record_class(table: str, fields: tuple[str, ...]) -> type[Record]:
    """The class for this shape; one per process, so that records of one shape share it."""
    return _classes.get((table, fields)) or _classes.setdefault(
        (table, fields), make_record_class(table, fields)
    )


def _rebuild(table: str, fields: tuple[str, ...], values: tuple[Any, ...]) -> Record:
    return record_class(table, fields)(*values)
