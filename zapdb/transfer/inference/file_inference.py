"""What a table of a file's rows would be here: CSV by all of its cells, Parquet and Arrow by their
types.

The key is the column `id` or `TABLE_id`; a file without either gets a generated UUID.
"""

from __future__ import annotations

import datetime
import re
import uuid
from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal
from typing import Any, Final

from zapdb.errors import InvalidValue, UsageError
from zapdb.imports import normalize_name
from zapdb.limits import FIELDS_PER_TABLE_MAX
from zapdb.migrations.document_structure import Name
from zapdb.migrations.operations.definitions import FieldDefinition, TypeDefinition
from zapdb.printing import one_line
from zapdb.records.cell_format import REFUSED_CHARS_MAX
from zapdb.transfer.inference.inferred import InferredField, InferredTable, Note
from zapdb.values import Float
from zapdb.values.timestamp import read_iso_time

_NUMBER: Final = re.compile(r"-?\d{1,150}(?:\.(\d{1,64}))?", re.ASCII)
_NUMERIC: Final = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?", re.ASCII)
_CODE: Final = re.compile(r"\+|-?0\d", re.ASCII)
"""How what is no number begins, though it could be read as one: the plus of a telephone number, or
the zeros of a postal code."""
_BARE_EXPONENT: Final = re.compile(r"-?\d+[eE]\d+", re.ASCII)
"""A code such as 1E5, unless other cells of its column have a point: programs print 1e+05."""
CODES: Final = (
    "some of its cells would not come back as they are if they were numbers, as {!r}; it is text"
)
EMPTY_TEXTS: Final = (
    'its empty cells are empty texts; to have nulls, give --null "" here and to the import'
)
EXACT_DIGITS: Final = 15
"""A number with more of them that a float prints, such as 10.357019999999999, was computed in
floats: as a decimal it would have a digit for each error of rounding."""
KNOWN_CELLS_MAX: Final = 10_000
KEY_TYPES: Final = ("integer", "uuid", "string", "date", "timestamp")


def _is_integer(cell: str) -> bool:
    return "." not in cell and _is_decimal(cell)


def _is_decimal(cell: str) -> bool:
    return bool(_NUMBER.fullmatch(cell)) and not _CODE.match(cell)


def _is_float(cell: str) -> bool:
    """Whether a float prints so: the import takes no other digits."""
    if cell in ("nan", "inf", "-inf"):
        return True
    if not _NUMERIC.fullmatch(cell) or _CODE.match(cell):
        return False
    try:
        Float().from_document(cell, "")
    except InvalidValue:
        return False
    return True


def _is_moment(cell: str) -> bool:
    try:
        return read_iso_time(cell) is not None and len(cell) > 10
    except ValueError:
        return False


def _is_date(cell: str) -> bool:
    try:
        return datetime.date.fromisoformat(cell) is not None and "-" in cell
    except ValueError:
        return False


def _is_uuid(cell: str) -> bool:
    try:
        return str(uuid.UUID(cell)) == cell.lower()
    except ValueError:
        return False


_TESTS: Final[tuple[tuple[str, Callable[[str], bool]], ...]] = (
    ("integer", _is_integer),
    ("decimal", _is_decimal),
    ("float", _is_float),
    ("boolean", lambda cell: cell.lower() in ("true", "false")),
    ("date", _is_date),
    ("timestamp", _is_moment),
    ("uuid", _is_uuid),
)


class ColumnGuess:
    """What all cells of a column so far may be."""

    def __init__(self, null: str | None) -> None:
        self._left = dict(_TESTS)
        self._null = "\\N" if null is None else null
        self._skips_empty = null is None
        self._scale = 0
        self._digits = 0
        self._are_floats = True
        """Whether each number with a fraction is a float, printed with so many digits."""
        self._seen = False
        self._are_numeric = True
        self._code: str | None = None
        """The first cell that reads like a number, and is none."""
        self._has_point = False
        self._exponent: str | None = None
        self._has_null = self._has_empty = False
        self._known = set[str]()

    def add(self, cell: str) -> None:
        if cell in self._known:  # most columns have few values
            return
        if len(self._known) < KNOWN_CELLS_MAX:
            self._known.add(cell)
        if cell == self._null:
            self._has_null = True
            return
        if not cell and self._skips_empty:
            self._has_empty = True
            return
        self._seen = True
        self._has_point |= "." in cell
        if self._exponent is None and _BARE_EXPONENT.fullmatch(cell):
            self._exponent = cell
        self._are_numeric = self._are_numeric and bool(_NUMERIC.fullmatch(cell))
        if self._code is None and self._are_numeric and not (_is_decimal(cell) or _is_float(cell)):
            self._code = cell
        for name in [name for name, fits in self._left.items() if not fits(cell)]:
            del self._left[name]
        if "decimal" in self._left and (match := _NUMBER.fullmatch(cell)) and match[1]:
            self._scale = max(self._scale, len(match[1]))
            digits = sum(map(str.isdigit, cell.lstrip("+-0.")))
            self._digits = max(self._digits, digits)
            self._are_floats &= Decimal(f"{float(cell):.{max(digits, 1) - 1}e}") == Decimal(cell)

    def parameters(self) -> dict[str, Any]:
        """Of the first type that all cells fit; a text if there are none."""
        name = "string"
        if self._seen and self.code is None:
            name = next(iter(self._left), "string")
        if name == "decimal" and self._digits > EXACT_DIGITS and self._are_floats:
            name = "float"
        return {"type": Name(name), **({"scale": self._scale} if name == "decimal" else {})}

    @property
    def code(self) -> str | None:
        """A cell for which a column is a text, all of whose cells read like numbers."""
        if not self._are_numeric:
            return None
        return self._code or (None if self._has_point else self._exponent)

    @property
    def has_empty_texts(self) -> bool:
        """Whether an import stores empty cells as texts, since nothing says that they are nulls."""
        return self._has_empty and self.parameters()["type"] == "string"

    @property
    def has_null(self) -> bool:
        """Whether an import stores nulls."""
        return self._has_null or (self._has_empty and not self.has_empty_texts)


