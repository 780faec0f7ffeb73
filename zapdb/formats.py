"""What a later release may have stored: the numbers of formats, and the words of closed sets.

Whatever is stored with a format has its number beside it: a revision of a table that of its
records, an index that of its keys, a migration the version of its document. A release reads every
number in `LEVELS`, and writes one only once the cluster's level says that every process reads it
(rule 10). From the first release on a format changes by a new number only (rule 34).

Kinds of catalog rows have formats of their own (`zapdb.catalog.row_kinds`), and so has the storage
itself (`zapdb.storage.storage_version`).

Where a row has one word of a closed set, such as the state of a job, a later release may have more
words. So an unknown one is told as a later release's, wherever it is read: `require_word`.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any, Final, Literal

from zapdb import release
from zapdb.errors import CorruptCatalog, IncompatibleVersion
from zapdb.printing import one_line

_WORD: Final = re.compile("[a-z][a-z0-9_ -]{0,39}")
FormatName = Literal["record", "key", "document", "schema"]

LEVELS: Final[dict[FormatName, dict[int, int]]] = {
    "record": {1: 1},  # docs/format/record.md
    "key": {1: 1},  # docs/format/key.md
    "document": {1: 1},  # docs/format/migration.md
    "schema": {1: 1},  # zapdb.schema.canonical_schema
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


def require_word(
    word: str,
    words: Collection[str],
    *,
    repair: str = "restore the row from a backup",
    **context: Any,
) -> None:
    """Raise `IncompatibleVersion` for a stored word that is none of a closed set, `CorruptCatalog`
    for what is no word at all. The context says which row and which set, and `repair` what to do
    if the row was tampered with."""
    if word not in words:
        told = {**context, "word": one_line(word), "known": ", ".join(words)}
        if not _WORD.fullmatch(word):
            raise CorruptCatalog(
                "a stored word is none that a release of zapdb writes",
                **told,
                hint=f"the database was tampered with: {repair}",
            )
        raise IncompatibleVersion(
            "a later release wrote a word that this release does not know",
            **told,
            release=release.__version__,
            hint=f"use a newer release of zapdb; if none wrote here, {repair}",
        )
