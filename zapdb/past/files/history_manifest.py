"""The manifest of history stores: rows that say which files hold which moments.

A store's files are worth nothing without their rows, so they appear and disappear by transactions
of the database. What a batch adds (its files, its eras, the store's new end) is one transaction,
together with the follower's bookmark in the change log.
"""

from __future__ import annotations

import enum
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields, replace
from itertools import groupby, islice
from pathlib import Path
from typing import Any, Final, Self

import msgspec
import sqlalchemy as sa

from zapdb.log.change_log import Bookmark
from zapdb.storage.cells import as_number, checked, reading
from zapdb.storage.connection import Connection
from zapdb.storage.fixed_tables import (
    HISTORY_ERAS,
    HISTORY_FILES,
    HISTORY_STORES,
    EraState,
    FileKind,
    FileState,
    StoreState,
    has_word_sql,
)

HISTORY_FORMAT: Final = 1
"""The format of the store's files; one with a higher number is refused."""

FOLLOWED: Final = ("baseline", "follows")
"""The states in which a process is to follow."""


class Doubt(enum.StrEnum):
    """Why values of an era may differ from those that were read then."""

    ARCHIVE_PRUNING = "archive_pruning"
    """Archived values were restored while they were being pruned, which did not end: it is not
    known which were left. (`zapdb migrate prune-archive` was interrupted.)"""


IDS_PER_STATEMENT: Final = 500
FILES_PER_STATEMENT: Final = 50
PIN_PREFIX: Final = "history-pin/"
"""What the names of leases begin with by which readers keep retired files: with the tenant's number
and a slash behind it."""
NAMED: Final = re.compile("[0-9a-f]{32}")
"""The ids of timelines and files, which are parts of paths: whoever can write these rows names no
other file of the host."""
_FILE_COLUMNS: Final = tuple(HISTORY_FILES.c.keys())
NO_TABLE: Final = 0
"""The table number of files that belong to no table: those of kind `moments`."""


@dataclass(frozen=True, slots=True)
class HistoryStore:
    """A row of `zapdb_history_stores`: one timeline of a tenant's store.

    The files hold the moments after `begins` up to `ends`. `ends_bookmark` is the place of the
    moment `ends` in the change log, `visible_at` the time from which it is visible. Moments before
    `purged_before` are gone. `commits` counts the transactions that changed its files or eras; the
    last of them has a copy of these rows in the directory (`manifest_files`). Times are in
    microseconds since 1970-01-01 UTC.

    State: `baseline`, a table's first checkpoint is under way; `follows`; `stopped` by an operator;
    `broken`, because the change log was pruned in front of it. `problem` says why the follower
    can't go on at the moment. It was moved out of `former_directories`, where files may be left.
    """

    tenant: int
    timeline: str
    directory: str
    format: int
    state: StoreState
    begins: int
    ends: int
    ends_bookmark: Bookmark
    visible_at: int
    purged_before: int
    started_at: int
    flushed_at: int
    commits: int = 0
    problem: str | None = None
    former_directories: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        _require_named(self.timeline)
        _require_from_zero(
            self.tenant, self.begins, self.ends, self.purged_before, self.visible_at, self.commits
        )
        _require_places(self.directory, *self.former_directories)
        if self.begins > self.ends:
            raise ValueError(f"it ends before it begins: {self.begins} to {self.ends}")

    @classmethod
    def from_row(cls, row: Any) -> Self:
        """Of cells that have the types of their columns; raises `CorruptCatalog`."""
        cells = dict(zip(HISTORY_STORES.c.keys(), row, strict=True))
        with reading(HISTORY_STORES.name):
            former = msgspec.json.decode(cells["former_directories"], type=tuple[str, ...])
            place = Bookmark.stored(cells["ends_bookmark"])
            return cls(**cells | {"ends_bookmark": place, "former_directories": former})


