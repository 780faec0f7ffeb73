import copy
import pickle

import pytest

from zapdb.datasets import Collation, TimeZones
from zapdb.schema import NO_DEFAULT, Field, Index, IndexComponent, Schema, TableSchema
from zapdb.schema.model import Field as ModelField
from zapdb.values import Integer, String, ZonedTimestamp

ID = Field(4, "id", Integer())
NAME = Field(2, "name", String(), optional=True)
AGE = Field(3, "age", Integer(), default=None, optional=True)
BY_NAME = Index(1, "by_name", (IndexComponent(2, Collation("und")), IndexComponent(3)))
TABLE = TableSchema(7, "people", (4,), (ID, NAME, AGE), (BY_NAME,))


def test_value_fields_are_all_but_the_key_by_number() -> None:
    assert TABLE.key_fields == (ID,)
    assert TABLE.value_fields == (NAME, AGE)
    reordered = TABLE.with_fields((AGE, NAME, ID))
    assert reordered.value_fields == (NAME, AGE)


def test_fields_and_indexes_are_found_by_name_number_and_use() -> None:
    assert TABLE.field_named("age") is AGE
    assert TABLE.field_named("nobody") is None
    assert TABLE.field_numbered(2) is NAME
    assert TABLE.index_named("by_name") is BY_NAME
    assert TABLE.index_named("by_age") is None
    assert TABLE.indexes_on(3) == (BY_NAME,)
    assert TABLE.indexes_on(4) == ()


def test_an_index_depends_on_collations_and_on_time_zones() -> None:
    assert TABLE.datasets_of(BY_NAME) == (Collation("und"),)
    assert TABLE.datasets_of(Index(9, "by_age", (IndexComponent(4),))) == ()
    met, left = Field(8, "met", ZonedTimestamp()), Field(9, "left", ZonedTimestamp())
    table = TABLE.with_fields((*TABLE.fields, met, left))
    both = Index(9, "by_met", (IndexComponent(8), IndexComponent(9)))
    assert table.datasets_of(both) == (TimeZones(),)
    mixed = Index(9, "mixed", (IndexComponent(8), *BY_NAME.components, *BY_NAME.components))
    assert table.datasets_of(mixed) == (Collation("und"), TimeZones())


def test_with_methods_leave_the_original_alone() -> None:
    renamed = TABLE.with_field(Field(2, "full_name", String()))
    assert [f.name for f in renamed.fields] == ["id", "full_name", "age"]
    assert [f.name for f in TABLE.fields] == ["id", "name", "age"]
    assert TABLE.with_indexes(()).indexes == ()
    with pytest.raises(AttributeError):
        TABLE.name = "persons"


def test_a_schema_replaces_tables_by_number_and_adds_at_the_end() -> None:
    other = TableSchema(8, "towns", (4,), (ID,))
    schema = Schema((TABLE,)).with_table(other)
    assert [t.name for t in schema] == ["people", "towns"]
    renamed = schema.with_table(TableSchema(7, "persons", (4,), (ID,)))
    assert [t.name for t in renamed] == ["persons", "towns"]
    assert schema.table_named("people") is TABLE
    assert schema.table_named("persons") is None
    assert schema.table_numbered(8) is other
    assert schema.table_numbered(9) is None
    assert [t.name for t in renamed.without_table(7)] == ["towns"]


def test_null_is_a_default_and_its_absence_survives_copies() -> None:
    assert AGE.has_default
    assert not NAME.has_default
    for kept in (copy.deepcopy(NAME), pickle.loads(pickle.dumps(NAME))):
        assert type(kept) is ModelField
        assert kept == NAME
        assert kept.default is NO_DEFAULT
    assert repr(NO_DEFAULT) == "NO_DEFAULT"
