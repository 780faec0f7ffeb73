"""Bytes at every boundary, enumerated: random ones miss most of what can be wrong.

Of ten bugs that were planted in a prototype, random fuzzing found four, and these found nine.
"""

from __future__ import annotations

import datetime
import decimal
import itertools
import reprlib
import struct
import uuid
import zoneinfo
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from tests.blobs import NO_BLOBS, MemoryBlobs
from tests.native.codecs import DECLINED, Declined, Pair, builds_of, outcome, pair_of
from tests.strategies import PLACE, STATE
from tests.zoned import ZONES
from zapdb import datasets
from zapdb.errors import CorruptRecord
from zapdb.records import Record
from zapdb.records.codec import compile_codec
from zapdb.schema import Field, IndexComponent, TableSchema
from zapdb.values import (
    Binary,
    Boolean,
    Date,
    Decimal,
    Enum,
    Float,
    Integer,
    Json,
    List,
    Reference,
    String,
    Timestamp,
    Uuid,
    ValueType,
    ZonedTimestamp,
)
from zapdb.values.immutable import set_attribute
from zapdb.values.timestamp import BIAS
from zapdb.values.varint import decode_varint, encode_varint

ENDS = (0x00, 0x01, 0x17, 0x18, 0x3E, 0x3F, 0x40, 0x7E, 0x7F, 0x80, 0x81, 0xBF, 0xC0, 0xFE, 0xFF)
"""Second bytes of the short form: those beside which something changes."""

Bytes = Iterator[bytes]


def short(long: bool) -> list[bytes]:
    """All sequences of up to two bytes, or those of which the second is an end."""
    seconds = range(256) if long else ENDS
    return [
        b"",
        *(bytes((first,)) for first in range(256)),
        *(bytes(pair) for pair in itertools.product(range(256), seconds)),
    ]


def varints(long: bool) -> Bytes:
    """Every head, and payloads of each size beside every bound."""
    tails = short(long)
    for head in range(256):
        yield bytes((head,))
        beside = head in ENDS or head in (0x3D, 0x41, 0xC1)
        for tail in tails if head in (0x3F, 0xC0) else tails[: 257 if beside or long else 8]:
            yield bytes((head,)) + tail
    for size in range(1, 11):
        top = 1 << (8 * size)
        for base in (0, top >> 1, top - 256 if size > 1 else top, top >> 8, top - 512):
            for step in (-2, -1, 0, 1, 63, 64, 65, 127, 128, 191, 192, 193, 255, 256):
                payload = ((base + step) % top).to_bytes(size, "big")
                for head in (0xBF + size, 0x40 - size):
                    yield bytes((head,)) + payload
                    yield bytes((head,)) + payload[:-1]


def instants(long: bool) -> Bytes:
    for edge in (-62135596800000000, 253402300800000000, 0, BIAS, -BIAS):
        for step in (-(10**6), -1, 0, 1, 10**6):
            yield ((edge + step + BIAS) % (1 << 64)).to_bytes(8, "big")
    for day in days(long):
        for step in (0, -1, 86_399_999_999):
            microseconds = day * 86_400_000_000 + step
            yield (microseconds + BIAS).to_bytes(8, "big")


def days(long: bool) -> Iterator[int]:
    """The ends of February and of each year, and what is beside them."""
    epoch = datetime.date(1970, 1, 1).toordinal()
    years = range(1, 10_000) if long else (1, 4, 99, 100, 400, 1900, 1970, 2000, 2024, 9999)
    for year in years:
        for month, day in ((1, 1), (2, 28), (3, 1), (12, 31)):
            yield datetime.date(year, month, day).toordinal() - epoch


def zoned(long: bool) -> Bytes:
    """Local times with each fold and all numbers of zones, known and not."""
    noon = (BIAS + 12 * 3600 * 10**6).to_bytes(8, "big")
    for fold in range(256):
        yield noon + bytes((fold,)) + b"\x81"
    for number in itertools.islice(varints(long), 0, None, 1 if long else 17):
        yield noon + b"\x01" + number
    for number in (*ZONES._names, 2, 300):
        yield noon + b"\x00" + encode_varint(number)
    for instant in instants(long):
        yield instant + b"\x00\x81"
        yield instant + b"\x01\xc0\x00"
        yield instant[:-1]
        yield instant + b"\x00"


