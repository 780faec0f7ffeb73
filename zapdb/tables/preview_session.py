"""The session of a preview: reads records of now by the schema that migration files would lead to.

It writes nothing, and registers no process. Whenever the catalog changes, the files are laid over
the new one.
"""

from __future__ import annotations

from zapdb.activation import TableDescriptor, TenantCatalog
from zapdb.activation.pinned_fingerprints import NO_PINS
from zapdb.activation.preview import Preview, PreviewCatalog
from zapdb.catalog.cache import CatalogCache
from zapdb.migrations.operations.operation import PROVISIONAL
from zapdb.storage import Connection, RecordStatements, Storage
from zapdb.tables.indexes import BoundTable
from zapdb.tables.session import Session


class PreviewSession(Session):
    """`active` is the tenant catalog as it is, and `preview` the files over it."""

    shows_catalog = False
    has_revisions = False
    is_preview = True

    def __init__(
        self, storage: Storage, active: TenantCatalog, preview: Preview, served_position: int
    ) -> None:
        self._preview = preview
        super().__init__(storage, preview.over(active), None, served_position, NO_PINS)

    def _load_catalog(
        self, connection: Connection, known: TenantCatalog, cache: CatalogCache | None
    ) -> TenantCatalog:
        active = known.active if isinstance(known, PreviewCatalog) else known
        found = super()._load_catalog(connection, active, cache)
        return known if found is active else self._preview.over(found)

    def bind_numbered(self, number: int, name: str) -> BoundTable:
        """A table that a file creates has another number once the file is applied."""
        known = self._find_loaded().catalog
        if number >= PROVISIONAL and all(
            one.schema.number != number for one in known.tables.values()
        ):
            return self.bind_served(name)
        return super().bind_numbered(number, name)

    def _make_bound(self, catalog: TenantCatalog, descriptor: TableDescriptor) -> BoundTable:
        number = descriptor.schema.number
        if isinstance(catalog, PreviewCatalog) and number in catalog.created:
            nothing = RecordStatements.of_no_table(self.storage, number, catalog.tenant)
            return BoundTable(self.storage, catalog, descriptor, self.served_position, nothing)
        return super()._make_bound(catalog, descriptor)
