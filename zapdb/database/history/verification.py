"""Checking a history store: its files, and what they say of moments that can be rewound to.

Two ways lead to a recent moment: the present records and the change log, or the files. Both must
give the same records, which is looked at for some moments.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

from zapdb.database.changes import reading_log
from zapdb.database.history.moment import find_moment
from zapdb.database.history.past_session import PastSession
from zapdb.database.history.versions import list_changed
from zapdb.database.session import Session
from zapdb.errors import CorruptionError, HistoryUnavailable, StorageError
from zapdb.history.stores import require_store
from zapdb.history.verifying import list_problems, read_timelines
from zapdb.indexes import BoundTable
from zapdb.records import Record
from zapdb.storage import TransactionMode
from zapdb.storage.change_log import ChangeLog
from zapdb.storage.moments import Moments, moments_of


@dataclass(frozen=True, slots=True)
class HistoryVerification:
    """What was looked at, and what is wrong: `files` were read, and of `tables` tables at some
    moments the records of the store were compared with those that the change log leads to.

    `inexact` names tables with eras whose values may differ from those of then (`past.exact`).
    """

    files: int
    tables: int
    inexact: tuple[str, ...]
    problems: tuple[str, ...]


def verify_store(session: Session, sample: int) -> HistoryVerification:
    """Read all files of a tenant's store, and compare tables at so many moments with the change
    log, if it leads back to them. Raises `UsageError` without a store."""
    tenant, problems = session.catalog.tenant, list[str]()
    with session.storage.transaction(TransactionMode.READ) as connection:
        store = require_store(connection, tenant)
        timelines = read_timelines(connection, tenant)
    for checked in timelines:
        problems += list_problems(checked)
    inexact = {era.table_number for checked in timelines for era in checked.eras if not era.exact}
    names = {d.schema.number: name for name, d in session.catalog.tables.items()}
    first = max(store.begins, store.purged_before)
    compared = 0
    for moment in _choose(session, first, store.ends, sample):
        for name, problem in _compare(session, moment):
            compared += 1
            if problem is not None:
                problems.append(f"{name} at moment #{moment}: {problem}")
    return HistoryVerification(
        files=sum(len(checked.files) for checked in timelines),
        tables=compared,
        inexact=tuple(sorted(names.get(number, f"table {number}") for number in inexact)),
        problems=tuple(problems),
    )


def _choose(session: Session, first: int, last: int, sample: int) -> list[int]:
    """Choose moments that the change log leads back to, the first and the last among them."""
    moments: Moments = moments_of(ChangeLog(session.storage, session.catalog.tenant))
    with reading_log(session) as connection:
        first = max(first, moments.find_beginning(connection).number)
    numbers = range(first, last + 1)
    if sample <= 0 or not numbers:
        return []
    inside = random.sample(numbers, min(len(numbers), max(0, sample - 2)))
    return sorted({first, last, *inside})[:sample]


def _compare(session: Session, number: int) -> Iterator[tuple[str, str | None]]:
    """Yield the tables at a moment that both ways lead to, each with what differs."""
    try:
        past = PastSession(session, find_moment(session, number))
        names = past.table_names
    except HistoryUnavailable:
        return
    for name in names:
        try:
            both = past.bind_both(name)
        except HistoryUnavailable:
            continue
        except (CorruptionError, StorageError) as error:
            yield name, error.message
            continue
        if both is not None:
            yield name, _find_difference(past, *both)


def _find_difference(past: PastSession, rewound: BoundTable, stored: BoundTable) -> str | None:
    try:
        left, right = _scan(past, rewound), _scan(past, stored)
        schemas = rewound.adapter.schema, stored.adapter.schema
        for (key, one), (other_key, other) in zip(left, right, strict=True):
            if key != other_key or list_changed(schemas[0], one, schemas[1], other):
                shown = min(key, other_key).hex()[:16]
                return f"the record with the key {shown}… is another one than in the change log"
    except ValueError:
        return "there are more or fewer records than by the change log"
    except (CorruptionError, StorageError) as error:
        return error.message
    return None


def _scan(past: PastSession, bound: BoundTable) -> Iterator[tuple[bytes, Record]]:
    after = b""
    while page := _read_page(past, bound, after):
        for key, value in page:
            yield key, bound.adapter.reader.read(key, value)
        after = page[-1][0]


def _read_page(past: PastSession, bound: BoundTable, after: bytes) -> list[tuple[bytes, bytes]]:
    return past.read_active(bound, lambda c, t: t.records.scan_page(c, after))[1]