def dates(long: bool) -> Bytes:
    for day in (*days(long), -719_163, -719_162, 2_932_896, 2_932_897, 2**31, -(2**63), 2**63):
        yield encode_varint(day)
        yield encode_varint(day)[:-1]


def floats(long: bool) -> Bytes:
    for tail in short(long):
        yield tail + bytes(8 - len(tail))
        yield tail + b"\xff" * (8 - len(tail))
    for bits in (1 << 63, (1 << 63) - 1, 0x7FF8 << 48 | 1 << 63, 0xFFF0 << 48, 0xFFF8 << 48):
        for step in (-1, 0, 1):
            yield ((bits + step) % (1 << 64)).to_bytes(8, "big")


def json_items(long: bool) -> Bytes:
    """All short items, all halves, heads of all sizes, keys in and out of order."""
    tails = short(long)
    for tail in tails:
        yield tail
        yield b"\xf9" + tail
        yield b"\x19" + tail
    for one, two in (tail for tail in tails if len(tail) == 2):
        yield bytes((0xA2, 0x61, one, 0x00, 0x61, two, 0x00))
    for keys in itertools.product(
        (b"", b"a", b"b", b"aa", b"ab", b"b" * 24, b"\xc3\xa4"), repeat=2
    ):
        yield b"\xa2" + b"".join(_head_of(0x60, len(key)) + key + b"\x07" for key in keys)
    for head in (b"\x18", b"\x38", b"\x78", b"\xa1", b"\x81", b"\xfa\x3f", b"\xfa", b"\xfa\x7f"):
        for tail in tails[:257]:
            yield head + tail
            yield head + tail + b"\0\0"
            yield head + tail + b"\0\0\0"
    numbers = (1.0, 0.1, 65504.0, 65520.0, 65519.0, 3.4028234663852886e38, 1e39, 5e-324, -0.0, 0.0)
    numbers += (1 / 3, 2.0**-24, 2.0**-25, 2.0**-149, 2.0**-150, float("inf"), float("nan"), -1.5)
    for number in numbers:
        yield b"\xfa" + struct.pack(">d", number)[:4]
        yield b"\xfb" + struct.pack(">d", number)
        if abs(number) < 3.5e38:
            yield b"\xfa" + struct.pack(">f", number)
    yield from heads()
    for depth in (62, 63, 64, 65):
        yield b"\x81" * depth + b"\x00"
        yield b"\xa1\x61a" * depth + b"\xf6"
        yield b"\x81" * depth + b"\x80"


def _head_of(major: int, argument: int) -> bytes:
    return bytes((major + argument,)) if argument < 24 else bytes((major + 24, argument))


def heads() -> Bytes:
    """Arguments of all sizes, also in forms that are too long, of every major type."""
    bounds = (0, 23, 24, 255, 256, 65535, 65536, 2**32 - 1, 2**32, 2**63 - 1, 2**63, 2**64 - 1)
    for argument, (log, major) in itertools.product(
        bounds, itertools.product(range(4), range(0, 256, 32))
    ):
        if argument < 256 ** (1 << log):
            head = bytes((major + 24 + log,)) + argument.to_bytes(1 << log, "big")
            yield head
            if argument <= 256:
                yield head + b"a" * argument
                yield head + b"\x00" * argument


def behind_length(items: Bytes) -> Bytes:
    for item in items:
        yield encode_varint(len(item)) + item


