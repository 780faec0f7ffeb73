"""From a reflected column to a field: its type, whether it may be null, what makes its values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql

from zapdb.imports import normalize_name
from zapdb.migrations.document_structure import Name, Plain
from zapdb.migrations.operations.definitions import FieldDefinition, TypeDefinition
from zapdb.schema import Now
from zapdb.schema.model import free_name
from zapdb.transfer.inference.column_reading import base_type
from zapdb.transfer.inference.column_types import MappedType, Measured, map_type_of
from zapdb.transfer.inference.inferred import (
    InferredCheck,
    InferredEnum,
    InferredField,
    InferredTable,
)
from zapdb.transfer.inference.sql_texts import (
    is_generator,
    is_now,
    is_null,
    read_default_text,
    translate_check,
)
from zapdb.values import VALUE_TYPES, List


@dataclass(frozen=True)
class ColumnInferrer:
    """Infers the columns of a source's tables; enums are added to `enums`."""

    connection: sa.Connection
    unknown_types: Mapping[str, str]
    enums: list[InferredEnum]
    is_taken: Callable[[str], bool]
    """Whether no type can have a name."""

    def infer(
        self, made: InferredTable, column: Any, name: str, *, in_key: bool, may_number: bool
    ) -> InferredField:
        """The field of a column, which is added to no table yet; what is not the same is noted.

        `may_number`: whether the column is one that an engine numbers without being told.
        """
        mapped = map_type_of(
            column.type,
            self._measure(made, column),
            self.unknown_types.get(column.name, ""),
        )
        if mapped.note:
            made.change(column.name, mapped.note)
        if column.comment:
            made.change(column.name, f"comment: {column.comment}")
        is_required = in_key or not column.nullable
        default = _text_of(column.server_default)
        if isinstance(column.type, postgresql.DOMAIN):
            is_required |= bool(column.type.not_null)
            default = default or str(column.type.default or "")
        definition = FieldDefinition(
            **self._with_enum(mapped, name), optional=not is_required, name=Name(name)
        )
        self._add_checks(made, column, definition, mapped)
        is_made = column.identity is not None or is_generator(default)
        is_made |= may_number and definition.type == "integer" and not column.computed
        if column.computed is not None:
            made.change(column.name, "a computed column; its values are imported")
        elif is_made:
            definition = _made(made, column, definition)
        elif not is_null(default):
            definition = _with_default(made, column, definition, default)
        return InferredField(name, (column.name,), definition)

    def _measure(self, made: InferredTable, column: Any) -> Measured:
        """What the column's type does not say: how many digits after the point numbers have, and
        what is in arrays."""
        kind = base_type(column.type)
        if self.connection.dialect.name != "postgresql":
            return Measured()
        if isinstance(kind, sa.ARRAY):
            return Measured(is_irregular=self._has_irregular(made, column))
        is_numeric = isinstance(kind, sa.Numeric) and not isinstance(kind, sa.Float)
        if not is_numeric or kind.scale is not None:
            return Measured()
        scale = sa.func.scale(sa.type_coerce(column, sa.Numeric))
        found = self.connection.execute(made.select(sa.func.max(scale))).scalar()
        return Measured(None if found is None else int(found))

    def _has_irregular(self, made: InferredTable, column: Any) -> bool:
        array = sa.type_coerce(column, sa.types.NullType())
        item = sa.func.unnest(array).column_valued("item")
        has_null = sa.exists(sa.select(item).where(item.is_(None)))
        odd = sa.or_(sa.func.array_ndims(array) > 1, sa.func.array_lower(array, 1) != 1, has_null)
        query = made.select(sa.literal(1)).where(odd).limit(1)
        return self.connection.execute(query).first() is not None

    def _with_enum(self, mapped: MappedType, field: str) -> dict[str, Any]:
        if not mapped.members:
            return mapped.parameters
        declared = Name(self._declare_enum(mapped.enum_name, field, mapped.members))
        if mapped.is_list:
            return {"type": Name(List.name), "items": TypeDefinition(type=declared)}
        return {"type": declared}

    def _declare_enum(self, given: str, field: str, members: tuple[str, ...]) -> str:
        known = {enum.name: enum.members for enum in self.enums}
        wanted = name = normalize_name(given or field)
        taken = set[str]()
        while name in VALUE_TYPES or self.is_taken(name) or known.get(name, members) != members:
            taken.add(name)
            name = free_name(f"{wanted}_kind", taken)
        if name not in known:
            self.enums.append(InferredEnum(name, members))
        return name

    def _add_checks(
        self, made: InferredTable, column: Any, definition: FieldDefinition, mapped: MappedType
    ) -> None:
        """The checks of a type: the labels of an enum that none can be here, and those of a
        domain."""
        name, taken = definition.name, [check.name for check in made.checks]
        if mapped.labels and not isinstance(base_type(column.type), sa.ARRAY):
            allowed = " or ".join(f"{name} == {label!r}" for label in mapped.labels)
            expression = f"{name} is None or {allowed}" if definition.optional else allowed
            made.checks.append(
                InferredCheck(free_name(f"{name}_is_known", taken), expression, expression)
            )
        kind = column.type
        while isinstance(kind, postgresql.DOMAIN):
            text = str(kind.check) if kind.check is not None else ""
            fields = {"VALUE": (name, definition.optional), "value": (name, definition.optional)}
            given = translate_check(text, fields) if text else None
            if given is not None:
                wanted = f"{name}_{normalize_name(str(kind.name))}"
                taken = [check.name for check in made.checks]
                made.checks.append(InferredCheck(free_name(wanted, taken), given, text))
            elif text:
                made.leave_out(column.name, f"a check of its domain without equivalent: {text}")
            kind = kind.data_type


def _text_of(default: Any) -> str:
    return "" if not hasattr(default, "arg") else str(getattr(default.arg, "text", default.arg))


def _made(made: InferredTable, column: Any, definition: FieldDefinition) -> FieldDefinition:
    """The field of a column whose values the source makes."""
    if definition.type == "uuid":
        return replace(definition, generated=True)
    if definition.type == "integer":
        return replace(definition, generated="sequence")
    text = "the source makes its values; here give a value to each new record"
    made.leave_out(column.name, text)
    return definition


def _with_default(
    made: InferredTable, column: Any, definition: FieldDefinition, text: str
) -> FieldDefinition:
    if is_now(text) and definition.type == "timestamp":
        return replace(definition, default=Plain(str(Now())))
    try:
        kind = VALUE_TYPES.get(definition.type)
        shown = None if kind is None or definition.type == "decimal" else kind()
        return replace(definition, default=Plain(read_default_text(text, shown)))
    except (ValueError, TypeError):
        made.leave_out(column.name, f"the default has no equivalent: {text}")
        return definition
