"""The change log as SQL sees it: `zapdb_audit`, a row for each field that a transaction changed.

Rows are made batch by batch, so memory does not grow with the log.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, Final

import pyarrow

from zapdb.past.reading.audit import AuditEntry, iterate_audit
from zapdb.past.reading.recorded import require_recorded
from zapdb.records import Record
from zapdb.records.cell_format import to_plain
from zapdb.schema import TableSchema
from zapdb.sql.relations import ARROW, INTEGER, JSON, TEXT, TIME
from zapdb.tables.changes import find_newest_stamp, open_log
from zapdb.tables.session import Session
from zapdb.values import ValueType

AUDIT: Final = "zapdb_audit"
AUDIT_COLUMNS: Final[dict[str, ValueType]] = {
    "moment": INTEGER,
    "made_at": TIME,
    "visible_at": TIME,
    "principal": TEXT,
    "table_name": TEXT,
    "key": JSON,
    "operation": TEXT,
    "field": TEXT,
    "before": JSON,
    "after": JSON,
}
BATCH_ROWS: Final = 2_000
AuditRow = tuple[Any, ...]


def give_stamps(session: Session) -> None:
    """Let the log tell all changes until now; raises `UsageError` inside a writing transaction."""
    find_newest_stamp(session, open_log(session))


class AuditSource:
    """All changes of the log, field by field, as of this thread's snapshot."""

    def __init__(self, session: Session) -> None:
        self._session = session

    @property
    def schema(self) -> Any:
        return pyarrow.schema([(name, ARROW[kind]) for name, kind in AUDIT_COLUMNS.items()])

    def read(self, names: Sequence[str]) -> Iterator[Any]:
        """Raises what reading the change log raises."""
        places = [list(AUDIT_COLUMNS).index(name) for name in names]
        wanted = pyarrow.schema([self.schema.field(name) for name in names])
        entries = require_recorded(self._session, iterate_audit(self._session))
        rows = (row for entry in entries for row in _list_rows(entry))
        while page := list(islice(rows, BATCH_ROWS)):
            arrays = [
                pyarrow.array([row[at] for row in page], field.type)
                for at, field in zip(places, wanted, strict=True)
            ]
            yield pyarrow.RecordBatch.from_arrays(arrays, schema=wanted)


def _list_rows(entry: AuditEntry) -> Iterator[AuditRow]:
    schema = entry.schema_after or entry.schema_before
    key = None
    if schema is not None:
        key = json.dumps(list(map(to_plain, schema.key_fields, entry.key)), sort_keys=True)
    row = (
        entry.moment.number,
        entry.made_at,
        entry.moment.visible_at,
        entry.principal,
        entry.table,
        key,
        entry.operation,
    )
    numbers = {} if schema is None else {one.name: one.number for one in schema.fields}
    for name in entry.fields:
        number = numbers.get(name)
        before = _show(entry.schema_before, entry.before, number)
        yield (*row, name, before, _show(entry.schema_after, entry.after, number))
    if not entry.fields:
        yield (*row, None, None, None)


def _show(schema: TableSchema | None, record: Record | None, number: int | None) -> str | None:
    """Return the value of a field as JSON; None where there is no record, and no such field."""
    if schema is None or record is None:
        return None
    field = next((one for one in schema.fields if one.number == number), None)
    return None if field is None else json.dumps(to_plain(field, getattr(record, field.name)))
