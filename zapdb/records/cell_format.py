"""Values as text: how commands and exports write and read fields of any type.

They are cells, keys, `name=value`, and JSON. The law: what is written is read back as the same
value, and a null as a null. A null is `\\N`; a text that would begin with a backslash has another
one before it. Lists, structs, JSON and references of several fields are JSON, in the form that
documents have (`to_document`).
"""

from __future__ import annotations

import decimal
import json
import re
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any, Final

from zapdb.errors import InvalidValue, UsageError, describe_value
from zapdb.limits import COMPILED_MAX
from zapdb.memo import Memo
from zapdb.printing import one_line
from zapdb.records.record import Record
from zapdb.schema import Field, TableSchema, canonical_bytes
from zapdb.values import Boolean, Decimal, Float, Integer, Reference, ValueType
from zapdb.values.json import read_json

NULL: Final = "\\N"
REFUSED_CHARS_MAX: Final = 60
"""How much of a refused value is shown: enough for the user to find it in the input file."""
_plain_writers: Final = Memo[bytes, Callable[[Record], dict[str, Any]]](COMPILED_MAX)
_key_readers: Final = Memo[bytes, tuple[Callable[[str], Any], ...]](COMPILED_MAX)
_WORDS: Final[dict[str, Any]] = {"true": True, "false": False}
_DIGITS: Final = re.compile(r"[+-]?[0-9]+", re.ASCII)


def to_plain(field: Field, value: Any) -> Any:
    """A field's value as JSON has it."""
    is_null = value is None and (field.optional or not field.type.holds_null)
    return None if is_null else field.type.to_document(value)


def record_to_plain(table: TableSchema, record: Record) -> dict[str, Any]:
    """A record as JSON has it; loads large values."""
    return _plain_writers.get(canonical_bytes(table), lambda: _make_plain_writer(table))(record)


def _make_plain_writer(table: TableSchema) -> Callable[[Record], dict[str, Any]]:
    """What `to_plain` does, for all fields of a record; most types have nothing to do."""
    names = [field.name for field in table.fields]
    get = attrgetter(*names) if len(names) > 1 else lambda record: (getattr(record, names[0]),)
    changed = [
        (field.name, field.type.to_document, field.optional or not field.type.holds_null)
        for field in table.fields
        if type(field.type).to_document is not ValueType.to_document
    ]

    def write(record: Record) -> dict[str, Any]:
        plain = dict(zip(names, get(record), strict=True))
        for name, to_document, may_be_null in changed:
            value = plain[name]
            if value is not None or not may_be_null:
                plain[name] = to_document(value)
        return plain

    return write


def from_plain(table: TableSchema, field: Field, plain: Any) -> Any:
    """The value that JSON has as `plain`; raises `InvalidValue` with the expected form."""
    if plain is None and field.optional:
        return None
    path = f"{table.name}.{field.name}"
    try:
        return field.type.from_document(plain, path)
    except InvalidValue as error:
        if error.context.get("field") == path and isinstance(plain, str):
            raise _refuse(field.type, path, plain) from None
        is_text = isinstance(plain, str)
        shown = one_line(plain, REFUSED_CHARS_MAX) if is_text else show_json(plain)
        error.context["value"] = shown
        error.hint = ""  # it is for values of Python
        raise


def to_cell(field: Field, value: Any) -> str:
    """A field's value as text."""
    plain = to_plain(field, value)
    if plain is None and (field.optional or not field.type.holds_null):
        return NULL
    return plain_to_cell(plain, text_is_json=field.type.text_is_json)


def plain_to_cell(plain: Any, *, text_is_json: bool) -> str:
    """As `to_cell`, of a value as JSON has it, of a type whose texts are JSON or not."""
    if isinstance(plain, str) and not text_is_json:
        text = plain
    else:  # integers, booleans, and what is JSON anyway
        text = json.dumps(plain, ensure_ascii=False, separators=(",", ":"))
    return f"\\{text}" if text.startswith("\\") else text


