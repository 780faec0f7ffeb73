"""A statement and its process: its limits, what it asks for, its answer, and what its end means.

A statement that gives no answer was no SELECT, is wrong, or went beyond a limit.
"""

from __future__ import annotations

import math
import os
import pickle
import re
import signal
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Final, TypeVar

import msgspec
import pyarrow

from zapdb.errors import InvalidValue, SqlError, SqlLimitExceeded, UsageError
from zapdb.limits import (
    SQL_AHEAD_BATCHES_MAX,
    SQL_AHEAD_SIZE_BYTES,
    SQL_MEMORY_SIZE_BYTES,
    SQL_ROWS,
    SQL_SECONDS,
)
from zapdb.past.reading.stored_files import RelationFiles
from zapdb.sandbox.inside import wire
from zapdb.sandbox.inside.batches import pack_batches, pack_schema, unpack_batches
from zapdb.sandbox.inside.wire import BIND
from zapdb.sandbox.processes import STATEMENT, SandboxProcess
from zapdb.sql.result import Result
from zapdb.sql.sources import Source

QUOTED: Final = re.compile(r"'[^'\n]*'|\"[^\"\n]*\"")
KIND: Final = re.compile(r"^[A-Z][A-Za-z ]* (Error|Exception): ")
_PLACE: Final = re.compile(r"\n\nLINE (\d+): (.*)\n( *)\^", re.DOTALL)
NO_TABLE: Final = re.compile(r"Table with name (.*) does not exist!", re.DOTALL)
_VIEW: Final = re.compile(r"^Values list(?= \")")
"""What DuckDB calls a table, as it is offered to a statement."""
_FOREIGN_PARAMETER: Final = re.compile(r"%s|%\(\w+\)s|(?<![:\w]):[A-Za-z_]\w*")
"""What stands for a value in statements of psycopg and SQLAlchemy, and in none of DuckDB's."""
_TIMES: Final = (signal.SIGALRM, signal.SIGXCPU)
NO_MEMORY: Final = re.compile(
    r"^(Out of Memory|MemoryError|malloc|std::bad_alloc)|bad_alloc|realloc of size", re.I
)

_FILES_CLOSED: Final = "disabled by configuration"
FILES_HINT: Final = (
    "a statement reads tables, and no files: `zapdb import FILE` loads a file into a table"
)

WRITES: Final = ("INSERT", "UPDATE", "DELETE", "CREATE", "DROP", "ALTER", "MERGE_INTO")
WRITE_HINT: Final = (
    "db.table(name) has insert, update, upsert and delete; migrations make and change tables"
)
OTHER_HINT: Final = "db.sql answers one SELECT"


def explain_kinds(kinds: Sequence[str]) -> UsageError:
    """What is not one SELECT: the kinds of its statements."""
    if len(kinds) != 1:
        return UsageError(
            "db.sql takes exactly one statement",
            statements=len(kinds),
            hint="call db.sql once for each statement",
        )
    return UsageError(
        "db.sql only reads",
        statement=kinds[0].replace("_", " "),
        hint=WRITE_HINT if kinds[0] in WRITES else OTHER_HINT,
    )


def explain_failure(
    failure: Mapping[str, Any],
    statement: str,
    tables: tuple[str, ...],
    files: Mapping[str, RelationFiles],
    allowance: StatementLimits,
) -> SqlError | UsageError:
    """What the process of a statement reported last; `files` are those of the history store that it
    may read, by the relations that it has for them, of which who asked knows nothing."""
    if "kinds" in failure:
        return explain_kinds([str(kind) for kind in failure["kinds"]])
    if "files" in failure:
        return SqlError(
            "the tables of the SQL statement can't be opened",
            problem=_hide_files(str(failure["files"]).partition("\n")[0], files),
            hint="run it again; if it fails again, this is a bug",
        )
    if NO_MEMORY.search(str(failure["text"])) or failure["class"] == "MemoryError":
        return too_much_memory(allowance)
    shown = {**failure, "text": _hide_files(str(failure["text"]), files)}
    return explain_error(shown, statement, tables)


