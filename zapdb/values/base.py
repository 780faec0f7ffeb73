"""What every value type provides.

A value type has up to three encodings. The *value encoding* is what a record holds: it delimits
itself, and equal values have equal bytes. The *key encoding* is what record keys hold: stable and
reversible (rule 21). The *index encoding* is what index entries hold; it may depend on what is
declared (the order of an enum's members) or on a dataset, and need not be reversible. The law of
both kinds of keys: x sorts before y exactly when its bytes do, and no encoding is a prefix of
another, so that concatenations keep the order.

`encode`, `decode` and `skip` define the format. The `*_source` methods return Python source that
does the same inside a generated function; by default it calls them, and types on the hot path
write it out. A property test ties the two. Inside generated source `b` is the buffer, `p` the
position in it, and `c`, `q` are scratch names.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, ClassVar

from zapdb.errors import InvalidValue
from zapdb.values.hints import hint_for
from zapdb.values.source import Namespace

if TYPE_CHECKING:
    from zapdb.values.zones import Zones


@dataclass(frozen=True)
class ValueType(ABC):
    """A type together with its parameters; immutable, hashable, compared by both."""

    name: ClassVar[str]
    expected: ClassVar[str]
    """What a value must be, as an error says it."""
    text_form: ClassVar[str]
    """What a text that stands for a value must be, in a cell or an argument."""
    text_is_json: ClassVar[bool] = False
    """Such a text is the JSON of the value's document form, even of one that is a string."""
    fixed_size_bytes: ClassVar[int | None] = None
    keyable: ClassVar[bool] = True
    """May be part of a record key: its key encoding is stable and reversible (rule 21)."""
    indexable: ClassVar[bool] = True
    index_key_is_exact: ClassVar[bool] = True
    """Equal index encodings mean equal values. Collations are no matter of the type."""
    has_python_order: ClassVar[bool] = False
    """Checked values are hashable, and Python compares them as their index keys are."""
    comparable: ClassVar[bool] = True
    """May be compared by == in expressions: by the bytes of the two values alone (rule 18)."""
    ordered: ClassVar[bool] = True
    """May be compared by < in expressions, too."""
    holds_null: ClassVar[bool] = False
    """None is a value of the type; in an optional field it is absent all the same."""
    may_be_blob: ClassVar[bool] = False
    """A large value of a field is a blob outside the record (see `blob`)."""

    def __str__(self) -> str:
        """The type as an error names it."""
        parameters = ", ".join(map(str, self.parameters().values()))
        return f"{self.name}({parameters})" if parameters else self.name

    @property
    def depth(self) -> int:
        """How deep structs and lists are nested in it."""
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
        """The type with a database's zone numbers, where it needs them."""
        return self

    def parameters(self) -> dict[str, Any]:
        """The type's parameters as they stand in a migration file."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @abstractmethod
    def neutral(self) -> Any:
        """A checked value that says the least: 0, an empty text or list, false, 1970-01-01, the
        first member of an enum, a struct of neutral members, JSON's null, a key of neutral values.
        """

    @abstractmethod
    def check(self, value: Any, path: str) -> Any:
        """The value in its normal form; raises `InvalidValue` naming `path` if it does not fit."""

    @abstractmethod
    def encode(self, value: Any) -> bytes:
        """Value encoding of a checked value."""

    @abstractmethod
    def decode(self, data: bytes, position: int) -> tuple[Any, int]:
        """The value at `position` and the position after it; raises `CorruptRecord`."""

    @abstractmethod
    def skip(self, data: bytes, position: int) -> int:
        """The position after the value at `position`: where `decode` would end."""

    def encode_key(self, value: Any) -> bytes:
        """Key encoding of a checked value: here the value encoding, where that has the order."""
        return self.encode(value)

    def decode_key(self, data: bytes, position: int) -> tuple[Any, int]:
        return self.decode(data, position)

    def encode_index_key(self, value: Any) -> bytes:
        """Index encoding of a checked value: here the key encoding."""
        return self.encode_key(value)

    def is_same(self, left: Any, right: Any) -> bool:
        """Whether two checked values are one value, as their bytes would say."""
        return bool(left == right)

    def from_document(self, plain: Any, path: str) -> Any:
        """The value that a migration file writes as `plain`."""
        return self.check(plain, path)

    def to_document(self, value: Any) -> Any:
        """The plain form of a checked value; `from_document` takes it back."""
        return value

    def encode_source(self, value: str, path: str, names: Namespace) -> tuple[list[str], str]:
        """Statements that check and encode the variable `value`, and the resulting expression."""
        check = names.bind(self.check, f"check_{self.name}")
        encode = names.bind(self.encode, f"encode_{self.name}")
        return [f"{value} = {check}({value}, {names.bind(path, 'path')})"], f"{encode}({value})"

    def decode_source(self, target: str, names: Namespace) -> list[str]:
        """Statements that set the variable `target` from `b` at `p` and advance `p`."""
        return [f"{target}, p = {names.bind(self.decode, f'decode_{self.name}')}(b, p)"]

    def skip_source(self, names: Namespace) -> list[str]:
        """Statements that advance `p` past the value."""
        if self.fixed_size_bytes is not None:
            return [f"p += {self.fixed_size_bytes}"]
        return [f"p = {names.bind(self.skip, f'skip_{self.name}')}(b, p)"]

    # A field of a record may hold its value in a second way, as a blob: `attachments` is then where
    # the bytes go, and `late` becomes true where decoding met one. Values inside values never do.

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
