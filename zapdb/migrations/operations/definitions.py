"""Types and fields as documents define them: what builds them, and what describes them again.

{type: decimal, scale: 2}        {type: list, of: string}        {type: list, of: {type: …}}
{type: reference, to: people}    {type: item_state}, a declared enum or struct
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, Self

from zapdb.errors import InvalidValue, Location, UnknownZone
from zapdb.limits import TYPE_DEPTH_MAX
from zapdb.migrations.did_you_mean_key import TYPE_HABITS, TYPE_NOTES, hint_at
from zapdb.migrations.document import Scalar
from zapdb.migrations.document_structure import (
    ABSENT,
    Name,
    ParsingStopped,
    Plain,
    ViolationCollector,
    located,
)
from zapdb.schema import NO_DEFAULT, Field, Generator, Schema, find_now
from zapdb.values import VALUE_TYPES, Decimal, Enum, List, Reference, Struct, ValueType

PARAMETERS: Final = {"decimal": "scale", "list": "of", "reference": "to"}
"""The key that a type takes in addition to its name; all other types take none."""
PARAMETER_EXAMPLES: Final = {
    "decimal": "{type: decimal, scale: 2}, for two digits after the point",
    "list": "{type: list, of: string}",
    "reference": "{type: reference, to: people}",
}
DECLARED: Final = (Enum.name, Struct.name)
_GENERATORS: Final[Mapping[bool | str, Generator | None]] = {
    False: None,
    True: "uuid",
    "sequence": "sequence",
}
NOW_EXAMPLE: Final = "now Europe/Vienna"
NOW_HINTS: Final = {
    "timestamp": "write default: now",
    "zoned_timestamp": f"name its zone: default: now UTC, or default: {NOW_EXAMPLE}",
    "date": "the day depends on the zone: use a timestamp with default: now, or give the date",
}
"""By type, what stands for the moment of an insert."""
NOW_HABITS: Final = frozenset(
    {"now", "today", "utcnow", "current_timestamp", "current_date", "localtimestamp", "sysdate"}
)
"""What tools call the moment of an insert, or its day."""


@dataclass(frozen=True)
class TypeDefinition:
    """A value type; a bare name is enough in documents for one without parameters."""

    type: Name
    scale: int = ABSENT
    items: TypeDefinition = dataclasses.field(default=ABSENT, metadata={"key": "of"})
    to: Name = ABSENT
    location: Location = located()

    @classmethod
    def from_scalar(cls, name: str, node: Scalar) -> TypeDefinition:
        return cls(Name(name), location=node.location)

    @classmethod
    def describe(cls, kind: ValueType) -> TypeDefinition:
        """The definition that builds this type again."""
        return TypeDefinition(**parameters_of(kind))

    def build_type(self, schema: Schema, collector: ViolationCollector | None = None) -> ValueType:
        """The value type; reports and raises `ParsingStopped` if there is none, given a collector.

        `schema` has the declared types and the tables that references may lead to.
        """
        try:
            return self._build(schema)
        except InvalidValue as error:
            if collector is None:
                raise AssertionError(str(error)) from error
            collector.report(self.location, error.message, error.hint)
            raise ParsingStopped from None

    def _build(self, schema: Schema) -> ValueType:
        given = {"scale": self.scale, "of": self.items, "to": self.to}
        wanted = PARAMETERS.get(self.type)
        declared = schema.type_named(self.type)
        is_builtin = self.type in VALUE_TYPES and self.type not in DECLARED
        if not is_builtin and declared is None:
            raise _unknown_type(self.type, schema)
        for key, value in given.items():
            if (value is not ABSENT) != (key == wanted):
                raise InvalidValue(
                    f"these are not the parameters of type {self.type!r}",
                    hint=f"write {PARAMETER_EXAMPLES[self.type]}"
                    if wanted
                    else f"leave out {key!r}: this type has none",
                )
        match self.type:
            case Decimal.name:
                return _decimal(self.scale)
            case List.name:
                return _list(self.items._build(schema))
            case Reference.name:
                return _reference(self.to, schema)
        return declared or VALUE_TYPES[self.type]()


def _unknown_type(name: str, schema: Schema) -> InvalidValue:
    there = [kind for kind in VALUE_TYPES if kind not in DECLARED]
    there += (kind.declared_name for kind in schema.types)
    hint = hint_at(name, there, TYPE_HABITS, TYPE_NOTES)
    if schema.table_named(name) is not None:
        hint = f"for the key of a record of {name}, write type: reference, to: {name}"
    elif name in DECLARED:
        hint = f"declare the {name} with create_type and use the name that it has there"
    return InvalidValue(f"there is no type {name!r}", hint=hint)


def _decimal(scale: int) -> Decimal:
    try:
        return Decimal(scale)
    except InvalidValue as error:
        message = f"{error.context['field']} must be {error.context['expected']}"
        raise InvalidValue(message) from None


def _list(items: ValueType) -> List:
    made = List(items)
    if made.depth > TYPE_DEPTH_MAX:
        raise InvalidValue(f"types nest at most {TYPE_DEPTH_MAX} deep")
    return made


def _reference(to: str, schema: Schema) -> Reference:
    target = schema.table_named(to)
    if target is None:
        hint = hint_at(to, (table.name for table in schema))
        raise InvalidValue(f"there is no table {to!r} to refer to", hint=hint)
    return Reference(target.name, target.number, tuple(f.type for f in target.key_fields))


def parameters_of(kind: ValueType) -> dict[str, Any]:
    """What defines a type in a document, by the attributes of `TypeDefinition`."""
    match kind:
        case Decimal(scale):
            return {"type": Name(kind.name), "scale": scale}
        case List(items):
            return {"type": Name(kind.name), "items": TypeDefinition.describe(items)}
        case Reference(table):
            return {"type": Name(kind.name), "to": Name(table)}
        case Enum() | Struct():
            return {"type": Name(kind.declared_name)}
    return {"type": Name(kind.name)}


@dataclass(frozen=True)
class FieldType(TypeDefinition):
    """A field's type and attributes without its name; a bare type name is enough in documents."""

    optional: bool = False
    default: Plain = ABSENT
    generated: Literal[True, False, "sequence"] = False

    @classmethod
    def from_scalar(cls, name: str, node: Scalar) -> FieldType:
        return cls(Name(name), location=node.location)

    @classmethod
    def of(cls, field: Field) -> FieldType:
        """The definition that builds this field again."""
        return cls(**attributes_of(field))

    def build(self, name: str, number: int, schema: Schema) -> Field:
        """The field; the definition must be valid."""
        kind = self.build_type(schema)
        default = read_default(self.default, kind, name)
        return Field(number, name, kind, self.optional, default, _GENERATORS[self.generated])

    def normalize(self, name: str, schema: Schema) -> Self:
        """The default as its type writes it; null is none, where the field may be null."""
        if self.default is ABSENT:
            return self
        if self.default is None and self.optional:
            return replace(self, default=ABSENT)
        plain = normal_default(self.default, self.build_type(schema), name)
        return replace(self, default=Plain(plain))

    def validate(self, name: str, schema: Schema, collector: ViolationCollector) -> None:
        kind = self.build_type(schema, collector)
        if self.default is not ABSENT:
            check_default(self.default, kind, self.optional, name, self.location, collector)
        if self.generated is not False:
            self._validate_generated(kind, collector)

    def _validate_generated(self, kind: ValueType, collector: ViolationCollector) -> None:
        made = "uuid" if self.generated is True else "integer"
        if kind.name != made:
            hint = {
                "uuid": "write generated: true for a uuid",
                "integer": "write generated: sequence for an integer",
                "timestamp": "write default: now for the moment of the insert",
                "zoned_timestamp": f"write default: now ZONE, such as {NOW_EXAMPLE!r}",
            }.get(kind.name, "use type: uuid, or type: integer with generated: sequence")
            what = "be generated" if self.generated is True else "be a sequence"
            collector.report(self.location, f"type {kind} can't {what}", hint)
        if self.default is not ABSENT:
            collector.report(self.location, "a generated field has no default")


