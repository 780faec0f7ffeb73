"""Columns of strings, and of what is bytes or a string in Arrow."""

from __future__ import annotations

import json
import json.encoder
from collections.abc import Callable
from typing import Any, Final
from uuid import UUID

import numpy
import pyarrow
from pyarrow import compute, types

from zapdb.limits import INLINE_SIZE_BYTES_MAX, RECORD_KEY_SIZE_BYTES_MAX
from zapdb.records.arrow.columns.column import (
    BINARIES,
    STRINGS,
    ColumnPlace,
    Leaf,
    each,
    take_fixed_source,
)
from zapdb.records.arrow.packing import constant_like, has_zero_byte, pack_sized, size_max
from zapdb.records.arrow.positions import Bytes, NeedsRows, Positions
from zapdb.records.attachments import Attachments
from zapdb.values import Binary, Enum, Integer, Json, String
from zapdb.values.blob import BLOB_MARK, decode_inline_or_blob
from zapdb.values.cbor import NULL
from zapdb.values.generated_source import Namespace
from zapdb.values.json import decode_json, read_json
from zapdb.values.length_prefixed import (
    ESCAPED_END,
    read_length_prefixed,
    read_length_prefixed_source,
    unescape,
)
from zapdb.values.varint import encode_varint

UUID_SIZE_BYTES: Final = 16


class BytesColumn(Leaf):
    """Strings and binaries. UTF-8 goes to Arrow as it is, which checks it."""

    def __init__(self, kind: String | Binary, path: str, at: int, place: ColumnPlace) -> None:
        super().__init__(path, at)
        self.kind = kind
        self.place = place
        is_text = isinstance(kind, String)
        self.arrow = pyarrow.string() if is_text else pyarrow.binary()
        self.accepted = STRINGS if is_text else BINARIES

    def take_source(self, target: str, names: Namespace) -> list[str]:
        if self.place == "key":
            read = f"{target}, p = {names.bind(unescape, 'unescape')}(b, p)"
            # No record's key is longer: no part of one, and no reference that is one string.
            return ["q = p", read, f"if p - q > {RECORD_KEY_SIZE_BYTES_MAX}: raise IndexError"]
        if self.place == "inside":
            return [*read_length_prefixed_source(names), f"{target} = b[q:p]"]
        load = names.bind(self._load, "load_outlined")
        return [
            "c = b[p]",
            "if 0x80 <= c < 0xC0:",
            "    q = p + 1",
            "    p = q + c - 0x80",
            f"    {target} = b[q:p]",
            "else:",
            f"    {target}, p, c = {load}(b, p, near)",
            "    room -= c",
        ]

    def step(self, positions: Positions) -> Any:
        if self.place == "key":
            return positions.take_escaped(RECORD_KEY_SIZE_BYTES_MAX)
        if self.place == "inside":
            return positions.take_extents()
        return positions.take_extents(INLINE_SIZE_BYTES_MAX)  # blobs have another beginning

    def fill(self, source: Bytes, taken: Any) -> Any:
        return source.cut(taken).cast(self.arrow)  # which checks UTF-8

    def _load(self, data: bytes, position: int, attachments: Attachments) -> tuple[Any, int, int]:
        """Return the value, loaded if it is a blob, the position after it, and the blob's size."""
        if data[position : position + 1] == BLOB_MARK:
            blob, after = decode_inline_or_blob(self.kind, data, position)
            return attachments.load_value(blob), after, blob.size
        start, after = read_length_prefixed(data, position, INLINE_SIZE_BYTES_MAX)
        return data[start:after], after, 0

    def pack(self, array: Any) -> list[Any] | None:
        if isinstance(self.kind, String):
            array = array.cast(self.arrow)
            array.validate(full=True)  # files may have bytes that are no UTF-8
        raw = array.cast(pyarrow.binary())
        if self.place == "key":
            return None if has_zero_byte(raw) else [raw, constant_like(raw, ESCAPED_END)]
        if self.place == "inside" or size_max(raw) > INLINE_SIZE_BYTES_MAX:
            return None
        return pack_sized(raw)


