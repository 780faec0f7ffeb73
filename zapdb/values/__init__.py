"""The value types, each in one file, registered here and nowhere else."""

from __future__ import annotations

from typing import Final

from zapdb.values.binary import Binary
from zapdb.values.blob import Blob, is_same_held
from zapdb.values.boolean import Boolean
from zapdb.values.date import Date
from zapdb.values.decimal import Decimal
from zapdb.values.enum import Enum
from zapdb.values.float import Float
from zapdb.values.integer import Integer
from zapdb.values.json import Json
from zapdb.values.list import List
from zapdb.values.reference import Reference
from zapdb.values.string import String
from zapdb.values.struct import Member, Struct
from zapdb.values.struct_value import StructValue, etag, replace
from zapdb.values.timestamp import Timestamp
from zapdb.values.to_json import asdict, to_json
from zapdb.values.uuid import Uuid
from zapdb.values.value_type import ValueType
from zapdb.values.zoned_timestamp import ZonedTimestamp
from zapdb.values.zones import Zones

__all__ = [
    "VALUE_TYPES",
    "Binary",
    "Blob",
    "Boolean",
    "Date",
    "Decimal",
    "Enum",
    "Float",
    "Integer",
    "Json",
    "List",
    "Member",
    "Reference",
    "String",
    "Struct",
    "StructValue",
    "Timestamp",
    "Uuid",
    "ValueType",
    "ZonedTimestamp",
    "Zones",
    "asdict",
    "etag",
    "is_same_held",
    "replace",
    "to_json",
]

VALUE_TYPES: Final[dict[str, type[ValueType]]] = {
    kind.name: kind
    for kind in (
        Integer,
        Decimal,
        Boolean,
        Date,
        Timestamp,
        ZonedTimestamp,
        Binary,
        String,
        Json,
        Uuid,
        Float,
        Reference,
        Enum,
        Struct,
        List,
    )
}
