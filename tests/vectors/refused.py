"""Bytes that no decoder may take, with the type they claim to be of and what is wrong with them.

A case is (form, name, type, bytes, reason). The form says what to decode them as: a "value" as in
structs and lists, a "field" of a record (where strings and binaries may be blobs, and more than
4,096 bytes must be), a "record key", or a "record".
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.vectors import accepted as a
from tests.vectors.formats import (
    biased,
    blob,
    cbor,
    cbor_head,
    extent,
    key_value,
    record,
    record_key,
    value,
    varint,
)

Case = tuple[str, str, Any, bytes, str]
ID = a.BLOB_IDS[0]
LONGER = "not the shortest form"
ENDS = "the bytes end too soon"

BINARY_KEY = {"type": "reference", "key": [a.BINARY]}


def refused() -> Iterator[Case]:
    yield from _varints()
    yield from _fixed()
    yield from _extents()
    yield from _fields()
    yield from _json()
    yield from _composed()
    yield from _record_keys()
    yield from _records()


def plain_hex(text: str) -> bytes:
    return bytes.fromhex(text)


# --- varints -------------------------------------------------------------------------------------


def _varints() -> Iterator[Case]:
    for first in ("00", "ff"):
        raw = plain_hex(first) + bytes(64)
        yield "value", f"integer, first byte {first}", a.INTEGER, raw, "a reserved first byte"
    # The value that comes closest to needing n bytes, in n bytes.
    for n in range(1, 64):
        number = 63 if n == 1 else 256 ** (n - 1) - 1
        raw = bytes([0xBF + n]) + number.to_bytes(n, "big")
        yield "value", f"integer, larger, {n} bytes too many", a.INTEGER, raw, LONGER
        number = -64 if n == 1 else -(256 ** (n - 1))
        raw = bytes([0x40 - n]) + (number + 256**n).to_bytes(n, "big")
        yield "value", f"integer, smaller, {n} bytes too many", a.INTEGER, raw, LONGER
    for number in (0, 1, -1):
        for first, n in ((0xC0, 1), (0x3F, 1), (0xC1, 2), (0x3E, 2), (0xFE, 63), (0x01, 63)):
            is_larger = first >= 0xC0
            if (number >= 0) == is_larger:
                raw = bytes([first]) + (number % 256**n).to_bytes(n, "big")
                yield "value", f"integer {number} in {n + 1} bytes", a.INTEGER, raw, LONGER
    yield "value", "integer, no bytes", a.INTEGER, b"", ENDS
    for number in (64, -65, 256, -257, 256**63 - 1, -(256**63)):
        raw = varint(number)[:-1]
        yield (
            "value",
            f"integer {len(raw)} bytes of {len(raw) + 1}, {raw[:1].hex()}",
            a.INTEGER,
            raw,
            ENDS,
        )
    for kind in (a.decimal(2), a.DATE, a.STATE, {"type": "reference", "key": [a.INTEGER]}):
        name = kind["type"]
        yield "value", f"{name} in a longer form", kind, plain_hex("c001"), LONGER
        yield "value", f"{name}, first byte 00", kind, bytes(64), "a reserved first byte"
        yield "value", f"{name}, first byte ff", kind, b"\xff" + bytes(64), "a reserved first byte"
        yield "value", f"{name}, cut", kind, plain_hex("c140"), ENDS
        yield "value", f"{name}, no bytes", kind, b"", ENDS


# --- values of a fixed size, and dates -----------------------------------------------------------


def _fixed() -> Iterator[Case]:
    for raw in (b"\x02", b"\x80", b"\x81", b"\xff"):
        yield "value", f"boolean {raw.hex()}", a.BOOLEAN, raw, "neither 00 nor 01"
    yield "value", "boolean, no bytes", a.BOOLEAN, b"", ENDS

    first, last = (value(a.DATE, text) for text in ("0001-01-01", "9999-12-31"))
    years = "outside of the years 1 to 9999"
    yield "value", "date, the day before year 1", a.DATE, _step(first, -1), years
    yield "value", "date, the day after year 9999", a.DATE, _step(last, 1), years
    yield "value", "date, 256^63 - 1 days", a.DATE, varint(256**63 - 1), years
    yield "value", "date, -256^63 days", a.DATE, varint(-(256**63)), years

    first, last = (
        value(a.TIMESTAMP, text)
        for text in ("0001-01-01T00:00:00+00:00", "9999-12-31T23:59:59.999999+00:00")
    )
    before, after = (
        (int.from_bytes(raw, "big") + step).to_bytes(8, "big")
        for raw, step in ((first, -1), (last, 1))
    )
    for kind, tail in ((a.TIMESTAMP, b""), (a.ZONED, plain_hex("0081"))):
        name = kind["type"]
        yield "value", f"{name}, a microsecond before year 1", kind, before + tail, years
        yield "value", f"{name}, a microsecond after year 9999", kind, after + tail, years
        yield "value", f"{name} 0000000000000000", kind, bytes(8) + tail, years
        yield "value", f"{name} ffffffffffffffff", kind, b"\xff" * 8 + tail, years
        yield "value", f"{name} of 7 bytes", kind, bytes(7), ENDS
        yield "value", f"{name}, no bytes", kind, b"", ENDS

    epoch = biased(0)
    for fold in (2, 0x80, 0xFF):
        raw = epoch + bytes([fold]) + varint(1)
        yield "value", f"zoned_timestamp, fold {fold}", a.ZONED, raw, "a fold is 00 or 01"
    for number in (0, -1, -65):
        raw = epoch + b"\x00" + varint(number)
        yield "value", f"zoned_timestamp, zone number {number}", a.ZONED, raw, "numbers begin at 1"
    raw = epoch + plain_hex("00c001")
    yield "value", "zoned_timestamp, zone number in a longer form", a.ZONED, raw, LONGER
    raw = epoch + plain_hex("00ff")
    yield "value", "zoned_timestamp, zone number ff", a.ZONED, raw, "a reserved first byte"
    raw = epoch + varint(2)
    yield "value", "zoned_timestamp without a fold", a.ZONED, raw, ENDS
    yield "value", "zoned_timestamp without a zone number", a.ZONED, epoch + b"\x00", ENDS
    raw = epoch + plain_hex("00c0")
    yield "value", "zoned_timestamp, zone number cut", a.ZONED, raw, ENDS
    raw = epoch + b"\x00" + varint(1_000_000)
    yield (
        "value",
        "zoned_timestamp, zone number unheard of",
        a.ZONED,
        raw,
        "no zone has this number",
    )

    yield "value", "uuid of 15 bytes", a.UUID, bytes(15), ENDS
    yield "value", "uuid, no bytes", a.UUID, b"", ENDS

    yield "value", "float -0.0", a.FLOAT, plain_hex("7fffffffffffffff"), "−0.0 is not allowed"
    for name, bits in {
        "quiet, with a payload": 0x7FF8000000000001,
        "signalling": 0x7FF0000000000001,
        "signalling, the last": 0x7FF7FFFFFFFFFFFF,
        "quiet, the last": 0x7FFFFFFFFFFFFFFF,
        "quiet, negative": 0xFFF8000000000000,
        "signalling, negative": 0xFFF0000000000001,
        "quiet, negative, the last": 0xFFFFFFFFFFFFFFFF,
    }.items():
        ordered = bits ^ (2**64 - 1) if bits >> 63 else bits | 1 << 63
        raw = ordered.to_bytes(8, "big")
        yield "value", f"float, NaN, {name}", a.FLOAT, raw, "NaN has one form"
    yield "value", "float of 7 bytes", a.FLOAT, b"\x80" * 7, ENDS
    yield "value", "float, no bytes", a.FLOAT, b"", ENDS


def _step(encoded: bytes, step: int) -> bytes:
    """The varint of a number of 3 or 4 bytes, and its neighbour's."""
    n = len(encoded) - 1
    return encoded[:1] + (int.from_bytes(encoded[1:], "big") + step).to_bytes(n, "big")


