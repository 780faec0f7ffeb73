import dataclasses
from decimal import Decimal as D
from typing import Any

import cbor2
import pytest

from zapdb.datasets import Collation
from zapdb.errors import CorruptCatalog, IncompatibleVersion
from zapdb.schema import (
    ArchivedField,
    Check,
    Field,
    ForeignKey,
    Index,
    IndexComponent,
    TableSchema,
    canonical_bytes,
    fingerprint,
    read_canonical_bytes,
)
from zapdb.values import Decimal, Integer, Json, Reference, String, Uuid

TABLE = TableSchema(
    7,
    "people",
    (4, 2),
    (
        Field(4, "id", Integer()),
        Field(2, "town", String()),
        Field(9, "balance", Decimal(2), default=D("0.00")),
        Field(5, "nick", String(), optional=True, default=None),
        Field(6, "token", Uuid(), generated="uuid"),
        Field(8, "extra", Json(), default={"b": [1, None], "a": 0.5}),
        Field(10, "boss", Reference("people", 7, (Integer(), String())), optional=True),
        Field(11, "home", Reference("towns", 3, (Integer(),))),
    ),
    (
        Index(3, "by_nick", (IndexComponent(5, Collation("de", "primary", True), True),)),
        Index(1, "by_balance", (IndexComponent(9), IndexComponent(4, descending=True))),
    ),
    (Check(5, "rich", "balance > 0"), Check(2, "named", "nick is not None")),
    (ForeignKey(10, "set_null"), ForeignKey(11, "restrict")),
    (ArchivedField(Field(3, "fax", String(), default="none"), 4),),
)


def replaced(table: TableSchema, number: int, **changes: Any) -> TableSchema:
    return table.with_field(dataclasses.replace(table.field_numbered(number), **changes))


def with_component(**changes: Any) -> TableSchema:
    index = TABLE.indexes[0]
    changed = dataclasses.replace(index.components[0], **changes)
    return TABLE.with_indexes((dataclasses.replace(index, components=(changed,)), TABLE.indexes[1]))


def renumbered(table: TableSchema, by: int) -> TableSchema:
    fields = tuple(dataclasses.replace(f, number=f.number + by) for f in table.fields)
    indexes = tuple(
        Index(
            i.number + 2 * by,
            i.name,
            tuple(dataclasses.replace(c, field=c.field + by) for c in i.components),
        )
        for i in table.indexes
    )
    key = tuple(number + by for number in table.key)
    checks = tuple(dataclasses.replace(c, number=c.number + by) for c in table.checks)
    keys = tuple(dataclasses.replace(k, field=k.field + by) for k in table.foreign_keys)
    return TableSchema(table.number + by, table.name, key, fields, indexes, checks, keys)


def test_a_snapshot_decodes_to_exactly_its_table() -> None:
    read = read_canonical_bytes(canonical_bytes(TABLE))
    assert read == TABLE
    assert canonical_bytes(read) == canonical_bytes(TABLE)
    assert [f.has_default for f in read.fields] == [
        *[False] * 2,
        True,
        True,
        False,
        True,
        *[False] * 2,
    ]


def test_rule_04_a_snapshot_holds_numbers_and_the_fingerprint_does_not() -> None:
    other = renumbered(TABLE, 100)
    assert canonical_bytes(other) != canonical_bytes(TABLE)
    assert fingerprint(other) == fingerprint(TABLE)


def test_rule_04_the_order_in_which_indexes_were_made_is_no_part_of_the_fingerprint() -> None:
    assert fingerprint(TABLE.with_indexes(TABLE.indexes[::-1])) == fingerprint(TABLE)
    turned = dataclasses.replace(
        TABLE, checks=TABLE.checks[::-1], foreign_keys=TABLE.foreign_keys[::-1]
    )
    assert fingerprint(turned) == fingerprint(TABLE)
    assert read_canonical_bytes(canonical_bytes(turned)) == turned


def test_rule_04_what_is_archived_is_no_part_of_the_fingerprint() -> None:
    without = dataclasses.replace(TABLE, archived=())
    assert fingerprint(without) == fingerprint(TABLE)
    assert canonical_bytes(without) != canonical_bytes(TABLE)


DIFFERENT = {
    "name of the table": dataclasses.replace(TABLE, name="persons"),
    "name of a field": replaced(TABLE, 9, name="credit"),
    "type of a field": replaced(TABLE, 6, type=Integer(), generated=None),
    "scale of a field": replaced(TABLE, 9, type=Decimal(3), default=D("0.000")),
    "optional": replaced(TABLE, 9, optional=True),
    "generated": replaced(TABLE, 6, generated=None),
    "a default": replaced(TABLE, 9, default=D("0.01")),
    "no default": replaced(TABLE, 4, default=0),
    "a null default": replaced(TABLE, 5, default=""),
    "a JSON default": replaced(TABLE, 8, default={"a": 0.5}),
    "order of the fields": TABLE.with_fields(TABLE.fields[::-1]),
    "a field": TABLE.with_fields((*TABLE.fields, Field(20, "more", Integer()))),
    "the key": dataclasses.replace(TABLE, key=(4,)),
    "order of the key": dataclasses.replace(TABLE, key=(2, 4)),
    "an index": TABLE.with_indexes(TABLE.indexes[:1]),
    "name of an index": TABLE.with_indexes(
        (dataclasses.replace(TABLE.indexes[0], name="by_nickname"), TABLE.indexes[1])
    ),
    "field of an index": with_component(field=2),
    "direction of an index": with_component(descending=False),
    "no collation": with_component(collation=None),
    "locale": with_component(collation=Collation("sv", "primary", True)),
    "strength": with_component(collation=Collation("de", "secondary", True)),
    "numeric": with_component(collation=Collation("de", "primary", False)),
    "order of an index": TABLE.with_indexes(
        (
            TABLE.indexes[0],
            dataclasses.replace(TABLE.indexes[1], components=TABLE.indexes[1].components[::-1]),
        )
    ),
    "unique": TABLE.with_indexes(
        (dataclasses.replace(TABLE.indexes[0], unique=True), TABLE.indexes[1])
    ),
    "a check": dataclasses.replace(TABLE, checks=TABLE.checks[:1]),
    "name of a check": dataclasses.replace(
        TABLE, checks=(Check(5, "wealthy", "balance > 0"), TABLE.checks[1])
    ),
    "expression of a check": dataclasses.replace(
        TABLE, checks=(Check(5, "rich", "balance > 1"), TABLE.checks[1])
    ),
    "a foreign key": dataclasses.replace(TABLE, foreign_keys=TABLE.foreign_keys[:1]),
    "field of a foreign key": dataclasses.replace(
        TABLE, foreign_keys=(ForeignKey(4, "set_null"), TABLE.foreign_keys[1])
    ),
    "what happens on delete": dataclasses.replace(
        TABLE, foreign_keys=(ForeignKey(10, "cascade"), TABLE.foreign_keys[1])
    ),
}


