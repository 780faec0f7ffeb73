"""Reading records of any revision as records of one schema.

A reader is compiled for each revision that occurs: a decoder if the record has the current layout,
else a conversion followed by the decoder. Programs are composed once, directly from the revision's
place on the chain to the current one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from zapdb.errors import CorruptRecord
from zapdb.records import native
from zapdb.records.attachments import Attachments, MakeAttachments, ReadConflict
from zapdb.records.codec import Decode
from zapdb.records.conversion import Conversion
from zapdb.records.layout import decode_prefix, encode_prefix
from zapdb.records.record import Record
from zapdb.records.unreadable import UNREADABLE_MARK, was_unreadable

Program = Callable[[int], Conversion | None]
"""revision → the program to the current layout; None if the layout is the current one.
Raises `KeyError` for a revision without a place on the chain."""

NameRecord = Callable[[CorruptRecord, bytes], object]
"""Adds to an error which record it is about, by its key."""

Rows = Sequence[tuple[bytes, bytes]]
"""Keys and records."""
PagedRow = tuple[bytes, bytes, bytes]
"""A key on the path, the key of the record, and the stored record. If the first is a full key, rows
are in the order of these two keys."""
PagedRows = list[PagedRow]


class RecordReader:
    """Decodes (key, record) pairs, whatever their revision; `prefix` starts converted records.

    `make_attachments` makes the attachments of a record that is read: what a conversion adds to
    them is for this read alone. `name` adds to a `CorruptRecord` which record it is.
    """

    def __init__(
        self,
        decode: Decode,
        program: Program,
        revision: int,
        make_attachments: MakeAttachments,
        name: NameRecord = lambda _, __: None,
    ) -> None:
        self._decode = decode
        self._iterate = native.iterate_of(decode)
        self.prefix = encode_prefix(revision)
        self._program = program
        self._make_attachments = make_attachments
        self._name = name
        self._read: dict[int, Callable[[bytes, bytes], Record]] = {}
        self._convert: dict[int, Callable[[bytes, bytes, Attachments], bytes] | None] = {}
        self._convert_rows: dict[int, Callable[[Rows], list[bytes]]] = {}
        self._plain: dict[bytes, tuple[int, Attachments]] = {}
        """Where the fields of records begin that have the current layout, and their attachments, by
        their first byte."""

    def read(self, key: bytes, value: bytes) -> Record:
        """Return the record by the current schema; raise `CorruptRecord`, also for unknown
        revisions.

        Raises `TransactionConflict` if the record was deleted while its archive was searched for.
        """
        try:
            first = value[0]
            read = self._read.get(first) if first < 0xC0 else None
        except (IndexError, TypeError):
            error = _no_record(value)
            self._name(error, key)
            raise error from None
        try:
            return (read or self._read[self._slot_of(value)])(key, value)
        except CorruptRecord as error:
            self._name(error, key)
            raise

    def read_many(self, rows: PagedRows) -> Iterator[tuple[bytes, Record]]:
        """Return the records of a page with their keys; each is read when it is taken, as `read`
        does."""
        if len(rows) == 1:
            _, key, value = rows[0]
            return iter(((key, self.read(key, value)),))
        first = rows[0][2][:1] if rows else b""
        plain = self._plain.get(first)
        if plain is not None and self._iterate is not None:
            return self._iterate(rows, first, plain[1], self.read)
        keys, values = [key for _, key, _ in rows], [value for _, _, value in rows]
        if plain is None or {value[:1] for value in values} != {first}:
            return zip(keys, map(self.read, keys, values), strict=True)
        return self._decode_many(keys, values, *plain)

    def _decode_many(
        self, keys: list[bytes], values: list[bytes], start: int, shared: Attachments
    ) -> Iterator[tuple[bytes, Record]]:
        decode, key = self._decode, b""
        try:
            for key, value in zip(keys, values, strict=True):
                yield key, decode(key, value, start, shared)
        except CorruptRecord as error:
            self._name(error, key)
            raise

    def open(self, key: bytes, value: bytes, attachments: Attachments) -> tuple[Record, bytes]:
        """Do `read` and `convert` together: the record refers to the attachments of `convert`."""
        converted = self.convert(key, value, attachments)
        _, start = decode_prefix(converted, 0)
        try:
            return self._decode(key, converted, start, attachments), converted
        except CorruptRecord as error:
            self._name(error, key)
            raise

    def convert(self, key: bytes, value: bytes, attachments: Attachments) -> bytes:
        """The record's bytes in the current layout; the same object if they have it already.

        What has to be stored with them is added to `attachments`.
        """
        slot = value[0] if value else 0
        try:
            if slot not in self._convert:
                slot = self._slot_of(value)
            convert = self._convert[slot]
            return value if convert is None else convert(key, value, attachments)
        except CorruptRecord as error:
            self._name(error, key)
            raise

    def convert_rows(self, rows: Rows) -> Iterator[tuple[Rows, list[bytes] | None]]:
        """Convert many records, those of a revision together.

        Yields some of the rows and their bytes in the current layout; None if each of them has to
        be converted by itself, because it may have attachments, or has the layout already.
        """
        for group in _group_by_revision(rows):
            convert = self._convert_rows.get(self._slot_of(group[0][1]))
            yield group, None if convert is None else convert(group)

    def _slot_of(self, value: bytes) -> int:
        """Where what belongs to a record's revision is filed, which is prepared now if it is not
        yet."""
        if value.startswith(UNREADABLE_MARK):
            raise was_unreadable(value)
        revision, _ = decode_prefix(value, 0)
        # Revisions beyond 63 have longer prefixes; they are filed by number, out of the way of
        # the first bytes 0x81 … 0xBF, by which the others are found without decoding them.
        slot = 0x80 + revision if revision < 64 else 0x100 + revision
        if slot not in self._convert:
            self._prepare(revision, slot, value)
        return slot

    def _prepare(self, revision: int, slot: int, value: bytes) -> None:
        try:
            program = self._program(revision)
        except KeyError:
            raise CorruptRecord.at(f"record of the unknown revision {revision}", value, 0) from None
        decode, start = self._decode, len(encode_prefix(revision))
        # `_convert` gets a slot last, since other threads look there first.
        # Nothing is added to attachments that records share: they only load stored blobs.
        shared = self._make_attachments(b"", b"")
        if program is None:
            self._read[slot] = lambda key, value: decode(key, value, start, shared)
            if start == 1:
                self._plain[value[:1]] = start, shared
            self._convert[slot] = None
            return
        convert, prefix = program.convert, self.prefix
        after, make_attachments = len(prefix), self._make_attachments

        def read(key: bytes, value: bytes) -> Record:
            return decode(key, convert(key, value, start, prefix, shared), after, shared)

        def read_with_attachments(key: bytes, value: bytes) -> Record:
            attachments = make_attachments(key, value)
            try:
                converted = convert(key, value, start, prefix, attachments)
            except ReadConflict as conflict:
                return self.read(key, conflict.value_or_conflict())
            return decode(key, converted, after, attachments)

        self._read[slot] = read if program.is_self_contained else read_with_attachments
        if program.is_self_contained:
            self._convert_rows[slot] = lambda rows: program.convert_rows(rows, start, prefix)
        self._convert[slot] = lambda key, value, attachments: convert(
            key, value, start, prefix, attachments
        )


def _group_by_revision(rows: Rows) -> list[Rows]:
    """Put records of one revision together; mostly all of them have the same."""
    if not rows:
        return []
    _, start = decode_prefix(rows[0][1], 0)
    if len({value[:start] for _, value in rows}) == 1:
        return [rows]
    groups = dict[int, list[tuple[bytes, bytes]]]()
    for row in rows:
        groups.setdefault(decode_prefix(row[1], 0)[0], []).append(row)
    return list(groups.values())


def _no_record(value: object) -> CorruptRecord:
    if type(value) is bytes:
        return CorruptRecord.at("record without a revision", value, 0)
    return CorruptRecord(
        "a stored record is not bytes",
        what="a record that is not bytes",
        found=type(value).__name__,
        hint="run `zapdb verify` for all such records; restore them from a backup, or delete "
        "them with `zapdb data discard`",
    )