# --- strings and binaries ------------------------------------------------------------------------

NOT_UTF8 = {
    "a lone continuation byte": "80",
    "a first byte without its second": "c3",
    "a second byte that is none": "c328",
    "two bytes of three": "e282",
    "three bytes of four": "f09f98",
    "ff": "ff",
    "NUL in two bytes": "c080",
    "a slash in two bytes": "c0af",
    "a slash in three bytes": "e080af",
    "U+FFFF in four bytes": "f08fbfbf",
    "a high surrogate": "eda080",
    "a low surrogate": "edbfbf",
    "an astral character as two surrogates (CESU-8)": "eda0bdedb880",
    "beyond U+10FFFF": "f4908080",
    "five bytes": "f888808080",
}


def _extents() -> Iterator[Case]:
    for name, text in NOT_UTF8.items():
        raw = b"a" + plain_hex(text)
        yield "value", f"string, {name}", a.STRING, extent(raw), "not valid UTF-8"
    raw = extent(b"x" * 99 + plain_hex("eda080"))
    yield "value", "string of 102 bytes, a high surrogate", a.STRING, raw, "not valid UTF-8"
    for kind in (a.STRING, a.BINARY, a.JSON, a.ADDRESS, a.list_of(a.INTEGER)):
        name = kind["type"]
        yield "value", f"{name}, length -1", kind, b"\x7f" + bytes(80), "no blob is allowed here"
        yield "value", f"{name}, length -2", kind, b"\x7e" + bytes(80), "a reserved length"
        yield "value", f"{name}, length -65", kind, varint(-65) + bytes(80), "a reserved length"
        yield "value", f"{name}, length 1 in two bytes", kind, plain_hex("c00100"), LONGER
        yield "value", f"{name}, length ff", kind, b"\xff" + bytes(80), "a reserved first byte"
        yield "value", f"{name}, length 5 and 4 bytes", kind, varint(5) + b"\x80" * 4, ENDS
        yield "value", f"{name}, length 64 and 63 bytes", kind, varint(64) + b"\x80" * 63, ENDS
        yield "value", f"{name}, length 256^63 - 1", kind, varint(256**63 - 1), ENDS
        yield "value", f"{name}, length without its bytes", kind, plain_hex("c1"), ENDS
        yield "value", f"{name}, no bytes", kind, b"", ENDS
    for kind in (a.STRING, a.BINARY):
        raw = varint(4_194_305) + b"x" * 4_194_305
        name = f"{kind['type']} of 4,194,305 bytes"
        yield "value", name, kind, raw, "an extent has at most 4,194,304 bytes"


