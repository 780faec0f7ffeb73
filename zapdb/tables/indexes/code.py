"""The generated source of a table, for people to read: what encodes, decodes and converts it."""

from __future__ import annotations

from collections.abc import Iterator

from zapdb.activation import TableDescriptor, TenantCatalog
from zapdb.records import codec_for
from zapdb.tables.indexes.bound_table import compile_program
from zapdb.tables.indexes.checks import compile_check
from zapdb.tables.indexes.keys import build_keys


def show_code(catalog: TenantCatalog, descriptor: TableDescriptor) -> str:
    """All functions as Python source: the codec, each index's keys, each check, and each older
    layout's program."""
    return "\n".join(_sections(catalog, descriptor))


def _sections(catalog: TenantCatalog, descriptor: TableDescriptor) -> Iterator[str]:
    table = descriptor.schema
    yield f"# The codec of {table.name}, revision {descriptor.revision}.\n"
    yield codec_for(table, catalog.zones).source
    for index in table.indexes:
        yield f"# The keys of the index {index.name}.\n"
        yield build_keys(table, index).source
    for check in table.checks:
        yield f"# The check {check.name}.\n"
        yield compile_check(table, check).source
    for revision in sorted(descriptor.origins):
        if descriptor.layouts.get(revision) != revision:
            continue  # its records have the layout of an earlier one
        program = compile_program(catalog, descriptor, table, catalog.position, revision)
        if program is not None:
            yield f"# The conversion from revision {revision} to revision {descriptor.revision}.\n"
            yield program.source
