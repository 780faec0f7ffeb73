import itertools

from zapdb.records import Layout, Slot, decode_prefix, encode_prefix
from zapdb.schema import Field, Index, IndexComponent, TableSchema
from zapdb.values import Integer, String

TABLE = TableSchema(
    1,
    "people",
    (9, 2),
    (
        Field(9, "id", Integer()),
        Field(7, "name", String(), optional=True),
        Field(2, "town", String()),
        Field(3, "age", Integer(), optional=True),
        Field(5, "rank", Integer()),
    ),
)


def test_slots_lie_by_number_and_the_key_in_key_order() -> None:
    layout = Layout.of(TABLE)
    assert [slot.number for slot in layout.key] == [9, 2]
    assert [slot.number for slot in layout.slots] == [3, 5, 7]
    assert layout.slots[1] == Slot(5, Integer(), False)
    assert layout.slot(7) == Slot(7, String(), True)
    assert layout.slot(9) == Slot(9, Integer())
    assert layout.slot(8) is None


def test_presence_has_a_bit_for_each_optional_slot_by_number() -> None:
    layout = Layout.of(TABLE)
    assert (layout.bit(3), layout.bit(7)) == (0, 1)
    sizes = []
    for count in (0, 1, 8, 9, 16, 17):
        fields = tuple(Field(n, f"f{n}", Integer(), optional=True) for n in range(1, count + 1))
        table = TableSchema(1, "t", (99,), (Field(99, "id", Integer()), *fields))
        sizes.append(Layout.of(table).presence_size_bytes)
    assert sizes == [0, 1, 1, 2, 2, 3]


def test_rule_01_names_indexes_and_defaults_leave_the_layout_alone() -> None:
    renamed = TABLE.with_field(Field(7, "full_name", String(), optional=True, default="x"))
    indexed = renamed.with_indexes((Index(1, "by", (IndexComponent(7),)),))
    reordered = indexed.with_fields(indexed.fields[::-1])
    assert Layout.of(reordered) == Layout.of(TABLE)
    retyped = TABLE.with_field(Field(7, "name", Integer(), optional=True))
    assert Layout.of(retyped) != Layout.of(TABLE)
    required = TABLE.with_field(Field(7, "name", String()))
    assert Layout.of(required) != Layout.of(TABLE)


def test_rule_01_a_lower_revision_is_a_lower_prefix() -> None:
    prefixes = [encode_prefix(revision) for revision in (*range(1, 1000), 65535, 65536, 2**40)]
    assert all(left < right for left, right in itertools.pairwise(prefixes))
    # and stays lower with anything behind it
    assert all(left + b"\xff" * 9 < right for left, right in itertools.pairwise(prefixes))
    assert decode_prefix(encode_prefix(777) + b"rest", 0) == (777, 3)
