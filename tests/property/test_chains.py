"""Random chains of migrations: rollbacks, stored structures, digests, and conversions.

The oracle applies one operation after another to dicts; programs do the same in one step, on bytes.
"""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Callable
from typing import Any

import cbor2
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests import forms
from tests.blobs import NO_BLOBS
from tests.forms import cases
from tests.oracle import Kept, convert_kept
from tests.strategies import (
    SIMPLE_TYPES,
    chains,
    check_cells,
    damage,
    document_of,
    extend,
    records_of,
    tables,
    to_yaml,
    values_of,
)
from tests.zoned import ZONES
from zapdb.catalog.stored_schemas import OUTLINE, list_changed_parts
from zapdb.errors import BlobMissing, CorruptRecord
from zapdb.migrations import Chain, Migration, NumberAllocator, read_stored, resolve
from zapdb.migrations.canonical_migration import to_structure
from zapdb.migrations.document import DocumentText, as_plain_data, read_document
from zapdb.migrations.operations.change_type import ChangeType
from zapdb.migrations.operations.definitions import TypeDefinition
from zapdb.migrations.operations.transform import Transform
from zapdb.migrations.parsed_migration import parse_document
from zapdb.records import (
    Attachments,
    Codec,
    Conversion,
    Layout,
    codec_for,
    compile_conversion,
    encode_prefix,
    held,
)
from zapdb.schema import Field, Schema, TableSchema, bytes_without_numbers, read_schema
from zapdb.values import List, String
from zapdb.values.blob import encode_inline_or_blob

