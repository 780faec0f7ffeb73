"""Records from elsewhere: rows of a source become values of fields, and values become records.

    source ─▶ SourceRow ─▶ batches, each one transaction with its checkpoint ─▶ ImportReport

Sources only read. `coercion` says what a value may look like, `columns` which field a column is,
`batches` how rows are written, `checkpoint` how far an import has come.
"""

from zapdb.database.imports.checkpoint import Checkpoint, forget_all
from zapdb.database.imports.coercion import Coerce, Coercion, make_coercer
from zapdb.database.imports.columns import ColumnMap, match_columns, normalize_name
from zapdb.database.imports.row import ImportMode, RowSource, SourceRow
from zapdb.database.imports.run import Importer, ImportReport, SkippedRow

__all__ = [
    "Checkpoint",
    "Coerce",
    "Coercion",
    "ColumnMap",
    "ImportMode",
    "ImportReport",
    "Importer",
    "RowSource",
    "SkippedRow",
    "SourceRow",
    "forget_all",
    "make_coercer",
    "match_columns",
    "normalize_name",
]
