"""The change log of a store that is worked on, read in batches."""

from __future__ import annotations

from zapdb.past.files.log_batches import BatchReader
from zapdb.past.files.working_store import StoreWriter
from zapdb.records import Attachments
from zapdb.storage.identifiers import make_uuid7


def open_batches(working: StoreWriter) -> BatchReader:
    """Return the reader of batches of a store's tenant."""
    return BatchReader(
        working.log,
        lambda sql, parameters: working.storage.connection().fetch_all(sql, parameters),
        working.revisions,
        working.reload_revisions,
        lambda key, value: Attachments(working.blobs.load, make_uuid7),
        working.zones,
    )
