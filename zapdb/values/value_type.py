"""What every value type provides.

A value type has up to three encodings. The *value encoding* is what a record holds: it delimits
itself, and equal values have equal bytes. The *key encoding* is what record keys hold: stable and
reversible (rule 21). The *index encoding* is what index entries hold; it may depend on what is
declared (the order of an enum's members) or on a dataset, and need not be reversible. The law of
both kinds of keys: x sorts before y exactly when its bytes do, and no encoding is a prefix of
another, so that concatenations keep the order.

`encode`, `decode` and `skip` define the format. The `*_source` methods return Python source that
does the same inside a generated function. By default that source calls them; types on the hot path
write it out. A property test compares the two. In generated source `b` is the buffer, `p` the
position in it, and `c` and `q` are scratch names.

zapdb converts no value of another type by itself, because a guess would be stored: a float has more
digits than were meant, and a local time has no zone. The error's hint has the Python call that
makes one that fits.
"""

from __future__ import annotations

import datetime
import decimal
import enum
import uuid
from abc import ABC, abstractmethod
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, ClassVar, Final

from zapdb.errors import InvalidValue
from zapdb.values.generated_source import Namespace
from zapdb.values.plain_kinds import PlainKind

if TYPE_CHECKING:
    from zapdb.values.zones import Zones


_ANY_NUMBER: Final = (int, float, decimal.Decimal)
_CALLS: Final[dict[str, tuple[tuple[type | tuple[type, ...], str], ...]]] = {
    "binary": ((str, "text.encode()"),),
    "boolean": ((int, "bool(number)"), (str, 'text == "true"')),
    "date": (
        (datetime.datetime, "moment.date()"),
        (str, "datetime.date.fromisoformat(text)"),
    ),
    "decimal": (
        (str, "decimal.Decimal(text)"),
        (float, 'decimal.Decimal("1.50"), or round(decimal.Decimal(number), 2)'),
    ),
    "enum": ((enum.Enum, "member.name"),),
    "float": ((decimal.Decimal, "float(number)"), (str, "float(text)")),
    "integer": (
        (bool, "int(value)"),
        ((float, decimal.Decimal), "round(number)"),
        (str, "int(text)"),
    ),
    "list": (((set, frozenset), "sorted(values)"), (str, "[text], or text.split()")),
    "string": (
        (bytes, "raw.decode()"),
        (enum.Enum, "member.value"),
        ((*_ANY_NUMBER, uuid.UUID, datetime.date), "str(value)"),
    ),
    "timestamp": (
        (datetime.datetime, "datetime.datetime.now(datetime.UTC), or moment.astimezone()"),
        (datetime.date, "datetime.datetime.combine(day, datetime.time(), datetime.UTC)"),
        (str, "datetime.datetime.fromisoformat(text), with an offset such as +00:00 in the text"),
    ),
    "uuid": ((str, "uuid.UUID(text)"), (bytes, "uuid.UUID(bytes=raw)"), (int, "uuid.UUID(int=n)")),
    "zoned_timestamp": (
        (datetime.datetime, 'moment.replace(tzinfo=zoneinfo.ZoneInfo("Europe/Paris"))'),
    ),
}
"""By the name of a type: which values are often given in its place, and what makes one of them."""

MISSING: Final = ("NaTType", "NAType")
"""The types of what pandas has in the place of a missing value."""


def hint_for(name: str, value: object) -> str:
    """Return the hint for a value that does not fit the type of this name; an empty text if there
    is none."""
    if value is None:
        return "None fits optional fields only"
    if type(value).__name__ in MISSING:
        return "give None for a missing value"
    if getattr(value, "nanosecond", 0):
        return "times have microseconds here: give moment.floor('us')"
    if name == "timestamp" and getattr(value, "tzinfo", None) is not None:
        return ""  # it is outside the range
    for kinds, call in _CALLS.get(name, ()):
        if isinstance(value, kinds):
            return f"give {call}"
    if hasattr(value, "_fields") and hasattr(value, "_name"):
        return "give the key of the record, such as record.id"
    if hasattr(value, "dtype") and hasattr(value, "item"):  # of numpy
        return "give value.item()"
    return ""


