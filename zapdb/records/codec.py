"""Codecs: the encoder and decoder of one table schema, generated, compiled once and cached.

Encoders take a mapping from field names to values and check every value; a missing value gets its
default. Decoders return a record object. Both raise errors that name the field, or the offset. New
blobs are added to an `Attachments`; old ones are loaded through it when the field is read.

Which blobs a record owns is found without decoding it: a finder steps through a record by the
lengths of its fields, as `Codec.skip` does, and collects the blobs on the way; it stops after the
last field that may hold one. The sweep and the verification read whole tables with it, so it is
generated for each layout.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from zapdb.errors import CorruptRecord, InvalidValue, UnknownField
from zapdb.limits import COMPILED_MAX, RECORD_KEY_SIZE_BYTES_MAX
from zapdb.memo import Memo
from zapdb.records import native
from zapdb.records.attachments import Attachments
from zapdb.records.layout import Layout, decode_prefix
from zapdb.records.record import Record, defer_large_values, record_class
from zapdb.records.unreadable import decode_unreadable
from zapdb.schema import Field, TableSchema, canonical_bytes
from zapdb.values import Zones
from zapdb.values.blob import find_blob_source
from zapdb.values.generated_source import Namespace, compile_function, indent
from zapdb.values.struct_value import make_source


@dataclass(frozen=True, slots=True)
class Codec:
    """The compiled functions of one table schema, with their source."""

    layout: Layout
    record: type[Record]
    encode: Callable[[bytes, Mapping[str, Any], Attachments], bytes]
    """(prefix, values by name, where blobs go) → the record's bytes; raises `InvalidValue`."""
    encode_key: Callable[[Mapping[str, Any]], bytes]
    """values by name → the record key's bytes; raises `InvalidValue`."""
    key_of: Callable[..., bytes]
    """The same of the values of the key's fields, in the order of the key."""
    decode: Callable[[bytes, bytes, int, Attachments], Record]
    """(key, record, position after the prefix, where blobs are) → the record; raises
    `CorruptRecord`."""
    decode_key: Callable[[bytes], tuple[Any, ...]]
    skip: Callable[[bytes, int], int]
    """(record, position after the prefix) → where its fields end, by their lengths alone."""
    source: str


Decode = Callable[[bytes, bytes, int, Attachments], Record]
"""As `Codec.decode`; the record may have some of the fields only."""

_compiled = Memo[Any, Any](COMPILED_MAX)
"""By table schema, for all databases. A codec with a database's zones is kept with them instead."""


def codec_for(table: TableSchema, zones: Zones | None = None) -> Codec:
    """Return the codec of the table schema in a database with these zones, compiled once."""
    bound = bind_zones(table, zones)
    codec: Codec = compiled_with(table, bound, zones).get(
        canonical_bytes(table), lambda: accelerate(bound, compile_codec(bound))
    )
    return codec


def decoder_of(table: TableSchema, numbers: frozenset[int], zones: Zones | None = None) -> Decode:
    """A decoder of the fields with these numbers: the others are stepped over, or not reached."""
    bound = bind_zones(table, zones)

    compiled = compiled_with(table, bound, zones)
    decode: Decode = compiled.get(
        (canonical_bytes(table), numbers), lambda: _make_decoder(bound, numbers)
    )
    return decode


def _make_decoder(table: TableSchema, numbers: frozenset[int]) -> Decode:
    record, decode = compile_decoder(table, numbers)
    if native.accelerator is None:
        return decode
    fast: Decode = native.plan_decode(table, record, decode, numbers)
    return fast


def compile_decoder(table: TableSchema, numbers: frozenset[int]) -> tuple[type[Record], Decode]:
    """Return a partial decoder in Python, and the class of its records."""
    record = record_class(table.name, tuple(f.name for f in table.fields if f.number in numbers))
    return record, _compile_decode(table, record, numbers)[0]


def compiled_with(table: TableSchema, bound: TableSchema, zones: Zones | None) -> Memo[Any, Any]:
    """Where what is compiled for a table is kept."""
    return _compiled if zones is None or bound is table else zones.compiled


def bind_zones(table: TableSchema, zones: Zones | None) -> TableSchema:
    """Return the table with a database's zone numbers; the table itself if no type needs them."""
    if zones is None:
        return table
    fields = tuple(replace(f, type=f.type.bind(zones)) for f in table.fields)
    is_bound = any(new.type is not old.type for new, old in zip(fields, table.fields, strict=True))
    return table.with_fields(fields) if is_bound else table