@dataclass(frozen=True, slots=True)
class HistoryFile:
    """A row of `zapdb_history_files`: one Parquet file; `zapdb.past.files.layers` has the kinds.

    Its rows are of the moments from `first_moment` to `last_moment`, and have keys from `key_lower`
    to `key_upper`, both included; None without rows, and for files of no table. `revision` is the
    newest revision of the table that its rows were written under. It is in `directory`, or, if that
    is None, in the store's. A `retired` file is deleted some time after `retired_at`.
    """

    tenant: int
    timeline: str
    id: str
    table_number: int
    era: int
    kind: FileKind
    first_moment: int
    last_moment: int
    revision: int
    rows: int
    size_bytes: int
    sha256: bytes
    key_lower: bytes | None
    key_upper: bytes | None
    state: FileState = "live"
    retired_at: int | None = None
    directory: str | None = None

    def __post_init__(self) -> None:
        _require_named(self.timeline, self.id)
        _require_from_zero(self.tenant, self.table_number, self.era, self.revision)
        _require_from_zero(self.rows, self.size_bytes, self.first_moment)
        if self.first_moment > self.last_moment:
            raise ValueError(f"moments {self.first_moment} to {self.last_moment}")
        if (self.kind == "moments") != (self.table_number == NO_TABLE):
            raise ValueError(f"{self.kind} of table {self.table_number}")
        if self.directory is not None:
            _require_places(self.directory)

    @property
    def place(self) -> tuple[int, int]:
        """The numbers of its table and of its era, which name that in a timeline."""
        return self.table_number, self.era

    @property
    def path(self) -> str:
        """Where it is in its directory: no row says so in other words."""
        return path_of(self.tenant, self.table_number, self.kind, self.id)

    @classmethod
    def from_row(cls, row: Any) -> Self:
        """Of cells that have the types of their columns; raises `CorruptCatalog`."""
        cells = dict(zip(_FILE_COLUMNS, row, strict=True))
        with reading(HISTORY_FILES.name):
            return cls(**cells)

    def place_in(self, store_directory: str | Path) -> Path:
        """Return its full path; it may have been moved out of the store's directory."""
        return Path(self.directory or store_directory) / self.path


def path_of(tenant: int, table: int, kind: FileKind, id: str) -> str:
    """Return where a file is in the directory of a store."""
    return f"{int(tenant)}/{int(table)}/{kind}-{id}.parquet"


@dataclass(frozen=True, slots=True)
class HistoryEra:
    """A row of `zapdb_history_eras`: a stretch of a table's history, numbered from 1.

    It begins with the checkpoint of the moment `first_moment`, and has the changes after that up to
    `last_moment`; None as long as it goes on to the store's end. All of its files have the columns
    of one layout, that of `layout_revision`; `revision` is the table's at its beginning. It had
    `live_rows` at its beginning, and `changes` since.

    State: `baseline`, its checkpoint is not complete, so that it can't be read yet; `open`;
    `sealed`, another one begins with the records as they were at its end. `doubt` is why values of
    it may differ from those that were read then.
    """

    tenant: int
    timeline: str
    table_number: int
    era: int
    first_moment: int
    last_moment: int | None
    revision: int
    layout_revision: int
    live_rows: int
    changes: int
    state: EraState
    doubt: Doubt | None = None

    def __post_init__(self) -> None:
        _require_named(self.timeline)
        _require_from_zero(self.tenant, self.first_moment, self.revision, self.layout_revision)
        _require_from_zero(self.live_rows, self.changes)
        if self.table_number < 1 or self.era < 1:
            raise ValueError(f"era {self.era} of table {self.table_number}")
        if self.last_moment is not None and self.last_moment < self.first_moment:
            raise ValueError(f"moments {self.first_moment} to {self.last_moment}")

    @classmethod
    def from_row(cls, row: Any) -> Self:
        """Of cells that have the types of their columns; raises `CorruptCatalog`."""
        cells = dict(zip(HISTORY_ERAS.c.keys(), row, strict=True))
        with reading(HISTORY_ERAS.name):
            doubt = None if cells["doubt"] is None else Doubt(cells["doubt"])
            return cls(**cells | {"doubt": doubt})

    @property
    def place(self) -> tuple[int, int]:
        """The number of its table and its own, which name it in a timeline."""
        return self.table_number, self.era

    def holds(self, moment: int) -> bool:
        """Whether the table at a moment, not beyond the store's end, is told by this era."""
        return self.first_moment <= moment and (
            self.last_moment is None or moment <= self.last_moment
        )