def _fields() -> Iterator[Case]:
    """Blobs, and inline values that should be one."""
    for kind, most in ((a.STRING, 4_194_304), (a.BINARY, 67_108_864)):
        name = kind["type"]
        raw = extent(b"x" * 4_097)
        yield "field", f"{name}, 4,097 bytes inline", kind, raw, "over 4,096 bytes are a blob"
        raw = extent(b"x" * 100_000)
        yield "field", f"{name}, 100,000 bytes inline", kind, raw, "over 4,096 bytes are a blob"
        for size in (4_096, 64, 63, 0, -1, -4_097):
            raw = blob(ID, size)
            yield "field", f"{name}, blob of {size} bytes", kind, raw, "4,096 bytes are no blob"
        raw = blob(ID, most + 1)
        yield "field", f"{name}, blob of {most + 1} bytes", kind, raw, f"at most {most} bytes"
        whole = blob(ID, 4_097)
        yield "field", f"{name}, blob, the mark alone", kind, whole[:1], ENDS
        yield "field", f"{name}, blob, its id cut", kind, whole[:9], ENDS
        yield "field", f"{name}, blob without a size", kind, whole[:17], ENDS
        yield "field", f"{name}, blob, its size cut", kind, whole[:-1], ENDS
        raw = whole[:17] + plain_hex("c2001001")
        yield "field", f"{name}, blob, its size in a longer form", kind, raw, LONGER
        raw = whole[:17] + b"\xff" + bytes(64)
        yield "field", f"{name}, blob, its size ff", kind, raw, "a reserved first byte"


