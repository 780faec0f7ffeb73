"""The catalog: what is stored and in force, who is at work, and the history of schemas."""

from zapdb.catalog.bootstrap import ensure_rows
from zapdb.catalog.tenants import DEFAULT_TENANT, DEFAULT_TENANT_NAME
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
