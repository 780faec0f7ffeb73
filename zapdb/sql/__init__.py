"""SQL over the current state: one SELECT at a time, by DuckDB over streams of Arrow batches.

A statement reads only the tables that it names, and of these only the columns that it uses. All its
tables are read as of one moment, by the calling thread. DuckDB runs in a separate process for each
statement (`sandbox`). That process can open nothing, receives only records, and is killed if it
exceeds its limits, which could not be enforced inside this process.
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
    import pyarrow  # noqa: F401 - is it installed?
except ImportError as missing:
    raise MissingExtra.named("sql", "pyarrow") from missing

from zapdb.sql.relations import RELATIONS, Relation
from zapdb.sql.result import Result
from zapdb.sql.sandboxed_statement import StatementLimits
from zapdb.sql.statement_run import run_sql

__all__ = ["RELATIONS", "Relation", "Result", "StatementLimits", "run_sql"]
