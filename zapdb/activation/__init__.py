"""The active schema of a tenant, and its changes: activating and rolling back migrations."""

from zapdb.activation.descriptors import IndexDescriptor
from zapdb.activation.tenant_catalog import TableDescriptor, TenantCatalog, load_tenant_catalog

__all__ = ["IndexDescriptor", "TableDescriptor", "TenantCatalog", "load_tenant_catalog"]
