"""The digest of what is exported as text: of a line of JSON for each record, with the names of
fields sorted, or for each archived value, in the order of the keys. It needs no other package, and
is another one than that of columns."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from zapdb.records import Record
from zapdb.records.cell_format import record_to_plain
from zapdb.schema import TableSchema

_ENCODE: Final = json.JSONEncoder(separators=(",", ":"), sort_keys=True).encode


@dataclass
class LineDigest:
    """Takes lines of records (`t1`) or of archived values (`a1`)."""

    algorithm: Literal["t1", "a1"]
    lines: int = 0
    _hash: Any = field(default_factory=hashlib.sha256)

    def add(self, line: str) -> None:
        self.lines += 1
        self._hash.update(f"{line}\n".encode())

    def __str__(self) -> str:
        """The digest of all that was taken, such as `t1:9f86d0…`."""
        return f"{self.algorithm}:{self._hash.hexdigest()}"


def digest_lines(algorithm: Literal["t1", "a1"], lines: Iterable[str]) -> LineDigest:
    digest = LineDigest(algorithm)
    for line in lines:
        digest.add(line)
    return digest


def record_line(table: TableSchema, record: Record) -> str:
    """What the digest takes of a record."""
    return _ENCODE(record_to_plain(table, record))