def _hide_files(text: str, files: Mapping[str, RelationFiles]) -> str:
    for relation, held in files.items():
        for name in (*held.paths, relation):
            text = text.replace(name, "a file of the history store")
    return text


def explain_end(ended: Mapping[str, Any], allowance: StatementLimits) -> SqlError:
    """What it means that the process of a statement ended before its answer did."""
    if "error" in ended:
        return SqlError(
            "the SQL statement could not be started",
            problem=ended["error"],
            hint="check the directory spill_to, and the limits of processes and memory",
        )
    if ended.get("signal") in _TIMES:
        return too_late(allowance)
    return SqlLimitExceeded(
        "the process of the SQL statement crashed",
        max_memory=allowance.max_memory,
        hint="the statement needs too much memory or is nested too deeply; simplify it, "
        "or raise max_memory",
    )


def interrupted() -> SqlError:
    return SqlError("the SQL statement was interrupted", hint="run it again")


def too_late(allowance: StatementLimits) -> SqlLimitExceeded:
    return SqlLimitExceeded(
        "the SQL statement exceeded its time limit",
        seconds=allowance.seconds,
        hint="read less, or raise seconds",
    )


def too_much_memory(allowance: StatementLimits) -> SqlLimitExceeded:
    return SqlLimitExceeded(
        "the SQL statement exceeded its memory limit",
        max_memory=allowance.max_memory,
        hint="read or sort less, pass a directory as spill_to, or raise max_memory",
    )


def too_many_rows(allowance: StatementLimits) -> SqlLimitExceeded:
    return SqlLimitExceeded(
        "the SQL statement returned more rows than its limit",
        max_rows=allowance.max_rows,
        hint="add a LIMIT, or raise max_rows",
    )


def explain_error(failure: Mapping[str, Any], statement: str, tables: tuple[str, ...]) -> SqlError:
    """Return an error of DuckDB, as `sandbox.inside.statement` reports it, with its place.

    It contains no values of records. If a table does not exist, it names that table and the
    existing ones.
    """
    text, lead = KIND.sub("", str(failure["text"])), int(failure["lead"])
    context: dict[str, Any] = {}
    match = _PLACE.search(text)
    if match is not None:
        text = text[: match.start()]
        bound = BIND[:lead] + statement
        context = _find_place(bound, int(match[1]), match[2], len(match[3]))
        context["column"] -= lead if context["line"] == 1 else 0
    if failure["about_values"]:
        text = QUOTED.sub("'…'", text)
    problem, *hints = text.strip().split("\n")
    problem = _VIEW.sub("table", problem)
    if failure["about_values"]:
        hints = []  # they show the value
    if _FILES_CLOSED in problem:
        hints = [FILES_HINT]
    if _FOREIGN_PARAMETER.search(QUOTED.sub("''", statement)):
        hints = ["values are ? or $1 in the statement, or $name: db.sql('… = ?', [value])"]
    missing = NO_TABLE.match(problem)
    if missing is not None:
        return _no_table(missing[1], context, tables)
    return SqlError(
        "the SQL statement failed",
        problem=problem,
        **context,
        hint=" ".join(hint.strip() for hint in hints if hint.strip()),
    )


def _no_table(name: str, context: dict[str, Any], tables: tuple[str, ...]) -> SqlError:
    closest = get_close_matches(name.lower(), tables, n=1)
    shown = [table for table in tables if not table.startswith("zapdb_")]
    return SqlError(
        "the SQL statement failed",
        problem=f"no such table: {name}",
        **context,
        tables=", ".join(shown) or "(none)",
        hint=f"did you mean {closest[0]}?" if closest else "",
    )


def _find_place(statement: str, line: int, excerpt: str, caret: int) -> dict[str, Any]:
    """Line and column, from 1; DuckDB shows a part of a long line, between dots."""
    lines = statement.splitlines()
    whole = lines[line - 1] if 0 < line <= len(lines) else ""
    at = caret - len(f"LINE {line}: ")
    if excerpt.startswith("..."):
        cut = excerpt[3:].removesuffix("...")
        at += whole.find(cut) - 3
    return {"line": line, "column": at + 1}


