"""Arrow's views as the types that they are views of.

polars and other programs write texts and bytes as views, which few functions of Arrow take. The
values are the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow
from pyarrow import types


def without_views(schema: Any, batches: Iterator[Any]) -> tuple[Any, Iterator[Any]]:
    """The schema and the record batches, with other columns where these are views or hold some."""
    plain = pyarrow.schema([_plain_field(field) for field in schema])
    if plain.types == schema.types:
        return schema, batches
    return plain, (batch.cast(plain) for batch in batches)


def _plain_field(field: Any) -> Any:
    return field.with_type(_plain_type(field.type))


def _plain_type(kind: Any) -> Any:
    if types.is_string_view(kind):
        return pyarrow.large_string()
    if types.is_binary_view(kind):
        return pyarrow.large_binary()
    if types.is_dictionary(kind):
        return pyarrow.dictionary(kind.index_type, _plain_type(kind.value_type), kind.ordered)
    if types.is_struct(kind):
        return pyarrow.struct([_plain_field(kind.field(at)) for at in range(kind.num_fields)])
    if types.is_large_list(kind):
        return pyarrow.large_list(_plain_field(kind.value_field))
    if types.is_list(kind):
        return pyarrow.list_(_plain_field(kind.value_field))
    return kind