def compile_codec(table: TableSchema) -> Codec:
    """Return the codec in Python of a table whose types are bound."""
    record = record_class(table.name, tuple(f.name for f in table.fields))
    encode, encode_text = _compile_encode(table)
    encode_key, encode_key_text = _compile_encode_key(table)
    key_of, key_of_text = _compile_key_of(table)
    decode, decode_text = _compile_decode(table, record)
    decode_key, decode_key_text = _compile_decode_key(table)
    skip, skip_text = _compile_skip(table)
    key_texts = (encode_key_text, key_of_text)
    source = "\n".join((encode_text, *key_texts, decode_text, decode_key_text, skip_text))
    return Codec(
        Layout.of(table), record, encode, encode_key, key_of, decode, decode_key, skip, source
    )


def accelerate(table: TableSchema, codec: Codec) -> Codec:
    """Return the same codec; its functions try the accelerator first, if there is one."""
    if native.accelerator is None:
        return codec
    record = codec.record
    return replace(
        codec,
        encode=native.plan_encode(table, record, codec.encode),
        encode_key=native.plan_key(native.ENCODE_KEY, table, record, codec.encode_key),
        key_of=native.plan_key(native.KEY_OF, table, record, codec.key_of),
        decode=native.plan_decode(table, record, codec.decode),
        skip=native.plan_skip(table, record, codec.skip),
    )


def missing_field(table: str, names: tuple[str, ...], values: Mapping[str, Any]) -> InvalidValue:
    """The error for the first of the names that `values` lacks."""
    name = next(name for name in names if name not in values)
    return InvalidValue(
        "a required field is missing",
        field=f"{table}.{name}",
        hint="give it a value; it is not optional and has no default",
    )


def check_names(table: str, names: frozenset[str], values: Mapping[str, Any]) -> None:
    """Refuse names that the table does not have."""
    unknown = sorted(map(str, set(values) - names))
    if unknown:
        raise UnknownField.named(table, unknown[0], sorted(names))


def _take_source(table: TableSchema, fields: Sequence[Field], names: Namespace) -> list[str]:
    """Statements that set `v<number>` of each field from the mapping, or to its default if that is
    a constant."""
    required = [f for f in fields if _is_required(f)]
    lines = []
    if required:
        what = names.bind(table.name, "table")
        wanted = names.bind(tuple(f.name for f in required), "required")
        missing = names.bind(missing_field, "missing_field")
        lines += [
            "try:",
            *(f"    v{f.number} = m[{f.name!r}]" for f in required),
            f"except KeyError: raise {missing}({what}, {wanted}, m) from None",
        ]
    for f in fields:
        if not _is_required(f):
            default = names.bind(f.default if f.has_constant else None, "default")
            lines.append(f"v{f.number} = m.get({f.name!r}, {default})")
    return lines


def _is_required(f: Field) -> bool:
    return not (f.has_constant or f.optional)


def _check_names_source(table: TableSchema, names: Namespace) -> str:
    """A statement that refuses names which the table does not have."""
    known = frozenset(f.name for f in table.fields)
    check = f"{names.bind(check_names, 'check_names')}({names.bind(table.name, 'table')}, "
    check += f"{names.bind(known, 'known')}, m)"
    if all(map(_is_required, table.fields)):
        # Every field's name is looked up, here or for the key: with the same count there is no
        # other.
        return f"if len(m) != {len(table.fields)}: {check}"
    return f"if not {names.bind(known.issuperset, 'knows_all_of')}(m): {check}"


def _compile_encode(table: TableSchema) -> tuple[Callable[..., Any], str]:
    layout, names = Layout.of(table), Namespace()
    lines = [_check_names_source(table, names)]
    lines += _take_source(table, table.value_fields, names)
    parts = ["prefix"]
    if layout.presence_size_bytes:
        lines.append("present = 0")
        parts.append(f"present.to_bytes({layout.presence_size_bytes}, 'little')")
    for f in table.value_fields:
        value = f"v{f.number}"
        statements, encoded = f.type.encode_field_source(value, f"{table.name}.{f.name}", names)
        if f.optional:
            lines.append(f"if {value} is None: e{f.number} = b''")
            lines.append("else:")
            lines += indent([*statements, f"e{f.number} = {encoded}"])
            lines.append(f"    present |= {1 << layout.bit(f.number)}")
            encoded = f"e{f.number}"
        else:
            lines += statements
        parts.append(encoded)
    lines.append(f"return b''.join(({', '.join(parts)},))")
    return compile_function(
        "encode",
        ["def encode(prefix, m, attachments):", *indent(lines)],
        names,
        f"encode {table.name}",
    )


