"""zapdb: migration-first schemas and record storage for Python applications."""

from zapdb.database import Database, open
from zapdb.errors import ZapdbError

__all__ = ["Database", "ZapdbError", "__version__", "open"]

__version__ = "0.1.0"
