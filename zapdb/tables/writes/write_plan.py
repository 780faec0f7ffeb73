"""What a transaction writes of one table, as a value: from stored bytes and given values.

A plan has the bytes of records before and after, and all that follows from them, for one record as
for many. It is made without a connection, and describes the result, not the order of steps: only
`execute` has that.

    insert    before is None                 upsert    one of the two on the left
    update    neither is None                set null  an update
    delete    after is None                  cascade   a delete
    convert   neither is None, and the record means the same

A record's blobs and archive come through its attachments, and new blobs are added to these (rule
19). The table's demands on a record that need no database are checked here: types, checks, keys
that fit an index. A plan keeps no record objects, of which as many as a batch has would keep the
garbage collector busy: the records that come are their bytes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from copy import copy
from typing import Any, Final, NamedTuple

from zapdb.errors import CheckViolation, ZapdbError
from zapdb.log.pending_changes import LoggedChange
from zapdb.records import Attachments, Record, decode_prefix, held, new_blobs
from zapdb.storage.archives import ArchiveRow, archive_rows
from zapdb.storage.own_writes import RecordWrite
from zapdb.tables.indexes import BoundTable, violations
from zapdb.tables.indexes.maintenance import EntryRow
from zapdb.tables.indexes.schema_adapter import remake_kept

Keyed = tuple[bytes, Record]
"""A record with its key."""
NewValues = tuple[Mapping[str, Any], Mapping[str, Any]]
"""The values of a new record: in the served schema, and of fields that only the active one has."""
Stored = tuple[bytes, bytes]
"""A record's key and bytes."""
DECODED_AT_ONCE: Final = 100
"""How many new records there are as objects at a time."""
NOT_CONVERTED: Final[Mapping[int, bytes]] = {}


class NotAsPlanned(Exception):
    """A record is not what it was planned to be before a write; nothing was written."""


class LoggedWrite(NamedTuple):
    """What is appended to the change log, if it is on."""

    write: RecordWrite
    change: LoggedChange
    """A record before and after, both of the active revision. The archived values are looked up
    when it is executed, if it does not have them."""
    archived: Sequence[ArchiveRow] = ()
    converted: Mapping[int, bytes] = NOT_CONVERTED
    """Values of dropped fields that are archived as far as the change log knows, and still are in
    the bytes before: by cell."""


