"""Writing records: a write is planned as a value, and executed."""

from zapdb.tables.writes.conversion_writes import (
    BatchConversion,
    convert_records,
    plan_conversion,
    plan_conversions,
    plan_discard,
)
from zapdb.tables.writes.execution import NONE_INSERTED, archive_values, execute, execute_inserts
from zapdb.tables.writes.write import NewRecords, NotAsPlanned, Write
from zapdb.tables.writes.write_planning import (
    Keyed,
    NewValues,
    Stored,
    plan_delete,
    plan_insert,
    plan_inserts,
    plan_new_records,
    plan_null,
    plan_update,
)

__all__ = [
    "NONE_INSERTED",
    "BatchConversion",
    "Keyed",
    "NewRecords",
    "NewValues",
    "NotAsPlanned",
    "Stored",
    "Write",
    "archive_values",
    "convert_records",
    "execute",
    "execute_inserts",
    "plan_conversion",
    "plan_conversions",
    "plan_delete",
    "plan_discard",
    "plan_insert",
    "plan_inserts",
    "plan_new_records",
    "plan_null",
    "plan_update",
]