# --- JSON ----------------------------------------------------------------------------------------


def _json() -> Iterator[Case]:
    for reason, cases in JSON_CASES.items():
        for name, text in cases.items():
            yield "value", f"json, {name}", a.JSON, extent(plain_hex(text)), reason
    for name, text in NOT_UTF8.items():
        raw = plain_hex(text)
        head = cbor_head(3, len(raw))
        yield "value", f"json, string, {name}", a.JSON, extent(head + raw), "not valid UTF-8"
        item = cbor_head(5, 1) + head + raw + b"\xf6"
        yield "value", f"json, key, {name}", a.JSON, extent(item), "not valid UTF-8"
    raw = extent(cbor(a.nested(65)))
    yield "value", "json of 65 arrays in one another", a.JSON, raw, "at most 64 deep"
    objects = b"\xa1\x60" * 64 + b"\xa0"
    yield "value", "json of 65 objects in one another", a.JSON, extent(objects), "at most 64 deep"
    raw = extent(b"\x81" * 100_000 + b"\x80")
    yield "value", "json of 100,001 arrays in one another", a.JSON, raw, "at most 64 deep"
    raw = varint(4_194_305) + cbor_head(3, 4_194_300) + b"x" * 4_194_300
    reason = "an extent has at most 4,194,304 bytes"
    yield "value", "json of 4,194,305 bytes", a.JSON, raw, reason


