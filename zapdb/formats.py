"""The numbers of stored formats: which this release reads, and which it may write.

Whatever is stored with a format has its number beside it: a revision of a table that of its
records, an index that of its keys, a migration the version of its document. A release reads every
number in `LEVELS`, and writes one only once the cluster's level says that every process reads it
(rule 10). From the first release on a format changes by a new number only (rule 34).

Kinds of catalog rows have formats of their own (`zapdb.catalog.row_kinds`), and so has the storage
itself (`zapdb.storage.storage_version`).
"""

from __future__ import annotations

from typing import Any, Final, Literal

from zapdb import release
from zapdb.errors import CorruptCatalog, IncompatibleVersion

FormatName = Literal["record", "key", "document"]

LEVELS: Final[dict[FormatName, dict[int, int]]] = {
    "record": {1: 1},  # docs/format/record.md
    "key": {1: 1},  # docs/format/key.md
    "document": {1: 1},  # docs/format/migration.md
}
"""By format and number: the level that writing it needs."""


def newest(name: FormatName, level: int) -> int:
    """The number to write while the cluster is at a level."""
    return max(number for number, needed in LEVELS[name].items() if needed <= max(level, 1))


def require_known(name: FormatName, number: object, **context: Any) -> None:
    """Raise `IncompatibleVersion` for a number that only a later release reads, `CorruptCatalog`
    for what is no number of a format."""
    if type(number) is not int or number < 1:
        raise CorruptCatalog(
            "what is stored has no format",
            **context,
            cause=f"no number of a format: {name} {number!r:.40}",
            hint="the database was tampered with: restore it from a backup",
        )
    if number not in LEVELS[name]:
        raise IncompatibleVersion(
            "a later release wrote this in a format that this release does not know",
            **context,
            format=f"{name} {number}",
            known=", ".join(map(str, LEVELS[name])),
            release=release.__version__,
            hint="use a newer release of zapdb",
        )
