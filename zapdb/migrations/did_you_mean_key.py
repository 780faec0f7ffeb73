"""What other tools call the things of a migration file, and the hint for a name that is unknown."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

from zapdb.errors import suggest
from zapdb.limits import NAME_LENGTH_MAX

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
    "autoincrement": "integer",
    "bigint": "integer",
    "bigserial": "integer",
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
    "serial": "integer",
    "smallint": "integer",
    "str": "string",
    "text": "string",
    "timestamptz": "timestamp",
    "varchar": "string",
}
TYPE_NOTES: Final[Mapping[str, str]] = {
    "autoincrement": "with generated: sequence",
    "bigserial": "with generated: sequence",
    "datetime": "for a moment, or 'zoned_timestamp' for a local time with its zone",
    "serial": "with generated: sequence",
    "timestamptz": "for a moment, or 'zoned_timestamp' for a local time with its zone",
}
KEY_HABITS: Final[Mapping[str, str]] = {
    "allow_null": "optional",
    "asc": "descending",
    "blank": "optional",
    "cast": "up",
    "collate": "collation",
    "column": "field",
    "columns": "fields",
    "decimal_places": "scale",
    "desc": "descending",
    "description": "summary",
    "direction": "descending",
    "down": "rollback",
    "downgrade": "rollback",
    "expression": "check",
    "foreign_key": "to",
    "from": "field",
    "item_type": "of",
    "items": "of",
    "message": "summary",
    "name": "index|check|field|table|summary",
    "new": "to",
    "new_name": "to",
    "null": "optional",
    "nullable": "optional",
    "old": "field",
    "old_name": "field",
    "operations": "changes",
    "order": "descending",
    "pk": "key",
    "primary_key": "key",
    "ref": "to",
    "references": "to",
    "reverse": "rollback",
    "revert": "rollback",
    "table": "to",
    "target": "to",
    "title": "summary",
    "up": "changes",
    "upgrade": "changes",
    "using": "up",
    "version": "zapdb",
}
"""What other tools call a key; of several, the first that the mapping may have."""
_NUMBERS: Final = (
    "generated: sequence numbers a field of type integer, generated: true makes a uuid"
)
_REQUIRED: Final = "a field is required unless it says optional: true"
_KEY: Final = "the key is the table's: key: [id], beside its fields"
_LENGTH: Final = "strings have no maximum; an add_check can refuse longer ones: length(title) <= 50"
_INDEX: Final = "an index is an operation of its own: create_index"
_MOMENT: Final = "default: now is the moment of the insert; an update makes no values"
_ENUM: Final = "declare them by create_type: {type: state, enum: [open, done]}; use type: state"
_ORDER: Final = "the numbers of the files are the order of the migrations"
_FIELD: Final = "it is a part of the field: field: {name: …, type: …}"
_COMMENT: Final = "write a comment of YAML: # …"
KEY_NOTES: Final[Mapping[str, str]] = {
    "auto": _NUMBERS,
    "auto_increment": _NUMBERS,
    "auto_now": _MOMENT,
    "auto_now_add": _MOMENT,
    "autoincrement": _NUMBERS,
    "check": "a check is an operation of its own: add_check",
    "choices": _ENUM,
    "comment": _COMMENT,
    "constraints": "each is an operation of its own: add_check, add_reference, create_index",
    "db_index": _INDEX,
    "default": _FIELD,
    "default_factory": _MOMENT,
    "depends_on": _ORDER,
    "dependencies": _ORDER,
    "down_revision": _ORDER,
    "enum": _ENUM,
    "help_text": _COMMENT,
    "identity": _NUMBERS,
    "index": _INDEX,
    "indexes": _INDEX,
    "length": _LENGTH,
    "max_digits": "a decimal has a scale alone, the digits after the point",
    "max_length": _LENGTH,
    "not_null": _REQUIRED,
    "on_delete": "add_reference, an operation of its own, has on_delete",
    "optional": _FIELD,
    "ondelete": "add_reference, an operation of its own, has on_delete",
    "pk": _KEY,
    "precision": "a decimal has a scale alone, the digits after the point",
    "primary_key": _KEY,
    "required": _REQUIRED,
    "revision": _ORDER,
    "server_default": "default: … is the value for new records",
    "size": _LENGTH,
    "type": _FIELD,
    "unique": "create_index, an operation of its own, has unique: true",
    "unique_together": "create_index, an operation of its own, has unique: true",
    "values": _ENUM,
    "verbose_name": _COMMENT,
}
"""What other tools write in a mapping, and where it is here, in words."""
KEY_EXAMPLES: Final[Mapping[str, str]] = {
    "expression": 'expression: "price > 0"',
    "fields": "fields: [{name: id, type: uuid}]",
    "index": "index: by_name",
    "key": "key: [id]",
    "name": "name: title",
    "summary": "summary: Books",
    "table": "table: items",
    "type": "type: string",
    "up": 'up: "text(size)", an expression for the new value',
    "zapdb": "zapdb: 1",
}
"""How a key that is missing may be written."""


def fix_name(text: str) -> str:
    """The hint for a text that is no name: what it may be, and the name closest to it."""
    if "(" in text or " of " in text:
        return "a type's parameters are keys: {type: decimal, scale: 2}, {type: list, of: string}"
    plain = re.sub(r"[^a-z0-9]+", "_", text.lower()).strip("_")
    guess = f"did you mean {plain!r}? " if plain[:1].isalpha() and plain != text else ""
    return f"{guess}a to z first, then a to z, 0 to 9 and _, at most {NAME_LENGTH_MAX} characters"


def hint_at(
    name: str,
    names: Iterable[str],
    habits: Mapping[str, str] | None = None,
    notes: Mapping[str, str] | None = None,
    otherwise: Mapping[str, str] | None = None,
) -> str:
    """The hint for a name that is none of `names`: what was probably meant, and all there are.

    `habits` has what other tools say for one of the names, `notes` what to add to a suggestion, and
    `otherwise` what to say if none of the names is meant.
    """
    there = list(names)
    spelled = name.lower()
    candidates = (habits or {}).get(spelled, "").split("|")
    meant = next((one for one in candidates if one in there), None)
    guess = f"did you mean {meant!r}?" if meant is not None else suggest(spelled, there)
    note = (notes or {}).get(spelled)
    if guess and note:
        guess = f"{guess[:-1]} {note}?"
    if meant is None and otherwise and spelled in otherwise:
        guess = f"{otherwise[spelled]};"
    return f"{guess} available: {', '.join(there) or 'none'}".lstrip()
