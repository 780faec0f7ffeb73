"""The values that have a vector: every type at its edges, and keys and records made of them.

A list of cases per file, as (name, type, value, …). Names are unique within a file and say what is
special about the case; nothing here knows any bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

INTEGER = {"type": "integer"}
STRING = {"type": "string"}
BINARY = {"type": "binary"}
BOOLEAN = {"type": "boolean"}
DATE = {"type": "date"}
TIMESTAMP = {"type": "timestamp"}
ZONED = {"type": "zoned_timestamp"}
UUID = {"type": "uuid"}
FLOAT = {"type": "float"}
JSON = {"type": "json"}
STATE = {
    "type": "enum",
    "members": [
        {"id": 2, "name": "draft"},
        {"id": 1, "name": "open"},
        {"id": 64, "name": "done"},
        {"id": 70000, "name": "lost"},
    ],
}
ADDRESS = {
    "type": "struct",
    "members": [
        {"id": 1, "name": "street", "type": "string"},
        {"id": 3, "name": "zip", "type": "string", "optional": True},
        {"id": 2, "name": "number", "type": "integer", "optional": True},
    ],
}
"""Declared in another order than that of the ids."""
PLACE = {
    "type": "struct",
    "members": [
        {"id": 1, "name": "address", **ADDRESS},
        {"id": 2, "name": "state", **STATE, "optional": True},
        {"id": 3, "name": "height", "type": "float"},
    ],
}
EXTRA = {
    "type": "struct",
    "members": [
        {"id": 1, "name": "note", "type": "json", "optional": True},
        {"id": 2, "name": "data", "type": "json"},
    ],
}
NINE = {
    "type": "struct",
    "members": [
        {"id": n, "name": f"m{n}", "type": "integer", "optional": True} for n in range(1, 10)
    ],
}
SHOP = {"type": "reference", "key": [STRING, INTEGER]}
ORDER = {"type": "reference", "key": [SHOP, DATE, STATE]}

A_UUID = "0192b1d4-7a00-7abc-8def-0123456789ab"
BLOB_IDS = ["0192b1d47a0070008000000000000001", "0192b1d47a0070008000000000000002"]


def decimal(scale: int) -> dict[str, Any]:
    return {"type": "decimal", "scale": scale}


def list_of(items: dict[str, Any]) -> dict[str, Any]:
    return {"type": "list", "items": items}


def repeat(text: str, times: int) -> dict[str, Any]:
    return {"repeat": text, "times": times}


def number(value: int) -> int | str:
    """An integer's plain form: beyond ±2⁵³ not every JSON reader keeps it."""
    return value if abs(value) <= 2**53 else str(value)


# --- values --------------------------------------------------------------------------------------


def values() -> Iterator[tuple[str, dict[str, Any], Any]]:
    yield from _integers()
    yield from _decimals()
    yield from _moments()
    yield from _zoned()
    yield from _floats()
    yield from _extents()
    yield from _json()
    yield from _composed()


def _integers() -> Iterator[tuple[str, dict[str, Any], Any]]:
    for value in (0, 1, -1, 63, 64, -64, -65, 255, 256, -255, -256, -257):
        yield f"integer {value}", INTEGER, value
    for n in range(2, 64):
        for value in (256**n - 1, -(256**n)):
            sign = "256^{} - 1" if value > 0 else "-256^{}"
            yield f"integer {sign.format(n)}, the last of {n} bytes", INTEGER, number(value)
    for n in (2, 3, 4, 7, 8, 31, 62):
        for value in (256**n, -(256**n) - 1):
            sign = "256^{}" if value > 0 else "-256^{} - 1"
            yield f"integer {sign.format(n)}, the first of {n + 1} bytes", INTEGER, number(value)


