"""Which blobs a record owns, found without decoding it.

A finder steps through a record by the lengths of its fields, as `Codec.skip` does, and collects the
blobs on the way; it stops after the last field that may hold one. The sweep and the verification
read whole tables with it, so it is generated for each layout.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from zapdb.errors import CorruptRecord
from zapdb.records.codec import presence_source
from zapdb.records.layout import Layout, decode_prefix
from zapdb.records.unreadable import decode_unreadable
from zapdb.values.blob import find_blob_source
from zapdb.values.generated_source import Namespace, compile_function, indent

FindBlobs = Callable[[bytes, int], list[tuple[bytes, int]]]
"""(record, position after its prefix) → the ids and sizes of its blobs; raises `CorruptRecord`."""


class OwnedBlobs:
    """Finds the blobs of one table's records, whatever their revision.

    `layouts` gives the layout of each revision; a finder is compiled for each revision that occurs.
    """

    def __init__(self, layouts: Mapping[int, Layout]) -> None:
        self._layouts = layouts
        self._finders: dict[int, FindBlobs | None] = {}

    @property
    def are_possible(self) -> bool:
        """Whether a record of any revision can own a blob."""
        return any(_outlined(layout) for layout in self._layouts.values())

    def find(self, value: bytes) -> list[tuple[bytes, int]]:
        """The ids and sizes of a record's blobs; raises `CorruptRecord`, also for a revision
        without a layout: what can't be read may own anything."""
        revision, start = decode_prefix(value, 0)
        try:
            find = self._finders[revision]
        except KeyError:
            find = self._finders[revision] = self._compile(revision, value)
        return [] if find is None else find(value, start)

    def find_logged(self, value: bytes) -> list[tuple[bytes, int]]:
        """The same of a record as the change log has it; of one that could not be read, what can be
        found."""
        unreadable = decode_unreadable(value)
        if unreadable is None:
            return self.find(value)
        try:
            return self.find(unreadable.stored)
        except CorruptRecord:
            return []

    def _compile(self, revision: int, value: bytes) -> FindBlobs | None:
        layout = self._layouts.get(revision)
        if layout is None:
            raise CorruptRecord.at(f"record of the unknown revision {revision}", value, 0)
        return compile_find(layout)


def compile_find(layout: Layout) -> FindBlobs | None:
    """The finder of a layout; None if no field can hold a blob."""
    last = max(_outlined(layout), default=None)
    if last is None:
        return None
    names = Namespace()
    lines = ["found = []", "n = len(b)"]
    if layout.presence_size_bytes:
        lines += presence_source(layout, names)
    for slot in layout.slots[: last + 1]:
        kind = slot.type
        step = find_blob_source(names) if kind.may_be_blob else kind.skip_field_source(names)
        if slot.optional:
            lines += [f"if m & {1 << layout.bit(slot.number)}:", *indent(step)]
        else:
            lines += step
    corrupt = names.bind(CorruptRecord.at, "corrupt")
    lines += [f"if p > n: raise {corrupt}('record', b, p)", "return found"]
    body = [
        "def find(b, p):",
        "    try:",
        *indent(lines, 2),
        "    except IndexError:",
        f"        raise {corrupt}('record', b, p) from None",
    ]
    return compile_function("find", body, names, "blobs of a record")[0]


def _outlined(layout: Layout) -> list[int]:
    """The places of the slots that may hold a blob."""
    return [at for at, slot in enumerate(layout.slots) if slot.type.may_be_blob]
