"""Which field each column of a source is: the same name, the same name normalized, or as mapped.

`US Gross` is the field `us_gross` if no field has the very name. A mapping wins over both, and a
column that is mapped to nothing is left out.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from zapdb.errors import UnknownField, UsageError, suggest
from zapdb.imports.row import ImportMode
from zapdb.limits import NAME_LENGTH_MAX
from zapdb.schema import Field, TableSchema

ColumnMap = Mapping[str, str]
"""Names of fields by the names of columns; an empty one leaves the column out."""

_SEPARATORS: Final = re.compile(r"[^a-z0-9]+")
_CAMEL: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


def normalize_name(name: str) -> str:
    """The name of a field or table for a name of elsewhere: `US Gross` and `UsGross` are
    `us_gross`."""
    plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode()
    made = _SEPARATORS.sub("_", _CAMEL.sub("_", plain).lower()).strip("_")
    if not made:
        made = "column"
    if made[0].isdigit():
        made = f"n{made}"
    if made.startswith("zapdb"):
        made = f"its_{made}"
    return made[:NAME_LENGTH_MAX].rstrip("_")


def match_columns(
    table: TableSchema,
    columns: Sequence[str],
    mapping: ColumnMap,
    mode: ImportMode = "append",
) -> list[Field | None]:
    """The field of each column, None for one that is left out.

    Raises `UsageError` for a column that occurs twice or has no field, and if a field has no column
    that needs one. To update records, only their keys are needed.
    """
    _require_once(columns)
    there = {*columns}
    for name in mapping:
        if name not in there:
            raise UsageError(
                "a mapped column does not exist",
                column=name,
                columns=", ".join(columns),
                hint=suggest(name, columns),
            )
    fields = {field.name: field for field in table.fields}
    found = [_find_field(table, fields, name, mapping) for name in columns]
    unknown = [n for n, f in zip(columns, found, strict=True) if f is None and mapping.get(n) != ""]
    if unknown:
        raise _unknown_columns(table, unknown)
    named = [f.name for f in found if f is not None]
    twice = sorted(_repeated(named))
    if twice:
        given = [
            n for n, f in zip(columns, found, strict=True) if f is not None and f.name in twice
        ]
        raise UsageError(
            "two columns are the same field",
            table=table.name,
            field=", ".join(twice),
            columns=", ".join(given),
            hint=f'leave one out: --map "{given[-1]}="',
        )
    require_fields(table, named, mode)
    return found


def field_of_column(table: TableSchema, column: str, mapping: ColumnMap) -> Field | None:
    """The field that a column is; None if it is left out or unknown. Raises `UnknownField` for a
    mapping to a field that does not exist."""
    return _find_field(table, {field.name: field for field in table.fields}, column, mapping)


def _find_field(
    table: TableSchema, fields: Mapping[str, Field], column: str, mapping: ColumnMap
) -> Field | None:
    if column in mapping:
        target = mapping[column]
        if target and target not in fields:
            raise UnknownField.named(table.name, target, fields)
        return fields.get(target)
    return fields.get(column) or fields.get(normalize_name(column))


def require_fields(table: TableSchema, given: Iterable[str], mode: ImportMode) -> None:
    """Raises `UsageError` for fields that need a value and get none."""
    there = {*given}
    missing = [
        f.name
        for f in (table.fields if mode == "append" else table.key_fields)
        if f.name not in there and not (f.optional or f.has_default or f.is_made)
    ]
    if missing:
        raise UsageError(
            "fields have no column, no default, and cannot be null",
            table=table.name,
            fields=", ".join(missing),
            hint='name their columns, as in --map "US Gross=us_gross"',
        )


def _repeated(names: Iterable[str]) -> list[str]:
    return [name for name, count in Counter(names).items() if count > 1]


def _require_once(columns: Sequence[str]) -> None:
    twice = _repeated(columns)
    if twice:
        raise UsageError(
            "a column occurs twice",
            column=", ".join(twice),
            columns=", ".join(columns),
            hint="rename or remove one of them in the source",
        )


def _unknown_columns(table: TableSchema, unknown: list[str]) -> UsageError:
    names = [f.name for f in table.fields]
    closest = suggest(normalize_name(unknown[0]), names)
    way = f'--map "{unknown[0]}=FIELD" names its field, --map "{unknown[0]}=" leaves it out'
    return UsageError(
        "a column has no field" if len(unknown) == 1 else "columns have no fields",
        table=table.name,
        column=", ".join(unknown),
        fields=", ".join(names),
        hint=f"{closest} {way}" if closest else way,
    )