def _decimals() -> Iterator[tuple[str, dict[str, Any], Any]]:
    for scale, text in (
        (0, "0"),
        (0, "-65"),
        (2, "0.00"),
        (2, "0.63"),
        (2, "0.64"),
        (2, "-0.64"),
        (2, "-0.65"),
        (2, "1234567.89"),
        (2, "-2.56"),
        (2, "-2.57"),
        (64, "0." + "0" * 63 + "1"),
        (64, "1." + "0" * 64),
    ):
        yield f"decimal of scale {scale}, {text}", decimal(scale), text
    digits = str(256**63 - 1)
    yield "decimal of scale 2, the largest", decimal(2), f"{digits[:-2]}.{digits[-2:]}"
    digits = str(256**63)
    yield "decimal of scale 64, the smallest", decimal(64), f"-{digits[:-64]}.{digits[-64:]}"


def _moments() -> Iterator[tuple[str, dict[str, Any], Any]]:
    for value in (False, True):
        yield f"boolean {str(value).lower()}", BOOLEAN, value
    for text in (
        "0001-01-01",
        "1582-10-14",
        "1899-12-31",
        "1969-10-28",
        "1969-10-29",
        "1969-12-31",
        "1970-01-01",
        "1970-03-05",
        "1970-03-06",
        "2000-02-29",
        "2024-02-29",
        "9999-12-31",
    ):
        yield f"date {text}", DATE, text
    for text in (
        "0001-01-01T00:00:00+00:00",
        "1969-12-31T23:59:59.999999+00:00",
        "1969-12-31T00:00:00+00:00",
        "1970-01-01T00:00:00+00:00",
        "1970-01-01T00:00:00.000001+00:00",
        "2016-12-31T23:59:59.999999+00:00",
        "2024-02-29T12:34:56.789012+00:00",
        "9999-12-31T23:59:59.999999+00:00",
    ):
        yield f"timestamp {text}", TIMESTAMP, text
    for text in (A_UUID, "00000000-0000-0000-0000-000000000000"):
        yield f"uuid {text}", UUID, text
    yield "uuid of ones", UUID, "ffffffff-ffff-ffff-ffff-ffffffffffff"


def zoned(local: str, zone: str, number: int = 1, fold: int = 0) -> dict[str, Any]:
    return {"local": local, "zone": zone, "number": number, "fold": fold}


ZONED_CASES = {
    "summer in Paris": zoned("2024-07-01T12:00:00", "Europe/Paris"),
    "winter in Paris": zoned("2024-01-01T12:00:00", "Europe/Paris"),
    "the first 01:30 in New York": zoned("2023-11-05T01:30:00", "America/New_York", 2),
    "the second 01:30 in New York": zoned("2023-11-05T01:30:00", "America/New_York", 2, 1),
    "01:30 in the gap in London": zoned("2024-03-31T01:30:00", "Europe/London", 3),
    "01:30 in the gap in London, fold 1": zoned("2024-03-31T01:30:00", "Europe/London", 3, 1),
    "a fold of 1 that makes no difference": zoned("2024-07-01T12:00:00", "Europe/London", 3, 1),
    "half an hour, with microseconds": zoned("2019-05-05T05:05:05.000001", "Asia/Kolkata", 4),
    "the last microsecond before 1970": zoned("1969-12-31T23:59:59.999999", "Etc/UTC", 5),
    "zone number 63": zoned("1970-01-01T00:00:00", "Etc/UTC", 63),
    "zone number 64": zoned("1970-01-01T00:00:00", "Etc/UTC", 64),
    "zone number 256": zoned("1970-01-01T00:00:00", "Etc/UTC", 256),
    "the first local time, an instant before year 1": zoned("0001-01-01T00:00:00", "Etc/GMT-14", 6),
    "the last local time, an instant after year 9999": zoned(
        "9999-12-31T23:59:59.999999", "Etc/GMT+12", 7
    ),
}
"""Offsets that all time zone data since 2020 agree about."""


def _zoned() -> Iterator[tuple[str, dict[str, Any], Any]]:
    for name, plain in ZONED_CASES.items():
        yield f"zoned_timestamp, {name}", ZONED, plain