# Drawing a chain resolves its migrations, which a busy machine may take its time for.
# What it takes to draw one, and records of all its tables, is large.
unhurried = settings(
    deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
moderate = settings(unhurried, max_examples=cases(50))
LEAST = 10_000 if forms.is_long else 500
"""Conversions to be tried."""
ROUNDS_MAX = 20


def try_enough(law: Callable[[], None], tried: Callable[[], int]) -> None:
    """Try chains until they gave `LEAST` conversions: how many one gives is chance, and few of them
    may be too few."""
    for _ in range(ROUNDS_MAX):
        law()
        if tried() >= LEAST:
            return
    raise AssertionError(f"chains give no conversions: {tried()}")


def spans(chain: Chain) -> list[tuple[int, range]]:
    """Each table's number, with the positions at which it is there, in force or archived."""
    found = []
    for number in {t.number for m in chain.migrations for t in m.after}:
        there = [
            p
            for p in range(1, chain.end + 1)
            if chain.schema_at(p).table_active_or_archived(number)
        ]
        found.append((number, range(there[0], there[-1] + 1)))
        assert list(found[-1][1]) == there
    return found


@moderate
@given(chains(archives=True))
def test_rule_01_tables_with_the_same_layout_have_the_same_records(chain: Chain) -> None:
    check_cells(chain)
    for number, there in spans(chain):
        for earlier, later in itertools.combinations(there, 2):
            tables = [chain.table_at(at, number) for at in (earlier, later)]
            if tables[0].layout == tables[1].layout:
                assert Layout.of(tables[0]) == Layout.of(tables[1])
                for way in ((earlier, later), (later, earlier)):
                    assert chain.conversion_plan(number, *way).is_identity


def table_at(chain: Chain, position: int, number: int) -> TableSchema:
    return chain.table_at(position, number)


@moderate
@given(chains(archives=True))
def test_every_inferred_rollback_leads_back(chain: Chain) -> None:
    """To the same shape; fields that were never dropped keep their numbers on the way."""
    for migration in chain.migrations:
        schema = migration.after
        numbers = NumberAllocator(step=-1, migration=migration.number)
        for operation in migration.rollback:
            schema = operation.apply(schema, numbers)
        assert sorted(map(bytes_without_numbers, schema)) == sorted(
            map(bytes_without_numbers, migration.before)
        )
        kept = [
            [(a.table.number, a.archived_by) for a in s.archived]
            for s in (schema, migration.before)
        ]
        assert sorted(kept[0]) == sorted(kept[1])
        for table in schema:
            before = migration.before.table_numbered(table.number)
            if before is None:
                assert table.number < 0  # it was discarded, and made again
                continue
            archives = [
                sorted((a.field.number, a.archived_by) for a in t.archived) for t in (table, before)
            ]
            assert archives[0] == archives[1]
            names = {f.number: f.name for f in before.fields}
            assert all(names[f.number] == f.name for f in table.fields if f.number > 0)


@moderate
@given(chains(archives=True))
def test_rule_06_what_is_stored_reads_as_what_was_resolved(chain: Chain) -> None:
    for given_ in chain.migrations:
        drawn = json.loads(json.dumps(given_.drawn))
        read = read_stored(given_.structure, given_.name, given_.summary, drawn, given_.before)
        assert read == given_
        assert read.after == given_.after
        assert (read.structure, read.digest) == (given_.structure, given_.digest)


@moderate
@given(chains(archives=True))
def test_rule_06_the_newest_parts_of_a_schema_are_the_schema(chain: Chain) -> None:
    parts: dict[int, bytes] = {}
    for migration in chain.migrations:
        parts |= list_changed_parts(migration.before, migration.after)
        assert read_schema(parts[OUTLINE], parts) == migration.after


@moderate
@given(chains(archives=True), st.randoms(use_true_random=False))
def test_rule_05_the_digest_does_not_cover_how_a_file_is_written(
    chain: Chain, generator: random.Random
) -> None:
    """The structure itself, written as a document with its rollback, in any order of keys."""
    numbers, again = NumberAllocator(), Chain()
    for migration in chain.migrations:
        content = cbor2.loads(migration.structure)
        rollback = content["rollback"]
        data = {
            "zapdb": 1,
            "summary": "Other words",
            "changes": content["changes"],
            "rollback": rollback,
        }
        again = extend(again, write(shuffled(data, generator), generator), numbers)
        assert again.migrations[-1].digest == migration.digest
        assert again.migrations[-1].after == migration.after


def shuffled(data: Any, generator: random.Random) -> Any:
    if isinstance(data, dict):
        keys = list(data)
        generator.shuffle(keys)
        return {key: shuffled(data[key], generator) for key in keys}
    return [shuffled(item, generator) for item in data] if isinstance(data, list) else data


def write(data: Any, generator: random.Random) -> str:
    """YAML in block style, with comments, blank lines and one kind of line end or another."""
    newline = generator.choice(["\n", "\r\n"])

    def block(value: Any, depth: int) -> str:
        """With whatever stands between a key or dash and its value."""
        comment = generator.choice(["", "", "  # why", newline + "# whole line"])
        start = newline * generator.randint(1, 2) + "  " * depth
        inner = depth + 1
        if isinstance(value, dict) and value and generator.random() < 0.7:
            parts = (f"{start}{to_yaml(k)}:{block(v, inner)}" for k, v in value.items())
            return comment + "".join(parts)
        if isinstance(value, list) and value and generator.random() < 0.7:
            return comment + "".join(f"{start}-{block(item, inner)}" for item in value)
        return f"{comment}{start if comment or not depth else ' '}{to_yaml(value)}"

    return "# a file" + block(data, 0) + newline


@moderate
@given(st.data())
def test_documents_are_written_as_they_are_meant(data: st.DataObject) -> None:
    """The writer above, by itself."""
    value = data.draw(
        st.recursive(
            st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=4),
            lambda inner: (
                st.lists(inner, max_size=3)
                | st.dictionaries(
                    st.text(max_size=3).filter(lambda k: k != "<<"), inner, max_size=3
                )
            ),
            max_leaves=6,
        ).filter(lambda v: v not in (None, ""))
    )
    text = write(value, random.Random(data.draw(st.integers(0, 99))))
    assert as_plain_data(read_document(DocumentText("a.yaml", text.encode()))) == value


Archive = dict[int, bytes]


