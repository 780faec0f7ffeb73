"""What trying a migration shows: a record at each step, failures, remarks, and what tables lose."""

from __future__ import annotations

import dataclasses
import decimal
import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from zapdb.errors import ExampleNotProven, Location, NotProven, RollbackNotProven
from zapdb.values.blob import Blob

_SHOWN_CHARS_MAX: Final = 60

FindingKind = Literal["rollback", "conversion", "example", "remark"]


@dataclass(frozen=True, slots=True)
class ProofFinding:
    """What trying a table showed: a failure, or, where `kind` is "remark", no more than that.

    `record` is the record before the migration, `became` after it, and `back` after the rollback:
    only the fields that concern `field`, each value shortened. Of a stored record that comes back
    otherwise, `key` is the key.
    """

    kind: FindingKind
    migration: str
    table: str
    field: str
    place: Location
    message: str
    hint: str
    record: Mapping[str, str]
    became: Mapping[str, str] = dataclasses.field(default_factory=dict)
    back: Mapping[str, str] = dataclasses.field(default_factory=dict)
    cause: str = ""
    key: bytes = b""

    def to_error(self, further: int = 0) -> NotProven:
        """The error to raise; `further` counts the other failures."""
        kinds: dict[FindingKind, type[NotProven]] = {
            "rollback": RollbackNotProven,
            "example": ExampleNotProven,
        }
        context: dict[str, Any] = {"migration": self.migration, "table": self.table}
        if self.field:
            context["field"] = self.field
        if self.cause:
            context["cause"] = self.cause
        for name in ("record", "became", "back"):
            values = getattr(self, name)
            if values:
                context[name] = ", ".join(f"{key}={value}" for key, value in values.items())
        if further:
            context["failures"] = further + 1
        kind = kinds.get(self.kind, NotProven)
        return kind(self.message, hint=self.hint, location=self.place, **context)


@dataclass(frozen=True, slots=True)
class LossyField:
    """A field whose rollback is not claimed to be exact, and the operation that says so.

    `returned` of the `tried` records came back as they were in it, or all with one value where it
    `is_constant`. `example` is one that did not come back.
    """

    field: str
    operation: str
    place: Location
    because: str
    tried: int
    returned: int
    is_constant: bool
    example: ProofFinding | None


@dataclass(frozen=True, slots=True)
class TableProof:
    """What trying one table showed: `exact` are the changed fields that always came back."""

    table: str
    tried: int
    exact: tuple[str, ...]
    lossy: tuple[LossyField, ...]


def format_proof_value(value: Any) -> str:
    """A value made up by zapdb or given in a document, shortened."""
    if isinstance(value, str | bytes) and len(value) > _SHOWN_CHARS_MAX:
        unit = "characters" if isinstance(value, str) else "bytes"
        return f"{value[:16]!r}… ({len(value):,} {unit})"
    if isinstance(value, int) and not isinstance(value, bool) and value.bit_length() > 128:
        return f"{value:#x}"[:18] + f"… ({value.bit_length()} bits)"
    if isinstance(value, decimal.Decimal):
        return shorten(format(value, "f"))
    return shorten(value.isoformat() if hasattr(value, "isoformat") else repr(value))


def shorten(text: str) -> str:
    return text if len(text) <= _SHOWN_CHARS_MAX else text[: _SHOWN_CHARS_MAX - 1] + "…"


@dataclass(slots=True)
class RecordTrace:
    """A record's bytes after each step, and the error that stopped it, if any."""

    key: bytes
    values: list[bytes]
    archives: list[Mapping[int, bytes]]
    error: Exception | None = None
    failed_at: int = 0
    """How many steps were done when it was stopped."""
    came_back: bool = False
    """Whether it came back as it was."""


class MemoryBlobs:
    """Blobs in memory, and behind them those of a database."""

    def __init__(self, load_stored: Callable[[Blob], bytes] | None = None) -> None:
        self.blobs: dict[bytes, bytes] = {}
        self._load_stored = load_stored
        self._ids = itertools.count(1)

    def load(self, blob: Blob) -> bytes:
        """Raises `BlobMissing` for one that the database lacks."""
        raw = self.blobs.get(blob.id)
        if raw is None:
            assert self._load_stored is not None, "a blob that no record has"
            raw = self._load_stored(blob)
        return raw

    def make_id(self) -> bytes:
        return next(self._ids).to_bytes(16, "big")