FLOATS = {
    "zero": "0x0p+0",
    "one": "0x1p+0",
    "minus one": "-0x1p+0",
    "a tenth": "0x1.999999999999ap-4",
    "minus a tenth": "-0x1.999999999999ap-4",
    "the least subnormal": "0x0.0000000000001p-1022",
    "the least subnormal, negative": "-0x0.0000000000001p-1022",
    "the largest subnormal": "0x0.fffffffffffffp-1022",
    "the least normal": "0x1p-1022",
    "the largest": "0x1.fffffffffffffp+1023",
    "the largest, negative": "-0x1.fffffffffffffp+1023",
    "2^53": "0x1p+53",
    "infinity": "inf",
    "minus infinity": "-inf",
    "not a number": "nan",
}


def _floats() -> Iterator[tuple[str, dict[str, Any], Any]]:
    for name, text in FLOATS.items():
        yield f"float, {name}", FLOAT, text


TEXTS = {
    "empty": "",
    "one letter": "a",
    "NUL": "\x00",
    "NUL between letters": "a\x00b\x00\x00c",
    "U+0001 behind NUL": "\x00\x01",
    "U+007F and U+0080": "\x7f\x80",
    "U+07FF and U+0800": "\u07ff\u0800",
    "the last before the surrogates, the first behind": "\ud7ff\ue000",
    "noncharacters": "\ufffe\uffff",
    "astral": "\U00010000 \U0001f600 \U0010ffff",
    "composed": "\u00e9",
    "decomposed": "e\u0301",
}
BYTES = {
    "empty": "",
    "one byte": "61",
    "00": "00",
    "00 01": "0001",
    "00 ff": "00ff",
    "00 00 ff ff": "0000ffff",
    "not UTF-8": "c080eda080",
}


def _extents() -> Iterator[tuple[str, dict[str, Any], Any]]:
    for name, text in TEXTS.items():
        yield f"string, {name}", STRING, text
    for name, text in BYTES.items():
        yield f"binary, {name}", BINARY, text
    for size in (63, 64, 255, 256, 4_095, 4_096):
        yield f"string of {size} bytes", STRING, repeat("x", size)
        yield f"binary of {size} bytes", BINARY, repeat("00", size)
    yield "string of 2,048 characters and 4,096 bytes", STRING, repeat("\u00e9", 2_048)
    yield "string of 1,024 characters and 4,096 bytes", STRING, repeat("\U0001f600", 1_024)


def integer(value: int) -> dict[str, str]:
    return {"integer": str(value)}


def float_(text: str) -> dict[str, str]:
    return {"float": text}


def object_(*pairs: tuple[str, Any]) -> dict[str, Any]:
    return {"object": [list(pair) for pair in pairs]}


def nested(depth: int) -> Any:
    """That many arrays in one another."""
    inner: list[Any] = []
    for _ in range(depth - 1):
        inner = [inner]
    return inner


def _json() -> Iterator[tuple[str, dict[str, Any], Any]]:
    for plain in (None, False, True):
        yield f"json {plain}".lower().replace("none", "null"), JSON, plain
    for step in (0, 23, 24, 255, 256, 65_535, 65_536, 2**32 - 1, 2**32, 2**53 + 1, 2**64 - 1):
        yield f"json integer {step}", JSON, integer(step)
        yield f"json integer {-1 - step}", JSON, integer(-1 - step)
    for name, text in {
        "0.0": "0x0p+0",
        "1.0, half": "0x1p+0",
        "-1.5, half": "-0x1.8p+0",
        "65504.0, the largest half": "0x1.ffcp+15",
        "the least subnormal half": "0x1p-24",
        "65505.0, single": "0x1.ffc2p+15",
        "65536.0, single": "0x1p+16",
        "half of the least half, single": "0x1p-25",
        "2^-149, the least single": "0x1p-149",
        "the largest single": "0x1.fffffep+127",
        "2^128, double": "0x1p+128",
        "2^-150, double": "0x1p-150",
        "0.1, double": "0x1.999999999999ap-4",
        "the largest double": "0x1.fffffffffffffp+1023",
        "the least double": "-0x0.0000000000001p-1022",
        "2^64, which no integer is": "0x1p+64",
    }.items():
        yield f"json float {name}", JSON, float_(text)
    for name, text in TEXTS.items():
        yield f"json string, {name}", JSON, text
    for size in (23, 24, 255, 256):
        yield f"json string of {size} bytes", JSON, "x" * size
    yield "json empty array", JSON, []
    yield "json array of 24", JSON, [integer(n) for n in range(24)]
    yield "json empty object", JSON, object_()
    yield (
        "json array of every kind",
        JSON,
        [None, True, integer(1), float_("0x1p+0"), "", [], object_()],
    )
    yield (
        "json object, its keys not in order: shorter ones first, then by bytes",
        JSON,
        object_(
            ("b", integer(1)),
            ("aa", integer(2)),
            ("a", integer(3)),
            ("\u00e9", integer(4)),
            ("", integer(5)),
            ("zz", integer(6)),
            ("\U00010000", integer(7)),
            ("\uffff", integer(8)),
            ("x" * 24, integer(9)),
            ("x" * 23, integer(10)),
        ),
    )
    yield (
        "json objects in one another",
        JSON,
        object_(("b", object_(("d", [object_()]), ("c", None))), ("a", [[integer(-1)]])),
    )
    yield "json of 64 arrays in one another", JSON, nested(64)


