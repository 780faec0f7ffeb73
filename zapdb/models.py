"""What modules import that `zapdb codegen models` wrote; see docs/guides/models.md."""

from zapdb.aio import AsyncFile, AsyncTable, OpeningBlock
from zapdb.database.table import Table
from zapdb.tables.queries.typed_fields import (
    AnyField,
    BytesLike,
    FieldOf,
    ListLike,
    TypedField,
    TypedOrderedField,
    TypedStringField,
)
from zapdb.typed.model_classes import Model, Models, TableModel

__all__ = [
    "AnyField",
    "AsyncFile",
    "AsyncTable",
    "BytesLike",
    "FieldOf",
    "ListLike",
    "Model",
    "Models",
    "OpeningBlock",
    "Table",
    "TableModel",
    "TypedField",
    "TypedOrderedField",
    "TypedStringField",
]
