"""A past whose tables are read in the schema of now: `past.table(name, schema="now")`."""

from __future__ import annotations

from zapdb.activation import TableDescriptor
from zapdb.errors import UsageError
from zapdb.past.reading.past_session import PastSession
from zapdb.past.reading.schema_at import TableAt
from zapdb.records.derivation import restored_in

SCHEMA_HINT = "read it in its schema of then: leave out `schema`"


class CurrentSchemaSession(PastSession):
    """Converts records of then as the migrations since would have converted them."""

    def _read_in(self, then: TableAt) -> TableAt:
        number, name = then.schema.number, then.schema.name
        now = self.catalog.table_numbered(number, name)
        if now.layout_revision != then.layout_revision:
            self._require_way(then, now)
        return TableAt(
            now.schema, now.revision, now.layout_revision, then.is_recorded, then.obstacle
        )

    def _require_way(self, then: TableAt, now: TableDescriptor) -> None:
        """Raise `UsageError` if no migrations lead from then to now, or one takes what was
        archived, which depends on when it was active."""
        catalog, number = self.catalog, then.schema.number
        start = now.origins.get(then.revision)
        if start is None:
            raise UsageError(
                "the schema that the table had then was rolled back, so no migrations lead from it "
                "to that of now",
                table=then.schema.name,
                hint=SCHEMA_HINT,
            )
        for at in range(start + 1, catalog.position + 1):
            plan = catalog.chain.conversion_plan(number, at - 1, at)
            if any(restored_in(derivation) for derivation in plan.derivations.values()):
                raise UsageError(
                    "a migration since then has restored archived values, which the records of "
                    "then do not have",
                    table=then.schema.name,
                    migration=catalog.chain.at(at).label,
                    hint=SCHEMA_HINT,
                )
