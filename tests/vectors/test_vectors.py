"""zapdb against the vectors: it writes their bytes, reads them back, and refuses the refused ones.

The files were written by `write`, from the format documents alone. Each vector goes through the
methods of its type and through a generated codec. A test that fails here says that zapdb's bytes
are not what its documents say; the vectors stay as they are.
"""

from __future__ import annotations

import datetime
import importlib.resources
import json
import re
import subprocess
import sys
import uuid
import zoneinfo
from collections import defaultdict
from collections.abc import Callable, Iterator
from decimal import Decimal as D
from pathlib import Path
from typing import Any

import icu
import pytest

from tests.blobs import NO_BLOBS
from tests.vectors.write import Changed, merge
from zapdb.datasets import Collation
from zapdb.errors import CorruptRecord
from zapdb.records import Attachments, Codec, RecordReader, asdict, codec_for, encode_prefix
from zapdb.schema import Field, Index, IndexComponent, TableSchema
from zapdb.tables.indexes.keys import (
    build_keys,
    encode_component,
    truncate_key,
    truncate_unique_key,
)
from zapdb.values import (
    VALUE_TYPES,
    Blob,
    Decimal,
    Enum,
    Integer,
    List,
    Member,
    Reference,
    Struct,
    StructValue,
    ValueType,
    Zones,
)

pytestmark = pytest.mark.usefixtures("codec_in_use")

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
Vector = dict[str, Any]
BEFORE, BEHIND = b"\x05\xff\x00", b"\x81\x00\xff"
"""Bytes around a value, which concern it in no way."""


def vectors_in(file: str) -> list[Vector]:
    vectors: list[Vector] = json.loads((HERE / file).read_text(encoding="ascii"))
    return vectors


def each(file: str, *forms: str) -> Callable[[Callable[[Vector], None]], Any]:
    """Make a check of one vector a test for each first word of their names: four thousand tests of
    a millisecond would take longer to begin than to run."""
    groups = defaultdict(list)
    for vector in vectors_in(file):
        if not forms or vector["form"] in forms:
            is_of_other_data = vector.get("made_with", collation_data()) != collation_data()
            groups[FIRST_WORD.match(vector["name"])[0], is_of_other_data].append(vector)

    def decorate(check: Callable[[Vector], None]) -> Any:
        def test(group: list[Vector]) -> None:
            for vector in group:
                try:
                    check(vector)
                except BaseException as error:
                    error.add_note(f"The vector is {vector['name']!r} of {file}.")
                    raise

        test.__name__, test.__doc__ = check.__name__, check.__doc__
        other = pytest.mark.skip(f"made with other data than {collation_data()}")
        parameters = [
            pytest.param(group, id=word, marks=[other] if is_of_other_data else [])
            for (word, is_of_other_data), group in groups.items()
        ]
        return pytest.mark.parametrize("group", parameters)(test)

    return decorate


FIRST_WORD = re.compile(r"[^\s,:]*")


def collation_data() -> str:
    cldr = icu.ResourceBundle("", icu.Locale("icuver")).getStringEx("CLDRVersion")
    return f"ICU {icu.ICU_VERSION}, CLDR {cldr}"


def bytes_of(written: str | list[str | dict[str, Any]]) -> bytes:
    if isinstance(written, str):
        return bytes.fromhex(written)
    return b"".join(
        bytes.fromhex(part)
        if isinstance(part, str)
        else bytes.fromhex(part["repeat"]) * part["times"]
        for part in written
    )


# --- types and values as zapdb has them ----------------------------------------------------------


def type_of(definition: dict[str, Any]) -> ValueType:
    match definition["type"]:
        case "decimal":
            return Decimal(definition["scale"])
        case "reference":
            return Reference("target", 1, tuple(map(type_of, definition["key"])))
        case "enum":
            return Enum("enum", 1, tuple((m["id"], m["name"]) for m in definition["members"]))
        case "struct":
            return Struct("struct", 2, tuple(map(_member_of, definition["members"])))
        case "list":
            return List(type_of(definition["items"]))
        case name:
            return VALUE_TYPES[name]()


def _member_of(definition: dict[str, Any]) -> Member:
    optional = definition.get("optional", False)
    return Member(definition["id"], definition["name"], type_of(definition), optional)


def table_of(definition: dict[str, Any]) -> TableSchema:
    numbers = {f["name"]: f["number"] for f in definition["fields"]}
    fields = (
        Field(f["number"], f["name"], type_of(f), f.get("optional", False))
        for f in definition["fields"]
    )
    return TableSchema(1, "t", tuple(numbers[name] for name in definition["key"]), tuple(fields))