def _require_named(*names: str) -> None:
    for name in names:
        if not NAMED.fullmatch(name):
            raise ValueError(f"{name[:40]!r} is no id")


def _require_places(*directories: str) -> None:
    """Full paths that a line can show as they are, as those of stores are that zapdb begins."""
    for one in directories:
        if not (Path(one).is_absolute() and one.isprintable()):
            raise ValueError(f"{one!r} is no place of a store")


def _require_from_zero(*numbers: int) -> None:
    if min(numbers) < 0:
        raise ValueError(f"{min(numbers)} is below 0")


# Reading. Each function reads in the caller's snapshot.


def read_store(connection: Connection, tenant: int) -> HistoryStore | None:
    """Return a tenant's newest timeline; None without a store."""
    return next(iter(list_timelines(connection, tenant)), None)


def list_timelines(connection: Connection, tenant: int) -> list[HistoryStore]:
    """Return a tenant's timelines, the newest first."""
    rows = _fetch(connection, HISTORY_STORES, {"tenant": tenant}, "timeline DESC")
    return [HistoryStore.from_row(row) for row in rows]


def list_store_tenants(connection: Connection) -> set[int]:
    """Return the tenants that have a store, in whatever state."""
    sql = f"SELECT DISTINCT tenant FROM {HISTORY_STORES.name}"
    return {tenant for (tenant,) in checked((HISTORY_STORES.c.tenant,), connection.fetch_all(sql))}


def list_followed(connection: Connection) -> list[int]:
    """Return the tenants that have a store which is to be followed."""
    at = HISTORY_STORES.c
    sql = f"SELECT tenant, state FROM {HISTORY_STORES.name} ORDER BY timeline"
    states = dict(checked((at.tenant, at.state), connection.fetch_all(sql)))  # the newest's
    return sorted(tenant for tenant, state in states.items() if state in FOLLOWED)


def list_history_files(
    connection: Connection,
    store: HistoryStore,
    *,
    table: int | None = None,
    era: int | None = None,
    state: FileState | None = "live",
) -> list[HistoryFile]:
    """Return the files of a timeline, or of a table in it, or of one of its eras, by their first
    moments and least keys."""
    wanted = {**_timeline_of(store), "table_number": table, "era": era, "state": state}
    order = "table_number, era, first_moment, key_lower, id"
    return [HistoryFile.from_row(r) for r in _fetch(connection, HISTORY_FILES, wanted, order)]


def measure_files(connection: Connection, store: HistoryStore) -> dict[str | None, tuple[int, int]]:
    """Return how many files a timeline has, and their bytes, by the directory that they were moved
    to; by None, those in its own."""
    at = HISTORY_FILES.c
    found = connection.core_execute(
        sa.select(at.directory, sa.func.count(), sa.func.sum(at.size_bytes))
        .where(at.tenant == store.tenant, at.timeline == store.timeline)
        .group_by(at.directory)
    )
    return {directory: (as_number(count), int(size)) for directory, count, size in found}


def list_eras(
    connection: Connection,
    store: HistoryStore,
    table: int | None = None,
    *,
    state: EraState | None = None,
    is_last: bool = False,
) -> list[HistoryEra]:
    """Return the eras of a timeline, or of a table in it, by table and from the oldest on; with
    `is_last`, those that go on to the store's end, which are no more than its tables."""
    wanted = {**_timeline_of(store), "table_number": table, "state": state}
    also = " AND last_moment IS NULL" if is_last else ""
    rows = _fetch(connection, HISTORY_ERAS, wanted, "table_number, era", also)
    return [HistoryEra.from_row(row) for row in rows]


