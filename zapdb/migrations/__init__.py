"""Migrations: documents, operations, the chain, digests and the lock file. No database here."""

from zapdb.migrations.chain import (
    Chain,
    MigrationFile,
    find_file,
    list_files,
    load_directory,
    resolve_files,
)
from zapdb.migrations.migration import Migration, digest_of, label, read_stored, resolve
from zapdb.migrations.operations import OPERATIONS, Numbers

__all__ = [
    "OPERATIONS",
    "Chain",
    "Migration",
    "MigrationFile",
    "Numbers",
    "digest_of",
    "find_file",
    "label",
    "list_files",
    "load_directory",
    "read_stored",
    "resolve",
    "resolve_files",
]
