"""Records from elsewhere: rows of a source become values of fields, and values become records.

    source ─▶ SourceRow ─▶ batches, each one transaction with its checkpoint ─▶ ImportReport

Sources only read. `coercion` says what a value may look like, `columns` which field a column is,
`batches` how rows are written, `checkpoint` how far an import has come.
"""

from zapdb.imports.checkpoint import Checkpoint, forget_all
from zapdb.imports.coercion import Coerce, Coercion, make_coercer
from zapdb.imports.column_matching import ColumnMap, match_columns, normalize_name
from zapdb.imports.importer import Importer, ImportReport, SkippedRow
from zapdb.imports.row import ImportMode, RowSource, SourceRow

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
