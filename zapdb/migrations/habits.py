"""What other tools call the things of a migration file, and the hint for a name that is unknown."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from zapdb.errors import suggest

OPERATION_HABITS: Final[Mapping[str, str]] = {
    "add_column": "add_field",
    "add_constraint": "add_check",
    "add_enum": "create_type",
    "add_foreign_key": "add_reference",
    "add_index": "create_index",
    "add_model": "create_table",
    "add_table": "create_table",
    "add_unique": "create_index",
    "alter_column": "change_type",
    "alter_field": "change_type",
    "change_field": "change_type",
    "create_enum": "create_type",
    "create_model": "create_table",
    "delete_field": "drop_field",
    "delete_model": "drop_table",
    "drop_column": "drop_field",
    "drop_constraint": "drop_check",
    "drop_foreign_key": "drop_reference",
    "drop_not_null": "make_optional",
    "modify_column": "change_type",
    "move_column": "reorder_field",
    "remove_column": "drop_field",
    "remove_field": "drop_field",
    "remove_index": "drop_index",
    "rename_column": "rename_field",
    "rename_model": "rename_table",
    "run_python": "transform",
    "run_sql": "transform",
    "set_default": "change_default",
    "set_not_null": "make_required",
    "sql": "transform",
}
TYPE_HABITS: Final[Mapping[str, str]] = {
    "array": "list",
    "autoincrement": "uuid",
    "bigint": "integer",
    "bigserial": "uuid",
    "blob": "binary",
    "bool": "boolean",
    "bytea": "binary",
    "bytes": "binary",
    "char": "string",
    "datetime": "timestamp",
    "double": "float",
    "fk": "reference",
    "foreign_key": "reference",
    "foreignkey": "reference",
    "guid": "uuid",
    "int": "integer",
    "int4": "integer",
    "int8": "integer",
    "jsonb": "json",
    "long": "integer",
    "money": "decimal",
    "number": "decimal",
    "numeric": "decimal",
    "object": "json",
    "real": "float",
    "serial": "uuid",
    "smallint": "integer",
    "str": "string",
    "text": "string",
    "timestamptz": "timestamp",
    "varchar": "string",
}
TYPE_NOTES: Final[Mapping[str, str]] = {
    "autoincrement": "with generated: true; zapdb numbers no records",
    "bigserial": "with generated: true; zapdb numbers no records",
    "datetime": "for a moment, or 'zoned_timestamp' for a local time with its zone",
    "serial": "with generated: true; zapdb numbers no records",
    "timestamptz": "for a moment, or 'zoned_timestamp' for a local time with its zone",
}
KEY_HABITS: Final[Mapping[str, str]] = {
    "allow_null": "optional",
    "collate": "collation",
    "column": "field",
    "columns": "fields",
    "desc": "descending",
    "description": "summary",
    "expression": "check",
    "null": "optional",
    "nullable": "optional",
    "operations": "changes",
    "pk": "key",
    "primary_key": "key",
    "version": "zapdb",
}


def hint_at(
    name: str,
    names: Iterable[str],
    habits: Mapping[str, str] | None = None,
    notes: Mapping[str, str] | None = None,
) -> str:
    """The hint for a name that is none of `names`: what was probably meant, and all there are.

    `habits` has what other tools say for one of the names, `notes` what to add to a suggestion.
    """
    there = list(names)
    spelled = name.lower()
    meant = (habits or {}).get(spelled)
    guess = f"did you mean {meant!r}?" if meant in there else suggest(spelled, there)
    note = (notes or {}).get(spelled)
    if guess and note:
        guess = f"{guess[:-1]} {note}?"
    return f"{guess} there are: {', '.join(there) or 'none'}".lstrip()