def infer_csv(
    name: str, header: Sequence[str], rows: Iterable[Sequence[str]], null: str | None
) -> InferredTable:
    """The table of a CSV file, all of which is read; rows with other cells are passed over."""
    _require_room(name, header)
    guesses = [ColumnGuess(null) for _ in header]
    for row in rows:
        if len(row) == len(guesses):
            for guess, cell in zip(guesses, row, strict=True):
                guess.add(cell)
    columns = list(zip(header, guesses, strict=True))
    made = _make_table(name, [(column, g.parameters(), g.has_null) for column, g in columns])
    made.notes += [
        Note(f"{name}.{column}", EMPTY_TEXTS) for column, g in columns if g.has_empty_texts
    ]
    made.notes += [
        Note(f"{name}.{column}", CODES.format(one_line(g.code, REFUSED_CHARS_MAX)))
        for column, g in columns
        if g.code is not None
    ]
    return made


def infer_arrow(name: str, schema: Any) -> InferredTable:
    """The table of a Parquet or Arrow file, by its schema; fields may be null if the file says
    so."""
    _require_room(name, schema.names)
    notes = list[Note]()
    columns = []
    for field in schema:
        parameters = _of_arrow(field.type)
        if parameters is None:
            notes.append(Note(f"{name}.{field.name}", f"{field.type} is JSON here"))
            parameters = {"type": Name("json")}
        columns.append((field.name, parameters, field.nullable))
    made = _make_table(name, columns)
    made.notes += notes
    return made


def _of_arrow(kind: Any) -> dict[str, Any] | None:
    text = str(kind)
    if text.startswith("dictionary<values="):
        return {"type": Name("string")}
    if text.startswith("decimal"):
        return {"type": Name("decimal"), "scale": max(kind.scale, 0)}
    if text.startswith(("list<", "large_list<")):
        inner = _of_arrow(kind.value_type)
        return None if inner is None else {"type": Name("list"), "items": TypeDefinition(**inner)}
    for begin, name in _ARROW:
        if text.startswith(begin):
            return {"type": Name(name)}
    return None


_ARROW: Final = (
    (("int", "uint"), "integer"),
    (("float", "double", "halffloat"), "float"),
    (("bool",), "boolean"),
    (("date",), "date"),
    (("timestamp",), "timestamp"),
    (("binary", "large_binary", "fixed_size_binary"), "binary"),
    (("string", "large_string", "time", "duration", "null"), "string"),
)


def _require_room(name: str, columns: Sequence[str]) -> None:
    """Raise `UsageError` for more columns than a table can have fields, and a key."""
    if len(columns) >= FIELDS_PER_TABLE_MAX:
        raise UsageError(
            "the file has more columns than a table may have fields",
            table=name,
            columns=len(columns),
            limit=FIELDS_PER_TABLE_MAX,
            hint="leave some out of the file, or write those that belong together as one of JSON",
        )


def _make_table(name: str, columns: list[tuple[str, dict[str, Any], bool]]) -> InferredTable:
    names = [normalize_name(column) for column, _, _ in columns]
    made = InferredTable(None, name, (), [])
    wanted = ("id", f"{name}_id", f"{name.removesuffix('s')}_id")
    for at, (column, parameters, has_null) in enumerate(columns):
        field = names[at] if names[at] not in names[:at] else f"{names[at]}_{at + 1}"
        is_key = not made.key and field in wanted and parameters["type"] in KEY_TYPES
        made.key = (field,) if is_key else made.key
        definition = FieldDefinition(
            **parameters, optional=has_null and not is_key, name=Name(field)
        )
        made.fields.append(InferredField(field, (column,), definition))
        if field != normalize_name(column):
            made.notes.append(Note(f"{name}.{column}", f'import it with --map "{column}={field}"'))
    if not made.key:
        key = next(n for n in ("id", "row_id", "record_id", "key_of_row") if n not in names)
        made.key = (key,)
        definition = FieldDefinition(type=Name("uuid"), generated=True, name=Name(key))
        made.fields.insert(0, InferredField(key, (), definition))
        made.notes.append(Note(name, f"no column is the key for sure: {key} is generated"))
    return made