def _composed() -> Iterator[tuple[str, dict[str, Any], Any]]:
    one = {"type": "reference", "key": [UUID]}
    yield "reference by uuid", one, [A_UUID]
    yield "reference by integer", {"type": "reference", "key": [INTEGER]}, [-65]
    yield "reference by string and integer", SHOP, ["a\x00b", 64]
    yield "reference by an empty string and integer", SHOP, ["", 0]
    yield "reference by a key that has a reference", ORDER, [["Rome", 1], "2024-02-29", "done"]
    yield (
        "reference by a key of 1,024 bytes",
        {"type": "reference", "key": [BINARY]},
        [repeat("78", 1_022)],
    )
    for member in STATE["members"]:
        yield f"enum with id {member['id']}", STATE, member["name"]
    yield "struct, all members present", ADDRESS, {"street": "Mall", "number": 64, "zip": "EC1"}
    yield "struct, the first optional member present", ADDRESS, {"street": "", "number": 0}
    yield "struct, the second optional member present", ADDRESS, {"street": "", "zip": ""}
    yield "struct, no optional member present", ADDRESS, {"street": "x"}
    yield "struct of nine absent members", NINE, {}
    yield "struct, the ninth member present", NINE, {"m9": 9}
    yield "struct of nine members", NINE, {f"m{n}": n for n in range(1, 10)}
    yield (
        "struct in a struct",
        PLACE,
        {"address": {"street": "x", "zip": ""}, "state": "draft", "height": "0x1.8p+1"},
    )
    yield "struct, JSON null in a required member", EXTRA, {"data": None}
    yield "struct with JSON in both", EXTRA, {"note": False, "data": []}
    yield (
        "struct with a string of 4,097 bytes: not a blob",
        ADDRESS,
        {"street": repeat("x", 4_097)},
    )
    yield "list, empty", list_of(INTEGER), []
    yield "list of integers", list_of(INTEGER), [0, -65, 256, 0]
    yield "list of strings", list_of(STRING), ["", "a\x00", "\u00e9"]
    yield "list of a binary of 4,097 bytes: not a blob", list_of(BINARY), [repeat("00", 4_097)]
    yield "list of 64 booleans", list_of(BOOLEAN), [True] * 64
    yield "list of JSON with null", list_of(JSON), [None, integer(1), object_()]
    yield "list of lists", list_of(list_of(INTEGER)), [[], [1], [2, 3], []]
    yield (
        "list of structs",
        list_of(ADDRESS),
        [{"street": "a"}, {"street": "b", "number": 1}],
    )
    yield "list of references", list_of(SHOP), [["a", 1], ["", 2]]
    yield "list of zoned timestamps", list_of(ZONED), [zoned("2024-07-01T12:00:00", "Europe/Paris")]
    deep: dict[str, Any] = INTEGER
    plain: Any = 5
    for _ in range(8):
        deep, plain = list_of(deep), [plain]
    yield "list, eight of them in one another", deep, plain