@dataclass(frozen=True)
class FieldDefinition(FieldType):
    """A field of a new table, or a new field: its name and its type, in one mapping."""

    name: Name = dataclasses.field(kw_only=True)

    @classmethod
    def of(cls, field: Field) -> FieldDefinition:
        return cls(**attributes_of(field), name=Name(field.name))


def attributes_of(field: Field) -> dict[str, Any]:
    return {
        **parameters_of(field.type),
        "optional": field.optional,
        "default": default_of(field),
        "generated": field.plain_generated,
    }


def default_of(field: Field) -> Any:
    """A field's default as plain data, ABSENT where there is none."""
    return field.plain_default if field.has_default else ABSENT


def constant_of(field: Field) -> Any:
    """The same for a default that is a constant, which older records may get (rule 18)."""
    return field.plain_default if field.has_constant else ABSENT


def read_default(plain: Any, kind: ValueType, name: str) -> Any:
    """The default of a field from plain data, none where that is ABSENT."""
    if plain is ABSENT:
        return NO_DEFAULT
    return None if plain is None else find_now(plain, kind) or kind.from_document(plain, name)


def normal_default(plain: Any, kind: ValueType, name: str) -> Any:
    """A valid default of a document, as its type writes it."""
    now = find_now(plain, kind)
    return normal_plain(plain, kind, name) if now is None else str(now)


