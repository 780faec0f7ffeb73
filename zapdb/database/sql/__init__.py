"""SQL over the current state: one SELECT at a time, by DuckDB over streams of Arrow batches.

What a statement names is what it reads, and of that the columns that it uses. All of its tables are
read as of one moment, and by the thread that asks: DuckDB is told to have no others. Nothing is
written, and no file, network or extension is within its reach.
"""

from zapdb.errors import MissingExtra

try:  # before the modules that use it
    import duckdb  # noqa: F401
except ImportError as missing:
    raise MissingExtra.named("sql", "duckdb") from missing

from zapdb.database.sql.relations import RELATIONS, Relation
from zapdb.database.sql.result import Result
from zapdb.database.sql.run import run_sql

__all__ = ["RELATIONS", "Relation", "Result", "run_sql"]