def texts(long: bool) -> Bytes:
    for item in short(long):
        yield bytes((0x80 + len(item),)) + item
    for size in (62, 63, 64, 65, 255, 256, 4095, 4096, 4097, 65_535, 65_536):
        for length in (encode_varint(size), b"\xc2" + size.to_bytes(3, "big")):
            yield length + b"a" * size
            yield length + b"a" * (size - 1)
            yield length + b"\xc3\xa4" * (size // 2)
            yield length + b"\xf0\x9d\x94\xb8" * (size // 4)
    for size in (0, 1, 4096, 4097, 4 << 20, (4 << 20) + 1, 64 << 20, (64 << 20) + 1, 1 << 70):
        yield b"\x7f" + bytes(range(16)) + encode_varint(size)
        yield b"\x7f" + bytes(15) + encode_varint(size)


def escaped(long: bool) -> Bytes:
    for item in short(long):
        yield item + b"\x00\x01"
        yield item
        yield b"\x00\xff" + item + b"\x00\x01"
    for size in (1020, 1021, 1022, 1023, 1024, 1025):
        yield b"a" * size + b"\x00\x01"
        yield b"a" * size + b"\x00\x01\x80"


def presence(long: bool) -> Bytes:
    """As the value of an optional field, whose presence byte comes first."""
    for bits in range(256):
        for value in (b"", b"\x81\xf6", b"\x81\x00", b"\x82\x18\x18"):
            yield bytes((bits,)) + value


def structs(long: bool) -> Bytes:
    """A struct of four members, two of them optional: each byte changed to each other."""
    at = bytes(7) + b"\x01"
    for whole in (
        b"\x00\x85" + at,
        b"\x03\x85\x81x" + at + b"\x83",
        b"\x02\x85" + at + b"\x81",
        b"\x01\x85\xc0\x80" + b"y" * 128 + at,
    ):
        yield encode_varint(len(whole)) + whole
        for place in range(min(len(whole), 12)):
            for byte in range(256) if long else ENDS:
                changed = whole[:place] + bytes((byte,)) + whole[place + 1 :]
                yield encode_varint(len(whole)) + changed
                yield encode_varint(len(whole)) + changed[:-1]


def lists(long: bool) -> Bytes:
    for item in short(long):
        yield bytes((0x80 + len(item),)) + item
        yield bytes((0x81 + len(item),)) + item
        yield bytes((0x84,)) + item + b"\x81\x82"


def booleans(long: bool) -> Bytes:
    yield from short(False)


def uuids(long: bool) -> Bytes:
    for size in (0, 15, 16, 17):
        yield b"\xff" * size
        yield bytes(size)


EDGES: list[tuple[str, ValueType, Callable[[bool], Bytes]]] = [
    ("integer", Integer(), varints),
    ("decimal", Decimal(2), varints),
    ("enum", STATE, varints),
    ("large enum", Enum("large", 7, ((1, "a"), (64, "b"), (2**62, "c"))), varints),
    ("date", Date(), varints),
    ("dates of all years", Date(), dates),
    ("timestamp", Timestamp(), instants),
    ("zoned timestamp", ZonedTimestamp(ZONES), zoned),
    ("float", Float(), floats),
    ("boolean", Boolean(), booleans),
    ("uuid", Uuid(), uuids),
    ("json", Json(), lambda long: behind_length(json_items(long))),
    ("json, bare", Json(), json_items),
    ("string", String(), texts),
    ("binary", Binary(), texts),
    ("reference", Reference("people", 1, (Integer(),)), varints),
    ("reference by string", Reference("people", 1, (String(),)), escaped),
    ("reference by two", Reference("people", 1, (Binary(), Integer())), escaped),
    ("list of integers", List(Integer()), lists),
    ("list of strings", List(String()), lists),
    ("struct", PLACE, structs),
]


def key_edges(long: bool) -> Iterator[tuple[Pair, bytes]]:
    for kinds, keys in (
        ((String(),), escaped),
        ((Binary(), Integer()), escaped),
        ((Integer(),), varints),
        ((Reference("people", 1, (String(), Date())),), escaped),
    ):
        numbers = tuple(range(1, len(kinds) + 1))
        fields = tuple(Field(n, f"k{n}", kind) for n, kind in zip(numbers, kinds, strict=True))
        pair = pair_of(TableSchema(1, "keys", numbers, fields))
        for key in keys(long):
            yield pair, key
        for size in (1021, 1022, 1023, 1024):
            yield pair, b"a" * size + b"\x00\x01"
            yield pair, b"a" * size + b"\x00\x01\x80"


POINTS = "\x00 \x01 \x7f \x80 \xff \u0100 \u07ff \u0800 \ud7ff \ud800 \udfff \ue000 \uffff"
SIZES = (0, 1, 22, 23, 24, 25, 31, 32, 33, 62, 63, 64, 65, 127, 128, 129, 255, 256, 257)
LARGE_SIZES = (511, 512, 513, 1023, 1024, 1025, 4095, 4096, 4097, 65_535, 65_536)


def written_texts() -> Iterator[str]:
    for point in (*POINTS.split(" "), "\U00010000", "\U0010ffff", "é", "東"):
        yield from (point, point + "a", "a" + point, "é" + point, "東" + point, "😀" + point)
        yield from (point * size for size in (*SIZES, *LARGE_SIZES))


def written_integers() -> Iterator[int]:
    for bits in range(70):
        for step in (-2, -1, 0, 1, 2, 23, 24, 63, 64, 65):
            yield (1 << bits) + step
            yield -(1 << bits) + step


def written_floats() -> Iterator[float]:
    for number in (0.0, -0.0, 1.5, 1 / 3, 65504.0, 65505.0, 65519.9, 65520.0, 5e-324, 2.0**-24):
        yield from (number, -number)
    yield from (2.0**-25, 2.0**-149, 3.4028234663852886e38, 3.4028235677973366e38, 1e39, 2049.0)
    yield from (float("inf"), float("-inf"), float("nan"))


def written_decimals() -> Iterator[decimal.Decimal]:
    for text in (
        "0",
        "-0",
        "0.00",
        "-0.00",
        "1.5000",
        "1.005",
        "12.3",
        "1E+3",
        "1E-3",
        "NaN",
        "-Infinity",
    ):
        yield decimal.Decimal(text)
    for digits in range(1, 23):
        for number in (10**digits, 10**digits - 1, -(10**digits), 9 * 10**digits + 9):
            for scale in (0, 1, 2, 3):
                yield decimal.Decimal(number).scaleb(-scale)
    for bound in (1 << 63, (1 << 63) - 1, -(1 << 63), -(1 << 63) - 1):
        yield decimal.Decimal(bound).scaleb(-2)


def written_containers() -> Iterator[Any]:
    for size in (*SIZES, 65_535, 65_536):
        yield [0] * size
        yield {f"{at:05}": at for at in range(size, 0, -1)}
        yield {"k" * size: None}
    yield from (
        {"b": 1, "a": 2},
        {"aa": 1, "b": 2},
        {"é": 1, "zz": 2, "z": 3},
        {1: 2},
        {"\ud800": 1},
    )
    for depth in (63, 64, 65):
        for make in (lambda inner: [inner], lambda inner: {"a": inner}):
            nested: Any = None
            for _ in range(depth):
                nested = make(nested)
            yield nested


def written_zoned() -> Iterator[Any]:
    for name in ("UTC", "Europe/Berlin", "Pacific/Apia"):
        for zone in (datasets.zone(name), zoneinfo.ZoneInfo(name), datasets.zone(name)):
            for fold in (0, 1):
                yield from (
                    moment.replace(tzinfo=zone, fold=fold)
                    for moment in (datetime.datetime.min, datetime.datetime.max)
                )
                for day in days(False):
                    date = datetime.date.fromordinal(day + datetime.date(1970, 1, 1).toordinal())
                    yield datetime.datetime.combine(
                        date, datetime.time(1, 59, 59, 9, fold=fold), zone
                    )
    yield from itertools.islice(written_instants(), 18)  # those without a name


def written_instants() -> Iterator[Any]:
    for moment in (datetime.datetime.min, datetime.datetime.max, datetime.datetime(1970, 1, 1)):
        for zone in (datetime.UTC, None, datetime.timezone(datetime.timedelta(hours=1))):
            yield from (moment.replace(tzinfo=zone), moment.replace(tzinfo=zone, fold=1))
    for day in days(True):
        date = datetime.date.fromordinal(day + datetime.date(1970, 1, 1).toordinal())
        yield date
        yield datetime.datetime.combine(date, datetime.time.max, datetime.UTC)


def written_keys() -> Iterator[Any]:
    """As long as a key can be, and longer; with too few parts, and too many."""
    for size in range(1_016, 1_026):
        yield b"a" * size, 1
        yield [b"a" * size, 64]
    yield from ((b"a",), (b"a", 1, 2), (1, b"a"), b"a", (b"a", None))


def written_structs() -> Iterator[Any]:
    """With names that there aren't, names that are missing, and nulls."""
    whole = {"number": 1, "at": datetime.datetime(2024, 2, 29, tzinfo=datetime.UTC)}
    for more in ({}, {"street": "x"}, {"street": None, "state": None}, {"other": 1}):
        yield whole | more
        for name in whole:
            yield {key: value for key, value in (whole | more).items() if key != name}
            yield whole | more | {name: None}


class OtherInteger(int):
    def __int__(self) -> int:
        return 5


class OtherFloat(float):
    def __float__(self) -> float:
        return 5.5


class OtherString(str):
    __slots__ = ()

    def __str__(self) -> str:
        return "other"

    def encode(self, *_: Any) -> bytes:
        return b"other"


class OtherBytes(bytes):
    def __bytes__(self) -> bytes:
        return b"other"


class OtherList(list[Any]):
    def __iter__(self) -> Iterator[Any]:
        return iter([5])


class OtherTuple(tuple[Any, ...]):
    __slots__ = ()

    def __iter__(self) -> Iterator[Any]:
        return iter((b"other", 5))


class OtherDict(dict[str, Any]):
    def __getitem__(self, _: str) -> Any:
        return 5

    def get(self, *_: Any) -> Any:
        return 5

    def items(self) -> Any:
        return {"other": 5}.items()


class OtherDecimal(decimal.Decimal):
    def __str__(self) -> str:
        return "5"


class OtherTime(datetime.datetime):
    def date(self) -> datetime.date:
        return datetime.date(2024, 2, 29)

    def time(self) -> datetime.time:
        return datetime.time(1)


class OtherUuid(uuid.UUID):
    __slots__ = ()

    @property
    def bytes(self) -> bytes:
        return b"5" * 16


def disguised() -> Iterator[Any]:
    """What says that it is something else than its base class holds: that is no ordinary value,
    also within another one. And values of types that other types have for a base."""
    values = (
        *(OtherInteger(1), OtherFloat(1.5), OtherString("open"), OtherBytes(b"x"), True, False),
        *(OtherList([1]), OtherTuple((b"a", 1)), OtherDict(number=1), OtherDict(), 0, 1),
        *(OtherDecimal(1), OtherUuid(int=1), datetime.date.min, datetime.datetime.min),
        *(OtherTime(1999, 1, 1, tzinfo=zone) for zone in (datetime.UTC, datasets.zone("UTC"))),
        OtherTime(1999, 1, 1),
    )
    for value in values:
        yield from (value, [value], {"a": value}, (value, 1), (b"a", value))


def written_uuids() -> Iterator[Any]:
    """And what has the parts of one, or none, and is none."""
    number, strange = uuid.UUID(int=5), uuid.UUID(int=5)
    set_attribute(strange, "int", "5")
    yield from (number, uuid.UUID(int=0), uuid.UUID(int=2**128 - 1), uuid.UUID.__new__(uuid.UUID))
    yield from (strange, {"int": 5, "is_safe": number.is_safe}, {"int": 5}, 5, number.bytes)


WRITTEN: list[tuple[ValueType, Callable[[], Iterator[Any]]]] = [
    (String(), written_texts),
    (List(String()), lambda: ([text] for text in written_texts())),
    (List(Integer()), lambda: ([number] for number in written_integers())),
    (List(PLACE), lambda: ([place] for place in written_structs())),
    (PLACE, written_structs),
    (Boolean(), lambda: iter((True, False, None, "x"))),
    (STATE, lambda: iter((*(name for _, name in STATE.members), "", "other", None))),
    (Reference("people", 1, (String(),)), written_texts),
    (Reference("people", 1, (Binary(), Integer())), written_keys),
    (Uuid(), written_uuids),
    (List(Uuid()), lambda: ([value] for value in written_uuids())),
    (Binary(), lambda: (text.encode("utf-8", "replace") for text in written_texts())),
    (Integer(), written_integers),
    (Decimal(2), written_decimals),
    (Decimal(0), written_decimals),
    (Float(), written_floats),
    (Date(), written_instants),
    (Timestamp(), written_instants),
    (ZonedTimestamp(ZONES), written_zoned),
    (Json(), written_texts),
    (Json(), written_integers),
    (Json(), written_floats),
    (Json(), written_containers),
]


def compare_written(tally: Tally) -> None:
    for kind, values in WRITTEN:
        fields = Field(1, "id", Integer()), Field(2, "v", kind)
        pair = pair_of(TableSchema(1, "edges", (1,), fields))
        records = [{"id": 1, "v": value} for value in itertools.chain(values(), disguised())]
        strange = {"v": records[0]["v"]}, records[0] | {"other": 1}, OtherDict(records[0])
        for record in (*records, *strange):
            given = (b"\x81", record, MemoryBlobs().attachments())
            expected = outcome(pair.python.encode, *given)
            tally.compare_written(kind, record, expected, outcome(pair.alone.encode, *given))


def compare_keys(tally: Tally) -> None:
    """As long as a key can be, and longer; of too few fields, and too many."""
    for kind in (Integer(), String(), Binary(), Date(), Timestamp(), Uuid(), Boolean()):
        pair = pair_of(TableSchema(1, "keys", (1,), (Field(1, "k", kind),)))
        for given in disguised():
            expected, found = outcome(pair.python.key_of, given), outcome(pair.alone.key_of, given)
            tally.compare_written(kind, given, expected, found)
        expected, found = (
            outcome(codec.encode_key, OtherDict(k=kind.neutral()))
            for codec in (pair.python, pair.alone)
        )
        tally.compare_written(kind, "a disguised dict", expected, found)
    pair = pair_of(TableSchema(1, "keys", (1,), (Field(1, "k", Binary()),)))
    for given in (*((b"a" * size,) for size in range(1_016, 1_026)), (), (b"a", 1)):
        expected, found = outcome(pair.python.key_of, *given), outcome(pair.alone.key_of, *given)
        tally.compare_written(Binary(), given, expected, found)


def compare_built(tally: Tally) -> None:
    """Keys of indexes in both directions, with and without a null."""
    for (kind, values), descending in itertools.product(WRITTEN, (False, True)):
        table = TableSchema(1, "t", (1,), (Field(1, "id", Integer()), Field(2, "v", kind, True)))
        if not kind.indexable:
            continue
        index = builds_of(table, (IndexComponent(2, descending=descending), IndexComponent(1)))
        make = compile_codec(table).record
        for value in (None, *itertools.islice(values(), 20)):
            with suppress(ValueError):
                record = make(1, None if value is None else kind.check(value, "v"))
                expected = outcome(index.python, record)
                tally.compare_written(kind, value, expected, outcome(index.alone, record))


def compare_ends(tally: Tally) -> None:
    """Values that end before their length does, where what is left is the next value; and records
    that begin behind the end of what is stored."""
    nothing = pair_of(TableSchema(1, "edges", (1,), (Field(1, "id", Integer()),)))
    for start in range(4):
        expected = outcome(nothing.python.skip, b"\x81", start)
        found = outcome(nothing.alone.skip, b"\x81", start)
        tally.compare_written(Integer(), f"from {start} on", expected, found)
    place = next(written_structs())
    for kind, value in ((Json(), [1, "x"]), (PLACE, place), (Json(), 2.5)):
        fields = Field(1, "id", Integer()), Field(2, "v", kind), Field(3, "w", Integer())
        pair = pair_of(TableSchema(1, "edges", (1,), fields))
        whole = kind.encode(kind.check(value, "v"))
        size, start = decode_varint(whole, 0)
        for more in (-1, 0, 1):
            raw = encode_varint(size + more) + whole[start:] + encode_varint(5)
            for end in (b"", encode_varint(6)):
                tally.compare("ends", pair, b"\x80", raw + end)


@dataclass
class Tally:
    """How many edges were compared, where both codecs differ, and how many the accelerator declined
    though Python reads them, by kind. What can't be read is stepped over by Python alone."""

    tried: int = 0
    read: int = 0
    wrong: list[str] = field(default_factory=list)
    left: Counter[str] = field(default_factory=Counter)

    def compare(self, name: str, pair: Pair, key: bytes, data: bytes) -> None:
        self.tried += 1
        steps, is_readable = (pair.python.skip, pair.alone.skip), True
        for python, alone, arguments in (
            (pair.python.decode, pair.alone.decode, (key, data, 0, NO_BLOBS)),
            (*steps, (data, 0)),
        ):
            expected, found = read(python, *arguments), read(alone, *arguments)
            is_readable = is_readable and expected != REFUSED
            self.read += expected != REFUSED
            self.left[name] += is_readable and found == DECLINED
            if found not in (DECLINED, expected):
                where = f"{name}, {key[:40].hex()} {data[:40].hex()}"
                self.wrong.append(f"{where}: {expected[:200]}, not {found[:200]}")

    def compare_written(self, kind: ValueType, given: Any, expected: Any, found: Any) -> None:
        self.tried += 1
        if found not in (DECLINED, expected):
            where = f"{kind} written, {reprlib.repr(given)}"  # what is strange may have no repr
            self.wrong.append(f"{where}: {expected!r:.200}, not {found!r:.200}")


REFUSED = "refused"


def read(function: Callable[..., Any], *arguments: Any) -> str:
    try:
        result = function(*arguments)
    except CorruptRecord:
        return REFUSED
    except Declined:
        return DECLINED
    except Exception as error:  # not of zapdb: never right
        return repr(error)
    if isinstance(result, int):
        return str(result)
    return repr([object.__getattribute__(result, name) for name in _present(result)])


def compare_all(long: bool, *, to_the_end: bool = True) -> Tally:
    """Compare all edges, or those up to the first kind of them that differs."""
    tally = Tally()
    for _ in _compare_each(tally, long):
        if tally.wrong and not to_the_end:
            break
    return tally


def _compare_each(tally: Tally, long: bool) -> Iterator[None]:
    """Compare one kind of edges after the other; what takes least comes first."""
    for compare in (compare_ends, compare_keys, compare_written, compare_built):
        yield compare(tally)
    for name, kind, edges in EDGES:
        for optional in (False, True) if long else (False,):
            fields = Field(1, "id", Integer()), Field(2, "v", kind, optional)
            pair, lead = pair_of(TableSchema(1, "edges", (1,), fields)), b"\x01" * optional
            for raw in edges(long):
                tally.compare(name, pair, b"\x80", lead + raw)
            yield
    fields = Field(1, "id", Integer()), Field(2, "v", Json(), optional=True)
    pair = pair_of(TableSchema(1, "edges", (1,), fields))
    for raw in presence(long):
        tally.compare("presence", pair, b"\x80", raw)
    yield
    for pair, key in key_edges(long):
        tally.compare("key", pair, key, b"")
    yield


def _present(record: Record) -> list[str]:
    """The fields that are not blobs, which are the same if the lengths are."""
    late = getattr(record, "_deferred", {})
    return [name for name in record._fields if name not in late]
