"""What violates a constraint, for people: as errors of writers, and as lines of a job's findings.

Keys and short values are shown, since it takes them to find the record; of large ones, how they
begin.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from zapdb.errors import CheckViolation, ReferenceViolation, UniqueViolation
from zapdb.indexes.checks import LiveCheck
from zapdb.indexes.live import LiveTable
from zapdb.indexes.maintenance import Collision
from zapdb.indexes.references import LiveReference, Referrer
from zapdb.records import Record

SHOWN_CHARS_MAX: Final = 80
"""Of one value."""


def show_value(value: Any) -> str:
    shown = repr(value)
    return shown if len(shown) <= SHOWN_CHARS_MAX else f"{shown[: SHOWN_CHARS_MAX - 1]}…"


def show_key(live: LiveTable, key: bytes) -> str:
    return ", ".join(map(show_value, live.codec.decode_key(key)))


def show_fields(record: Record, names: Iterable[str]) -> str:
    return ", ".join(f"{name}={show_value(getattr(record, name))}" for name in names)


def show_target(reference: LiveReference, record: Record) -> str:
    return show_value(getattr(record, reference.field.name))


def collision(live: LiveTable, found: Collision, record: Record, hint: str = "") -> UniqueViolation:
    names = found.index.field_names
    return UniqueViolation(
        "another record has these values, and the index allows them once",
        table=live.table.name,
        index=found.index.name,
        fields=", ".join(names),
        values=show_fields(record, names),
        key=show_key(live, found.record_key),
        in_the_way=show_key(live, found.owner),
        hint=hint or "use other values, or change or delete the record that is in the way",
    )


def describe_collision(live: LiveTable, found: Collision, record: Record) -> str:
    values = show_fields(record, found.index.field_names)
    mine, others = show_key(live, found.record_key), show_key(live, found.owner)
    return f"{mine} has the values of {others}: {values}"


def unmet(
    live: LiveTable, check: LiveCheck, key: bytes, record: Record, hint: str = ""
) -> CheckViolation:
    return CheckViolation(
        "a check of the table is not true of the record",
        table=live.table.name,
        check=check.check.name,
        expression=check.check.expression,
        values=show_fields(record, check.fields),
        key=show_key(live, key),
        hint=hint or "give values for which it is true, or drop the check in a migration",
    )


def describe_unmet(live: LiveTable, check: LiveCheck, key: bytes, record: Record) -> str:
    return f"{show_key(live, key)} has {show_fields(record, check.fields) or 'no way to be true'}"


def dangling(
    live: LiveTable, reference: LiveReference, key: bytes, record: Record, hint: str = ""
) -> ReferenceViolation:
    return ReferenceViolation(
        "a record refers to one that is not there",
        table=live.table.name,
        field=reference.field.name,
        value=show_target(reference, record),
        target=reference.target,
        key=show_key(live, key),
        hint=hint or f"insert the record of {reference.target!r} first",
    )


def describe_dangling(live: LiveTable, reference: LiveReference, key: bytes, record: Record) -> str:
    value = show_target(reference, record)
    return f"{show_key(live, key)} refers to {value}, which is not in {reference.target}"


def referred_to(
    live: LiveTable, key: bytes, other: LiveTable, referrer: Referrer, found: list[bytes], most: int
) -> ReferenceViolation:
    count = f"{most:,} or more" if len(found) >= most else f"{len(found):,}"
    field = other.table.field_numbered(referrer.key.field).name
    return ReferenceViolation(
        "other records refer to this one, and keep it from being deleted",
        table=live.table.name,
        key=show_key(live, key),
        referring=f"{other.table.name}.{field}",
        records=count,
        example=show_key(other, found[0]),
        hint=f"delete these records of {other.table.name!r} first, or let them refer to others",
    )
