"""The order of a file's rows: short keys are compared as numbers, which must not be seen."""

from __future__ import annotations

import pyarrow
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import compute

from zapdb.past.files.file_columns import FROM, KEY, SORTED_BY, find_order, pack_short

SHORT = st.lists(st.sampled_from([0, 1, 127, 255]), max_size=7).map(bytes)
LONG = st.binary(min_size=8, max_size=9)


@pytest.mark.parametrize("keys", [SHORT, SHORT | LONG])
@settings(deadline=None, max_examples=200)
@given(data=st.data())
def test_rows_are_in_the_order_of_keys_and_moments(
    keys: st.SearchStrategy[bytes], data: st.DataObject
) -> None:
    made = data.draw(st.lists(st.tuples(keys, st.integers(-3, 3)), unique=True, max_size=30))
    columns = {KEY: [key for key, _ in made], FROM: [moment for _, moment in made]}
    types = [(KEY, pyarrow.binary()), (FROM, pyarrow.int64())]
    rows = pyarrow.table(columns, schema=pyarrow.schema(types))
    rows = rows.slice(len(made) // 3)  # whose buffers begin elsewhere
    wanted = compute.sort_indices(rows, sort_keys=list(SORTED_BY)).to_pylist()
    found = find_order(rows)
    assert (list(range(len(rows))) if found is None else found.to_pylist()) == wanted
    is_short = len(rows) > 0 and all(len(key.as_py()) < 8 for key in rows.column(KEY))
    assert (pack_short(rows.column(KEY).combine_chunks()) is not None) == is_short
