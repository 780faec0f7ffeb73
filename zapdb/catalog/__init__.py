"""The catalog: what is stored and in force, who is at work, and the history of schemas."""

from zapdb.catalog.bootstrap import DEFAULT_TENANT, DEFAULT_TENANT_NAME, ensure_rows
from zapdb.catalog.view import IndexState, TableState, View, load_view

__all__ = [
    "DEFAULT_TENANT",
    "DEFAULT_TENANT_NAME",
    "IndexState",
    "TableState",
    "View",
    "ensure_rows",
    "load_view",
]
