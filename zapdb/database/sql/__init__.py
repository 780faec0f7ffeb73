"""SQL over the current state: one SELECT at a time, by DuckDB over streams of Arrow batches.

What a statement names is what it reads, and of that the columns that it uses. All of its tables are
read as of one moment, and by the thread that asks. DuckDB runs in a process of its own for each
statement (`sandbox`), which can open nothing, is given records alone, and is killed when it takes
more than it may: inside of this process its limits would not hold.
"""

import os
import sys
from importlib.util import find_spec

from zapdb.errors import MissingExtra, UsageError

if not hasattr(os, "fork"):
    raise UsageError(
        "db.sql needs an operating system that can fork",
        platform=sys.platform,
        hint="query table.to_arrow() or query.to_arrow() with a DuckDB connection of your own",
    )
if find_spec("duckdb") is None:  # which is imported in other processes alone
    raise MissingExtra.named("sql", "duckdb")
try:
    import pyarrow  # noqa: F401
except ImportError as missing:
    raise MissingExtra.named("sql", "pyarrow") from missing

from zapdb.database.sql.allowance import Allowance
from zapdb.database.sql.relations import RELATIONS, Relation
from zapdb.database.sql.result import Result
from zapdb.database.sql.run import run_sql

__all__ = ["RELATIONS", "Allowance", "Relation", "Result", "run_sql"]