# --- record keys ---------------------------------------------------------------------------------


def record_keys() -> Iterator[tuple[str, list[dict[str, Any]], list[Any]]]:
    for name, kind, value in values():
        fixed = kind["type"] in ("boolean", "date", "timestamp", "uuid", "enum")
        if fixed or name in ("integer -65", "integer 64", "decimal of scale 2, -2.57"):
            yield name, [kind], [value]
    for name, text in TEXTS.items():
        yield f"string, {name}", [STRING], [text]
    for name, text in BYTES.items():
        yield f"binary, {name}", [BINARY], [text]
    yield "string of 1,022 bytes: the longest key", [STRING], [repeat("x", 1_022)]
    yield "binary of 511 bytes 00: the longest key", [BINARY], [repeat("00", 511)]
    yield "strings, a shorter one and a longer", [STRING, STRING], ["a", "bc"]
    yield "strings, a longer one and a shorter", [STRING, STRING], ["ab", "c"]
    yield "empty strings", [STRING, STRING], ["", ""]
    yield "reference", [SHOP], [["a\x00", -64]]
    yield "reference and more", [SHOP, INTEGER], [["a", 1], 2]
    yield "reference by a key that has a reference", [ORDER], [[["", 0], "1970-01-01", "lost"]]
    yield (
        "every type",
        [INTEGER, decimal(2), BOOLEAN, DATE, TIMESTAMP, UUID, STRING, BINARY, STATE, SHOP],
        [
            256,
            "-0.65",
            True,
            "1969-12-31",
            "1970-01-01T00:00:00+00:00",
            A_UUID,
            "a\x00",
            "00",
            "open",
            ["", 63],
        ],
    )
    yield "ada-key", [STRING, INTEGER], ["London", 7]
    yield "escaped-key", [INTEGER, STRING, STATE], [-300, "a\x00b", "done"]


# --- index keys ----------------------------------------------------------------------------------


def descending(kind: dict[str, Any]) -> dict[str, Any]:
    return {**kind, "descending": True}


def collated(locale: str, strength: str = "tertiary", numeric: bool = False) -> dict[str, Any]:
    return {**STRING, "collation": {"locale": locale, "strength": strength, "numeric": numeric}}


def index_keys() -> Iterator[tuple[str, list[dict[str, Any]], list[Any]]]:
    for kind, value in (
        (INTEGER, -65),
        (decimal(2), "0.64"),
        (BOOLEAN, False),
        (DATE, "1969-12-31"),
        (TIMESTAMP, "1969-12-31T23:59:59.999999+00:00"),
        (UUID, A_UUID),
        (FLOAT, "-0x1p+0"),
        (STRING, "a\x00b"),
        (BINARY, "00ff61"),
        (ZONED, ZONED_CASES["summer in Paris"]),
        (STATE, "open"),
        (SHOP, ["a\x00", 64]),
        (ADDRESS, {"street": "\x00", "number": 64}),
    ):
        name = kind["type"]
        yield f"{name}", [kind], [value]
        yield f"{name}, descending", [descending(kind)], [value]
        yield f"{name}, null", [kind], [None]
        yield f"{name}, null, descending", [descending(kind)], [None]
    for name, text in FLOATS.items():
        yield f"float, {name}", [FLOAT], [text]
    for name, text in TEXTS.items():
        yield f"string, {name}", [STRING], [text]
    for name, plain in ZONED_CASES.items():
        yield f"zoned_timestamp, {name}", [ZONED], [plain]
    for place, member in enumerate(STATE["members"]):
        yield f"enum, place {place}", [STATE], [member["name"]]
    yield "struct, all members", [ADDRESS], [{"street": "", "number": 0, "zip": "z"}]
    yield "struct, no optional member", [ADDRESS], [{"street": "x"}]
    yield "struct of nine nulls", [NINE], [{}]
    yield (
        "struct in a struct",
        [PLACE],
        [{"address": {"street": "x", "number": 1}, "state": "done", "height": "nan"}],
    )
    composite = [STRING, descending(INTEGER), STATE]
    yield "composite", composite, ["a", 256, "lost"]
    yield "composite, nulls", composite, [None, None, None]
    yield "composite, a null between", composite, ["", None, "draft"]
    yield "key of 1,023 bytes", [STRING], [repeat("x", 1_020)]
    yield "key of 1,024 bytes", [STRING], [repeat("x", 1_021)]
    yield "key of 1,025 bytes, cut", [STRING], [repeat("x", 1_022)]
    yield "key of 5,003 bytes, cut", [STRING], [repeat("x", 5_000)]
    yield "key of 5,003 bytes, descending, cut", [descending(STRING)], [repeat("x", 5_000)]
    yield "key cut between 00 and ff", [BINARY], [repeat("00", 2_000)]
    yield "key cut in its second component", [INTEGER, STRING], [256, repeat("\u00e9", 600)]
    by_state = [STATE, descending(TIMESTAMP), descending(INTEGER), STRING]
    yield "ada-index-key", by_state, ["done", None, 36, "Ada"]


