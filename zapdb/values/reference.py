"""References: the key of a record of another table, as value and as key.

The bytes are the target's record key. The types of a key never change (rule 21), so they are part
of the reference's type.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from zapdb.errors import CorruptRecord, InvalidValue
from zapdb.limits import RECORD_KEY_SIZE_BYTES_MAX
from zapdb.values.generated_source import Namespace
from zapdb.values.value_type import ValueType


@dataclass(frozen=True)
class Reference(ValueType):
    """`table` is the target's name, `number` its number, `key` the types of its key in order.

    A value is the target's key: the value of its one field, or a tuple.
    """

    table: str
    number: int
    key: tuple[ValueType, ...]

    name = "reference"
    ordered = False

    def __str__(self) -> str:
        return f"reference({self.table})"

    @property
    def expected(self) -> str:  # type: ignore[override]  # it depends on the target
        kinds = ", ".join(map(str, self.key))
        return f"the key of a record of {self.table} ({kinds})"

    @property
    def encoding_id(self) -> Any:
        return (self.name, tuple(kind.encoding_id for kind in self.key))

    @property
    def text_form(self) -> str:  # type: ignore[override]  # it depends on the target
        forms = [kind.text_form for kind in self.key]
        if len(forms) == 1:
            return forms[0]
        return f"a JSON list with the key of {self.table}: {', '.join(forms)}"

    @property
    def text_is_json(self) -> bool:  # type: ignore[override]  # it depends on the target
        return len(self.key) > 1

    def neutral(self) -> Any:
        parts = tuple(kind.neutral() for kind in self.key)
        return parts[0] if len(parts) == 1 else parts

    def check(self, value: Any, path: str) -> Any:
        return self._each("check", value, path)

    def _each(self, method: str, value: Any, path: str) -> Any:
        """Call `method` of each of the key's types with its part of a value."""
        if len(self.key) == 1:
            checked = getattr(self.key[0], method)(value, path)
            parts: tuple[Any, ...] = (checked,)
        elif isinstance(value, tuple | list) and len(value) == len(self.key):
            parts = checked = tuple(
                getattr(kind, method)(part, f"{path}[{at}]")
                for at, (kind, part) in enumerate(zip(self.key, value, strict=True))
            )
        else:
            raise self.refuse(value, path)
        size = sum(len(kind.encode_key(part)) for kind, part in zip(self.key, parts, strict=True))
        if size > RECORD_KEY_SIZE_BYTES_MAX:
            most = f"a key of at most {RECORD_KEY_SIZE_BYTES_MAX} bytes"
            raise InvalidValue.of(path, most, value)
        return checked

    def encode(self, value: Any) -> bytes:
        if len(self.key) == 1:
            return self.key[0].encode_key(value)
        return b"".join(kind.encode_key(part) for kind, part in zip(self.key, value, strict=True))

    def decode(self, data: bytes, position: int) -> tuple[Any, int]:
        parts, at = [], position
        for kind in self.key:
            part, at = kind.decode_key(data, at)
            parts.append(part)
        if at - position > RECORD_KEY_SIZE_BYTES_MAX:
            raise CorruptRecord.at("reference", data, position + RECORD_KEY_SIZE_BYTES_MAX)
        return (parts[0] if len(parts) == 1 else tuple(parts)), at

    def skip(self, data: bytes, position: int) -> int:
        return self.decode(data, position)[1]

    def is_same_under(self, left: Any, other: ValueType, right: Any) -> bool:
        if not isinstance(other, Reference) or self.encoding_id != other.encoding_id:
            return False
        return self.encode(left) == other.encode(right)

    # Most keys have one field whose key encoding is its value encoding. Its source is used as is,
    # without a check of its size: it is short, or a reference that checks its size itself.

    def encode_source(self, value: str, path: str, names: Namespace) -> tuple[list[str], str]:
        if self._is_simple:
            return self.key[0].encode_key_source(value, path, names)
        return super().encode_source(value, path, names)

    def decode_source(self, target: str, names: Namespace) -> list[str]:
        if self._is_simple:
            return self.key[0].decode_key_source(target, names)
        return super().decode_source(target, names)

    def skip_source(self, names: Namespace) -> list[str]:
        if self._is_simple:
            return self.key[0].skip_source(names)
        return super().skip_source(names)

    @property
    def _is_simple(self) -> bool:
        return len(self.key) == 1 and self.key[0].key_is_value

    def from_document(self, plain: Any, path: str) -> Any:
        return self._each("from_document", plain, path)

    def to_document(self, value: Any) -> Any:
        if len(self.key) == 1:
            return self.key[0].to_document(value)
        return [kind.to_document(part) for kind, part in zip(self.key, value, strict=True)]