class Converter:
    """Compiled programs of one table of a chain, spliced and not."""

    def __init__(self, chain: Chain, number: int) -> None:
        self.chain = chain
        self.number = number
        self.compiled: dict[tuple[int, int], tuple[Conversion, Conversion]] = {}

    def codec(self, position: int) -> Codec:
        return codec_for(table_at(self.chain, position, self.number), ZONES)

    def encode(self, position: int, record: dict[str, Any]) -> tuple[bytes, bytes]:
        codec = self.codec(position)
        return codec.encode_key(record), codec.encode(encode_prefix(position), record, NO_BLOBS)

    def convert(
        self, key: bytes, value: bytes, source: int, target: int, archive: Archive
    ) -> tuple[bytes, Archive]:
        """The record and what is archived beside it then, by the spliced program; the decoding
        program must give the same."""
        start, prefix = len(encode_prefix(source)), encode_prefix(target)
        found = []
        for program in self.programs(source, target):
            attachments = Attachments(NO_BLOBS.load, NO_BLOBS._make_id, archive)
            converted = program.convert(key, value, start, prefix, attachments)
            left = {n: raw for n, raw in archive.items() if n not in attachments.restored}
            found.append((converted, left | attachments.archived))
            if program.is_self_contained:
                assert left | attachments.archived == archive
                many = program.convert_rows([(key, value)] * 2, start, prefix)
                assert many == [converted] * 2
        assert found[0] == found[1]
        return found[0]

    def programs(self, source: int, target: int) -> tuple[Conversion, Conversion]:
        if (source, target) not in self.compiled:
            layouts = [
                Layout.of(table_at(self.chain, p, self.number), ZONES) for p in (source, target)
            ]
            plan = self.chain.conversion_plan(self.number, source, target)
            self.compiled[source, target] = (
                compile_conversion(*layouts, plan, zones=ZONES),
                compile_conversion(*layouts, plan, zones=ZONES, splice=False),
            )
        return self.compiled[source, target]

    def decode(self, position: int, key: bytes, value: bytes) -> dict[str, Any]:
        return held(self.codec(position).decode(key, value, len(encode_prefix(position)), NO_BLOBS))

    def archived(self, position: int) -> list[Field]:
        """The fields whose values lie beside a record there."""
        return [a.field for a in table_at(self.chain, position, self.number).archived]

    def encode_archive(self, position: int, archive: dict[int, Any]) -> Archive:
        types = {f.number: f.type.bind(ZONES) for f in self.archived(position)}
        return {n: encode_archived(types[n], value) for n, value in archive.items()}


def encode_archived(kind: Any, value: Any) -> bytes:
    if value is None:
        return b""
    if kind.may_be_blob:
        return encode_inline_or_blob(kind, value, "archived", NO_BLOBS)
    return bytes(kind.encode(value))


@st.composite
def archives_of(draw: st.DrawFn, fields: list[Field]) -> dict[int, Any]:
    """A value or null for some of the fields: the others have none, as a new record has none."""
    return {
        f.number: draw(st.none() | values_of(f.type) if f.optional else values_of(f.type))
        for f in fields
        if draw(st.integers(0, 3))
    }


def several_of(table: TableSchema, count: int) -> st.SearchStrategy[list[dict[str, Any]]]:
    """Records enough that a chain, which takes long to draw, gives many cases."""
    return st.lists(records_of(table), min_size=count, max_size=count)


def test_rule_18_conversions_are_what_the_operations_say() -> None:
    """For all pairs of positions: spliced equals decoded equals the oracle on dicts."""
    tried = 0

    @settings(unhurried, max_examples=cases(120))
    @given(chains(archives=True), st.data())
    def convert_all(chain: Chain, data: st.DataObject) -> None:
        nonlocal tried
        for number, positions in spans(chain):
            converter = Converter(chain, number)
            for source in positions:
                for record in data.draw(several_of(table_at(chain, source, number), 8)):
                    key, value = converter.encode(source, record)
                    kept = Kept(record, data.draw(archives_of(converter.archived(source))))
                    archive = converter.encode_archive(source, kept.archive)
                    for target in positions:
                        tried += 1
                        converted, left = converter.convert(key, value, source, target, archive)
                        there = convert_kept(chain, number, kept, source, target)
                        # By their bytes, since a NaN equals nothing.
                        assert converted == converter.encode(target, there.row)[1]
                        assert converter.decode(target, key, converted).keys() == there.row.keys()
                        known = {f.number for f in converter.archived(target)}
                        kept_there = {n: v for n, v in there.archive.items() if n in known}
                        assert {
                            n: raw for n, raw in left.items() if n in known
                        } == converter.encode_archive(target, kept_there)

    try_enough(convert_all, lambda: tried)


def test_rule_02_a_path_in_steps_is_the_path_at_once() -> None:
    """i → k equals i → j → k, up and down, what is archived beside the records carried along."""
    tried = 0

    @settings(unhurried, max_examples=cases(100))
    @given(chains(archives=True), st.data())
    def convert_in_steps(chain: Chain, data: st.DataObject) -> None:
        nonlocal tried
        for number, positions in spans(chain):
            converter = Converter(chain, number)
            drawn = {p: data.draw(several_of(table_at(chain, p, number), 60)) for p in positions}
            ways = list(itertools.combinations(positions, 3))
            for source, between, target in [*ways, *(way[::-1] for way in ways)]:
                for record in drawn[source]:
                    tried += 1
                    key, value = converter.encode(source, record)
                    kept = data.draw(archives_of(converter.archived(source)))
                    archive = converter.encode_archive(source, kept)
                    halfway, left = converter.convert(key, value, source, between, archive)
                    direct, attachments = converter.convert(key, value, source, target, archive)
                    stepped, kept_on = converter.convert(key, halfway, between, target, left)
                    assert stepped == direct
                    known = {f.number for f in converter.archived(target)}
                    assert {n: raw for n, raw in kept_on.items() if n in known} == {
                        n: raw for n, raw in attachments.items() if n in known
                    }

    try_enough(convert_in_steps, lambda: tried)