def collated_keys() -> Iterator[tuple[str, list[dict[str, Any]], list[Any]]]:
    """Those that depend on the collation data."""
    for text in ("", "a", "A", "\u00e9", "e\u0301", "10", "\u5f35", "\U0001f600", "a\x00b"):
        yield f"und, {text!a}", [collated("und")], [text]
    for strength in ("primary", "secondary", "tertiary", "quaternary", "identical"):
        yield (
            f"und, {strength}, R\u00e9sum\u00e9-1",
            [collated("und", strength)],
            ["R\u00e9sum\u00e9-1"],
        )
    for text in ("2", "10", "file 007"):
        yield f"und, numeric, {text}", [collated("und", numeric=True)], [text]
    yield "cs, chata", [collated("cs")], ["chata"]
    yield "sv, \u00e4", [collated("sv")], ["\u00e4"]
    yield "de@collation=phonebook, \u00e4", [collated("de@collation=phonebook")], ["\u00e4"]
    yield "und, null", [collated("und")], [None]
    yield "und, descending", [descending(collated("und"))], ["Ada"]
    yield "und, descending, null", [descending(collated("und"))], [None]
    yield "und, cut", [collated("und")], [repeat("ab", 1_000)]
    yield "und, composite", [collated("und"), descending(collated("de")), INTEGER], ["b", "a", 1]


UniqueKey = tuple[str, list[dict[str, Any]], list[Any], tuple[list[dict[str, Any]], list[Any]]]
"""An index's types and a record's values of them, and the types and values of its record key."""
SEVEN, EIGHT = ([INTEGER], [7]), ([INTEGER], [8])
LONDON = ([STRING, INTEGER], ["London", 7])
LONGEST = ([STRING], [repeat("k", 1_022)])


