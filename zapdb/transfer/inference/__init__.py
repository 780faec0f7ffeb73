"""Databases of others: what their tables would be here, and the way of their rows.

    source ─▶ reflected tables ─▶ Inference ─▶ migration 1, for review
                                      │
                                      ╰──────▶ rows of each table, referenced ones first

What has no equivalent is a note: a comment in the migration and a line of the report.
"""

from zapdb.transfer.inference.choice import TableChoice
from zapdb.transfer.inference.copying import CopyOptions, TableCopy, copy_tables
from zapdb.transfer.inference.database_import import import_database
from zapdb.transfer.inference.inferred import Inference, InferredTable, Note
from zapdb.transfer.inference.rendering import render_changes
from zapdb.transfer.inference.source_database import SourceDatabase
from zapdb.transfer.inference.source_follower import Follower
from zapdb.transfer.inference.tables import infer_tables

__all__ = [
    "CopyOptions",
    "Follower",
    "Inference",
    "InferredTable",
    "Note",
    "SourceDatabase",
    "TableChoice",
    "TableCopy",
    "copy_tables",
    "import_database",
    "infer_tables",
    "render_changes",
]
