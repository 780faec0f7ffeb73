"""The active tables, and the schema history of each."""

from __future__ import annotations

from dataclasses import dataclass

from zapdb.activation import TableDescriptor, TenantCatalog
from zapdb.catalog.schema_history import format_fingerprint
from zapdb.control.target import Target
from zapdb.schema import fingerprint


@dataclass(frozen=True, slots=True)
class TableSummary:
    """One active table; `key`, `fields` and `indexes` are names."""

    table: str
    number: int
    key: tuple[str, ...]
    revision: int
    layout_revision: int
    fingerprint: str
    fields: tuple[str, ...]
    indexes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Tables:
    """The active tables; `migration` is the label of the newest active migration, if there is
    one."""

    position: int
    migration: str | None
    tables: tuple[TableSummary, ...]


def list_tables(target: Target) -> Tables:
    """The active tables of the tenant, in the order of their numbers."""
    catalog = target.catalog()
    return Tables(
        catalog.position, newest_label(catalog), tuple(map(_summarize, catalog.tables.values()))
    )


def newest_label(catalog: TenantCatalog) -> str | None:
    return catalog.chain.at(catalog.position).label if catalog.position else None


def _summarize(descriptor: TableDescriptor) -> TableSummary:
    table = descriptor.schema
    return TableSummary(
        table=table.name,
        number=table.number,
        key=tuple(f.name for f in table.key_fields),
        revision=descriptor.revision,
        layout_revision=descriptor.layout_revision,
        fingerprint=format_fingerprint(fingerprint(table)),
        fields=tuple(f.name for f in table.fields),
        indexes=tuple(index.index.name for index in descriptor.indexes),
    )