JSON_CASES = {
    "not the shortest head": {
        "1 in two bytes": "1801",
        "23 in two bytes": "1817",
        "255 in three bytes": "1900ff",
        "65,535 in five bytes": "1a0000ffff",
        "4,294,967,295 in nine bytes": "1b00000000ffffffff",
        "-1 in two bytes": "3800",
        "-256 in three bytes": "3900ff",
        "a string's length": "780161",
        "an array's length": "980101",
        "an object's length": "b801616101",
        "false in two bytes": "f814",
        "null in two bytes": "f816",
    },
    "a float in its shortest precision": {
        "1.0, single": "fa3f800000",
        "1.0, double": "fb3ff0000000000000",
        "0.0, single": "fa00000000",
        "65504.0, single": "fa477fe000",
        "65536.0, double": "fb40f0000000000000",
        "2^-25, double": "fb3e60000000000000",
        "2^-149, double": "fb36a0000000000000",
    },
    "a float that is finite and not −0.0": {
        "-0.0, half": "f98000",
        "-0.0, single": "fa80000000",
        "-0.0, double": "fb8000000000000000",
        "NaN, half": "f97e00",
        "NaN, single": "fa7fc00000",
        "NaN, double": "fb7ff8000000000000",
        "infinity, half": "f97c00",
        "infinity, single": "fa7f800000",
        "infinity, double": "fb7ff0000000000000",
        "minus infinity, half": "f9fc00",
        "-0.0 in an array": "81f98000",
    },
    "nothing of indefinite length": {
        "string": "7f6161ff",
        "empty string": "7fff",
        "array": "9f01ff",
        "empty array": "9fff",
        "object": "bf616101ff",
        "empty object": "bfff",
        "bytes": "5f4161ff",
        "a break alone": "ff",
        "a break in an array": "81ff",
    },
    "keys rise strictly": {
        "keys not in order": "a2616201616102",
        "the longer key first": "a262616101616202",
        "a key twice": "a2616101616101",
        "a key twice, with two values": "a2616101616102",
        "a key twice, another between": "a3616101616202616103",
        "keys not in order, deep inside": "81a16161a2616201616102",
    },
    "a key is a string": {
        "an integer as key": "a10102",
        "null as key": "a1f602",
        "bytes as key": "a1416102",
        "an array as key": "a18002",
        "an object as key": "a1a002",
        "a float as key": "a1f93c0002",
    },
    "no such item": {
        "a byte string": "4161",
        "an empty byte string": "40",
        "undefined": "f7",
        "simple value 0": "e0",
        "simple value 19": "f3",
        "simple value 32": "f820",
        "simple value 255": "f8ff",
        "additional information 28": "1c",
        "additional information 30, simple": "fe",
        "undefined in an array": "81f7",
    },
    "nothing is tagged": {
        "tag 0, a date as text": "c074323032342d30322d32395431323a33343a35365a",
        "tag 0, of no date": "c06161",
        "tag 1, a date as a number": "c100",
        "tag 1, far beyond all dates": "c11bffffffffffffffff",
        "tag 1, NaN": "c1f97e00",
        "tag 2, a bignum that fits": "c24101",
        "tag 2, 2^64": "c249010000000000000000",
        "tag 2, of a string": "c26161",
        "tag 3, -1 - 2^64": "c349010000000000000000",
        "tag 4, a decimal fraction": "c48221196ab3",
        "tag 4, of nothing": "c480",
        "tag 4, of text": "c482616101",
        "tag 4, with a huge exponent": "c4821bffffffffffffffff01",
        "tag 5, a bigfloat": "c5822003",
        "tag 5, with a huge exponent": "c5821bffffffffffffffff01",
        "tag 25, a string reference": "d81900",
        "tag 28, shareable": "d81c80",
        "tag 28, a cycle": "d81c81d81d00",
        "tag 29, shared": "d81d00",
        "tag 30, a rational": "d81e820103",
        "tag 30, over 0": "d81e820100",
        "tag 35, a regular expression": "d8236161",
        "tag 35, of none": "d823615b",
        "tag 36, a MIME message": "d8246161",
        "tag 37, a UUID": "d8255000112233445566778899aabbccddeeff",
        "tag 37, of one byte": "d8254101",
        "tag 43000, a complex number": "d9a7f8820102",
        "tag 100, a day": "d86400",
        "tag 100, far beyond all days": "d8641bffffffffffffffff",
        "tag 256, a table of strings": "d9010080",
        "tag 258, a set": "d901028101",
        "tag 258, a set of arrays": "d901028180",
        "tag 258, of no array": "d9010201",
        "tag 260, an address": "d9010444c0a80001",
        "tag 260, of three bytes": "d9010443c0a800",
        "tag 261, a network": "d90105a144c0a800001810",
        "tag 1004, a day as text": "d903ec6a323032342d30322d3239",
        "tag 1004, of none": "d903ec6161",
        "tag 55799, CBOR": "d9d9f701",
        "tag 2^64 - 1": "dbffffffffffffffff01",
        "a tag in an array": "81c24101",
        "a tag as a key": "a1c2410101",
    },
    "one item, to the end of its extent": {
        "no item": "",
        "two items": "0102",
        "an item and a byte": "a000",
    },
    ENDS: {
        "a head": "18",
        "a head of nine bytes": "1b00000001000000",
        "a string": "6261",
        "an array": "8201",
        "an array of 2^64 - 1": "9bffffffffffffffff",
        "an array of 2^62": "9b4000000000000000",
        "an object": "a16161",
        "an object of 2^64 - 1": "bbffffffffffffffff",
        "a string of 2^63": "7b8000000000000000",
        "a float": "fb3ff0",
    },
}
"""CBOR by what is wrong with it."""


# --- references, enums, structs, lists -----------------------------------------------------------


