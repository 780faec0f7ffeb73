"""What SQL sees of a past beside its tables: `zapdb_moments`, and the versions of each table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, Final

import pyarrow

from zapdb.past.reading.listing import MomentSummary, list_moments
from zapdb.past.reading.moment import find_newest_moment
from zapdb.past.reading.past_session import PastSession
from zapdb.past.reading.recorded import require_recorded
from zapdb.sql.catalog_at import CATALOG_THEN
from zapdb.sql.relations import ARROW, INTEGER, TEXT, TIME
from zapdb.values import ValueType

MOMENTS: Final = "zapdb_moments"
VERSIONS: Final = "zapdb_versions_"
"""What the names of relations with all versions of a table begin with."""
MOMENTS_COLUMNS: Final[dict[str, ValueType]] = {
    "moment": INTEGER,
    "visible_at": TIME,
    "made_at": TIME,
    "principal": TEXT,
    "inserted": INTEGER,
    "updated": INTEGER,
    "deleted": INTEGER,
    "events": INTEGER,
    "bookmark": TEXT,
}
BATCH_ROWS: Final = 2_000


def list_past_relations(session: PastSession) -> list[str]:
    """Return the names of the relations of a past."""
    return [MOMENTS, *CATALOG_THEN, *(VERSIONS + name for name in session.table_names)]


class MomentsSource:
    """The moments up to that of a past, newest first, as far as they are known."""

    def __init__(self, session: PastSession) -> None:
        self._session = session

    @property
    def schema(self) -> Any:
        return pyarrow.schema([(name, ARROW[kind]) for name, kind in MOMENTS_COLUMNS.items()])

    def read(self, names: Sequence[str]) -> Iterator[Any]:
        """Raises what listing moments raises."""
        wanted = pyarrow.schema([self.schema.field(name) for name in names])
        places = [list(MOMENTS_COLUMNS).index(name) for name in names]
        session, until = self._session, self._session.moment.number
        found = list_moments(session, None, until, None, None)
        if until == find_newest_moment(session).number:  # it asks for what comes after that, too
            found = require_recorded(session, found)
        moments = map(_to_row, found)
        while page := list(islice(moments, BATCH_ROWS)):
            arrays = [
                pyarrow.array([row[at] for row in page], field.type)
                for at, field in zip(places, wanted, strict=True)
            ]
            yield pyarrow.RecordBatch.from_arrays(arrays, schema=wanted)


def _to_row(made: MomentSummary) -> tuple[Any, ...]:
    counts = (
        sum(getattr(one, name) for one in made.changes)
        for name in ("inserted", "updated", "deleted", "events")
    )
    times = made.number, made.visible_at, made.made_at
    return (*times, made.principal, *counts, str(made.bookmark))