def value_of(definition: dict[str, Any], plain: Any) -> Any:
    """What a program gives to zapdb for the plain form in a vector (see `formats`)."""
    match definition["type"]:
        case "integer":
            return int(plain)
        case "decimal":
            return D(plain)
        case "date":
            return datetime.date.fromisoformat(plain)
        case "timestamp":
            return datetime.datetime.fromisoformat(plain)
        case "zoned_timestamp":
            local = datetime.datetime.fromisoformat(plain["local"])
            return local.replace(tzinfo=zone(plain["zone"]), fold=plain["fold"])
        case "uuid":
            return uuid.UUID(plain)
        case "float":
            return float.fromhex(plain)
        case "string" | "binary" as kind:
            text = plain["repeat"] * plain["times"] if isinstance(plain, dict) else plain
            return bytes.fromhex(text) if kind == "binary" else text
        case "json":
            return json_of(plain)
        case "reference":
            parts = tuple(map(value_of, definition["key"], plain))
            return parts if len(parts) > 1 else parts[0]
        case "struct":
            return {
                m["name"]: value_of(m, plain[m["name"]])
                for m in definition["members"]
                if m["name"] in plain
            }
        case "list":
            return [value_of(definition["items"], item) for item in plain]
    return plain


def json_of(plain: Any) -> Any:
    match plain:
        case {"integer": text}:
            return int(text)
        case {"float": text}:
            return float.fromhex(text)
        case {"object": pairs}:
            return {key: json_of(item) for key, item in pairs}
        case list():
            return [json_of(item) for item in plain]
    return plain


def values_of(definition: dict[str, Any], plain: dict[str, Any]) -> dict[str, Any]:
    """A record's values by name."""
    fields = {f["name"]: f for f in definition["fields"]}
    return {
        name: None if part is None else value_of(fields[name], part) for name, part in plain.items()
    }


def zone(name: str) -> zoneinfo.ZoneInfo:
    file = importlib.resources.files("tzdata.zoneinfo").joinpath(*name.split("/"))
    with file.open("rb") as opened:
        return zoneinfo.ZoneInfo.from_file(opened, key=name)


def zones_of(plain: Any) -> Zones:
    """The zone numbers that a vector's value speaks of."""

    def pairs(part: Any) -> Iterator[tuple[int, str]]:
        if isinstance(part, dict):
            if "zone" in part:
                yield part["number"], part["zone"]
            part = list(part.values())
        if isinstance(part, list):
            for inner in part:
                yield from pairs(inner)

    return Zones(dict(pairs(plain)))


def exact(value: Any) -> Any:
    """What two values have in common when they are the same: 1, 1.0 and True are three."""
    match value:
        case dict():
            return sorted((key, exact(item)) for key, item in value.items())
        case list() | tuple():
            return [exact(item) for item in value]
        case StructValue():
            return [(name, exact(getattr(value, name))) for name in value._fields]
    return repr(value)


UTC_ALONE = Zones({1: "Etc/UTC"})


def codec_of(kind: ValueType, zones: Zones, *, optional: bool = False) -> Codec:
    """Of a table with this type as its one field beside the key."""
    fields = Field(1, "id", Integer()), Field(2, "it", kind, optional)
    return codec_for(TableSchema(1, "t", (1,), fields), zones)


def key_codec_of(kinds: list[ValueType]) -> Codec:
    """Of a table whose key has these types."""
    numbers = range(1, len(kinds) + 1)
    fields = tuple(Field(n, f"f{n}", kind) for n, kind in zip(numbers, kinds, strict=True))
    return codec_for(TableSchema(1, "t", tuple(numbers), fields))


KEY = b"\x85"
"""Of a record of `codec_of`."""


# --- what zapdb writes and reads -----------------------------------------------------------------


@each("values.json")
def test_a_value_has_these_bytes(vector: Vector) -> None:
    kind, raw = type_of(vector["type"]).bind(zones_of(vector["value"])), bytes_of(vector["hex"])
    value = kind.check(value_of(vector["type"], vector["value"]), "value")
    assert kind.encode(value) == raw
    around = BEFORE + raw + BEHIND
    decoded, end = kind.decode(around, len(BEFORE))
    assert exact(decoded) == exact(value)
    assert end == kind.skip(around, len(BEFORE)) == len(BEFORE) + len(raw)


@each("values.json")
def test_a_generated_codec_writes_and_reads_a_value(vector: Vector) -> None:
    kind, raw = type_of(vector["type"]), bytes_of(vector["hex"])
    zones, given = zones_of(vector["value"]), value_of(vector["type"], vector["value"])
    value = kind.bind(zones).check(given, "value")
    for optional, presence in ((False, b""), (True, b"\x01")):
        if optional and given is None:
            raw, presence = b"", b"\x00"
        codec = codec_of(kind, zones, optional=optional)
        encoded = codec.encode(b"\x81", {"id": 5, "it": given}, NO_BLOBS)
        assert encoded == b"\x81" + presence + raw
        assert exact(codec.decode(KEY, encoded, 1, NO_BLOBS).it) == exact(value)
        assert codec.skip(encoded, 1) == len(encoded)


