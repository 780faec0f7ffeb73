"""A statement and its process: what it asks for is read for it here, its answer gathered."""

from __future__ import annotations

import pickle
import re
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Final, Protocol, TypeVar

import msgspec
import pyarrow

from zapdb.errors import InvalidValue, SqlError, UsageError
from zapdb.limits import SQL_AHEAD_BATCHES_MAX, SQL_AHEAD_SIZE_BYTES
from zapdb.past.reading.stored_files import RelationFiles
from zapdb.sql.allowance import StatementLimits
from zapdb.sql.failures import (
    explain_end,
    explain_failure,
    interrupted,
    too_late,
    too_many_rows,
    too_much_memory,
)
from zapdb.sql.processes import StatementProcess
from zapdb.sql.result import Result
from zapdb.sql.sandbox import wire
from zapdb.sql.sandbox.wire import pack_schema
from zapdb.sql.sources import Source

EXPLAIN: Final = re.compile(r"\s*explain\b(\s+analyze\b)?(\s*\([^)]*\))?", re.IGNORECASE)


_OF_FILES: Final = ("IOException", "InvalidInputException", "InternalException", "Error", "OSError")
"""DuckDB's classes of errors for a file that is missing or damaged, and for other things."""


class FilesUnread(Exception):
    """A statement that reads files failed, maybe because of these; `error` is for the caller."""

    def __init__(self, error: SqlError | UsageError) -> None:
        super().__init__()
        self.error = error


class StatementInputs(Protocol):
    """The tables of a statement: what it may read, and views that give that the types of SQL.

    `large` are fields of which a file has numbers as text, because one is too large.
    """

    sources: list[tuple[str, Source]]
    files: dict[str, RelationFiles]
    large: list[str]
    views: list[str]
    names: tuple[str, ...]


def run_in_sandbox(
    statement: str, parameters: Any, offer: StatementInputs, allowance: StatementLimits
) -> Result:
    """The answer; raises `SqlError`, `UsageError`, `FilesUnread`, and what a source raises."""
    explain = EXPLAIN.match(statement)
    request = {
        "statement": statement,
        "parameters": parameters,
        "explained_at": explain.end() if explain else 0,
        "sources": [(name, pack_schema(source.schema)) for name, source in offer.sources],
        "files": {name: tuple(one) for name, one in offer.files.items()},
        "views": offer.views,
        "max_memory": allowance.max_memory,
        "seconds": allowance.seconds,
    }
    with StatementProcess(allowance.seconds, allowance.spill_path) as process:
        sources = [source for _, source in offer.sources]
        answer = _Answer(process.channel, sources, allowance)
        try:
            process.channel.send(wire.REQUEST, pickle.dumps(request))
            failure = answer.gather()
        except wire.Ended:
            if process.is_interrupted:
                raise interrupted() from None
            ended = explain_end(process.end(), allowance)
            raise FilesUnread(ended) if offer.files else ended from None
        except wire.TooLate:
            raise too_late(allowance) from None
        except wire.MessageTooLarge:
            raise too_much_memory(allowance) from None
        if failure is not None:
            if offer.large and failure.get("class") == "ConversionException":
                raise _too_large(offer.large)
            error = explain_failure(failure, statement, offer.names, offer.files, allowance)
            may_be_files = "files" in failure or (offer.files and failure.get("class") in _OF_FILES)
            raise FilesUnread(error) if may_be_files else error
    return Result.make(answer.columns, answer.types, answer.schema, answer.batches)


def _too_large(fields: Sequence[str]) -> InvalidValue:
    """The error for numbers that files have as text, and a statement did not ask for as text."""
    return InvalidValue(
        "an integer is too large for its Arrow column",
        field=", ".join(fields),
        hint=f"as_text={list(fields)} makes columns of strings",
    )


class Kind(msgspec.Struct, forbid_unknown_fields=True):
    """A type of DuckDB; see `sandbox.carried`."""

    id: str
    text: str
    parts: list[tuple[str, Kind]] | None = None


class Columns(msgspec.Struct, forbid_unknown_fields=True):
    columns: list[str]
    types: list[Kind]


class Scan(msgspec.Struct, forbid_unknown_fields=True):
    scan: int
    source: int
    names: list[str]


class ScanNumber(msgspec.Struct, forbid_unknown_fields=True):
    scan: int


class Failure(msgspec.Struct, forbid_unknown_fields=True, rename={"name": "class"}):
    """One of `FAILURES`."""

    kinds: list[str] | msgspec.UnsetType = msgspec.UNSET
    files: str | msgspec.UnsetType = msgspec.UNSET
    name: str | msgspec.UnsetType = msgspec.UNSET
    text: str | msgspec.UnsetType = msgspec.UNSET
    lead: Annotated[int, msgspec.Meta(ge=0, le=len(wire.BIND))] | msgspec.UnsetType = msgspec.UNSET
    about_values: bool | msgspec.UnsetType = msgspec.UNSET


FAILURES: Final = ({"kinds"}, {"files"}, {"class", "text", "lead", "about_values"})
"""What a failure has: it was no SELECT, the tables can't be opened, or an error of DuckDB."""
M = TypeVar("M")


def _read(data: bytearray, kind: type[M]) -> M:
    """Read a message of the process of a statement; raises `Ended` for one that it does not
    send."""
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        raise wire.Ended from None


