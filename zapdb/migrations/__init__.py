"""Migrations: documents, operations, the chain, digests and the lock file. No database here."""

from zapdb.migrations.canonical_migration import digest_of
from zapdb.migrations.chain import (
    Chain,
    MigrationFile,
    find_file,
    list_files,
    load_directory,
    resolve_all,
    resolve_files,
)
from zapdb.migrations.directory import GivenDirectory, MigrationDirectory, SentDirectory, SentFile
from zapdb.migrations.migration import Migration, label, read_stored
from zapdb.migrations.operations import OPERATIONS, NumberAllocator
from zapdb.migrations.parsed_migration import ParsedMigration
from zapdb.migrations.resolution import parse_resolved, resolve

__all__ = [
    "OPERATIONS",
    "Chain",
    "GivenDirectory",
    "Migration",
    "MigrationDirectory",
    "MigrationFile",
    "NumberAllocator",
    "ParsedMigration",
    "SentDirectory",
    "SentFile",
    "digest_of",
    "find_file",
    "label",
    "list_files",
    "load_directory",
    "parse_resolved",
    "read_stored",
    "resolve",
    "resolve_all",
    "resolve_files",
]
