"""The fingerprint history: one append-only log per (tenant, table).

An entry's generation is the table's revision, the number that prefixes the records written under
it: it only rises and is never used again. `layout_revision` is the lowest revision whose records
have the same bytes layout; a record is stale exactly when its revision is lower (rule 1).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import sqlalchemy as sa

from zapdb.catalog.stored import principal
from zapdb.records import RECORD_FORMAT
from zapdb.schema import Table, fingerprint, read_snapshot, snapshot
from zapdb.storage import Connection
from zapdb.storage.tables import FINGERPRINTS

Event = Literal["create", "change", "drop", "restore", "forget"]


@dataclass(frozen=True, slots=True)
class Entry:
    """One schema change of one table; `position` and `digest` name the newest migration then."""

    tenant: int
    table_number: int
    generation: int
    event: str
    fingerprint: int
    migrated_at: int
    migrated_by: str
    position: int
    digest: str
    record_format: int
    layout_revision: int
    snapshot: bytes

    @property
    def table(self) -> Table:
        return read_snapshot(self.snapshot)


def append(
    connection: Connection,
    tenant: int,
    table: Table,
    event: Event,
    position: int,
    digest: str,
    layout_revision: int | None,
) -> int:
    """Append an entry; without a `layout_revision` the layout is new. Returns the generation."""
    query = sa.select(sa.func.max(FINGERPRINTS.c.generation)).where(
        FINGERPRINTS.c.tenant == tenant, FINGERPRINTS.c.table_number == table.number
    )
    generation = (connection.core_execute(query).scalar() or 0) + 1
    connection.core_execute(
        sa.insert(FINGERPRINTS).values(
            tenant=tenant,
            table_number=table.number,
            generation=generation,
            event=event,
            fingerprint=fingerprint(table).to_bytes(8, "big"),
            migrated_at=connection.storage.now_us(connection),
            migrated_by=principal(),
            position=position,
            digest=digest,
            record_format=RECORD_FORMAT,
            layout_revision=generation if layout_revision is None else layout_revision,
            snapshot=snapshot(table),
        )
    )
    return generation


def read_entries(
    connection: Connection, tenant: int, table_number: int | None = None
) -> Iterator[Entry]:
    """The entries of a tenant's tables, or of one table, by table and generation."""
    query = sa.select(FINGERPRINTS).where(FINGERPRINTS.c.tenant == tenant)
    if table_number is not None:
        query = query.where(FINGERPRINTS.c.table_number == table_number)
    query = query.order_by(FINGERPRINTS.c.table_number, FINGERPRINTS.c.generation)
    for row in connection.core_execute(query):
        values: dict[str, Any] = row._asdict()
        values["fingerprint"] = int.from_bytes(values["fingerprint"], "big")
        values["snapshot"] = bytes(values["snapshot"])
        yield Entry(**values)


def format_fingerprint(value: int) -> str:
    """As people and JSON see it."""
    return f"0x{value:016x}"