def _timeline_of(store: HistoryStore) -> dict[str, Any]:
    return {"tenant": store.tenant, "timeline": store.timeline}


def _fetch(
    connection: Connection, table: sa.Table, wanted: dict[str, Any], order: str, also: str = ""
) -> list[Any]:
    """Return the rows whose columns have the values that are wanted, if these are not None. A
    follower asks this for each batch: so the statement is text."""
    mark, state = connection.storage.placeholder, wanted.get("state")
    given = {c: v for c, v in wanted.items() if v is not None and c != "state"}
    also += "" if state is None else f" AND {has_word_sql(table.c.state, state)}"
    where = " AND ".join(f"{column} = {mark}" for column in given)
    sql = f"SELECT {', '.join(table.c.keys())} FROM {table.name} WHERE {where}{also}"
    return checked(table.c, connection.fetch_all(f"{sql} ORDER BY {order}", [*given.values()]))


def find_era(
    connection: Connection, store: HistoryStore, table: int, moment: int
) -> HistoryEra | None:
    """Return the era that holds a moment of a table, up to the store's end; None in a gap, before
    the beginning, and as long as the era's checkpoint is not complete."""
    found = [
        era
        for era in list_eras(connection, store, table)
        if era.holds(moment) and era.state != "baseline"
    ]
    return found[-1] if found and store.begins <= moment <= store.ends else None


def find_first_revision(connection: Connection, tenant: int, table: int) -> int | None:
    """Return the revision of a table at the earliest moment that a store of the tenant holds; None
    if none holds the table."""
    at = HISTORY_ERAS.c
    query = sa.select(sa.func.min(at.revision)).where(at.tenant == tenant, at.table_number == table)
    found = connection.core_execute(query).scalar()
    return None if found is None else as_number(found)


# Writing, inside a CATALOG transaction.


def insert_store(connection: Connection, store: HistoryStore) -> None:
    """Raises `DuplicateKey`."""
    connection.core_execute(sa.insert(HISTORY_STORES).values(**_columns(store)))


def update_store(connection: Connection, was: HistoryStore, store: HistoryStore) -> bool:
    """Store what changes of a timeline's row if its end was not moved, and nothing committed, since
    it was read; returns whether that is so. Other columns are left as others may have made them."""
    before, mark = _columns(was), connection.storage.placeholder
    changed = {name: value for name, value in _columns(store).items() if value != before[name]} or {
        "problem": was.problem
    }
    names = ("tenant", "timeline", "ends", "ends_bookmark", "state", "commits")
    where = " AND ".join(f"{name} = {mark}" for name in names)
    written = ", ".join(f"{name} = {mark}" for name in changed)
    found = connection.run(
        f"UPDATE zapdb_history_stores SET {written} WHERE {where}",
        [*changed.values(), *(before[name] for name in names)],
    )
    return found > 0


def stop_following(connection: Connection, store: HistoryStore) -> None:
    """Write the state alone, wherever a follower has moved the row since it was read."""
    at = HISTORY_STORES.c
    same = at.tenant == store.tenant, at.timeline == store.timeline
    stopped = sa.update(HISTORY_STORES).where(*same, at.state.in_(FOLLOWED))
    connection.core_execute(stopped.values(state="stopped"))


def insert_files(connection: Connection, files: Iterable[HistoryFile]) -> None:
    left = iter([_columns(file) for file in files])
    while rows := list(islice(left, FILES_PER_STATEMENT)):
        _insert(connection, HISTORY_FILES, rows)


def _insert(connection: Connection, table: sa.Table, rows: list[dict[str, Any]]) -> None:
    marks = ", ".join([connection.storage.placeholder] * len(rows[0]))
    values = ", ".join([f"({marks})"] * len(rows))
    sql = f"INSERT INTO {table.name} ({', '.join(rows[0])}) VALUES {values}"
    connection.run(sql, [cell for row in rows for cell in row.values()])