class WritePlan:
    """What becomes of records of one table."""

    __slots__ = (
        "added",
        "archived",
        "blobs",
        "bound",
        "first",
        "is_locked",
        "is_swap",
        "logged",
        "records",
        "removed",
        "restored",
        "targets",
    )

    def __init__(
        self, bound: BoundTable, *, is_locked: bool = False, is_swap: bool = False
    ) -> None:
        self.bound = bound
        self.is_locked = is_locked
        """Whether the caller has locked the records, so that they surely are as before."""
        self.is_swap = is_swap
        """Whether the database must check that they still are as before, because no read has.
        `NotAsPlanned` is raised if one is not."""
        self.first: Record | None = None
        """The first record that was planned alone, with the values that were read of it: a stream
        is written as it is read, and gone with the transaction."""
        self.records: list[RecordWrite] = []
        """Keys, and bytes before, as they are stored, and after."""
        self.removed: dict[int, list[EntryRow]] = {}
        """The entries that go, by the place of the index among those of the table."""
        self.added: dict[int, list[EntryRow]] = {}
        """The entries that come."""
        self.targets: dict[int, set[bytes]] = {}
        """The keys of the records that are newly referred to, by the place of the reference."""
        self.blobs: dict[bytes, bytes] = {}
        """New ones, by id."""
        self.archived: list[ArchiveRow] = []
        """Values of dropped fields that are archived."""
        self.restored: list[tuple[int, bytes]] = []
        """Cells, and keys, of values that are no longer archived: they are the record's own again,
        or would be made of it."""
        self.logged: list[LoggedWrite] = []

    def insert(self, key: bytes, values: Mapping[str, Any], unseen: Mapping[str, Any]) -> Record:
        """Plan a new record of these values, and of those that were made for fields that only the
        active schema has; returns it. Raises `InvalidValue` and `CheckViolation`."""
        attachments = self.bound.make_attachments()
        value = self.bound.adapter.encode(key, values, unseen, attachments)
        return self._become((key, None, value), attachments)

    def insert_many(self, records: Sequence[NewValues], hint: str = "") -> None:
        """The same of many; `hint` belongs to errors about several records."""
        bound, encode_key = self.bound, self.bound.adapter.codec.encode_key
        wrong = dict[int, CheckViolation]()
        if not bound.adapter.is_current:  # each with what is archived of it
            for place, (values, unseen) in enumerate(records):
                try:
                    self.insert(encode_key(values), values, unseen)
                except CheckViolation as error:
                    wrong[place] = error
            require_none(wrong, hint)
            return
        attachments, prefix, encode = bound.make_attachments(), bound.prefix, bound.codec.encode
        rows = [
            (encode_key(values), None, encode(prefix, values, attachments)) for values, _ in records
        ]
        self.blobs |= attachments.blobs
        for start in range(0, 0 if bound.is_bare else len(rows), DECODED_AT_ONCE):
            keyed = decode_new(bound, rows[start : start + DECODED_AT_ONCE], attachments)
            wrong |= find_check_violations(bound, keyed, start)
            self._follow(keyed)
        require_none(wrong, hint)
        self.add_new(rows)

    def add_new(self, rows: Sequence[RecordWrite]) -> None:
        """Plan the bytes of new records; what follows from them is planned already."""
        self.records += rows
        if self.bound.logs_changes:
            self.logged += [LoggedWrite(row, LoggedChange(None, row[2])) for row in rows]

    def update(
        self, key: bytes, stored: bytes, given: Mapping[str, Any], *, skips_same: bool = False
    ) -> Record | None:
        """Plan new values of a record; returns it. If it is stale, what the conversion makes is
        stored with it. None: it `skips_same` bytes, and these are. Raises `InvalidValue` and
        `CheckViolation`."""
        attachments = self.bound.make_attachments(key, stored)
        old, values, changed = self.bound.adapter.change(key, stored, given, attachments)
        value = self.bound.codec.encode(self.bound.prefix, values, attachments)
        is_same = value == stored and not (attachments.archived or attachments.unneeded)
        if skips_same and is_same:
            return None
        return self._become((key, stored, value), attachments, old, changed)

    def set_null(self, key: bytes, stored: bytes, name: str) -> None:
        """Plan that a field of the active schema becomes null."""
        attachments = self.bound.make_attachments(key, stored)
        old, _ = self.bound.reader.open(key, stored, attachments)
        values = held(old) | {name: None}
        remake_kept(attachments, self.bound.kept_following.get(name, ()))
        value = self.bound.codec.encode(self.bound.prefix, values, attachments)
        self._become((key, stored, value), attachments, old, {name})

    def delete(self, key: bytes, stored: bytes) -> None:
        """Plan the deletion of a record and all that belongs to it; references to it are not
        checked."""
        bound = self.bound
        if bound.indexes:
            # A stale record is converted with its archived values, so before these are deleted.
            old = bound.index_reader.read(key, stored)
            for at, index in enumerate(bound.indexes):
                if index.has_entries:
                    self.removed.setdefault(at, []).append((index.entry_key(old, key), key))
        write = (key, stored, None)
        self.records.append(write)
        if bound.logs_changes:
            before, blobs, converted = self._before(key, stored)
            self.blobs |= blobs
            self.logged.append(LoggedWrite(write, LoggedChange(before, None), (), converted))

    def discard(self, key: bytes, stored: bytes) -> None:
        """Plan that a locked record goes with its whole table, as its index entries do."""
        write = (key, stored, None)
        self.records.append(write)
        if self.bound.logs_changes:
            self.logged.append(LoggedWrite(write, LoggedChange(stored, None)))

    def convert(
        self,
        key: bytes,
        stored: bytes,
        value: bytes,
        attachments: Attachments,
        change: LoggedChange | None = None,
    ) -> None:
        """Plan that a locked record becomes what its conversion made of it, with these
        attachments."""
        write, archived = (key, stored, value), attachments.archived
        self.records.append(write)
        if attachments.blobs:
            self.blobs |= attachments.blobs
        rows = list(archive_rows(key, archived)) if archived else []
        self.archived += rows
        if attachments.unneeded:  # archived before, if the migration was rolled back before
            get = attachments.archive.get
            self.restored += [(cell, key) for cell in attachments.unneeded if get(cell) is not None]
        if change is not None:
            self.logged.append(LoggedWrite(write, change, rows, archived))

    def archive(self, key: bytes, stored: bytes, rows: Sequence[ArchiveRow]) -> None:
        """Plan that a record stays what it is, and gets archived values."""
        before, blobs, converted = self._before(key, stored)
        self.blobs |= blobs
        self.archived += rows
        change = LoggedChange(before, before)
        self.logged.append(LoggedWrite((key, stored, stored), change, rows, converted))

    def _become(
        self,
        write: RecordWrite,
        attachments: Attachments,
        old: Record | None = None,
        changed: Collection[str] = (),
    ) -> Record:
        """Plan a record of these bytes, which is a new one or has changed, and return it."""
        bound, (key, stored, value) = self.bound, write
        assert value is not None
        record = bound.codec.decode(key, value, len(bound.prefix), attachments)
        if attachments.blobs:  # before a check has loaded them
            self.blobs |= new_blobs(record, attachments)
        rows: Sequence[ArchiveRow] = ()
        if attachments.archived:
            rows = list(archive_rows(key, attachments.archived))
            self.archived += rows
            self.blobs |= bound.archived_blobs(attachments)
        if attachments.unneeded and stored is not None:
            self.restored += [(cell, key) for cell in sorted(attachments.unneeded)]
        if bound.checks:
            require_none(find_check_violations(bound, [(key, record)]))
        if not self.records:
            self.first = record
        self.records.append(write)
        if old is None:
            self._follow([(key, record)])
        else:
            self._move(key, old, record, changed)
        if bound.logs_changes:
            before, converted = None, NOT_CONVERTED
            if stored is not None:
                before, blobs, converted = self._before(key, stored)
                self.blobs |= blobs
            self.logged.append(LoggedWrite(write, LoggedChange(before, value), rows, converted))
        return record

    def _follow(self, keyed: Sequence[Keyed]) -> None:
        """Plan what follows from new records."""
        for at, index in enumerate(self.bound.indexes):
            self.added.setdefault(at, []).extend(index.list_entries(keyed))
        for at, reference in enumerate(self.bound.references):
            for _, record in keyed:
                self._refer(at, reference.key_of(record))

    def _move(self, key: bytes, old: Record, new: Record, changed: Collection[str]) -> None:
        """Plan what follows from a change of some fields. The other indexes keep their entries, and
        large values need not be loaded for it."""
        for at, index in enumerate(self.bound.indexes):
            if index.names.isdisjoint(changed):
                continue
            before, after = index.move_entry(key, old, new)
            if before is not None:
                self.removed.setdefault(at, []).append((before, key))
            if after is not None:
                self.added.setdefault(at, []).append((after, key))
        for at, reference in enumerate(self.bound.references):
            if reference.field.name in changed:
                self._refer(at, reference.key_of(new))

    def _refer(self, at: int, target: bytes | None) -> None:
        if target is not None:
            self.targets.setdefault(at, set()).add(target)

    def _before(
        self, key: bytes, stored: bytes
    ) -> tuple[bytes, Mapping[bytes, bytes], Mapping[int, bytes]]:
        """A stored record as the change log keeps it, the blobs that only its conversion makes,
        which the log owns, and the values that it archives."""
        bound = self.bound
        attachments = bound.make_attachments(key, stored)
        value = bound.reader.convert(key, stored, attachments)
        blobs: Mapping[bytes, bytes] = {}
        if attachments.blobs:
            record = bound.codec.decode(key, value, len(bound.prefix), attachments)
            blobs = new_blobs(record, attachments)
        if attachments.archived:
            blobs = {**blobs, **bound.archived_blobs(attachments)}
        _, start = decode_prefix(value, 0)
        return bound.prefix + value[start:], blobs, attachments.archived or NOT_CONVERTED

    def read_new(self) -> Iterator[tuple[int, bytes, Record]]:
        """The records that come, with the fields that indexes, checks and references read: place,
        key and record."""
        if self.first is not None and len(self.records) == 1:
            yield 0, self.records[0][0], self.first
            return
        bound, attachments = self.bound, self.bound.make_attachments()
        attachments.blobs = self.blobs
        for place, write in enumerate(self.records):
            for key, record in decode_new(bound, [write], attachments):
                yield place, key, record


