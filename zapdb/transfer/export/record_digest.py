"""The digest of records that are exported as text: of a line of JSON for each, in the order of the
keys, with the names of fields sorted. It needs no other package, and is another one than that of
columns."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from typing import Final

from zapdb.records import Record
from zapdb.records.cell_format import record_to_plain
from zapdb.schema import TableSchema

ALGORITHM: Final = "t1"


class RecordDigest:
    """Takes the records of a table."""

    def __init__(self, table: TableSchema) -> None:
        self._table = table
        self._hash = hashlib.sha256()
        self._encode = json.JSONEncoder(separators=(",", ":"), sort_keys=True).encode
        self.records = 0

    def add(self, record: Record) -> None:
        """Take the next record, in the order of the keys."""
        self.records += 1
        self._hash.update(self._encode(record_to_plain(self._table, record)).encode() + b"\n")

    def __str__(self) -> str:
        """The digest of all that was taken, such as `t1:9f86d0…`."""
        return f"{ALGORITHM}:{self._hash.hexdigest()}"


def digest_records(table: TableSchema, records: Iterable[Record]) -> RecordDigest:
    """The digest of a table's records."""
    digest = RecordDigest(table)
    for record in records:
        digest.add(record)
    return digest
