"""A statement and its process: what it asks for is read for it here, its answer gathered."""

from __future__ import annotations

import json
import pickle
import re
from collections.abc import Iterator, Sequence
from typing import Any, Final, Protocol

import pyarrow

from zapdb.database.sql.allowance import Allowance
from zapdb.database.sql.failures import (
    explain_end,
    explain_failure,
    interrupted,
    too_late,
    too_many_rows,
    too_much_memory,
)
from zapdb.database.sql.processes import StatementProcess
from zapdb.database.sql.result import Result
from zapdb.database.sql.sandbox import wire
from zapdb.database.sql.sandbox.wire import pack_schema
from zapdb.database.sql.sources import Source
from zapdb.errors import InvalidValue, SqlError, UsageError
from zapdb.limits import SQL_AHEAD_BATCHES_MAX, SQL_AHEAD_SIZE_BYTES

EXPLAIN: Final = re.compile(r"\s*explain\b(\s+analyze\b)?(\s*\([^)]*\))?", re.IGNORECASE)


_OF_FILES: Final = ("IOException", "InvalidInputException", "InternalException", "Error", "OSError")
"""DuckDB's classes of errors for a file that is missing or damaged, and for other things."""


class FilesUnread(Exception):
    """A statement that reads files failed, maybe because of these; `error` is for the caller."""

    def __init__(self, error: SqlError | UsageError) -> None:
        super().__init__()
        self.error = error


class Offer(Protocol):
    """The tables of a statement: what it may read, and views that give that the types of SQL.

    `large` are fields of which a file has numbers as text, because one is too large.
    """

    sources: list[tuple[str, Source]]
    files: dict[str, list[str]]
    large: list[str]
    views: list[str]
    names: tuple[str, ...]


def ask(statement: str, parameters: Any, offer: Offer, allowance: Allowance) -> Result:
    """The answer; raises `SqlError`, `UsageError`, `FilesUnread`, and what a source raises."""
    explain = EXPLAIN.match(statement)
    request = {
        "statement": statement,
        "parameters": parameters,
        "explained_at": explain.end() if explain else 0,
        "sources": [(name, pack_schema(source.schema)) for name, source in offer.sources],
        "files": offer.files,
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


def _read_json(data: bytearray) -> dict[str, Any]:
    try:
        value: dict[str, Any] = json.loads(data)
    except (ValueError, RecursionError):
        raise wire.Ended from None
    return value


class _Answer:
    """The answer of a process that runs a statement: its messages are checked, and not trusted."""

    def __init__(
        self, channel: wire.Channel, sources: Sequence[Source], allowance: Allowance
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
                return None
            if kind == wire.ANSWER:
                self._keep(data)
                continue
            value = _read_json(data)
            if kind == wire.FAILED:
                return value
            if kind == wire.COLUMNS:
                self.columns, self.types = value["columns"], value["types"]
            else:
                self._serve(kind, value)

    def _serve(self, kind: bytes, value: dict[str, Any]) -> None:
        scan = value["scan"]
        if kind == wire.SCAN:
            self._scans[scan] = self._sources[value["source"]].read(value["names"])
        elif kind == wire.CLOSE:
            del self._scans[scan]
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
        self._size_bytes += len(data)
        try:
            self.schema, batches = wire.unpack_batches(data)
            for batch in batches:
                batch.validate()
        except pyarrow.ArrowException:
            raise wire.Ended from None
        self.batches += batches
        self._rows += sum(batch.num_rows for batch in batches)
        if self._rows > self._allowance.max_rows:
            raise too_many_rows(self._allowance)