def check_default(
    plain: Any,
    kind: ValueType,
    optional: bool,
    name: str,
    location: Location,
    collector: ViolationCollector,
) -> None:
    """Report a default that a document gives a field where it does not fit the field's type."""
    now = find_now(plain, kind)
    if now is None and _is_like_now(plain) and kind.name in NOW_HINTS:
        collector.report(
            location, f"{plain!r} is no default of {name!r}, a {kind}", NOW_HINTS[kind.name]
        )
    elif now is None:
        check_plain(plain, kind, optional, name, location, collector)
    elif now.zone:
        # The zone is checked as part of some local time.
        sample = f"2000-01-01T00:00:00 {now.zone}"
        check_plain(sample, kind, optional, name, location, collector)


def _is_like_now(plain: Any) -> bool:
    words = str(plain).lower().replace("()", "").split()
    return bool(words) and words[0] in NOW_HABITS


def normal_plain(plain: Any, kind: ValueType, name: str) -> Any:
    """A valid value of a document, as its type writes it: "1.50" for a decimal that is "1.5"."""
    if plain is None and not kind.holds_null:
        return None
    return kind.to_document(kind.from_document(plain, name))


def check_plain(
    plain: Any,
    kind: ValueType,
    optional: bool,
    name: str,
    location: Location,
    collector: ViolationCollector,
) -> None:
    """Report a value that a document gives a field where it does not fit the field's type."""
    if plain is None and not kind.holds_null:
        if not optional:
            hint = "give another value, or make the field optional"
            collector.report(location, f"{name!r} is required and can't be null", hint)
        return
    try:
        kind.from_document(plain, name)
    except InvalidValue as error:
        if "got" not in error.context:
            collector.report(location, f"{error.message}: {error.context['field']}")
            return
        field, expected = error.context["field"], error.context["expected"]
        got = error.context["got"]
        hint = _hint_for_plain(plain, kind) if field == name else ""
        collector.report(location, f"a value of {field!r} must be {expected}; this is {got}", hint)
    except UnknownZone as error:
        zone, data = error.context["zone"], error.context["data"]
        collector.report(
            location, f"{data} has no zone {zone!r} for a value of {name!r}", error.hint
        )


def _hint_for_plain(plain: Any, kind: ValueType) -> str:
    """How a value of the type is written in a document, if something else was."""
    if isinstance(plain, str):
        if kind.name in ("boolean", "integer"):
            return f"write {kind.text_form}, without quotes"
        if _is_like_now(plain):
            return "give the moment: only the default of a new record may be now"
        return f"write {kind.text_form}, in quotes" if kind.has_python_order else ""
    return "quote it" if kind.name in ("string", "decimal", "float") else ""
