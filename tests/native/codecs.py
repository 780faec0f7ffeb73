"""Both codecs of a table, and what they have to say to the same arguments."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from zapdb.errors import ZapdbError
from zapdb.records import Codec, Record, held, native
from zapdb.records.codec import accelerate, compile_codec, compile_decoder
from zapdb.schema import Index, IndexComponent, TableSchema
from zapdb.tables.indexes.keys import compile_build
from zapdb.values import Blob, StructValue

DECLINED = "declined"


class Declined(Exception):
    """The accelerator leaves it to Python."""


def decline(*_: Any) -> Any:
    raise Declined


@dataclass(frozen=True)
class Pair:
    """A table's codec in Python, the plan with it behind, and the plan alone, which declines."""

    python: Codec
    plan: Codec
    alone: Codec


@dataclass(frozen=True)
class Decoders:
    """As `Pair`, for some of the fields."""

    python: Callable[..., Any]
    plan: Callable[..., Any]
    alone: Callable[..., Any]


def pair_of(table: TableSchema) -> Pair:
    """The table's types are bound."""
    codec = compile_codec(table)
    functions = ("decode", "encode", "skip", "encode_key", "key_of", "decode_key")
    nothing = replace(codec, **dict.fromkeys(functions, decline))
    return Pair(codec, accelerate(table, codec), accelerate(table, nothing))


def decoders_of(table: TableSchema, numbers: frozenset[int]) -> Decoders:
    record, decode = compile_decoder(table, numbers)
    plan = native.plan_decode(table, record, decode, numbers)
    return Decoders(decode, plan, native.plan_decode(table, record, decline, numbers))


@dataclass(frozen=True)
class Builds:
    """As `Pair`, for the keys of an index."""

    python: Callable[..., Any]
    plan: Callable[..., Any]
    alone: Callable[..., Any]


def builds_of(table: TableSchema, components: tuple[IndexComponent, ...]) -> Builds:
    fields = [(table.field_numbered(c.field), c.descending) for c in components]
    build, _ = compile_build(table, Index(1, "tried", components))
    alone = native.accelerate_build(fields, decline)
    return Builds(build, native.accelerate_build(fields, build), alone)


def outcome(function: Callable[..., Any], *arguments: Any) -> Any:
    """What comes back, or is raised, so that only what is the same is equal."""
    try:
        result = function(*arguments)
    except Declined:
        return DECLINED
    except ZapdbError as error:
        return type(error).__name__, str(error), repr(error.context)
    except Exception as error:  # not of zapdb: as wrong, but it has to be the same
        return type(error).__name__, str(error)
    return exact(result)


def exact(value: Any) -> Any:
    """Types, order of objects, folds and classes are part of it: 1, 1.0 and True are three."""
    match value:
        case Record():
            return type(value), [(name, exact(part)) for name, part in held(value).items()]
        case StructValue():
            return type(value), [(name, exact(getattr(value, name))) for name in value._fields]
        case dict():
            return "dict", [(exact(key), exact(part)) for key, part in value.items()]
        case list() | tuple():
            return type(value).__name__, [exact(part) for part in value]
        case Blob():
            return "blob", value.id, value.size
    zone = getattr(value, "tzinfo", None)
    return type(value).__name__, repr(value), getattr(value, "fold", 0), str(zone)