def _compile_encode_key(table: TableSchema) -> tuple[Callable[..., Any], str]:
    names = Namespace()
    lines = [*_take_source(table, table.key_fields, names), *_key_encoding(table, names)]
    return compile_function(
        "encode_key", ["def encode_key(m):", *indent(lines)], names, f"encode key {table.name}"
    )


def _compile_key_of(table: TableSchema) -> tuple[Callable[..., Any], str]:
    names = Namespace()
    values = ", ".join(f"v{f.number}" for f in table.key_fields)
    body = [f"def key_of({values}):", *indent(_key_encoding(table, names))]
    return compile_function("key_of", body, names, f"key of {table.name}")


def _key_encoding(table: TableSchema, names: Namespace) -> list[str]:
    """Statements that return the key of the values `v<number>`."""
    lines, parts = list[str](), list[str]()
    for f in table.key_fields:
        path = f"{table.name}.{f.name}"
        statements, encoded = f.type.encode_key_source(f"v{f.number}", path, names)
        lines += statements
        parts.append(encoded)
    too_long = names.bind(_refuse_long_key, "refuse_long_key")
    return [
        *lines,
        f"key = {' + '.join(parts)}",
        f"if len(key) > {RECORD_KEY_SIZE_BYTES_MAX}: "
        f"{too_long}({names.bind(table.name, 'table')}, key)",
        "return key",
    ]


def _refuse_long_key(table: str, key: bytes) -> None:
    raise InvalidValue(
        "a record key is too long",
        table=table,
        size_bytes=len(key),
        size_bytes_max=RECORD_KEY_SIZE_BYTES_MAX,
    )


def _compile_decode(
    table: TableSchema, record: type[Record], selected: frozenset[int] | None = None
) -> tuple[Callable[..., Any], str]:
    layout, names = Layout.of(table), Namespace()
    corrupt = names.bind(CorruptRecord.at, "corrupt")
    what = names.bind(table.name, "table")
    wanted = [f for f in table.fields if selected is None or f.number in selected]
    lines: list[str] = []
    if any(f.number in table.key for f in wanted):
        lines += _key_decoding(table, names)
    lines += ["b = value", "p = start", "n = len(b)"]
    is_late = any(f.type.may_be_blob and f.number not in table.key for f in wanted)
    if is_late:
        lines.append("late = False")
    size = layout.presence_size_bytes
    if size:
        lines += presence_source(layout, names)
    reach = len(table.value_fields)
    while selected is not None and reach and table.value_fields[reach - 1].number not in selected:
        reach -= 1
    for f in table.value_fields[:reach]:
        lines += _decode_field(f, layout, names, is_wanted=f in wanted)
    compare = "!=" if reach == len(table.value_fields) else ">"
    lines.append(f"if p {compare} n: raise {corrupt}({what}, b, p)")
    lines += make_source("r", record, [f"f{f.number}" for f in wanted], names)
    if is_late:
        lines.append(
            f"return {names.bind(defer_large_values, 'defer')}(r, attachments) if late else r"
        )
    else:
        lines.append("return r")
    body = [
        "def decode(key, value, start, attachments):",
        "    b = key",
        "    p = 0",
        "    try:",
        *indent(lines, 2),
        "    except (IndexError, UnicodeDecodeError):",
        f"        raise {corrupt}({what}, b, p) from None",
    ]
    return compile_function("decode", body, names, f"decode {table.name}")


def _decode_field(f: Field, layout: Layout, names: Namespace, *, is_wanted: bool) -> list[str]:
    """Statements that decode a field, or step over it."""
    value = f"f{f.number}"
    kind = f.type
    step = kind.decode_field_source(value, names) if is_wanted else kind.skip_field_source(names)
    if not f.optional:
        return step
    if is_wanted and kind.holds_null:
        corrupt = names.bind(CorruptRecord.at, "corrupt")
        step = [*step, f"if {value} is None: raise {corrupt}('null that is present', b, p)"]
    lines = [f"if m & {1 << layout.bit(f.number)}:", *indent(step)]
    return [*lines, "else:", f"    {value} = None"] if is_wanted else lines


def presence_source(layout: Layout, names: Namespace) -> list[str]:
    """Statements that set `m` to the presence bits of `b` at `p` and step over them."""
    size, corrupt = layout.presence_size_bytes, names.bind(CorruptRecord.at, "corrupt")
    read = "b[p]" if size == 1 else f"int.from_bytes(b[p:p + {size}], 'little')"
    refused = f"raise {corrupt}('presence bits', b, p)"
    return [f"m = {read}", f"if m >> {len(layout.optional)}: {refused}", f"p += {size}"]


