"""The record and key formats, written a second time: from the documents, not from zapdb.

Every function here says what docs/format/record.md or docs/format/key.md says, in the plainest
Python, and nothing of zapdb is imported. So it is slow, and it can be wrong only where the
documents are, or where it misread them. It only writes: what must not be read is listed by hand.

A type is a definition as in a migration file, with all that it depends on inside:

    {"type": "decimal", "scale": 2}
    {"type": "enum", "members": [{"id": 1, "name": "open"}, …]}            in declared order
    {"type": "struct", "members": [{"id": 1, "name": "zip", "type": "string", "optional": true}, …]}
    {"type": "list", "items": {"type": "integer"}}
    {"type": "reference", "key": [{"type": "uuid"}, …]}                    the target's key

A value is plain JSON, in which nothing is left to a JSON reader's numbers:

    integer             a number, or text beyond ±2⁵³
    decimal             text
    boolean             true, false
    date, timestamp     text as in ISO 8601
    zoned_timestamp     {"local": text, "zone": name, "number": its number, "fold": 0 or 1}
    uuid                text
    float               text as C writes it in hexadecimal: "0x1.8p+1", "inf", "nan"
    string              text, or {"repeat": text, "times": n}
    binary              hex digits, or {"repeat": hex digits, "times": n}
    json                null, true, false, text and arrays are themselves; {"integer": text},
                        {"float": as above}, {"object": [[key, value], …]}
    reference           the values of the target's key
    enum                the member's name
    struct              {member's name: value}; one that is left out is null
    list                an array
"""

from __future__ import annotations

import datetime
import functools
import hashlib
import importlib.resources
import struct
import uuid
import zoneinfo
from fractions import Fraction
from typing import Any

import icu

Definition = dict[str, Any]

INLINE_SIZE_MAX = 4_096
KEY_SIZE_MAX = 1_024
UNIQUE_KEY_ORDERED_SIZE = 992
EXTENT_SIZE_MAX = 4_194_304


# --- varint and extent ---------------------------------------------------------------------------


def varint(number: int) -> bytes:
    if -64 <= number <= 63:
        return bytes([0x80 + number])
    for n in range(1, 64):
        if 63 < number < 256**n:
            return bytes([0xBF + n]) + number.to_bytes(n, "big")
        if -(256**n) <= number < -64:
            return bytes([0x40 - n]) + (number + 256**n).to_bytes(n, "big")
    raise ValueError("no varint holds this number")


def extent(raw: bytes) -> bytes:
    assert len(raw) <= EXTENT_SIZE_MAX
    return varint(len(raw)) + raw


# --- values --------------------------------------------------------------------------------------


def value(kind: Definition, plain: Any) -> bytes:
    """The value encoding, as it is inside structs and lists; a field may have a blob instead."""
    match kind["type"]:
        case "integer":
            return varint(int(plain))
        case "decimal":
            scaled = Fraction(plain) * 10 ** kind["scale"]
            assert scaled.denominator == 1
            return varint(scaled.numerator)
        case "boolean":
            return b"\x01" if plain else b"\x00"
        case "date":
            epoch = datetime.date(1970, 1, 1)
            return varint((datetime.date.fromisoformat(plain) - epoch).days)
        case "timestamp":
            return biased(microseconds(datetime.datetime.fromisoformat(plain)))
        case "zoned_timestamp":
            local = microseconds(datetime.datetime.fromisoformat(plain["local"] + "+00:00"))
            return biased(local) + bytes([plain["fold"]]) + varint(plain["number"])
        case "uuid":
            return uuid.UUID(plain).bytes
        case "float":
            return float_(plain)
        case "string" | "binary":
            return extent(raw_bytes(kind, plain))
        case "json":
            return extent(cbor(plain))
        case "reference":
            return record_key(kind["key"], plain)
        case "enum":
            return varint(member_named(kind, plain)["id"])
        case "struct":
            return extent(presence_and_fields(kind["members"], plain, "id", value))
        case "list":
            return extent(b"".join(value(kind["items"], item) for item in plain))
    raise AssertionError(kind)


def microseconds(moment: datetime.datetime) -> int:
    epoch = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
    return (moment - epoch) // datetime.timedelta(microseconds=1)


