"""The process of one statement: an empty DuckDB without access to anything, which ends with it.

Before it reads the statement, it sets limits of the operating system: it can't open a file or a
connection, take more memory, or run for longer. Its records come through its one connection, from
the process that asked.

A statement about the past may also read files of the history store: those of its request, which
DuckDB's settings allow by their full paths, and no others. The operating system still lets it write
none.
"""

from __future__ import annotations

import os
import pickle
import socket
from collections.abc import Iterator, Sequence
from typing import Any, Final, NoReturn

import duckdb
import pyarrow
import pyarrow.acero  # now, since nothing can be imported later: filtering batches needs it
import pyarrow.compute
from pyarrow import dataset

from .batches import pack_batches, unpack_batches, unpack_schema
from .bounds import end_after, give_up
from .carried import describe_arrow_type, quote_identifier, transport_type
from .wire import (
    ANSWER,
    BATCH,
    BIND,
    CLOSE,
    COLUMNS,
    DONE,
    FAILED,
    NEXT,
    SCAN,
    Channel,
)

CONFIGURATION: Final[dict[str, Any]] = {
    "threads": 1,  # what reads a table is asked by one thread
    "async_threads": 0,
    "enable_external_access": "false",
    "allow_community_extensions": "false",
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "python_enable_replacements": "false",
    "allow_persistent_secrets": "false",
    "temp_directory": "",
}
ANSWER_ROWS: Final = 2_048
"""Rows of an answer that travel together."""
SPILL_TIMES_MEMORY: Final = 16
"""How many times its memory limit a statement may store in files."""
EXTRA_FILES: Final = 64
"""How many descriptors a process may have beyond two for each file that it may read."""
ABOUT_VALUES: Final = (
    duckdb.DataError,
    duckdb.InvalidInputException,
    OSError,
    pyarrow.ArrowInvalid,
)
"""Errors whose message may hold a value of a record; a stream of Arrow has errors of its own."""
_PLACE: Final = "\n\nLINE "


def prepare() -> Any:
    """A DuckDB for the processes that are forked."""
    return open_duckdb()


def run(ready: Any, connection: socket.socket, spill: str | None) -> NoReturn:
    """Answer the one statement of the connection with the DuckDB that is ready, or with a new one
    if it may spill; then end the process."""
    try:
        channel = Channel(connection)
        _, data = channel.receive()
        request = pickle.loads(data)  # noqa: S301  # of the process that asks, never from the other
        cursor = None
        try:
            cursor = _shut_in(ready, request, spill)
            _answer(channel, cursor, request)
        except BaseException as error:
            channel.send_json(FAILED, _describe(error, cursor, request))
    finally:
        os._exit(0)


def _shut_in(ready: Any, request: dict[str, Any], spill: str | None) -> Any:
    """Return a DuckDB, and confine this process to it and to the limits of the request."""
    max_memory, seconds = request["max_memory"], request["seconds"]
    files = sorted({path for paths, _ in request["files"].values() for path in paths})
    end_after(seconds)
    os.chdir(spill or "/")
    duck = open_duckdb(spill, files) if spill is not None or files else ready
    duck.execute(f"SET memory_limit = '{max_memory}B'")
    if spill is not None:
        duck.execute(f"SET max_temp_directory_size = '{SPILL_TIMES_MEMORY * max_memory}B'")
    duck.execute("SET lock_configuration = true")
    # Without files: no file, no directory, no connection.
    reads = 2 * len(files) + EXTRA_FILES if files else 0
    give_up(
        max_memory,
        seconds,
        files=None if spill is not None else reads,
        written_bytes=0 if spill is None else SPILL_TIMES_MEMORY * max_memory,
    )
    return duck


def open_duckdb(spill: str | None = None, files: Sequence[str] = ()) -> Any:
    """One that has no threads, so that a process which holds it can be forked. It reads these files
    and no others."""
    configuration = dict(CONFIGURATION)
    if spill is not None:
        configuration["temp_directory"] = spill
    if files:
        del configuration["enable_external_access"]  # until it is known which files are allowed
    # DuckDB reads its temporary directory whatever is configured, and a file of its database's
    # name: one of the working directory, which is private if files are not switched off.
    duck = duckdb.connect(":memory:", config=configuration)
    duck.execute("SET TimeZone = 'UTC'")
    if files:
        duck.execute("SET allowed_paths = $1", [files])
        duck.execute("SET enable_external_access = false")
    elif spill is None:
        duck.execute("SET disabled_filesystems = 'LocalFileSystem'")
    # For its first answer DuckDB reads files about the machine, and it ends if it can't.
    duck.sql("SELECT 1 AS a ORDER BY a").to_arrow_reader(1).read_all()
    return duck


def _answer(channel: Channel, cursor: Any, request: dict[str, Any]) -> None:
    statement, parameters = request["statement"], request["parameters"]
    kinds = _kinds_of(cursor, statement)
    if kinds == ["EXPLAIN"]:
        kinds = _kinds_of(cursor, statement[request["explained_at"] :]) or kinds
    if kinds != ["SELECT"]:
        channel.send_json(FAILED, {"kinds": kinds})
        return
    try:
        _open_tables(channel, cursor, request)
    except duckdb.Error as error:
        channel.send_json(FAILED, {"files": str(error)})
        return
    relation = cursor.sql(statement, params=parameters)
    if relation is None:
        channel.send_json(FAILED, {"kinds": ["UNKNOWN"]})
        return
    columns, kinds = list(relation.columns), list(relation.types)
    channel.send_json(
        COLUMNS, {"columns": columns, "types": [describe_arrow_type(kind) for kind in kinds]}
    )
    carried = [transport_type(kind) for kind in kinds]
    if any(carried):
        relation = relation.project(
            ", ".join(
                f"#{at}"
                if kind is None
                else f"CAST(#{at} AS {kind}) AS {quote_identifier(f'c{at}')}"
                for at, kind in enumerate(carried, 1)
            )
        )
    reader = relation.to_arrow_reader(ANSWER_ROWS)
    channel.send(ANSWER, pack_batches(reader.schema))
    for batch in reader:
        channel.send(ANSWER, pack_batches(batch.schema, batch))
    channel.send(DONE)