@dataclass(frozen=True, slots=True)
class StatementLimits:
    """Raises `InvalidValue` for what is no limit."""

    max_memory: int = SQL_MEMORY_SIZE_BYTES
    """Bytes that its process takes, and that its answer takes."""
    seconds: float = SQL_SECONDS
    """From its beginning to the last row of its answer."""
    max_rows: int = SQL_ROWS
    """Rows of the answer."""
    spill_to: str | os.PathLike[str] | None = None
    """A directory; under it is one for the statement alone, while it runs. None: it can't spill."""

    def __post_init__(self) -> None:
        for name, lowest, what in (
            ("max_memory", 1 << 20, "a number of bytes from 1,048,576"),
            ("max_rows", 0, "a number of rows from 0"),
        ):
            value = getattr(self, name)
            if type(value) is not int or not lowest <= value < 1 << 62:
                raise InvalidValue.of(name, what, value)
        is_number = type(self.seconds) in (int, float) and math.isfinite(self.seconds)
        if not is_number or not 0 < self.seconds <= 1e8:
            raise InvalidValue.of("seconds", "a number of seconds above 0", self.seconds)
        if self.spill_to is not None and not Path(self.spill_to).is_dir():
            raise InvalidValue.of("spill_to", "a directory that is there", str(self.spill_to))

    @property
    def spill_path(self) -> str | None:
        return None if self.spill_to is None else str(Path(self.spill_to).resolve())


EXPLAIN: Final = re.compile(r"\s*explain\b(\s+analyze\b)?(\s*\([^)]*\))?", re.IGNORECASE)


_OF_FILES: Final = ("IOException", "InvalidInputException", "InternalException", "Error", "OSError")
"""DuckDB's classes of errors for a file that is missing or damaged, and for other things."""


class FilesUnread(Exception):
    """A statement that reads files failed, maybe because of these; `error` is for the caller."""

    def __init__(self, error: SqlError | UsageError) -> None:
        super().__init__()
        self.error = error


@dataclass(frozen=True, slots=True)
class StatementTables:
    """The tables of a statement, which may read streams and files, and views that give these the
    types of SQL.

    `names` are all that there are, for errors; `large` are fields of which a file has numbers as
    text, because one is too large.
    """

    names: tuple[str, ...]
    sources: list[tuple[str, Source]] = field(default_factory=list)
    files: dict[str, RelationFiles] = field(default_factory=dict)
    large: list[str] = field(default_factory=list)
    views: list[str] = field(default_factory=list)


def run_in_sandbox(
    statement: str, parameters: Any, tables: StatementTables, allowance: StatementLimits
) -> Result:
    """The answer; raises `SqlError`, `UsageError`, `FilesUnread`, and what a source raises."""
    explain = EXPLAIN.match(statement)
    request = {
        "statement": statement,
        "parameters": parameters,
        "explained_at": explain.end() if explain else 0,
        "sources": [(name, pack_schema(source.schema)) for name, source in tables.sources],
        "files": {name: tuple(one) for name, one in tables.files.items()},
        "views": tables.views,
        "max_memory": allowance.max_memory,
        "seconds": allowance.seconds,
    }
    with SandboxProcess(STATEMENT, allowance.seconds, allowance.spill_path) as process:
        sources = [source for _, source in tables.sources]
        answer = _Answer(process.channel, sources, allowance)
        try:
            process.channel.send(wire.REQUEST, pickle.dumps(request))
            failure = answer.gather()
        except wire.Ended:
            if process.is_interrupted:
                raise interrupted() from None
            ended = explain_end(process.end(), allowance)
            raise FilesUnread(ended) if tables.files else ended from None
        except wire.TooLate:
            raise too_late(allowance) from None
        except wire.MessageTooLarge:
            raise too_much_memory(allowance) from None
        if failure is not None:
            if tables.large and failure.get("class") == "ConversionException":
                raise _too_large(tables.large)
            error = explain_failure(failure, statement, tables.names, tables.files, allowance)
            may_be_files = "files" in failure or (
                tables.files and failure.get("class") in _OF_FILES
            )
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
    """A type of DuckDB; see `sandbox.inside.carried`."""

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
                self._channel.send(wire.BATCH, pack_batches(batches[0].schema, *batches))
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
            schema, batches = unpack_batches(data)
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