def biased(number: int) -> bytes:
    return (number + 2**63).to_bytes(8, "big")


def float_(plain: str) -> bytes:
    if plain == "nan":
        return bytes.fromhex("FFF8000000000000")
    number = float.fromhex(plain)
    raw = struct.pack(">d", number)
    assert raw.hex() != "8000000000000000", "negative zero has no encoding"
    if raw[0] & 0x80:
        return bytes(byte ^ 0xFF for byte in raw)
    return bytes([raw[0] ^ 0x80]) + raw[1:]


def raw_bytes(kind: Definition, plain: Any) -> bytes:
    """The bytes that a string or binary is."""
    text = plain["repeat"] * plain["times"] if isinstance(plain, dict) else plain
    return text.encode("utf-8") if kind["type"] == "string" else bytes.fromhex(text)


def member_named(kind: Definition, name: str) -> Definition:
    (member,) = (m for m in kind["members"] if m["name"] == name)
    return member


def presence_and_fields(
    members: list[Definition], plain: dict[str, Any], number: str, encode: Any
) -> bytes:
    """Presence bits and values by rising number, the same for structs and records."""
    bits = at = 0
    encoded = b""
    for member in sorted(members, key=lambda m: m[number]):
        is_present = plain.get(member["name"]) is not None
        if member.get("optional"):
            bits |= is_present << at
            at += 1
        if is_present or not member.get("optional"):
            encoded += encode(member, plain.get(member["name"]))
    return bits.to_bytes((at + 7) // 8, "little") + encoded


# --- JSON ----------------------------------------------------------------------------------------


def cbor(plain: Any) -> bytes:
    """RFC 8949, section 4.2.1, of the items that are allowed."""
    if plain is None or isinstance(plain, bool):
        return {False: b"\xf4", True: b"\xf5", None: b"\xf6"}[plain]
    if isinstance(plain, str):
        return cbor_head(3, len(plain.encode("utf-8"))) + plain.encode("utf-8")
    if isinstance(plain, list):
        return cbor_head(4, len(plain)) + b"".join(map(cbor, plain))
    (kind,) = plain
    if kind == "integer":
        number = int(plain["integer"])
        return cbor_head(0, number) if number >= 0 else cbor_head(1, -1 - number)
    if kind == "float":
        return cbor_float(float.fromhex(plain["float"]))
    assert kind == "object"
    pairs = sorted((cbor(key), cbor(item)) for key, item in plain["object"])
    return cbor_head(5, len(pairs)) + b"".join(key + item for key, item in pairs)


def cbor_head(major: int, argument: int) -> bytes:
    if argument < 24:
        return bytes([major << 5 | argument])
    for additional, size in ((24, 1), (25, 2), (26, 4), (27, 8)):
        if argument < 256**size:
            return bytes([major << 5 | additional]) + argument.to_bytes(size, "big")
    raise ValueError("no head holds this argument")


def cbor_float(number: float) -> bytes:
    for initial, form in ((b"\xf9", ">e"), (b"\xfa", ">f"), (b"\xfb", ">d")):
        try:
            raw = struct.pack(form, number)
        except OverflowError:
            continue
        if struct.unpack(form, raw)[0] == number:
            return initial + raw
    raise ValueError("not a finite float")


# --- fields and records --------------------------------------------------------------------------


def is_blob(kind: Definition, plain: Any) -> bool:
    is_outlined = kind["type"] in ("string", "binary")
    return is_outlined and len(raw_bytes(kind, plain)) > INLINE_SIZE_MAX


def blob(identity: str, size: int) -> bytes:
    return b"\x7f" + bytes.fromhex(identity) + varint(size)


def field(kind: Definition, plain: Any, blob_id: str | None = None) -> bytes:
    """A field's value in a record; `blob_id` (hex digits) is needed where it is a blob."""
    if is_blob(kind, plain):
        assert blob_id is not None
        return blob(blob_id, len(raw_bytes(kind, plain)))
    return value(kind, plain)


def record(table: Definition, plain: dict[str, Any], revision: int, blob_ids: list[str]) -> bytes:
    """`blob_ids` belong to the blobs in the order of their fields' numbers."""
    ids = iter(blob_ids)

    def encode(kind: Definition, part: Any) -> bytes:
        return field(kind, part, next(ids) if is_blob(kind, part) else None)

    stored = [f for f in table["fields"] if f["name"] not in table["key"]]
    return varint(revision) + presence_and_fields(stored, plain, "number", encode)


# --- record keys ---------------------------------------------------------------------------------


def record_key(kinds: list[Definition], plains: list[Any]) -> bytes:
    key = b"".join(key_value(kind, plain) for kind, plain in zip(kinds, plains, strict=True))
    assert len(key) <= KEY_SIZE_MAX
    return key


def key_value(kind: Definition, plain: Any) -> bytes:
    """The key encoding."""
    match kind["type"]:
        case "integer" | "decimal" | "boolean" | "date" | "timestamp" | "uuid" | "enum":
            return value(kind, plain)
        case "string" | "binary":
            return raw_bytes(kind, plain).replace(b"\x00", b"\x00\xff") + b"\x00\x01"
        case "reference":
            return record_key(kind["key"], plain)
    raise ValueError("no part of a record key can be of this type")


# --- index keys ----------------------------------------------------------------------------------


def index_key(kinds: list[Definition], plains: list[Any]) -> bytes:
    """The whole key; `cut` is what an entry holds. A type here may say "descending": true."""
    return b"".join(component(kind, plain) for kind, plain in zip(kinds, plains, strict=True))


def cut(key: bytes) -> bytes:
    return key[:KEY_SIZE_MAX]


def unique_key(kinds: list[Definition], plains: list[Any], key_of_record: bytes) -> bytes:
    """What an entry of a unique index holds, of the record with that key."""
    told = index_key(kinds, plains)
    if any(plain is None for plain in plains):
        told += key_of_record
    if len(told) < KEY_SIZE_MAX:
        return told
    return told[:UNIQUE_KEY_ORDERED_SIZE] + hashlib.sha256(told).digest()


def component(kind: Definition, plain: Any) -> bytes:
    ascending = b"\x00" if plain is None else b"\x01" + index_value(kind, plain)
    return bytes(0xFF - byte for byte in ascending) if kind.get("descending") else ascending


def index_value(kind: Definition, plain: Any) -> bytes:
    """The index encoding."""
    match kind["type"]:
        case "string" if "collation" in kind:
            return sort_key(kind["collation"], raw_bytes(kind, plain).decode("utf-8"))
        case "float":
            return value(kind, plain)
        case "zoned_timestamp":
            return biased(instant(plain))
        case "enum":
            return varint(kind["members"].index(member_named(kind, plain)))
        case "struct":
            return b"".join(component(m, plain.get(m["name"])) for m in kind["members"])
        case "json" | "list":
            raise ValueError("not indexable")
    return key_value(kind, plain)


def instant(plain: dict[str, Any]) -> int:
    """Microseconds since 1970-01-01T00:00Z, which may lie outside of the years 1 to 9999."""
    local = datetime.datetime.fromisoformat(plain["local"]).replace(fold=plain["fold"])
    offset = local.replace(tzinfo=zone(plain["zone"])).utcoffset()
    assert offset is not None
    wall_clock = microseconds(local.replace(tzinfo=datetime.UTC, fold=0))
    return wall_clock - offset // datetime.timedelta(microseconds=1)


@functools.cache
def zone(name: str) -> zoneinfo.ZoneInfo:
    """From the tzdata package, wherever the system's own zones lie."""
    file = importlib.resources.files("tzdata.zoneinfo").joinpath(*name.split("/"))
    with file.open("rb") as opened:
        return zoneinfo.ZoneInfo.from_file(opened, key=name)


def sort_key(collation: Definition, text: str) -> bytes:
    collator = icu.Collator.createInstance(icu.Locale(collation["locale"]))
    collator.setStrength(getattr(icu.Collator, collation["strength"].upper()))
    if collation["numeric"]:
        collator.setAttribute(icu.UCollAttribute.NUMERIC_COLLATION, icu.UCollAttributeValue.ON)
    return bytes(collator.getSortKey(text))


def collation_data() -> str:
    """The data that sort keys were made with."""
    cldr = icu.ResourceBundle("", icu.Locale("icuver")).getStringEx("CLDRVersion")
    return f"ICU {icu.ICU_VERSION}, CLDR {cldr}"
