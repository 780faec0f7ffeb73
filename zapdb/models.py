"""What modules import that `zapdb codegen models` wrote; see docs/guides/models.md."""

from zapdb.database.models import Model, Models, TableModel
from zapdb.database.typing_protocols import (
    AnyField,
    BytesLike,
    Field,
    FieldOf,
    ListLike,
    OrderedField,
    StringField,
    TypedPage,
    TypedQuery,
    TypedTable,
)

__all__ = [
    "AnyField",
    "BytesLike",
    "Field",
    "FieldOf",
    "ListLike",
    "Model",
    "Models",
    "OrderedField",
    "StringField",
    "TableModel",
    "TypedPage",
    "TypedQuery",
    "TypedTable",
]
