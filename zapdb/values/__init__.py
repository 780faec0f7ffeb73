"""The value types, each in one file, registered here and nowhere else."""

from __future__ import annotations

from typing import Any, Final

from zapdb.values.base import ValueType
from zapdb.values.binary import Binary
from zapdb.values.boolean import Boolean
from zapdb.values.date import Date
from zapdb.values.decimal import Decimal
from zapdb.values.float import Float
from zapdb.values.integer import Integer
from zapdb.values.json import Json
from zapdb.values.string import String
from zapdb.values.timestamp import Timestamp
from zapdb.values.uuid import Uuid

__all__ = [
    "VALUE_TYPES",
    "Binary",
    "Boolean",
    "Date",
    "Decimal",
    "Float",
    "Integer",
    "Json",
    "String",
    "Timestamp",
    "Uuid",
    "ValueType",
    "make_type",
]

VALUE_TYPES: Final[dict[str, type[ValueType]]] = {
    kind.name: kind
    for kind in (
        Integer,
        Decimal,
        Boolean,
        Date,
        Timestamp,
        Binary,
        String,
        Json,
        Uuid,
        Float,
    )
}


def make_type(name: str, parameters: dict[str, Any]) -> ValueType:
    """The type that a migration file calls `name`; raises `TypeError` on wrong parameters."""
    return VALUE_TYPES[name](**parameters)
