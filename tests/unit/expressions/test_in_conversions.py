"""Expressions inside conversion programs: with the wanted type, beside the code of the codecs."""

from __future__ import annotations

from typing import Any

from tests.blobs import NO_BLOBS
from zapdb.expressions import Type, check_assignable, parse_expression
from zapdb.records import (
    Computed,
    ConversionPlan,
    Derivation,
    Layout,
    SourceField,
    codec_for,
    compile_conversion,
)
from zapdb.schema import Field, TableSchema
from zapdb.values import Decimal, Enum, Float, Integer, String, ValueType, asdict

STATE = Enum("state", 1, ((3, "open"), (1, "done")))
SOURCE = TableSchema(
    1,
    "jobs",
    (1,),
    (
        Field(1, "id", Integer()),
        Field(2, "s", String()),
        Field(3, "x", Float()),
        Field(4, "n", Integer()),
        Field(5, "d", Decimal(2)),
        Field(6, "state", STATE),
    ),
)
TYPES = {f.name: Type(f.type, f.optional) for f in SOURCE.fields}
INPUTS: dict[str, Derivation] = {f.name: SourceField(f.number) for f in SOURCE.fields}


def convert(record: dict[str, Any], *made: tuple[str, ValueType, bool]) -> dict[str, Any]:
    """What each expression gives as a new field of its type, all in one program."""
    derivations: dict[int, Derivation] = {f.number: SourceField(f.number) for f in SOURCE.fields}
    fields = list(SOURCE.fields)
    for number, (text, kind, optional) in enumerate(made, 10):
        tree, wanted = parse_expression(text), Type(kind, optional)
        check_assignable(tree, TYPES, wanted)
        derivations[number] = Computed(tree, INPUTS, TYPES, wanted)
        fields.append(Field(number, f"f{number}", kind, optional))
    target = SOURCE.with_fields(tuple(fields))
    program = compile_conversion(Layout.of(SOURCE), Layout.of(target), ConversionPlan(derivations))
    codec = codec_for(SOURCE)
    key, value = codec.encode_key(record), codec.encode(b"\x81", record, NO_BLOBS)
    found = asdict(
        codec_for(target).decode(
            key, program.convert(key, value, 1, b"\x82", NO_BLOBS), 1, NO_BLOBS
        )
    )
    assert {name: found[name] for name in record} == record
    return found


RECORD: dict[str, Any] = {
    "id": 7,
    "s": "done,-2.5",
    "x": 1.5,
    "n": -12,
    "d": Decimal(2).check(3, "d"),
    "state": "open",
}


def test_members_are_stored_as_members_of_the_wanted_enum() -> None:
    found = convert(
        RECORD,
        ("member(before(s, ','), else='open')", STATE, False),
        ("'done' if state == 'open' else member(s, else=None)", STATE, True),
        ("member(s, else=None)", STATE, True),
        ("'open'", STATE, False),
        ("'open'", String(), False),
    )
    assert [found[f"f{number}"] for number in range(10, 15)] == [
        *("done", "done", None, "open", "open")
    ]


def test_functions_named_like_types_do_not_hide_what_codecs_use() -> None:
    found = convert(
        RECORD,
        ("float(after(s, ','), else=x) * x", Float(), False),
        ("float(n, else=x) + x - x", Float(), False),
        ("integer(text(n), else=0) * abs(n) - min(n, 3) + length(s)", Integer(), False),
        ("decimal(text(n), 2, else=0) * n + max(d, 0)", Decimal(2), False),
    )
    assert found["f10"] == -3.75
    assert found["f11"] == -12.0
    assert found["f12"] == -144 + 12 + 9
    assert str(found["f13"]) == "147.00"
