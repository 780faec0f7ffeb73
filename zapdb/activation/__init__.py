"""What is active for a tenant, and how that changes: activating and rolling back migrations."""

from zapdb.activation.descriptors import IndexDescriptor
from zapdb.activation.view import TableState, View, load_view

__all__ = ["IndexDescriptor", "TableState", "View", "load_view"]