@each("record_keys.json")
def test_a_record_key_has_these_bytes(vector: Vector) -> None:
    kinds, raw = list(map(type_of, vector["type"])), bytes_of(vector["hex"])
    values = tuple(map(value_of, vector["type"], vector["value"]))
    codec = key_codec_of(kinds)
    assert codec.encode_key({f"f{n}": value for n, value in enumerate(values, 1)}) == raw
    assert exact(codec.decode_key(raw)) == exact(values)
    decoded = asdict(codec.decode(raw, b"\x81", 1, NO_BLOBS))
    assert exact(tuple(decoded.values())) == exact(values)

    at, around = len(BEFORE), BEFORE + raw + BEHIND
    for kind, value in zip(kinds, values, strict=True):
        decoded, after = kind.decode_key(around, at)
        assert exact(decoded) == exact(value)
        assert kind.encode_key(kind.check(value, "value")) == around[at:after]
        at = after
    assert at == len(BEFORE) + len(raw)

    # A reference is the target's key, and a record key of one reference is that key, too.
    reference = Reference("target", 1, tuple(kinds))
    target = reference.check(values if len(values) > 1 else values[0], "value")
    assert reference.encode(target) == reference.encode_key(target) == raw
    assert reference.decode(around, len(BEFORE)) == (target, at)
    assert reference.skip(around, len(BEFORE)) == at


def collation_of(definition: dict[str, Any]) -> Collation | None:
    return Collation(**definition["collation"]) if "collation" in definition else None


Entry = Callable[[bytes, list[Any]], bytes]
"""(full key, values) → what an entry holds."""


@each("index_keys.json")
def test_an_index_key_has_these_bytes(vector: Vector) -> None:
    check_index_key(vector, lambda full, _: truncate_key(full))


@each("unique_keys.json")
def test_a_key_of_a_unique_index_has_these_bytes(vector: Vector) -> None:
    record_key = bytes_of(vector["record_key"])
    check_index_key(
        vector, lambda full, values: truncate_unique_key(full, record_key, has_null=None in values)
    )


def check_index_key(vector: Vector, entry: Entry) -> None:
    """Component by component, and by the compiled builder."""
    raw, zones = bytes_of(vector["hex"]), zones_of(vector["value"])
    fields, components, values, key = [], [], [], b""
    for number, (definition, plain) in enumerate(
        zip(vector["type"], vector["value"], strict=True), 2
    ):
        kind = type_of(definition).bind(zones)
        fields.append(Field(number, f"f{number}", kind, optional=True))
        is_descending = definition.get("descending", False)
        components.append(IndexComponent(number, collation_of(definition), is_descending))
        value = None if plain is None else kind.check(value_of(definition, plain), "value")
        values.append(value)
        encoded = encode_component(fields[-1], components[-1], value)
        if value is not None and not is_descending and components[-1].collation is None:
            assert kind.encode_index_key(value) == encoded[1:]
        key += encoded
    assert entry(key, values) == raw

    index = Index(1, "i", tuple(components))
    for is_optional in (True, False):
        if is_optional or None not in values:
            with_key = (Field(1, "id", Integer()), *fields)
            table = TableSchema(1, "t", (1,), with_key, (index,))
            record = codec_for(table, zones).record(5, *values)
            assert entry(build_keys(table, index).build(record), values) == raw
        fields = [Field(f.number, f.name, f.type) for f in fields]


@each("records.json")
def test_a_record_has_these_bytes(vector: Vector) -> None:
    table, zones = table_of(vector["type"]), zones_of(vector["value"])
    given = values_of(vector["type"], vector["value"])
    codec = codec_for(table, zones)
    ids = iter(map(bytes.fromhex, vector["blob_ids"]))
    attachments = Attachments(load_nothing, lambda: next(ids))
    key, raw, prefix = (
        bytes_of(vector["key"]),
        bytes_of(vector["hex"]),
        encode_prefix(vector["revision"]),
    )
    assert codec.encode_key(given) == key
    assert codec.encode(prefix, given, attachments) == raw
    assert list(attachments.blobs) == list(map(bytes.fromhex, vector["blob_ids"]))

    wanted = {}
    for f in table.fields:
        is_absent = f.optional and given.get(f.name) is None
        wanted[f.name] = None if is_absent else f.type.bind(zones).check(given[f.name], f.name)
    reader = RecordReader(codec.decode, lambda _: None, vector["revision"], lambda *_: attachments)
    for record in (codec.decode(key, raw, len(prefix), attachments), reader.read(key, raw)):
        assert exact({name: getattr(record, name) for name in wanted}) == exact(wanted)
    assert codec.skip(raw, len(prefix)) == len(raw)


