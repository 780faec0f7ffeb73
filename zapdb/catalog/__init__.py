"""The catalog: zapdb's own typed rows and their log, tenants, settings, and the schema history."""

from zapdb.catalog.tenants import DEFAULT_TENANT, DEFAULT_TENANT_NAME

__all__ = ["DEFAULT_TENANT", "DEFAULT_TENANT_NAME"]