class UuidColumn(Leaf):
    arrow = pyarrow.binary()
    accepted = BINARIES

    def take_source(self, target: str, names: Namespace) -> list[str]:
        return take_fixed_source(target, UUID_SIZE_BYTES)

    def step(self, positions: Positions) -> Any:
        return positions.take_fixed(UUID_SIZE_BYTES)

    def fill(self, source: Bytes, taken: Any) -> Any:
        return source.cut(taken)

    def convert(self, array: Any) -> list[Any]:
        return each(array.to_pylist(), lambda raw: UUID(bytes=raw))

    def pack(self, array: Any) -> list[Any] | None:
        if types.is_fixed_size_binary(array.type) and array.type.byte_width != UUID_SIZE_BYTES:
            return None
        raw = array.cast(self.arrow)
        sizes = compute.min_max(compute.binary_length(raw)).as_py()
        wanted = (UUID_SIZE_BYTES, UUID_SIZE_BYTES)
        return [raw] if (sizes["min"], sizes["max"]) in (wanted, (None, None)) else None


class EnumColumn(Leaf):
    raw = Integer()
    arrow = pyarrow.string()
    accepted = STRINGS

    def __init__(self, kind: Enum, path: str, at: int) -> None:
        super().__init__(path, at)
        self.members = dict(kind.members)

    def take_source(self, target: str, names: Namespace) -> list[str]:
        members = names.bind(self.members, "members")
        return [*super().take_source(target, names), f"{target} = {members}[{target}]"]

    def step(self, positions: Positions) -> Any:
        return positions.take_varints()

    def fill(self, source: Bytes, taken: Any) -> Any:
        numbers, places = numpy.unique(taken, return_inverse=True)
        names = pyarrow.array([self.members[number] for number in numbers.tolist()], self.arrow)
        return names.take(pyarrow.array(places))

    def pack(self, array: Any) -> list[Any] | None:
        held = array.cast(self.arrow).dictionary_encode()
        numbers = {name: number for number, name in self.members.items()}
        found = held.dictionary.to_pylist()
        if not numbers.keys() >= set(found):
            return None
        encoded = [encode_varint(numbers[name]) for name in found]
        return [pyarrow.array(encoded, pyarrow.binary()).take(held.indices)]


class JsonColumn(Leaf):
    """JSON as text without spaces, the keys of objects sorted."""

    raw = Json()
    arrow = pyarrow.string()
    accepted = STRINGS

    def take_source(self, target: str, names: Namespace) -> list[str]:
        to_json = names.bind(_to_json, "to_json")
        return [*super().take_source(target, names), f"{target} = {to_json}({target})"]

    def null_check_source(self) -> list[str]:
        return [f"if v{self.at} == 'null': raise IndexError"]

    def step(self, positions: Positions) -> Any:
        return positions.take_extents()

    def step_not_null(self, positions: Positions) -> Any:
        taken = self.step(positions)
        if (positions.source.data[taken.starts] == NULL[0]).any():
            raise NeedsRows
        return taken

    def fill(self, source: Bytes, taken: Any) -> Any:
        """Equal values, which are frequent, are decoded once."""
        found = source.cut(taken).dictionary_encode()
        texts = [_to_json(decode_json(raw, 0, len(raw))) for raw in found.dictionary.to_pylist()]
        return pyarrow.array(texts, self.arrow).take(found.indices)

    def convert(self, array: Any) -> list[Any]:
        return each(array.to_pylist(), self._read)

    def _read(self, text: str) -> Any:
        return self.raw.from_document(read_json(text), self.path)


def _make_encoder() -> Callable[[Any], str]:
    """What writes JSON as `JSONEncoder.encode` does, which makes its part in C anew for each value.

    That part is made once here, where Python has it, which takes half the time.
    """
    # What was just decoded has no cycles; to look for them takes longer than all the rest.
    slow = json.JSONEncoder(
        ensure_ascii=False, check_circular=False, separators=(",", ":"), sort_keys=True
    )
    make = getattr(json.encoder, "c_make_encoder", None)
    if make is None:
        return slow.encode
    quote = json.encoder.encode_basestring
    parts = make(None, slow.default, quote, None, ":", ",", True, False, True)
    return lambda value: "".join(parts(value, 0))


_to_json = _make_encoder()
