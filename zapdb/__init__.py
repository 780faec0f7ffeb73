"""zapdb: migration-first schemas and record storage for Python applications."""

from zapdb.database import Database, open
from zapdb.errors import ZapdbError
from zapdb.records import Record, asdict, replace, to_json
from zapdb.release import __version__

__all__ = [
    "Database",
    "Record",
    "ZapdbError",
    "__version__",
    "asdict",
    "open",
    "replace",
    "to_json",
]