def unique_keys() -> Iterator[UniqueKey]:
    composite = [STRING, descending(INTEGER), STATE]
    yield "no null", composite, ["a", 256, "lost"], LONDON
    yield "no null, another record", composite, ["a", 256, "lost"], EIGHT
    yield "no null, a binary of 00", [BINARY], ["00"], SEVEN
    yield "no null, but nine null members", [NINE], [{}], SEVEN
    yield "null", [STRING], [None], SEVEN
    yield "null, another record", [STRING], [None], EIGHT
    yield "null, descending", [descending(STRING)], [None], SEVEN
    yield "null, a struct", [NINE], [None], SEVEN
    yield "null in the first component", composite, [None, 256, "lost"], LONDON
    yield "null in the descending component", composite, ["a", None, "lost"], LONDON
    yield "null in the last component", composite, ["a", 256, None], LONDON
    yield "nulls alone", composite, [None, None, None], LONDON
    yield "null, the longest record key", [INTEGER], [None], LONGEST

    for size in (1_023, 1_024, 1_025, 2_000):
        text = [repeat("x", size - 3)]
        yield f"key of {size:,} bytes", [STRING], text, SEVEN
        yield f"key of {size:,} bytes, another record", [STRING], text, EIGHT
        yield f"key of {size:,} bytes, descending", [descending(STRING)], text, SEVEN
    with_null = [STRING, INTEGER]
    for size in (1_022, 1_023, 1_024, 2_000):
        plains = [repeat("x", size - 4), None]
        yield f"key of {size:,} bytes with a null", with_null, plains, SEVEN
        yield f"key of {size:,} bytes with a null, another record", with_null, plains, EIGHT
    plains = [repeat("x", 1_010), None]
    yield "key of 1,014 bytes with a null, 1,023 with the record key", with_null, plains, LONDON
    plains = [repeat("x", 1_011), None]
    yield "key of 1,015 bytes with a null, 1,024 with the record key", with_null, plains, LONDON
    plains = [repeat("x", 496), None]
    yield "key of 500 bytes with a null, cut in the record key", with_null, plains, LONGEST

    long = repeat("x", 988)
    yield "992 bytes and a", [STRING, STRING], [long, "a"], SEVEN
    yield "992 bytes and 100 times a", [STRING, STRING], [long, repeat("a", 100)], SEVEN
    yield "992 bytes and 100 times b", [STRING, STRING], [long, repeat("b", 100)], SEVEN
    yield "2,003 bytes and 1", with_null, [repeat("x", 2_000), 1], SEVEN
    yield "2,003 bytes and 2", with_null, [repeat("x", 2_000), 2], SEVEN

    yield "ada-unique-key", [STRING, descending(TIMESTAMP)], ["Ada", None], LONDON
    yield "truncated-unique-key", [STRING], [repeat("x", 1_997)], SEVEN


def collated_unique_keys() -> Iterator[UniqueKey]:
    address = [collated("und", "secondary")]
    for text in ("Ada@example.com", "ada@EXAMPLE.com"):
        yield f"und, secondary, {text}", address, [text], SEVEN
    yield "und, secondary, null", address, [None], SEVEN
    yield "und, cut", [collated("und")], [repeat("ab", 1_000)], SEVEN


# --- records -------------------------------------------------------------------------------------


def table(key: list[str], *fields: dict[str, Any]) -> dict[str, Any]:
    return {"key": key, "fields": list(fields)}


def named(number: int, name: str, kind: dict[str, Any], optional: bool = False) -> dict[str, Any]:
    return {"number": number, "name": name, **kind, **({"optional": True} if optional else {})}


PEOPLE = table(
    ["town", "id"],
    named(1, "id", INTEGER),
    named(2, "name", STRING),
    named(9, "state", STATE),
    named(3, "town", STRING),
    named(4, "age", INTEGER, optional=True),
    named(5, "balance", decimal(2)),
    named(6, "met", TIMESTAMP, optional=True),
    named(7, "photo", BINARY, optional=True),
    named(8, "extra", JSON, optional=True),
    named(10, "friend", {"type": "reference", "key": [STRING, INTEGER]}, optional=True),
)
"""Declared in another order than that of the numbers; the key in yet another."""
ADA = {
    "id": 7,
    "town": "London",
    "name": "Ada",
    "age": 36,
    "balance": "-2.57",
    "photo": repeat("ff", 4_097),
    "extra": object_(("pi", float_("0x1.8p+1")), ("a", [None, integer(1)])),
    "state": "done",
    "friend": None,
}


EARLIER = {**PEOPLE, "fields": [f for f in PEOPLE["fields"] if f["number"] not in (8, 10)]}
EARLIER_ADA = {
    "id": 7,
    "town": "London",
    "name": "Ada",
    "met": "1969-12-31T23:59:59.999999+00:00",
    "balance": "0.63",
    "state": "done",
}
"""Of a revision before `extra` and `friend`. All that is called ada is in the documents, too."""


def optional_table(count: int) -> dict[str, Any]:
    """A key, a required field and that many optional ones."""
    optional = (named(n, f"f{n}", INTEGER, optional=True) for n in range(3, 3 + count))
    return table(["id"], named(1, "id", INTEGER), named(2, "name", STRING), *optional)