def _composed() -> Iterator[Case]:
    end = "00 is followed by ff or 01"
    for name, text in {
        "no bytes": "",
        "no end": "61",
        "00 at the end": "6100",
        "00 02": "610002",
        "00 00 01": "61000001",
    }.items():
        reason = ENDS if name in ("no bytes", "no end", "00 at the end") else end
        yield "value", f"reference by binary, {name}", BINARY_KEY, plain_hex(text), reason
    raw = key_value(a.STRING, "a")
    yield "value", "reference by string and integer, the string alone", a.SHOP, raw, ENDS
    raw = plain_hex("eda080") + plain_hex("000180")
    yield "value", "reference by string and integer, a surrogate", a.SHOP, raw, "not valid UTF-8"
    raw = key_value(a.STRING, "a") + plain_hex("c001")
    yield "value", "reference by string and integer, 1 in two bytes", a.SHOP, raw, LONGER
    raw = record_key([a.SHOP, a.DATE], [["a", 1], "2024-02-29"]) + varint(3)
    yield "value", "reference by a key that has a reference, enum 3", a.ORDER, raw, "no such member"
    raw = b"x" * 1_023 + plain_hex("0001")
    yield "value", "reference by a key of 1,025 bytes", BINARY_KEY, raw, "a key has 1,024 bytes"

    for number in (0, 3, -1, 63, 65, 256**8):
        yield "value", f"enum, id {number}", a.STATE, varint(number), "no such member"

    def struct(name: str, kind: Any, text: str, reason: str) -> Case:
        return "value", f"struct, {name}", kind, extent(plain_hex(text)), reason

    unused = "unused bits are 0"
    extra = "one item too many, or none at all"
    yield struct("a third presence bit", a.ADDRESS, "04 80", unused)
    yield struct("the last presence bit", a.ADDRESS, "80 80", unused)
    yield struct("a tenth presence bit", a.NINE, "00 02", unused)
    yield struct("one presence byte of two", a.NINE, "00", ENDS)
    yield struct("empty", a.ADDRESS, "", ENDS)
    yield struct("a required member cut away", a.ADDRESS, "00", ENDS)
    yield struct("an optional member cut away", a.ADDRESS, "01 80", ENDS)
    yield struct("a byte too many", a.ADDRESS, "00 80 00", extra)
    yield struct("an absent member's bytes", a.ADDRESS, "00 80 81", extra)
    yield struct("JSON null present", a.EXTRA, "01 81f6 81f6", "null is absent, not present")
    yield struct("a blob", a.ADDRESS, "00" + blob(ID, 4_097).hex(), "no blob inside a struct")
    raw = extent(plain_hex("00 85 61")) + b"x" * 10
    yield "value", "struct, a string that reaches beyond the end", a.ADDRESS, raw, ENDS
    raw = extent(plain_hex("01 80 c1")) + bytes([0x40, 0x00])
    yield "value", "struct, an integer that reaches beyond the end", a.ADDRESS, raw, ENDS
    raw = plain_hex("80") + bytes([0x00, 0x80])
    yield "value", "struct, presence bits beyond the end", a.ADDRESS, raw, ENDS

    numbers, texts = a.list_of(a.INTEGER), a.list_of(a.STRING)
    raw = plain_hex("82 81 c0 40")
    yield "value", "list, an integer that reaches beyond the end", numbers, raw, ENDS
    raw = extent(plain_hex("82 61")) + b"x" * 10
    yield "value", "list, a string that reaches beyond the end", texts, raw, ENDS
    raw = extent(plain_hex("81"))
    yield "value", "list, a string without its bytes", texts, raw, ENDS
    raw = extent(plain_hex("c001"))
    yield "value", "list, an integer in a longer form", numbers, raw, LONGER
    raw = extent(plain_hex("00")) + bytes(64)
    yield "value", "list, a reserved first byte", numbers, raw, "a reserved first byte"
    raw = extent(plain_hex("02"))
    yield "value", "list of booleans, 02", a.list_of(a.BOOLEAN), raw, "neither 00 nor 01"
    raw = extent(bytes(15))
    yield "value", "list of uuids, 15 bytes", a.list_of(a.UUID), raw, ENDS
    raw = extent(blob(ID, 4_097))
    yield "value", "list, a blob", texts, raw, "no blob inside a list"
    raw = extent(extent(plain_hex("82 81")) + plain_hex("81"))
    yield "value", "list of lists, one inside reaches beyond its end", a.list_of(texts), raw, ENDS


# --- record keys ---------------------------------------------------------------------------------