def from_text(table: TableSchema, field: Field, text: str) -> Any:
    """The value of a text; raises `InvalidValue`, naming the field and the expected form."""
    return make_cell_reader(table, field)(text)


def read_key(table: TableSchema, texts: Sequence[str]) -> tuple[Any, ...]:
    """The key that texts spell, one for each of its fields; raises `UsageError`, `InvalidValue`."""
    readers = _key_readers.get(canonical_bytes(table), lambda: _make_key_readers(table))
    if len(texts) != len(readers):
        raise UsageError(
            "these are not the fields of the key",
            table=table.name,
            key=", ".join(field.name for field in table.key_fields),
            given=len(texts),
            hint="give one value for each field of the key, in this order",
        )
    return tuple([read(text) for read, text in zip(readers, texts, strict=True)])


def _make_key_readers(table: TableSchema) -> tuple[Callable[[str], Any], ...]:
    return tuple(make_cell_reader(table, field) for field in table.key_fields)


def make_cell_reader(table: TableSchema, field: Field) -> Callable[[str], Any]:
    """`from_text` for many texts of a field: what depends on its type is looked up once."""
    path = f"{table.name}.{field.name}"
    read, from_document = _reader_of(field.type, path), field.type.from_document

    def from_text(text: str) -> Any:
        if text[:1] == "\\":
            if text == NULL:
                return from_plain(table, field, None)
            if text[:2] != "\\\\":
                raise InvalidValue(
                    "a value begins with a single backslash",
                    field=path,
                    hint="write two backslashes for one, and \\N for null",
                )
            text = text[1:]
        plain = text if read is None else read(text)
        if type(plain) is not str:
            return from_plain(table, field, plain)
        try:
            return from_document(plain, path)
        except InvalidValue as error:
            if error.context.get("field") == path:
                raise _refuse(field.type, path, plain, error) from None
            raise

    return from_text


def _reader_of(kind: ValueType, path: str) -> Callable[[str], Any] | None:
    """Return the function from a text to its plain form; None if the plain form is the text
    itself."""

    def read_integer(text: str) -> int:
        if not _DIGITS.fullmatch(text) or len(text) > 1_000:
            raise _refuse(kind, path, text)
        return int(text)

    if kind.text_is_json:
        return lambda text: parse_json_cell(text, path, kind.text_form)
    if isinstance(kind, Reference):
        return _reader_of(kind.key[0], path)
    if isinstance(kind, Boolean):
        return lambda text: _WORDS.get(text, text)
    if isinstance(kind, Integer):
        return read_integer
    return None


def _refuse(
    kind: ValueType, path: str, text: str, error: InvalidValue | None = None
) -> InvalidValue:
    expected = kind.text_form
    hint = "a null is written \\N" if text.lower() in ("", "null", "none", "nil") else ""
    is_number = error is not None and error.context["expected"] != kind.expected
    if error is not None and is_number and isinstance(kind, Decimal | Float):
        expected, hint = error.context["expected"], error.hint  # it has too many digits
    return InvalidValue(
        "a value does not fit its field",
        field=path,
        expected=expected,
        got=describe_value(text),
        value=one_line(text, REFUSED_CHARS_MAX),
        hint=hint,
    )


def parse_json_cell(text: str, path: str, expected: str) -> Any:
    """Plain data, in which numbers with a point or an exponent are decimals; raises `InvalidValue`
    for what is not JSON, or says a thing twice."""
    try:
        return read_json(text)
    except (ValueError, RecursionError) as error:
        raise InvalidValue(
            "the text is not valid JSON",
            field=path,
            expected=expected,
            problem=str(error),
            value=one_line(text, REFUSED_CHARS_MAX),
        ) from None


def show_json(plain: Any) -> str:
    """Plain data as JSON, for errors."""
    return one_line(json.dumps(plain, ensure_ascii=False, default=_show_other), REFUSED_CHARS_MAX)


def _show_other(value: Any) -> str:
    return str(value) if isinstance(value, decimal.Decimal) else describe_value(value)
