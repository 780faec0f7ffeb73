"""Values as plain JSON, for web endpoints and other readers that do not know the schema.

Only types are lost. Decimals are strings, to keep their digits, because most readers read JSON's
numbers as floats. A zoned timestamp keeps its zone (RFC 9557).
"""

from __future__ import annotations

import base64
import datetime
import decimal
import functools
import math
import uuid
from typing import TYPE_CHECKING, Any, ClassVar

from zapdb.limits import COMPILED_MAX

if TYPE_CHECKING:
    from pydantic_core import CoreSchema, SchemaSerializer


class Parts:
    """Values with named parts: records and structs. See `zapdb.values.struct_value`."""

    __slots__ = ()
    _name: ClassVar[str] = ""
    _fields: ClassVar[tuple[str, ...]] = ()


def asdict(instance: Parts) -> dict[str, Any]:
    """Return the parts by name, in declared order; structs in them become dicts, too.

    Lists and objects in them are copied, so changing the result changes no record.
    """
    return {name: _plain(getattr(instance, name)) for name in instance._fields}


def _plain(value: Any) -> Any:
    if isinstance(value, Parts):
        return asdict(value)
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return value


def to_json(value: Any) -> Any:  # noqa: C901 - a case for each type
    """Return a record, a struct, a value, or lists and dicts of these, as plain data for JSON.

    Decimals are strings; dates and timestamps ISO 8601, and zoned timestamps with their zone, as in
    `2024-05-31T12:00:00+02:00[Europe/Vienna]`; binary is base64; members of enums are their names;
    keys of several fields are lists; floats that JSON lacks are `"nan"`, `"inf"` and `"-inf"`.
    Records that a query included are left out. Large values are loaded, which raises `BlobMissing`
    if the record was changed meanwhile. Raises `TypeError` for other values, so that it fits
    `json.dumps(…, default=zapdb.to_json)`.
    """
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if math.isfinite(value) else repr(value)
        case Parts():
            return {name: to_json(getattr(value, name)) for name in value._fields}
        case decimal.Decimal():
            return format(value, "f")
        case datetime.datetime():
            return _show_time(value)
        case datetime.date():
            return value.isoformat()
        case uuid.UUID():
            return str(value)
        case bytes():
            return base64.b64encode(value).decode()
        case list() | tuple():
            return [to_json(item) for item in value]
        case dict():
            return {str(key): to_json(item) for key, item in value.items()}
    raise TypeError(f"zapdb.to_json takes records and their values, not {type(value).__name__}")


def _show_time(time: datetime.datetime) -> str:
    zone = getattr(time.tzinfo, "key", None)
    return time.isoformat() if zone is None else f"{time.isoformat()}[{zone}]"


def core_schema_of(kind: type[Parts]) -> CoreSchema:
    """Return pydantic's schema of a class of records: it accepts its objects, and writes them by
    `to_json`.

    It cannot read records from JSON, because only a table knows the types of the values.
    """
    from pydantic_core import core_schema

    dumped = core_schema.plain_serializer_function_ser_schema(_dump, info_arg=True)
    return core_schema.is_instance_schema(kind, serialization=dumped)


@functools.lru_cache(COMPILED_MAX)
def serializer_of(kind: type[Parts]) -> SchemaSerializer:
    """Return the serializer that pydantic uses for an object whose type is not declared."""
    from pydantic_core import SchemaSerializer

    return SchemaSerializer(core_schema_of(kind))


def _dump(instance: Parts, info: Any) -> dict[str, Any]:
    return to_json(instance) if info.mode == "json" else asdict(instance)


def json_schema_of(kind: type[Parts]) -> dict[str, Any]:
    """Return the JSON Schema of such records as `to_json` writes them."""
    if not kind._name:  # any record
        return {"type": "object"}
    return {
        "title": kind._name,
        "type": "object",
        "properties": {name: {} for name in kind._fields},
        "required": list(kind._fields),
        "additionalProperties": False,
    }
