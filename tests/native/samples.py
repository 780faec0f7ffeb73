"""Random tables, records and damage, far from what is ordinary, and both codecs on all of it."""

from __future__ import annotations

import collections
import datetime
import decimal
import random
import struct
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from tests.blobs import MemoryBlobs
from tests.native.codecs import (
    DECLINED,
    Builds,
    Decoders,
    Pair,
    builds_of,
    decoders_of,
    outcome,
    pair_of,
)
from tests.strategies import TYPES
from tests.zoned import ZONES
from zapdb.datasets import zone
from zapdb.records import encode_prefix
from zapdb.records.codec import bind_zones
from zapdb.schema import NO_DEFAULT, Field, IndexComponent, TableSchema
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
    Struct,
    Timestamp,
    Uuid,
    ValueType,
    ZonedTimestamp,
)

UTC: Final = datetime.UTC
ALPHABETS = ("abcXYZ 09", "äßñ", "東京漢字", "\x00\x01\x7f\x80", "😀𝔸", "\u07ff\u0800\uffff")
HEADS = bytes.fromhex("00013f407f80bfc0c1c2c7c8feff3837607818191bf6f9fafba181")
DEPTHS = (62, 63, 64, 65)


class MyInt(int):
    pass


class MyStr(str):
    __slots__ = ()


STRANGE: tuple[Any, ...] = (
    *(None, 1, 1.5, "x", b"x", True, [], {}, MyInt(5), MyStr("open"), "\ud800", object()),
    *(uuid.UUID(int=1), {1: 2}, ("a",), {"\udc00": 1}, [MyInt(3), (1, MyStr("k"))], 1 << 600),
    *(
        datetime.date(2024, 2, 29),
        datetime.datetime(2024, 2, 29),
        bytearray(b"x"),
        decimal.Decimal(2),
    ),
    {"number": 1, "at": datetime.datetime(2024, 2, 29, tzinfo=UTC)},
    {"number": 1, "at": None, "street": None},
)
DECIMALS: tuple[decimal.Decimal, ...] = tuple(
    map(
        decimal.Decimal,
        (
            *("-0.00", "0E-5", "1.5000", "1E+3", "NaN", "Infinity", "1E-30", "9007199254740993"),
            *("-9223372036854775808", "92233720368547758.07", "92233720368547758.08", "1E+999"),
        ),
    )
)


