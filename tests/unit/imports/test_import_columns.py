"""Columns find their fields in a time that grows with their number, and not with its square."""

from __future__ import annotations

import pytest

from zapdb.errors import UsageError
from zapdb.imports import match_columns
from zapdb.limits import FIELDS_PER_TABLE_MAX
from zapdb.schema import Field, TableSchema
from zapdb.transfer.inference.file_inference import infer_arrow, infer_csv
from zapdb.values import Integer

COLUMNS = 40_000


class Counted(str):
    """A name that counts how often it is compared."""

    __slots__ = ()
    compared = 0

    def __eq__(self, other: object) -> bool:
        Counted.compared += 1
        return str.__eq__(self, other)

    __hash__ = str.__hash__


def table(fields: int) -> TableSchema:
    made = tuple(Field(n, f"c{n}", Integer()) for n in range(1, fields + 1))
    return TableSchema(1, "wide", (1,), made)


@pytest.mark.parametrize("mapped", [False, True])
def test_many_columns_are_each_looked_at_a_few_times(mapped: bool) -> None:
    names = [Counted(f"c{n}") for n in range(1, COLUMNS + 1)]
    mapping = dict.fromkeys(names[FIELDS_PER_TABLE_MAX:], "") if mapped else {}
    Counted.compared = 0
    if mapped:
        found = match_columns(table(FIELDS_PER_TABLE_MAX), names, mapping)
        assert sum(field is not None for field in found) == FIELDS_PER_TABLE_MAX
    else:
        with pytest.raises(UsageError, match="columns have no fields"):
            match_columns(table(FIELDS_PER_TABLE_MAX), names, mapping)
    assert Counted.compared < 20 * COLUMNS


def test_a_table_is_not_inferred_from_more_columns_than_it_may_have() -> None:
    names = [f"c{n}" for n in range(FIELDS_PER_TABLE_MAX)]
    assert len(infer_csv("wide", names[1:], [], None).fields) == FIELDS_PER_TABLE_MAX
    with pytest.raises(UsageError, match="more columns than a table may have fields"):
        infer_csv("wide", names, [], None)
    pyarrow = pytest.importorskip("pyarrow")
    with pytest.raises(UsageError, match="more columns than a table may have fields"):
        infer_arrow("wide", pyarrow.schema([(name, pyarrow.int8()) for name in names]))
