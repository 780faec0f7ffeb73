"""Values that are made at insert where none is given: UUIDs, numbers, and the present moment.

They are made by the process that inserts, by the active schema: a process with older files gives
new records what the active schema makes in fields that it does not see. Conversions never make
values (rule 18).
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final
from uuid import UUID

from zapdb.datasets import zone
from zapdb.schema import Field, Now
from zapdb.storage import Connection
from zapdb.storage.identifiers import make_uuid7
from zapdb.tables.indexes import BoundTable
from zapdb.tables.number_blocks import OperationNumbers
from zapdb.tables.writes import NewValues

Values = Mapping[str, Any]
NOTHING: Final[Values] = {}
Numbers = Mapping[int, Iterator[int]]
"""What was drawn for the new records, by the number of the field."""


def generate_values(
    numbers: OperationNumbers,
    connection: Connection,
    bound: BoundTable,
    records: Sequence[Values],
) -> list[NewValues]:
    """The values of new records that were given with these, all made at one moment. Raises what
    `OperationNumbers.draw_for` raises."""
    shape = bound.adapter
    if not (shape.made_fields or shape.unseen_made_fields):
        return [(values, NOTHING) for values in records]
    drawn = numbers.draw_for(connection, bound, records)
    moment = datetime.datetime.now(datetime.UTC)
    return [
        (
            _complete(values, shape.made_fields, drawn, moment),
            _complete(NOTHING, shape.unseen_made_fields, drawn, moment)
            if shape.unseen_made_fields
            else NOTHING,
        )
        for values in records
    ]


def has_whole_key(bound: BoundTable, values: Values) -> bool:
    """Whether no part of the key is to be made; else the record is new."""
    shape = bound.adapter
    return all(f.name in values for f in shape.made_fields if f.name in shape.key_names)


def _complete(
    values: Values, fields: Sequence[Field], drawn: Numbers, moment: datetime.datetime
) -> Values:
    made = {}
    for field in fields:
        if field.name not in values:
            made[field.name] = _make(field, drawn, moment)
    return {**values, **made} if made else values


def _make(field: Field, drawn: Numbers, moment: datetime.datetime) -> Any:
    match field:
        case Field(generated="sequence"):
            return next(drawn[field.number])
        case Field(generated="uuid"):
            return UUID(bytes=make_uuid7())
        case Field(default=Now("")):
            return moment
    return moment.astimezone(zone(field.default.zone))
