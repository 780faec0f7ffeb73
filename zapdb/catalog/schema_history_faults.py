"""Checking a schema history against itself and against the stored migrations.

A log is needed to read old records and old changes, and programs pin its fingerprints. Nothing but
this check reads all of its entries. It computes each again: the fingerprint from the table schema,
and the table schema from the migrations, if the entry's migration is still on the chain.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from zapdb.catalog.schema_history import RevisionEntry, format_fingerprint
from zapdb.errors import CorruptionError
from zapdb.migrations import Chain
from zapdb.schema import canonical_bytes, fingerprint


def find_faults(log: Sequence[RevisionEntry], chain: Chain) -> Iterator[tuple[RevisionEntry, str]]:
    """Yield the faults of the entries of one table's log, in their order."""
    revisions = {entry.revision for entry in log}
    for at, entry in enumerate(log):
        was_rolled_back = any(
            later.event in ("rollback", "drop") and later.position < entry.position
            for later in log[at + 1 :]
        )
        for fault in _find_faults(entry, chain, was_rolled_back=was_rolled_back):
            yield entry, fault
        if entry.layout_revision not in revisions or entry.layout_revision > entry.revision:
            yield entry, f"has the layout of revision {entry.layout_revision}, which is not there"


def _find_faults(entry: RevisionEntry, chain: Chain, *, was_rolled_back: bool) -> Iterator[str]:
    try:
        table = entry.schema
    except CorruptionError as error:
        yield f"its snapshot can't be read: {error.message}"
        return
    if table.number != entry.table_number:
        yield f"its snapshot is of table number {table.number}"
    made = fingerprint(table)
    if made != entry.fingerprint:
        yield (
            f"its fingerprint is {format_fingerprint(entry.fingerprint)}, and that of its snapshot "
            f"{format_fingerprint(made)}"
        )
    is_on_chain = chain.start < entry.position <= chain.end
    if entry.event == "drop" or not is_on_chain or chain.at(entry.position).digest != entry.digest:
        return
    # A migration that was rolled back and stored again has its digest, but other numbers (rule 3);
    # the table itself has another one if the migration created it.
    schema = chain.schema_at(entry.position)
    stored = schema.table_active_or_archived(entry.table_number)
    if stored is None and was_rolled_back:
        stored = schema.table_named(table.name)
    if stored is None or not (
        canonical_bytes(stored) == entry.schema_bytes
        or (was_rolled_back and fingerprint(stored) == made)
    ):
        yield f"its snapshot is not what {chain.at(entry.position).label} makes of the table"