class Samples:
    """Values of every type; the same seed draws the same."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self._serial = 0

    def integer(self) -> int:
        r = self.random
        return r.choice(
            (
                lambda: r.randint(-70, 70),
                lambda: r.choice((-1, 1)) * (1 << r.randint(0, 70)) + r.randint(-2, 2),
                lambda: r.randint(-(1 << r.randint(1, 66)), 1 << r.randint(1, 66)),
                lambda: r.choice((-1, 1)) * r.getrandbits(r.choice((8, 60, 64, 65, 200, 503))),
            )
        )()

    def text(self) -> str:
        r = self.random
        size = r.choice((0, 1, 2, 5, 12, 12, 31, 32, 33, 62, 63, 64, 65, 255, 256))
        if r.random() < 0.02:
            return r.choice("aé東😀") * r.choice((1023, 1024, 1025, 1365, 1366, 4095, 4096, 4097))
        if r.random() < 0.5:
            return "".join(r.choices("abcdefghij", k=size))
        return "".join(r.choice(r.choice(ALPHABETS)) for _ in range(size))

    def float(self) -> float:
        r = self.random
        form, size = r.choice(((">e", 2), (">f", 4), (">d", 8)))
        made = (
            lambda: r.randint(-5000, 5000) / r.choice((1, 2, 4, 8, 1024)),
            lambda: float(struct.unpack(form, r.randbytes(size))[0]),
            lambda: r.choice((-0.0, 65504.0, 65519.9, 65520.0, 3.4028235677973366e38, 5e-324)),
        )
        return float(r.choice(made)())

    def json(self, depth: int = 0) -> Any:
        r = self.random
        if depth == 0 and r.random() < 0.01:
            nested: Any = r.choice((1, None, {}, []))
            for _ in range(r.choice(DEPTHS)):
                nested = [nested] if r.random() < 0.5 else {"a": nested}
            return nested
        if depth > 3 or r.random() < 0.5:
            scalars = (self.integer, self.float, self.text, lambda: r.choice((None, True, False)))
            return r.choice(scalars)()
        size = r.choice((0, 1, 2, 3, 4, 16, 17, 23, 24, 32, 33)) if depth < 2 else r.randint(0, 2)
        if r.random() < 0.4:
            return [self.json(depth + 1) for _ in range(size)]
        return {self.text()[:33]: self.json(depth + 1) for _ in range(size)}

    def instant(self) -> datetime.datetime:
        r = self.random
        if r.random() < 0.05:
            return r.choice((datetime.datetime.min, datetime.datetime.max)).replace(tzinfo=UTC)
        day = datetime.datetime(r.randint(1, 9999), r.randint(1, 12), r.randint(1, 28), tzinfo=UTC)
        moment = day.replace(hour=r.randint(0, 23), microsecond=r.choice((0, 1, 999_999)), fold=0)
        if r.random() < 0.2 and 1 < day.year < 9999:
            offset = datetime.timezone(datetime.timedelta(minutes=r.randint(-700, 700)))
            return moment.astimezone(offset)
        return moment.replace(fold=r.randint(0, 1))

    def decimal(self, scale: int) -> decimal.Decimal:
        r = self.random
        if r.random() < 0.1:
            return r.choice(DECIMALS)
        if r.random() < 0.6:
            return decimal.Decimal(r.randint(-(10**12), 10**12)).scaleb(-scale)
        digits = tuple(r.choices(range(10), k=r.randint(1, 25)))
        return decimal.Decimal((r.randint(0, 1), digits, r.randint(-scale - 2, 4)))

    def value(self, kind: ValueType) -> Any:
        r = self.random
        if r.random() < 0.01:
            return r.choice(STRANGE)
        simple: dict[type[ValueType], Callable[[], Any]] = {
            Integer: self.integer,
            Boolean: lambda: r.random() < 0.5,
            String: self.text,
            Binary: lambda: self.text().encode(),
            Uuid: lambda: uuid.UUID(int=r.getrandbits(r.choice((1, 64, 128)))),
            Timestamp: self.instant,
            Json: self.json,
            Date: lambda: self.instant().date(),
            Float: self.float,
        }
        match kind:
            case Decimal(scale):
                return self.decimal(scale)
            case Enum(members=members):
                return r.choice(members)[1]
            case ZonedTimestamp():
                return self.instant().replace(tzinfo=zone("Europe/Vienna"))
            case List(items):
                return [self.value(items) for _ in range(r.choice((0, 1, 2, 9)))]
            case Reference(key=(single,)):
                return self.value(single)
            case Reference(key=parts):
                return tuple(map(self.value, parts))
            case Struct(members=members):
                drawn = {
                    m.name: self.value(m.type)
                    for m in members
                    if not m.optional or r.random() < 0.7
                }
                return kind.check(drawn, "drawn") if self._fits(kind, drawn) else drawn
        return simple[type(kind)]()

    def _fits(self, kind: Struct, drawn: dict[str, Any]) -> bool:
        """Whether to give an object instead of a dictionary, and it can be made."""
        if self.random.random() < 0.5:
            return False
        try:
            kind.check(drawn, "drawn")
        except ValueError:
            return False
        return True

    def table(self) -> TableSchema:
        r = self.random
        self._serial += 1
        count = r.randint(1, 3) + r.choice((0, 1, 2, 5, 8, 9, 12))
        numbers = list(range(1, count + 1))
        keys = r.sample(numbers, min(count, r.randint(1, 3)))
        some = r.choice((0, 0.3, 0.9))
        fields = []
        for number in numbers:
            is_key = number in keys
            kind = r.choice([kind for kind in TYPES if kind.keyable or not is_key])
            optional = not is_key and r.random() < some
            default = kind.neutral() if not is_key and r.random() < 0.1 else NO_DEFAULT
            fields.append(Field(number, f"f{number}", kind, optional, default))
        return TableSchema(1, f"t{self._serial % 50}", tuple(keys), tuple(fields))

    def record(self, table: TableSchema) -> Any:
        r = self.random
        made: dict[str, Any] = {
            f.name: self.value(f.type)
            for f in table.fields
            if not (f.optional and r.random() < 0.4)
        }
        way = r.random()
        if way < 0.02 and made:
            made.pop(r.choice(list(made)))
        elif way < 0.04:
            made["other"] = 1
        elif way < 0.06:
            return collections.OrderedDict(made)
        elif way < 0.08 and made:
            made[r.choice(list(made))] = None
        return made

    def damage(self, raw: bytes) -> bytes:
        r, bad = self.random, bytearray(raw or b"\x00")
        for _ in range(r.choice((1, 1, 1, 2, 3))):
            way, at = r.randint(0, 7), r.randrange(len(bad)) if bad else 0
            if way == 6 or not bad:
                bad += r.randbytes(r.randint(1, 3))
            elif way == 0:
                del bad[at:]
            elif way == 1:
                bad[at] ^= 1 << r.randrange(8)
            elif way == 2:
                bad[at] = r.choice(HEADS)
            elif way == 3:
                bad[at] = (bad[at] + r.choice((-1, 1))) % 256
            elif way == 4:
                bad[at:at] = bytes((r.choice((0, 0x80, 0xFF, r.randrange(256))),))
            elif way == 5:
                del bad[at]
            else:
                other = r.randrange(len(bad))
                bad[at], bad[other] = bad[other], bad[at]
        return bytes(bad)


@dataclass
class Found:
    """What was compared, and where the codecs differ."""

    counts: collections.Counter[str] = field(default_factory=collections.Counter)
    wrong: list[str] = field(default_factory=list)

    def same(self, what: str, expected: Any, plan: Any, alone: Any, given: Any) -> None:
        self.counts[what] += 1
        if alone == DECLINED:
            self.counts[f"{what}, declined"] += 1
        if plan != expected or alone not in (DECLINED, expected):
            text = f"{what}: {expected!r}, not {plan!r} or {alone!r}: {given!r}"
            self.wrong.append(text[:2_000])


def compare_samples(seed: int, tables: int, seconds: float = 1e9) -> Found:
    """Both codecs on records of so many tables, or until the time is over."""
    samples, found, until = Samples(seed), Found(), time.monotonic() + seconds
    for _ in range(tables):
        table = samples.table()
        numbers = samples.random.sample(table.fields, samples.random.randint(0, len(table.fields)))
        bound = bind_zones(table, ZONES)
        pair, part = pair_of(bound), decoders_of(bound, frozenset(f.number for f in numbers))
        index = _draw_index(samples, bound)
        for _ in range(30):
            _compare_record(samples, found, bound, pair, part, index)
        if found.wrong or time.monotonic() > until:
            break
    return found


def _draw_index(samples: Samples, table: TableSchema) -> Builds:
    fields = [f for f in table.fields if f.type.indexable]
    drawn = samples.random.sample(fields, min(len(fields), samples.random.randint(1, 4)))
    return builds_of(
        table,
        tuple(IndexComponent(f.number, descending=samples.random.random() < 0.5) for f in drawn),
    )


def _compare_record(
    samples: Samples, found: Found, table: TableSchema, pair: Pair, part: Decoders, index: Builds
) -> None:
    record, blobs = samples.record(table), MemoryBlobs()
    prefix = encode_prefix(samples.random.choice((1, 63, 64, 70, 300)))
    sides = [blobs.attachments() for _ in range(3)]
    written = [
        outcome(codec.encode, prefix, record, side)
        for codec, side in zip((pair.python, pair.plan, pair.alone), sides, strict=True)
    ]
    found.same("encode", *written, record)
    if sides[0].blobs != sides[1].blobs:
        found.wrong.append(f"blobs of {record!r}")
    keys = [outcome(codec.encode_key, record) for codec in (pair.python, pair.plan, pair.alone)]
    found.same("encode key", *keys, record)
    values = [record.get(f.name) for f in table.key_fields]
    if samples.random.random() < 0.05:
        values = samples.random.choice((values[:-1], [*values, 1]))
    keys = [outcome(codec.key_of, *values) for codec in (pair.python, pair.plan, pair.alone)]
    found.same("key of", *keys, values)
    try:
        key, data = pair.python.encode_key(record), pair.python.encode(prefix, record, sides[0])
    except Exception:  # refused, by all alike
        return
    start = len(prefix)
    whole = pair.python.decode(key, data, start, sides[0])
    builds = [outcome(build, whole) for build in (index.python, index.plan, index.alone)]
    found.same("index key", *builds, record)
    for change in range(5):
        is_key = change == 4
        bad_key = samples.damage(key) if is_key else key
        bad = data if is_key or not change else prefix + samples.damage(data[start:])
        what = ", damaged" if change else ""
        codecs = (pair.python, pair.plan, pair.alone)
        given = (bad_key, bad, start, sides[0])
        found.same(f"decode{what}", *(outcome(c.decode, *given) for c in codecs), given)
        found.same(f"skip{what}", *(outcome(c.skip, bad, start) for c in codecs), given)
        decoders = (part.python, part.plan, part.alone)
        found.same(f"decode some{what}", *(outcome(d, *given) for d in decoders), given)