@dataclass(frozen=True)
class ValueType(ABC):
    """A type with its parameters; immutable and hashable, equal if both are equal."""

    name: ClassVar[str]
    expected: ClassVar[str]
    """What a value must be, for errors: `expected: a date`."""
    text_form: ClassVar[str]
    """What the text of a value must be, in a cell or an argument, for errors."""
    held_as: ClassVar[str]
    """What a record holds, as Python writes it, such as `datetime.date`."""
    plain_kind: ClassVar[PlainKind]
    """The column that holds it in another database. One of the kind `text` holds its document form.

    Types that are made of others have neither this nor `held_as`: it depends on their parts.
    """
    text_is_json: ClassVar[bool] = False
    """The text of a value is the JSON of its document form, even if that form is a string."""
    fixed_size_bytes: ClassVar[int | None] = None
    keyable: ClassVar[bool] = True
    """May be part of a record key: its key encoding is stable and reversible (rule 21)."""
    indexable: ClassVar[bool] = True
    index_key_is_exact: ClassVar[bool] = True
    """Equal index encodings mean equal values, collations aside."""
    has_python_order: ClassVar[bool] = False
    """Checked values are hashable, and Python orders them as their index keys are ordered."""
    comparable: ClassVar[bool] = True
    """May be compared by == in expressions, which compares the bytes of the values (rule 18)."""
    ordered: ClassVar[bool] = True
    """May be compared by < in expressions, too."""
    holds_null: ClassVar[bool] = False
    """None is a value of the type; in an optional field, None still means no value."""
    may_be_blob: ClassVar[bool] = False
    """A large value of a field is a blob outside the record (see `blob`)."""

    def __str__(self) -> str:
        """The type as an error names it."""
        parameters = ", ".join(map(str, self.parameters().values()))
        return f"{self.name}({parameters})" if parameters else self.name

    @property
    def depth(self) -> int:
        """How many levels of structs and lists are nested in it."""
        return 0

    @property
    def encoding_id(self) -> Any:
        """What the value encoding depends on: types with equal ids have equal bytes."""
        return (self.name, *self.parameters().values())

    @property
    def index_encoding_id(self) -> Any:
        """What the index encoding depends on, datasets aside."""
        return self.encoding_id

    @property
    def depends_on_zones(self) -> bool:
        """Whether the index encoding depends on the time zone data in use."""
        return False

    def bind(self, zones: Zones) -> ValueType:
        """Return the type with a database's zone numbers, if it needs them."""
        return self

    def parameters(self) -> dict[str, Any]:
        """Return the type's parameters as a migration file has them."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @abstractmethod
    def neutral(self) -> Any:
        """Return the simplest checked value: 0, an empty text or list, false, 1970-01-01, the first
        member of an enum, a struct of neutral members, JSON's null, a key of neutral values.
        """

    @abstractmethod
    def check(self, value: Any, path: str) -> Any:
        """Return the value in its normal form; raises `InvalidValue`, which names `path`."""

    @abstractmethod
    def encode(self, value: Any) -> bytes:
        """Return the value encoding of a checked value."""

    @abstractmethod
    def decode(self, data: bytes, position: int) -> tuple[Any, int]:
        """Return the value at `position` and the position after it; raises `CorruptRecord`."""

    @abstractmethod
    def skip(self, data: bytes, position: int) -> int:
        """Return the position after the value at `position`, as `decode` does."""

    def encode_key(self, value: Any) -> bytes:
        """Return the key encoding of a checked value: by default the value encoding, for types
        whose value encoding sorts as the values do."""
        return self.encode(value)

    def decode_key(self, data: bytes, position: int) -> tuple[Any, int]:
        return self.decode(data, position)

    def encode_index_key(self, value: Any) -> bytes:
        """Return the index encoding of a checked value: by default the key encoding."""
        return self.encode_key(value)

    def is_same(self, left: Any, right: Any) -> bool:
        """Return whether the bytes of two checked values are equal."""
        return bool(left == right)

    def is_same_under(self, left: Any, other: ValueType, right: Any) -> bool:
        """Return whether a checked value is what a checked value of another type is, too: its bytes
        are equal but for changes of the type that do not touch it, as of the names of members."""
        return self.encoding_id == other.encoding_id and self.is_same(left, right)

    def from_document(self, plain: Any, path: str) -> Any:
        """Return the value that a migration file writes as `plain`."""
        return self.check(plain, path)

    def to_document(self, value: Any) -> Any:
        """Return the plain form of a checked value, which `from_document` reads back."""
        return value

    def encode_source(self, value: str, path: str, names: Namespace) -> tuple[list[str], str]:
        """Return statements that check and encode the variable `value`, and an expression for the
        bytes."""
        check = names.bind(self.check, f"check_{self.name}")
        encode = names.bind(self.encode, f"encode_{self.name}")
        return [f"{value} = {check}({value}, {names.bind(path, 'path')})"], f"{encode}({value})"

    def decode_source(self, target: str, names: Namespace) -> list[str]:
        """Return statements that set the variable `target` from `b` at `p` and advance `p`."""
        return [f"{target}, p = {names.bind(self.decode, f'decode_{self.name}')}(b, p)"]

    def skip_source(self, names: Namespace) -> list[str]:
        """Return statements that advance `p` past the value."""
        if self.fixed_size_bytes is not None:
            return [f"p += {self.fixed_size_bytes}"]
        return [f"p = {names.bind(self.skip, f'skip_{self.name}')}(b, p)"]

    # The value of a record's field may also be a blob. Its bytes then go to `attachments`, and
    # decoding sets `late` to true. Values inside structs and lists are never blobs.

    def encode_field_source(self, value: str, path: str, names: Namespace) -> tuple[list[str], str]:
        """As `encode_source`, for the value of a record's field."""
        return self.encode_source(value, path, names)

    def decode_field_source(self, target: str, names: Namespace) -> list[str]:
        """As `decode_source`, for the value of a record's field."""
        return self.decode_source(target, names)

    def skip_field_source(self, names: Namespace) -> list[str]:
        """As `skip_source`, for the value of a record's field."""
        return self.skip_source(names)

    def encode_key_source(self, value: str, path: str, names: Namespace) -> tuple[list[str], str]:
        """As `encode_source`, for the key encoding."""
        if self.key_is_value:
            return self.encode_source(value, path, names)
        check = names.bind(self.check, f"check_{self.name}")
        encode = names.bind(self.encode_key, f"encode_{self.name}_key")
        return [f"{value} = {check}({value}, {names.bind(path, 'path')})"], f"{encode}({value})"

    def decode_key_source(self, target: str, names: Namespace) -> list[str]:
        """As `decode_source`, for the key encoding."""
        if self.key_is_value:
            return self.decode_source(target, names)
        return [f"{target}, p = {names.bind(self.decode_key, f'decode_{self.name}_key')}(b, p)"]

    @property
    def key_is_value(self) -> bool:
        """Whether the key encoding is the value encoding."""
        return type(self).encode_key is ValueType.encode_key

    def refuse(self, value: object, path: str) -> InvalidValue:
        return InvalidValue.of(path, self.expected, value, hint_for(self.name, value))