def load_nothing(blob: Blob) -> bytes:
    raise AssertionError("no blob is stored")


# --- what zapdb refuses --------------------------------------------------------------------------


def refuses(start: int, data: bytes, decode: Callable[..., Any], *arguments: Any) -> None:
    """`decode` raises, and points into the bytes from `start` on, or to their end."""
    with pytest.raises(CorruptRecord) as caught:
        decode(*arguments)
    assert start <= caught.value.context["offset"] <= len(data)


@each("refused.json", "value")
def test_a_type_refuses(vector: Vector) -> None:
    kind, raw = type_of(vector["type"]).bind(UTC_ALONE), bytes_of(vector["hex"])
    for before in (b"", BEFORE):
        refuses(len(before), before + raw, kind.decode, before + raw, len(before))


@each("refused.json", "value", "field")
def test_a_generated_codec_refuses(vector: Vector) -> None:
    kind, raw = type_of(vector["type"]), bytes_of(vector["hex"])
    for optional, before in ((False, b"\x81"), (True, b"\x81\x01")):
        codec, data = codec_of(kind, UTC_ALONE, optional=optional), before + raw
        refuses(1, data, codec.decode, KEY, data, 1, NO_BLOBS)


@each("refused.json", "record key")
def test_a_record_key_is_refused(vector: Vector) -> None:
    codec, raw = key_codec_of(list(map(type_of, vector["type"]))), bytes_of(vector["hex"])
    refuses(0, raw, codec.decode_key, raw)
    refuses(0, raw, codec.decode, raw, b"\x81", 1, NO_BLOBS)


@each("refused.json", "record")
def test_a_record_is_refused(vector: Vector) -> None:
    codec, raw = codec_for(table_of(vector["type"])), bytes_of(vector["hex"])
    known = {1: None, 70: None}  # revisions, and no conversion is needed from them
    reader = RecordReader(codec.decode, known.__getitem__, 1, lambda *_: NO_BLOBS)
    refuses(0, raw, reader.read, bytes_of(vector["key"]), raw)


# --- the files and the documents -----------------------------------------------------------------


def test_every_type_has_vectors() -> None:
    for file in ("values.json", "refused.json"):
        kinds = {v["type"]["type"] for v in vectors_in(file) if v.get("form", "value") == "value"}
        assert kinds >= set(VALUE_TYPES)


def test_the_vectors_are_what_the_documents_give_and_need_no_zapdb() -> None:
    program = (
        "import sys, runpy; sys.modules['zapdb'] = None; sys.argv[1:] = ['--check'];"
        "runpy.run_module('tests.vectors.write', run_name='__main__')"
    )
    subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=True)


def test_vectors_are_added_and_never_changed_or_dropped() -> None:
    one, two = {"name": "one", "hex": "81"}, {"name": "two", "hex": "82"}
    assert merge([], [one]) == [one]
    assert merge([one], [two, one]) == [one, two]
    for made in ([two], [{"name": "one", "hex": "82"}, two]):
        with pytest.raises(Changed, match="one"):
            merge([one], made)
    of_other_data = {"name": "three", "hex": "83", "made_with": "ICU 1"}
    assert merge([of_other_data], [one]) == [of_other_data, one]
    with pytest.raises(Changed, match="three"):
        merge([of_other_data], [of_other_data | {"hex": "84"}])


DUMP = re.compile(r"^```text vector=(?P<name>\S+)\n(?P<lines>.*?)^```$", re.MULTILINE | re.DOTALL)
LINE = re.compile(r"(?P<hex>[0-9a-f]{2}(?: [0-9a-f]{2})*)(?: × (?P<times>\d+))? {2,}\S.*")
"""Bytes on the left, with how often they are repeated, and, two spaces or more away, what they are;
bytes of one thing may be indented below what they are a part of."""


@pytest.mark.parametrize(("document", "count"), [("record.md", 2), ("key.md", 5)])
def test_the_dumps_in_the_documents_are_right(document: str, count: int) -> None:
    files = ("records.json", "record_keys.json", "index_keys.json", "unique_keys.json")
    known = {v["name"]: bytes_of(v["hex"]) for file in files for v in vectors_in(file)}
    dumps = list(DUMP.finditer((ROOT / "docs/format" / document).read_text(encoding="utf-8")))
    assert len(dumps) == count
    for dump in dumps:
        lines = [LINE.fullmatch(line.strip()) for line in dump["lines"].splitlines()]
        assert None not in lines, dump["lines"]
        raw = b"".join(
            bytes.fromhex(line["hex"]) * int(line["times"] or 1) for line in lines if line
        )
        assert raw == known[dump["name"]]
