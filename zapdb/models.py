"""What modules import that `zapdb codegen models` wrote; see docs/guides/models.md."""

from zapdb.database.async_typing import AsyncFile, AsyncFileOpening, AsyncTypedTable
from zapdb.database.models import Model, Models, TableModel
from zapdb.database.typing_protocols import (
    AnyField,
    BytesLike,
    FieldOf,
    ListLike,
    TypedField,
    TypedOrderedField,
    TypedPage,
    TypedQuery,
    TypedStringField,
    TypedTable,
)

__all__ = [
    "AnyField",
    "AsyncFile",
    "AsyncFileOpening",
    "AsyncTypedTable",
    "BytesLike",
    "FieldOf",
    "ListLike",
    "Model",
    "Models",
    "TableModel",
    "TypedField",
    "TypedOrderedField",
    "TypedPage",
    "TypedQuery",
    "TypedStringField",
    "TypedTable",
]