@pytest.mark.parametrize("table", DIFFERENT.values(), ids=DIFFERENT.keys())
def test_rule_04_the_fingerprint_covers_all_else(table: TableSchema) -> None:
    assert fingerprint(table) != fingerprint(TABLE)
    assert read_canonical_bytes(canonical_bytes(table)) == table


def test_rule_04_a_fingerprint_is_unsigned_64_bits_and_stays_what_it_is() -> None:
    small = TableSchema(1, "people", (1,), (Field(1, "id", Integer()), Field(2, "name", String())))
    assert canonical_bytes(small) == bytes.fromhex(
        "89 01 01 6670656f706c65 8101"
        "82 85 01 01 626964 67696e7465676572 00 85 02 02 646e616d65 66737472696e67 00"
        "80 80 80 80"
    )
    assert 0 <= fingerprint(small) < 2**64
    assert fingerprint(small) == 0x21501DAFA07D755E


def test_the_bytes_of_all_that_a_snapshot_may_hold_stay_what_they_are() -> None:
    archived = Field(2, "fax", String(), optional=True, cell=9)
    table = TableSchema(
        1,
        "people",
        (1,),
        (Field(1, "id", Integer()),),
        (Index(1, "by_id", (IndexComponent(1),), unique=True),),
        (Check(3, "c", "id > 0"),),
        (ForeignKey(1, "cascade"),),
        (ArchivedField(archived, 7),),
    )
    assert canonical_bytes(table) == bytes.fromhex(
        "89 01 01 6670656f706c65 8101 81 85 01 01 626964 67696e7465676572 00"
        "81 84 01 6562795f6964 01 81 82 01 00"
        "81 83 03 6163 66 6964203e2030  81 82 01 6763617363616465"
        "81 82 85 02 09 63666178 66737472696e67 01 07"
    )
    assert fingerprint(table) == 0x405138D1D50A705B


def test_a_default_is_one_value_however_it_was_written() -> None:
    kind = Decimal(2)
    written = [kind.from_document(plain, "p") for plain in ("5", "5.0", "5.00", 5)]
    tables = [replaced(TABLE, 9, default=value) for value in written]
    assert len(set(map(fingerprint, tables))) == 1


def test_bytes_that_snapshot_did_not_write_are_corrupt() -> None:
    data = canonical_bytes(TABLE)
    content = cbor2.loads(data)

    def with_part(at: int, part: Any) -> bytes:
        return cbor2.dumps([*content[:at], part, *content[at + 1 :]])

    broken = [
        b"",
        data[:-1],
        data + b"\x00",
        cbor2.dumps(content[:-1]),
        cbor2.dumps(5),
        cbor2.dumps({}),
        cbor2.dumps("people"),
        b"\x81" * 1_000,
        b"\x9f" + data[1:] + b"\xff",  # the same list with an indefinite length
        *(cbor2.dumps([*content[:at], 5, *content[at + 1 :]]) for at in range(3, len(content))),
        with_part(5, [[1, "i", 0, [[9, 2]]]]),  # collated, without a locale
        with_part(5, [[1, "i", 2, [[9, 0]]]]),  # a flag that is none
        with_part(4, [[1, "id", "Integer", 0]]),
        with_part(4, [[1, "id", ["decimal", 99], 0]]),
        with_part(4, [[1, "id", ["decimal"], 0]]),
        with_part(4, [[1, "id", 5, 0]]),
        with_part(4, [[1, "id", "integer", 4, "five"]]),
        with_part(4, [[1, "id", "integer", 4]]),
        with_part(4, [[1, "id", "integer", "x"]]),
        with_part(6, [[1, "rich"]]),
        with_part(7, [[1, "restrict", 2]]),
        with_part(8, [[[1, "fax", "string", 0]]]),
    ]
    for damaged in broken:
        with pytest.raises(CorruptCatalog):
            read_canonical_bytes(damaged)
    for at in range(len(data)):
        for bit in range(8):
            flipped = bytearray(data)
            flipped[at] ^= 1 << bit
            try:
                read = read_canonical_bytes(bytes(flipped))
            except (CorruptCatalog, IncompatibleVersion):
                continue
            assert canonical_bytes(read) == flipped
