"""What a write does, as a value.

A write is about one record: its bytes before and after, and all that follows from them. It is made
without a connection, and describes the result, not the order of steps: only `execute` has that.

    insert    before is None                 upsert    one of the two on the left
    update    neither is None                set null  an update
    delete    after is None                  cascade   a delete
    convert   neither is None, and the record means the same
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from zapdb.log.pending_changes import LoggedChange
from zapdb.records import Record
from zapdb.storage.archives import ArchiveRow

NO_BLOBS: Final[Mapping[bytes, bytes]] = {}

NOT_CONVERTED: Final[Mapping[int, bytes]] = {}

Keys = tuple[bytes | None, ...]
"""One key for each index, or each reference, in the table's order; None if it has none."""


class Write(NamedTuple):
    """What one record becomes.

    `record` is the record afterwards, which passed its table's checks. It has the fields that
    indexes, checks and references read; it is None if nothing reads it.
    """

    key: bytes
    before: bytes | None
    """As it is stored, of whatever revision."""
    after: bytes | None
    record: Record | None = None
    removed: Keys = ()
    """The keys of its entries that go."""
    added: Keys = ()
    """The keys of the entries that it gets."""
    targets: Keys = ()
    """The keys of the records that it newly refers to."""
    blobs: Mapping[bytes, bytes] = NO_BLOBS
    """New ones, by id."""
    archived: tuple[ArchiveRow, ...] = ()
    """Values of dropped fields that are archived with it."""
    restored: tuple[int, ...] = ()
    """Numbers of dropped fields whose archived values are its own again, and no longer archived."""
    change: LoggedChange | None = None
    """What is appended to the change log, if it is on: a record before and after, both of the
    active revision, but for those of a rollback. The archived values are looked up when it is
    executed, if it does not have them."""
    converted: Mapping[int, bytes] = NOT_CONVERTED
    """Values of dropped fields that are archived as far as the change log knows, and still are in
    the bytes before: by field number."""
    is_swap: bool = False
    """Whether the database must check that the record still is `before`, because no read has.
    `NotAsPlanned` is raised if it is not."""
    is_locked: bool = False
    """Whether the caller has locked the record, so that it surely is `before`."""


class NewRecords(NamedTuple):
    """Many new records, all that they get beside them, and what they demand; without the record
    objects that say which of them is refused, and why."""

    rows: Sequence[tuple[bytes, bytes]]
    """Keys and bytes."""
    entries: Sequence[Sequence[tuple[bytes, bytes]]]
    """Of each index, in the order of their keys."""
    targets: Sequence[Sequence[bytes]]
    """Of each reference, the different keys of the records that it names, in order."""
    blobs: Mapping[bytes, bytes]


class ConvertedRecords(NamedTuple):
    """Many locked records that get other bytes, and from which nothing else follows: most
    conversions are so."""

    before: Sequence[tuple[bytes, bytes]]
    """Keys and bytes; rows of the server, if these are `LockedRecords`."""
    after: Sequence[bytes]


class NotAsPlanned(Exception):
    """A record is not what it was planned to be before a write; nothing was written."""