def records() -> Iterator[tuple[str, dict[str, Any], dict[str, Any], int, list[str]]]:
    yield "ada", PEOPLE, ADA, 70, BLOB_IDS[:1]
    yield "ada-before", EARLIER, EARLIER_ADA, 63, []
    met = {"met": "1969-12-31T23:59:59.999999+00:00", "friend": ["a\x00", 256], "photo": ""}
    yield "people, every field present", PEOPLE, ADA | met, 70, []
    for count in (0, 1, 2, 7, 8, 9, 16, 17):
        kind = optional_table(count)
        base = {"id": 1, "name": "x"}
        everything = base | {f"f{n}": n for n in range(3, 3 + count)}
        yield f"{count} optional fields, all absent", kind, base, 1, []
        if count:
            yield f"{count} optional fields, all present", kind, everything, 1, []
            last = {f"f{2 + count}": 64}
            yield f"{count} optional fields, the last present", kind, base | last, 1, []
        if count > 1:
            others = {name: part for name, part in everything.items() if name != "f3"}
            yield f"{count} optional fields, the first absent", kind, others, 1, []
    for revision in (1, 63, 64, 255, 256, 65_535, 65_536, 70_000, 2**32):
        yield f"revision {revision}", optional_table(1), {"id": 1, "name": ""}, revision, []
    yield "key fields alone", table(["id"], named(1, "id", INTEGER)), {"id": 5}, 1, []
    note = table(["id"], named(1, "id", UUID), named(2, "text", STRING), named(3, "raw", BINARY))
    for size in (4_096, 4_097):
        plain = {"id": A_UUID, "text": repeat("x", size), "raw": repeat("00", size)}
        ids = BLOB_IDS if size > 4_096 else []
        yield f"string and binary of {size} bytes", note, plain, 1, ids
    for letter, times, size in (
        ("\u00e9", 2_049, "4,098"),
        ("\uffff", 1_366, "4,098"),
        ("\U0001f600", 1_025, "4,100"),
    ):
        plain = {"id": A_UUID, "text": repeat(letter, times), "raw": ""}
        yield f"string of {times:,} characters and {size} bytes", note, plain, 1, BLOB_IDS[:1]
    plain = {"id": A_UUID, "text": repeat("x", 4_194_304), "raw": repeat("00", 4_194_305)}
    yield "the longest string, and a binary that is longer", note, plain, 1, BLOB_IDS
    data = table(["id"], named(1, "id", INTEGER), named(2, "data", JSON))
    yield "JSON null in a required field", data, {"id": 1, "data": None}, 1, []
    long = {"id": 1, "data": "x" * 5_000}
    yield "JSON of 5,003 bytes: never a blob", data, long, 1, []
    every = table(
        ["k"],
        named(1, "k", STATE),
        named(2, "i", INTEGER),
        named(3, "d", decimal(2)),
        named(4, "b", BOOLEAN),
        named(5, "y", DATE),
        named(6, "t", TIMESTAMP),
        named(7, "z", ZONED),
        named(8, "u", UUID),
        named(9, "f", FLOAT),
        named(10, "s", STRING),
        named(11, "r", BINARY),
        named(12, "j", JSON),
        named(13, "e", STATE),
        named(14, "a", PLACE),
        named(15, "l", list_of(list_of(STRING))),
        named(16, "o", ORDER),
    )
    plain = {
        "k": "draft",
        "i": -257,
        "d": "1.00",
        "b": True,
        "y": "0001-01-01",
        "t": "9999-12-31T23:59:59.999999+00:00",
        "z": zoned("2023-11-05T01:30:00", "America/New_York", 64, 1),
        "u": A_UUID,
        "f": "nan",
        "s": "\U0001f600\x00",
        "r": "00ff",
        "j": object_(("a", float_("0x1.999999999999ap-4"))),
        "e": "lost",
        "a": {"address": {"street": "Mall", "zip": "EC1"}, "height": "-0x1p+0"},
        "l": [[], ["a", ""]],
        "o": [["Rome", 1], "2024-02-29", "open"],
    }
    yield "a field of every type", every, plain, 64, []