def _key_decoding(table: TableSchema, names: Namespace) -> list[str]:
    corrupt = names.bind(CorruptRecord.at, "corrupt")
    most = RECORD_KEY_SIZE_BYTES_MAX
    lines = ["n = len(b)", f"if n > {most}: raise {corrupt}('record key', b, {most})"]
    for f in table.key_fields:
        lines += f.type.decode_key_source(f"f{f.number}", names)
    return [*lines, f"if p != n: raise {corrupt}('record key', b, p)"]


def _compile_decode_key(table: TableSchema) -> tuple[Callable[..., Any], str]:
    names = Namespace()
    corrupt = names.bind(CorruptRecord.at, "corrupt")
    values = ", ".join(f"f{f.number}" for f in table.key_fields)
    body = [
        "def decode_key(b):",
        "    p = 0",
        "    try:",
        *indent([*_key_decoding(table, names), f"return ({values},)"], 2),
        "    except (IndexError, UnicodeDecodeError):",
        f"        raise {corrupt}('record key', b, p) from None",
    ]
    return compile_function("decode_key", body, names, f"decode key {table.name}")


def _compile_skip(table: TableSchema) -> tuple[Callable[..., Any], str]:
    layout, names = Layout.of(table), Namespace()
    corrupt, what = names.bind(CorruptRecord.at, "corrupt"), names.bind(table.name, "table")
    lines = ["n = len(b)"]
    if layout.presence_size_bytes:
        lines += presence_source(layout, names)
    for f in table.value_fields:
        lines += _decode_field(f, layout, names, is_wanted=False)
    lines += [f"if p > n: raise {corrupt}({what}, b, p)", "return p"]
    body = [
        "def skip(b, p):",
        "    try:",
        *indent(lines, 2),
        "    except IndexError:",
        f"        raise {corrupt}({what}, b, p) from None",
    ]
    return compile_function("skip", body, names, f"skip {table.name}")


FindBlobs = Callable[[bytes, int], list[tuple[bytes, int]]]
"""(record, position after its prefix) → the ids and sizes of its blobs; raises `CorruptRecord`."""


class OwnedBlobs:
    """Finds the blobs of one table's records, whatever their revision.

    `layouts` gives the layout of each revision; a finder is compiled for each revision that occurs.
    """

    def __init__(self, layouts: Mapping[int, Layout]) -> None:
        self._layouts = layouts
        self._finders: dict[int, FindBlobs | None] = {}

    @property
    def are_possible(self) -> bool:
        """Whether a record of any revision can own a blob."""
        return any(_outlined(layout) for layout in self._layouts.values())

    def find(self, value: bytes) -> list[tuple[bytes, int]]:
        """The ids and sizes of a record's blobs; raises `CorruptRecord`, also for a revision
        without a layout: what can't be read may own anything."""
        revision, start = decode_prefix(value, 0)
        try:
            find = self._finders[revision]
        except KeyError:
            find = self._finders[revision] = self._compile(revision, value)
        return [] if find is None else find(value, start)

    def find_logged(self, value: bytes) -> list[tuple[bytes, int]]:
        """The same of a record as the change log has it; of one that could not be read, what can be
        found."""
        unreadable = decode_unreadable(value)
        if unreadable is None:
            return self.find(value)
        try:
            return self.find(unreadable.stored)
        except CorruptRecord:
            return []

    def _compile(self, revision: int, value: bytes) -> FindBlobs | None:
        layout = self._layouts.get(revision)
        if layout is None:
            raise CorruptRecord.at(f"record of the unknown revision {revision}", value, 0)
        return compile_find(layout)


def compile_find(layout: Layout) -> FindBlobs | None:
    """The finder of a layout; None if no field can hold a blob."""
    last = max(_outlined(layout), default=None)
    if last is None:
        return None
    names = Namespace()
    lines = ["found = []", "n = len(b)"]
    if layout.presence_size_bytes:
        lines += presence_source(layout, names)
    for slot in layout.slots[: last + 1]:
        kind = slot.type
        step = find_blob_source(names) if kind.may_be_blob else kind.skip_field_source(names)
        if slot.optional:
            lines += [f"if m & {1 << layout.bit(slot.number)}:", *indent(step)]
        else:
            lines += step
    corrupt = names.bind(CorruptRecord.at, "corrupt")
    lines += [f"if p > n: raise {corrupt}('record', b, p)", "return found"]
    body = [
        "def find(b, p):",
        "    try:",
        *indent(lines, 2),
        "    except IndexError:",
        f"        raise {corrupt}('record', b, p) from None",
    ]
    return compile_function("find", body, names, "blobs of a record")[0]


def _outlined(layout: Layout) -> list[int]:
    """The places of the slots that may hold a blob."""
    return [at for at, slot in enumerate(layout.slots) if slot.type.may_be_blob]
