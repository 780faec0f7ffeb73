"""Writing a file of the history store, and checking one that is read.

A file is written under a name that nobody reads, flushed to the disk, renamed, and flushed with its
directory. Only then does a row name it. So a row never names a file that a crash could take back,
and a file without a row is one of a batch that did not end.

Whoever erases deletes files that no row names, also unfinished ones. So that none appears later, of
a process that stood still meanwhile, the lease is looked at when a file is there, and is empty: who
has lost it writes nothing, and who loses it afterwards has a file that can't be renamed any more.
"""

from __future__ import annotations

import base64
import hashlib
import io
import os
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, BinaryIO, Final, Self

import msgspec
import pyarrow
from pyarrow import compute, parquet, types

from zapdb.errors import CorruptCatalog, HistoryDamaged
from zapdb.limits import HISTORY_HELD_SIZE_BYTES
from zapdb.log.moments import LoggedMoment
from zapdb.memo import Memo
from zapdb.past.files.directories import require_directory
from zapdb.past.files.file_columns import FROM, KEY, UNTIL, to_file
from zapdb.past.files.history_manifest import (
    HISTORY_FORMAT,
    NO_TABLE,
    HistoryFile,
    HistoryStore,
    path_of,
)
from zapdb.records.arrow.bounded_parquet import require_bounded
from zapdb.schema import TableSchema, canonical_bytes, read_canonical_bytes
from zapdb.storage.fixed_tables import FileKind

FOOTER_KEY: Final = b"zapdb.history"
SCHEMA_KEY: Final = b"zapdb.schema"
ROW_GROUP_ROWS: Final = 20_000
"""Rows of a row group: what is read at least where one key is asked for."""
COMPRESSION: Final = "zstd"
OWN_ENCODINGS: Final = {
    KEY: "DELTA_BYTE_ARRAY",
    FROM: "DELTA_BINARY_PACKED",
    UNTIL: "DELTA_BINARY_PACKED",
}
SAMPLED_ROWS: Final = 1_000
"""Rows by which is told whether the values of a column recur."""
DICTIONARY_SIZE_BYTES: Final = 32 * 1024
"""A larger dictionary of a column is given up: its values differ too much for one."""
RELEASED_SIZE_BYTES: Final = 64 * 1024 * 1024
"""Rows after which a writer gives back what the pool of Arrow does not use: the system takes longer
to give it again, page by page, than a row group takes to be sorted."""
OTHER_DIGEST: Final = "its digest is another one"
NOT_THERE: Final = "it is not there"
UNFINISHED: Final = ".part"
"""What the name of a file ends with until it is complete."""
_COMPARED: Final = Memo[tuple[Path, bytes, tuple[int, ...]], bool](10_000)
"""Whether files had their digests, which this process has looked at."""


@dataclass(frozen=True, slots=True)
class FileFooter:
    """What a file says of itself, so that a store can be read without its database.

    `database` is the id of the database, `position` and `migration` are number and id of the newest
    migration when the table got its revision, and `bookmark` is the place of `last_moment` in the
    change log. `table` is 0, and `name` empty, for a file of moments. `commit` is the number of the
    commit that it was written for.
    """

    format: int
    database: str
    tenant: int
    timeline: str
    kind: FileKind
    table: int
    name: str
    era: int
    first_moment: int
    last_moment: int
    bookmark: str
    revision: int
    position: int
    migration: int
    commit: int

    @classmethod
    def of_moments(
        cls, database: str, store: HistoryStore, first: int, until: LoggedMoment
    ) -> FileFooter:
        """What a file of the moments from the first to the last says, written for the store's next
        commit; files of eras say more."""
        return cls(
            format=HISTORY_FORMAT,
            database=database,
            tenant=store.tenant,
            timeline=store.timeline,
            kind="moments",
            table=NO_TABLE,
            name="",
            era=0,
            first_moment=first,
            last_moment=until.number,
            bookmark=str(until.bookmark),
            revision=0,
            position=0,
            migration=0,
            commit=store.commits + 1,
        )

    @classmethod
    def parse(cls, text: bytes) -> Self:
        """Raises `msgspec.MsgspecError`."""
        return msgspec.json.decode(text, type=cls)


