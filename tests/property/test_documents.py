"""Strict YAML against PyYAML's own reading of it."""

from __future__ import annotations

from typing import Any

import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.forms import cases
from tests.strategies import to_yaml
from zapdb.errors import InvalidMigration
from zapdb.migrations.document import DocumentText, as_plain_data, read_document

WORDS = {"y", "n", "yes", "no", "on", "off", "true", "false", "null"}
RESOLVER = yaml.SafeLoader("")

scalars = st.one_of(
    st.text(alphabet="0123456789_.:+-eExXoObBfF", min_size=1, max_size=10),
    st.from_regex(r"[-+]?(0[box]?)?[0-9a-f_]{1,4}(\.[0-9_]*)?(e[-+]?[0-9]+)?", fullmatch=True),
    st.from_regex(r"[-+]?[0-9_]{1,4}(:[0-9]{1,2}){1,2}(\.[0-9_]*)?", fullmatch=True),
    st.from_regex(r"[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}([Tt ][0-9:.+-]*Z?)?", fullmatch=True),
    st.sampled_from(
        ["y", "no", "On", "TRUE", "~", "Null", ".inf", "-.INF", ".nan", "null", "true"]
    ),
)


def read(text: str) -> Any:
    return as_plain_data(read_document(DocumentText("a.yaml", text.encode())))


@settings(deadline=None, max_examples=cases(3_000))
@given(scalars)
def test_a_plain_scalar_means_what_yaml_1_1_says_or_is_refused(scalar: str) -> None:
    """PyYAML's tag is the oracle: nothing is text here and something else there."""
    try:
        root = yaml.compose(f"- {scalar}", Loader=yaml.BaseLoader)
        (node,) = root.value
        assert isinstance(node, yaml.ScalarNode)
        assert node.value == scalar
    except (yaml.YAMLError, AssertionError):
        return  # no plain scalar
    tag = RESOLVER.resolve(yaml.ScalarNode, scalar, (True, False)).rpartition(":")[2]
    try:
        (value,) = read(f"- {scalar}")
    except InvalidMigration:
        assert not scalar.isalpha() or scalar.lower() in WORDS
        return
    kinds = {"str": str, "int": int, "bool": bool, "null": type(None), "merge": str, "value": str}
    assert type(value) is kinds[tag]
    if tag == "int":
        assert str(value) == scalar


@settings(deadline=None, max_examples=cases(2_000))
@given(
    st.binary(max_size=60)
    | st.text(alphabet="ab:-[]{}&*!#|>'\"\n\t ,?01<", max_size=50).map(str.encode)
)
def test_any_bytes_are_a_document_or_violations_with_a_place(raw: bytes) -> None:
    try:
        read_document(DocumentText("a.yaml", raw))
    except InvalidMigration as error:
        (violation,) = error.violations
        lines = raw.decode(errors="replace").splitlines() or [""]
        assert 1 <= violation.location.line <= len(lines) + 1
        assert violation.location.column >= 1


plains = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**30), 10**30) | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(max_size=4).filter(lambda key: key != "<<"), inner, max_size=3)
    ),
    max_leaves=8,
)


@settings(deadline=None, max_examples=cases(2_500))
@given(plains.filter(lambda value: value not in (None, "")))
def test_quoted_data_is_read_as_it_was_written(value: Any) -> None:
    assert read(to_yaml(value)) == value
