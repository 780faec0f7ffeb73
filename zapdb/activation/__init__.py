"""What is active for a tenant, and how that changes: activating and rolling back migrations."""

from zapdb.activation.view import IndexState, TableState, View, load_view

__all__ = ["IndexState", "TableState", "View", "load_view"]
