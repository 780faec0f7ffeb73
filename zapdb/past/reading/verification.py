"""Checking a history store: its files, and what they say of moments that can be rewound to.

Two ways lead to a recent moment: the present records and the change log, or the files. Both must
give the same records, which is looked at for some moments.

They are read one after the other, while others write. No answer about a moment changes by that, but
by an erasure: it takes a record from the log first, and from the files afterwards. So records that
are being erased are left out, and what differs is looked at again if an erasure went on meanwhile.
Records that could not be read when they were discarded are left out, too: the log only has their
bytes, and files may have them from before they were damaged.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import zip_longest

from zapdb.errors import (
    BlobMissing,
    CorruptionError,
    HistoryUnavailable,
    StorageError,
    TransactionConflict,
)
from zapdb.limits import READ
from zapdb.log.change_log import ChangeLog
from zapdb.log.moments import LoggedMoment, Moments, moments_of
from zapdb.past.files.file_verification import list_problems, read_timelines
from zapdb.past.files.history_erasures import Erasure, count_erasures, list_unfinished
from zapdb.past.files.history_manifest import Doubt, HistoryFile, HistoryStore, list_history_files
from zapdb.past.files.stores import require_store
from zapdb.past.reading.changed_fields import list_changed
from zapdb.past.reading.moment import find_moment
from zapdb.past.reading.past_session import PastSession
from zapdb.past.reading.rewound import RewoundTable
from zapdb.records import Record, decode_unreadable
from zapdb.storage import TransactionMode
from zapdb.storage.retries import attempts
from zapdb.tables.changes import within_snapshot
from zapdb.tables.indexes import BoundTable
from zapdb.tables.session import Session, changed_while_read


@dataclass(frozen=True, slots=True)
class HistoryVerification:
    """What was looked at, and what is wrong: `files` were read, and of `tables` tables at some
    moments the records of the store were compared with those that the change log leads to.

    `doubts` are why values of a table may differ from those of then at some moments, as in
    `past.doubts`.
    """

    files: int
    tables: int
    doubts: Mapping[str, Doubt]
    problems: tuple[str, ...]


def verify_store(session: Session, sample: int) -> HistoryVerification:
    """Read all files of a tenant's store, and compare tables at so many moments with the change
    log, if it leads back to them. Raises `UsageError` without a store."""
    tenant, problems = session.catalog.tenant, list[str]()
    with session.storage.transaction(TransactionMode.READ) as connection:
        store = require_store(connection, tenant)
        timelines = read_timelines(connection, tenant)

    def is_live(of: HistoryStore, file: HistoryFile) -> bool:
        with session.storage.transaction(TransactionMode.READ) as connection:
            return file in list_history_files(connection, of, table=file.table_number)

    for checked in timelines:
        problems += list_problems(checked, is_live)
    eras = [era for checked in timelines for era in checked.eras]
    doubts = {era.table_number: era.doubt for era in eras if era.doubt is not None}
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
        doubts={names.get(number, f"table {number}"): why for number, why in doubts.items()},
        problems=tuple(problems),
    )


def _choose(session: Session, first: int, last: int, sample: int) -> list[int]:
    """Choose moments that the change log leads back to, the first and the last among them."""
    moments: Moments = moments_of(ChangeLog(session.storage, session.catalog.tenant))
    with within_snapshot(session) as connection:
        first = max(first, moments.find_beginning(connection).number)
    numbers = range(first, last + 1)
    if sample <= 0 or not numbers:
        return []
    inside = random.sample(numbers, min(len(numbers), max(0, sample - 2)))
    return sorted({first, last, *inside})[:sample]


def _compare(session: Session, number: int) -> Iterator[tuple[str, str | None]]:
    """Yield the tables at a moment that both ways lead to, each with what differs."""
    with suppress(HistoryUnavailable):
        moment = find_moment(session, number)
        for name in PastSession(session, moment).table_names:
            found = _compare_undisturbed(session, moment, name)
            if found is not None:
                yield name, found.problem


def _compare_undisturbed(session: Session, moment: LoggedMoment, name: str) -> _Compared | None:
    for _ in attempts(READ):
        erased = _read_erased(session)
        with suppress(TransactionConflict):
            found = _compare_table(session, moment, name, erased[1])
            if found is None or found.problem is None or _read_erased(session) == erased:
                return found
    return None


def _read_erased(session: Session) -> tuple[int, list[Erasure]]:
    """Return how many erasures there are, and those that go on: another answer says that one went
    on in between."""
    with within_snapshot(session) as connection:
        tenant = session.catalog.tenant
        return count_erasures(connection, tenant), list_unfinished(connection, tenant)


@dataclass(frozen=True, slots=True)
class _Compared:
    problem: str | None


def _compare_table(
    session: Session, moment: LoggedMoment, name: str, erased: list[Erasure]
) -> _Compared | None:
    """Compare a table at a moment, but for the records that are being erased; None if only one of
    the two ways leads there. Raises `TransactionConflict` if the schema changes meanwhile."""
    try:
        past = PastSession(session, moment)
        both = past.bind_both(name)
        if both is None:
            return None
        keys = {one.key for one in erased if one.table_number == both[0].schema.number}
        return None if None in keys else _Compared(_find_difference(past, *both, keys))
    except HistoryUnavailable:
        return None
    except (CorruptionError, StorageError, BlobMissing) as error:
        path = error.context.get("path")
        return _Compared(error.message if path is None else f"{error.message}: {path}")


def _find_difference(
    past: PastSession, rewound: BoundTable, stored: BoundTable, erased: set[bytes | None]
) -> str | None:
    """Say what differs, but for these records, and those that could not be read."""
    schemas, left_out = (rewound.adapter.schema, stored.adapter.schema), set(erased)
    left, right = (
        (one for one in _scan(past, bound, left_out) if one[0] not in left_out)
        for bound in (rewound, stored)  # the first one is read ahead of the second
    )
    for one, other in zip_longest(left, right):
        if one is None or other is None:
            return "there are more or fewer records than by the change log"
        if one[0] != other[0] or list_changed(schemas[0], one[1], schemas[1], other[1]):
            shown = min(one[0], other[0]).hex()[:16]
            return f"the record with the key {shown}… is another one than in the change log"
    return None


def _scan(
    past: PastSession, bound: BoundTable, left_out: set[bytes | None]
) -> Iterator[tuple[bytes, Record]]:
    after, is_rewound = b"", isinstance(bound, RewoundTable)
    while page := _read_page(past, bound, after):
        for key, value in page:
            if is_rewound and decode_unreadable(value) is not None:
                left_out.add(key)
            else:
                yield key, bound.adapter.reader.read(key, value)
        after = page[-1][0]


def _read_page(past: PastSession, bound: BoundTable, after: bytes) -> list[tuple[bytes, bytes]]:
    """Raises `TransactionConflict` if the table would be read another way now."""
    found, page = past.read_active(bound, lambda c, t: t.records.scan_page(c, after))
    if found is not bound:
        raise changed_while_read(bound)
    return page