def retire_files(connection: Connection, files: Iterable[HistoryFile]) -> None:
    """Take files out of the manifest's live ones, as of now; they are deleted later."""
    clock = connection.storage.dialect.clock_sql
    for named, parameters in _name_files(connection, files):
        connection.run(
            f"UPDATE zapdb_history_files SET state = 'retired', retired_at = ({clock})"
            f" WHERE {named}",
            parameters,
        )


def _name_files(
    connection: Connection, files: Iterable[HistoryFile]
) -> Iterator[tuple[str, list[Any]]]:
    """Yield conditions for the rows of files, some hundreds each, with their parameters."""
    mark = connection.storage.placeholder
    for (tenant, timeline), ids in _by_timeline(files):
        marks = ", ".join([mark] * len(ids))
        condition = f"tenant = {int(tenant)} AND timeline = {mark} AND id IN ({marks})"
        yield condition, [timeline, *ids]


def _by_timeline(files: Iterable[HistoryFile]) -> Iterator[tuple[tuple[int, str], list[str]]]:
    """Yield the ids of files, some hundreds at a time, with their tenant and timeline."""
    for place, some in groupby(files, key=lambda file: (file.tenant, file.timeline)):
        ids = (file.id for file in some)
        while page := list(islice(ids, IDS_PER_STATEMENT)):
            yield place, page


def delete_file_rows(connection: Connection, files: Iterable[HistoryFile]) -> None:
    """Delete the rows of retired files that are gone."""
    for named, parameters in _name_files(connection, files):
        connection.run(
            f"DELETE FROM zapdb_history_files WHERE {named} AND state = 'retired'", parameters
        )


def save_era(connection: Connection, era: HistoryEra) -> None:
    """Insert an era, or store what became of it."""
    row, mark = _columns(era), connection.storage.placeholder
    key = {name: row.pop(name) for name in ("tenant", "timeline", "table_number", "era")}
    written = ", ".join(f"{name} = {mark}" for name in row)
    where = " AND ".join(f"{name} = {mark}" for name in key)
    found = connection.run(
        f"UPDATE zapdb_history_eras SET {written} WHERE {where}", [*row.values(), *key.values()]
    )
    if not found:
        _insert(connection, HISTORY_ERAS, [key | row])


def delete_timeline(connection: Connection, store: HistoryStore) -> None:
    """Delete all rows of a timeline, if there are any."""
    for table in (HISTORY_STORES, HISTORY_FILES, HISTORY_ERAS):
        mine = table.c.tenant == store.tenant, table.c.timeline == store.timeline
        connection.core_execute(sa.delete(table).where(*mine))


def delete_eras(connection: Connection, eras: Iterable[HistoryEra]) -> None:
    at, numbers = HISTORY_ERAS.c, defaultdict[tuple[int, str, int], list[int]](list)
    for era in eras:
        numbers[era.tenant, era.timeline, era.table_number].append(era.era)
    for (tenant, timeline, table), gone in numbers.items():
        connection.core_execute(
            sa.delete(HISTORY_ERAS).where(
                at.tenant == tenant,
                at.timeline == timeline,
                at.table_number == table,
                at.era.in_(gone),
            )
        )


def _columns(row: HistoryStore | HistoryFile | HistoryEra) -> dict[str, Any]:
    found = {field.name: getattr(row, field.name) for field in fields(row)}
    if isinstance(row, HistoryStore):
        found["ends_bookmark"] = str(row.ends_bookmark)
        found["former_directories"] = msgspec.json.encode(row.former_directories).decode()
    if isinstance(row, HistoryEra):
        found["doubt"] = None if row.doubt is None else str(row.doubt)
    return found


def with_end(
    store: HistoryStore, ends: int, bookmark: Bookmark, visible_at: int, now_us: int
) -> HistoryStore:
    """Return a timeline whose files reach up to a later moment."""
    return replace(
        store, ends=ends, ends_bookmark=bookmark, visible_at=visible_at, flushed_at=now_us
    )