def test_rule_18_damaged_records_are_corrupt_before_or_after() -> None:
    """Programs raise nothing else, and what they copy unseen the decoder refuses or can write."""
    tried = 0

    @settings(unhurried, max_examples=cases(150))
    @given(chains(archives=True), st.data())
    def convert_damaged(chain: Chain, data: st.DataObject) -> None:
        nonlocal tried
        for number, positions in spans(chain):
            source, target = positions[0], positions[-1]
            converter = Converter(chain, number)
            before, after = converter.codec(source), converter.codec(target)
            for record in data.draw(several_of(table_at(chain, source, number), 30)):
                key, value = before.encode_key(record), before.encode(b"\x81", record, NO_BLOBS)
                damaged = value[:1] + damage(value[1:], data)
                cut = value[: data.draw(st.integers(1, len(value)))]
                for program in converter.programs(source, target):
                    tried += 1
                    if cut != value:  # also behind the last field that it needs
                        with pytest.raises(CorruptRecord):
                            program.convert(key, cut, 1, b"\x82", NO_BLOBS)
                    try:
                        converted = program.convert(key, damaged, 1, b"\x82", NO_BLOBS)
                        decoded = after.decode(key, converted, 1, NO_BLOBS)
                    except (CorruptRecord, BlobMissing):  # the damage made the mark of a blob
                        continue
                    assert after.encode(b"\x82", held(decoded), NO_BLOBS)

    try_enough(convert_damaged, lambda: tried)


@settings(unhurried, max_examples=cases(100))
@given(chains(archives=True), st.data())
def test_down_after_up_is_the_identity_where_nothing_is_lost(
    chain: Chain, data: st.DataObject
) -> None:
    """What is archived comes back exactly, too."""
    for number, positions in spans(chain):
        converter = Converter(chain, number)
        for source, target in itertools.combinations(positions, 2):
            if any(loses(m, number) for m in chain.migrations[source:target]):
                continue
            record = data.draw(records_of(table_at(chain, source, number)))
            key, value = converter.encode(source, record)
            there, archive = converter.convert(key, value, source, target, {})
            assert converter.convert(key, there, target, source, archive)[0] == value


def loses(migration: Migration, number: int) -> bool:
    """Whether an operation says so; a transform and a change of type that lie about it are drawn,
    and what had no archived value to be restored is archived then."""
    schema, numbers = migration.before, NumberAllocator(step=-1, migration=migration.number)
    for operation in migration.changes:
        table = schema.table_numbered(number)
        is_own = table is not None and getattr(operation, "table", table.name) == table.name
        if is_own and isinstance(operation, Transform | ChangeType):
            return True
        if table is not None and is_own and operation.lossy_fields(table):
            return True
        schema = operation.apply(schema, numbers)
    return False


@settings(unhurried, max_examples=cases(30))
@given(tables(kinds=[*SIMPLE_TYPES, List(String())]))
def test_any_table_can_be_created_by_a_document(table: TableSchema) -> None:
    """Names of Python's own and all: the document is the table's description, and no more."""
    fields = [
        {
            "name": f.name,
            **to_structure(TypeDefinition.describe(f.type)),
            "optional": f.optional,
        }
        for f in table.fields
    ]
    names = {f.number: f.name for f in table.fields}
    key = [names[number] for number in table.key]
    created = {"create_table": {"table": table.name, "key": key, "fields": fields}}
    text = document_of([created])
    source = DocumentText("0001_drawn.yaml", text.encode())
    parsed = parse_document(read_document(source), source, 1, "drawn")
    (made,) = resolve(parsed, Schema(), NumberAllocator()).after
    assert [(f.name, f.type, f.optional) for f in made.fields] == [
        (f.name, f.type, f.optional) for f in table.fields
    ]
    assert [f.name for f in made.key_fields] == key
