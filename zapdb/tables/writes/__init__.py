"""Writing records: what becomes of them is planned as a value, and executed."""

from zapdb.tables.writes.conversion_writes import (
    BatchConversion,
    convert_records,
    plan_conversions,
)
from zapdb.tables.writes.execution import NONE_INSERTED, archive_values, delete_found, execute
from zapdb.tables.writes.write_plan import Keyed, NewValues, NotAsPlanned, Stored, WritePlan

__all__ = [
    "NONE_INSERTED",
    "BatchConversion",
    "Keyed",
    "NewValues",
    "NotAsPlanned",
    "Stored",
    "WritePlan",
    "archive_values",
    "convert_records",
    "delete_found",
    "execute",
    "plan_conversions",
]
