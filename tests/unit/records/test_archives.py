"""Rule 19: what conversions leave beside a record, and take back."""

from __future__ import annotations

from typing import Any

import pytest

from tests.blobs import MemoryBlobs
from zapdb.expressions import Type, parse_expression
from zapdb.records import (
    Archives,
    Attachments,
    Computed,
    Constant,
    Conversion,
    ConversionPlan,
    Derivation,
    Layout,
    Restored,
    SourceField,
    codec_for,
    compile_conversion,
    compose,
    compose_archives,
    held,
)
from zapdb.records.layout import Slot
from zapdb.schema import Field, TableSchema
from zapdb.values import Blob, Integer, Json, String

BEFORE = TableSchema(
    1,
    "people",
    (1,),
    (
        Field(1, "id", Integer()),
        Field(2, "name", String()),
        Field(3, "fax", String(), optional=True),
        Field(4, "extra", Json()),
    ),
)
AFTER = BEFORE.with_fields(tuple(f for f in BEFORE.fields if f.name in ("id", "name")))
FAX, EXTRA = (slot for slot in Layout.of(BEFORE).slots if slot.number in (3, 4))
KEEP: dict[int, Derivation] = {1: SourceField(1), 2: SourceField(2)}
DROP: Archives = {FAX: SourceField(3), EXTRA: SourceField(4)}
RESTORE: dict[int, Derivation] = {
    **KEEP,
    3: Restored(FAX, Constant("unknown")),
    4: Restored(EXTRA, Constant({})),
}
ADA: dict[str, Any] = {"id": 1, "name": "Ada", "fax": "12", "extra": [None]}
LONG = "x" * 5_000


@pytest.fixture(params=[True, False], ids=["spliced", "decoded"])
def splice(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


def program(splice: bool, back: bool = False) -> Conversion:
    if back:
        return compile_conversion(
            Layout.of(AFTER), Layout.of(BEFORE), ConversionPlan(RESTORE), splice=splice
        )
    return compile_conversion(
        Layout.of(BEFORE), Layout.of(AFTER), ConversionPlan(KEEP, DROP), splice=splice
    )


def drop(record: dict[str, Any], splice: bool, blobs: MemoryBlobs) -> tuple[bytes, Attachments]:
    codec, attachments = codec_for(BEFORE), blobs.attachments()
    value = codec.encode(b"\x81", record, attachments)
    blobs.saved |= attachments.blobs
    attachments = blobs.attachments()
    return program(splice).convert(
        codec.encode_key(record), value, 1, b"\x82", attachments
    ), attachments


def restore(value: bytes, archive: dict[int, bytes], splice: bool, blobs: MemoryBlobs) -> Any:
    attachments = Attachments(blobs.load, lambda: bytes(16), archive)
    key = codec_for(AFTER).encode_key(ADA)
    back = program(splice, back=True).convert(key, value, 1, b"\x83", attachments)
    return codec_for(BEFORE).decode(key, back, 1, attachments), attachments


@pytest.mark.parametrize("fax", ["12", None, LONG])
@pytest.mark.parametrize("extra", [[None], None, {"a": 1}])
def test_rule_19_an_archived_drop_is_taken_back_exactly(
    splice: bool, fax: str | None, extra: Any
) -> None:
    record, blobs = ADA | {"fax": fax, "extra": extra}, MemoryBlobs()
    value, attachments = drop(record, splice, blobs)
    assert value == codec_for(AFTER).encode(b"\x82", {"id": 1, "name": "Ada"}, attachments)
    assert set(attachments.archived) == {3, 4}
    assert (attachments.archived[3] == b"") == (fax is None)  # a null is archived, too
    found, restored = restore(value, attachments.archived, splice, blobs)
    assert held(found)["extra"] == extra
    assert found.fax == fax
    assert restored.restored == {3, 4}


def test_rule_19_a_blob_moves_to_the_archive_and_back_without_being_loaded(splice: bool) -> None:
    blobs = MemoryBlobs()
    value, attachments = drop(ADA | {"fax": LONG}, splice, blobs)
    assert attachments.blobs == {}
    (made,) = blobs.saved
    assert attachments.archived[3] == Blob(made, len(LONG), String()).encode()
    blobs.saved.clear()  # loading it now would fail
    found, restored = restore(value, attachments.archived, splice, blobs)
    assert held(found)["fax"] == Blob(made, len(LONG), String())
    assert restored.blobs == {}


def test_rule_19_without_an_archive_the_declared_value_is_used(splice: bool) -> None:
    value, _ = drop(ADA, splice, MemoryBlobs())
    found, attachments = restore(value, {}, splice, MemoryBlobs())
    assert (found.fax, found.extra) == ("unknown", {})
    assert attachments.restored == set()


def test_rule_19_computed_values_are_archived_by_the_slot_that_was_dropped(splice: bool) -> None:
    """A field that a path makes and drops again is archived as it was made."""
    made = Slot(9, String())
    types = {"name": Type(String())}
    loud = Computed(
        parse_expression("upper(name)"), {"name": SourceField(2)}, types, Type(String())
    )
    archives = compose_archives({**KEEP, 9: loud}, {}, KEEP, {made: SourceField(9)})
    assert archives == {made: loud}
    program = compile_conversion(
        Layout.of(AFTER), Layout.of(AFTER), ConversionPlan(KEEP, archives), splice=splice
    )
    codec, attachments = codec_for(AFTER), MemoryBlobs().attachments()
    record = {"id": 1, "name": "Ada"}
    value = codec.encode(b"\x81", record, attachments)
    assert program.convert(codec.encode_key(record), value, 1, b"\x81", attachments) == value
    assert attachments.archived == {9: bytes.fromhex("83414441")}
    assert not program.is_self_contained


def test_rule_02_what_is_archived_and_taken_back_never_leaves_the_record() -> None:
    both = compose(KEEP, RESTORE, DROP)
    assert both == {1: SourceField(1), 2: SourceField(2), 3: SourceField(3), 4: SourceField(4)}
    assert compose_archives(KEEP, DROP, RESTORE, {}) == {}
    other: Archives = {Slot(7, Integer()): SourceField(2)}
    assert compose_archives(KEEP, DROP, KEEP, other) == {**DROP, **other}


def test_an_expression_reads_a_restored_value_and_its_blob(splice: bool) -> None:
    text = Type(String(), optional=True)
    expression = parse_expression("length(coalesce(fax, ''))")
    length = Computed(expression, {"fax": RESTORE[3]}, {"fax": text}, Type(Integer()))
    target = AFTER.with_fields((*AFTER.fields, Field(8, "size", Integer())))
    program = compile_conversion(
        Layout.of(AFTER), Layout.of(target), ConversionPlan({**KEEP, 8: length}), splice=splice
    )
    blobs = MemoryBlobs()
    blobs.saved[b"i" * 16] = LONG.encode()
    codec = codec_for(AFTER)
    value = codec.encode(b"\x81", {"id": 1, "name": "Ada"}, blobs.attachments())
    for archived, size in (
        (Blob(b"i" * 16, len(LONG), String()).encode(), 5_000),
        (b"\x82ab", 2),
        (b"", 0),
        (None, 7),
    ):
        archive = {} if archived is None else {3: archived}
        attachments = Attachments(blobs.load, lambda: bytes(16), archive)
        converted = program.convert(codec.encode_key(ADA), value, 1, b"\x82", attachments)
        assert (
            codec_for(target).decode(codec.encode_key(ADA), converted, 1, attachments).size == size
        )
