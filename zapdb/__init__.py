"""zapdb: migration-first schemas and record storage for Python applications."""

from zapdb.database import Database, open
from zapdb.errors import ZapdbError
from zapdb.records import replace
from zapdb.release import __version__

__all__ = ["Database", "ZapdbError", "__version__", "open", "replace"]