def _open_tables(channel: Channel, cursor: Any, request: dict[str, Any]) -> None:
    """Make the views that the statement reads."""
    for name, (paths, names) in request["files"].items():
        view_files(cursor, name, paths, names)
    for number, (name, schema) in enumerate(request["sources"]):
        cursor.register(name, ScannedTable(channel, number, unpack_schema(schema)))
    for view in request["views"]:
        cursor.execute(view)


def view_files(cursor: Any, name: str, paths: list[str], names: dict[str, str]) -> None:
    """Make a view of files; `names` has the name in them of each of its columns."""
    columns = ", ".join(
        f"{quote_identifier(held)} AS {quote_identifier(column)}" for column, held in names.items()
    )
    cursor.read_parquet(paths, hive_partitioning=False).project(columns).create_view(name)


def _kinds_of(cursor: Any, statement: str) -> list[str]:
    try:
        found = cursor.extract_statements(statement)
        return [str(part.type).rpartition(".")[2] for part in found]
    except ValueError:  # a kind that DuckDB's own Python does not know
        return ["UNKNOWN"]


def _describe(error: BaseException, cursor: Any, request: dict[str, Any]) -> dict[str, Any]:
    """An error as plain data; one without a place in the statement is looked for by binding it."""
    failure: dict[str, Any] = {
        "class": type(error).__name__,
        "text": str(error),
        "about_values": isinstance(error, ABOUT_VALUES),
        "lead": 0,
    }
    if cursor is None or not isinstance(error, duckdb.Error) or _PLACE in failure["text"]:
        return failure
    try:
        cursor.execute(BIND + request["statement"], request["parameters"])
    except duckdb.Error as again:
        if _PLACE in str(again):
            about = isinstance(again, ABOUT_VALUES)
            failure |= {"text": str(again), "about_values": about, "lead": len(BIND)}
    except Exception:  # the first error is the one to report
        return failure
    return failure


class ScannedTable(dataset.Dataset):  # type: ignore[misc]  # pyarrow has no types
    """A table of the process that asks, as DuckDB scans it: by columns and a filter, a stream.

    DuckDB takes any `pyarrow.dataset.Dataset`, asks its scanner for a `RecordBatchReader` whenever
    it begins to read, and leaves filtering to it if it passes a filter.
    """

    scans = 0

    def __init__(self, channel: Channel, number: int, schema: Any) -> None:
        self._channel = channel
        self._number = number
        self._schema = schema

    @property
    def schema(self) -> Any:
        return self._schema

    def scanner(
        self, columns: Sequence[str] | None = None, filter: Any = None, **_: Any
    ) -> _Scanner:
        names = self._schema.names if columns is None else list(columns)
        return _Scanner(self, names, filter)

    def read(self, names: Sequence[str], filter: Any) -> Iterator[Any]:
        """Batches of these columns."""
        wanted = pyarrow.schema([self._schema.field(name) for name in names])
        read = {*names, *(() if filter is None else columns_in(filter, self._schema))}
        for batch in self._fetch([name for name in self._schema.names if name in read]):
            full = batch if filter is None else batch.filter(filter)
            yield pyarrow.RecordBatch.from_arrays([full.column(n) for n in names], schema=wanted)

    def _fetch(self, names: list[str]) -> Iterator[Any]:
        scan, ScannedTable.scans = ScannedTable.scans, ScannedTable.scans + 1
        self._channel.send_json(SCAN, {"scan": scan, "source": self._number, "names": names})
        try:
            while True:
                self._channel.send_json(NEXT, {"scan": scan})
                kind, data = self._channel.receive()
                if kind != BATCH:
                    return
                yield from unpack_batches(data)[1]
        except GeneratorExit:  # no more is needed
            self._channel.send_json(CLOSE, {"scan": scan})
            raise


class _Scanner:
    """One reading of a source: what DuckDB asks of a `pyarrow.dataset.Scanner`."""

    def __init__(self, source: ScannedTable, names: Sequence[str], filter: Any) -> None:
        self._source = source
        self._names = names
        self._filter = filter

    @property
    def projected_schema(self) -> Any:
        return pyarrow.schema([self._source.schema.field(name) for name in self._names])

    def to_reader(self) -> Any:
        return pyarrow.RecordBatchReader.from_batches(
            self.projected_schema, self._source.read(self._names, self._filter)
        )


def columns_in(filter: Any, schema: Any) -> list[str]:
    """Return the columns that an Arrow expression reads: without them it can't be evaluated."""
    nothing = pyarrow.RecordBatch.from_pylist([], schema)
    found = []
    for name in schema.names:
        try:
            nothing.select([other for other in schema.names if other != name]).filter(filter)
        except pyarrow.ArrowInvalid:
            found.append(name)
    return found