def _read_failure(data: bytearray) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.to_builtins(_read(data, Failure))
    if {*found} not in FAILURES:
        raise wire.Ended
    return found


def _to_kind(kind: Kind) -> dict[str, Any]:
    found: dict[str, Any] = {"id": kind.id, "text": kind.text}
    if kind.parts is not None:
        found["parts"] = [[name, _to_kind(part)] for name, part in kind.parts]
    return found


def _without_ranges(kind: Any) -> Any:
    """A type of Arrow with the same bytes, all of which are values of it: DuckDB has times of 24:00
    and numbers of 39 digits, which `decode` refuses by name, and a full validation would too."""
    is_of, plain = pyarrow.types, _without_ranges
    if is_of.is_time32(kind):
        return pyarrow.int32()
    if is_of.is_time64(kind):
        return pyarrow.int64()
    if is_of.is_decimal(kind):
        return pyarrow.binary(kind.byte_width)
    if is_of.is_list(kind) or is_of.is_fixed_size_list(kind):
        size = kind.list_size if is_of.is_fixed_size_list(kind) else -1
        return pyarrow.list_(kind.value_field.with_type(plain(kind.value_type)), size)
    if is_of.is_map(kind):
        parts = [kind.key_field, kind.item_field]
        return pyarrow.map_(*(part.with_type(plain(part.type)) for part in parts))
    if is_of.is_struct(kind):
        return pyarrow.struct([part.with_type(plain(part.type)) for part in kind])
    if is_of.is_union(kind):
        parts = [part.with_type(plain(part.type)) for part in kind]
        return pyarrow.union(parts, mode=kind.mode, type_codes=kind.type_codes)
    return kind


class _Answer:
    """The answer of a process that runs a statement: its messages are checked, and not trusted."""

    def __init__(
        self, channel: wire.Channel, sources: Sequence[Source], allowance: StatementLimits
    ) -> None:
        self._channel = channel
        self._sources = sources
        self._allowance = allowance
        self._scans: dict[int, Iterator[Any]] = {}
        self._ahead: dict[int, int] = {}
        self._rows = self._size_bytes = 0
        self.columns: list[str] = []
        self.types: list[dict[str, Any]] = []
        self.schema: Any = None
        self.batches: list[Any] = []

    def gather(self) -> dict[str, Any] | None:
        """Serve the process until its answer is complete; return None, or the error that it
        sent."""
        while True:
            kind, data = self._channel.receive(self._allowance.max_memory - self._size_bytes)
            if kind == wire.DONE:
                self._require_columns()
                return None
            if kind == wire.ANSWER:
                self._keep(data)
            elif kind == wire.FAILED:
                return _read_failure(data)
            elif kind == wire.COLUMNS:
                described = _read(data, Columns)
                self.columns = described.columns
                self.types = [_to_kind(one) for one in described.types]
            elif kind == wire.SCAN:
                self._begin_scan(_read(data, Scan))
            else:
                self._serve(kind, _read(data, ScanNumber).scan)

    def _require_columns(self) -> None:
        """Raise `Ended` unless the answer has the columns that were described."""
        if self.schema is None or not len(self.schema) == len(self.columns) == len(self.types):
            raise wire.Ended

    def _begin_scan(self, asked: Scan) -> None:
        if asked.scan in self._scans or not 0 <= asked.source < len(self._sources):
            raise wire.Ended
        source = self._sources[asked.source]
        if not {*asked.names} <= {*source.schema.names}:
            raise wire.Ended
        self._scans[asked.scan] = source.read(asked.names)

    def _serve(self, kind: bytes, scan: int) -> None:
        if scan not in self._scans:
            raise wire.Ended
        if kind == wire.CLOSE:
            del self._scans[scan]
        elif kind != wire.NEXT:
            raise wire.Ended
        else:
            batches = self._read_ahead(scan)
            if batches:
                self._channel.send(wire.BATCH, wire.pack_batches(batches[0].schema, *batches))
            else:
                self._channel.send(wire.END)

    def _read_ahead(self, scan: int) -> list[Any]:
        """Return one batch at first, since no more may be needed; then more at a time."""
        batches: list[Any] = []
        count = self._ahead.get(scan, 1)
        while len(batches) < count and sum(b.nbytes for b in batches) < SQL_AHEAD_SIZE_BYTES:
            batch = next(self._scans[scan], None)
            if batch is None:
                break
            batches.append(batch)
        self._ahead[scan] = min(2 * count, SQL_AHEAD_BATCHES_MAX)
        return batches

    def _keep(self, data: bytearray) -> None:
        """Keep batches; raises `Ended` for those that are none: what their offsets point to, and
        not only where, since it would be read from this process's memory."""
        self._size_bytes += len(data)
        try:
            schema, batches = wire.unpack_batches(data)
            for batch in batches:
                batch.validate()
                for column in batch.columns:
                    kind = _without_ranges(column.type)
                    (column if kind == column.type else column.view(kind)).validate(full=True)
        except (pyarrow.ArrowException, OSError, ValueError, MemoryError):
            raise wire.Ended from None
        if self.schema is not None and not schema.equals(self.schema):
            raise wire.Ended
        self.schema = schema
        self.batches += batches
        self._rows += sum(batch.num_rows for batch in batches)
        if self._rows > self._allowance.max_rows:
            raise too_many_rows(self._allowance)
