"""JSON as text in Arrow: what the fast way writes is what `json` writes."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from zapdb.records.arrow.columns import (
    string_columns,
)

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(VALUES)
def test_the_text_is_that_of_json(value: object) -> None:
    wanted = json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=True)
    assert string_columns._to_json(value) == wanted
