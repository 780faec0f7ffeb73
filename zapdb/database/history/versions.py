"""The biography of one record: what each transaction of the change log made of it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Literal

from zapdb.database.change_decoding import ChangeDecoder
from zapdb.database.changes import find_newest_stamp, reading_log
from zapdb.database.history.moment import Moment, open_moments, to_moment
from zapdb.database.session import Session
from zapdb.indexes import BoundTable
from zapdb.printing import one_line, show_moment
from zapdb.records import Record, raw_value
from zapdb.schema import Field, TableSchema
from zapdb.storage.cells import as_time
from zapdb.storage.rewinding import list_of_record
from zapdb.values import is_same_held

VersionOperation = Literal["baseline", "insert", "update", "delete"]


@dataclass(frozen=True, slots=True)
class Version:
    """One state of a record: from a moment until the next one, or until now.

    `record` is under the table's schema of that time; None after a deletion. `fields` are the names
    of the fields that the transaction changed. A `baseline` was there when the log began, so that
    nobody knows since when: `since`, `principal` and `made_at` are None.
    """

    operation: VersionOperation
    record: Record | None
    fields: tuple[str, ...]
    since: Moment | None
    until: Moment | None
    principal: str | None
    made_at: datetime | None
    schema: TableSchema | None = field(repr=False)

    def __repr__(self) -> str:
        by = "" if self.principal is None else f" by {one_line(self.principal)}"
        at = "" if self.made_at is None else f", {show_moment(self.made_at)}"
        return f"<{self.operation}: {self.record!r}{at}{by}>"


def list_versions(session: Session, bound: BoundTable, key: bytes) -> list[Version]:
    """Return the versions of the record with an encoded key, oldest first."""
    moments, table = open_moments(session), bound.schema.number
    find_newest_stamp(session, moments.log)
    decoder, found = ChangeDecoder(session), list[Version]()
    with reading_log(session) as connection:
        logged = list_of_record(connection, moments, table, key)
        for moment, row in logged:
            schema_before, before = decoder.decode_record(table, key, row.before)
            schema, after = decoder.decode_record(table, key, row.after)
            if schema is None and schema_before is None:
                break  # of a rollback that is under way
            since = to_moment(moment)
            if not found and before is not None:
                found.append(Version("baseline", before, (), None, None, None, None, schema_before))
            if found:
                found[-1] = replace(found[-1], until=since)
            operation: VersionOperation = "insert" if before is None else "update"
            found.append(
                Version(
                    "delete" if after is None else operation,
                    after,
                    list_changed(schema_before, before, schema, after),
                    since,
                    None,
                    row.principal,
                    as_time(row.made_at),
                    schema or schema_before,
                )
            )
    return found


def list_changed(
    schema_before: TableSchema | None,
    before: Record | None,
    schema: TableSchema | None,
    after: Record | None,
) -> tuple[str, ...]:
    """Return the names of the fields whose values differ, which are compared by number; of all
    fields of a record that has no counterpart."""
    if schema is None or schema_before is None or before is None or after is None:
        one = schema or schema_before
        return () if one is None else tuple(field.name for field in one.fields)
    earlier = {one.number: one for one in schema_before.fields}
    return tuple(
        one.name
        for one in schema.fields
        if one.number not in earlier or not _is_same_field(earlier[one.number], before, one, after)
    )


def _is_same_field(earlier: Field, before: Record, later: Field, after: Record) -> bool:
    left, _ = raw_value(before, earlier.name)
    right, _ = raw_value(after, later.name)
    return earlier.type == later.type and is_same_held(later.type, left, right)
