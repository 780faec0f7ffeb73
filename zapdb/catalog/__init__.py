"""The catalog: zapdb's own typed rows and their log, tenants, settings, and the schema history.

Only its modules need a database: what the command line says of tenants does not load them.
"""

from typing import Final

DEFAULT_TENANT: Final = 1
DEFAULT_TENANT_NAME: Final = "default"