def decode_new(
    bound: BoundTable, rows: Iterable[RecordWrite], attachments: Attachments
) -> list[Keyed]:
    """The records that come, with the fields that indexes, checks and references read."""
    decode, start = bound.decode_demanded, len(bound.prefix)
    return [
        (key, decode(key, value, start, attachments)) for key, _, value in rows if value is not None
    ]


def find_check_violations(
    bound: BoundTable, records: Iterable[Keyed], start: int = 0
) -> dict[int, CheckViolation]:
    """What is wrong with records, by their places, which are counted from `start`."""
    if not bound.checks:
        return {}
    found = dict[int, CheckViolation]()
    for place, (key, record) in enumerate(records, start):
        for check in bound.checks:
            if not check.holds(record):
                found[place] = violations.check_violation(bound, check, key, record)
                break
    return found


def require_none(found: Mapping[int, ZapdbError], hint: str = "") -> None:
    """Raise the error of the first of several records, which knows those of each."""
    if found:
        raise first_of(found, hint)


def first_of(found: Mapping[int, ZapdbError], hint: str) -> ZapdbError:
    """The error of the first of several records, which knows those of each; with a hint about all
    of them."""
    first = found[min(found)]
    error = copy(first)
    error.context, error.hint, error.of_each = {**first.context}, hint or first.hint, found
    return error