def _record_keys() -> Iterator[Case]:
    def key(name: str, kinds: Any, raw: bytes, reason: str) -> Case:
        return "record key", name, kinds, raw, reason

    whole = "the key ends with its last value"
    yield key("integer and a byte", [a.INTEGER], plain_hex("8180"), whole)
    yield key("string and a byte", [a.STRING], plain_hex("61000100"), whole)
    yield key("two integers, the second missing", [a.INTEGER, a.INTEGER], b"\x81", ENDS)
    yield key("no bytes", [a.INTEGER], b"", ENDS)
    yield key("integer in a longer form", [a.INTEGER], plain_hex("c001"), LONGER)
    yield key("integer 00", [a.INTEGER], bytes(64), "a reserved first byte")
    yield key("boolean 02", [a.BOOLEAN], b"\x02", "neither 00 nor 01")
    yield key("uuid of 15 bytes", [a.UUID], bytes(15), ENDS)
    yield key("timestamp of 7 bytes", [a.TIMESTAMP], b"\x80" * 7, ENDS)
    yield key("enum, id 3", [a.STATE], varint(3), "no such member")
    yield key("string without an end", [a.STRING], b"a", ENDS)
    yield key("string, 00 at the end", [a.STRING], b"a\x00", ENDS)
    yield key("string, 00 02", [a.STRING], b"a\x00\x02\x00\x01", "00 is followed by ff or 01")
    yield key("string, 00 00", [a.STRING], b"a\x00\x00\x01", "00 is followed by ff or 01")
    for name, text in NOT_UTF8.items():
        raw = plain_hex(text) + b"\x00\x01"
        yield key(f"string, {name}", [a.STRING], raw, "not valid UTF-8")
    raw = b"x" * 1_023 + b"\x00\x01"
    yield key("string, a key of 1,025 bytes", [a.STRING], raw, "a key has 1,024 bytes")
    raw = key_value(a.STRING, a.repeat("x", 600)) * 2
    yield key("strings, a key of 1,204 bytes", [a.STRING, a.STRING], raw, "a key has 1,024 bytes")


# --- records -------------------------------------------------------------------------------------


def _records() -> Iterator[Case]:
    none, one, eight, nine = map(a.optional_table, (0, 1, 8, 9))

    def rec(name: str, table: Any, text: str, reason: str) -> Case:
        return "record", name, table, plain_hex(text), reason

    whole, unused = "the record ends with its last field", "unused bits are 0"
    yield rec("no bytes", none, "", ENDS)
    yield rec("prefix 00", none, "00 80" + "00" * 63, "a reserved first byte")
    yield rec("prefix ff", none, "ff 80" + "00" * 63, "a reserved first byte")
    yield rec("revision 0", none, "80 80", "revisions begin at 1")
    yield rec("revision -1", none, "7f 80", "revisions begin at 1")
    yield rec("revision 1 in two bytes", none, "c001 80", LONGER)
    yield rec("revision 64, cut", none, "c0", ENDS)
    yield rec("the prefix alone", none, "81", ENDS)
    yield rec("the prefix alone, an optional field", one, "81", ENDS)
    yield rec("presence alone", one, "8100", ENDS)
    yield rec("one presence byte of two", nine, "8100", ENDS)
    yield rec("a byte too many", none, "81 80 00", whole)
    yield rec("a presence byte too many", none, "81 00 80", whole)
    yield rec("an absent field's bytes", one, "81 00 80 81", whole)
    yield rec("a present field without bytes", one, "81 01 80", ENDS)
    yield rec("a second presence bit of one", one, "81 02 80 81", unused)
    yield rec("the last presence bit of one", one, "81 80 80", unused)
    yield rec("a tenth presence bit of nine", nine, "81 0002 80", unused)
    yield rec("the last presence bit of nine", nine, "81 0080 80", unused)
    yield rec("all bits of eight and no bytes", eight, "81 ff 80", ENDS)
    note = a.table(
        ["id"],
        a.named(1, "id", a.INTEGER),
        a.named(2, "data", a.JSON, optional=True),
        a.named(3, "more", a.JSON),
    )
    yield rec("JSON null present", note, "81 01 81f6 81f6", "null is absent, not present")
    raw = record(a.PEOPLE, a.ADA, 70, a.BLOB_IDS[:1])
    yield "record", "ada, cut", a.PEOPLE, raw[:-1], ENDS
    raw += b"\x00"
    yield "record", "ada, and a byte", a.PEOPLE, raw, whole