class FileWriter:
    """Writes one file below a store's directory: rows of one Arrow schema, in their order.

    `schema` is that of the table when the file's era began, which the footer holds, and whose names
    the columns get; None for moments. Row groups have `ROW_GROUP_ROWS`, fewer if these are large.
    Raises `OSError`, and what `require_lease` raises, before it writes anything. What is not
    finished is deleted at the end of the block.
    """

    def __init__(
        self,
        directory: Path,
        footer: FileFooter,
        schema: TableSchema | None,
        require_lease: Callable[[], None],
    ) -> None:
        self._require_lease = require_lease
        self._name = uuid.uuid4().hex
        self._footer, self._schema = footer, schema
        within = path_of(footer.tenant, footer.table, footer.kind, self._name)
        self._path = directory / within
        self._unfinished = unfinished_of(self._path)
        self._file: Any = None
        self._writer: Any = None
        self._waiting: list[Any] = []
        self._waiting_rows = self._waiting_bytes = self._passed_bytes = 0
        self.rows = self.size_bytes = 0
        """Those that were written, and how large they are in memory."""
        self._keys: tuple[bytes | None, bytes | None] = (None, None)

    def __enter__(self) -> Self:
        make_directory(self._path.parent)
        try:
            self._file = pyarrow.OSFile(str(self._unfinished), "wb")
            self._require_lease()
        except BaseException:
            self._give_up()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._give_up()

    def _give_up(self) -> None:
        for opened in (self._writer, self._file):
            with suppress(OSError):
                if opened is not None:
                    opened.close()
        with suppress(OSError):
            self._unfinished.unlink(missing_ok=True)

    def write(self, table: Any) -> None:
        self._waiting.append(table if self._schema is None else to_file(table, self._schema))
        self._waiting_rows += table.num_rows
        self._waiting_bytes += table.nbytes
        if self._waiting_bytes >= HISTORY_HELD_SIZE_BYTES:
            self._write_waiting(self._waiting_rows)
        elif self._waiting_rows >= ROW_GROUP_ROWS:
            self._write_waiting(self._waiting_rows // ROW_GROUP_ROWS * ROW_GROUP_ROWS)
        if table.num_rows and KEY in table.column_names:
            keys = table.column(KEY)
            first = keys[0].as_py() if self._keys[0] is None else self._keys[0]
            self._keys = first, keys[-1].as_py()
        self.rows += table.num_rows
        self.size_bytes += table.nbytes

    def _write_waiting(self, rows: int) -> None:
        """Write so many of the rows that wait; the others become a row group with later ones."""
        joined = pyarrow.concat_tables(self._waiting)
        if self._writer is None:
            self._writer = self._open(joined)
        self._writer.write_table(joined.slice(0, rows), row_group_size=ROW_GROUP_ROWS)
        rest = joined.slice(rows)
        self._waiting = [rest] if rest.num_rows else []
        self._waiting_rows, self._waiting_bytes = rest.num_rows, rest.nbytes
        self._passed_bytes += joined.nbytes
        if self._passed_bytes >= RELEASED_SIZE_BYTES:
            self._release()

    def _release(self) -> None:
        """Give back what the pool of Arrow does not use."""
        pyarrow.default_memory_pool().release_unused()
        self._passed_bytes = 0

    def _open(self, rows: Any) -> Any:
        """Begin the file, whose first rows tell how its columns are encoded."""
        return parquet.ParquetWriter(
            self._file,
            rows.schema.with_metadata(_metadata(self._footer, self._schema)),
            compression=COMPRESSION,
            write_page_checksum=True,
            **choose_encodings(rows),
        )

    def finish(self) -> HistoryFile:
        """Complete the file, which needs at least one table, and return its row."""
        if self._waiting_rows or self._writer is None:
            self._write_waiting(self._waiting_rows)
        self._writer.close()
        self._file.close()
        self._release()
        with self._unfinished.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").digest()
            size = file.seek(0, os.SEEK_END)
            os.fsync(file.fileno())
        self._unfinished.rename(self._path)
        sync_directory(self._path.parent)
        _COMPARED.put(_name_state(self._path, digest), True)
        footer, (key_lower, key_upper) = self._footer, self._keys
        return HistoryFile(
            tenant=footer.tenant,
            timeline=footer.timeline,
            id=self._name,
            table_number=footer.table,
            era=footer.era,
            kind=footer.kind,
            first_moment=footer.first_moment,
            last_moment=footer.last_moment,
            revision=footer.revision,
            rows=self.rows,
            size_bytes=size,
            sha256=digest,
            key_lower=key_lower,
            key_upper=key_upper,
        )


def write_file(
    directory: Path,
    described: tuple[FileFooter, TableSchema | None],
    tables: Iterable[Any],
    require_lease: Callable[[], None],
) -> HistoryFile:
    """Write one file of tables, as `FileWriter` does, and return its row."""
    with FileWriter(directory, *described, require_lease) as writer:
        for table in tables:
            writer.write(table)
        return writer.finish()


def choose_encodings(rows: Any) -> dict[str, Any]:
    """Return how the columns of a file are written that begins with these rows: keys, moments,
    numbers and times by what they differ from the row before, and values that recur by
    dictionaries, as long as these are small. The former may be in the order of keys: so they have
    statistics. Other binaries, such as UUIDs, have their lengths apart."""
    own = {name: encoding for name, encoding in OWN_ENCODINGS.items() if name in rows.column_names}
    first, dictionaries, apart = rows.slice(0, SAMPLED_ROWS), list[str](), dict[str, str]()
    for one in rows.schema:
        if one.name in own:
            continue
        if types.is_nested(one.type):
            dictionaries += _list_leaves(one)
        elif _recurs(first.column(one.name)):
            dictionaries.append(one.name)
        elif types.is_integer(one.type) or types.is_temporal(one.type):
            own[one.name] = "DELTA_BINARY_PACKED"
        elif types.is_binary(one.type):
            apart[one.name] = "DELTA_LENGTH_BYTE_ARRAY"
    return {
        "use_dictionary": dictionaries,
        "column_encoding": own | apart,
        "dictionary_pagesize_limit": DICTIONARY_SIZE_BYTES,
        "write_statistics": [*own],
    }


def _recurs(values: Any) -> bool:
    """Whether values occur twice and more often, on average."""
    return 2 * int(compute.count_distinct(values, mode="all").as_py()) <= len(values)


@lru_cache(maxsize=100)
def _list_leaves(column: Any) -> list[str]:
    """Return the paths of the columns that a file has for one of Arrow."""
    empty = io.BytesIO()
    parquet.write_table(pyarrow.schema([column]).empty_table(), empty)
    leaves = parquet.ParquetFile(empty).metadata.schema
    return [leaves.column(at).path for at in range(len(leaves))]


def _metadata(footer: FileFooter, schema: TableSchema | None) -> dict[bytes, bytes]:
    """Return what a footer holds beside the columns, as text: Parquet has nothing else there, and
    other readers, such as Polars, refuse a file that has."""
    found = {FOOTER_KEY: msgspec.json.encode(asdict(footer))}
    if schema is not None:
        found[SCHEMA_KEY] = base64.b64encode(canonical_bytes(schema))
    return found


@contextmanager
def writing_new(path: Path, require_lease: Callable[[], None] = lambda: None) -> Iterator[BinaryIO]:
    """Write a new file in the block, which gets its name when it is whole and on the disk; raises
    `OSError`, and what `require_lease` raises, before anything is written."""
    unfinished = unfinished_of(path)
    make_directory(path.parent)
    try:
        with unfinished.open("wb") as file:
            require_lease()
            yield file
            file.flush()
            os.fsync(file.fileno())
        unfinished.rename(path)
        sync_directory(path.parent)
    finally:
        with suppress(OSError):
            unfinished.unlink(missing_ok=True)


def unfinished_of(path: Path) -> Path:
    """Return what a file is called until it is complete."""
    return path.with_name(path.name + UNFINISHED)


def make_directory(path: Path) -> None:
    """Make a directory and those above it, each of them flushed to the disk."""
    if not path.is_dir():
        make_directory(path.parent)
        path.mkdir(exist_ok=True)
        sync_directory(path.parent)


def list_directory(path: Path) -> list[Path]:
    """Return what is in a directory, in order; nothing if it is not there.

    Raises `OSError` for one that can't be read, or goes away meanwhile: `Path.glob` leaves it out,
    from Python 3.12 on in both cases.
    """
    return sorted(path.iterdir()) if path.is_dir() else []


def sync_directory(path: Path) -> None:
    """Flush the names in a directory to the disk."""
    opened = os.open(path, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


@contextmanager
def reading_file(path: Path, row: HistoryFile) -> Iterator[None]:
    """Read a file of a row in the block; raises `HistoryDamaged` if it is not there, or can't be
    read, and `HistoryUnreachable` if its directory is not there."""
    try:
        yield
    except (OSError, pyarrow.ArrowInvalid) as error:
        require_directory(path.parents[len(Path(row.path).parts) - 1], row.tenant)
        raise make_damaged(path, row, _shorten(error)) from error


def make_damaged(path: Path, row: HistoryFile, problem: str) -> HistoryDamaged:
    return HistoryDamaged(
        "a file of the history store is missing, or is not what was written",
        path=str(path),
        problem=problem,
        table=row.table_number,
        moments=f"{row.first_moment} to {row.last_moment}",
        hint="restore it from a backup of the store; other moments can still be read",
    )


def _shorten(error: Exception) -> str:
    if isinstance(error, FileNotFoundError):
        return NOT_THERE
    return str(error).partition("\n")[0][:200]


def require_whole(path: Path, row: HistoryFile) -> None:
    """Raise `HistoryDamaged` if a file is not what its row says, and as `reading_file` does."""
    with reading_file(path, row):
        if not is_whole(path, row.sha256):
            raise pyarrow.ArrowInvalid(OTHER_DIGEST)


def read_columns(
    directory: str | Path, row: HistoryFile, columns: Sequence[str], condition: Any = None
) -> Any:
    """Return columns of the rows of a file in a store's directory for which a condition holds, as a
    `pyarrow.Table`; raises as `require_whole` does."""
    path = row.place_in(directory)
    require_whole(path, row)
    with reading_file(path, row):
        return parquet.read_table(
            path, columns=[*columns], filters=condition, partitioning=None
        ).replace_schema_metadata()


def find_keys(path: Path, row: HistoryFile) -> HistoryFile:
    """Return the row of a file with the keys that it has, which no manifest has; raises
    `HistoryDamaged`."""
    if not row.rows or row.kind == "moments":
        return row
    with reading_file(path, row):
        keys: Any = parquet.read_table(path, columns=[KEY], partitioning=None).column(0)
    return replace(row, key_lower=keys[0].as_py(), key_upper=keys[-1].as_py())


def compare_footer(footer: FileFooter, row: HistoryFile) -> str | None:
    """Return what is wrong with a file, by what it says of itself; None if it is that of a row."""
    said = (footer.tenant, footer.timeline, footer.kind, footer.table, footer.era)
    if said != (row.tenant, row.timeline, row.kind, row.table_number, row.era):
        return "it is another file of a store, or of another store"
    if (footer.first_moment, footer.last_moment) != (row.first_moment, row.last_moment):
        return "it has other moments"
    return None


def _not_of_a_store(path: Path, error: Exception) -> HistoryDamaged:
    return HistoryDamaged(
        "this is not a file of a history store",
        path=str(path),
        cause=str(error)[:200],
        hint="restore it from a backup",
    )


def _read_metadata(path: Path) -> dict[bytes, bytes]:
    """Raises `ArrowInvalid` for a damaged file, and `OSError` for what the system refuses."""
    try:
        return parquet.read_metadata(path).metadata or {}
    except OSError as error:
        if error.errno is None:  # Arrow's own, of bytes that are no footer
            raise pyarrow.ArrowInvalid(str(error)) from error
        raise


def read_footer(path: Path) -> tuple[FileFooter, TableSchema | None]:
    """Read what a file says of itself; raises `HistoryDamaged` for a file that no store has."""
    try:
        metadata = _read_metadata(path)
        footer = FileFooter.parse(metadata[FOOTER_KEY])
        packed = metadata.get(SCHEMA_KEY)
        canonical = None if packed is None else base64.b64decode(packed, validate=True)
        schema = None if canonical is None else read_canonical_bytes(canonical)
    except (pyarrow.ArrowInvalid, KeyError, ValueError, RecursionError, CorruptCatalog) as error:
        raise _not_of_a_store(path, error) from error
    if footer.format > HISTORY_FORMAT:
        raise HistoryDamaged(
            "the file has a newer format than this release knows",
            path=str(path),
            format=footer.format,
            known=HISTORY_FORMAT,
            hint="use a newer release of zapdb",
        )
    return footer, schema


def delete_file(path: Path, database: str) -> None:
    """Delete a file of a store, if it is there. Raises `OSError`, and `HistoryDamaged` for one that
    this database has not written, by what it says of itself: whoever can write rows of the manifest
    deletes nothing else."""
    _delete(path, database, is_named=False)


def delete_file_of_row(store_directory: str | Path, row: HistoryFile, database: str) -> None:
    """Do the same for the file of a row. One that is so damaged that it says nothing of itself is
    deleted, too: it has a name that only zapdb makes, and nobody could read it."""
    _delete(row.place_in(store_directory), database, is_named=True)


def _delete(path: Path, database: str, *, is_named: bool) -> None:
    try:
        written_by = _read_writer(path)
    except FileNotFoundError:
        return
    except (pyarrow.ArrowInvalid, ValueError, RecursionError) as error:
        if not is_named:
            raise _not_of_a_store(path, error) from error
        written_by = database
    if written_by != database:
        raise HistoryDamaged(
            "the file to be deleted is of another database",
            path=str(path),
            hint="nothing was deleted: somebody may have written to zapdb_history_files",
        )
    path.unlink(missing_ok=True)


@dataclass(frozen=True, slots=True)
class _Writer:
    """What is read of a footer of whatever format."""

    database: str


def _read_writer(path: Path) -> str:
    """Return the database that has written a file. Raises `OSError`; `HistoryDamaged` for a file of
    another program, and `ArrowInvalid`, `ValueError` and `RecursionError` for a damaged one."""
    metadata = _read_metadata(path)
    if FOOTER_KEY not in metadata:
        raise _not_of_a_store(path, KeyError(FOOTER_KEY))
    return msgspec.json.decode(metadata[FOOTER_KEY], type=_Writer).database


def read_untrusted_footer(path: Path) -> tuple[FileFooter, TableSchema | None]:
    """Do the same for a file that somebody else may have written, and that no digest is known of:
    raises `HistoryDamaged` for one that can't be read within bounds, too."""
    try:
        require_bounded(path)
    except (pyarrow.ArrowInvalid, OSError) as error:
        raise _not_of_a_store(path, error) from error
    return read_footer(path)


def read_digest(path: Path) -> bytes:
    """Return the SHA-256 of a file; raises `OSError`."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").digest()


def is_whole(path: Path, sha256: bytes) -> bool:
    """Return whether a file has this SHA-256; raises `OSError`.

    A process reads a file for that once, and again whenever the file system says that it was
    changed since. Its pages have checksums too, but not what stands between them, and DuckDB looks
    at none.
    """
    return _COMPARED.get(_name_state(path, sha256), lambda: read_digest(path) == sha256)


def _name_state(path: Path, sha256: bytes) -> tuple[Path, bytes, tuple[int, ...]]:
    """Return what the outcome is kept under, as long as the file system says the same."""
    found = path.stat()
    state = (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
    return path, sha256, state
